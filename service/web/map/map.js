// The map of the collection: a wall of small photos, similar ones side by side (wall.js).

import { addressOf } from "../core/address.js";
import { get } from "../core/api.js";
import { $, activeElement, el } from "../core/dom.js";
import { remember, remembered } from "../core/remember.js";
import { announce } from "../core/says.js";
import { plural } from "../core/text.js";
import { go } from "../core/history.js";
import { drawMap, followMap, notDrawn } from "../gallery/home.js";
import { colorOf, penOf, readPoints } from "./mapdata.js";
import { failure } from "../core/messages.js";
import { photoList } from "../gallery/photolist.js";
import { state } from "../core/state.js";
import { addView } from "../core/views.js";
import { buildWall, drawWall, standsFor, stepAt } from "./wall.js";

const CELL = 40; // pixels per photo at the least
const MOST_CELL = 300;
const ISLAND = 2.5; // times as wide as its photos need: what has a name on the map is no wider

/** @import { Request } from "../core/address.js" */
/** @import { Place, Points } from "./mapdata.js" */
/** @import { Wall } from "./wall.js" */

// The map on the page, and its elements; there before anything of it is drawn.
/** @type {Points} */
let points;
/** @type {Wall} */
let wall;
/** @type {HTMLCanvasElement} */
let canvas;
/** @type {HTMLElement} */
let box;
/** @type {HTMLElement} */
let preview;
/** @type {HTMLElement} */
let legend;
/** @type {HTMLElement} */
let listed;

let view = { x: 0.5, y: 0.5, zoom: 1 };
/** @type {number | null} */
let only = null; // number of the label that is pointed at
let frame = 0;

// ---- places

// The map fills the canvas; where it has few photos, they are no larger than MOST_CELL.
const most = () => MOST_CELL * scale();
const wide = () => Math.min(canvas.width, wall.columns * most()) * view.zoom;
const side = () => Math.min(canvas.height, wall.rows * most()) * view.zoom;
/** @type {Place} */
const toScreen = (x, y) => [
  canvas.width / 2 + (x - view.x) * wide(),
  canvas.height / 2 + (y - view.y) * side(),
];
/** @type {Place} */
const toMap = (x, y) => [
  view.x + (x - canvas.width / 2) / wide(),
  view.y + (y - canvas.height / 2) / side(),
];
const scale = () => canvas.width / box.clientWidth;

const largestZoom = () => Math.max(1, (most() * wall.columns * view.zoom) / wide());

function inView() {
  const [left, top] = toMap(0, 0);
  const [right, bottom] = toMap(canvas.width, canvas.height);
  const inside = [];
  for (let i = 0; i < points.n; i++)
    if (wall.x[i] >= left && wall.x[i] <= right && wall.y[i] >= top && wall.y[i] <= bottom)
      inside.push(i);
  return inside;
}

/** @param {{ x?: number, y?: number, zoom?: number }} next */
function look(next) {
  view.zoom = Math.min(largestZoom(), Math.max(1, next.zoom ?? view.zoom));
  /**
   * The wall is not drawn away from the edges of the canvas.
   * @param {number} value @param {number} seen share of the wall
   */
  const clamp = (value, seen) =>
    seen >= 1 ? 0.5 : Math.min(1 - seen / 2, Math.max(seen / 2, value));
  view.x = clamp(next.x ?? view.x, canvas.width / wide());
  view.y = clamp(next.y ?? view.y, canvas.height / side());
  redraw();
  settle();
}

/**
 * Zoom so that the place under the pointer stays there.
 * @param {number} factor
 * @param {number} [x]
 * @param {number} [y]
 */
function zoomAt(factor, x = canvas.width / 2, y = canvas.height / 2) {
  const [mapX, mapY] = toMap(x, y);
  view.zoom = Math.min(largestZoom(), Math.max(1, view.zoom * factor));
  look({ x: mapX - (x - canvas.width / 2) / wide(), y: mapY - (y - canvas.height / 2) / side() });
}

/** @param {number[]} chosen */
function fit(chosen) {
  /** @param {number[]} values */
  const sorted = (values) => [...values].sort((a, b) => a - b);
  const xs = sorted(chosen.map((i) => wall.x[i]));
  const ys = sorted(chosen.map((i) => wall.y[i]));
  /** @param {number[]} list @param {number} share */
  const at = (list, share) => list[Math.min(list.length - 1, Math.floor(share * list.length))];
  const size = Math.max(at(xs, 0.9) - at(xs, 0.1), at(ys, 0.9) - at(ys, 0.1), 0.02);
  look({ x: at(xs, 0.5), y: at(ys, 0.5), zoom: 0.8 / size });
}

// ---- drawing

