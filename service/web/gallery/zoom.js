// Zoom and pan of one picture: the wheel, two fingers, a double click, + - 0, or buttons; swipes
// where it is not enlarged.

import { targetOf } from "../core/dom.js";

const MOST = 8;
const SWIPE = 60; // pixels

/** @typedef {{ x: number, y: number }} Point */
/**
 * Two fingers that zoom, or one that pans.
 * @typedef {{ two: true, apart: number, scale: number }} Pinch
 * @typedef {{ two: false, x: number, y: number, ox: number, oy: number }} Pan
 */

/**
 * @param {HTMLElement} stage the element around
 * @param {HTMLElement[]} pictures those that move together
 * @param {object} acts
 * @param {{ left: () => void, right: () => void, down: () => void }} [acts.swipe]
 * @param {() => void} [acts.enlarged]
 */
export function zoomable(stage, pictures, { swipe, enlarged }) {
  let [scale, x, y] = [1, 0, 0];
  /** @type {Map<number, Point>} */
  const pointers = new Map();
  /** @type {Pinch | Pan | null} */
  let gesture = null;
  let moved = false;

  const apply = () => {
    const [w, h] = [stage.clientWidth / pictures.length, stage.clientHeight];
    const [mx, my] = [(w * (scale - 1)) / 2, (h * (scale - 1)) / 2]; // no farther than its edge
    x = Math.min(mx, Math.max(-mx, x));
    y = Math.min(my, Math.max(-my, y));
    for (const picture of pictures)
      picture.style.transform = scale === 1 ? "" : `translate(${x}px, ${y}px) scale(${scale})`;
    stage.classList.toggle("zoomed", scale > 1);
  };
  /**
   * To a scale, so that the point stays where it is.
   * @param {number} next
   * @param {number} [px]
   * @param {number} [py]
   */
  const to = (next, px, py) => {
    next = Math.min(MOST, Math.max(1, next));
    const box = stage.getBoundingClientRect();
    const width = box.width / pictures.length;
    const cx = px === undefined ? 0 : ((px - box.left) % width) - width / 2;
    const cy = py === undefined ? 0 : py - box.top - box.height / 2;
    x = cx - ((cx - x) * next) / scale;
    y = cy - ((cy - y) * next) / scale;
    scale = next;
    if (scale > 1.2) enlarged?.();
    apply();
  };
  const ends = () => [...pointers.values()];
  const begin = () => {
    const [a, b] = ends();
    gesture = b
      ? { apart: Math.hypot(a.x - b.x, a.y - b.y), scale, two: true }
      : { two: false, x: a.x, y: a.y, ox: x, oy: y };
  };

  stage.onwheel = (event) => {
    event.preventDefault();
    to(scale * Math.exp(-event.deltaY / (event.ctrlKey ? 100 : 400)), event.clientX, event.clientY);
  };
  stage.ondblclick = (event) => to(scale > 1 ? 1 : 2.5, event.clientX, event.clientY);
  stage.onpointerdown = (event) => {
    if (targetOf(event).closest("button, a") || event.button) return;
    stage.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved = false;
    begin();
  };
  stage.onpointermove = (event) => {
    if (!pointers.has(event.pointerId) || !gesture) return;
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const [a, b] = ends();
    if (gesture.two) {
      if (!b) return;
      const factor = Math.hypot(a.x - b.x, a.y - b.y) / gesture.apart;
      to(gesture.scale * factor, (a.x + b.x) / 2, (a.y + b.y) / 2);
    } else if (scale > 1) {
      [x, y] = [gesture.ox + a.x - gesture.x, gesture.oy + a.y - gesture.y];
      apply();
    }
    moved = true;
  };
  /** @param {PointerEvent} event */
  const end = (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return;
    pointers.delete(event.pointerId);
    if (event.type === "pointerup" && moved && scale === 1 && gesture && !gesture.two) {
      const [dx, dy] = [last.x - gesture.x, last.y - gesture.y];
      if (Math.abs(dx) > SWIPE && Math.abs(dx) > 2 * Math.abs(dy)) {
        if (dx < 0) swipe?.left();
        else swipe?.right();
      } else if (dy > SWIPE && dy > 2 * Math.abs(dx)) swipe?.down();
    }
    if (pointers.size) begin();
    else gesture = null;
  };
  stage.onpointerup = end;
  stage.onpointercancel = end;
  return {
    /** @param {number} factor */
    zoom: (factor) => to(scale * factor),
    reset: () => to(1),
    get scale() {
      return scale;
    },
  };
}
