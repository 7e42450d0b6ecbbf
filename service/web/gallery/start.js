// The start page: random samples of the collection, and the recent queries of this browser.

import { addressOf, queryOf, wordsOf } from "../core/address.js";
import { get } from "../core/api.js";
import { $, el, link } from "../core/dom.js";
import { remember, remembered } from "../core/remember.js";
import { noImages } from "../core/says.js";
import { Gallery } from "./gallery.js";
import { dressTile } from "./grid.js";
import { drawHome, followHome, readHome } from "./home.js";
import { queryPicture } from "../search/queryimage.js";
import { forgetRanking, marks, queryName, state, viewOf } from "../core/state.js";

/** @import { Query } from "../core/address.js" */
/** @import { Photo } from "./details.js" */

const RECENT = 10;

/** @param {number} turn */
export async function showStart(turn) {
  const [images, home] = await Promise.all([
    state.run.images && !samples ? readSamples() : null,
    readHome(),
  ]);
  if (turn === state.turn) forgetRanking();
  drawRecent();
  if (home) drawHome(home);
  if (state.run.images) followHome();
  if (images) showSamples(images, turn);
  else requestAnimationFrame(() => samples?.layOut(null));
  if (turn !== state.turn) return;
  marks.load(null);
  if (!state.run.images) $("#samples").replaceChildren(noImages());
}

/** @type {Gallery | null} */
let samples = null;

const readSamples = () => get("api/images", { sample: 24, seed: Math.floor(Math.random() * 1e6) });

export const drawSamples = async () => showSamples(await readSamples());

/** @param {Photo[]} images @param {number} [turn] */
function showSamples(images, turn = state.turn) {
  if (!samples) {
    samples = new Gallery(el("ol"), {
      href: (image) => addressOf({ id: image.id }),
      alt: (image) => `Search with ${image.path}`,
      dress: (image, node) => {
        dressTile(image, node, { plain: true });
        $("a.open", node).dataset.go = "link";
      },
    });
    $("#samples").replaceChildren(samples.root);
  }
  // Its width decides the rows. Where a file was dropped meanwhile, its search has the page.
  if (turn === state.turn) $("#start").hidden = viewOf(state.request) !== "start";
  samples.show(images);
}

const recentName = () => `recent ${state.run.run}`; // image ids belong to a run

/** @returns {{ query: Query, name: string }[]} */
const recent = () => remembered(recentName(), []);

function drawRecent() {
  const kept = recent();
  $("#recent").replaceChildren(
    ...(kept.length
      ? [
          el("h2", "Recent queries"),
          el(
            "ul.strip",
            kept.map(({ query, name }) =>
              el(
                "li",
                link(
                  query,
                  [queryPicture(query, name), wordsOf(query) ? null : el("span.unseen", name)],
                  { title: name },
                ),
              ),
            ),
          ),
        ]
      : []),
  );
}

export function rememberQuery() {
  const query = queryOf(state.request);
  const same = JSON.stringify(query);
  const kept = recent().filter((entry) => JSON.stringify(entry.query) !== same);
  remember(recentName(), [{ query, name: queryName() }, ...kept].slice(0, RECENT));
}
