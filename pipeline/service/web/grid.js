// The results as ordered lists of cards. One card is a stop of the Tab key; the arrow keys move among the cards.

import { $, el, fileName, icon, picture } from "./dom.js";

const WEAK = 0.5; // below this share of the best score a match is called weak

const MARKS = { 1: "relevant", "-1": "not relevant" };

export function altText(image, mark) {
  const labels = image.labels.length ? `, label ${image.labels.join(", ")}` : "";
  return `Result ${image.rank}, ${image.path}${labels}${mark ? `, marked ${MARKS[mark]}` : ""}`;
}

export function markButtons(image, mark) {
  const button = (value, name, key, what) =>
    el("button", { type: "button", class: `mark ${name}`, "data-act": name, "aria-pressed": String(mark === value), "aria-label": what,
      title: `${what} (${key})`, "aria-keyshortcuts": key }, icon(value === 1 ? "check" : "cross"));
  return [button(1, "relevant", "A", "Relevant"), button(-1, "not", "X", "Not relevant")];
}

function card(image, best, mark, address) {
  const share = best > 0 ? Math.max(0, image.score / best) : 0;
  const node = el(
    "li",
    { class: "card", "data-id": image.id },
    el(
      "a",
      { class: "open", href: address(image) },
      el("figure", { style: image.color ? { "--shade": image.color } : {} },
        picture(image, { alt: altText(image), lazy: image.rank > 12 }),
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
  if (mark) setMark(node, image, mark);
  return node;
}

function setMark(node, image, mark) {
  node.dataset.mark = mark ? MARKS[mark] : "";
  $(".badge", node).replaceChildren(...(mark ? [icon(mark === 1 ? "check" : "cross"), mark === 1 ? "Relevant" : "Not relevant"] : []));
  pressMarks(node, mark);
  const img = $("img", node);
  if (img) img.alt = altText(image, mark);
}

export function pressMarks(node, mark) {
  $(".mark.relevant", node)?.setAttribute("aria-pressed", String(mark === 1));
  $(".mark.not", node)?.setAttribute("aria-pressed", String(mark === -1));
}

// Show the marks as they are now on the cards, which are of `images`.
export function showMarks(images, marks) {
  const byId = new Map(images.map((image) => [image.id, image]));
  for (const node of cards()) {
    const image = byId.get(Number(node.dataset.id));
    const mark = marks.get(image?.id);
    if (image && (node.dataset.mark ?? "") !== (mark ? MARKS[mark] : "")) setMark(node, image, mark);
  }
}

// Draw cards; `best` is the score of the first result, whether it is among them or not.
export function drawGrid(images, best, marks, address) {
  const weak = images.findIndex((image) => best > 0 && image.score < WEAK * best);
  const cut = weak < 1 ? images.length : weak;
  const list = (part) => el("ol", { class: "grid", start: part[0].rank },
    part.map((image) => card(image, best, marks.get(image.id), address)));
  const parts = [list(images.slice(0, cut))];
  if (cut < images.length)
    parts.push(el("h2", { class: "divider" }, "Weaker matches (score below half of the best)"), list(images.slice(cut)));
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
export function setStop(node) {
  for (const other of document.querySelectorAll('#results .card [tabindex="0"]')) other.tabIndex = -1;
  for (const part of node.querySelectorAll("a, button")) part.tabIndex = 0;
}

function focusOn(node, options) {
  setStop(node);
  $("a.open", node).focus(options);
}

export function prepareStops() {
  for (const part of document.querySelectorAll("#results .card a, #results .card button")) part.tabIndex = -1;
  const [first] = cards();
  if (first) setStop(first);
}

export function focusCard(id, options) {
  const node = $(`#results .card[data-id="${id}"]`);
  if (node) focusOn(node, options);
  return Boolean(node);
}

// Move a focus that was lost with its element: to the first card, else to the page.
export function placeFocus() {
  const at = document.activeElement;
  if (at !== document.body && at.checkVisibility()) return;
  const stop = $("#results a.open[tabindex='0']");
  (stop?.checkVisibility() ? stop : $("#main")).focus({ preventScroll: true });
}

// The card above or below another one. Rows may have fewer cards where a list ends.
function across(all, from, sign) {
  const beyond = all.filter((node) => sign * (node.offsetTop - from.offsetTop) > 0);
  const row = Math.min(...beyond.map((node) => sign * node.offsetTop));
  const apart = (node) => Math.abs(node.offsetLeft - from.offsetLeft);
  return beyond.filter((node) => sign * node.offsetTop === row).sort((a, b) => apart(a) - apart(b))[0];
}

// Move the focus: by a card, by a row ("up", "down"), or to an end ("first", "last"). False: there is nowhere to go.
export function moveFocus(where) {
  const all = cards();
  const at = all.indexOf(currentCard());
  if (at < 0) return false;
  const to = where === "up" || where === "down" ? across(all, all[at], where === "up" ? -1 : 1)
    : all[{ left: at - 1, right: at + 1, first: 0, last: all.length - 1 }[where]];
  if (to) focusOn(to);
  return Boolean(to);
}
