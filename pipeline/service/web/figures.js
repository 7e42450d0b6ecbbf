// The figures of the run's evaluations: precision at k as a drawing, and the numbers as a table.

import { command, el, figure, svg } from "./dom.js";

const [W, H, LEFT, RIGHT, TOP, BOTTOM] = [560, 328, 56, 440, 14, 276];
const LOOKS = { cosine: 1, chance: 2 };
const DASHES = { cosine: "7 4", chance: "2 4" };

// curves: { system: [precision at 1, at 2, ...] }
function chart(name, curves) {
  let others = 0;
  const looks = Object.fromEntries(Object.keys(curves).map((system) => [system, LOOKS[system] ?? [0, 3, 4, 5][others++ % 4]]));
  const longest = Math.max(...Object.values(curves).map((curve) => curve.length));
  const top = Math.ceil(5 * Math.max(0.1, ...Object.values(curves).flat())) / 5;
  const x = (k) => LEFT + ((RIGHT - LEFT) * (k - 1)) / Math.max(1, longest - 1);
  const y = (p) => BOTTOM - ((BOTTOM - TOP) * p) / top;
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img",
    "aria-label": `Precision at k of ${name}; the table below lists the values` });
  for (let i = 0; i <= 4; i++) {
    const p = (top * i) / 4;
    root.append(svg("line", { class: "rule", x1: LEFT, x2: RIGHT, y1: y(p), y2: y(p) }),
      svg("text", { x: LEFT - 8, y: y(p) + 5, "text-anchor": "end" }, figure(p)));
  }
  for (const k of [...new Set([1, Math.round(longest / 4), Math.round(longest / 2), Math.round((3 * longest) / 4), longest])].filter((k) =>
    k > 0))
    root.append(svg("text", { x: x(k), y: BOTTOM + 20, "text-anchor": "middle" }, k));
  root.append(svg("text", { x: (LEFT + RIGHT) / 2, y: H - 4, "text-anchor": "middle" }, "k, number of results"));
  // names stand at the ends of their lines, moved apart where lines end together
  const ends = Object.entries(curves).map(([system, curve]) => ({ system, curve, at: y(curve.at(-1) ?? 0) })).sort((a, b) => a.at - b.at);
  ends.forEach((end, i) => { end.label = i ? Math.max(end.at, ends[i - 1].label + 22) : end.at; });
  const spill = Math.max(0, (ends.at(-1)?.label ?? 0) - BOTTOM);
  ends.forEach(({ system, curve, label }) =>
    root.append(svg("g", { class: `line${looks[system]}` },
      svg("polyline", { points: curve.map((p, k) => `${x(k + 1).toFixed(1)},${y(p).toFixed(1)}`).join(" "),
        "stroke-dasharray": DASHES[system] ?? "none" }),
      svg("text", { x: RIGHT + 8, y: label - spill + 5 }, system))));
  return root;
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
    el("div", { class: "charts" }, evaluations.map(({ name, curves, metrics }) =>
      el("section", { class: "panel" }, el("h2", {}, name), chart(name, curves.systems), table(name, metrics),
        el("p", { class: "quiet" }, metrics.n_queries
          ? `${metrics.n_queries.toLocaleString("en")} queries, ${metrics.n_gallery?.toLocaleString("en")} gallery images.` : "")))),
  ];
}
