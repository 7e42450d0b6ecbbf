// Reads from the service: the run, rankings by address, rankings of a picture from outside.

import { queryOf, searchOf } from "./address.js";
import { ApiError, get, search, upload } from "./api.js";
import { fromColumns } from "./details.js";
import { $, el, plural, remember, remembered, toast } from "./dom.js";
import { go, redraw } from "./history.js";
import { busy, failure, say, showSkeleton } from "./messages.js";
import { addExample } from "./refine.js";
import { isAdding } from "./searchbox.js";
import { begun, PAGE, settings, state } from "./state.js";
import { showOnly } from "./views.js";

const KEPT = 150_000; // results of this session, so that Back is immediate
const SOON = 150; // ms in which results come without tiles that stand for them
const rankings = new Map(); // by request

export async function readRun() {
  const run = (state.run = await get("api/run"));
  $("#run").textContent = `${run.run} · ${plural(run.images, "image")}`;
  $("#behind").hidden = !run.problem;
  $("#behind").textContent = run.problem
    ? `Searches use an earlier state of this run: ${run.problem}.`
    : "";
  const { upload_bytes, upload_seconds } = run.limits;
  $("#limits").textContent =
    `JPEG, PNG, WebP, BMP or TIFF, up to ${Math.floor(upload_bytes / 2 ** 20)} MiB. ` +
    "The server stores the pixels only, no metadata, for " +
    `${plural(Math.round(upload_seconds / 86400), "day")}.`;
}

export async function fetchRanking(values, k) {
  const key = JSON.stringify(values);
  const kept = rankings.get(key);
  if (kept?.version === state.run.version && (kept.results.length >= k || kept.ended)) {
    rankings.delete(key); // used last
    rankings.set(key, kept);
    return kept;
  }
  return keepRanking(
    key,
    await busy("Searching …", (signal) => search({ ...values, k }, { signal })),
    k,
  );
}

function keepRanking(key, ranking, k) {
  ranking.ended = ranking.results.length < k;
  rankings.set(key, ranking);
  trim();
  return ranking;
}

// The picture is there before its results are. Returns the timer of the tiles that stand for
// results which take longer.
function showDropped(file, name) {
  const address = URL.createObjectURL(file);
  const img = el("img", { src: address, alt: "" });
  img.addEventListener("load", () => URL.revokeObjectURL(address));
  img.addEventListener(
    "error",
    () => (URL.revokeObjectURL(address), img.replaceWith(el("span", { class: "word" }, name))),
  );
  $("#query").replaceChildren(
    img,
    el("div", {}, el("h1", {}, name), el("p", { class: "quiet" }, "Searching …")),
  );
  $("#asked").hidden = false;
  $("#start").hidden = true;
  showOnly(null);
  return setTimeout(showSkeleton, SOON);
}

// Search with a picture that the service already has, or add it to the query as an example.
export function searchUpload(key, name, example) {
  remember("names", {
    ...Object.fromEntries(Object.entries(remembered("names", {})).slice(-20)),
    [key]: name,
  });
  return example ? addExample(null, 1, key) : go({ ...settings(), upload: key });
}

async function addFile(file) {
  try {
    const ranking = await busy(`Adding ${file.name} …`, (signal) =>
      upload(file, { k: 1 }, { signal }),
    );
    await addExample(null, 1, ranking.upload ?? ranking.key);
  } catch (error) {
    if (error.name !== "AbortError") failure(error);
  }
}

export async function searchFiles(files) {
  const [file] = files;
  if (!file) return toast("No image file received.");
  if (isAdding() && queryOf(state.request)) return addFile(file);
  const name = file.name || "pasted image";
  await begun;
  // A page that is being drawn, such as the first one, must not come over this.
  const mine = ++state.turn;
  let waiting;
  try {
    const most = state.run.limits.upload_bytes;
    if (file.size > most)
      throw new ApiError(
        `${name}: larger than the limit of ${Math.floor(most / 2 ** 20)} MiB`,
        413,
      );
    const kept = settings();
    waiting = showDropped(file, name);
    const ranking = await busy(`Searching with ${name} …`, (signal) =>
      upload(file, { ...searchOf(kept), k: PAGE }, { signal }),
    );
    clearTimeout(waiting);
    const next = { ...kept, upload: ranking.upload ?? ranking.key };
    keepRanking(JSON.stringify(searchOf(next)), ranking, PAGE);
    remember("names", {
      ...Object.fromEntries(Object.entries(remembered("names", {})).slice(-20)),
      [next.upload]: name,
    });
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

// Old rankings go first; the one used last stays.
function trim() {
  let n = [...rankings.values()].reduce((sum, ranking) => sum + ranking.results.length, 0);
  for (const [key, ranking] of rankings) {
    if (n <= KEPT || rankings.size === 1) return;
    rankings.delete(key);
    n -= ranking.results.length;
  }
}

// Read all further results of a ranking, in columns. Resolves to whether there are more now.
export function fetchRest(ranking, request) {
  if (ranking.ended) return Promise.resolve(false);
  ranking.rest ??= get("search/columns", searchOf(request)).then(
    (columns) => {
      // Changed meanwhile: the next request reads all again.
      if (columns.version !== ranking.version) state.run.version = null;
      const known = new Set(ranking.results.map((image) => image.id));
      for (let i = 0; i < columns.ids.length; i++)
        if (!known.has(columns.ids[i])) ranking.results.push(fromColumns(columns, i));
      ranking.results.forEach((image, i) => (image.rank = i + 1));
      ranking.ended = true;
      trim();
      return true;
    },
    (error) => {
      ranking.rest = null;
      throw error;
    },
  );
  return ranking.rest;
}
