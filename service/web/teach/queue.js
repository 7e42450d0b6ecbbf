// The queue of labels to check: one photo at a time, its label, the label that fits better, and the
// nearest photos as evidence. Y takes the suggestion, N keeps the label for good, a label typed
// takes its place. Decisions are label edits: undone like any other.

import { addressOf } from "../core/address.js";
import { learnIfStale } from "./again.js";
import { get, search } from "../core/api.js";
import { announce, box, el, icon, keyName, picture, plural } from "../core/dom.js";
import { editLabels, labelField, undoLabels, verdict } from "./labels.js";
import { bindLetters, oneByOne } from "./onebyone.js";
import { asList, state } from "../core/state.js";
import { addView } from "../core/views.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["LabelToCheck"]} Entry */

const NEIGHBOURS = 6;
const LEARN_EVERY = 20; // decisions
let decided = 0; // since the page was loaded
const keys = bindLetters("queue");

/** @param {HTMLElement} section @param {Request} request */
async function showQueue(section, request) {
  const [label] = asList(request.label);
  let skipped = 0;

  const next = async () => {
    const part = await get("api/check", { label, offset: skipped, limit: 1 });
    const [entry] = part.entries;
    const near = entry
      ? await search({ id: entry.image.id, k: NEIGHBOURS + 1 }).catch(() => null)
      : null;
    if (state.request.view !== "queue") return;
    const others = near?.results.filter((one) => one.id !== entry.image.id) ?? [];
    draw(entry, part.total - skipped, others.slice(0, NEIGHBOURS));
  };

  const step = oneByOne(next);

  /** @param {Entry} entry @param {string} right the label that the photo has from now on */
  const decide = (entry, right) =>
    step(async () => {
      const { id } = entry.image;
      /** @type {Schemas["LabelChange"][]} */
      const edits = [{ id, label: right, change: "add" }];
      if (right !== entry.label) edits.unshift({ id, label: entry.label, change: "remove" });
      await editLabels(edits, "queue");
      decided += 1;
      announce(`${right}.`);
      if (decided % LEARN_EVERY === 0) void learnIfStale();
    });

  const undo = () =>
    step(async () => {
      if (await undoLabels()) decided = Math.max(0, decided - 1);
    }, true);

  /**
   * @param {Entry | undefined} entry
   * @param {number} left
   * @param {Schemas["SearchResult"][]} near
   */
  const draw = (entry, left, near) => {
    const done = el("p", { class: "quiet" }, `${decided} decided, ${plural(left, "photo")} left.`);
    const bar = el("progress", {
      value: decided,
      max: Math.max(1, decided + left),
      "aria-label": "Progress",
    });
    const head = [
      el(
        "div",
        { class: "row head" },
        el("h1", {}, label ? `Check the label ${label}` : "Check these labels"),
        el("a", { href: addressOf({ view: "check", label }), "data-go": "link" }, "Show all"),
      ),
      el("div", { class: "row" }, bar, done),
    ];
    const back = el("button", { type: "button", onclick: undo }, "Undo ", keyName("U"));
    if (!entry) {
      keys({ u: undo });
      section.replaceChildren(
        ...head,
        box("No label is left to check", el("p", {}, "All labels look right, or were checked.")),
        el("div", { class: "row" }, back),
      );
      return;
    }
    const yes = () => void decide(entry, entry.suggested);
    const no = () => void decide(entry, entry.label);
    const later = () =>
      void step(async () => {
        skipped += 1;
      });
    keys({ y: yes, n: no, s: later, u: undo });
    const share = Math.round(100 * entry.suggested_share);
    section.replaceChildren(
      ...head,
      el(
        "div",
        { class: "doubt" },
        el(
          "a",
          { href: addressOf({ id: entry.image.id }), "data-go": "link", class: "doubted" },
          picture(entry.image, { alt: `Photo ${entry.image.path}`, lazy: false }),
        ),
        el(
          "div",
          {},
          el("p", {}, "Labelled ", el("strong", { dir: "auto" }, entry.label), "."),
          el(
            "p",
            {},
            verdict(entry),
            `${share} % of the nearest photos are `,
            el("strong", { dir: "auto" }, entry.suggested),
            ".",
          ),
          el(
            "div",
            { class: "row" },
            el(
              "button",
              { type: "button", class: "primary", onclick: yes, "aria-keyshortcuts": "Y" },
              icon("check"),
              el("bdi", {}, `It is ${entry.suggested}`),
              keyName("Y"),
            ),
            el(
              "button",
              { type: "button", onclick: no, "aria-keyshortcuts": "N" },
              el("bdi", {}, `${entry.label} is right`),
              keyName("N"),
            ),
            el("button", { type: "button", onclick: later }, "Skip ", keyName("S")),
            back,
          ),
          labelField("Another label", (other) => void decide(entry, other), "Use"),
          el("h2", {}, "Nearest photos"),
          el(
            "ul",
            { class: "evidence" },
            near.map((one) =>
              el(
                "li",
                {},
                picture(one, {
                  alt: `Labelled ${one.labels.join(", ") || "nothing"}`,
                  lazy: false,
                }),
                el("span", { dir: "auto" }, one.labels.join(", ")),
              ),
            ),
          ),
        ),
      ),
    );
    announce(`Labelled ${entry.label}. Suggested: ${entry.suggested}.`);
  };

  await next();
}

addView("queue", { title: "Check these labels", show: showQueue });
