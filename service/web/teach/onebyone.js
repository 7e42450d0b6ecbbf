// Pages that ask about one photo at a time: single keys, swipes, one answer at a time.

import { remembered } from "../core/remember.js";
import { failure } from "../core/messages.js";
import { state } from "../core/state.js";

/** @typedef {{ [key: string]: () => unknown }} Letters */

const SWIPE = 60; // pixels

/**
 * Keys of a view, without Ctrl or Alt; returns a function that says what they do from now on.
 * @param {string} view
 */
export function bindLetters(view) {
  /** @type {Letters} */
  let acts = {};
  addEventListener("keydown", (event) => {
    const target = event.target instanceof Element ? event.target : document.body;
    const control = event.ctrlKey || event.metaKey;
    if (state.request.view !== view || !(control || remembered("keys", true))) return;
    if (event.altKey || event.shiftKey || event.repeat) return;
    if (target.closest("input, textarea, select, dialog")) return;
    const key = event.key.toLowerCase();
    const act = control ? key === "z" && acts.u : acts[key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  return (/** @type {Letters} */ given) => void (acts = given);
}

/**
 * A function that runs an act and then shows what follows. An answer meanwhile does nothing: it
 * would be to the photo that is leaving. An undo waits.
 * @param {() => Promise<unknown>} next
 */
export function oneByOne(next) {
  /** @type {Promise<void> | null} */
  let running = null;
  /** @param {() => Promise<unknown>} act */
  const run = async (act) => {
    try {
      await act();
      await next();
      failure(null);
    } catch (error) {
      failure(error);
    }
  };
  return async (/** @type {() => Promise<unknown>} */ act, wait = false) => {
    while (wait && running) await running;
    if (running) return;
    await (running = run(act));
    running = null;
  };
}

/**
 * A finger that moves sideways over an element.
 * @param {HTMLElement} node
 * @param {() => unknown} left
 * @param {() => unknown} right
 */
export function bindSwipe(node, left, right) {
  let [x, y] = [0, 0];
  node.addEventListener(
    "touchstart",
    ({ touches }) =>
      ([x, y] = touches.length === 1 ? [touches[0].clientX, touches[0].clientY] : [NaN, 0]),
    { passive: true },
  );
  node.addEventListener("touchend", ({ changedTouches: [last] }) => {
    const [dx, dy] = [last.clientX - x, last.clientY - y];
    if (Math.abs(dx) > SWIPE && Math.abs(dx) > 2 * Math.abs(dy)) (dx < 0 ? left : right)();
  });
}
