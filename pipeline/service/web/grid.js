// The results of a search as a gallery: what a tile shows, and which one has the focus.

import { $, el, icon, plural } from "./dom.js";
import { Gallery } from "./gallery.js";
import { named } from "./words.js";

const WEAK = 0.5; // below this share of the best score a match is called weak

const MARKS = { 1: "relevant", "-1": "not relevant" };

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

export function markButtons(mark, words = false) {
  const button = (value, name, key, what) =>
    el(
      "button",
      {
        type: "button",
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

export function pressMarks(node, mark) {
  $(".mark.relevant", node)?.setAttribute("aria-pressed", String(mark === 1));
  $(".mark.not", node)?.setAttribute("aria-pressed", String(mark === -1));
}

const copied = (() => {
  // parts of tiles, made once and copied: there are many
  const made = {};
  return (name, make) => (made[name] ??= make()).cloneNode(true);
})();

const selectButton = () =>
  el(
    "button",
    {
      type: "button",
      class: "over select",
      role: "checkbox",
      "data-act": "select",
      title: "Select (Space)",
    },
    icon("check"),
  );
const buttons = (markable) =>
  el("div", { class: "over acts" }, markable ? markButtons(0) : null, pivotButton());

// What a photo shows beyond itself: its label, else its name; the rank, the mark, copies; and
// buttons. CSS decides when. mark: of the image; selected: whether it is; markable: whether it has
// buttons for marks; plain: no buttons at all.
export function dressTile(image, node, { mark, selected, markable, plain }) {
  for (const part of node.querySelectorAll(".over")) part.remove();
  node.dataset.mark = mark ? MARKS[mark] : "";
  node.toggleAttribute("data-selected", Boolean(selected));
  node.classList.toggle("busy", !plain);
  node.classList.toggle("several", image.copies?.length > 0);
  const name =
    image.path === null
      ? ""
      : image.labels.join(", ") || image.path.slice(image.path.lastIndexOf("/") + 1);
  node.firstChild.append(
    el(
      "span",
      { class: "over", "aria-hidden": "true" },
      image.rank ? el("span", { class: "rank" }, image.rank) : null,
      name
        ? named(name, {
            class: image.labels.length ? "pill labels" : "pill name",
            title: image.path?.slice(0, 300),
          })
        : null,
      image.copies?.length
        ? el(
            "span",
            { class: "copies", title: `${image.copies.length} more of the same` },
            icon("copies"),
            image.copies.length + 1,
          )
        : null,
      mark
        ? el(
            "span",
            { class: "badge" },
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

export const pivotButton = () =>
  el(
    "button",
    {
      type: "button",
      class: "pivot",
      "data-act": "pivot",
      title: "Search with this (S)",
      "aria-keyshortcuts": "S",
      "aria-label": "Search with this",
    },
    icon("search"),
  );

// ---- the gallery of the results

let gallery = null;

export function resultGallery(make) {
  gallery ??= new Gallery(el("ol", { id: "grid" }), make);
  return gallery;
}

// Where the weaker matches begin, as a heading between rows.
export function weakBreak(images, best) {
  const weak = best > 0 ? images.findIndex((image) => image.score < WEAK * best) : -1;
  return weak < 1 ? [] : [{ at: weak, words: "Weaker matches (score below half of the best)" }];
}

export const currentId = () => gallery?.focusedId() ?? null;
export const focusCard = (id, options) =>
  Boolean(gallery) && gallery.focus(gallery.indexOf(id), options);
export const moveFocus = (where) => Boolean(gallery) && gallery.move(where);
export const refreshTiles = () => gallery?.refreshAll();
export const refreshTile = (image) => gallery?.refresh(image);

// Move a focus that was lost with its element: to the first result in reach, else to the page.
export function placeFocus() {
  const at = document.activeElement;
  if (at !== document.body && at.checkVisibility()) return;
  const stop = $("#results a.open[tabindex='0']");
  (stop?.checkVisibility() ? stop : $("#main")).focus({ preventScroll: true });
}
