// The slider between how photos look and what was learned: results change while it is dragged.

import { wordsOf } from "../core/address.js";
import { $, el } from "../core/dom.js";
import { change } from "../core/history.js";
import { state } from "../core/state.js";
import { info } from "../core/words.js";

const PLAIN = ["cosine", "knn"]; // learners whose similarity is cosine

let under = false; // a change is under way
/** @type {number | null} */
let next = null; // the weight that is asked for after it

/**
 * One request at a time, and then the last weight that was asked for meanwhile.
 * @param {number} weight
 */
async function apply(weight) {
  next = weight;
  if (under) return;
  under = true;
  try {
    while (next !== null) {
      const learned_weight = next;
      next = null;
      await change({ learned_weight, open: undefined, explain: undefined }, { replace: true });
    }
  } finally {
    under = false;
  }
}

export function drawLearned() {
  const bar = $("#learned");
  const { request, ranking } = state;
  bar.hidden = Boolean(wordsOf(request) || request.with) || PLAIN.includes(ranking.learner);
  const weight = request.learned_weight ?? ranking.learned_weight ?? 1;
  /** @type {HTMLInputElement} */
  const slider = $("input", bar);
  if (!slider) {
    const range = el("input", {
      type: "range",
      min: 0,
      max: 1,
      step: 0.05,
      value: weight,
      "aria-label": "Weight of the learned similarity",
      oninput: () => {
        label(range);
        apply(Number(range.value));
      },
    });
    bar.replaceChildren(
      el("span.quiet", "Look"),
      range,
      el("span.quiet", "Learned"),
      ...info("learned"),
    );
    label(range);
  } else if (slider !== document.activeElement || !under) {
    slider.value = String(weight);
    label(slider);
  }
}

/**
 * A number from 0 to 1 says nothing to people who listen to it.
 * @param {HTMLInputElement} slider
 */
function label(slider) {
  slider.setAttribute(
    "aria-valuetext",
    `${Math.round(100 * Number(slider.value))} % of the learned similarity`,
  );
}
