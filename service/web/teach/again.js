// "Learn again": labels have changed since the model learned them. The service trains in the
// background; this line says how far it is, what came of it, and brings the model before back.

import { get, post, remove } from "../core/api.js";
import { el } from "../core/dom.js";
import { remember, remembered } from "../core/remember.js";
import { announce, toast } from "../core/says.js";
import { percent } from "../core/text.js";
import { lineButton, noteLine } from "../core/line.js";
import { readRun } from "../search/search.js";
import { learnerName, state } from "../core/state.js";
import { did, undid } from "../core/undo.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["TrainState"]} Training */

const EVERY = 700; // milliseconds between two looks at a training
const DISMISSED = "training dismissed";
const LATER = "training tomorrow"; // and the day on which that was said
const today = () => new Date().toDateString();

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

const { fill, progress } = noteLine("#again", "Progress of the training");

function draw() {
  const { training } = state.run;
  if (!training) return;
  if (training.running) {
    progress(progressInWords(training), training.share, () => void cancel());
    return follow();
  }
  const { last, words, undoable } = outcome(training);
  const news = last && remembered(DISMISSED, "") !== last;
  const stale = training.stale.length > 0 && remembered(LATER, "") !== today();
  if (!news && !stale) return fill();
  const first = state.run.learners.every((name) => name === "cosine");
  const what = state.run.n_labels ? "Labels" : "Marks";
  const offer = first ? `${what} have not been learned from yet.` : `${what} have changed.`;
  const dismiss = () => {
    remember(DISMISSED, last);
    if (stale) remember(LATER, today());
    draw();
  };
  fill(
    el(news ? "span" : "span.short", [news && words, stale && offer].filter(Boolean).join(" ")),
    stale ? lineButton(first ? "Learn" : "Learn again", () => void learn()) : "",
    news && undoable ? lineButton("Undo", () => void undo()) : "",
    lineButton("Dismiss", dismiss, "plain"),
  );
}

function follow() {
  clearTimeout(timer);
  timer = setTimeout(() => void look(), EVERY);
}

/** @param {Training} training */
async function show(training) {
  const { running } = state.run.training;
  state.run.training = training;
  if (running && !training.running && training.results.some(({ taken }) => taken)) {
    did("training", undo);
    await readRun();
  } else draw();
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
    undid("training");
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
