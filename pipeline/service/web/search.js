// Reads from the service: the run, rankings by address, rankings of a picture from outside.

import { searchOf } from "./address.js";
import { ApiError, get, search, upload } from "./api.js";
import { $, announce, el, plural, remember, remembered, toast } from "./dom.js";
import { focusCard } from "./grid.js";
import { change, go, redraw } from "./history.js";
import { busy, failure, say } from "./messages.js";
import { PAGE, settings, state } from "./state.js";
import { viewer } from "./viewer.js";

const rankings = new Map(); // of this session, by request, so that Back is immediate

export async function readRun() {
  const run = (state.run = await get("api/run"));
  $("#run").textContent = `${run.run} · ${plural(run.images, "image")}`;
  const { upload_bytes, upload_seconds } = run.limits;
  $("#limits").textContent = `JPEG, PNG, WebP, BMP or TIFF, up to ${Math.floor(upload_bytes / 2 ** 20)} MiB. ` +
    `The server stores the pixels only, no metadata, for ${plural(Math.round(upload_seconds / 86400), "day")}.`;
  $("#by-label").hidden = !run.annotators.length;
  $("#by-label select").replaceChildren(el("option", { value: "" }, "choose a label"),
    ...Object.keys(run.labels).map((name) => el("option", { value: name }, name)));
}

export async function fetchRanking(values, k) {
  const key = JSON.stringify(values);
  const kept = rankings.get(key);
  if (kept?.version === state.run.version && (kept.results.length >= k || kept.ended)) return kept;
  return keepRanking(key, await busy("Searching …", (signal) => search({ ...values, k }, { signal })), k);
}

function keepRanking(key, ranking, k) {
  ranking.ended = ranking.results.length < k;
  rankings.set(key, ranking);
  if (rankings.size > 30) rankings.delete(rankings.keys().next().value);
  return ranking;
}

export async function searchFiles(files) {
  const [file] = files;
  if (!file) return toast("No image file received.");
  const name = file.name || "pasted image";
  const mine = state.turn;
  try {
    const most = state.run.limits.upload_bytes;
    if (file.size > most) throw new ApiError(`${name}: larger than the limit of ${Math.floor(most / 2 ** 20)} MiB`, 413);
    const kept = settings();
    const ranking = await busy(`Searching with ${name} …`,
      (signal) => upload(file, { ...searchOf(kept), k: PAGE }, { signal }));
    const next = { ...kept, upload: ranking.upload ?? ranking.key };
    keepRanking(JSON.stringify(searchOf(next)), ranking, PAGE);
    remember("names", { ...Object.fromEntries(Object.entries(remembered("names", {})).slice(-20)), [next.upload]: name });
    await go(next);
    if (!ranking.upload) say("The server could not store this image: the link works only until you reload the page.");
    if (files.length > 1) toast(`Searched with ${name}, the first of ${files.length} files.`);
  } catch (error) {
    if (mine !== state.turn && error.name === "AbortError") return; // a later request took over
    if (!state.ranking) await redraw(state.shown); // removes the skeletons
    if (error.name !== "AbortError") failure(error, [413, 415].includes(error.status) ? null : () => searchFiles(files));
  }
}

export async function loadMore(button) {
  button.disabled = true;
  button.textContent = "Loading …";
  const from = state.ranking;
  const offset = from.results.length;
  try {
    const more = await search({ ...searchOf(state.request), k: PAGE, offset });
    if (state.ranking !== from) return;
    if (more.version === from.version) {
      from.results.push(...more.results);
      from.ended = more.results.length < PAGE;
    } else state.run.version = null; // the collection or the learner has changed: read all results again
    await change({ k: offset + PAGE }, { replace: true });
    const added = state.ranking?.results.slice(offset) ?? [];
    if (added.length && !viewer.open) focusCard(added[0].id);
    announce(`${plural(added.length, "more result")}, ${offset + added.length} in total.`);
  } catch (error) {
    failure(error);
  } finally {
    button.disabled = false;
    button.textContent = "Load more";
  }
}
