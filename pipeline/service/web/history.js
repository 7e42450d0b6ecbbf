// Requests and the browser's history: every request has an address; Back and Forward restore it and
// its scroll position.

import { addressOf, readAddress, searchOf } from "./address.js";
import { settings, state } from "./state.js";

let show; // function (request, { scroll }) that makes the page agree with a request

export const redraw = (request = state.request) => show(request);

function keepScroll() {
  clearTimeout(keepScroll.timer);
  history.replaceState({ ...history.state, scroll: scrollY }, "");
}

export function go(request, { replace = false, overlay = false } = {}) {
  if (replace) history.replaceState({ ...history.state }, "", addressOf(request));
  else {
    keepScroll();
    history.pushState({ overlay }, "", addressOf(request));
  }
  return show(request, replace || overlay ? {} : { scroll: 0 });
}

export const change = (values, options) => go({ ...state.request, ...values }, options);

export const ask = (query) => go({ ...query, ...settings() });

// Show the address of the page.
export const start = () => show(readAddress(), { scroll: history.state?.scroll ?? 0 });

export function followHistory(showRequest) {
  show = showRequest;
  history.scrollRestoration = "manual";
  addEventListener("popstate", (event) => {
    clearTimeout(keepScroll.timer);
    const next = readAddress();
    const same = (part) => JSON.stringify([searchOf(part), part.with, part.view, part.metric]);
    show(next, same(next) === same(state.request) ? {} : { scroll: event.state?.scroll ?? 0 });
  });
  addEventListener(
    "scroll",
    () => {
      clearTimeout(keepScroll.timer);
      keepScroll.timer = setTimeout(keepScroll, 150);
    },
    { passive: true },
  );
}
