// The strip below the query: its examples with their weights, and its region.

import { queryOf, wordsOf } from "../core/address.js";
import { $, activeElement, el } from "../core/dom.js";
import { examples, isSame, keep, removeFirst, weigh } from "./examples.js";
import { change } from "../core/history.js";
import { queryAddress } from "./queryimage.js";
import { openRegion } from "./region.js";
import { startAdding } from "./searchbox.js";
import { state } from "../core/state.js";

/** @import { Query } from "../core/address.js" */

// Whether the query has more than one whole image: the strip is shown then.
function isRefined() {
  const { region, weight } = state.request;
  return Boolean(examples().length || region || weight !== undefined);
}

// The links of the query panel. Below it, the strip has a button of its own to add examples.
export function refineLinks() {
  if (wordsOf(state.request)) return [];
  return [
    !isRefined() && el("button.plain", { onclick: startAdding }, "Add an example"),
    state.run.can_upload &&
      el(
        "button.plain",
        { onclick: () => openRegion() },
        state.request.region ? "Change region" : "Search a region",
      ),
  ];
}

/** @param {number} weight */
const signed = (weight) => `${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(1)}`;

/**
 * Weights that sliders were moved to, by query, until a search has them: keys change them step by
 * step, and a search that a pause has started draws the sliders again meanwhile.
 * @type {Map<string, { value: number, timer: number }>}
 */
const moved = new Map();

/** @param {number} weight @param {string} name @param {(weight: number) => void} set */
function slider(weight, name, set) {
  const value = el("output", signed(weight));
  const range = el("input", {
    type: "range",
    min: -1,
    max: 1,
    step: 0.1,
    value: weight,
    "aria-label": `Weight of ${name}`,
  });
  range.addEventListener("input", () => {
    value.textContent = signed(Number(range.value));
    range.closest("li")?.classList.toggle("minus", Number(range.value) < 0);
  });
  range.addEventListener("change", () => set(Number(range.value)));
  return el("span.weight", range, value);
}

/**
 * @param {Query} query
 * @param {string} name
 * @param {number | null} weight null: there is nothing to weigh it against
 * @param {(weight: number) => unknown} set
 * @param {{ words: string, act: () => unknown }} remove
 * @param {string} [region]
 */
function tile(query, name, weight, set, remove, region) {
  const box = region?.split(",").map(Number);
  const key = JSON.stringify(query);
  const stay = () => {
    clearTimeout(moved.get(key)?.timer);
    moved.delete(key);
  };
  /** @param {number} value */
  const later = (value) => {
    stay();
    const search = () => {
      moved.delete(key);
      set(value);
    };
    moved.set(key, { value, timer: setTimeout(search, 250) });
  };
  const act = () => {
    stay();
    remove.act();
  };
  const shown = weight === null ? null : (moved.get(key)?.value ?? weight);
  return el(
    "li",
    { class: shown !== null && shown < 0 ? "minus" : "" },
    el(
      "figure",
      el("img", { src: queryAddress(query, 256), alt: name, draggable: "false" }),
      box &&
        el("span.region", {
          "aria-hidden": "true",
          style: Object.fromEntries(
            ["left", "top", "width", "height"].map((side, i) => [side, `${100 * box[i]}%`]),
          ),
        }),
    ),
    shown !== null && slider(shown, name, later),
    el(
      "button.remove",
      {
        "aria-label": remove.words,
        title: remove.words,
        onclick: act,
      },
      "×",
    ),
  );
}

// Draw the examples and the region of the query; nothing where there are none.
export function drawExamples() {
  const { request } = state;
  const strip = $("#examples");
  if (!isRefined()) return strip.replaceChildren();
  const list = examples();
  const weighted = Boolean(list.length) || request.weight !== undefined; // one image weighs 1
  const focused =
    activeElement().closest("#examples") && activeElement().getAttribute("aria-label");
  const query = queryOf(request) ?? {};
  const whole = request.region
    ? { words: "Search the whole image", act: () => change({ region: undefined }) }
    : { words: "Remove the first image", act: removeFirst };
  strip.replaceChildren(
    el(
      "ul.examples",
      { "aria-label": "Examples of the query" },
      tile(
        query,
        request.region ? "the region" : "the first image",
        weighted ? (request.weight ?? 1) : null,
        (weight) =>
          isSame(query, queryOf(state.request)) &&
          change({ weight: weight === 1 ? undefined : weight }),
        whole,
        request.region,
      ),
      list.map((example, i) =>
        tile(
          example.query,
          `example ${i + 2}`,
          example.weight,
          (weight) => weigh(example.image, weight),
          {
            words: `Remove example ${i + 2}`,
            act: () => keep(examples().filter((one) => one.image !== example.image)),
          },
        ),
      ),
      el("li.add", el("button", { onclick: startAdding }, "+ Add an example")),
    ),
    el(
      "p.quiet",
      weighted && "Drag a slider to the left of its middle to move away from a picture. ",
      "Relevance marks need a query of one whole image.",
    ),
  );
  if (focused) $(`[aria-label="${CSS.escape(focused)}"]`, strip)?.focus();
}
