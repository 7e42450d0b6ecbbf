// One result, large, in a dialog over the grid; and why it matched.

import { get } from "./api.js";
import { $, announce, count, el, figure, icon, keyName, picture, placeMessages, plural, thumbnail } from "./dom.js";
import { drawExplanation } from "./explain.js";
import { altText, markButtons } from "./grid.js";

export const viewer = $("#viewer");
let shown = null; // the id of the image drawn

// { image, images, best, mark, explain, query: { address, values }, learner, model, act }; learner: null where the model
// that ranked the image is no longer there.
export async function drawViewer(given) {
  const { image, images, act } = given;
  const at = images.findIndex((other) => other.id === image.id);
  const next = images[at + 1];
  const focused = document.activeElement?.dataset?.act;
  const button = (name, words, key, extra = {}) =>
    el("button", { type: "button", "data-act": name, "aria-keyshortcuts": key, title: key ? `${words} (${key})` : words, ...extra }, words,
      key ? keyName(key) : null);
  const details = [
    ["Label", image.labels.join(", ") || "none"],
    ["Size", image.width ? `${image.width} × ${image.height}` : "unknown"],
    ["Ranked by", given.model],
    ["Score", figure(image.score)],
    next ? ["Gap to next result", figure(image.score - next.score)] : null,
  ].filter(Boolean);
  const [relevant, not] = markButtons(image, given.mark);
  relevant.append(" Relevant", keyName("A"));
  not.append(" Not relevant", keyName("X"));
  const stage = el("div", { class: "stage" });
  const side = el("div", { class: "side" },
    el("h2", { id: "viewer-title" }, `Result ${image.rank}`),
    el("p", { class: "path" }, image.path),
    el("div", { class: "acts" }, relevant, not, button("pivot", "Search with this", "S"),
      button("explain", given.explain ? "Hide explanation" : "Explain", "E", { "aria-pressed": String(given.explain) })),
    el("dl", { class: "facts" }, details.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("p", { class: "quiet" }, "Compare scores only within one query and one model."),
    el("p", { class: "links" }, el("a", { href: `images/${image.id}/original`, target: "_blank", rel: "noopener" }, "Open original"),
      el("button", { type: "button", class: "plain", "data-act": "copy" }, "Copy link")));
  viewer.classList.toggle("wide", given.explain);
  viewer.replaceChildren(
    el("header", {},
      el("button", { type: "button", class: "round", "data-act": "left", disabled: at <= 0, "aria-label": "Previous result",
        title: "Previous (←)" }, icon("left")),
      el("span", { class: "counter" }, `${count(at + 1)} / ${count(images.length)}`),
      el("button", { type: "button", class: "round", "data-act": "right", disabled: at >= images.length - 1, "aria-label": "Next result",
        title: "Next (→)" }, icon("right")),
      el("button", { type: "button", class: "round close", "data-act": "close", "aria-label": "Close", title: "Close (Esc)" },
        icon("cross"))),
    el("div", { class: "inside" }, stage, side));
  viewer.onclick = (event) => {
    const name = event.target === viewer ? "close" : event.target.closest("[data-act]")?.dataset.act;
    if (name) act[name]();
  };
  viewer.oncancel = (event) => {
    event.preventDefault();
    act.close();
  };
  viewer.onclose = () => shown !== null && act.close(); // by the browser, which need not ask
  swipeDown(act.close);
  if (!viewer.open) viewer.showModal();
  placeMessages();
  (focused && $(`[data-act="${focused}"]:not(:disabled)`, viewer) ? $(`[data-act="${focused}"]`, viewer) : $(".close", viewer)).focus();
  shown = image.id;

  if (!given.explain) {
    stage.append(picture(image, { size: 1024, alt: altText(image), lazy: false }));
    for (const near of [images[at - 1], images[at + 1], images[at + 2]]) if (near) new Image().src = thumbnail(near, 1024);
    return;
  }
  stage.append(el("p", { class: "quiet wait" }, "Computing the explanation …"));
  try {
    if (given.query.values.query_label) throw new Error("Results of a label query cannot be explained. Search with an image to see which blocks match.");
    if (!given.learner) throw new Error("The model that ranked this image has been replaced. Undo the update to see the explanation.");
    const explanation = await get("explain", { ...given.query.values, result: image.id, learner: given.learner });
    if (!stage.isConnected) return;
    stage.replaceChildren(drawExplanation(explanation, { query_block: given.query.address, result_block: thumbnail(image, 1024) },
      given.best));
    announce(`Explanation ready: ${plural(explanation.pairs.length, `${explanation.parts} pair`)} in the table.`);
  } catch (error) {
    stage.replaceChildren(el("div", { class: "box", role: "alert" }, el("strong", {}, "No explanation available"), el("p", {}, error.message)));
  }
}

// A finger that goes down 80 pixels closes the dialog, unless it scrolls.
function swipeDown(close) {
  let from = null;
  viewer.ontouchstart = (event) => {
    from = event.touches.length === 1 && event.target.closest(".stage > img") && viewer.scrollTop === 0 ? event.touches[0].clientY : null;
  };
  viewer.ontouchend = (event) => {
    if (from !== null && event.changedTouches[0].clientY - from > 80) close();
  };
}

// Close it; return the id of the image that it showed, null if it was closed.
export function closeViewer() {
  const id = shown;
  shown = null;
  if (viewer.open) viewer.close();
  placeMessages();
  return id;
}
