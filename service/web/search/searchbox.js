// The search box: labels, folders, file names and ids as somebody types; pictures and addresses
// that are pasted.

import { FILTERS, pick, queryOf } from "../core/address.js";
import { get, post } from "../core/api.js";
import { $, $$, activeElement, el, icon, targetOf } from "../core/dom.js";
import { picture } from "../core/pictures.js";
import { announce, toast } from "../core/says.js";
import { count, fileName, plural, present } from "../core/text.js";
import { addExamples } from "./examples.js";
import { searchUpload } from "./files.js";
import { change, go } from "../core/history.js";
import { failure } from "../core/messages.js";
import { asList, settings, state } from "../core/state.js";

const WEB_ADDRESS = /^https?:\/\/\S+$/i;
const WORDS = "Search by photo, words, file name or id";
const MAX_NAME = 300; // characters that names are looked for with

/** @import { Request } from "../core/address.js" */
/** @import { Child } from "../core/dom.js" */

/** @type {HTMLInputElement} */
const input = $("#q");
const list = $("#suggestions");
/** @type {HTMLElement[]} */
let options = []; // on the list
let chosen = -1;
let nothing = false; // is called like what was typed
let asked = 0; // number of the last request: an earlier answer is dropped
/** @type {Error | null} */
let failed = null; // why there is no list

const isOpen = () => !list.hidden;
const inResults = () => Boolean(queryOf(state.request)) && !state.request.view;

/**
 * What a text asks for, and whether without it.
 * @param {string} text
 */
function parse(text) {
  const [, minus, kind] = /^(-?)(label|folder|id):/i.exec(text) ?? ["", "", ""];
  if (!kind) return { kind: state.adding ? "image" : "all", text, without: false };
  const rest = text.slice(minus.length + kind.length + 1).replace(/^"|"$/g, "");
  const of = kind.toLowerCase();
  return {
    kind: of === "id" ? "image" : of,
    text: of === "id" ? `id:${rest}` : rest,
    without: minus === "-",
  };
}

// ---- what choices do

/**
 * Filters of what the page shows: results of a query, an album, or, from anywhere else, a new
 * album.
 * @param {Request} values
 */
function filter(values) {
  const { request } = state;
  if (inResults() || request.view === "album") return change({ ...values, metric: undefined });
  return go({ view: "album", ...values });
}

/** @param {"label" | "not_label"} name @param {string} value */
const including = (name, value) => [...new Set([...asList(state.request[name]), value])];

/** @param {string} name @param {boolean} without */
function chooseLabel(name, without) {
  if (without)
    return filter({
      not_label: including("not_label", name),
      label: asList(state.request.label).filter((one) => one !== name),
    });
  if (inResults()) return filter({ label: including("label", name) });
  return go({ view: "album", label: name });
}

/** @param {string} folder */
const chooseFolder = (folder) =>
  inResults() ? filter({ folder: folder || "." }) : go({ view: "album", folder: folder || "." });

/** @param {string} url */
async function searchAddress(url) {
  if (!state.run.limits.fetch_urls)
    return toast(
      "This service does not fetch web addresses. Save the picture and drop it here, or " +
        "start the service with --fetch-urls.",
    );
  const example = state.adding;
  try {
    const { upload, name } = await post("api/fetch", { url });
    await searchUpload(upload, name, example);
  } catch (error) {
    failure(error);
  }
}

function showThree() {
  toast("Select three photos that show it, then “Find more of these”.");
  return go({ view: "photos" });
}

/** @param {string} text */
const nothingCalled = (text) => `Nothing here is called “${text.slice(0, 60)}”.`;
const TRY = "Try a part of a label or file name.";
const SHOW_THREE = "Show three photos of it";

/** Say that no label is called like the words of an address. @param {string} text */
export const failByName = (text) =>
  failure(new Error(TRY), showThree, nothingCalled(text), SHOW_THREE);

// ---- the list

