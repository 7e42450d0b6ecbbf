// Selecting several photos of a gallery: with the box of a photo, Shift for a range, Space, Ctrl A,
// a drag over photos or a long press. The bar at the foot says what can be done with them.

import { post } from "../core/api.js";
import { complete } from "./details.js";
import { $, activeElement, el, icon, targetOf } from "../core/dom.js";
import { announce, copy, dialogButtons, dock, showDialog, toast } from "../core/says.js";
import { count, plural, present } from "../core/text.js";
import { MARKS } from "./grid.js";
import { go } from "../core/history.js";
import { failure } from "../core/messages.js";
import { asList, state } from "../core/state.js";
import { did, undid } from "../core/undo.js";
import { editLabels, labelField, undoLabels } from "../teach/labels.js";

/** @import { Photo } from "./details.js" */
/** @import { Child, Props } from "../core/dom.js" */
/** @import { Direction, Gallery } from "./gallery.js" */
/** @import { Mark } from "../teach/marks.js" */
/**
 * A pointer that is down, over the image at a place; `sweeping` while it selects, from the images
 * `base` that were selected before; `last` is the place that it has come to.
 * @typedef {{
 *   index: number,
 *   x: number,
 *   y: number,
 *   from: [number, number],
 *   touch: boolean,
 *   sweeping: boolean,
 *   on: boolean,
 *   base: Map<number, Photo>,
 *   last: number,
 *   timer?: number,
 * }} Press
 */
/**
 * What the bar does with the page; `changed` is called with the images removed.
 * @typedef {{
 *   canMark: () => boolean,
 *   canAdd: () => boolean,
 *   add: (images: Photo[]) => void,
 *   markOf: (id: number) => Mark | undefined,
 *   mark: (images: Photo[], value: Mark) => void,
 *   changed: (removed: Photo[]) => Promise<unknown>,
 * }} PageActs
 */

const [LONG, STILL] = [350, 10]; // milliseconds of a long press, pixels that it may move
const AT_ONCE = 5000; // photos of a removal or an archive
const EDGE = 60; // pixels at the edge of the screen that scroll a drag

/** @type {Map<number, Photo>} */
const chosen = new Map(); // by id
/** @type {Gallery | null} */
let gallery = null; // whose photos are chosen
let start = -1; // of a range
/** @type {PageActs} */
let acts; // bound by app.js

export const selection = () => [...chosen.values()];
/** @param {number} id */
export const isSelected = (id) => chosen.has(id);
export const selecting = () => chosen.size > 0;

/** @param {number} before */
function changed(before) {
  document.body.classList.toggle("selecting", chosen.size > 0);
  gallery?.refreshAll();
  drawBar();
  if (before !== chosen.size)
    announce(chosen.size ? `${plural(chosen.size, "photo")} selected.` : "Selection cleared.");
}

/**
 * Select the images between two places, or deselect them.
 * @param {Photo[]} images
 * @param {number} from
 * @param {number} to
 * @param {boolean} on
 */
function choose(images, from, to, on) {
  for (const image of images.slice(Math.min(from, to), Math.max(from, to) + 1))
    if (on) chosen.set(image.id, image);
    else chosen.delete(image.id);
}

/** @param {number} from @param {number} index @param {boolean} on */
function put(from, index, on) {
  const before = chosen.size;
  choose(gallery?.images ?? [], from, index, on);
  changed(before);
}

/** @param {Gallery} other */
function own(other) {
  if (gallery !== other) clearSelection();
  gallery = other;
}

export function clearSelection() {
  if (!chosen.size) return false;
  const before = chosen.size;
  chosen.clear();
  start = -1;
  changed(before);
  return true;
}

/**
 * Select or deselect a place, with `range` all from the last one.
 * @param {Gallery} other
 * @param {number} index
 * @param {boolean} [range]
 */
export function toggle(other, index, range = false) {
  own(other);
  if (index < 0) return;
  if (range && start >= 0) put(start, index, true);
  else put(index, index, !chosen.has(other.images[index].id));
  start = index;
}

/** @param {Gallery} other */
export function selectAll(other) {
  own(other);
  put(0, other.images.length - 1, true);
}

