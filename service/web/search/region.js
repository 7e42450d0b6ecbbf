// Choosing a part of the query: a rectangle drawn on the picture, by pointer or by keys.

import { queryOf } from "../core/address.js";
import { $, el, targetOf } from "../core/dom.js";
import { announce } from "../core/says.js";
import { change } from "../core/history.js";
import { queryAddress } from "./queryimage.js";
import { state } from "../core/state.js";

const SMALLEST = 0.04; // of a side
const STEP = 0.02; // of a key

/** @type {{ [key: string]: [number, number] }} */
const STEPS = {
  ArrowLeft: [-STEP, 0],
  ArrowRight: [STEP, 0],
  ArrowUp: [0, -STEP],
  ArrowDown: [0, STEP],
};

let rect = [0.25, 0.25, 0.5, 0.5]; // x, y, width, height in shares of the picture
/** @type {HTMLElement} */
let frame;

/** @param {number} value @param {number} low @param {number} high */
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** @param {number[]} next */
function put([x, y, width, height]) {
  const [w, h] = [clamp(width, SMALLEST, 1), clamp(height, SMALLEST, 1)];
  rect = [clamp(x, 0, 1 - w), clamp(y, 0, 1 - h), w, h];
  ["left", "top", "width", "height"].forEach((side, i) =>
    frame.style.setProperty(side, `${(100 * rect[i]).toFixed(2)}%`),
  );
}

/**
 * A rectangle between two points.
 * @param {number[]} a
 * @param {number[]} b
 */
const between = (a, b) => [
  Math.min(a[0], b[0]),
  Math.min(a[1], b[1]),
  Math.abs(a[0] - b[0]),
  Math.abs(a[1] - b[1]),
];

/** @param {HTMLElement} stage @param {PointerEvent} event */
function drag(stage, event) {
  const bounds = stage.getBoundingClientRect();
  /** @param {PointerEvent} event */
  const at = ({ clientX, clientY }) => [
    clamp((clientX - bounds.left) / bounds.width, 0, 1),
    clamp((clientY - bounds.top) / bounds.height, 0, 1),
  ];
  const start = at(event);
  const [x, y, w, h] = rect;
  const { corner } = targetOf(event).dataset;
  const fixed = corner
    ? [corner.includes("w") ? x + w : x, corner.includes("n") ? y + h : y]
    : start;
  const moving = !corner && event.target === frame;
  event.preventDefault();
  frame.focus({ preventScroll: true });
  stage.setPointerCapture(event.pointerId);
  /** @param {PointerEvent} next */
  const follow = (next) => {
    const now = at(next);
    if (moving) put([x + now[0] - start[0], y + now[1] - start[1], w, h]);
    else put(between(fixed, now));
  };
  const end = () => {
    stage.removeEventListener("pointermove", follow);
    stage.removeEventListener("pointerup", end);
    stage.removeEventListener("pointercancel", end);
  };
  stage.addEventListener("pointermove", follow);
  stage.addEventListener("pointerup", end);
  stage.addEventListener("pointercancel", end);
}

/** @param {KeyboardEvent} event */
function press(event) {
  const by = STEPS[event.key];
  if (!by) return;
  event.preventDefault();
  const [x, y, w, h] = rect;
  put(event.shiftKey ? [x, y, w + by[0], h + by[1]] : [x + by[0], y + by[1], w, h]);
  const percent = rect.map((share) => Math.round(100 * share));
  announce(
    `Left ${percent[0]} %, top ${percent[1]} %, width ${percent[2]} %, height ${percent[3]} %`,
  );
}

export function openRegion() {
  /** @type {HTMLDialogElement} */
  const dialog = $("#region");
  const { request } = state;
  frame = el(
    "div.frame",
    {
      tabindex: 0,
      role: "group",
      "aria-roledescription": "region",
      "aria-label": "Region. Arrow keys move it, with Shift they change its size.",
      onkeydown: press,
    },
    ["nw", "ne", "sw", "se"].map((corner) =>
      el("span", { class: `corner ${corner}`, "data-corner": corner }),
    ),
  );
  const picture = el("img", {
    src: queryAddress(queryOf(request) ?? {}, 1024),
    alt: "The query",
    draggable: "false",
  });
  const stage = el("div.draw", picture, frame);
  stage.addEventListener("pointerdown", (event) => event.button === 0 && drag(stage, event));
  const search = () => {
    dialog.close();
    change({
      region: rect.map((share) => String(Number(share.toFixed(3)))).join(","),
      metric: undefined,
      with: undefined,
    });
  };
  const searchWhole = () => {
    dialog.close();
    change({ region: undefined });
  };
  dialog.replaceChildren(
    el("h2", { id: "region-title" }, "Search a region"),
    el("p.quiet", "Draw a rectangle on the picture. Only the blocks in it count."),
    stage,
    el(
      "div.row",
      el("button", { onclick: () => dialog.close() }, "Cancel"),
      request.region ? el("button", { onclick: searchWhole }, "Whole image") : null,
      el("button.primary", { onclick: search }, "Search this region"),
    ),
  );
  put(request.region ? request.region.split(",").map(Number) : [0.25, 0.25, 0.5, 0.5]);
  dialog.showModal();
  frame.focus();
}
