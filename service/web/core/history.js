// Requests and the browser's history: every request has an address; Back and Forward restore it and
// its scroll position.

import { addressOf, queryOf, readAddress, searchOf } from "./address.js";
import { byChosen, settings, state } from "./state.js";

/** @import { Query, Request } from "./address.js" */
/** @typedef {(request: Request, options?: { scroll?: number }) => Promise<void>} Show */

/** @type {Show} */
let show; // makes the page agree with a request

/** @type {number | undefined} */
let timer; // of the scroll position

export const redraw = (request = state.request) => show(request);

function keepScroll() {
  clearTimeout(timer);
  history.replaceState({ ...history.state, scroll: scrollY }, "");
}

/** @param {Request} asked @param {{ replace?: boolean, overlay?: boolean }} [options] */
export function go(asked, { replace = false, overlay = false } = {}) {
  const isNew = JSON.stringify(queryOf(asked)) !== JSON.stringify(queryOf(state.request));
  const request = isNew ? byChosen(asked) : asked;
  const address = addressOf(request);
  // The same page again, as of a second press on a slow line, is no step of its own.
  if (replace || address === (location.search || "./"))
    history.replaceState({ ...history.state }, "", address);
  else {
    keepScroll();
    history.pushState({ overlay }, "", address);
  }
  return show(request, replace || overlay ? {} : { scroll: 0 });
}

/** @param {Request} values @param {{ replace?: boolean, overlay?: boolean }} [options] */
export const change = (values, options) => go({ ...state.request, ...values }, options);

/** @param {Query} query */
export const ask = (query) => go({ ...query, ...settings() });

// Show the address of the page.
export const start = () => show(byChosen(readAddress()), { scroll: history.state?.scroll ?? 0 });

/** @param {Show} showRequest */
export function followHistory(showRequest) {
  show = showRequest;
  history.scrollRestoration = "manual";
  addEventListener("popstate", (event) => {
    clearTimeout(timer);
    const next = readAddress();
    /** @param {Request} part */
    const same = (part) => JSON.stringify([searchOf(part), part.with, part.view, part.metric]);
    show(next, same(next) === same(state.request) ? {} : { scroll: event.state?.scroll ?? 0 });
  });
  addEventListener(
    "scroll",
    () => {
      clearTimeout(timer);
      timer = setTimeout(keepScroll, 150);
    },
    { passive: true },
  );
}
