// The address of the page: what is asked and how it is shown, so that Back, Forward, reload and shared links work.
//
//   id | upload | query_label   the query: an image of the collection, a picture uploaded (its hash), a label
//   learner, with               ranked by; compared with (a learner, or "before": the ranking before the last update)
//   label, unique, metric       filters: only this label, without exact duplicates, only this metric of MuSL
//   k                           results shown, where more than a page
//   open, explain               the result in the dialog; its explanation
//   model                       version of the learner that the link was made with
//   view                        "figures"

const NAMES = ["view", "id", "upload", "query_label", "learner", "with", "label", "unique", "metric", "k", "model", "open", "explain"];
const NUMBERS = new Set(["id", "k", "open", "metric", "model"]);

export function readAddress(search = location.search) {
  const given = new URLSearchParams(search);
  const state = {};
  for (const name of NAMES) {
    const value = given.get(name);
    if (value === null || value === "" || (NUMBERS.has(name) && !/^\d+$/.test(value))) continue;
    state[name] = NUMBERS.has(name) ? Number(value) : value;
  }
  return state;
}

export function addressOf(state) {
  const kept = NAMES.filter((name) => state[name] !== undefined && state[name] !== null).map((name) => [name, state[name]]);
  return kept.length ? `?${new URLSearchParams(kept)}` : "./";
}

// What names the query alone, as the service takes it.
export const queryOf = ({ id, upload, query_label }) =>
  id !== undefined ? { id } : upload !== undefined ? { upload } : query_label !== undefined ? { query_label } : null;

// What the service is asked for a ranking.
export const searchOf = (state) => ({
  ...queryOf(state),
  learner: state.learner,
  label: state.label,
  exclude_duplicates: state.unique ? "true" : undefined,
});
