// The places of the photos on the map, and the colours of their labels.

import { state } from "../core/state.js";

/** @import { Schemas } from "../core/api.js" */
/**
 * The number of a label is its place in `names`, 65535 for none.
 * @typedef {{
 *   version: string,
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
let kept = null; // the last ones, if they are all

/**
 * All photos, or at most so many.
 * @param {Schemas["MapState"]} map
 * @param {number} [most]
 * @returns {Promise<Points>}
 */
export async function readPoints(map, most) {
  const version = `${map.version} ${state.run.version}`; // labels may have changed
  if (kept?.version === version && kept.n === map.images) return kept;
  const response = await fetch(`api/map/points${most ? `?most=${most}` : ""}`);
  if (!response.ok) throw new Error("The map cannot be read.");
  const data = await response.arrayBuffer();
  const n = data.byteLength / 14;
  const xy = new Uint16Array(data, 8 * n, 2 * n);
  const points = {
    version,
    n,
    ids: new Float64Array(data, 0, n),
    labels: new Uint16Array(data, 12 * n, n),
    names: map.labels,
    x: Float32Array.from({ length: n }, (_, i) => xy[2 * i] / 65535),
    y: Float32Array.from({ length: n }, (_, i) => xy[2 * i + 1] / 65535),
  };
  if (!most) kept = points;
  return points;
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
