// Photos of the collection as a gallery: all of them, an album (some labels, a folder), or all with
// the last added first.

import { addressOf } from "./address.js";
import { get } from "./api.js";
import { fromColumns, keepLabels, whenKnown } from "./details.js";
import { box, command, el, plural } from "./dom.js";
import { Gallery } from "./gallery.js";
import { altText, dressTile } from "./grid.js";
import { filterChips } from "./searchbox.js";
import { bindSelection, isSelected } from "./select.js";
import { asList, folded, state } from "./state.js";
import { addView } from "./views.js";

const VIEWS = ["photos", "album", "added"];

/** @import { Request } from "./address.js" */
/** @import { Values } from "./api.js" */
/** @import { View } from "./views.js" */

/** @type {Gallery | null} */
let gallery = null;
/** @type {string | null} */
let shown = null; // what the gallery shows

/** @param {Request} request */
export const hasGallery = (request) => VIEWS.includes(request.view ?? "");
export const photosGallery = () => gallery;
export const forgetPhotos = () => (shown = null);

/** @param {Request} request */
const albumTitle = ({ label, folder }) =>
  asList(label).join(", ") || (folder === "." ? "Image directory" : folder) || "All photos";

/**
 * What can be done with an album of one label.
 * @param {Request} request
 */
function links({ label, ...others }) {
  const [name, ...more] = asList(label);
  const { not_label, folder, after, before, where } = others;
  if (!name || more.length || not_label || folder || after || before || where) return [];
  /** @param {Request} values @param {string} words */
  const link = (values, words) => el("a", { href: addressOf(values), "data-go": "link" }, words);
  return [
    state.run.annotators.length
      ? link({ query_label: name }, "Photos that fit this label best")
      : null,
    link({ view: "concept", label: name }, "Find more of these"),
    link({ view: "check", label: name }, "Check this label"),
  ];
}

function makeGallery() {
  const made = new Gallery(el("ol"), {
    href: (image) => addressOf({ ...state.request, open: image.id }),
    alt: (image) => altText(image).replace("Result undefined", "Photo"),
    dress: (image, node) => dressTile(image, node, { selected: isSelected(image.id) }),
  });
  bindSelection(made);
  whenKnown((images) => images.forEach((image) => made.refresh(image)));
  keepLabels(() => made.images);
  return made;
}

/**
 * @param {(request: Request) => string} titleOf
 * @param {(request: Request) => Values} valuesOf
 * @returns {View}
 */
const galleryView = (titleOf, valuesOf) => ({
  title: titleOf,
  show: async (section, request, turn) => {
    if (!state.run.images) {
      section.replaceChildren(
        box("This run has no images yet", [
          el("p", {}, "To index a folder of images, run this command, then reload the page:"),
          command("visterm features FOLDER"),
        ]),
      );
      return;
    }
    const values = valuesOf(request);
    const key = JSON.stringify([request.view, values, state.run.version, state.fold]);
    const kept = gallery;
    if (kept && key === shown && section.contains(kept.root)) {
      state.listed = kept.images;
      requestAnimationFrame(() => kept.layOut(null));
      return;
    }
    const columns = await get("api/images/columns", values);
    if (turn !== state.turn) return;
    const list = (gallery ??= makeGallery());
    const images = folded(columns.ids.map((_, i) => fromColumns(columns, i)));
    section.replaceChildren(
      el(
        "div",
        { class: "row bar" },
        el("h1", { dir: "auto" }, titleOf(request)),
        el("span", { class: "quiet" }, plural(columns.ids.length, "photo")),
        request.view === "album" ? links(request) : [],
      ),
      ...(request.view === "album" ? [el("div", { class: "chips" }, filterChips())] : []),
      images.length
        ? list.root
        : box("No photos", [el("p", {}, "No photo passes these filters. Remove one.")]),
    );
    section.hidden = false; // its width decides the rows
    state.listed = images;
    list.show(images);
    shown = key;
  },
});

addView(
  "photos",
  galleryView(
    () => "All photos",
    () => ({}),
  ),
);
addView(
  "album",
  galleryView(albumTitle, ({ label, not_label, folder, after, before, where }) => ({
    label,
    not_label,
    folder,
    after,
    before,
    where,
  })),
);
addView(
  "added",
  galleryView(
    () => "Recently added",
    () => ({ order: "recent" }),
  ),
);
