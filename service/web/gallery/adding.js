// Photos that are added to the collection: chosen with "Add photos", or dropped or pasted, with one
// question: search by it, or add it. What is added is sent photo by photo, then extracted in the
// background; a line says how far it is and what came of it.

import { queryOf } from "../core/address.js";
import { get, post, request } from "../core/api.js";
import { $, el, link, targetOf } from "../core/dom.js";
import { addButton, announce, dialogButtons, showDialog } from "../core/says.js";
import { count, plural } from "../core/text.js";
import { lineButton, noteLine } from "../core/line.js";
import { redraw } from "../core/history.js";
import { forgetPhotos } from "./photos.js";
import { checkSize, onFiles } from "../search/files.js";
import { readRun } from "../search/search.js";
import { begun, state, viewOf } from "../core/state.js";
import { newOnes } from "../teach/growing.js";

/** @import { Schemas } from "../core/api.js" */

const EVERY = 700; // milliseconds between two looks
const WATCH_EVERY = 5000; // at a collection whose folder is watched
const MOST_NAMES = 200; // that are cancelled at once
const NAMED = 3; // photos that are named; of others the number is said
const IMAGE = /\.(jpe?g|png|webp|gif|avif|heic|heif|bmp|tiff?|j2[ck]|jp[2cfx])$/i;

const { fill, progress } = noteLine("#adding", "Progress of adding");

/**
 * Files of what was dropped, folders with all that is in them.
 * @param {DataTransfer} data
 * @returns {Promise<File[]>}
 */
async function droppedFiles(data) {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter((one) => one);
  if (!entries.some((entry) => entry?.isDirectory)) return [...data.files];
  /** @type {File[]} */
  const files = [];
  /** @param {any} entry */
  const read = async (entry) => {
    if (entry.isFile) return files.push(await new Promise((done, no) => entry.file(done, no)));
    const reader = entry.createReader();
    for (;;) {
      const part = await new Promise((done, no) => reader.readEntries(done, no));
      if (!part.length) return files.length;
      for (const one of part) await read(one);
    }
  };
  for (const entry of entries) await read(entry);
  return files;
}

/** @param {File[]} files @param {(files: File[]) => unknown} search */
function askWhatFor(files, search) {
  const images = files.filter(({ name, type }) => type.startsWith("image/") || IMAGE.test(name));
  if (!images.length) return search(files); // it says why this cannot be
  const one = images.length === 1;
  const others = files.length - images.length;
  return showDialog(
    one ? images[0].name : plural(images.length, "photo"),
    others ? el("p.quiet", `${plural(others, "other file")} left out.`) : "",
    dialogButtons(
      [one ? "Search by it" : "Search by the first", () => search(images), "primary"],
      ["Add to the collection", () => void add(images)],
      ["Cancel"],
    ),
  );
}

/** @param {string[]} parts */
const sentence = (parts) => parts.filter(Boolean).join(" ");
/** @param {string[]} names */
const listed = (names) =>
  names.slice(0, NAMED).join("; ") +
  (names.length > NAMED ? `; and ${count(names.length - NAMED)} more` : "");

let queued = 0; // times that photos are still to be added
let told = ""; // what came of those before
let adding = Promise.resolve();

/** @param {File[]} files */
function add(files) {
  queued += 1;
  adding = adding.then(() => {
    queued -= 1;
    return addNow(files).catch(() => {}); // what was added is said
  });
}

/** @param {File[]} files */
async function addNow(files) {
  const stop = new AbortController();
  /** @type {string[]} */
  const kept = [];
  /** @type {string[]} */
  const copies = [];
  /** @type {string[]} */
  const refused = [];
  const cancel = () => stop.abort();
  announce(`Adding ${plural(files.length, "photo")}.`);
  for (const [i, file] of files.entries()) {
    if (stop.signal.aborted) break;
    progress(`Sending ${count(i + 1)} of ${count(files.length)} …`, i / files.length, cancel);
    try {
      const photo = await send(file); // whole, so that it is known what to discard
      if (photo.copy_of) copies.push(`${photo.name} is ${photo.copy_of}`);
      else kept.push(photo.name);
    } catch (error) {
      refused.push(error.message);
      if (![413, 415].includes(error.status)) break; // the next ones would fail as well
    }
  }
  try {
    const result = kept.length ? await extracted(kept, stop) : NONE;
    if (stop.signal.aborted) {
      await discard(kept);
      return await tell("Cancelled: no photo was added.", 0);
    }
    for (const { name, reason } of result.refused) refused.push(`${name}: ${reason}`);
    if (result.added) {
      forgetPhotos();
      await readRun();
      if (!queryOf(state.request)) await redraw();
    }
    return void tell(
      sentence([
        `${plural(result.added, "photo")} added.`,
        result.cancelled ? `Cancelled: ${plural(result.cancelled, "photo")} not added.` : "",
        copies.length ? `Already there: ${listed(copies)}.` : "",
        refused.length ? `Not added: ${listed(refused)}.` : "",
      ]),
      result.added,
    );
  } catch (error) {
    return void tell(`The photos were not added: ${error.message}`, 0);
  }
}

