// The state of the search page, in one object, and what follows from it. history.js changes `request`, search.js reads
// `run` and rankings, learning.js changes models. The other modules draw.

import { queryOf, searchOf } from "./address.js";
import { remembered } from "./dom.js";
import { Marks } from "./marks.js";

export const PAGE = 48; // results per page: divides by 2, 3, 4, 6 and 8 columns
export const MOST = 480; // cards
export const COMPARED = 20; // results per column of a comparison

export const state = {
  run: { images: 0, labels: {}, learners: [], models: {}, evaluations: [], limits: {} },
  request: {}, // what the address asks for (address.js)
  shown: {}, // the request that the page shows
  ranking: null, // the results on the page, as the service sent them
  other: null, // the ranking beside it
  before: null, // { name, learner, results, subject }: a ranking before the last update of its learner
  drawn: null, // what the grid was drawn from
  hideMarked: false,
  turn: 0, // number of the last request: a later one stops an earlier one
};

export const marks = new Marks(); // of the present query

export const viewOf = (request) =>
  request.view === "figures" ? "figures" : !queryOf(request) ? "start" : request.with ? "compare" : "results";

// The settings that a new query keeps.
export function settings() {
  const { learner, label, unique, query_label, with: other } = state.request;
  return query_label ? { label, unique } : { learner, label, unique, with: other === "before" ? undefined : other };
}

// What identifies a ranking, whichever learner made it.
export const subjectOf = (request) => JSON.stringify({ ...searchOf(request), learner: undefined });

// The ranking before the last update, if it is of the query, filters and learner on the page.
export const snapshot = () =>
  state.before?.subject === subjectOf(state.request) && state.before.learner === state.ranking.learner ? state.before : null;

export const modelName = (learner) =>
  state.run.models[learner]?.version ? `${learner}, model ${state.run.models[learner].version}` : learner;

// The learner that marks update.
export const onlineLearner = () =>
  state.run.models[state.ranking?.learner] ? state.ranking.learner : Object.keys(state.run.models)[0];

export function queryName() {
  const { query_label, upload } = state.request;
  if (query_label) return query_label;
  if (upload) return remembered("names", {})[upload] ?? "uploaded image";
  return (state.ranking?.query ?? "").split("/").slice(-2).join("/");
}

const passes = (result) => {
  const { metric } = state.request;
  return (metric === undefined || result.metric === metric) && !(state.hideMarked && marks.of.get(result.id));
};

// The results that no filter of the page hides.
export const visible = () => state.ranking.results.filter(passes);

// The lists of results on the page: two in a comparison.
export const lists = () =>
  state.request.with && state.other
    ? [state.ranking.results.slice(0, COMPARED), state.other.results.slice(0, COMPARED)] : [visible()];
