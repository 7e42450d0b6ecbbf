// The results: the grid of one ranking, or two rankings side by side.

import { addressOf, searchOf } from "./address.js";
import { drawComparison } from "./compare.js";
import { $, announce, box, command, el, plural } from "./dom.js";
import { currentId, drawGrid, focusCard, prepareStops } from "./grid.js";
import { change } from "./history.js";
import { loadMore } from "./search.js";
import { COMPARED, marks, modelName, MOST, state, visible } from "./state.js";

const addressOfResult = (image) => addressOf({ ...state.request, open: image.id });

export function showGrid(redraw = false) {
  const { request, ranking } = state;
  const key = JSON.stringify([searchOf(request), ranking.results.length, ranking.ended, request.metric, state.hideMarked, ranking.version]);
  if (state.drawn === key && !redraw) return;
  state.drawn = key;
  const focused = currentId();
  const images = visible();
  const parts = images.length ? drawGrid(images, ranking.results[0]?.score, marks.of, addressOfResult) : [empty()];
  if (!ranking.ended && ranking.results.length < MOST) {
    const button = el("button", { type: "button", class: "more", onclick: () => loadMore(button) }, "Load more");
    parts.push(button);
  } else if (images.length) parts.push(el("p", { class: "quiet end" },
    `${ranking.ended ? "All" : "The first"} ${plural(ranking.results.length, "result")} shown.`));
  $("#results").replaceChildren(...parts);
  prepareStops();
  if (focused !== null) focusCard(focused, { preventScroll: true }) || focusCard(images[0]?.id, { preventScroll: true });
  announce(`${plural(images.length, "result")} by ${modelName(ranking.learner)}.`);
}

function empty() {
  const { ranking, request, run } = state;
  const hidden = ranking.results.length - visible().length;
  const why = hidden
    ? `Filters hide all ${plural(hidden, "loaded result")}.`
    : request.label
      ? `None of the ${plural(ranking.n_searched, "image")} searched has the label ${request.label}.`
      : "The collection has no other image to compare with.";
  const removeAll = () => {
    state.hideMarked = false;
    change({ label: undefined, metric: undefined, unique: undefined });
  };
  return box("No results", [el("p", {}, why),
    run.images > 1 ? el("button", { type: "button", onclick: removeAll }, "Remove all filters") : command("visterm add FOLDER")]);
}

export function showComparison() {
  const { ranking, other, before } = state;
  if (!other) {
    $("#compare").replaceChildren(box("No ranking to compare with", [
      el("p", {}, "The ranking before an update is available until you reload the page, and only for the same query and filters.")]));
    return;
  }
  const [left, right] = state.request.with === "before" ? [other, ranking] : [ranking, other];
  const named = (part) => ({ name: part === before ? part.name : modelName(part.learner), results: part.results.slice(0, COMPARED) });
  const focused = document.activeElement.closest("#compare td")?.dataset.id;
  const said = $("#summary")?.textContent;
  $("#compare").replaceChildren(...drawComparison(named(left), named(right), marks.of, addressOfResult).filter(Boolean));
  if (focused) $(`#compare td[data-id="${focused}"] a`)?.focus({ preventScroll: true });
  if ($("#summary").textContent !== said) announce($("#summary").textContent);
}
