// "Learn again": labels have changed since the model learned them. The service trains in the
// background; this line says how far it is, what came of it, and brings the model before back.

import { get, post, remove } from "../core/api.js";
import { $, announce, el, percent, remember, remembered, toast } from "../core/dom.js";
import { readRun } from "../search/search.js";
import { learnerName, state } from "../core/state.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["TrainState"]} Training */

const EVERY = 700; // milliseconds between two looks at a training
const DISMISSED = "training dismissed";

/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {number | null} value */
const precision = (value) => (value === null ? "–" : value.toFixed(3));

/** @param {Schemas["TrainResult"]} result */
function resultInWords({ learner, taken, reason, before, after }) {
  const name = learnerName(learner);
  const measured = `mAP on held-out photos ${precision(before)} before, ${precision(after)} after`;
  if (!taken)
    return after === null
      ? `${name} stays as it was: ${reason}.`
      : `${name} stays as it was, as the new labels made it worse: ${measured}.`;
  return after === null
    ? `Learned from the labels. There are no held-out photos to measure ${name} on.`
    : `Learned from the labels. ${name}: ${measured}.`;
}

/** @param {Training} training */
function outcome({ results, undo: taken, problem }) {
  const told = results.length ? results : taken;
  const last = told.reduce((latest, { created }) => (created > latest ? created : latest), "");
  if (problem) return { last: problem, words: `Not learned: ${problem}.`, undoable: false };
  const undoable = taken.length > 0 && told.some((one) => one.taken);
  return { last, words: told.map(resultInWords).join(" "), undoable };
}

/** @param {Training} training */
function progressInWords({ phase, share, seconds_left: left }) {
  if (phase === "starting") return "Learning from the labels: starting …";
  const time = left === null ? "" : `, ${Math.ceil(left)} s left`;
  return `Learning from the labels: ${percent(share)}${time}. You can go on searching.`;
}

/**
 * @param {string} words
 * @param {() => unknown} onclick
 * @param {string} [kind]
 */
const button = (words, onclick, kind) =>
  el("button", { type: "button", class: kind, onclick }, words);

/**
 * Fill the line; a focus in it stays in it.
 * @param {...(HTMLElement | "")} parts
 */
function fill(...parts) {
  const line = $("#again");
  const focused = line.contains(document.activeElement);
  line.replaceChildren(...parts);
  line.hidden = !parts.length;
  if (focused) ($("button", line) ?? $("#main")).focus({ preventScroll: true });
}

function draw() {
  const { training } = state.run;
  if (!training) return;
  if (training.running) return drawProgress(training);
  const { last, words, undoable } = outcome(training);
  const news = last && remembered(DISMISSED, "") !== last;
  const stale = training.stale.length > 0;
  if (!news && !stale) return fill();
  const first = state.run.learners.every((name) => name === "cosine");
  const what = state.run.n_labels ? "Labels" : "Marks";
  const offer = first
    ? `${what} have not been learned from yet.`
    : `${what} have changed since the model learned them.`;
  const dismiss = () => {
    remember(DISMISSED, last);
    draw();
  };
  fill(
    el("span", {}, [news ? words : "", stale ? offer : ""].filter(Boolean).join(" ")),
    stale ? button(first ? "Learn" : "Learn again", () => void learn(), "primary") : "",
    news && undoable ? button("Undo", () => void undo()) : "",
    news ? button("Dismiss", dismiss, "plain") : "",
  );
}

/** @param {Training} training */
function drawProgress(training) {
  if (!$("#again progress"))
    fill(
      el("span", {}),
      el("progress", { max: 1, value: 0, "aria-label": "Progress of the training" }),
      button("Cancel", () => void cancel()),
    );
  $("#again span").textContent = progressInWords(training);
  /** @type {HTMLProgressElement} */ ($("#again progress")).value = training.share;
  follow();
}

function follow() {
  clearTimeout(timer);
  timer = setTimeout(() => void look(), EVERY);
}

/** @param {Training} training */
async function show(training) {
  const { running } = state.run.training;
  state.run.training = training;
  if (running && !training.running && training.results.some(({ taken }) => taken)) await readRun();
  else draw();
  if (running && !training.running)
    announce(training.cancelled ? "Learning was cancelled." : outcome(training).words);
}

async function look() {
  try {
    await show(await get("api/train"));
  } catch {
    if (state.run.training.running) follow(); // the service may be back in a moment
  }
}

async function learn() {
  remember(DISMISSED, "");
  try {
    await show(await post("api/train", undefined));
    announce("Learning from the labels.");
  } catch (error) {
    toast(`Not learned: ${error.message}`);
    await look();
  }
}

// Learn if there is something to learn and nothing is being learned.
export async function learnIfStale() {
  await look();
  const { running, stale } = state.run.training;
  if (!running && stale.length) await learn();
}

async function cancel() {
  try {
    await show(await remove("api/train"));
  } catch {
    await look(); // it has just ended
  }
}

async function undo() {
  try {
    const training = await post("api/train/undo", undefined);
    await readRun();
    await show(training);
    toast("The model before is in use again.");
  } catch (error) {
    toast(`Not undone: ${error.message}`);
  }
}

addEventListener("run", draw); // it has been read
addEventListener("labelled", () => void readRun().catch(() => {}));
addEventListener("focus", () => void (state.run.version && look())); // another page may have begun