/**
 * Shift with an arrow takes the next photo in.
 * @param {Gallery} other
 * @param {Direction} where
 */
export function extend(other, where) {
  own(other);
  const from = other.focusedIndex();
  const to = from < 0 ? -1 : other.neighbour(from, where);
  if (to < 0) return false;
  if (!chosen.size) start = from;
  put(start < 0 ? from : start, to, true);
  return other.focus(to);
}

/**
 * Bind the pointer to a gallery.
 * @param {Gallery} other
 */
export function bindSelection(other) {
  const { root } = other;
  /** @type {Press | null} */
  let press = null;
  let dragged = false; // so that the click that follows does nothing

  /** @param {number} x @param {number} y */
  const sweep = (x, y) => {
    const index = other.indexAt(x, y);
    if (!press || index < 0 || index === press.last) return;
    press.last = index;
    const before = chosen.size;
    chosen.clear();
    for (const [id, image] of press.base) chosen.set(id, image);
    choose(other.images, press.index, index, press.on);
    changed(before);
  };
  const begin = () => {
    if (!press) return;
    own(other);
    press.sweeping = true;
    press.on = !chosen.has(other.images[press.index].id);
    press.base = new Map(chosen);
    dragged = true;
    start = press.index;
    root.classList.add("sweeping");
    sweep(press.x, press.y);
  };
  const creep = () => {
    // scroll while a drag stands at the edge
    if (!press?.sweeping) return;
    const by =
      press.y < EDGE
        ? press.y - EDGE
        : press.y > innerHeight - EDGE
          ? press.y - innerHeight + EDGE
          : 0;
    if (by) {
      scrollBy(0, by / 3);
      sweep(press.x, press.y);
    }
    requestAnimationFrame(creep);
  };
  const end = () => {
    clearTimeout(press?.timer);
    press = null;
    root.classList.remove("sweeping");
    setTimeout(() => (dragged = false), 0);
  };

  root.addEventListener("pointerdown", (event) => {
    const target = targetOf(event);
    /** @type {HTMLElement | null} */
    const tile = target.closest(".tile[data-index]");
    const withKey = event.ctrlKey || event.metaKey || event.shiftKey;
    if (!tile || event.button || withKey || target.closest(".acts")) return;
    const touch = event.pointerType !== "mouse";
    press = {
      index: Number(tile.dataset.index),
      x: event.clientX,
      y: event.clientY,
      from: [event.clientX, event.clientY],
      touch,
      sweeping: false,
      on: true,
      base: new Map(),
      last: -1,
    };
    if (touch)
      press.timer = setTimeout(() => {
        navigator.vibrate?.(10);
        begin();
        creep();
      }, LONG);
  });
  addEventListener("pointermove", (event) => {
    if (!press || (press.touch && press.sweeping)) return;
    const far = Math.hypot(event.clientX - press.from[0], event.clientY - press.from[1]) > STILL;
    if (press.touch) return void (far && end());
    Object.assign(press, { x: event.clientX, y: event.clientY });
    if (!press.sweeping && far) {
      begin();
      creep();
    }
    if (press.sweeping) sweep(event.clientX, event.clientY);
  });
  root.addEventListener(
    "touchmove",
    (event) => {
      if (!press?.sweeping) return;
      event.preventDefault(); // the finger selects, it does not scroll
      const [{ clientX, clientY }] = event.touches;
      Object.assign(press, { x: clientX, y: clientY });
      sweep(clientX, clientY);
    },
    { passive: false },
  );
  for (const name of ["pointerup", "touchend", "touchcancel"])
    addEventListener(name, () => press && end());
  addEventListener("pointercancel", () => press && !press.sweeping && end());
  root.addEventListener(
    "contextmenu",
    (event) => (press?.touch || dragged) && event.preventDefault(),
  );
  root.addEventListener(
    "click",
    (event) => {
      const target = targetOf(event);
      /** @type {HTMLElement | null} */
      const tile = target.closest(".tile[data-index]");
      if (dragged) return stopClick(event);
      if (!tile || target.closest(".acts")) return;
      const box = target.closest(".select");
      if (!box && !event.shiftKey && !selecting()) return; // a link: app.js
      if (event.ctrlKey || event.metaKey) return;
      stopClick(event);
      toggle(other, Number(tile.dataset.index), event.shiftKey);
    },
    true,
  );
}

