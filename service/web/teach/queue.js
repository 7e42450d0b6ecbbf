// The queue of labels to check: one photo at a time, its label, the label that fits better, and the
// nearest photos as evidence. Y takes the suggestion, N keeps the label for good, a label typed
// takes its place. Decisions are label edits: undone like any other. The next photos are there
// before they are asked about, and a decision is saved while the next one is looked at.

import { learnIfStale } from "./again.js";
import { get, search } from "../core/api.js";
import { $, activeElement, el, icon, keyName, link } from "../core/dom.js";
import { picture, thumbnail } from "../core/pictures.js";
import { failure } from "../core/messages.js";
import { announce, box } from "../core/says.js";
import { plural } from "../core/text.js";
import { zoomable } from "../gallery/zoom.js";
import { editLabels, labelField, labelsSaved, undoLabels, verdict } from "./labels.js";
import { bindLetters, oneByOne } from "./onebyone.js";
import { asList, state } from "../core/state.js";
import { addView } from "../core/views.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["LabelToCheck"]} Entry */

/** @typedef {{ entry: Entry, near: Promise<Schemas["SearchResult"][]> }} Ready */

const NEIGHBOURS = 6;
const AHEAD = 2; // photos that are there before they are asked about
const SIZE = 1024; // pixels
const LEARN_EVERY = 20; // decisions
let decided = 0; // since the page was loaded
const keys = bindLetters("queue");

