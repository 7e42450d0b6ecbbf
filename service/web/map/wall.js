// A wall of small photos: every photo of the map has a cell of a grid, similar ones side by side,
// so that no place is empty. Of a wall that is seen from afar, each block of cells is one photo.

import { statusOf } from "../core/pictures.js";
import { colorOf, penOf } from "./mapdata.js";

/** @import { Points } from "./mapdata.js" */
/**
 * `at` is the photo in each cell, row by row, -1 for none; x and y are the middle of each photo's
 * cell, from 0 to 1. Where the whole wall is seen, `step` times `step` cells are one photo.
 * @typedef {{
 *   columns: number,
 *   rows: number,
 *   step: number,
 *   at: Int32Array,
 *   x: Float32Array,
 *   y: Float32Array,
 * }} Wall
 */
/** @typedef {{ left: number, top: number, width: number, height: number }} Box */

const KEPT_PICTURES = 1500;
const BUSY = 2000; // milliseconds until a photo that did not come is asked for once more

/**
 * The photos in a grid that fills a canvas: grid and photos are halved again and again, the photos
 * that lie furthest left or highest going into the first half.
 * @param {Points} points
 * @param {{ width: number, height: number }} canvas
 * @param {number} least pixels of a photo, of which whole ones are to fill the canvas
 * @returns {Wall}
 */
export function buildWall({ n, x, y }, canvas, least) {
  const { columns, rows, step } = gridFor(n, canvas, least);
  const at = new Int32Array(columns * rows).fill(-1);
  const wall = { columns, rows, step, at, x: new Float32Array(n), y: new Float32Array(n) };
  const order = Int32Array.from({ length: n }, (_, i) => i);
  /**
   * @param {number} from first place in `order`
   * @param {number} to
   * @param {number} left
   * @param {number} top
   * @param {number} wide in cells
   * @param {number} high
   */
  const place = (from, to, left, top, wide, high) => {
    if (from === to) return;
    if (wide * high === 1) {
      const i = order[from];
      at[top * columns + left] = i;
      wall.x[i] = (left + 0.5) / columns;
      wall.y[i] = (top + 0.5) / rows;
      return;
    }
    const across = wide >= high;
    const half = (across ? wide : high) >> 1;
    // Cells without a photo are spread evenly.
    const middle = from + Math.ceil(((to - from) * half) / (across ? wide : high));
    divide(order, across ? x : y, from, to, middle);
    if (across) {
      place(from, middle, left, top, half, high);
      place(middle, to, left + half, top, wide - half, high);
    } else {
      place(from, middle, left, top, wide, half);
      place(middle, to, left, top + half, wide, high - half);
    }
  };
  place(0, n, 0, 0, columns, rows);
  return wall;
}

/**
 * Columns and rows, whole numbers of blocks: few empty cells, and these nearly square.
 * @param {number} n
 * @param {{ width: number, height: number }} canvas
 * @param {number} least
 */
function gridFor(n, { width, height }, least) {
  const ideal = Math.sqrt((n * width) / height);
  const step = powerFrom((least * ideal) / width);
  let best = { columns: step, rows: Math.ceil(n / step / step) * step, step };
  let lowest = Infinity;
  for (let c = 1; c * step < 1.3 * ideal + step; c++) {
    const columns = c * step;
    const rows = Math.ceil(n / columns / step) * step;
    const cost = (columns * rows) / n + Math.abs(Math.log((width * rows) / (height * columns)));
    if (cost < lowest) [best, lowest] = [{ columns, rows, step }, cost];
  }
  return best;
}

/**
 * The least power of two that is not less than a number, at least 1.
 * @param {number} value
 */
const powerFrom = (value) => 2 ** Math.max(0, Math.ceil(Math.log2(value)));

/**
 * Reorder, so that those before `middle` come before those from there on (quickselect).
 * @param {Int32Array} order
 * @param {Float32Array} along
 * @param {number} from
 * @param {number} to
 * @param {number} middle
 */
function divide(order, along, from, to, middle) {
  let [low, high] = [from, to - 1];
  while (low < high) {
    const pivot = along[order[(low + high) >> 1]];
    let [i, j] = [low, high];
    while (i <= j) {
      while (along[order[i]] < pivot) i++;
      while (along[order[j]] > pivot) j--;
      if (i <= j) {
        [order[i], order[j]] = [order[j], order[i]];
        i++;
        j--;
      }
    }
    if (middle <= j) high = j;
    else if (middle >= i) low = i;
    else return;
  }
}

/** @type {Map<string, HTMLImageElement>} */
const pictures = new Map(); // by the id of an image and the longer side

/**
 * The picture of an image, once it has come.
 * @param {number} id
 * @param {number} size
 * @param {() => void} loaded
 */
