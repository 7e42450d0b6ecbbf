// The results: the gallery of one ranking, or two rankings side by side.

import { addressOf, FILTERS, pick, searchOf } from "../core/address.js";
import { drawComparison } from "./compare.js";
import { keepLabels, whenKnown } from "../gallery/details.js";
import { $, activeElement, el } from "../core/dom.js";
import { announce, box, command } from "../core/says.js";
import { percent, plural, present } from "../core/text.js";
import { altText, dressTile, refreshTile, resultGallery, weakBreak } from "../gallery/grid.js";
import { change } from "../core/history.js";
import { fetchRest } from "./search.js";
import { bindSelection, isSelected } from "../gallery/select.js";
import { COMPARED, marks, modelName, state, visible } from "../core/state.js";

/** @import { Request } from "../core/address.js" */
/** @import { Photo } from "../gallery/details.js" */
/** @import { Gallery } from "../gallery/gallery.js" */
/** @import { Earlier, Ranking } from "../core/state.js" */

/** @param {Photo} image */
const addressOfResult = (image) => addressOf({ ...state.request, open: image.id });

/** @type {Gallery | null} */
let gallery = null;

function makeGallery() {
  gallery = resultGallery({
    href: addressOfResult,
    alt: (image) => altText(image, marks.of.get(image.id)),
    dress: (image, node) =>
      dressTile(image, node, {
        mark: marks.of.get(image.id),
        selected: isSelected(image.id),
        markable: Boolean(state.ranking.key),
      }),
  });
  bindSelection(gallery);
  whenKnown((images) => images.forEach(refreshTile));
  keepLabels(() => state.ranking.results);
  return gallery;
}

export const theGallery = () => gallery;

/** What the gallery is drawn from. @param {Request} request @param {Ranking} ranking */
const sourceOf = (request, ranking) =>
  JSON.stringify([
    searchOf(request),
    ranking.results.length,
    request.metric,
    state.hideMarked,
    state.fold,
    ranking.version,
  ]);

export function showGrid(redraw = false) {
  const { request, ranking } = state;
  const key = sourceOf(request, ranking);
  if (state.drawn === key && !redraw) return;
  state.drawn = key;
  const images = (state.listed = visible());
  const list = gallery ?? makeGallery();
  const focused = list.focusedId();
  const best = ranking.results[0]?.score;
  $("#results").replaceChildren(
    ...present([
      ranking.unlike &&
        images.length &&
        el(
          "p.note.unlike",
          el("span", "Nothing here is much like this photo. These are the nearest ones."),
        ),
      images.length ? list.root : empty(),
      images.length ? el("p.quiet.end", { id: "end" }) : null,
    ]),
  );
  if (images.length) {
    $("#start").hidden = true;
    $("#results").hidden = false; // its width decides the rows
    list.show(images, weakBreak(images, best));
    const still = { preventScroll: true };
    if (focused !== null && !list.focus(list.indexOf(focused), still)) list.focus(0, still);
    tellEnd();
  }
  announce(`${plural(images.length, "result")} by ${modelName(ranking.learner)}.`);
  if (!ranking.ended)
    (window.requestIdleCallback ?? setTimeout)(() => void showRest().catch(tellEnd), {
      timeout: 1000,
    });
}

/** @param {Error} [error] */
function tellEnd(error) {
  if (!$("#end")) return;
  const { ranking } = state;
  const n = ranking.results.length;
  $("#end").replaceChildren(
    ...(error
      ? [
          `Cannot load the other results: ${error.message} `,
          el("button", { onclick: () => void showRest().catch(tellEnd) }, "Try again"),
        ]
      : [
          ranking.ended
            ? `${ranking.n_searched > n + 1 && n >= 100_000 ? "The first" : "All"} ` +
              `${plural(n, "result")} shown.`
            : "Loading more …",
        ]),
  );
}

// Add the results beyond the first ones to the gallery.
export async function showRest() {
  const { ranking, request } = state;
  if (!ranking || request.with || ranking.ended) return;
  await fetchRest(ranking, request);
  if (state.ranking !== ranking || state.request.with || state.request.view) return;
  state.drawn = null;
  const y = scrollY;
  const images = (state.listed = visible());
  if (!$("#grid")) return showGrid(true);
  state.drawn = sourceOf(state.request, ranking);
  gallery?.show(images, weakBreak(images, ranking.results[0]?.score));
  scrollTo(0, y);
  tellEnd();
}

function empty() {
  const { ranking, request, run } = state;
  const hidden = ranking.results.length;
  const why = hidden
    ? `Filters hide all ${plural(hidden, "result")}.`
    : request.min_probability
      ? `None is ${percent(request.min_probability)} likely of the same kind.`
      : FILTERS.some((name) => request[name] !== undefined)
        ? "No other photo passes these filters."
        : "The collection has no other image to compare with.";
  const removeAll = () => {
    state.hideMarked = false;
    change(pick({}, [...FILTERS, "metric", "exclude_duplicates", "min_probability"]));
  };
  return box("No results", [
    el("p", why),
    run.images > 1
      ? el("button", { onclick: removeAll }, "Remove all filters")
      : command("visterm add FOLDER"),
  ]);
}

export function showComparison() {
  const { ranking, other } = state;
  if (!other) {
    $("#compare").replaceChildren(
      box("No ranking to compare with", [
        el(
          "p",
          "The ranking before an update is available until you reload the page, and only for " +
            "the same query and filters.",
        ),
      ]),
    );
    return;
  }
  const [left, right] = state.request.with === "before" ? [other, ranking] : [ranking, other];
  /** @param {Ranking | Earlier} part */
  const show = (part) => ({
    name: "name" in part ? part.name : modelName(part.learner),
    results: part.results.slice(0, COMPARED),
  });
  /** @type {HTMLElement | null} */
  const cell = activeElement().closest("#compare td");
  const focused = cell?.dataset.id;
  const said = $("#summary")?.textContent;
  $("#compare").replaceChildren(
    ...present(drawComparison(show(left), show(right), marks.of, addressOfResult)),
  );
  if (focused) $(`#compare td[data-id="${focused}"] a`)?.focus({ preventScroll: true });
  if ($("#summary").textContent !== said) announce($("#summary").textContent);
}
