// Labels of photos, added and removed where they are seen. Each step can be undone, after a reload
// too; where two pages edit, the later one wins, and the other sees it when one comes back to it.

import { annotate, get, post } from "../core/api.js";
import { tellLabels } from "../gallery/details.js";
import { $, el, icon, refill } from "../core/dom.js";
import { toast } from "../core/says.js";
import { percent, plural } from "../core/text.js";
import { state } from "../core/state.js";
import { did, undid } from "../core/undo.js";

/** @import { ToUndo } from "../core/undo.js" */
/** @import { Schemas } from "../core/api.js" */
/** @import { Photo } from "../gallery/details.js" */
/** @typedef {{ id: number, label: string, change: "add" | "remove" }} Change */
/** @typedef {Schemas["LabelStep"]} Step */

const AT_ONCE = 5000; // edits of a request, as the service takes them
const SUGGESTED = 4; // labels that the annotator proposes

/** @param {Step} step */
function inWords({ added, removed, images }) {
  const parts = [
    added.length ? `${added.join(", ")} added` : "",
    removed.length ? `${removed.join(", ")} removed` : "",
  ].filter(Boolean);
  return `${parts.join(", ")}: ${plural(images, "photo")}`;
}

/**
 * What all other photos say of a label, where there are not too many to ask all, and the nearest,
 * before the suggested label.
 * @param {Schemas["LabelToCheck"]} entry
 */
export function verdict({ label, probability, suggested, suggested_probability, suggested_share }) {
  const near = `${percent(suggested_share)} of the nearest photos are `;
  if (typeof probability !== "number" || typeof suggested_probability !== "number") return near;
  const [own, other] = [probability, suggested_probability].map(percent);
  return `${suggested} is ${other} likely, ${label} ${own}. ${near}`;
}

/** @type {Promise<unknown>} */
let saved = Promise.resolve(); // of all steps so far, one after the other
let unsaved = 0;

// Done when the service has all steps: a search after a step uses it.
export const labelsSaved = () => saved;

addEventListener("beforeunload", (event) => {
  if (unsaved) event.preventDefault(); // the browser asks whether to leave
});

/** @template {{ images: Schemas["ImageSummary"][] }} R @param {() => Promise<R>} send */
export async function save(send) {
  state.run.version = null; // what was kept of earlier searches is old
  unsaved += 1;
  const step = saved.then(send);
  saved = step.catch(() => {});
  try {
    const done = await step;
    tellLabels(done.images);
    dispatchEvent(new Event("labelled"));
    return done;
  } finally {
    unsaved -= 1;
  }
}

/**
 * Change labels; so many that one request does not hold them are several steps.
 * @param {Change[]} edits
 * @param {"page" | "queue" | "concept"} [source]
 */
export async function editLabels(edits, source = "page") {
  let changed = 0;
  /** @type {Required<ToUndo>} */
  const toUndo = { steps: 0, of: [] };
  /** @type {any} */
  let done; // the last of them: there is at least one edit
  try {
    for (let at = 0; at < edits.length; at += AT_ONCE) {
      /** @type {{ [of: string]: { ids: number[], label: string, change: "add" | "remove" } }} */
      const of = {}; // images of the same change
      for (const { id, label, change } of edits.slice(at, at + AT_ONCE))
        (of[change + label] ??= { ids: [], label, change }).ids.push(id);
      done = await save(() => post("api/labels", { edits: Object.values(of), source }));
      changed += done.changed;
      // What changes nothing is no step that can be undone.
      if (done.changed) toUndo.steps = toUndo.of.push(done.last.step);
    }
  } finally {
    if (changed) did("labels", () => undoLabels(toUndo));
  }
  return /** @type {Schemas["LabelEditResult"] & { toUndo: ToUndo }} */ ({
    ...done,
    changed,
    toUndo,
  });
}

/**
 * Undo the last steps, not those of another page that came after them; null if one was not undone,
 * with the steps that are left.
 * @param {ToUndo} [toUndo]
 * @returns {Promise<Schemas["LabelEditResult"] | null>}
 */
export async function undoLabels(toUndo = { steps: 1 }) {
  try {
    let changed = 0;
    /** @type {Schemas["LabelEditResult"] | null} */
    let done = null;
    for (; toUndo.steps; toUndo.steps -= 1) {
      const step = toUndo.of?.[toUndo.steps - 1];
      const undone = await save(() => post("api/labels/undo", { step }));
      changed += undone.changed;
      done = undone;
    }
    undid("labels");
    toast(`Undone: ${plural(changed, "photo")} as before.`);
    return done;
  } catch (error) {
    toast(`Not undone: ${error.message}`);
    return null;
  }
}