/** @param {Event} event */
function stopClick(event) {
  event.preventDefault();
  event.stopPropagation();
}

// ---- the bar

/** @param {PageActs} given */
export const bindActs = (given) => (acts = given);

function drawBar() {
  const bar = $("#selection");
  const focused = bar.contains(activeElement()) ? activeElement().dataset.name : null;
  bar.hidden = !chosen.size;
  dock();
  if (!chosen.size) {
    bar.replaceChildren();
    if (focused && gallery) gallery.focus(Math.max(0, gallery.at), { preventScroll: true });
    return;
  }
  /**
   * @param {string} name
   * @param {Parameters<typeof icon>[0]} sign
   * @param {string} words
   * @param {() => unknown} act
   * @param {Props} [extra]
   */
  const button = (name, sign, words, act, extra = {}) =>
    el("button", { "data-name": name, onclick: act, ...extra }, icon(sign), el("span", words));
  const canMark = acts.canMark();
  bar.replaceChildren(
    ...present([
      el("strong", `${plural(chosen.size, "photo")} selected`),
      canMark && button("relevant", "check", "Relevant", () => acts.mark(selection(), 1)),
      canMark && button("not", "cross", "Not relevant", () => acts.mark(selection(), -1)),
      acts.canAdd() && button("add", "plus", "Add to query", () => acts.add(selection())),
      button("label", "tag", "Label", askForLabel),
      button("concept", "question", "Find more of these", askForConcept),
      button("download", "download", "Download", download),
      button("paths", "copy", "Copy paths", copyPaths),
      button("csv", "table", "Export CSV", exportCsv),
      button("remove", "bin", "Remove", askToRemove),
      button("clear", "cross", "Clear selection", clearSelection, { class: "clear" }),
    ]),
  );
  if (focused) $(`[data-name="${focused}"]`, bar)?.focus();
}

/**
 * A file that the browser makes.
 * @param {string} name
 * @param {string} type
 * @param {string} text
 */
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function download() {
  const images = selection();
  if (images.length > AT_ONCE) return toast(`An archive holds at most ${count(AT_ONCE)} photos.`);
  if (images.length === 1)
    return el("a", { href: `images/${images[0].id}/original`, download: "" }).click();
  const form = el(
    "form",
    { method: "post", action: "images/download", hidden: true },
    el("input", { type: "hidden", name: "ids", value: images.map((image) => image.id).join(",") }),
  );
  document.body.append(form);
  form.submit();
  form.remove();
  return toast(`Downloading ${plural(images.length, "photo")} as photos.zip.`);
}

/** @param {(images: Photo[]) => unknown} act */
async function withDetails(act) {
  try {
    await act(await complete(selection()));
  } catch (error) {
    toast(error.message);
  }
}

const copyPaths = () =>
  withDetails((images) =>
    copy(images.map((image) => image.path).join("\n"), plural(images.length, "path")),
  );

/** @param {unknown} value */
const cell = (value) => {
  let text = String(value ?? "");
  if (/^[=+@\t\r-]/.test(text) && isNaN(+text)) text = `'${text}`; // no formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const NAMES = /** @type {const} */ ([
  "rank",
  "id",
  "path",
  "labels",
  "score",
  "mark",
  "width",
  "height",
]);

const exportCsv = () =>
  withDetails((images) => {
    const rows = images.map((image) => ({
      ...image,
      labels: image.labels.join("|"),
      mark: MARKS[acts.markOf(image.id) ?? 0],
    }));
    save(
      "photos.csv",
      "text/csv;charset=utf-8",
      [NAMES, ...rows.map((row) => NAMES.map((name) => row[name]))]
        .map((row) => row.map(cell).join(","))
        .join("\r\n") + "\r\n",
    );
    toast(`${plural(images.length, "row")} saved as photos.csv.`);
  });

// ---- labels of all of them

