// Charts in SVG and HTML, which take their width and their colours from the page.

import { el, svg } from "./dom.js";

/** @import { Child, Props } from "./dom.js" */
/** @typedef {number | null | undefined} Y none where it was not measured */
/**
 * @typedef {{
 *   name: string,
 *   kind: "learner" | "baseline" | "chance" | "other",
 *   points: [number, Y][],
 * }} Series
 */
/**
 * A bar from 0 to 1, and another one below it.
 * @typedef {{ name: string, value: number, other: Y, words: string, link: Props }} Bar
 */

const HEIGHT = 260;
const [LEFT, RIGHT, TOP, BOTTOM] = [48, 12, 12, 40];

/**
 * Round steps between two values.
 * @param {number} low
 * @param {number} high
 * @param {number} about
 */
function ticks(low, high, about) {
  const rough = (high - low) / about || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power;
  const list = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step)
    list.push(Number(value.toPrecision(10)));
  return list;
}

/** @param {[number, Y][]} points */
const measured = (points) =>
  /** @type {[number, number][]} */ (points.filter(([, value]) => Number.isFinite(value)));

/** @param {number} value */
const short = (value) =>
  value >= 1e6
    ? `${value / 1e6} M`
    : value >= 1e4
      ? `${value / 1e3} k`
      : value.toLocaleString("en");

/**
 * x and y name the axes; mark is an x that is marked.
 * @param {Series[]} series
 * @param {{ x: string, y: string, label?: string, mark?: number | null }} options
 */
export function lineChart(series, { x, y, label, mark = null }) {
  const WIDTH = innerWidth < 700 ? 380 : 520; // words keep their size on a phone
  const all = series.flatMap(({ points }) => measured(points));
  if (!all.length) return el("p", { class: "quiet" }, "No values.");
  const xs = all.map(([value]) => value);
  const ys = all.map(([, value]) => value);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1)];
  const bottom =
    Math.min(...ys) > 0.5 * Math.max(...ys)
      ? Math.min(...ys) - 0.3 * (Math.max(...ys) - Math.min(...ys))
      : 0;
  const [y0, y1] = [Math.max(0, bottom), Math.max(...ys) * 1.06 || 1];
  /** @param {number} value */
  const px = (value) => LEFT + ((value - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  /** @param {number} value */
  const py = (value) => HEIGHT - BOTTOM - ((value - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  /** @param {Child} words @param {Props} props */
  const text = (words, props) => svg("text", props, words);
  const grid = [
    ...ticks(y0, y1, 5).map((value) => [
      svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: py(value), y2: py(value) }),
      text(Number(value.toPrecision(3)), { x: LEFT - 6, y: py(value) + 4, "text-anchor": "end" }),
    ]),
    ...ticks(x0, x1, 6).map((value) =>
      text(short(value), { x: px(value), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }),
    ),
    text(x, { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }),
  ];
  /** @param {[number, Y][]} points */
  const path = (points) =>
    measured(points)
      .map(([a, b], i) => `${i ? "L" : "M"}${px(a).toFixed(1)} ${py(b).toFixed(1)}`)
      .join("");
  let others = 0;
  const hues = new Map(
    series
      .filter(({ kind }) => kind === "other")
      .map(({ name }) => [name, (285 + 137 * others++) % 360]),
  );
  /** @param {Series} one */
  const look = ({ name, kind }) => {
    const hue = hues.get(name);
    return hue === undefined ? { class: kind } : { class: kind, style: { "--hue": hue } };
  };
  /** @param {[number, Y][]} points */
  const dots = (points) => (points.length < 3 || points.length > 16 ? [] : measured(points));
  return el(
    "figure",
    { class: "line-chart" },
    el(
      "ul",
      { class: "key" },
      series.map((one) => el("li", look(one), one.name)),
    ),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label ?? y },
      svg("g", { class: "grid-lines" }, grid),
      mark === null
        ? null
        : svg("line", {
            class: "marked",
            x1: px(mark),
            x2: px(mark),
            y1: TOP,
            y2: HEIGHT - BOTTOM,
          }),
      series.map((one) =>
        svg(
          "g",
          look(one),
          svg("path", { d: path(one.points) }),
          dots(one.points).map(([a, b]) => svg("circle", { cx: px(a), cy: py(b), r: 3.5 })),
        ),
      ),
    ),
  );
}

/**
 * Bars are as long as their share of the largest.
 * @param {Bar[]} rows
 */
export function bars(rows) {
  const most = Math.max(...rows.flatMap(({ value, other }) => [value, other ?? 0]), 1e-9);
  /** @param {string} kind @param {number} value */
  const bar = (kind, value) =>
    el(
      "span",
      { class: `bar-of ${kind}`, style: { "--share": value / most } },
      el("i", {}),
      value.toFixed(2),
    );
  return el(
    "ol",
    { class: "bars" },
    rows.map(({ name, value, other, words, link }) =>
      el(
        "li",
        { title: words },
        el("a", { class: "bar-name", dir: "auto", ...link }, name),
        el(
          "span",
          {},
          bar("learner", value),
          other === null || other === undefined ? null : bar("baseline", other),
        ),
      ),
    ),
  );
}
