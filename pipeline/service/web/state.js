// The state of the search page, in one object, and what follows from it. history.js changes
// `request`, search.js reads `run` and rankings, learning.js changes models. The other modules
// draw.

import { queryOf, searchOf } from "./address.js";
import { remembered } from "./dom.js";
import { Marks } from "./marks.js";
import { learnerName } from "./words.js";

export const PAGE = 100; // results of the first answer; the rest follows in columns
export const COMPARED = 20; // results per column of a comparison

export const state = {
  run: { images: 0, labels: {}, learners: [], models: {}, evaluations: [], limits: {} },
  request: {}, // what the address asks for (address.js)
  shown: {}, // the request that the page shows
  ranking: null, // the results on the page, as the service sent them
  other: null, // the ranking beside it
  // { name, learner, results, subject }: a ranking before the last update of its learner.
  before: null,
  drawn: null, // what the gallery was drawn from
  listed: [], // the images of the gallery on the page, which the viewer goes through
  hideMarked: false,
  fold: remembered("fold", true), // copies of one photo are one tile
  adding: false, // whether a choice in the search box becomes a further example
  turn: 0, // number of the last request: a later one stops an earlier one
};

// Resolved when the run has been read and the first page has its turn: a file dropped before waits
// for it.
let resolveBegun;
export const begun = new Promise((resolve) => {
  resolveBegun = resolve;
});
export const tellBegun = () => resolveBegun();

export const marks = new Marks(); // of the present query

export const viewOf = (request) =>
  request.view ?? (!queryOf(request) ? "start" : request.with ? "compare" : "results");

export const asList = (value) => (value === undefined || value === null ? [] : [value].flat());

// The settings that a new query keeps. An album's filters are no filters of a search that begins in
// it.
export function settings() {
  const {
    view,
    learner,
    learned,
    label,
    not,
    folder,
    unique,
    query_label,
    with: other,
  } = state.request;
  if (view) return {};
  return query_label
    ? { label, not, folder, unique }
    : {
        learner,
        learned,
        label,
        not,
        folder,
        unique,
        with: other === "before" ? undefined : other,
      };
}

// What identifies a ranking, whichever learner made it.
export const subjectOf = (request) => JSON.stringify({ ...searchOf(request), learner: undefined });

// The ranking before the last update, if it is of the query, filters and learner on the page.
export const snapshot = () =>
  state.before?.subject === subjectOf(state.request) &&
  state.before.learner === state.ranking.learner
    ? state.before
    : null;

export const modelName = (learner) => {
  const { version } = state.run.models[learner] ?? {};
  return version ? `${learnerName(learner)}, model ${version}` : learnerName(learner);
};

// The learner that marks update.
export const onlineLearner = () =>
  state.run.models[state.ranking?.learner]
    ? state.ranking.learner
    : Object.keys(state.run.models)[0];

export function queryName() {
  const { query_label, upload } = state.request;
  if (query_label) return query_label;
  if (upload) return remembered("names", {})[upload] ?? "uploaded image";
  return (state.ranking?.query ?? "").split("/").slice(-2).join("/");
}

const passes = (result) => {
  const { metric } = state.request;
  return (
    (metric === undefined || result.metric === metric) &&
    !(state.hideMarked && marks.of.get(result.id))
  );
};

// Copies of one photo as one: the first of them, with the others in `copies`.
export function folded(images) {
  const first = new Map();
  return images.filter((image) => {
    image.copies = [];
    if (image.group === null || !state.fold) return true;
    const kept = first.get(image.group);
    if (kept) kept.copies.push(image);
    else first.set(image.group, image);
    return !kept;
  });
}

// The results that no filter of the page hides.
export const visible = () => folded(state.ranking.results.filter(passes));

// The lists of results on the page: two in a comparison.
export const lists = () =>
  state.request.with && state.other
    ? [state.ranking.results.slice(0, COMPARED), state.other.results.slice(0, COMPARED)]
    : [state.listed];
