// What the search page says: failures, notes, and the progress of a search that can be cancelled.

import { $, el } from "./dom.js";
import { announce, box, toast, toasts } from "./says.js";
import { skeleton } from "../gallery/gallery.js";
import { placeFocus } from "../gallery/grid.js";
import { state } from "./state.js";
import { viewer } from "../gallery/viewer.js";
import { showOnly } from "./views.js";

/** @import { ApiError } from "./api.js" */
/** @import { Child } from "./dom.js" */

/** @type {AbortController | null} */
let cancel = null; // of the search under way

/** @type {{ [status: number]: string }} */
const ADVICE = {
  401: "Open the address with its token once: /?token=…",
  404: "Choose another image or other words, or remove a filter.",
  413: "Choose another image or a smaller copy.",
  415: "Choose another image.",
  429: "The server is busy. Try again in a few seconds.",
};

/**
 * @param {Error | ApiError | null} error
 * @param {(() => unknown) | null} [retry]
 * @param {string} [title]
 * @param {string} [again] words of the button that tries again
 * @returns {void}
 */
export function failure(error, retry, title = "Request failed", again = "Try again") {
  if (!error) return $("#failure").replaceChildren();
  if (viewer.open) toast(error.message); // it hides the rest of the page
  const status = "status" in error ? error.status : 0;
  const advice =
    ADVICE[status] ?? (state.ranking ? "The results below are from the previous request." : "");
  /** @param {string} words @param {string} look @param {() => unknown} [act] */
  const button = (words, look, act = () => {}) =>
    el(
      "button",
      {
        class: look,
        onclick: () => {
          failure(null);
          placeFocus();
          act();
        },
      },
      words,
    );
  $("#failure").replaceChildren(
    box(
      title,
      [el("p", error.message), el("p.quiet", advice)],
      ...(retry ? [button(again, "", retry)] : []),
      button("Dismiss", "plain"),
    ),
  );
}

/**
 * A line above the results.
 * @param {string} words
 * @param {...Child} buttons
 */
export const note = (words, ...buttons) =>
  $("#notes").replaceChildren(el("p.note", el("span", words), ...buttons));

/**
 * A note, or a passing message where notes are out of sight.
 * @param {string} words
 * @param {...Child} buttons
 */
export function say(words, ...buttons) {
  note(words, ...buttons);
  if (viewer.open || $("#asked").hidden) return toast(words);
  toasts.replaceChildren();
  announce(words);
}

/**
 * Tiles that stand for results under way.
 * @param {string} [words]
 */
export function showSkeleton(words = "") {
  $("#compare").hidden = true;
  $("#results").hidden = false;
  $("#results").replaceChildren(el("p.unseen", words), skeleton());
  state.drawn = null;
  dispatchEvent(new Event("skeleton"));
}

export const cancelSearch = () => cancel?.abort();

/**
 * Say that a page takes its time, where it does.
 * @param {Promise<void>} page
 */
export async function slowly(page) {
  const waits = el("div.loading", "Loading …");
  const timer = setTimeout(() => {
    toasts.append(waits);
    announce("Loading …");
  }, 1000);
  try {
    await page;
  } finally {
    clearTimeout(timer);
    waits.remove();
  }
}

/**
 * Run a search: after 0.2 s dim the results, or draw skeletons if there are none; after 2 s offer
 * to cancel.
 * @template T
 * @param {string} words
 * @param {(signal: AbortSignal) => Promise<T>} work
 */
export async function busy(words, work) {
  cancelSearch();
  const mine = (cancel = new AbortController());
  const panels = [$("#results"), $("#compare")];
  const timers = [
    setTimeout(() => {
      for (const panel of panels) panel.setAttribute("aria-busy", "true");
      if (state.ranking || $("#results .waiting")) return;
      $("#start").hidden = true;
      showOnly(null);
      showSkeleton(words);
    }, 200),
    setTimeout(() => {
      const button = el("button", { onclick: () => mine.abort() }, "Cancel");
      toasts.replaceChildren(el("div.toast", { id: "waiting" }, el("span", words), button));
      announce(`${words} Cancel is available.`);
    }, 2000),
  ];
  try {
    return await work(mine.signal);
  } finally {
    timers.forEach(clearTimeout);
    $("#waiting")?.remove();
    if (cancel === mine) {
      cancel = null;
      for (const panel of panels) panel.removeAttribute("aria-busy");
    }
  }
}