/** @param {File} file @returns {Promise<Schemas["KeptPhoto"]>} */
async function send(file) {
  checkSize(file, file.name);
  const form = new FormData();
  form.append("file", file, file.name);
  return request("api/add/photo", { method: "POST", body: form });
}

/** @type {Schemas["AddResult"]} */
const NONE = { added: 0, refused: [], cancelled: 0 };

/**
 * Delete photos that were sent, and are not added yet.
 * @param {string[]} kept
 */
async function discard(kept) {
  while (kept.length) await post("api/add/cancel", { names: kept.splice(0, MOST_NAMES) });
}

/**
 * What came of adding photos that were sent, after those of another page.
 * @param {string[]} kept
 * @param {AbortController} stop
 */
async function extracted(kept, stop) {
  /** @type {Schemas["AddState"] | undefined} */
  let mine;
  for (let wait = 0; !mine || mine.running; wait = EVERY) {
    await new Promise((after) => setTimeout(after, wait));
    if (stop.signal.aborted) return NONE;
    try {
      mine = await (mine ? get("api/add") : post("api/add", undefined));
    } catch (error) {
      if (!mine && error.status !== 409) throw error; // else the service may be back in a moment
    }
    const { done, total } = mine ?? { done: 0, total: 0 };
    progress(
      `Adding${total ? ` ${count(done)} of ${count(total)}` : ""} … You can go on searching.`,
      total && done / total,
      () => (mine ? void discard(kept).catch(() => {}) : stop.abort()),
    );
  }
  if (mine.problem || !mine.result) throw new Error(mine.problem ?? "the service ended");
  return mine.result;
}

/** @param {string} words @param {number} added */
async function tell(words, added) {
  words = sentence([told, words]);
  told = queued ? words : "";
  announce(words);
  const news = added ? await newOnes() : [];
  fill(
    el("span", { dir: "auto" }, words),
    added ? link({ view: "added" }, "Show them", { onclick: () => fill() }) : "",
    ...news,
    lineButton("Dismiss", () => fill(), "plain"),
  );
}

/** Say which photos the service has added meanwhile, from a folder that is watched. */
async function lookForNew() {
  const { run } = state;
  if (!run.watching || document.hidden || $("#adding progress")) return;
  const { version } = await get("health");
  if (version === run.version || state.run !== run) return;
  await readRun();
  const added = state.run.images - run.images;
  if (viewOf(state.request) === "start") await redraw();
  if (added > 0) {
    forgetPhotos();
    await tell(`${plural(added, "photo")} added.`, added);
  }
}

/**
 * What is dropped or pasted. Where an example is being added, it is one, without a question.
 * @param {File[]} files
 * @param {(files: File[]) => unknown} search
 */
export async function takeFiles(files, search) {
  await begun;
  if (state.adding || !state.run.can_add) search(files);
  else askWhatFor(files, search);
}

/** @param {DragEvent} event @param {(files: File[]) => unknown} search */
export async function takeDrop(event, search) {
  const { dataTransfer } = event;
  if (!dataTransfer?.files.length || targetOf(event).closest?.("dialog")) return;
  await takeFiles(await droppedFiles(dataTransfer), search);
}

onFiles("#photos-to-add", (files) => files.length && add(files));
$("#start .pick").after(addButton());
setInterval(() => void lookForNew().catch(() => {}), WATCH_EVERY); // the service may be back soon
addEventListener("run", () => {
  document.body.classList.toggle("can-add", state.run.can_add);
  document.body.classList.toggle("no-upload", !state.run.can_upload);
  $("#dropping p").textContent = state.run.can_add
    ? "Drop to search with it, or to add it to the collection"
    : "Drop the image to search with it";
});
