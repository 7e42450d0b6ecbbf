// Makes the page agree with a request: reads what it needs, draws the view, and keeps the old one if that fails.

import { queryOf, searchOf } from "./address.js";
import { get } from "./api.js";
import { $, toast } from "./dom.js";
import { leaveDialog, openDialog } from "./dialog.js";
import { drawFigures } from "./figures.js";
import { placeFocus, pressMarks, showMarks } from "./grid.js";
import { tray } from "./learning.js";
import { cancelSearch, failure, note } from "./messages.js";
import { drawQuery } from "./query.js";
import { showComparison, showGrid } from "./results.js";
import { fetchRanking, readRun } from "./search.js";
import { rememberQuery, showStart } from "./start.js";
import { COMPARED, marks, MOST, PAGE, queryName, snapshot, state, viewOf } from "./state.js";
import { viewer } from "./viewer.js";

const PANELS = [["#start", ["start"]], ["#figures", ["figures"]], ["#asked", ["results", "compare"]], ["#results", ["results"]],
  ["#compare", ["compare"]]];

export async function show(request, { scroll } = {}) {
  const turn = ++state.turn;
  const first = turn === 1; // a file may have been dropped before
  if (scroll !== undefined && !first) cancelSearch(); // a new request replaces the one under way
  state.request = request;
  if (!request.open) leaveDialog();
  let done = false;
  try {
    const view = viewOf(request);
    if (view === "start") await showStart(turn);
    else if (view === "figures") await showFigures();
    else await showRanking(turn);
    done = true;
  } catch (error) {
    if (turn !== state.turn) return;
    // The old view stays usable; the address is that of the request.
    state.request = viewer.open ? state.shown : { ...state.shown, open: undefined, explain: undefined };
    if (error.name !== "AbortError") failure(error, () => show(request, { scroll }));
  }
  const view = viewOf(state.request);
  if (!done && view === "start") await showStart(turn).catch(() => {});
  if (turn !== state.turn) return;
  state.shown = state.request;
  if (done) failure(null);
  else if (queryOf(state.request)) drawQuery();
  for (const [id, views] of PANELS) $(id).hidden = !views.includes(view);
  document.body.classList.toggle("no-marks", !state.ranking?.key); // a query by label takes no marks
  document.title = view === "figures" ? "Evaluation – visterm" : view === "start" ? "visterm" : `${queryName()} – visterm`;
  $('[data-go="figures"]').setAttribute("aria-current", view === "figures" ? "page" : "false");
  tray();
  if (!done) return;
  if (scroll !== undefined) {
    if (!first) placeFocus();
    requestAnimationFrame(() => scrollTo(0, scroll));
  }
  if (state.request.open && queryOf(state.request)) openDialog();
}

async function showFigures() {
  await readRun(); // an evaluation may be new
  const all = await Promise.all(state.run.evaluations.map(async (name) => {
    const at = `api/evaluations/${encodeURIComponent(name)}`;
    const [curves, metrics] = await Promise.all([get(`${at}/curves`), get(`${at}/metrics`)]);
    return { name, curves, metrics };
  }));
  $("#figures").replaceChildren(...drawFigures(all));
}

async function showRanking(turn) {
  const { request } = state;
  const values = searchOf(request);
  const k = Math.min(MOST, request.with ? COMPARED : (request.k ?? PAGE));
  const ranking = await fetchRanking(values, k);
  const beside = request.with && request.with !== "before";
  const second = beside ? await fetchRanking({ ...values, learner: request.with }, COMPARED) : null;
  if (turn !== state.turn) return;
  if (ranking.version !== state.run.version) await readRun(); // the collection or a learner has changed
  if (turn !== state.turn) return;
  ranking.of = JSON.stringify(queryOf(request));
  const isNew = state.ranking?.of !== ranking.of;
  state.ranking = ranking;
  state.other = beside ? second : snapshot();
  if (isNew) {
    $("#notes").replaceChildren();
    rememberQuery();
    loadMarks(ranking);
    noteOldLink();
  }
  drawQuery();
  if (request.with) showComparison();
  else showGrid();
}

function loadMarks(ranking) {
  marks.load(ranking.key).then(() => {
    if (state.ranking?.of !== ranking.of) return;
    if (state.request.with) showComparison();
    else if (state.hideMarked) showGrid(true);
  }, (error) => toast(`Cannot load the relevance marks of this query: ${error.message}`));
}

// Called after every change of the marks.
export function marksChanged() {
  if (!state.ranking) return;
  showMarks(state.ranking.results, marks.of);
  if (viewer.open) pressMarks(viewer, marks.of.get(state.request.open));
  else if (state.shown.with) showComparison();
  tray();
}

function noteOldLink() {
  const { model } = state.request;
  const now = state.run.models[state.ranking.learner]?.version ?? 0;
  if (model !== undefined && model !== now) note(`This link was created with model ${model}; the results are from model ${now}.`);
}
