// The start page: random samples of the collection, and the recent queries of this browser.

import { addressOf, queryOf } from "./address.js";
import { get } from "./api.js";
import { $, box, command, el, fileName, picture, remember, remembered } from "./dom.js";
import { marks, queryName, state } from "./state.js";

const RECENT = 10;

export async function showStart(turn) {
  if (state.run.images && !$("#samples .card")) await drawSamples();
  if (turn !== state.turn) return;
  state.ranking = state.drawn = null;
  $("#by-label select").value = "";
  marks.load(null);
  drawRecent();
  if (!state.run.images)
    $("#samples").replaceChildren(el("li", { class: "whole" }, box("This run has no images yet",
      [el("p", {}, "To index a folder of images, run this command, then reload the page:"), command("visterm features FOLDER")])));
}

export async function drawSamples() {
  const images = await get("api/images", { sample: 12, seed: Math.floor(Math.random() * 1e6) });
  $("#samples").replaceChildren(...images.map((image) =>
    el("li", { class: "card" }, el("a", { class: "open", href: addressOf({ id: image.id }), "data-go": "link" },
      el("figure", {}, picture(image, { alt: `Search with ${image.path}`, lazy: false }),
        el("span", { class: "badge hint", "aria-hidden": "true" }, "Search with this")),
      el("p", { class: "caption", title: image.path }, el("span", { class: "name" }, fileName(image.path)),
        el("span", { class: "labels" }, image.labels.join(", ")))))));
}

const recentName = () => `recent ${state.run.run}`; // image ids belong to a run

function drawRecent() {
  const kept = remembered(recentName(), []);
  $("#recent").replaceChildren(...(kept.length ? [el("h2", {}, "Recent queries"), el("ul", { class: "strip" }, kept.map(({ query, name }) =>
    el("li", {}, el("a", { href: addressOf(query), "data-go": "link", title: name }, queryPicture(query, name),
      query.query_label ? null : el("span", { class: "unseen" }, name)))))] : []));
}

export function rememberQuery() {
  const query = queryOf(state.request);
  const same = JSON.stringify(query);
  const kept = remembered(recentName(), []).filter((entry) => JSON.stringify(entry.query) !== same);
  remember(recentName(), [{ query, name: queryName() }, ...kept].slice(0, RECENT));
}

export const queryAddress = ({ id, upload }, size) =>
  id !== undefined ? `images/${id}/thumbnail?size=${size}` : `uploads/${encodeURIComponent(upload)}?size=${size}`;

// The picture of a query; its name where there is none.
export function queryPicture(query, name) {
  if (query.query_label) return el("span", { class: "word" }, name);
  const img = el("img", { src: queryAddress(query, 256), alt: "", draggable: "false" });
  img.addEventListener("error", () => img.replaceWith(el("span", { class: "word" }, name)));
  return img;
}
