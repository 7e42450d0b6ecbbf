// The state of the search page, in one object, and what follows from it. history.js changes
// `request`, search.js reads `run` and rankings, learning.js changes models. The other modules
// draw.

import { FILTERS, pick, queryOf, searchOf, wordsOf } from "./address.js";
import { remember, remembered } from "./remember.js";
import { shortPath } from "./text.js";
import { Marks } from "../teach/marks.js";

/** @import { Query, Request } from "./address.js" */
/** @import { Schemas } from "./api.js" */
/** @import { Photo } from "../gallery/details.js" */
/**
 * The run; its version is null after a change, so that everything is read again.
 * @typedef {Omit<Schemas["RunInfo"], "version"> & { version: string | null }} Run
 */
/**
 * The results of a query: `ended` once all are there, `rest` while the others are read.
 * @typedef {Omit<Schemas["SearchResponse"], "results"> & {
 *   results: Photo[],
 *   ended?: boolean,
 *   rest?: Promise<boolean> | null,
 *   of?: string,
 * }} Ranking
 */
/**
 * A ranking before the last update of its learner.
 * @typedef {{ name: string, learner: string, results: Photo[], subject: string }} Earlier
 */
export const PAGE = 100; // results of the first answer; the rest follows in columns
export const COMPARED = 20; // results per column of a comparison

/** @type {any} */
const none = null;

export const state = {
  /** @type {Run} */
  run: {
    ...none, // nothing is known of the others before it has been read
    images: 0,
    learners: [],
    titles: {},
    annotators: [],
    fields: [],
    version: null,
    models: {},
    evaluations: [],
    can_add: false,
    can_upload: true,
    limits: {},
  },
  /** @type {Request} */
  request: {}, // what the address asks for (address.js)
  /** @type {Request} */
  shown: {}, // the request that the page shows
  // The results on the page, as the service sent them: null before the first search, which their
  // type does not say, as what draws results runs after one.
  /** @type {Ranking} */
  ranking: none,
  /** @type {Ranking | Earlier | null} */
  other: null, // the ranking beside it
  /** @type {Earlier | null} */
  before: null, // a ranking before the last update of its learner
  /** @type {string | null} */
  drawn: null, // what the gallery was drawn from
  /** @type {Photo[]} */
  listed: [], // the images of the gallery on the page, which the viewer goes through
  hideMarked: false,
  fold: remembered("fold", true), // copies of one photo are one tile
  adding: false, // whether a choice in the search box becomes a further example
  turn: 0, // number of the last request: a later one stops an earlier one
};

export function forgetRanking() {
  state.ranking = none;
  state.drawn = null;
}

// Resolved when the run has been read and the first page has its turn: a file dropped before waits
// for it.
/** @type {() => void} */
let resolveBegun;
/** @type {Promise<void>} */
export const begun = new Promise((resolve) => {
  resolveBegun = resolve;
});
export const tellBegun = () => resolveBegun();

export const marks = new Marks(); // of the present query

/** @param {Request} request */
export const viewOf = (request) =>
  request.view ?? (!queryOf(request) ? "start" : request.with ? "compare" : "results");

/** @template T @param {T | T[] | null | undefined} value @returns {T[]} */
export const asList = (value) =>
  value === undefined || value === null ? [] : /** @type {T[]} */ ([value].flat());

const choiceOf = () => `learner ${state.run.run}`;
/** The learner that somebody chose on the page: it stays until another one is chosen. */
const chosenLearner = () => {
  /** @type {string | null} */
  const chosen = remembered(choiceOf(), null);
  return chosen && state.run.learners.includes(chosen) ? chosen : undefined;
};

/** @param {string} learner the one that is recommended is no choice */
export const chooseLearner = (learner) =>
  remember(choiceOf(), learner === state.run.default_learner ? null : learner);

/** @param {Request} request @returns {Request} */
export const byChosen = (request) =>
  request.learner !== undefined || wordsOf(request) || !queryOf(request)
    ? request
    : { ...request, learner: chosenLearner() };

/**
 * The settings that a new query keeps. An album's filters are no filters of a search that begins in
 * it.
 * @returns {Request}
 */
export function settings() {
  const { request } = state;
  if (request.view) return {};
  const kept = pick(request, [...FILTERS, "exclude_duplicates"]);
  if (wordsOf(request)) return kept;
  const other = request.with === "before" ? undefined : request.with;
  return { ...kept, ...pick(request, ["learner", "learned_weight"]), with: other };
}

/**
 * What identifies a ranking, whichever learner made it.
 * @param {Request} request
 */
export const subjectOf = (request) => JSON.stringify({ ...searchOf(request), learner: undefined });

// The ranking before the last update, if it is of the query, filters and learner on the page.
export const snapshot = () =>
  state.before?.subject === subjectOf(state.request) &&
  state.before.learner === state.ranking.learner
    ? state.before
    : null;

/** @param {string} learner */
export const learnerName = (learner) => state.run.titles[learner] ?? learner;

/** @param {string} learner */
export const modelName = (learner) => {
  const { version } = state.run.models[learner] ?? {};
  return version ? `${learnerName(learner)}, model ${version}` : learnerName(learner);
};

/**
 * The learner that marks update.
 * @returns {string | undefined}
 */
export const onlineLearner = () =>
  state.run.models[state.ranking?.learner]
    ? state.ranking.learner
    : Object.keys(state.run.models)[0];

/**
 * What this browser calls the pictures that it sent; the service knows their hashes alone.
 * @returns {{ [upload: string]: string }}
 */
export const uploadNames = () => remembered("names", {});

export function queryName() {
  const { upload } = state.request;
  const words = wordsOf(state.request);
  if (words) return words;
  if (upload) return uploadNames()[upload] ?? "uploaded image";
  return shortPath(state.ranking?.query ?? "");
}

/** @param {Photo} result */
const passes = (result) => {
  const { metric } = state.request;
  return (
    (metric === undefined || result.metric === metric) &&
    !(state.hideMarked && marks.of.get(result.id))
  );
};

/**
 * Copies of one photo as one: the first of them, with the others in `copies`.
 * @param {Photo[]} images
 */
export function folded(images) {
  /** @type {Map<number, Photo>} */
  const first = new Map();
  return images.filter((image) => {
    image.copies = [];
    if (image.group === null || !state.fold) return true;
    const kept = first.get(image.group);
    if (kept) kept.copies?.push(image);
    else first.set(image.group, image);
    return !kept;
  });
}

// The results that no filter of the page hides.
export const visible = () => folded(state.ranking.results.filter(passes));

/**
 * The lists of results on the page: two in a comparison.
 * @returns {Photo[][]}
 */
export const lists = () =>
  state.request.with && state.other
    ? [state.ranking.results.slice(0, COMPARED), state.other.results.slice(0, COMPARED)]
    : [state.listed];
