// The results as ordered lists of cards. One card is a stop of the Tab key; the arrow keys move among the cards.

import { $, el, fileName, icon, picture } from "./dom.js";

const WEAK = 0.5; // below this share of the best score a match is called weak

export const MARKS = { 1: "relevant", "-1": "not relevant" };

export function altText(image, mark) {
  const parts = [`Result ${image.rank}`, image.path];
  if (image.labels.length) parts.push(`label ${image.labels.join(", ")}`);
  if (mark) parts.push(`marked ${MARKS[mark]}`);
  return parts.join(", ");
}

export function markButtons(image, mark) {
  const button = (value, name, key, what) =>
    el("button", { type: "button", class: `mark ${name}`, "data-act": name, "aria-pressed": String(mark === value), "aria-label": what,
      title: `${what} (${key})`, "aria-keyshortcuts": key }, icon(value === 1 ? "check" : "cross"));
  return [button(1, "relevant", "A", "Relevant"), button(-1, "not", "X", "Not relevant")];
}

function card(image, best, mark, address) {
  const shade = image.color && /^#[0-9a-f]{6}$/i.test(image.color) ? { "--shade": image.color } : {};
  const share = best > 0 ? Math.max(0, image.score / best) : 0;
  return el(
    "li",
    { class: "card", "data-id": image.id },
    el(
      "a",
      { class: "open", href: address(image), tabindex: "-1" },
      el("figure", { style: shade },
        picture(image, { alt: altText(image, mark), lazy: image.rank > 12 }),
        el("span", { class: "rank", "aria-hidden": "true" }, image.rank),
        el("span", { class: "badge", "aria-hidden": "true" })),
    ),
    el("span", { class: "bar", "aria-hidden": "true", style: { "--share": share.toFixed(3) } }),
    el("p", { class: "caption", title: image.path }, el("span", { class: "name" }, fileName(image.path)),
      el("span", { class: "labels" }, image.labels.join(", "))),
    el("div", { class: "acts" }, markButtons(image, mark),
      el("button", { type: "button", class: "pivot", "data-act": "pivot", title: "Search with this (S)", "aria-keyshortcuts": "S",
        "aria-label": "Search with this image" }, icon("search"))),
  );
}

export function showMark(id, mark, image) {
  const node = $(`#results .card[data-id="${id}"]`);
  if (!node) return;
  node.dataset.mark = mark ? MARKS[mark] : "";
  $(".badge", node).replaceChildren(...(mark ? [icon(mark === 1 ? "check" : "cross"), mark === 1 ? "Relevant" : "Not relevant"] : []));
  $(".mark.relevant", node).setAttribute("aria-pressed", String(mark === 1));
  $(".mark.not", node).setAttribute("aria-pressed", String(mark === -1));
  const img = $("img", node);
  if (img) img.alt = altText(image, mark);
}

// Draw the cards of `images` (of all learners' results those that pass the filters of the page).
export function drawGrid(images, best, marks, address) {
  const weak = images.findIndex((image) => best > 0 && image.score < WEAK * best);
  const cut = weak < 1 ? images.length : weak;
  const list = (part) => el("ol", { class: "grid", start: part[0].rank },
    part.map((image) => card(image, best, marks.get(image.id), address)));
  const parts = [list(images.slice(0, cut))];
  if (cut < images.length)
    parts.push(el("h2", { class: "divider", title: "Scores below half of the best one" }, "Weaker matches"), list(images.slice(cut)));
  for (const image of images) queueMicrotask(() => showMark(image.id, marks.get(image.id) ?? 0, image));
  return parts;
}

export const skeleton = (n) =>
  [el("ol", { class: "grid", "aria-hidden": "true" }, Array.from({ length: n },
  () => el("li", { class: "card waiting" }, el("figure", {}), el("p", { class: "caption" }), el("div", { class: "acts" }))))];

// ---- roving focus

const cards = () => [...document.querySelectorAll("#results .card:not(.waiting)")];
const currentCard = () => document.activeElement?.closest("#results .card");

export const currentId = () => (currentCard() ? Number(currentCard().dataset.id) : null);

// Make one card the stop of the Tab key; its buttons can then be reached too.
export function setStop(node, focus = true) {
  for (const other of document.querySelectorAll('#results .card [tabindex="0"]')) other.tabIndex = -1;
  for (const part of node.querySelectorAll("a, button")) part.tabIndex = 0;
  if (focus) $("a.open", node).focus();
}

export function prepareStops() {
  for (const part of document.querySelectorAll("#results .card a, #results .card button")) part.tabIndex = -1;
  const [first] = cards();
  if (first) setStop(first, false);
}

export function focusCard(id) {
  const node = $(`#results .card[data-id="${id}"]`);
  if (node) setStop(node);
  return Boolean(node);
}

// Move the focus: by ±1 card, by ±1 row ("up", "down"), or to an end ("first", "last").
export function moveFocus(where) {
  const all = cards();
  const at = all.indexOf(currentCard());
  if (at < 0) return false;
  const columns = all.filter((node) => node.parentElement === all[at].parentElement && node.offsetTop === all[at].offsetTop).length;
  const to = { left: at - 1, right: at + 1, up: at - columns, down: at + columns, first: 0, last: all.length - 1 }[where];
  if (all[to]) setStop(all[to]);
  return true;
}
