// The figures of the run's evaluations: precision at k as a drawing, and the values as a table.

import { command, el } from "./dom.js";

// drawing: the SVG that the report has too, or null where the evaluation has none.
function chart(name, drawing) {
  if (!drawing)
    return el("div", {}, el("p", { class: "quiet" }, "This evaluation has no drawing of its curves yet. It is drawn by:"),
      command("visterm evaluate --force"));
  drawing.setAttribute("aria-label", `Precision at k of ${name}; the table below lists the values`);
  return drawing;
}

function table(name, metrics) {
  const systems = Object.entries(metrics.systems ?? {});
  const ks = Object.keys(systems[0]?.[1].precision_at ?? {}).filter((k) => ["1", "5", "10", "20", "50"].includes(k));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Metrics of ${name}` }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "System"), el("th", { scope: "col", class: "n" }, "mAP"),
      ks.map((k) => el("th", { scope: "col", class: "n" }, `P@${k}`)))),
    el("tbody", {}, systems.map(([system, found]) => el("tr", {}, el("th", { scope: "row" }, system),
      el("td", { class: "n" }, (found.map ?? NaN).toFixed(3)),
      ks.map((k) => el("td", { class: "n" }, (found.precision_at?.[k] ?? NaN).toFixed(3))))))));
}

export function drawFigures(evaluations) {
  if (!evaluations.length)
    return [el("h1", {}, "Evaluation"), el("p", {}, "This run has no evaluation yet. To create one, run:"),
      command("visterm evaluate")];
  return [
    el("h1", {}, "Evaluation"),
    el("p", { class: "quiet" }, "Precision at k (P@k): the share of the first k results that have the label of the held-out query. " +
      "mAP: mean average precision over the whole ranking. Baselines: cosine (no learning) and chance (random order)."),
    el("div", { class: "charts" }, evaluations.map(({ name, drawing, metrics }) =>
      el("section", { class: "panel" }, el("h2", {}, name), chart(name, drawing), table(name, metrics),
        el("p", { class: "quiet" }, metrics.n_queries
          ? `${metrics.n_queries.toLocaleString("en")} queries, ${metrics.n_gallery?.toLocaleString("en")} gallery images.` : "")))),
  ];
}
