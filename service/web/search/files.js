// Searches with files of this device, and with pictures that the service has fetched.

import { queryOf, searchOf } from "../core/address.js";
import { ApiError, upload } from "../core/api.js";
import { $, el } from "../core/dom.js";
import { remember } from "../core/remember.js";
import { toast } from "../core/says.js";
import { addUpload } from "./examples.js";
import { go, redraw } from "../core/history.js";
import { busy, failure, say, showSkeleton } from "../core/messages.js";
import { keepRanking } from "./search.js";
import { begun, PAGE, settings, state, uploadNames } from "../core/state.js";
import { showOnly } from "../core/views.js";

const SOON = 150; // ms in which results come without tiles that stand for them

/**
 * The picture is there before its results are. Returns the timer of the tiles that stand for
 * results which take longer.
 * @param {File} file
 * @param {string} name
 */
function showDropped(file, name) {
  const address = URL.createObjectURL(file);
  const img = el("img", { src: address, alt: "" });
  img.addEventListener("load", () => URL.revokeObjectURL(address));
  img.addEventListener("error", () => {
    URL.revokeObjectURL(address);
    img.replaceWith(el("span.word", name));
  });
  $("#query").replaceChildren(img, el("div", el("h1", name), el("p.quiet", "Searching …")));
  $("#asked").hidden = false;
  $("#start").hidden = true;
  showOnly(null);
  return setTimeout(showSkeleton, SOON);
}

/** @param {string} key @param {string} name */
function nameUpload(key, name) {
  const kept = Object.entries(uploadNames()).slice(-20);
  remember("names", { ...Object.fromEntries(kept), [key]: name });
}

/**
 * Search with a picture that the service already has, or add it to the query as an example.
 * @param {string} key
 * @param {string} name
 * @param {boolean} example
 */
export function searchUpload(key, name, example) {
  nameUpload(key, name);
  return example ? addUpload(key) : go({ ...settings(), upload: key });
}

/** @param {File} file */
async function addFile(file) {
  try {
    const ranking = await busy(`Adding ${file.name} …`, (signal) =>
      upload(file, { k: 1 }, { signal }),
    );
    await addUpload(ranking.upload ?? String(ranking.key));
  } catch (error) {
    if (error.name !== "AbortError") failure(error);
  }
}

/**
 * Take what is chosen with a field for files.
 * @param {string} selector
 * @param {(files: File[]) => unknown} take
 */
export function onFiles(selector, take) {
  /** @type {HTMLInputElement} */
  const field = $(selector);
  field.addEventListener("change", () => {
    take([...(field.files ?? [])]);
    field.value = ""; // so that the same file can be chosen twice
  });
}

/** Refuse a file that the service would. @param {File} file @param {string} name */
export function checkSize({ size }, name) {
  const most = state.run.limits.upload_bytes;
  if (size > most)
    throw new ApiError(`${name}: larger than the limit of ${Math.floor(most / 2 ** 20)} MiB`, 413);
}

/** @param {File[]} files @returns {Promise<void>} */
export async function searchFiles(files) {
  const [file] = files;
  if (!file) return toast("No image file received.");
  if (state.adding && queryOf(state.request)) return addFile(file);
  const name = file.name || "pasted image";
  await begun;
  // A page that is being drawn, such as the first one, must not come over this.
  const mine = ++state.turn;
  /** @type {number | undefined} */
  let waiting;
  try {
    checkSize(file, name);
    const kept = settings();
    waiting = showDropped(file, name);
    const ranking = await busy(`Searching with ${name} …`, (signal) =>
      upload(file, { ...searchOf(kept), k: PAGE }, { signal }),
    );
    clearTimeout(waiting);
    const next = { ...kept, upload: ranking.upload ?? String(ranking.key) };
    keepRanking(JSON.stringify(searchOf(next)), ranking, PAGE);
    nameUpload(next.upload, name);
    await go(next);
    if (!ranking.upload)
      say("The server could not store this image: the link works only until you reload the page.");
    if (files.length > 1) toast(`Searched with ${name}, the first of ${files.length} files.`);
  } catch (error) {
    clearTimeout(waiting);
    if (mine !== state.turn && error.name === "AbortError") return; // a later request took over
    state.drawn = null;
    await redraw(state.shown); // removes the skeletons
    if (error.name !== "AbortError")
      failure(error, [413, 415].includes(error.status) ? null : () => searchFiles(files));
  }
}
