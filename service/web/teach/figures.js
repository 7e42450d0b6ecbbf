// The figures of the run: what was measured, how training went, which labels and queries are easy
// and hard, what marks changed.

import { get } from "../core/api.js";
import { bars, lineChart } from "../core/charts.js";
import { $, el, link, numbers, table } from "../core/dom.js";
import { box, command } from "../core/says.js";
import { figure, percent, plural, shortPath } from "../core/text.js";
import { photo, photoList } from "../gallery/photolist.js";
import { readRun } from "../search/search.js";
import { learnerName, state } from "../core/state.js";
import { addView } from "../core/views.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas } from "../core/api.js" */
/** @import { Series } from "../core/charts.js" */
/** @import { Child } from "../core/dom.js" */
/** @typedef {Schemas["EvaluationFigures"]} Figures */

/** @param {number | null | undefined} value */
const digits = (value) => (value ?? NaN).toFixed(3);
const LABELS = 24; // bars before "Show all"

/** @param {string} name */
const named = (name) => (name === "chance" ? "Random order" : learnerName(name));
/** @param {string} evaluated */
const titleOf = (evaluated) => {
  const names = evaluated.split("+");
  return names.length > 3
    ? `Measured: ${names.length} learners`
    : `Measured: ${names.map(named).join(", ")}`;
};

/** @param {string} title @param {string | null} about @param {...Child} content */
const panel = (title, about, ...content) =>
  el(
    "section.panel",
    { "aria-label": title },
    el("h2", title),
    about && el("p.quiet", about),
    content,
  );

// ---- one evaluation

/** @param {string} name @param {Schemas["Metrics"]} metrics */
function summary(name, metrics) {
  const systems = Object.entries(metrics.systems ?? {});
  const ks = Object.keys(systems[0]?.[1].precision_at ?? {}).filter((k) =>
    ["1", "5", "10", "20", "50"].includes(k),
  );
  const [learner, cosine] = [systems[0], systems.find(([one]) => one === "cosine")];
  /** @param {[string, Schemas["SystemMetrics"]]} [system] */
  const at10 = (system) => system?.[1].precision_at?.["10"];
  const unlearned =
    cosine && cosine !== learner ? `; without learning it is ${percent(at10(cosine) ?? NaN)}` : "";
  const share = at10(learner);
  const verdict =
    typeof share === "number"
      ? `Of the first ten results, ${percent(share)} show what the query shows${unlearned}.`
      : "";
  return [
    verdict && el("p.verdict", verdict),
    table(
      `Metrics of ${name}`,
      ["Ranked by", "mAP", ...ks.map((k) => `P@${k}`)],
      1,
      systems.map(([system, means]) =>
        el(
          "tr",
          el("th", { scope: "row" }, named(system)),
          numbers(...[means.map, ...ks.map((k) => means.precision_at?.[k])].map(digits)),
        ),
      ),
      null,
    ),
    el(
      "p.quiet",
      "P@k: the share of the first k results that have a label of the query. mAP: the mean " +
        "over all of the ranking; 1 is perfect.",
      metrics.n_queries
        ? ` ${plural(metrics.n_queries, "query", "queries")}, ` +
            `${plural(metrics.n_gallery ?? 0, "photo")} ranked.`
        : "",
    ),
  ];
}

/** @param {Schemas["PrecisionCurves"]} curves @param {Schemas["Metrics"]} metrics */
function curvesOf({ k, systems }, metrics) {
  /** @type {Series[]} */
  const series = Object.entries(systems).map(([name, values]) => ({
    name: named(name),
    kind: kindOf(name, metrics),
    points: k.map((x, i) => [x, values[i]]),
  }));
  return lineChart(series, {
    x: "k, the number of first results",
    y: "Precision at k",
    label: "Precision at k of each ranking; the table lists the values",
  });
}

/** @param {string} name @param {Schemas["Metrics"]} metrics @returns {Series["kind"]} */
const kindOf = (name, { systems }) =>
  name === "cosine"
    ? "baseline"
    : name === "chance"
      ? "chance"
      : name === Object.keys(systems)[0]
        ? "learner"
        : "other";