/** @returns {Promise<void>} */
async function suggest() {
  const mine = ++asked;
  const text = input.value.trim();
  if (WEB_ADDRESS.test(text))
    return draw([
      group("Web address", [
        option(
          { label: text, what: "Search with the picture at this address" },
          () => searchAddress(text),
          icon("image"),
        ),
      ]),
    ]);
  const { kind, text: words, without } = parse(text);
  const matches = await get("api/suggest", {
    q: words.slice(0, MAX_NAME),
    kind,
    limit: kind === "all" ? 6 : 12,
  }).catch((/** @type {Error} */ error) => error);
  if (mine !== asked) return;
  failed = matches instanceof Error ? matches : null;
  if (matches instanceof Error) return draw([]); // what stood there is of another text
  /** @param {string} label @param {string} what @param {string} [text_by] */
  const showing = (label, what, text_by) =>
    option(
      { label, what },
      () => go({ text: words, text_by, ...pick(settings(), FILTERS) }),
      icon("image"),
    );
  const groups = present([
    matches.labels.length &&
      group(
        "Labels",
        matches.labels.map(({ name, images }) =>
          option(
            { label: `${without ? "−" : ""}${name}`, what: without ? "leave out" : count(images) },
            () => chooseLabel(name, without),
            icon("tag"),
          ),
        ),
      ),
    matches.folders.length &&
      group(
        "Folders",
        matches.folders.map(({ name, images }) =>
          option(
            { label: name || "(image directory)", what: count(images) },
            () => chooseFolder(name),
            icon("folder"),
          ),
        ),
      ),
    matches.images.length &&
      group(
        state.adding ? "Add to the query" : "Search with",
        matches.images.map((image) =>
          option(
            { label: fileName(image.path), what: image.labels.join(", ") || `id ${image.id}` },
            () => (state.adding ? addExamples([image.id]) : go({ id: image.id, ...settings() })),
            picture(image, { size: 128, lazy: false }),
          ),
        ),
      ),
    (matches.words.length || matches.text_model) &&
      !state.adding &&
      group(
        "Photos that show",
        present([
          matches.words.length && showing(matches.words.join(" + "), "by labels"),
          matches.text_model && showing(words, "by the text model", "model"),
        ]),
      ),
  ]);
  const none = () => [
    el("p.quiet.none", nothingCalled(words)),
    option({ label: SHOW_THREE, what: "and find more" }, showThree, icon("question")),
  ];
  nothing = !groups.length && Boolean(text);
  draw(nothing && kind === "all" ? none() : groups);
  if (activeElement() === input)
    announce(
      options.length
        ? `${plural(options.length, "suggestion")}. Use the arrow keys to choose.`
        : "No suggestions.",
    );
}

/** @param {string} name @param {Child} entries */
const group = (name, entries) =>
  el(
    "div",
    { role: "group", "aria-label": name },
    el("p.quiet", { "aria-hidden": "true" }, name),
    entries,
  );

/**
 * @param {{ label: string, what: string }} words
 * @param {() => unknown} choose
 * @param {Child} sign
 */
function option({ label, what }, choose, sign) {
  const node = el(
    "div",
    { role: "option", id: `option-${optionId++}`, "aria-selected": "false" },
    el("span.sign", sign),
    el("span.named", { dir: "auto" }, label),
    el("span.quiet", { dir: "auto" }, what),
  );
  made.set(node, choose);
  // The field keeps the focus.
  node.addEventListener("pointerdown", (event) => event.preventDefault());
  node.addEventListener("click", () => take(node));
  return node;
}

let optionId = 0;
/** @type {WeakMap<Element, () => unknown>} */
const made = new WeakMap(); // what each option does

/** @param {Element[]} groups */
function draw(groups) {
  const before = options[chosen]?.textContent; // a later answer must not take the choice away
  list.replaceChildren(...groups);
  options = $$("[role=option]", list);
  chosen = -1;
  input.removeAttribute("aria-activedescendant");
  const again = options.findIndex((node) => node.textContent === before);
  if (again >= 0) move(again + 1);
  list.hidden = !groups.length || activeElement() !== input;
  input.setAttribute("aria-expanded", String(isOpen() && options.length > 0));
}

