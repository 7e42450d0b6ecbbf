// The one table of keys: what they do is bound here, and the sheet behind "?" is made from it.

import { $, el } from "./dom.js";
import { remember, remembered, themeButton } from "./remember.js";

/**
 * A key and what it does: `keys` are the names of the events, `shown` stands in the sheet.
 * @typedef {{
 *   id: string,
 *   keys: string[],
 *   control?: boolean,
 *   everywhere?: boolean,
 *   shown: string,
 *   what: string,
 * }} Key
 */
/**
 * What keys do, by the ids of the table; false: the key is not used.
 * @typedef {{ [id: string]: (event: KeyboardEvent) => unknown }} Acts
 */

/** @type {Key[]} */
const SEARCH = [
  { id: "right", keys: ["ArrowRight"], shown: "→", what: "Next result" },
  { id: "left", keys: ["ArrowLeft"], shown: "←", what: "Previous result" },
  { id: "down", keys: ["ArrowDown"], shown: "↓", what: "Result below" },
  { id: "up", keys: ["ArrowUp"], shown: "↑", what: "Result above" },
  { id: "first", keys: ["Home"], shown: "Home", what: "First result" },
  { id: "last", keys: ["End"], shown: "End", what: "Last result shown" },
  { id: "open", keys: [], shown: "Enter", what: "Open the result" },
  { id: "close", keys: [], shown: "Esc", what: "Close the viewer" },
  { id: "pivot", keys: ["s"], shown: "S", what: "Search with this image" },
  { id: "add", keys: ["p"], shown: "P", what: "Add to the query as an example" },
  { id: "subtract", keys: ["m"], shown: "M", what: "Subtract from the query" },
  { id: "relevant", keys: ["a"], shown: "A", what: "Mark as relevant, or remove the mark" },
  { id: "not", keys: ["x"], shown: "X", what: "Mark as not relevant, or remove the mark" },
  { id: "explain", keys: ["e"], shown: "E", what: "Explain the match" },
  { id: "update", keys: ["u"], shown: "U", what: "Update ranking" },
  { id: "beside", keys: ["c"], shown: "C", what: "Compare with the query, in the viewer" },
  { id: "details", keys: ["i"], shown: "I", what: "Show or hide details, in the viewer" },
  { id: "larger", keys: ["+", "="], shown: "+", what: "Zoom in, or larger photos" },
  { id: "smaller", keys: ["-"], shown: "-", what: "Zoom out, or smaller photos" },
  { id: "whole", keys: ["0"], shown: "0", what: "Show the whole photo, in the viewer" },
  { id: "select", keys: [" "], shown: "Space", what: "Select the photo" },
  { id: "extend", keys: [], shown: "Shift →", what: "Select the next photo, too" },
  {
    id: "all",
    keys: ["a"],
    control: true,
    everywhere: true,
    shown: "Ctrl A",
    what: "Select all photos",
  },
  { id: "deselect", keys: ["Escape"], shown: "Esc", what: "Clear the selection" },
  { id: "undo", keys: ["Backspace"], shown: "Backspace", what: "Undo last mark" },
  {
    id: "undo",
    keys: ["z"],
    control: true,
    everywhere: true,
    shown: "Ctrl Z",
    what: "Undo the last mark, label, removal or update",
  },
  { id: "find", keys: [], shown: "/", what: "Go to the search box" },
  { id: "sheet", keys: ["?"], everywhere: true, shown: "?", what: "Show keyboard shortcuts" },
];

/** @type {Key[]} */
const JUDGE = [
  { id: "relevant", keys: ["a"], shown: "A", what: "Relevant" },
  { id: "not", keys: ["x"], shown: "X", what: "Not relevant" },
  { id: "unsure", keys: [" "], shown: "Space", what: "Cannot say" },
  { id: "undo", keys: ["Backspace"], shown: "Backspace", what: "Undo last decision" },
  ...SEARCH.filter(({ everywhere, id }) => everywhere && id !== "all").map((row) => ({
    ...row,
    what: row.id === "undo" ? "Undo last decision" : row.what,
  })),
];

const TABLES = { search: SEARCH, judge: JUDGE };
/** @param {Element} target */
const typing = (target) =>
  target.closest("input:not([type=checkbox], [type=range]), textarea, select, [contenteditable]");

/**
 * Bind the buttons at the top of a page.
 * @param {"search" | "judge"} table
 */
export function bindTop(table) {
  $("#help").addEventListener("click", () => openSheet(table));
  themeButton($("#theme"));
}

/**
 * Bind the keys of a table to functions by id; "?" opens the sheet. Single keys act only inside
 * `within` (WCAG 2.1.4), and not at all when they are switched off in the sheet.
 * @param {"search" | "judge"} table
 * @param {string} within
 * @param {Acts} functions
 */
export function bindKeys(table, within, functions) {
  /** @type {Acts} */
  const acts = { ...functions, sheet: () => openSheet(table) };
  document.addEventListener("keydown", (event) => {
    const target = event.target instanceof Element ? event.target : document.body;
    if (typing(target) || event.altKey) return;
    if (event.repeat && !event.key.startsWith("Arrow")) {
      // one mark, one decision for one press
      if (event.key === "Enter") event.preventDefault();
      return;
    }
    if ($("dialog.small[open]")) return;
    const control = event.ctrlKey || event.metaKey;
    if (control && event.shiftKey) return; // not Redo
    if (
      event.shiftKey &&
      event.key.startsWith("Arrow") &&
      target.closest(within) &&
      acts.extend?.(event)
    )
      return event.preventDefault();
    const pressed = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const entry = TABLES[table].find(
      (row) => row.keys.includes(pressed) && Boolean(row.control) === control,
    );
    if (!entry || !acts[entry.id]) return;
    if (
      !control &&
      !event.key.startsWith("Arrow") &&
      !remembered("keys", true) &&
      entry.id !== "sheet"
    )
      return;
    if (!entry.everywhere && !target.closest(within)) return;
    if (event.key === "Enter" && target.closest("button, a, summary, input")) return;
    if (event.key === " " && target.closest("button, summary, input") && entry.id !== "all") return;
    if (target.matches("input[type=range]") && event.key.startsWith("Arrow")) return;
    if (acts[entry.id](event) !== false) event.preventDefault();
  });
}

/** @param {"search" | "judge"} table */
function openSheet(table) {
  /** @type {HTMLDialogElement} */
  const sheet = $("#keys");
  const off = el("input", { type: "checkbox", checked: remembered("keys", true) });
  off.addEventListener("change", () => remember("keys", off.checked));
  sheet.replaceChildren(
    el("h2", { id: "keys-title" }, "Keyboard shortcuts"),
    el(
      "p.quiet",
      table === "search"
        ? "Available while a photo or the viewer has the focus."
        : "Available anywhere on this page.",
    ),
    el(
      "dl.keys",
      TABLES[table].map((row) => el("div", el("dt", el("kbd", row.shown)), el("dd", row.what))),
    ),
    el("label.check", off, " Enable single-key shortcuts"),
    el("form", { method: "dialog" }, el("button.primary", { type: "submit" }, "Close")),
  );
  sheet.showModal();
}
