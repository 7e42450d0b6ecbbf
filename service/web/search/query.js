// The bar above the results: the query, the filters and the metrics of MuSL.

import { addressOf, queryOf, wordsOf } from "../core/address.js";
import { $, $$, activeElement, el, refill } from "../core/dom.js";
import { copy } from "../core/says.js";
import { percent, plural, present, seconds } from "../core/text.js";
import { change } from "../core/history.js";
import { drawLearned } from "./learned.js";
import { rankBy, setHideMarked } from "../core/options.js";
import { queryPicture } from "./queryimage.js";
import { drawExamples, refineLinks } from "./refine.js";
import { filterChip, filterChips } from "./searchbox.js";
import { learnerName, modelName, queryName, state } from "../core/state.js";

/** @import { Ranking } from "../core/state.js" */

export function drawQuery() {
  const focused = activeElement();
  const [tabAt, onChip] = [
    [...$("#tabs").children].indexOf(focused),
    $("#chips").contains(focused),
  ];
  drawTitle();
  drawLearned();
  drawChips();
  drawTabs();
  drawExamples();
  if (tabAt >= 0) $$("#tabs > *")[tabAt]?.focus();
  if (onChip) ($("#chips button") ?? $("#options summary")).focus();
}

// The bar stands there before the first results come, so that it does not push them down.
addEventListener("skeleton", () => {
  if (!queryOf(state.request)) return;
  drawTitle();
  $("#asked").hidden = false;
});

function drawTitle() {
  const { request } = state;
  /** @type {Ranking | null} */
  const ranking = state.ranking; // null: under way
  $("#query").replaceChildren(
    queryPicture(queryOf(request) ?? {}, queryName()),
    el(
      "div",
      el("h1", { dir: "auto", title: ranking?.query.slice(0, 300) }, queryName() || "Searching …"),
      el(
        "p.quiet",
        ranking
          ? [
              `Searched ${plural(ranking.n_searched, "image")} in ${seconds(ranking.seconds)}`,
              el("span.wide-only", ` · ${modelName(ranking.learner)}`),
              ranking.answered_by && ` · ${ranking.answered_by}`,
            ]
          : "\u00a0",
      ),
      ranking && !wordsOf(request) && !request.with ? why(ranking.learner) : null,
    ),
    el(
      "p.links",
      el("button.plain.pick", "Change image"),
      el("button.plain", { onclick: copyLink }, "Copy link"),
      ...refineLinks(),
      !request.with && el("button.plain.select-all", "Select all"),
      el("a", { href: "./", "data-go": "start" }, "Clear"),
    ),
  );
}

/** @param {string} learner */
const shortName = (learner) =>
  learner === "cosine" ? "plain look" : (/\((.+)\)/.exec(learnerName(learner))?.[1] ?? learner);

/**
 * Why this learner ranks where another one might, with a button for that.
 * @param {string} learner
 */
function why(learner) {
  const { default_learner: best, held_out: measured, learners } = state.run;
  /** @param {string} words @param {string} other */
  const told = (words, other) =>
    el(
      "p.quiet",
      words,
      " ",
      el("button.plain", { onclick: () => rankBy(other) }, `Rank by ${shortName(other)}`),
    );
  if (learner !== best)
    return told(
      `Ranked by ${shortName(learner)}, as chosen` +
        (!measured
          ? "."
          : best === "cosine"
            ? "; on held-out photos it is not clearly better than plain look."
            : `; held-out photos recommend ${shortName(best)}.`),
      best,
    );
  const [other] = Object.entries(measured?.map ?? {})
    .filter(([name]) => name !== best && learners.includes(name))
    .sort(([, one], [, two]) => two - one)
    .map(([name]) => name);
  if (best !== "cosine" || !measured || !other) return "";
  const [ours, theirs] = [best, other].map((name) => [
    measured.map[name].toFixed(2),
    percent(measured.first[name]),
  ]);
  return told(
    `Ranked by plain look: on held-out photos, ${shortName(other)} is not clearly better (mAP ` +
      `${theirs[0]} against ${ours[0]}, first result right ${theirs[1]} against ${ours[1]}).`,
    other,
  );
}

function drawChips() {
  const { exclude_duplicates, min_probability } = state.request;
  refill(
    $("#chips"),
    present([
      ...filterChips(),
      exclude_duplicates &&
        filterChip("exact duplicates hidden", () => change({ exclude_duplicates: undefined })),
      min_probability &&
        filterChip(`at least ${percent(min_probability)} likely`, () =>
          change({ min_probability: undefined }),
        ),
      state.hideMarked && filterChip("marked images hidden", () => setHideMarked(false)),
    ]),
  );
}

function drawTabs() {
  const { request, ranking } = state;
  const known = ranking.results.map((result) => result.metric ?? -1).filter((one) => one >= 0);
  const metrics = [...new Set(known)].sort((a, b) => a - b);
  /** @param {number | undefined} metric @param {string} words */
  const tab = (metric, words) => {
    const choose = () => change({ metric }, { replace: true });
    return el(
      "button",
      { "aria-pressed": String(request.metric === metric), onclick: choose },
      words,
    );
  };
  /** @param {number} metric */
  const n = (metric) => ranking.results.filter((result) => result.metric === metric).length;
  const tabs = [
    tab(undefined, "All metrics"),
    ...metrics.map((metric) => tab(metric, `Metric ${metric + 1} (${n(metric)})`)),
    el(
      "span.quiet.wide-only",
      "MuSL learns several metrics and ranks the images of each label by one of them.",
    ),
  ];
  $("#tabs").replaceChildren(...(metrics.length && !request.with ? tabs : []));
}

// The link to the page as it is, with the version of the model that ranked it.
function link() {
  const { request, ranking } = state;
  if (request.view || !ranking) return new URL(addressOf(request), document.baseURI).href;
  const model = state.run.models[ranking.learner]?.version || undefined;
  const kept = request.with === "before" ? undefined : request.with;
  return new URL(
    addressOf({ ...request, learner: ranking.learner, with: kept, model }),
    document.baseURI,
  ).href;
}

export function copyLink() {
  const expires = state.request.view ? null : state.ranking?.upload_expires;
  const until =
    expires && new Date(expires).toLocaleDateString("en", { day: "numeric", month: "long" });
  copy(link(), until ? `Link (valid until ${until}; each use extends it)` : "Link");
}