function redraw() {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(draw);
}

function draw() {
  const pen = penOf(canvas);
  const dpr = scale();
  const [left, top] = toScreen(0, 0);
  drawWall(canvas, points, wall, {
    box: { left, top, width: wide(), height: side() },
    step: stepAt(wall, view.zoom),
    gap: Math.round(2 * dpr),
    only,
    colored: remembered("mapColors", true),
    loaded: redraw,
  });
  if (view.zoom < 4) drawNames(pen, dpr);
  if (activeElement() === canvas) drawCross(pen, dpr);
}

/**
 * The names of labels where most of their photos lie; those that would cover another one are left
 * out.
 * @param {CanvasRenderingContext2D} pen
 * @param {number} dpr
 */
function drawNames(pen, dpr) {
  const style = getComputedStyle(box);
  pen.font = `600 ${13 * dpr}px ${style.fontFamily}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  /** @type {{ left: number, top: number, w: number, h: number }[]} */
  const placed = [];
  for (const { label, x, y } of middles()) {
    if (only !== null && label !== only) continue;
    const [left, top] = toScreen(x, y);
    const words =
      points.names[label].length > 24
        ? `${points.names[label].slice(0, 23)}…`
        : points.names[label];
    const [w, h] = [pen.measureText(words).width / 2 + 6 * dpr, 11 * dpr];
    if (left < w || top < h || left > canvas.width - w || top > canvas.height - h) continue;
    if (
      placed.some(
        (other) =>
          Math.abs(other.left - left) < other.w + w && Math.abs(other.top - top) < other.h + h,
      )
    )
      continue;
    placed.push({ left, top, w, h });
    pen.fillStyle = style.backgroundColor;
    pen.beginPath();
    pen.roundRect(left - w, top - h, 2 * w, 2 * h, h);
    pen.fill();
    pen.fillStyle = style.color;
    pen.fillText(words, left, top);
    if (placed.length > 60) return;
  }
}

/** @typedef {{ label: number, n: number, x: number, y: number }} Middle of the photos of a label */

/** @type {{ wall: Wall, list: Middle[] } | null} */
let middlesOf = null;
function middles() {
  if (middlesOf?.wall === wall) return middlesOf.list;
  /** @type {Map<number, number[]>} */
  const members = new Map();
  for (let i = 0; i < points.n; i++) {
    const label = points.labels[i];
    if (label === 65535) continue;
    const some = members.get(label);
    if (some) some.push(i);
    else members.set(label, [i]);
  }
  /** @param {number[]} list @param {Float32Array} axis */
  const median = (list, axis) => list.map((i) => axis[i]).sort((a, b) => a - b)[list.length >> 1];
  const list = [...members]
    .filter(([, some]) => some.length > 2)
    .slice(0, 300)
    .map(([label, some]) => ({
      label,
      n: some.length,
      x: median(some, wall.x),
      y: median(some, wall.y),
    }))
    .filter(({ label, n, x, y }) => {
      // Half of them lie in half of the circle that they need.
      const near = members
        .get(label)
        ?.map((i) => Math.hypot((wall.x[i] - x) * wall.columns, (wall.y[i] - y) * wall.rows))
        .sort((a, b) => a - b);
      return near && near[n >> 1] < ISLAND * Math.sqrt(n / (2 * Math.PI));
    })
    .sort((a, b) => b.n - a.n);
  middlesOf = { wall, list };
  return list;
}

/** @param {CanvasRenderingContext2D} pen @param {number} dpr */
function drawCross(pen, dpr) {
  const [x, y] = [canvas.width / 2, canvas.height / 2];
  for (const { width, color } of [
    { width: 5, color: "#fff" },
    { width: 2, color: "#000" },
  ]) {
    pen.strokeStyle = color;
    pen.lineWidth = width * dpr;
    pen.beginPath();
    pen.moveTo(x - 10 * dpr, y);
    pen.lineTo(x + 10 * dpr, y);
    pen.moveTo(x, y - 10 * dpr);
    pen.lineTo(x, y + 10 * dpr);
    pen.stroke();
  }
}

// ---- what lies where

/**
 * The photo drawn at a place of the map, -1 for none.
 * @param {number} x
 * @param {number} y
 */
function photoAt(x, y) {
  const [column, row] = [Math.floor(x * wall.columns), Math.floor(y * wall.rows)];
  if (column < 0 || row < 0 || column >= wall.columns || row >= wall.rows) return -1;
  const wanted = (/** @type {number} */ i) => only === null || points.labels[i] === only;
  return standsFor(wall, column, row, stepAt(wall, view.zoom), wanted);
}

/** @param {number} i */
const nameOf = (i) => points.names[points.labels[i]] ?? "no label";

// ---- after a movement: the address, the legend, the photos in view

/** @type {number | undefined} */
let timer;
function settle() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (state.request.view !== "map") return;
    const at =
      view.zoom === 1
        ? undefined
        : [view.x.toFixed(4), view.y.toFixed(4), view.zoom.toFixed(2)].join(",");
    state.request = { ...state.request, at };
    history.replaceState(history.state, "", addressOf(state.request));
    const inside = inView();
    drawLegend(inside);
    await drawList(inside);
    if (activeElement() === canvas && inside.length) {
      const i = photoAt(view.x, view.y);
      announce(
        `${plural(inside.length, "photo")} in view.` +
          (i < 0 ? "" : ` In the middle: ${nameOf(i)}. Enter searches with it.`),
      );
    }
  }, 250);
}

/** @param {number[]} inside */
function drawLegend(inside) {
  const counts = new Map();
  for (const i of inside) counts.set(points.labels[i], (counts.get(points.labels[i]) ?? 0) + 1);
  const sorted = [...counts]
    .filter(([label]) => label !== 65535)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 40);
  const focused = activeElement().dataset.label;
  legend.replaceChildren(
    ...sorted.map(([label, n]) => {
      const button = el(
        "button",
        { "data-label": label, style: { "--dot": colorOf(label) } },
        el("span.dot", { "aria-hidden": "true" }),
        el("span", { dir: "auto" }, points.names[label] ?? "other"),
        el("span.quiet", n),
      );
      button.addEventListener("click", () =>
        fit(
          Array.from({ length: points.n }, (_, i) => i).filter((i) => points.labels[i] === label),
        ),
      );
      /** @param {number | null} value */
      const show = (value) => () => {
        only = value;
        redraw();
      };
      for (const name of ["pointerenter", "focus"]) button.addEventListener(name, show(label));
      for (const name of ["pointerleave", "blur"]) button.addEventListener(name, show(null));
      return el("li", button);
    }),
  );
  if (focused) $(`[data-label="${focused}"]`, legend)?.focus();
  legend.hidden = !sorted.length;
}

/** @param {number[]} inside */
async function drawList(inside) {
  const step = Math.max(1, inside.length / 12);
  const ids = [
    ...new Set(
      Array.from(
        { length: Math.min(12, inside.length) },
        (_, i) => points.ids[inside[Math.floor(i * step)]],
      ),
    ),
  ];
  const images = ids.length ? await get("api/images", { ids: ids.join(",") }).catch(() => []) : [];
  listed.replaceChildren(
    el("h2", `${plural(inside.length, "photo")} in view`),
    photoList(images, { small: true, first: 0 }),
  );
}

// ---- pointers and keys

function bind() {
  /** @type {Map<number, [number, number]>} */
  const held = new Map(); // pointers that are down
  let moved = 0;
  /** @param {MouseEvent} event @returns {[number, number]} */
  const at = (event) => {
    const bounds = canvas.getBoundingClientRect();
    return [(event.clientX - bounds.left) * scale(), (event.clientY - bounds.top) * scale()];
  };
  const spread = () => {
    const [a, b] = [...held.values()];
    return {
      size: Math.hypot(a[0] - b[0], a[1] - b[1]),
      x: (a[0] + b[0]) / 2,
      y: (a[1] + b[1]) / 2,
    };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, at(event));
    moved = 0;
    preview.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event);
    const before = held.get(event.pointerId);
    if (!before)
      return event.pointerType === "mouse" && showPreview(photoAt(...toMap(...now)), event);
    if (held.size === 2) {
      const old = spread();
      held.set(event.pointerId, now);
      const next = spread();
      zoomAt(next.size / Math.max(old.size, 1), next.x, next.y);
      moved = 99;
      return;
    }
    held.set(event.pointerId, now);
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    look({ x: view.x - (now[0] - before[0]) / wide(), y: view.y - (now[1] - before[1]) / side() });
  });
  /** @param {PointerEvent} event */
  const up = (event) => {
    held.delete(event.pointerId);
    if (event.type === "pointerup" && moved < 6 * scale()) {
      const i = photoAt(...toMap(...at(event)));
      if (i >= 0) go({ id: points.ids[i] });
    }
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => {
    preview.hidden = true;
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0022)), ...at(event));
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const [stepX, stepY] = [(60 * scale()) / wide(), (60 * scale()) / side()];
    const by = {
      ArrowLeft: [-stepX, 0],
      ArrowRight: [stepX, 0],
      ArrowUp: [0, -stepY],
      ArrowDown: [0, stepY],
    }[event.key];
    if (by) look({ x: view.x + by[0], y: view.y + by[1] });
    else if (event.key === "+" || event.key === "=") zoomAt(1.5);
    else if (event.key === "-") zoomAt(1 / 1.5);
    else if (event.key === "0") look({ zoom: 1 });
    else if (event.key === "Enter") {
      const i = photoAt(view.x, view.y);
      if (i >= 0) go({ id: points.ids[i] });
    } else return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", redraw);
}

let previewed = -1;
/** @param {number} i @param {PointerEvent} event */
async function showPreview(i, event) {
  canvas.style.setProperty("cursor", i >= 0 ? "pointer" : "grab");
  if (i < 0) {
    preview.hidden = true;
    previewed = -1;
    return;
  }
  const bounds = box.getBoundingClientRect();
  const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
  preview.style.setProperty("left", `${Math.min(x + 16, bounds.width - 190)}px`);
  preview.style.setProperty("top", `${Math.min(y + 16, bounds.height - 170)}px`);
  if (i !== previewed) {
    previewed = i;
    preview.replaceChildren(
      el("img", { src: `images/${points.ids[i]}/thumbnail?size=256`, alt: "", width: 170 }),
      el("span", { dir: "auto" }, nameOf(i)),
    );
  }
  preview.hidden = false;
}

// ---- the page

/** @type {ResizeObserver | undefined} */
let sizes;
/**
 * @param {HTMLElement} section
 * @param {Request} request
 * @param {number} [turn]
 * @returns {Promise<void>}
 */
async function showMap(section, request, turn = state.turn) {
  const map = await get("api/map");
  if (turn !== state.turn) return undefined; // another page has its turn
  if (!map.ready)
    return section.replaceChildren(
      el("h1", "Map of the collection"),
      notDrawn(map, ({ ready }) => ready),
    );
  const read = await readPoints(map);
  if (turn !== state.turn) return undefined;
  points = read;
  only = null;
  /** @param {string} words @param {string} name @param {() => void} act */
  const button = (words, name, act) =>
    el("button.round", { "aria-label": name, title: name, onclick: act }, words);
  canvas = el("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "map",
    "aria-label":
      `Map of ${plural(points.n, "photo")}. Arrow keys move it, plus and minus zoom, 0 shows ` +
      "all of it, Enter searches with the photo in the middle.",
  });
  preview = el("div.preview", { hidden: true, "aria-hidden": "true" });
  box = el(
    "div.mapbox",
    canvas,
    preview,
    el(
      "div.zoom",
      button("+", "Zoom in", () => zoomAt(1.6)),
      button("−", "Zoom out", () => zoomAt(1 / 1.6)),
      button("⤢", "Whole map", () => look({ zoom: 1 })),
    ),
  );
  legend = el("ul.maplegend", { "aria-label": "Labels in view" });
  listed = el("section.inview", { "aria-label": "Photos in view" });
  const colors = el("input", { type: "checkbox", checked: remembered("mapColors", true) });
  colors.addEventListener("change", () => {
    remember("mapColors", colors.checked);
    redraw();
  });
  const stale = map.current
    ? null
    : el(
        "p.note",
        el(
          "span",
          map.making
            ? "A newer map is being drawn in the background."
            : "Photos or the learned similarity have changed since this map was drawn.",
        ),
        map.making
          ? null
          : el(
              "button",
              {
                onclick: (event) => {
                  event.target.disabled = true;
                  drawMap().then(() => showMap(section, request), failure);
                },
              },
              "Draw it again",
            ),
      );
  section.replaceChildren(
    el(
      "div.row.head",
      el("h1", "Map of the collection"),
      el("span.quiet", plural(points.n, "photo")),
      map.labels.length ? el("label.check", colors, " Colours by label") : null,
    ),
    stale ?? "",
    el("div.mapview", box, legend),
    listed,
  );
  bind();
  followMap(map, (next) => {
    if (state.turn !== turn) return false;
    const same = next.making === map.making;
    if (!same) showMap(section, state.request).catch(failure);
    return same;
  });
  sizes?.disconnect();
  const [x, y, zoom] = (request.at ?? "").split(",").map(Number);
  view = zoom ? { x, y, zoom } : { x: 0.5, y: 0.5, zoom: 1 };
  sizes = new ResizeObserver(() => {
    const dpr = Math.min(2, devicePixelRatio || 1);
    canvas.width = Math.round(box.clientWidth * dpr);
    canvas.height = Math.round(box.clientHeight * dpr);
    if (!canvas.width || !canvas.height) return; // hidden
    wall = buildWall(points, canvas, CELL * dpr);
    look(view);
  });
  sizes.observe(box);
  return undefined;
}

addView("map", { title: "Map of the collection", params: ["at"], show: showMap });