function close() {
  asked++;
  options = [];
  chosen = -1;
  list.hidden = true;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

/** @param {number} by */
function move(by) {
  if (!options.length) return;
  options[chosen]?.setAttribute("aria-selected", "false");
  chosen = (chosen + by + options.length + (chosen < 0 && by < 0 ? 1 : 0)) % options.length;
  options[chosen].setAttribute("aria-selected", "true");
  options[chosen].scrollIntoView({ block: "nearest" });
  input.setAttribute("aria-activedescendant", options[chosen].id);
}

/** @param {HTMLElement} node */
function take(node) {
  const choose = made.get(node);
  input.value = "";
  close();
  choose?.();
  stopAdding();
}

// ---- adding examples

export function startAdding() {
  state.adding = true;
  input.placeholder = "Add an example: file name or id";
  input.setAttribute("aria-label", input.placeholder);
  $("#find").classList.add("adding");
  input.focus();
  suggest();
}

function stopAdding() {
  state.adding = false;
  input.placeholder = WORDS;
  input.setAttribute("aria-label", WORDS);
  $("#find").classList.remove("adding");
}

// ---- filters as chips

/** @param {string} words @param {() => unknown} onclick */
export const filterChip = (words, onclick) =>
  el(
    "button.chip",
    { "aria-label": `Remove filter: ${words}`, onclick },
    el("span", { dir: "auto" }, words),
    el("span", { "aria-hidden": "true" }, "×"),
  );

/** The chips of the filters by label, folder, date and field. */
export function filterChips() {
  const { label, not_label, folder, after, before, where } = state.request;
  // What stays is read at the click: another filter may have gone since the chips were drawn.
  /** @param {string} words @param {() => Request} left */
  const chip = (words, left) => filterChip(words, () => change({ ...left(), metric: undefined }));
  /** @typedef {"label" | "not_label" | "where"} Name */
  /** @param {Name} name @param {string} value @returns {() => Request} */
  const without = (name, value) => () => {
    const rest = asList(state.request[name]).filter((one) => one !== value);
    return { [name]: rest.length ? rest : undefined };
  };
  return present([
    ...asList(label).map((name) => chip(`label: ${name}`, without("label", name))),
    ...asList(not_label).map((name) => chip(`-label: ${name}`, without("not_label", name))),
    folder && chip(`folder: ${folder}`, () => ({ folder: undefined })),
    after && chip(`from ${after}`, () => ({ after: undefined })),
    before && chip(`before ${before}`, () => ({ before: undefined })),
    ...asList(where).map((condition) => chip(condition, without("where", condition))),
  ]);
}

// ---- events

export function bindSearchBox() {
  /** @type {number | undefined} */
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(suggest, 60);
  });
  input.addEventListener("focus", () => suggest());
  input.addEventListener("blur", ({ relatedTarget }) => {
    close();
    const within = relatedTarget instanceof Node && $("#find").contains(relatedTarget);
    if (!input.value && !within) stopAdding();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (isOpen()) move(event.key === "ArrowDown" ? 1 : -1);
      else suggest();
    } else if (event.key === "Escape") {
      if (isOpen()) close();
      else if (state.adding) stopAdding();
      else input.value = "";
      event.preventDefault();
    } else if (
      event.key === "Backspace" &&
      !input.value &&
      FILTERS.some((name) => name in state.request)
    ) {
      const chips = $$(".chip[aria-label^='Remove filter: ']");
      chips.findLast((chip) => chip.checkVisibility())?.click();
    }
  });
  $("#find").addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    const text = input.value.trim();
    if (!text) return;
    if (chosen < 0) await suggest(); // what was typed last
    const node = nothing && chosen < 0 ? null : options[Math.max(chosen, 0)];
    if (node) take(node);
    else if (failed) failure(failed);
    else toast(`${nothingCalled(text)} ${TRY}`, SHOW_THREE, showThree);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]"))
      return;
    if (targetOf(event).closest?.("input, textarea, select")) return;
    event.preventDefault();
    input.focus();
  });
  document.addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) return;
    if (targetOf(event).closest?.("input, textarea")) return;
    const text = event.clipboardData?.getData("text/plain").trim() ?? "";
    if (!WEB_ADDRESS.test(text)) return;
    event.preventDefault();
    searchAddress(text);
  });
  addEventListener("drop", (event) => {
    // a picture dragged from another page
    const lines = event.dataTransfer?.getData("text/uri-list").split("\n") ?? [];
    const address = lines.find((line) => WEB_ADDRESS.test(line));
    const files = event.dataTransfer?.files.length;
    if (!address || files || address.startsWith(location.origin)) return;
    event.preventDefault();
    searchAddress(address);
  });
  $("#camera").addEventListener("click", () => $("#photo").click());
}
