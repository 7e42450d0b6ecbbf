// The places of the photos on the map, and how they are drawn as points.

/** @import { Schemas } from "./api.js" */
/**
 * The number of a label is its place in `names`, 65535 for none.
 * @typedef {{
 *   version: string | null,
 *   n: number,
 *   ids: Float64Array,
 *   labels: Uint16Array,
 *   names: string[],
 *   x: Float32Array,
 *   y: Float32Array,
 * }} Points
 */
/** @typedef {(x: number, y: number) => [number, number]} Place of the map, on a canvas */

/** @type {Points | null} */
let kept = null; // the last ones

/** @param {Schemas["MapState"]} map */
export async function readPoints(map) {
  if (kept?.version === map.version && kept.n === map.images) return kept;
  const response = await fetch("api/map/points");
  if (!response.ok) throw new Error("The map cannot be read.");
  const data = await response.arrayBuffer();
  const n = data.byteLength / 14;
  const xy = new Uint16Array(data, 8 * n, 2 * n);
  kept = {
    version: map.version,
    n,
    ids: new Float64Array(data, 0, n),
    labels: new Uint16Array(data, 12 * n, n),
    names: map.labels,
    x: Float32Array.from({ length: n }, (_, i) => xy[2 * i] / 65535),
    y: Float32Array.from({ length: n }, (_, i) => xy[2 * i + 1] / 65535),
  };
  return kept;
}

const isDark = () =>
  getComputedStyle(document.documentElement).colorScheme === "dark" ||
  (!["light", "dark"].includes(document.documentElement.dataset.theme ?? "") &&
    matchMedia("(prefers-color-scheme: dark)").matches);

/**
 * The colour of a label by number: neighbours in the list lie far apart on the wheel.
 * @param {number} label
 * @param {boolean} [dark]
 */
export const colorOf = (label, dark = isDark()) =>
  label === 65535
    ? dark
      ? "#8b929c"
      : "#888e97"
    : `hsl(${((label * 137.508) % 360).toFixed(1)} ${dark ? "70% 66%" : "68% 43%"})`;

/** @param {HTMLCanvasElement} canvas */
export const penOf = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Points} points
 * @param {object} options
 * @param {Place} [options.place]
 * @param {number} [options.radius]
 * @param {number | null} [options.only] a label: the others are faint
 * @param {boolean} [options.colored]
 */
export function drawPoints(
  canvas,
  points,
  { place = inSquare(canvas), radius = 1.7, only = null, colored = true } = {},
) {
  const pen = penOf(canvas);
  const dark = isDark();
  const { width, height } = canvas;
  /** @type {Map<number, number[]>} */
  const of = new Map(); // points by label, so that the colour changes seldom
  for (let i = 0; i < points.n; i++) {
    const label = points.labels[i];
    const list = of.get(label);
    if (list) list.push(i);
    else of.set(label, [i]);
  }
  for (const [label, list] of of) {
    const faint = only !== null && only !== label;
    pen.globalAlpha = faint ? 0.12 : 0.9;
    pen.fillStyle = colored ? colorOf(label, dark) : colorOf(65535, dark);
    pen.beginPath();
    for (const i of list) {
      const [x, y] = place(points.x[i], points.y[i]);
      if (x < -radius || y < -radius || x > width + radius || y > height + radius) continue;
      if (points.n > 20_000) pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
      else {
        pen.moveTo(x + radius, y);
        pen.arc(x, y, radius, 0, 7);
      }
    }
    pen.fill();
  }
  pen.globalAlpha = 1;
}

/**
 * The whole map in a canvas, as large as fits.
 * @param {{ width: number, height: number }} size
 * @returns {Place}
 */
export const inSquare = ({ width, height }) => {
  const stretch = Math.min(1.9, Math.max(0.6, width / height));
  const side = 0.9 * Math.min(height, width / stretch);
  return (x, y) => [width / 2 + (x - 0.5) * side * stretch, height / 2 + (y - 0.5) * side];
};