/**
 * Change the labels of the photos selected.
 * @param {{ label: string, change: "add" | "remove" }[]} changes
 * @param {Parameters<typeof editLabels>[1]} [source]
 */
async function relabel(changes, source) {
  /** @type {HTMLDialogElement} */ ($("#confirm")).close();
  try {
    return await editLabels(
      selection().flatMap(({ id }) => changes.map((one) => ({ id, ...one }))),
      source,
    );
  } catch (error) {
    return void toast(`No label was changed: ${error.message}`);
  }
}

function askForLabel() {
  /** @param {"add" | "remove"} change @param {string} words @param {string} [old] it replaces */
  const edit = (change, words, old) => async (/** @type {string} */ label) => {
    const done = await relabel([
      { label, change },
      ...(old && old !== label ? [{ label: old, change: /** @type {const} */ ("remove") }] : []),
    ]);
    if (done?.changed)
      toast(
        `${label} ${words} ${plural(done.changed, "photo")}.`,
        "Undo",
        () => void undoLabels(done.toUndo),
      );
    else if (done) toast(`Nothing to ${change}.`);
  };
  const [album, ...more] = state.request.view ? asList(state.request.label) : [];
  const dialog = showDialog(
    `Labels of ${plural(chosen.size, "photo")}`,
    labelField("Label to add", edit("add", "added to"), "Add"),
    labelField("Label to remove", edit("remove", "removed from"), "Remove"),
    album && !more.length
      ? labelField(
          `Label instead of ${album}`,
          edit("add", `replaces ${album} on`, album),
          "Replace",
        )
      : "",
    dialogButtons(["Cancel"]),
  );
  $("input", dialog).focus();
}

function askForConcept() {
  const dialog = showDialog(
    `Find more like ${chosen.size > 1 ? `these ${count(chosen.size)} photos` : "this photo"}`,
    el("p", "Name what they show, then say yes or no to a few others. The rest is found."),
    labelField(
      "Label",
      async (label) => {
        if (!(await relabel([{ label, change: "add" }], "concept"))) return;
        clearSelection();
        await go({ view: "concept", label });
      },
      "Begin",
    ),
    dialogButtons(["Cancel"]),
  );
  $("input", dialog).focus();
}

// ---- removing: asked once, and undone

function askToRemove() {
  const images = selection();
  const many = plural(images.length, "photo");
  showDialog(
    `Remove ${many} from the collection?`,
    el(
      "p",
      "Searches will not find them any more. The files stay where they are. " +
        "You can undo this.",
    ),
    dialogButtons(["Cancel"], [`Remove ${many}`, () => void remove(images), "primary danger"]),
  );
}

/** @param {Photo[]} images */
async function remove(images) {
  /** @type {string[]} */
  const tokens = [];
  let [n, more] = [0, ""];
  try {
    for (let at = 0; at < images.length; at += AT_ONCE) {
      const ids = images.slice(at, at + AT_ONCE).map((image) => image.id);
      const done = await post("api/images/remove", { ids });
      tokens.push(String(done.undo));
      n += done.changed;
      more = done.behind ? ` Searches still find them: ${done.behind}.` : "";
    }
  } catch (error) {
    if (!n) return toast(`Nothing was removed: ${error.message}`);
    more = ` The others were not: ${error.message}`;
  }
  clearSelection();
  did("removal", () => restore(tokens));
  await acts.changed(images).catch(failure);
  toast(
    `${plural(n, "photo")} removed from the collection.${more}`,
    "Undo",
    () => void restore(tokens),
  );
  return null;
}

/** @param {string[]} tokens those that were restored are taken out */
export async function restore(tokens) {
  let [n, more] = [0, ""];
  try {
    for (; tokens.length; tokens.pop()) {
      const done = await post("api/images/restore", { undo: tokens[tokens.length - 1] });
      n += done.changed;
      if (done.behind) more = ` Searches do not find them yet: ${done.behind}.`;
    }
    undid("removal");
    await acts.changed([]);
    toast(`${plural(n, "photo")} restored.${more}`);
  } catch (error) {
    toast(`Not restored: ${error.message}`, "Retry", () => void restore(tokens));
  }
}
