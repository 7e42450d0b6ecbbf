// Words for people: what each figure means.

import { el } from "./dom.js";

/** @import { Props } from "./dom.js" */

const MEANINGS = {
  score: [
    "scores",
    "How alike the learner finds the two photos. Scores compare results of one query under " +
      "one learner.",
  ],
  gap: ["gaps", "How much lower the next result scores: much where this one stands out."],
  probability: [
    "probabilities",
    "How many in a hundred pairs of photos that score so high have a label in common, measured " +
      "on labelled photos that nothing was trained on.",
  ],
  learner: [
    "learners",
    "Plain look compares photos as the collection describes them. A " +
      "learned similarity was trained on labelled photos and weighs what tells them apart.",
  ],
  learned: [
    "the weight of the learned similarity",
    "Weight of the learned similarity: 0, on the left, is how photos look, best for things that " +
      "nobody has labelled; 1, on the right, is the learner alone.",
  ],
  precision: [
    "precision",
    "The share of the images you marked that you marked as relevant, among the first 20.",
  ],
  neighbours: [
    "neighbours",
    "A photo ranks higher where the photos that are like it are like the query, too. " +
      "This takes no labels.",
  ],
  teachers: [
    "teachers",
    "Learning put pairs of your labelled or marked images together and kept others apart. A pair " +
      "counts where one is like the query and the other like the result.",
  ],
  explain: [
    "explanations",
    "Each cell is coloured by all that it adds to the score: orange raises it, blue lowers it. " +
      "Outlined regions of the same number make half of it.",
  ],
};

let number = 0;

/**
 * A button that explains a figure in a sentence.
 * @param {keyof typeof MEANINGS} what
 */
export function info(what) {
  const [name, meaning] = MEANINGS[what];
  const id = `info-${(number += 1)}`;
  const box = el("span.meaning", { id, popover: "auto", role: "note" }, meaning);
  const button = el(
    "button.info",
    {
      popovertarget: id,
      "aria-label": `About ${name}`,
      "aria-expanded": "false",
    },
    "i",
  );
  box.addEventListener("toggle", (event) => {
    const open = event.newState === "open";
    button.setAttribute("aria-expanded", String(open));
    if (!open) return;
    const at = button.getBoundingClientRect();
    box.style.left = `${Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8))}px`;
    const below = at.bottom + 6;
    const fits = below + box.offsetHeight <= innerHeight;
    box.style.top = `${fits ? below : Math.max(8, at.top - box.offsetHeight - 6)}px`;
  });
  return [button, box];
}

/**
 * A name of any length and script, as it is: cut in the middle of nothing, read in its own
 * direction.
 * @param {string} text
 * @param {Props} [props]
 */
export const named = (text, props = {}) => el("bdi", { title: text.slice(0, 300), ...props }, text);
