// The menu "Options": filters and settings of this browser, and the model that marks update.

import { $, command, el, plural, remember, remembered, setLook } from "./dom.js";
import { change, redraw } from "./history.js";
import { reset } from "./learning.js";
import { modelName, onlineLearner, state } from "./state.js";

const DENSITIES = ["compact", "normal", "large"];

export function setHideMarked(on) {
  state.hideMarked = on;
  redraw();
}

export function drawOptions() {
  const choice = (words, on, act) => el("label", { class: "check" },
    el("input", { type: "checkbox", checked: on, onchange: (event) => act(event.target.checked) }), ` ${words}`);
  const density = el("select", { onchange: (event) => setLook({ density: event.target.value }) },
    DENSITIES.map((name) => el("option", { value: name, selected: remembered("density", "normal") === name }, name)));
  const learner = onlineLearner();
  const model = state.ranking && state.run.models[learner];
  $("#options .menu").replaceChildren(
    choice("Hide exact duplicates", Boolean(state.request.unique), (on) => change({ unique: on ? 1 : undefined, k: undefined })),
    choice("Hide marked images", state.hideMarked, setHideMarked),
    choice("Update ranking after each mark", remembered("updateEach", false), (on) => remember("updateEach", on)),
    el("label", {}, "Image size ", density),
    el("h2", {}, "Model"),
    ...(model ? [el("p", {}, `${modelName(learner)}, ${plural(model.marks ?? 0, "mark")} used since training`),
      el("p", { class: "row" }, el("button", { type: "button", disabled: !model.version, onclick: () => reset(learner) }, "Reset to base model"),
        el("a", { href: "feedback/export" }, "Export marks"))]
      : [el("p", { class: "quiet" }, "No learner of this run supports relevance marks. To train one, run:"), command("visterm train --learner oasis")]));
}

export function bindOptions() {
  const options = $("#options");
  options.addEventListener("toggle", drawOptions);
  options.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !options.contains(relatedTarget)) options.open = false;
  });
  options.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    options.open = false;
    $("#options summary").focus();
  });
  document.addEventListener("click", (event) => {
    if (options.open && !options.contains(event.target)) options.open = false;
  });
}