/** @param {HTMLElement} section @param {Request} request */
async function showQueue(section, request) {
  const [label] = asList(request.label);
  let [skipped, left] = [0, 0];
  /** @type {("skipped" | ReturnType<typeof editLabels>)[]} */
  const acts = []; // since the page was opened
  /** @type {Ready[]} */
  let ready = []; // the first is on the page
  /** @type {Set<string>} */
  const passed = new Set(); // decided and skipped, which an answer under way may still list
  /** @type {(entry: Entry) => string} */
  const nameOf = (entry) => `${entry.image.id} ${entry.label}`;

  /** @param {Entry} entry @returns {Ready} */
  const prepare = (entry) => {
    new Image().src = thumbnail(entry.image, SIZE);
    const near = search({ id: entry.image.id, k: NEIGHBOURS + 1 }).then(
      ({ results }) => results.filter((one) => one.id !== entry.image.id).slice(0, NEIGHBOURS),
      () => [],
    );
    return { entry, near };
  };

  const fill = async () => {
    await labelsSaved();
    const part = await get("api/check", { label, offset: skipped, limit: AHEAD + 1 });
    left = part.total - skipped;
    const known = new Set([...passed, ...ready.map(({ entry }) => nameOf(entry))]);
    ready.push(...part.entries.filter((entry) => !known.has(nameOf(entry))).map(prepare));
  };

  const next = async () => {
    if (!ready.length) await fill();
    if (state.request.view !== "queue") return;
    draw(ready[0]);
    if (ready.length && ready.length <= AHEAD) void fill().catch(failure);
  };

  const step = oneByOne(next);

  const pass = () => {
    const [gone] = ready.splice(0, 1);
    if (gone) passed.add(nameOf(gone.entry));
    left -= 1;
  };

  /** What is ahead is read again. */
  const again = () => {
    passed.clear();
    ready = [];
  };

  /** @param {Entry} entry @param {string} right the label that the photo has from now on */
  const decide = (entry, right) =>
    step(async () => {
      const { id } = entry.image;
      /** @type {import("./labels.js").Change[]} */
      const edits = [{ id, label: right, change: "add" }];
      if (right !== entry.label) edits.unshift({ id, label: entry.label, change: "remove" });
      decided += 1;
      const learns = decided % LEARN_EVERY === 0;
      const edit = editLabels(edits, "queue");
      acts.push(edit);
      edit.then(
        () => void (learns && learnIfStale()),
        (error) => {
          decided -= 1;
          acts.splice(acts.indexOf(edit), 1);
          again();
          void step(async () => {}, true).then(() => failure(error));
        },
      );
      pass();
      announce(`${right}.`);
    });

  const undo = () =>
    step(async () => {
      const last = acts.at(-1);
      const toUndo = last === "skipped" ? undefined : (await last)?.toUndo;
      if (last === "skipped") skipped -= 1;
      else if (toUndo?.steps === 0 || (await undoLabels(toUndo)))
        decided = Math.max(0, decided - 1);
      else return;
      acts.pop();
      again();
    }, true);

  /** @param {Ready | undefined} first */
  const draw = (first) => {
    const entry = first?.entry;
    const focused = section.contains(activeElement()) ? activeElement().dataset.name : null;
    const done = el("p.quiet", `${decided} decided, ${plural(left, "photo")} left.`);
    const bar = el("progress", {
      value: decided,
      max: Math.max(1, decided + left),
      "aria-label": "Progress",
    });
    const head = [
      el(
        "div.row.head",
        el("h1", label ? `Check the label ${label}` : "Check these labels"),
        link({ view: "check", label }, "Show all"),
      ),
      el("div.row", bar, done),
    ];
    const back = el("button", { onclick: undo, "data-name": "undo" }, "Undo ", keyName("U"));
    if (!first || !entry) {
      keys({ u: undo });
      section.replaceChildren(
        ...head,
        box("No label is left to check", "All labels look right, or were checked."),
        el("div.row", back),
      );
      return;
    }
    const yes = () => void decide(entry, entry.suggested);
    const no = () => void decide(entry, entry.label);
    const later = () =>
      void step(async () => {
        skipped += 1;
        acts.push("skipped");
        pass();
      });
    const photo = picture(entry.image, {
      size: SIZE,
      alt: `Photo ${entry.image.path}`,
      lazy: false,
    });
    const stage = el("div.doubted.zooms", photo);
    const zoom = zoomable(stage, [photo], {});
    const wheel = stage.onwheel;
    // The wheel scrolls the page until the photo is enlarged.
    stage.onwheel = (event) => (event.ctrlKey || zoom.scale > 1 ? wheel?.call(stage, event) : null);
    const enlarge = () => (zoom.scale > 1 ? zoom.reset() : zoom.zoom(2.5));
    keys({ y: yes, n: no, s: later, u: undo, z: enlarge });
    const evidence = el("ul.evidence");
    void first.near.then((near) =>
      evidence.replaceChildren(
        ...near.map((one) =>
          el(
            "li",
            picture(one, { alt: `Labelled ${one.labels.join(", ") || "nothing"}`, lazy: false }),
            el("span", { dir: "auto" }, one.labels.join(", ")),
          ),
        ),
      ),
    );
    section.replaceChildren(
      ...head,
      el(
        "div.doubt",
        stage,
        el(
          "div",
          el("p", "Labelled ", el("strong", { dir: "auto" }, entry.label), "."),
          el(
            "p",
            "Compared with all other photos, ",
            verdict(entry),
            el("strong", { dir: "auto" }, entry.suggested),
            ".",
          ),
          el(
            "div.row",
            el(
              "button.primary",
              { onclick: yes, "aria-keyshortcuts": "Y", "data-name": "yes" },
              icon("check"),
              el("bdi", `It is ${entry.suggested}`),
              keyName("Y"),
            ),
            el(
              "button",
              { onclick: no, "aria-keyshortcuts": "N", "data-name": "no" },
              el("bdi", `${entry.label} is right`),
              keyName("N"),
            ),
            el("button", { onclick: later, "data-name": "skip" }, "Skip ", keyName("S")),
            back,
            el("button", { onclick: enlarge, "data-name": "zoom" }, "Zoom ", keyName("Z")),
          ),
          labelField("Another label", (other) => void decide(entry, other), "Use"),
          el("h2", "Nearest photos"),
          evidence,
          el("p", link({ id: entry.image.id }, "Search with this photo")),
        ),
      ),
    );
    if (focused) $(`[data-name="${focused}"]`, section)?.focus({ preventScroll: true });
    announce(`Labelled ${entry.label}. Suggested: ${entry.suggested}.`);
  };

  await next();
}

addView("queue", { title: "Check these labels", show: showQueue });
