// Reads from the service: the run, and rankings by address.

import { searchOf } from "../core/address.js";
import { get, search } from "../core/api.js";
import { fromColumns } from "../gallery/details.js";
import { $ } from "../core/dom.js";
import { plural } from "../core/text.js";
import { labelsSaved } from "../teach/labels.js";
import { busy } from "../core/messages.js";
import { state } from "../core/state.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas, Values } from "../core/api.js" */
/** @import { Ranking } from "../core/state.js" */

const KEPT = 150_000; // results of this session, so that Back is immediate
/** @type {Map<string, Ranking>} */
const rankings = new Map(); // by request

export async function readRun() {
  const run = await get("api/run");
  state.run = run;
  $("#run").textContent = `${run.run} · ${plural(run.images, "image")}`;
  $("nav a[href=judge]").hidden = !run.judging;
  $("#behind").hidden = !run.problem && !run.watch_problem;
  $("#behind").textContent = run.problem
    ? `Searches use an earlier state of this run: ${run.problem}.`
    : run.watch_problem
      ? `New photos of the folder are not added at the moment: ${run.watch_problem}.`
      : "";
  const { upload_bytes, upload_seconds } = run.limits;
  $("#limits").textContent =
    "JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP, TIFF or JPEG 2000, " +
    `up to ${Math.floor(upload_bytes / 2 ** 20)} MiB. ` +
    "The server stores the pixels only, no metadata, for " +
    `${plural(Math.round(upload_seconds / 86400), "day")}.`;
  dispatchEvent(new Event("run"));
}

/** @param {Values} values @param {number} k @returns {Promise<Ranking>} */
export async function fetchRanking(values, k) {
  const key = JSON.stringify(values);
  const kept = rankings.get(key);
  if (kept?.version === state.run.version && (kept.results.length >= k || kept.ended)) {
    rankings.delete(key); // used last
    rankings.set(key, kept);
    return kept;
  }
  const ranking = await busy("Searching …", async (signal) => {
    await labelsSaved();
    return search({ ...values, k }, { signal });
  });
  return keepRanking(key, ranking, k);
}

/** @param {string} key @param {Ranking} ranking @param {number} k */
export function keepRanking(key, ranking, k) {
  ranking.ended = ranking.results.length < k;
  rankings.set(key, ranking);
  trim();
  return ranking;
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

/**
 * Read all further results of a ranking, in columns. Resolves to whether there are more now.
 * @param {Ranking} ranking
 * @param {Request} request
 */
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