function load(id, size, loaded) {
  const key = `${id} ${size}`;
  let img = pictures.get(key);
  if (!img) {
    const one = (img = new Image());
    const ask = () => void (one.src = `images/${id}/thumbnail?size=${size}`);
    one.addEventListener("load", loaded);
    const fail = () => statusOf(one) !== 410 && setTimeout(ask, BUSY);
    one.addEventListener("error", fail, { once: true });
    ask();
    pictures.set(key, img);
    const [oldest] = pictures.keys();
    if (pictures.size > KEPT_PICTURES) pictures.delete(oldest);
  }
  const small = pictures.get(`${id} 128`);
  return [img, small].find((one) => one?.complete && one.naturalWidth) ?? null;
}

/**
 * How many cells, along each side, a photo stands for: a power of two, so that those that are seen
 * stay when one comes nearer.
 * @param {Wall} wall
 * @param {number} zoom
 */
export const stepAt = ({ step }, zoom) => powerFrom(step / zoom);

/**
 * The photo that stands for the block of a cell: the first wanted one, else the first; -1 for none.
 * @param {Wall} wall
 * @param {number} column
 * @param {number} row
 * @param {number} step
 * @param {(i: number) => boolean} wanted
 */
export function standsFor({ columns, rows, at }, column, row, step, wanted) {
  let first = -1;
  const [left, top] = [column - (column % step), row - (row % step)];
  for (let r = top; r < Math.min(rows, top + step); r++)
    for (let c = left; c < Math.min(columns, left + step); c++) {
      const i = at[r * columns + c];
      if (i < 0) continue;
      if (wanted(i)) return i;
      if (first < 0) first = i;
    }
  return first;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Points} points
 * @param {Wall} wall
 * @param {object} options
 * @param {Box} options.box of the whole wall
 * @param {number} options.step cells, along each side, of a photo
 * @param {number} options.gap pixels between photos
 * @param {number | null} [options.only] a label: other photos are faint
 * @param {boolean} [options.colored] a rim in the colour of the label
 * @param {() => void} options.loaded called when a photo has come
 */
export function drawWall(
  canvas,
  points,
  wall,
  { box, step, gap, only = null, colored = false, loaded },
) {
  const pen = penOf(canvas);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  const { columns, rows, at } = wall;
  const [wide, high] = [box.width / columns, box.height / rows]; // of a cell
  /** @param {number} value */
  const first = (value) => Math.max(0, Math.floor(value / step) * step);
  const lastColumn = Math.min(columns, (canvas.width - box.left) / wide);
  const lastRow = Math.min(rows, (canvas.height - box.top) / high);
  /** @param {number} i */
  const wanted = (i) => only === null || points.labels[i] === only;
  for (let row = first(-box.top / high); row < lastRow; row += step)
    for (let column = first(-box.left / wide); column < lastColumn; column += step) {
      const i = standsFor(wall, column, row, step, wanted);
      if (i < 0) continue;
      // A photo reaches over an empty cell beside or below it.
      const here = row * columns + column;
      const more = step === 1 && column + 1 < columns && at[here + 1] < 0 ? 1 : 0;
      const below = step === 1 && !more && row + 1 < rows && at[here + columns] < 0 ? 1 : 0;
      // Whole pixels, and the same ones for the end of a block and the start of the next.
      const x = Math.round(box.left + column * wide);
      const y = Math.round(box.top + row * high);
      const w = Math.round(box.left + Math.min(columns, column + step + more) * wide) - x - gap;
      const h = Math.round(box.top + Math.min(rows, row + step + below) * high) - y - gap;
      const img = load(points.ids[i], Math.max(w, h) > 150 ? 256 : 128, loaded);
      pen.globalAlpha = wanted(i) ? 1 : 0.15;
      if (colored || !img) {
        pen.fillStyle = colorOf(colored ? points.labels[i] : 65535);
        if (!img) pen.globalAlpha *= 0.35;
        pen.fillRect(x, y, w, h);
      }
      const rim = colored ? gap + 1 : 0;
      if (img) drawFilling(pen, img, x + rim, y + rim, w - 2 * rim, h - 2 * rim);
    }
  pen.globalAlpha = 1;
}

/**
 * The middle of a picture, as much as fills a rectangle.
 * @param {CanvasRenderingContext2D} pen
 * @param {HTMLImageElement} img
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
function drawFilling(pen, img, x, y, w, h) {
  if (w <= 0 || h <= 0) return;
  const part = Math.min(img.naturalWidth / w, img.naturalHeight / h);
  const [fromW, fromH] = [w * part, h * part];
  const [fromX, fromY] = [(img.naturalWidth - fromW) / 2, (img.naturalHeight - fromH) / 2];
  pen.drawImage(img, fromX, fromY, fromW, fromH, x, y, w, h);
}
