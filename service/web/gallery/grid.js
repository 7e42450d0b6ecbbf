// The results of a search as a gallery: what a tile shows, and which one has the focus.

import { $, $$, activeElement, el, icon } from "../core/dom.js";
import { plural } from "../core/text.js";
import { Gallery } from "./gallery.js";
import { named } from "../core/words.js";

/** @import { Photo } from "./details.js" */
/** @import { Break, Direction, Make } from "./gallery.js" */
/** @import { Mark } from "../teach/marks.js" */

const WEAK = 0.5; // below this share of the best score a match is called weak

/** @type {{ [mark: number]: string }} */
export const MARKS = { 1: "relevant", "-1": "not relevant" };

/** @param {Photo} image @param {Mark} [mark] */
export function altText(image, mark) {
  if (image.path === null) return `Result ${image.rank}`;
  const labels = image.labels.length ? `, label ${image.labels.join(", ")}` : "";
  const copies = image.copies?.length
    ? `, with ${plural(image.copies.length, "copy", "copies")}`
    : "";
  const rank = image.rank ? `Result ${image.rank}, ` : "";
  const marked = mark ? `, marked ${MARKS[mark]}` : "";
  return `${rank}${image.path}${labels}${copies}${marked}`;
}

/** @param {Mark | undefined} mark @param {boolean} [words] */
export function markButtons(mark, words = false) {
  /** @param {Mark} value @param {string} name @param {string} key @param {string} what */
  const button = (value, name, key, what) =>
    el(
      "button",
      {
        class: `mark ${name}`,
        "data-act": name,
        "aria-pressed": String(mark === value),
        "aria-label": words ? null : what,
        title: `${what} (${key})`,
        "aria-keyshortcuts": key,
      },
      icon(value === 1 ? "check" : "cross"),
      words ? ` ${what}` : null,
    );
  return [button(1, "relevant", "A", "Relevant"), button(-1, "not", "X", "Not relevant")];
}

/** @param {HTMLElement} node @param {Mark | undefined} mark */
export function pressMarks(node, mark) {
  for (const button of $$(".mark", node))
    button.setAttribute("aria-pressed", String(mark === (button.dataset.act === "not" ? -1 : 1)));
}

/** @type {Map<string, HTMLElement>} */
const made = new Map(); // parts of tiles, made once and copied: there are many

/** @param {string} name @param {() => HTMLElement} make */
function copied(name, make) {
  const part = made.get(name) ?? make();
  made.set(name, part);
  return /** @type {HTMLElement} */ (part.cloneNode(true));
}

const selectButton = () =>
  el(
    "button.over.select",
    {
      role: "checkbox",
      "data-act": "select",
      title: "Select (Space)",
    },
    icon("check"),
  );
/** @param {boolean | undefined} markable */
const buttons = (markable) => el("div.over.acts", markable ? markButtons(0) : null, pivotButton());

/** @type {WeakMap<HTMLElement, string>} */
const dressed = new WeakMap(); // what tiles show

/**
 * What a photo shows beyond itself: its label, else its name; the rank, the mark, copies; and
 * buttons. CSS decides when. A tile that shows it already does not change: a button that is
 * replaced while it is pressed is never clicked.
 * @param {Photo} image
 * @param {HTMLElement} node its tile
 * @param {object} look
 * @param {Mark} [look.mark]
 * @param {boolean} [look.selected]
 * @param {boolean} [look.markable] with buttons for marks
 * @param {boolean} [look.plain] without buttons
 */
export function dressTile(image, node, { mark, selected, markable, plain }) {
  const { path, labels, rank, copies } = image;
  const shown = JSON.stringify([
    path,
    labels,
    rank,
    copies?.length,
    mark || 0,
    selected,
    markable,
    plain,
  ]);
  if (dressed.get(node) === shown) return;
  dressed.set(node, shown);
  for (const part of node.querySelectorAll(".over")) part.remove();
  node.dataset.mark = mark ? MARKS[mark] : "";
  node.toggleAttribute("data-selected", Boolean(selected));
  node.classList.toggle("busy", !plain);
  node.classList.toggle("several", Boolean(image.copies?.length));
  const name =
    image.path === null
      ? ""
      : image.labels.join(", ") || image.path.slice(image.path.lastIndexOf("/") + 1);
  $("a", node).append(
    el(
      "span.over",
      { "aria-hidden": "true" },
      image.rank ? el("span.rank", image.rank) : null,
      name
        ? named(name, {
            class: image.labels.length ? "pill labels" : "pill name",
            title: image.path?.slice(0, 300),
          })
        : null,
      image.copies?.length
        ? el(
            "span.copies",
            { title: `${image.copies.length} more of the same` },
            icon("copy"),
            image.copies.length + 1,
          )
        : null,
      mark
        ? el(
            "span.badge",
            icon(mark === 1 ? "check" : "cross"),
            mark === 1 ? "Relevant" : "Not relevant",
          )
        : null,
    ),
  );
  if (plain) return;
  const select = copied("select", selectButton);
  select.setAttribute("aria-checked", String(Boolean(selected)));
  select.setAttribute("aria-label", `Select ${name || "photo"}`.slice(0, 120));
  const acts = copied(`acts ${markable}`, () => buttons(markable));
  if (markable) pressMarks(acts, mark);
  node.append(select, acts);
}

const pivotButton = () =>
  el(
    "button.pivot",
    {
      "data-act": "pivot",
      title: "Search with this (S)",
      "aria-keyshortcuts": "S",
      "aria-label": "Search with this",
    },
    icon("search"),
  );

// ---- the gallery of the results

/** @type {Gallery | null} */
let gallery = null;

/** @param {Make} make */
export function resultGallery(make) {
  gallery ??= new Gallery(el("ol", { id: "grid" }), make);
  return gallery;
}

/**
 * Where the weaker matches begin, as a heading between rows.
 * @param {Photo[]} images
 * @param {number} [best]
 * @returns {Break[]}
 */
export function weakBreak(images, best = 0) {
  const isWeak = ({ score = Infinity }) => score < WEAK * best;
  const weak = best > 0 ? images.findIndex(isWeak) : -1;
  return weak < 1 ? [] : [{ at: weak, words: "Weaker matches (score below half of the best)" }];
}

export const currentId = () => gallery?.focusedId() ?? null;
/** @param {number} id @param {FocusOptions} [options] */
export const focusCard = (id, options) =>
  gallery !== null && gallery.focus(gallery.indexOf(id), options);
/** @param {Direction} where */
export const moveFocus = (where) => gallery !== null && gallery.move(where);
export const refreshTiles = () => gallery?.refreshAll();
/** @param {Photo} image */
export const refreshTile = (image) => gallery?.refresh(image);

// Move a focus that was lost with its element: to the first result in reach, else to the page.
export function placeFocus() {
  const at = activeElement();
  const stop = $("#results a.open[tabindex='0']");
  const results = stop?.checkVisibility();
  // From the search box it goes on to what was found, unless somebody is typing again.
  const asked = results && at instanceof HTMLInputElement && at.id === "q" && !at.value;
  if (at !== document.body && at.checkVisibility() && !asked) return;
  (results ? stop : $("#main")).focus({ preventScroll: true });
}