/** @param {Figures} figures */
function labelBars({ labels, baseline, learner }) {
  const rows = labels.map((row) => ({
    name: row.label,
    value: row.learner ?? 0,
    other: baseline ? row.baseline : null,
    request: { view: "album", label: row.label },
    words: plural(row.queries, "query", "queries"),
  }));
  const holder = el("div", bars(rows.slice(0, LABELS)));
  const button = el("button.more", `Show all ${rows.length} labels`);
  button.addEventListener("click", () => {
    holder.replaceChildren(bars(rows));
    button.remove();
  });
  return panel(
    "Which labels are easy",
    "Mean average precision of the queries of each label, best first. " +
      `Solid: ${named(learner)}${baseline ? `; outlined: ${named(baseline)}` : ""}.`,
    holder,
    rows.length > LABELS ? button : null,
  );
}

/** @param {Figures} figures */
function confusions({ confusions: pairs }) {
  if (!pairs.length) return null;
  const most = pairs[0].share;
  return panel(
    "Labels that are confused",
    "Of the first ten results of a label's queries, the share that shows something else.",
    el(
      "ol.confusions",
      pairs
        .slice(0, 12)
        .map(({ label, taken_for, share }) =>
          el(
            "li",
            el(
              "span",
              link({ view: "album", label }, label, { dir: "auto" }),
              " is confused with ",
              link({ view: "album", label: taken_for }, taken_for, { dir: "auto" }),
            ),
            el("span.amount", { style: { "--share": share / most } }, percent(share)),
          ),
        ),
    ),
  );
}

/**
 * A query as a photo, and its results beside it.
 * @param {Schemas["EvaluatedQuery"]} query
 */
function queryRow(query) {
  /** @param {Schemas["ImageSummary"] | null} image @param {string} path @param {string} what */
  const tile = (image, path, what) =>
    image ? photo(image, { what }) : el("li.gone", el("span.missing", shortPath(path)));
  const n = query.results.filter(({ relevant }) => relevant).length;
  return el(
    "li.query-row",
    el("ul.photos.small", tile(query.image, query.query, "Query")),
    el(
      "div",
      el(
        "p",
        el("strong", { dir: "auto" }, query.labels.join(", ") || shortPath(query.query)),
        " ",
        el(
          "span.quiet",
          `${n} of the first ${query.results.length} are right · ` +
            `average precision ${query.value.toFixed(2)}` +
            (query.baseline === null || query.baseline === undefined
              ? ""
              : ` (cosine ${query.baseline.toFixed(2)})`),
        ),
      ),
      el(
        "ol.photos.small.results",
        query.results.slice(0, 8).map((result, i) => {
          const verdict = result.relevant ? "right" : "wrong";
          const node = tile(result.image, result.path, `Result ${i + 1}, ${verdict}:`);
          node.classList.add(verdict);
          node.append(el("span.sign-of", { "aria-hidden": "true" }, result.relevant ? "✓" : "✗"));
          return node;
        }),
      ),
    ),
  );
}

/**
 * @param {string} title
 * @param {string} about
 * @param {Schemas["EvaluatedQuery"][]} list
 */
const queries = (title, about, list) =>
  list.length
    ? panel(
        title,
        about,
        el(
          "ol.query-rows",
          list.map((query) => queryRow(query)),
        ),
      )
    : null;

/** @param {string} name */
async function evaluation(name) {
  const id = encodeURIComponent(name);
  const [metrics, curves, figures] = await Promise.all([
    get(`api/evaluations/${id}/metrics`),
    get(`api/evaluations/${id}/curves`).catch(() => null),
    get(`api/evaluations/${id}/figures`, { queries: 6 }).catch(
      (/** @type {Error} */ error) => error,
    ),
  ]);
  return [
    el(
      "div.charts",
      panel(
        titleOf(name),
        null,
        summary(name, metrics),
        "stale" in figures && figures.stale
          ? el(
              "p.quiet",
              "Labels, photos or learners have changed since: ",
              el("code", "visterm evaluate"),
            )
          : null,
        el("p", el("a", { href: `api/evaluations/${id}/report`, target: "_blank" }, "Report")),
      ),
      curves && panel("Along the results", null, curvesOf(curves, metrics)),
    ),
    figures instanceof Error
      ? box("No figures of labels and queries", [
          el("p", figures.message),
          command("visterm evaluate --force"),
        ])
      : [
          labelBars(figures),
          confusions(figures),
          queries(
            "Best queries",
            "One per label first: else one easy label takes all places.",
            figures.best,
          ),
          queries(
            "Worst queries",
            "Where a wrong label, an unusual photo or too few examples often is the reason.",
            figures.worst,
          ),
        ],
  ];
}

