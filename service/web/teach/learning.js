// Relevance marks and the learner that they update.

import { post } from "../core/api.js";
import { $, el } from "../core/dom.js";
import { remembered } from "../core/remember.js";
import { dialogButtons, dock, showDialog, toast } from "../core/says.js";
import { plural, seconds } from "../core/text.js";
import { placeFocus } from "../gallery/grid.js";
import { change, redraw } from "../core/history.js";
import { drawTray } from "./marks.js";
import { failure, say } from "../core/messages.js";
import {
  learnerName,
  marks,
  modelName,
  onlineLearner,
  snapshot,
  state,
  subjectOf,
} from "../core/state.js";
import { did, undid } from "../core/undo.js";

/** @import { Mark, Marked, MarkOf } from "./marks.js" */

let updating = false; // a change of the learner is under way

export function tray() {
  if (!state.ranking || $("#asked").hidden) {
    $("#marks").hidden = true;
    return dock();
  }
  if (marks.learner !== onlineLearner()) marks.use(onlineLearner());
  drawTray(marks, {
    online: onlineLearner(),
    update,
    remove: (image) => marks.put(image, 0, state.ranking.learner),
    clear: () => marks.clear(state.ranking.learner),
  });
}

/** @param {Marked} image @param {Mark} value */
export async function mark(image, value) {
  const { key, learner } = state.ranking;
  if (!key)
    return toast(
      "Results of a label query cannot be marked. Search with an image to mark its results.",
    );
  const saved = await marks.toggle(image, value, learner);
  if (saved) did("mark", () => marks.undo(key));
  if (saved && marks.toLearn && remembered("updateEach", false)) update();
}

/** @param {Marked[]} images @param {Mark} value */
export async function markAll(images, value) {
  const { key } = marks;
  const toUndo = { steps: images.length };
  const saved = await marks.putAll(images, value, state.ranking.learner, toUndo);
  if (saved) did("mark", () => marks.undo(key, toUndo));
  if (saved && marks.toLearn && remembered("updateEach", false)) update();
}

/**
 * Change the learner, one request at a time. The run and its rankings are then read again.
 * @template T
 * @param {() => Promise<T>} ask
 * @param {string} words what is said meanwhile
 * @param {() => unknown} retry
 */
async function send(ask, words, retry) {
  if (updating) return null;
  updating = true;
  say(words);
  try {
    await marks.sending;
    const done = await ask();
    state.run.version = null;
    return done;
  } catch (error) {
    $("#notes").replaceChildren();
    failure(error, retry);
    return null;
  } finally {
    updating = false;
  }
}

/** @param {string} learner */
async function refresh(learner) {
  const named =
    learner === state.run.default_learner && !state.request.learner ? undefined : learner;
  await change({ learner: named, with: undefined, model: undefined }, { replace: true });
  scrollTo(0, 0); // changes show best from the first result on
}

/** @returns {Promise<void>} */
export async function update() {
  const learner = onlineLearner();
  if (!learner) return toast("No learner of this run learns from marks.");
  if (!marks.toLearn)
    return toast(
      marks.ready
        ? "The ranking knows all marks already."
        : "Mark at least one result as relevant and one as not relevant first.",
    );
  const { key, used } = marks;
  const learned = new Map(marks.of);
  const { ranking } = state;
  const old =
    ranking.learner === learner
      ? {
          name: `before (${modelName(learner)})`,
          learner,
          results: ranking.results,
          subject: subjectOf(state.request),
        }
      : null;
  const done = await send(
    () => post("feedback/update", { learner, query: key }),
    "Updating the model …",
    update,
  );
  if (!done) return;
  const here = marks.key === key; // else another query is on the page by now
  // Refused marks are set aside.
  if (here && (done.accepted || done.map_after !== null)) marks.used = learned;
  if (!done.accepted)
    return say(`The update was rejected and the ranking is as before: ${done.reason}.`);
  state.before = old;
  await (here ? refresh(learner) : redraw());
  const changed = done.changed_in_top
    ? `${done.changed_in_top} of the top 20 changed`
    : "The top 20 did not change";
  const { map_before: before, map_after: after } = done;
  const held =
    before === null || after === null
      ? " No photo has a label, so nothing could be measured: Undo if results are worse."
      : ` On held-out photos, mAP was ${before.toFixed(3)} and is ${after.toFixed(3)}.`;
  did("update", () => revert("undo", learner, used));
  say(
    `Learned from your ${plural(done.n_relevant + done.n_not, "mark")} ` +
      `(${done.n_relevant} relevant, ${done.n_not} not relevant) in ` +
      `${seconds(done.milliseconds / 1000)}. ` +
      `${changed}.${held}${done.behind ? ` Searches do not use it yet: ${done.behind}.` : ""}`,
    el("button", { onclick: () => revert("undo", learner, used) }, "Undo"),
    here && snapshot() && el("button", { onclick: () => change({ with: "before" }) }, "Compare"),
  );
}

/**
 * Undo the last update, or reset to the base model. `used`: the marks that the model has learned
 * afterwards.
 * @param {"undo" | "reset"} how
 * @param {string} learner
 * @param {MarkOf} used
 * @returns {Promise<void>}
 */
async function revert(how, learner, used) {
  const { key } = marks;
  const done = await send(
    () => post(`feedback/${how}`, { learner }),
    "Reverting the model …",
    () => revert(how, learner, used),
  );
  if (!done) return;
  if (how === "undo") undid("update");
  state.before = null;
  if (marks.key === key) marks.used = used;
  await (state.ranking ? refresh(learner) : redraw());
  if (how === "undo") say(`Update undone: results are ranked by ${modelName(learner)} again.`);
  else
    say(
      `${learnerName(learner)} is reset to its base model. Existing marks are kept, but not ` +
        "used in later updates.",
      el("button", { onclick: () => revert("undo", learner, new Map()) }, "Undo"),
    );
  placeFocus();
}

/** @param {string} learner */
export const reset = (learner) =>
  showDialog(
    `Reset ${learnerName(learner)} to its base model?`,
    el(
      "p",
      "This discards all updates from relevance marks, for all queries. Existing marks are " +
        "kept, but later updates use only new marks.",
    ),
    dialogButtons(
      ["Cancel"],
      ["Reset", () => void revert("reset", learner, new Map(marks.of)), "primary"],
    ),
  );
