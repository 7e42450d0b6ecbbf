// Makes the page agree with a request: reads what it needs, draws the view, and keeps the old one
// if that fails.

import { queryOf, searchOf } from "./address.js";
import { $, $$ } from "./dom.js";
import { toast } from "./says.js";
import { leaveDialog, openDialog } from "../gallery/dialog.js";
import { placeFocus, pressMarks, refreshTiles } from "../gallery/grid.js";
import { tray } from "../teach/learning.js";
import { cancelSearch, failure, note, slowly } from "./messages.js";
import { drawOptions } from "./options.js";
import { hasGallery } from "../gallery/photos.js";
import { drawQuery } from "../search/query.js";
import { showComparison, showGrid, showRest } from "../search/results.js";
import { fetchRanking, readRun } from "../search/search.js";
import { failByName } from "../search/searchbox.js";
import { clearSelection } from "../gallery/select.js";
import { rememberQuery, showStart } from "../gallery/start.js";
import { COMPARED, marks, PAGE, queryName, snapshot, state, viewOf } from "./state.js";
import { viewer } from "../gallery/viewer.js";
import { showOnly, showView, titleOf } from "./views.js";

/** @type {[string, string[]][]} */
const PANELS = [
  ["#start", ["start"]],
  ["#asked", ["results", "compare"]],
  ["#results", ["results"]],
  ["#compare", ["compare"]],
];

/** @import { Request } from "./address.js" */
/** @import { Ranking } from "./state.js" */

/** @param {Request} request @param {{ scroll?: number }} [options] @returns {Promise<void>} */
export async function show(request, { scroll } = {}) {
  const turn = ++state.turn;
  const first = turn === 1;
  if (scroll !== undefined) cancelSearch(); // a new request replaces the one under way
  state.request = request;
  if (!request.open && scroll !== undefined) clearSelection();
  if (!request.open) leaveDialog();
  let done = false;
  try {
    const view = viewOf(request);
    if (view === "start") await slowly(showStart(turn));
    else if (request.view) await slowly(showView(request, turn));
    else await showRanking(turn);
    done = true;
  } catch (error) {
    if (turn !== state.turn) return;
    // The old view stays usable; the address is that of the request.
    state.request = viewer.open
      ? state.shown
      : { ...state.shown, open: undefined, explain: undefined };
    if (request.text && /^(no word of|a text without a word) /.test(error.message))
      failByName(request.text);
    else if (error.name !== "AbortError") failure(error, () => show(request, { scroll }));
  }
  const view = viewOf(state.request);
  if (!done && view === "start") await showStart(turn).catch(() => {});
  if (turn !== state.turn) return;
  state.shown = state.request;
  if (done) failure(null);
  else if (queryOf(state.request)) drawQuery();
  for (const [id, views] of PANELS) $(id).hidden = !views.includes(view);
  showOnly(state.request.view);
  if ($("#options[open]")) drawOptions();
  // What was above a gallery has gone: it draws what came into sight.
  dispatchEvent(new Event("scroll"));
  // A query by label takes no marks.
  document.body.classList.toggle("no-marks", !state.ranking?.key);
  document.title =
    view === "start"
      ? "visterm"
      : `${state.request.view ? titleOf(state.request) : queryName()} – visterm`;
  for (const link of $$(".top nav a[data-go]"))
    link.setAttribute("aria-current", link.dataset.go === state.request.view ? "page" : "false");
  tray();
  if (!done) return;
  if (scroll !== undefined) {
    if (!first) placeFocus();
    // Where the page was may be further down.
    if (scroll > 0 && view === "results") await showRest().catch(() => {});
    if (turn !== state.turn) return;
    requestAnimationFrame(() => scrollTo(0, scroll));
  }
  if (state.request.open && (hasGallery(state.request) || queryOf(state.request))) openDialog();
}

/** @param {number} turn */
async function showRanking(turn) {
  const { request } = state;
  const values = searchOf(request);
  const k = request.with ? COMPARED : PAGE;
  const ranking = await fetchRanking(values, k);
  const beside = request.with && request.with !== "before";
  const second = beside ? await fetchRanking({ ...values, learner: request.with }, COMPARED) : null;
  if (turn !== state.turn) return;
  // The collection or a learner has changed.
  if (ranking.version !== state.run.version) await readRun();
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

/** @param {Ranking} ranking */
function loadMarks(ranking) {
  marks.load(ranking.key).then(
    () => {
      if (state.ranking?.of !== ranking.of) return;
      if (state.request.with) showComparison();
      else if (state.hideMarked) showGrid(true);
    },
    (error) => toast(`Cannot load the relevance marks of this query: ${error.message}`),
  );
}

// Called after every change of the marks.
export function marksChanged() {
  if (!state.ranking) return;
  refreshTiles();
  if (viewer.open) pressMarks(viewer, marks.of.get(state.request.open ?? -1));
  else if (state.shown.with) showComparison();
  tray();
}

function noteOldLink() {
  const { model } = state.request;
  const now = state.run.models[state.ranking.learner]?.version ?? 0;
  if (model !== undefined && model !== now)
    note(`This link was created with model ${model}; the results are from model ${now}.`);
}