let lists = 0;

/**
 * A field for a label, with the labels of the run as one types.
 * @param {string} name
 * @param {(label: string) => unknown} act
 * @param {string} [words] on its button
 */
export function labelField(name, act, words = "Add") {
  const id = `labels-${++lists}`;
  const list = el("datalist", { id });
  const input = el("input", {
    type: "text",
    list: id,
    maxlength: 200,
    dir: "auto",
    autocomplete: "off",
    "aria-label": name,
    placeholder: name,
  });
  const suggest = async () => {
    const typed = input.value;
    const answer = await get("api/suggest", { q: typed, kind: "label", limit: 12 }).catch(
      () => null,
    );
    if (answer && input.value === typed)
      list.replaceChildren(...answer.labels.map((label) => el("option", { value: label.name })));
  };
  input.addEventListener("input", () => void suggest());
  input.addEventListener("focus", () => void suggest());
  const form = el("form.row.label-field", input, list, el("button", { type: "submit" }, words));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const label = input.value.trim();
    if (!label) return;
    input.value = "";
    act(label);
  });
  return form;
}

/**
 * The labels of a photo in the viewer.
 * @param {Photo} image
 */
export function labelEditor(image) {
  const section = el("section.labels", { "aria-label": "Labels" });
  const chips = el("ul.chips");
  const proposals = el("div.chips");
  const undo = el("button.plain", { hidden: true }, "Undo");
  /** @type {string[]} */
  let proposed = [];
  /** @type {Change[]} */
  let sent = []; // steps that are seen already, and that the service does not have yet

  const draw = () => {
    const labels = sent.reduce(
      (all, { label, change }) => [
        ...all.filter((one) => one !== label),
        ...(change === "add" ? [label] : []),
      ],
      image.labels,
    );
    refill(chips, [
      ...(labels.length ? [] : [el("li.quiet", "No label")]),
      ...labels.map((label) =>
        el(
          "li.chip",
          el("bdi", label),
          el(
            "button.plain",
            {
              "aria-label": `Remove label ${label}`,
              title: "Remove",
              onclick: () => void edit(label, "remove"),
            },
            icon("cross"),
          ),
        ),
      ),
    ]);
    refill(
      proposals,
      proposed
        .filter((label) => !labels.includes(label))
        .map((label) =>
          el(
            "button.chip",
            {
              "aria-label": `Add suggested label ${label}`,
              onclick: () => void edit(label, "add"),
            },
            icon("plus"),
            el("bdi", label),
          ),
        ),
    );
  };
  /** @type {Step | null} */
  let undone = null; // by the button
  /** @param {Step | null} step */
  const showUndo = (step) => {
    undone = step;
    undo.hidden = !step;
    if (step) refill(undo, ["Undo ", el("bdi", inWords(step))]);
  };
  /** @param {string} label @param {"add" | "remove"} change */
  const edit = async (label, change) => {
    const step = { id: image.id, label, change };
    sent.push(step);
    draw();
    $("input", section).focus({ preventScroll: true });
    try {
      const done = await editLabels([step]);
      showUndo(done.last);
      if (done.behind) toast(`Kept. Searches do not use it yet: ${done.behind}`);
    } catch (error) {
      toast(`The label was not changed: ${error.message}`);
    }
    sent = sent.filter((one) => one !== step);
    draw();
  };
  const read = async () => {
    const [images, { last }] = await Promise.all([
      get("api/images", { ids: String(image.id) }),
      get("api/labels/last"),
    ]);
    tellLabels(images);
    image.labels = images[0]?.labels ?? image.labels;
    showUndo(last);
    draw();
  };
  undo.addEventListener("click", async () => {
    const done = await undoLabels(undone ? { steps: 1, of: [undone.step] } : undefined);
    if (done) showUndo(done.last);
    await read().catch(() => {});
    (undo.hidden ? $("input", section) : undo).focus({ preventScroll: true });
  });
  const again = () => {
    // another page may have edited meanwhile
    if (!section.isConnected) return removeEventListener("focus", again);
    return void read().catch(() => {});
  };
  addEventListener("focus", again);
  const propose = async () => {
    const { labels } = await annotate(image.id, SUGGESTED);
    proposed = labels.map(({ label }) => label);
    draw();
  };
  draw();
  read().catch(() => {});
  if (state.run.n_labels) propose().catch(() => {});
  section.replaceChildren(
    el("h3", "Labels"),
    chips,
    proposals,
    labelField("Add a label", (label) => void edit(label, "add")),
    undo,
  );
  return section;
}
