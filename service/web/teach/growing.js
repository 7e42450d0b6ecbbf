// Concepts that stay: what was added and probably shows them, and labels given to all photos above
// a certainty, which answers that were left out measured.

import { get, post } from "../core/api.js";
import { $, el, link } from "../core/dom.js";
import { go } from "../core/history.js";
import { failure } from "../core/messages.js";
import { picture } from "../core/pictures.js";
import { dialogButtons, showDialog, toast } from "../core/says.js";
import { plural } from "../core/text.js";
import { did } from "../core/undo.js";
import { labelField, save, undoLabels } from "./labels.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["GrowingAlbum"]} Growing */

const LEVELS = [0.99, 0.95, 0.9, 0.8, 0.5];
const FEW = 6; // of the least certain ones that are shown

/** @param {number} share */
export const percent = (share) => `${Math.floor(100 * share)}\u00a0%`;

/** Concepts with photos that were added since somebody looked. @returns {Promise<Growing[]>} */
export const growing = async () =>
  (await get("api/concepts").catch(() => [])).filter((one) => one.new.length);

/** @param {Growing} one */
const newWords = ({ new: ids, certainty }) =>
  `${ids.length} new to look at` + (certainty ? `, about ${percent(certainty)} right` : "");

/** Links to what is new, of all concepts or of one. @param {string} [only] */
export async function newOnes(only) {
  const all = (await growing()).filter(({ label }) => only === undefined || label === only);
  return all.map((one) =>
    link(
      { view: "concept", label: one.label },
      only === undefined ? [el("bdi", one.label), `: ${newWords(one)}`] : newWords(one),
    ),
  );
}

/**
 * Give a label to all photos above a certainty: how many there are, and the least certain of them.
 * @param {string} label
 * @param {(ids: number[]) => unknown} add
 */
export async function askToAccept(label, add) {
  const { ids, certainty } = await get("api/concept/suggestions", { label });
  /** @param {number} least */
  const above = (least) => (certainty ? ids.filter((_, i) => certainty[i] >= least) : ids);
  const n = LEVELS.map((least) => above(least).length);
  const levels = LEVELS.filter((_, i) => certainty && n[i] > (n[i - 1] ?? 0)); // with more photos
  const select = el(
    "select",
    [...levels, 0].map((least) =>
      el(
        "option",
        { value: least },
        least ? `at least ${percent(least)} certain: ` : "all: ",
        plural(above(least).length, "photo"),
      ),
    ),
  );
  const photos = el("ul.photos.small");
  const preview = async () => {
    const last = above(Number(select.value)).slice(-FEW).reverse();
    const images = last.length ? await get("api/images", { ids: last.join(",") }) : [];
    photos.replaceChildren(
      ...images.map((image) =>
        el(
          "li",
          { style: { "--ratio": 1 } },
          picture(image, { alt: `Photo ${image.path}`, lazy: false }),
          certainty && el("p.under", percent(certainty[ids.indexOf(image.id)])),
        ),
      ),
    );
  };
  select.addEventListener("change", () => void preview().catch(failure));
  await preview(); // before the dialog, which would move
  showDialog(
    `Add “${label}” to`,
    el("label", "Photos", select),
    el(
      "p.quiet",
      certainty
        ? "The certainty was measured with your answers. The least certain of them:"
        : "With ten answers, three of yes and no each, their certainty is measured. " +
            "The least certain of them:",
    ),
    photos,
    dialogButtons(["Cancel"], ["Add the label", () => add(above(Number(select.value))), "primary"]),
  );
}

/** @param {string} label */
export function askToRename(label) {
  const rename = async (/** @type {string} */ into) => {
    dialog.close();
    try {
      const done = await save(() => post("api/labels/rename", { labels: [label], into }));
      const { changed, last } = done;
      if (!changed || !last) return toast("No photo has another label now.");
      const undo = async () => {
        if (await undoLabels({ steps: 1, of: [last.step] })) await go({ view: "album", label });
      };
      did("labels", undo);
      await go({ view: "album", label: into });
      toast(`${label} is now ${into} on ${plural(changed, "photo")}.`, "Undo", () => void undo());
    } catch (error) {
      toast(`Not renamed: ${error.message}`);
    }
  };
  const dialog = showDialog(
    `Rename ${label}`,
    el("p", "A label that exists takes these photos in. You can undo this."),
    labelField("New name", rename, "Rename"),
    dialogButtons(["Cancel"]),
  );
  $("input", dialog).focus();
}