// ---- training and feedback

/** @param {Schemas["TrainingCurves"]["learners"]} learners */
function training(learners) {
  return Object.entries(learners).map(([name, { points, best_step, baseline, measure }]) => {
    /** @type {Series[]} */
    const series = [
      {
        name: named(name),
        kind: "learner",
        points: points.map(({ step, value }) => [step, value]),
      },
    ];
    if (baseline !== null && measure === "mAP")
      series.push({
        name: named("cosine"),
        kind: "baseline",
        points: [
          [points[0].step, baseline],
          [points[points.length - 1].step, baseline],
        ],
      });
    const best = best_step === null ? "" : `; step ${best_step.toLocaleString("en")} was the best`;
    return panel(
      `Along training: ${named(name)}`,
      `${measure} on held-out images${best}.`,
      lineChart(series, {
        x: "Training step",
        y: measure,
        mark: best_step,
        label: `${measure} along the training of ${name}`,
      }),
    );
  });
}

async function feedback() {
  const learner = Object.keys(state.run.models).find((name) => state.run.learners.includes(name));
  if (!learner) return null;
  const effect = await get("api/feedback/effect", { learner }).catch(() => null);
  if (!effect) return null;
  const title = "Before and after your marks";
  if (!effect.model?.version)
    return panel(
      title,
      null,
      el(
        "p",
        effect.marks
          ? `${plural(effect.marks, "mark")} so far, none used yet: “Update ranking” below the ` +
              "results uses them."
          : "No marks yet. Mark results as relevant or not, then update the ranking: this page " +
              "shows what it changed.",
      ),
    );
  const { map_base: before, map_after: after, marks } = effect.model;
  /** @param {Schemas["MarkedImage"][]} images @param {string} words */
  const side = (images, words) =>
    el(
      "div",
      el("h3", words),
      photoList(images, {
        small: true,
        first: 4,
        note: (image) =>
          image.mark
            ? [el("strong", image.mark > 0 ? "marked relevant" : "marked not relevant")]
            : null,
      }),
    );
  return panel(
    title,
    `Before and after ${plural(marks, "mark")}.` +
      (Number.isFinite(before)
        ? ` Held-out images without marks: mAP ${figure(before)}, ${figure(after)}.`
        : ""),
    effect.queries.map((query) =>
      el(
        "div.effect",
        el("ul.photos.small", photo(query.image, { what: "Query" })),
        side(query.before, "Before"),
        side(query.after, "After"),
      ),
    ),
  );
}

/** @param {HTMLElement} section */
async function show(section) {
  await readRun(); // an evaluation may be new
  const [evaluations, trained, effect] = await Promise.all([
    Promise.all(state.run.evaluations.slice(0, 4).map(evaluation)),
    get("api/training").catch(() => ({ learners: {} })),
    feedback(),
  ]);
  const curves = training(trained.learners);
  const drawn = evaluations.map((parts) => el("div.evaluation", parts.flat().filter(Boolean)));
  if (drawn.length) $(".charts", drawn[0]).append(...curves);
  section.replaceChildren(
    el("h1", "Figures"),
    ...(drawn.length
      ? drawn
      : [
          box("No evaluation yet", [
            el("p", "To measure how well searches work, run:"),
            command("visterm evaluate"),
          ]),
          el("div.charts", curves),
        ]),
    ...(effect ? [effect] : []),
  );
}

addView("figures", { title: "Figures", show });
