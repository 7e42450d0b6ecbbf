// The address of the page holds the query and the view, so that Back, Forward, reload and shared
// links work.
//
//   id | upload | query_label | text   the query: an image of the collection, a picture uploaded
//                               (its hash), a label, words that name labels
//   text_by                     what answers words: labels, or model (the run's text model)
//   learned_weight              weight of the learned similarity, 0 (how images look) to 1
//   learner, with               ranked by; compared with (a learner, or "before": the ranking
//                               before the last update)
//   example, weight, region     further images "id:12@-0.5", added with weights; weight of the
//                               first; the part of it that counts
//   label, not_label, folder    filters: one of these labels, none of those (both may repeat), in
//                               this folder
//   after, before, where        filters: dates, and conditions on fields (may repeat)
//   exclude_duplicates, metric  filters: without exact duplicates, only this metric of MuSL
//   min_probability             filter: share a label with the query at least so likely, 0 to 1
//   open, explain               the result in the dialog; its explanation
//   model                       version of the learner that the link was made with
//   view                        a page of views.js, such as "figures"
//
// Names that the service takes, too, are its own, as GET /search describes them.

/**
 * What the page shows, as its address names it. `at` is of the view map.
 * @typedef {{
 *   view?: string,
 *   id?: number,
 *   upload?: string,
 *   query_label?: string,
 *   text?: string,
 *   text_by?: string,
 *   example?: string | string[],
 *   weight?: number,
 *   region?: string,
 *   learner?: string,
 *   learned_weight?: number,
 *   with?: string,
 *   label?: string | string[],
 *   not_label?: string | string[],
 *   folder?: string,
 *   after?: string,
 *   before?: string,
 *   where?: string | string[],
 *   exclude_duplicates?: string,
 *   min_probability?: number,
 *   metric?: number,
 *   model?: number,
 *   open?: number,
 *   explain?: string | number,
 *   at?: string,
 * }} Request
 */
/**
 * One of them.
 * @typedef {{ id?: number, upload?: string, query_label?: string, text?: string }} Query
 */

/** Filters of images. @type {(keyof Request)[]} */
export const FILTERS = ["label", "not_label", "folder", "after", "before", "where"];
/** What else a search takes, besides its query. @type {(keyof Request)[]} */
const OPTIONS = [
  "example",
  "weight",
  "region",
  "learner",
  "learned_weight",
  "exclude_duplicates",
  "min_probability",
  "text_by",
];
/** @type {string[]} */
const NAMES = [
  "view",
  "id",
  "upload",
  "query_label",
  "text",
  ...OPTIONS,
  "with",
  ...FILTERS,
  "metric",
  "model",
  "open",
  "explain",
];
const NUMBERS = new Set(["id", "open", "metric", "model"]);
const SHARES = new Set(["weight", "learned_weight", "min_probability"]);

// One value as text, several as an array.
const LISTS = new Set(["example", "label", "not_label", "where"]);
/** @type {{ [name: string]: string }} */
const OLD_NAMES = {
  also: "example",
  not: "not_label",
  only: "label",
  unique: "exclude_duplicates",
}; // of links that were made before
/** @type {{ [name: string]: RegExp }} */
const CHECKS = {
  example: /^(id:\d+|upload:[0-9a-f]{64})(@-?\d+(\.\d+)?)?$/,
  weight: /^-?\d+(\.\d+)?$/,
  learned_weight: /^(0(\.\d+)?|1)$/,
  min_probability: /^(0(\.\d+)?|1)$/,
  region: /^[01](\.\d+)?(,[01](\.\d+)?){3}$/,
  exclude_duplicates: /^(true|1)$/,
  text_by: /^(labels|model)$/,
};

/**
 * Names that a page of its own reads (views.js).
 * @param {string[]} names
 * @param {string[]} numbers
 */
export function addNames(names, numbers) {
  NAMES.splice(1, 0, ...names.filter((name) => !NAMES.includes(name)));
  for (const name of numbers) NUMBERS.add(name);
}

/** @param {string} [search] @returns {Request} */
export function readAddress(search = location.search) {
  const given = new URLSearchParams(
    [...new URLSearchParams(search)].map(([name, value]) => [OLD_NAMES[name] ?? name, value]),
  );
  /** @type {{ [name: string]: string | string[] | number }} */
  const state = {};
  for (const name of NAMES) {
    if (LISTS.has(name)) {
      const values = given
        .getAll(name)
        .filter((value) => value && (CHECKS[name]?.test(value) ?? true))
        .slice(0, 20);
      if (values.length) state[name] = values.length === 1 ? values[0] : values;
      continue;
    }
    const value = given.get(name);
    if (
      value === null ||
      value === "" ||
      CHECKS[name]?.test(value) === false ||
      (NUMBERS.has(name) && !/^\d+$/.test(value))
    )
      continue;
    state[name] = NUMBERS.has(name) || SHARES.has(name) ? Number(value) : value;
  }
  return state;
}

/** @param {Request} state */
export function addressOf(state) {
  const values = /** @type {{ [name: string]: string | string[] | number }} */ (state);
  const kept = NAMES.filter((name) => values[name] !== undefined && values[name] !== null).flatMap(
    (name) => [values[name]].flat().map((value) => [name, String(value)]),
  );
  return kept.length ? `?${new URLSearchParams(kept)}` : "./";
}

/**
 * What names the query alone, as the service takes it.
 * @param {Query} query
 * @returns {Query | null}
 */
export const queryOf = ({ id, upload, query_label, text }) =>
  id !== undefined
    ? { id }
    : upload !== undefined
      ? { upload }
      : query_label !== undefined
        ? { query_label }
        : text !== undefined
          ? { text }
          : null;

/** The label, or the words that name labels, of a query by no image. @param {Request} request */
export const wordsOf = ({ query_label, text }) => query_label ?? text;

/**
 * The values of a request under these names; undefined where it has none.
 * @param {Request} request
 * @param {(keyof Request)[]} names
 * @returns {Request}
 */
export const pick = (request, names) =>
  Object.fromEntries(names.map((name) => [name, request[name]]));

/**
 * What the service is asked for a ranking.
 * @param {Request} state
 */
export const searchOf = (state) => ({
  ...queryOf(state),
  ...pick(state, [...OPTIONS, ...FILTERS]),
  // Known for one whole image, and for what training chose.
  min_probability:
    state.example ||
    state.region ||
    state.weight !== undefined ||
    state.learned_weight !== undefined
      ? undefined
      : state.min_probability,
});
