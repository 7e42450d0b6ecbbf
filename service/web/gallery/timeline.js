// Months as bars, with two handles: the first and the last month that are shown.

import { el, plural } from "../core/dom.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {{ after?: string, before?: string }} Period */

/** Months since the year 0. @param {string} month */
const numberOf = (month) => 12 * Number(month.slice(0, 4)) + Number(month.slice(5, 7)) - 1;

/** @param {number} number */
const monthOf = (number) => {
  const [year, month] = [Math.floor(number / 12), (number % 12) + 1].map(String);
  return `${year.padStart(4, "0")}-${month.padStart(2, "0")}`;
};

/** @param {string} month such as 2024-05 */
export const monthWords = (month) =>
  new Date(`${month}-01T00:00:00Z`).toLocaleDateString("en", {
    month: "long",
    year: "numeric",
    timeZone: "UTC",
  });

/**
 * `choose` gets the new period; an end that leaves nothing out is missing in it.
 * @param {Schemas["Month"][]} months the last one first
 * @param {Period} period
 * @param {(period: Period) => unknown} choose
 */
export function timeline(months, { after, before }, choose) {
  const counts = new Map(months.map(({ month, images }) => [numberOf(month), images]));
  const [first, last] = [Math.min(...counts.keys()), Math.max(...counts.keys())];
  const most = Math.max(...counts.values());
  /** @param {number} number */
  const within = (number) => Math.min(last, Math.max(first, number));
  let from = within(after ? numberOf(after.padEnd(7, "-01")) : first);
  let to = within(before ? numberOf(before.padEnd(7, "-01")) - (before.length > 7 ? 0 : 1) : last);
  const words = el("output", {});
  const bars = [...counts].map(([number, images]) =>
    el("i", {
      style: {
        left: `${(100 * (number - first)) / (last - first + 1)}%`,
        width: `${100 / (last - first + 1)}%`,
        height: `${Math.max(4, (100 * images) / most)}%`,
      },
      "data-month": number,
    }),
  );
  const draw = () => {
    let shown = 0;
    for (const bar of bars) {
      const number = Number(bar.dataset.month);
      const on = number >= from && number <= to;
      bar.classList.toggle("off", !on);
      if (on) shown += counts.get(number) ?? 0;
    }
    const ends = [from, to].map((number) => monthWords(monthOf(number)));
    words.textContent = `${from === to ? ends[0] : ends.join(" to ")}: ${plural(shown, "photo")}`;
    low.setAttribute("aria-valuetext", ends[0]);
    high.setAttribute("aria-valuetext", ends[1]);
  };
  /** @param {string} label @param {number} value */
  const handle = (label, value) =>
    el("input", { type: "range", min: first, max: last, value, "aria-label": label });
  const low = handle("First month", from);
  const high = handle("Last month", to);
  const moved = () => {
    const ends = [Number(low.value), Number(high.value)];
    [from, to] = [Math.min(...ends), Math.max(...ends)];
    draw();
  };
  for (const one of [low, high]) {
    one.addEventListener("input", moved);
    one.addEventListener("change", () =>
      choose({
        after: from > first ? monthOf(from) : undefined,
        before: to < last ? monthOf(to + 1) : undefined,
      }),
    );
  }
  draw();
  return el(
    "div",
    { class: "timeline", role: "group", "aria-label": "When photos were taken" },
    el("div", { class: "bars", "aria-hidden": "true" }, bars),
    el("div", { class: "handles" }, low, high),
    words,
  );
}
