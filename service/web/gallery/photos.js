// Photos of the collection as a gallery: all of them, an album (some labels, a folder), all with
// the last added first, or by the month in which they were taken.

import { addressOf, FILTERS, pick } from "../core/address.js";
import { get } from "../core/api.js";
import { fromColumns, keepLabels, whenKnown } from "./details.js";
import { el, link } from "../core/dom.js";
import { addButton, box, noImages } from "../core/says.js";
import { plural } from "../core/text.js";
import { Gallery } from "./gallery.js";
import { altText, dressTile } from "./grid.js";
import { change } from "../core/history.js";
import { askToRename, newOnes } from "../teach/growing.js";
import { filterChips } from "../search/searchbox.js";
import { bindSelection, isSelected } from "./select.js";
import { asList, folded, state } from "../core/state.js";
import { monthWords, timeline } from "./timeline.js";
import { addView } from "../core/views.js";

const VIEWS = ["photos", "album", "added", "dates"];

/** @import { Request } from "../core/address.js" */
/** @import { Photo } from "./details.js" */
/** @import { Values } from "../core/api.js" */
/** @import { Schemas } from "../core/api.js" */
/** @import { View } from "../core/views.js" */

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
function links(request) {
  const [name, ...more] = asList(request.label);
  if (!name || more.length || FILTERS.some((one) => one !== "label" && request[one])) return [];
  return [
    state.run.annotators.length
      ? link({ query_label: name }, "Photos that fit this label best")
      : null,
    link({ view: "concept", label: name }, "Find more of these"),
    link({ view: "check", label: name }, "Check this label"),
    link({ view: "dates", label: name }, "By date"),
    el("button.plain", { onclick: () => askToRename(name) }, "Rename"),
  ];
}

/** @param {Request} request */
const filters = (request) => pick(request, FILTERS);

/** Other orders of all photos. @param {Request} request */
const orders = (request) =>
  [
    { view: "photos", words: "By folder" },
    { view: "dates", words: "By date" },
    { view: "added", words: "Last added first" },
  ]
    .filter(({ view }) => view !== request.view)
    .map(({ view, words }) => link({ view }, words));

/**
 * A heading before the first image of each month.
 * @param {Photo[]} every in order of date, copies included
 * @param {Photo[]} images the ones that are shown
 * @param {Schemas["Dates"]} dates
 */
function headings(every, images, { months, undated }) {
  const parts = months.map((one) => ({ words: monthWords(one.month), n: one.images }));
  if (undated) parts.push({ words: "Without a date", n: undated });
  /** @type {Map<Photo, string>} */
  const wordsOf = new Map();
  let at = 0;
  for (const { words, n } of parts) {
    for (const image of every.slice(at, at + n)) wordsOf.set(image, words);
    at += n;
  }
  return images
    .map((image, i) => ({ at: i, words: wordsOf.get(image) ?? "" }))
    .filter(({ at: i, words }) => !i || words !== wordsOf.get(images[i - 1]));
}

/**
 * What stands above the photos by date.
 * @param {Schemas["Dates"]} dates of all, whatever the period
 * @param {Request} request
 */
const datesHead = ({ months, from_files }, { after, before }) => [
  months.length > 1 ? timeline(months, { after, before }, (period) => change(period)) : "",
  from_files
    ? el(
        "p.quiet",
        `${plural(from_files, "photo does", "photos do")} not say when they were taken: ` +
          "here, the date of the file.",
      )
    : "",
];

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
      section.replaceChildren(noImages());
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
    const byDate = request.view === "dates";
    const album = request.view === "album" ? links(request) : null;
    const [columns, within, dates, news] = await Promise.all([
      get("api/images/columns", values),
      byDate ? get("api/dates", filters(request)) : null,
      byDate
        ? get("api/dates", { ...filters(request), after: undefined, before: undefined })
        : null,
      album?.length ? newOnes(asList(request.label)[0]) : null,
    ]);
    if (turn !== state.turn) return;
    const list = (gallery ??= makeGallery());
    const every = columns.ids.map((_, i) => fromColumns(columns, i));
    const images = folded(every);
    const filtered = request.view === "album" || byDate;
    section.replaceChildren(
      el(
        "div.row.bar",
        el("h1", { dir: "auto" }, titleOf(request)),
        el(
          "span.quiet",
          plural(every.length, "photo"),
          every.length > images.length &&
            `, ${plural(every.length - images.length, "copy", "copies")} folded`,
        ),
        news,
        album ?? orders(request),
        el("button.plain.select-all", "Select all"),
        request.view === "album" ? "" : addButton(),
      ),
      ...(dates ? datesHead(dates, request) : []),
      ...(filtered ? [el("div.chips", filterChips())] : []),
      images.length ? list.root : box("No photos", "No photo passes these filters. Remove one."),
    );
    section.hidden = false; // its width decides the rows
    state.listed = images;
    list.show(images, within ? headings(every, images, within) : []);
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
addView("album", galleryView(albumTitle, filters));
addView(
  "dates",
  galleryView(
    (request) => (request.label || request.folder ? `${albumTitle(request)}, by date` : "By date"),
    (request) => ({ ...filters(request), order: "date" }),
  ),
);
addView(
  "added",
  galleryView(
    () => "Recently added",
    () => ({ order: "recent" }),
  ),
);
