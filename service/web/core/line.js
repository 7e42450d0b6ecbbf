// A line above the page: how far work in the background is, or what came of it.

import { $, el } from "./dom.js";

/** @param {string} words @param {() => unknown} onclick @param {string} [look] */
export const lineButton = (words, onclick, look) => el("button", { class: look, onclick }, words);

/** @param {string} selector @param {string} label that of its progress */
export function noteLine(selector, label) {
  const line = $(selector);
  let cancelling = () => {}; // of the step under way
  /**
   * Fill the line; a focus in it stays in it.
   * @param {...(HTMLElement | "")} parts
   */
  const fill = (...parts) => {
    const focused = line.contains(document.activeElement);
    line.replaceChildren(...parts);
    line.hidden = !parts.length;
    if (focused) ($("button", line) ?? $("#main")).focus({ preventScroll: true });
  };
  /** @param {string} words @param {number} share @param {() => void} cancel */
  const progress = (words, share, cancel) => {
    cancelling = cancel;
    if (!$("progress", line))
      fill(
        el("span"),
        el("progress", { max: 1, value: 0, "aria-label": label }),
        lineButton("Cancel", () => cancelling()),
      );
    $("span", line).textContent = words;
    /** @type {HTMLProgressElement} */ ($("progress", line)).value = share;
  };
  return { fill, progress };
}
