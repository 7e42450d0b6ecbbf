// What all parts of the page share: elements and icons. Text from the server is only ever set as
// text (textContent, attributes), never as markup.

import { addressOf } from "./address.js";

/**
 * Attributes of an element; null, undefined and false leave one out. `style` holds properties of
 * CSS, and a name that begins with "on" names an event.
 * @typedef {{
 *   [name: string]: any,
 *   style?: { [name: string]: string | number },
 *   onclick?: (event: any) => unknown,
 *   onchange?: (event: any) => unknown,
 *   oninput?: (event: any) => unknown,
 *   onkeydown?: (event: any) => unknown,
 * }} Props
 */
/** @import { Request } from "./address.js" */
/** @typedef {Node | string | number | boolean | null | undefined | readonly unknown[]} Child */
/** @typedef {[Props, ...Child[]] | Child[]} Parts attributes, where there are some, and children */

const SVG = "http://www.w3.org/2000/svg";

/** @param {unknown} child */
const isPresent = (child) => child !== null && child !== undefined && child !== false;

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} node
 * @param {string[]} classes
 * @param {Parts} parts
 */
function fill(node, classes, [first, ...rest]) {
  const named = first?.constructor === Object;
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(named ? first : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [key, entry] of Object.entries(value)) node.style.setProperty(key, String(entry));
    else node.setAttribute(name, value === true ? "" : value);
  }
  const children = named ? rest : [first, ...rest];
  node.append(.../** @type {(string | Node)[]} */ (children.flat(Infinity).filter(isPresent)));
  return node;
}

/**
 * The element that a selector names: null where there is none, which its type does not say.
 * @template {Element} [E=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 */
export const $ = (selector, root = document) => /** @type {E} */ (root.querySelector(selector));

/**
 * All elements that a selector names.
 * @template {Element} [E=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 */
export const $$ = (selector, root = document) =>
  /** @type {E[]} */ ([...root.querySelectorAll(selector)]);

/**
 * An element: "p.quiet" with a class, its attributes where it has some, what is in it. A button
 * submits nothing unless its type says so.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T | `${T}.${string}`} tag
 * @param {Parts} parts
 */
export const el = (tag, ...parts) => {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(/** @type {T} */ (name));
  if (name === "button") node.setAttribute("type", "button");
  return fill(node, classes, parts);
};

/**
 * @template {keyof SVGElementTagNameMap} T
 * @param {T | `${T}.${string}`} tag
 * @param {Parts} parts
 */
export const svg = (tag, ...parts) => {
  const [name, ...classes] = tag.split(".");
  return fill(document.createElementNS(SVG, /** @type {T} */ (name)), classes, parts);
};

/**
 * A link within the page: no page is loaded.
 * @param {Request} request
 * @param {Child} words
 * @param {Props} [props]
 */
export const link = (request, words, props) =>
  el("a", { href: addressOf(request), "data-go": "link", ...props }, words);

/**
 * Replace the children of an element, but keep those that look the same, with their listeners: a
 * button that is replaced while it is pressed is never clicked.
 * @param {Element} parent
 * @param {(Node | string)[]} parts
 */
export function refill(parent, parts) {
  const old = [...parent.childNodes];
  const nodes = parts.map((part) => {
    const node = typeof part === "string" ? new Text(part) : part;
    const same = old.findIndex((one) => one.isEqualNode(node));
    return same < 0 ? node : old.splice(same, 1)[0];
  });
  for (const one of old) one.remove();
  nodes.forEach((node, i) => {
    const there = parent.childNodes[i] ?? null;
    if (there !== node) parent.insertBefore(node, there);
  });
}

const ICONS = {
  check: "M4 12.5l5 5L20 6.5",
  cross: "M6 6l12 12M18 6L6 18",
  search: "M16 16l5 5M18 10.5a7.5 7.5 0 1 1-15 0a7.5 7.5 0 0 1 15 0z",
  left: "M15 5l-7 7l7 7",
  right: "M9 5l7 7l-7 7",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  copy: "M8 8h12v12H8zM16 8V4H4v12h4",
  columns: "M4 5h16v14H4zM12 5v14",
  info: "M12 11v6M12 7v.1M21 12a9 9 0 1 1-18 0a9 9 0 0 1 18 0z",
  download: "M12 4v11M7 11l5 5l5-5M5 20h14",
  table: "M4 5h16v14H4zM4 10h16M4 15h16M10 5v14",
  bin: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  alike: "M3.5 8h10v12h-10zM8 8V4h12.5v12H14",
  tag: "M3.5 11.5v-8h8l9 9-8 8zM8 8v.1",
  folder: "M3 6.5v12h18V8.5h-9.5l-2-2z",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 2.5-2.5L20 17M15.5 9v.1",
  question: "M8.5 9a3.5 3.5 0 1 1 5 3.2c-1 .5-1.5 1.1-1.5 2.3M12 18.2v.1",
};

/** @type {Map<string, SVGElement>} */
const drawn = new Map();

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  let sign = drawn.get(name);
  if (!sign) {
    const look = { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" };
    sign = svg("svg", look, svg("path", { d: ICONS[name] }));
    drawn.set(name, sign);
  }
  return sign.cloneNode(true);
}

/** @param {string} name */
export const keyName = (name) => el("kbd", { "aria-hidden": "true" }, name);

/** @param {Event} event */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

// The element with the focus: the body where none has it.
export const activeElement = () =>
  /** @type {HTMLElement} */ (document.activeElement ?? document.body);

/**
 * A table, which scrolls where it is wider than the screen.
 * @param {string} name
 * @param {Child[]} heads
 * @param {number} numbers the first column of numbers
 * @param {Child} rows
 * @param {string | null} [caption]
 */
export const table = (name, heads, numbers, rows, caption = name) =>
  el(
    "div.wide",
    { tabindex: "0", role: "region", "aria-label": name },
    el(
      "table",
      caption && el("caption", caption),
      el(
        "thead",
        el(
          "tr",
          heads.map((head, i) => el("th", { scope: "col", class: i < numbers ? null : "n" }, head)),
        ),
      ),
      el("tbody", rows),
    ),
  );

/** @param {Child[]} values cells of a table */
export const numbers = (...values) => values.map((value) => el("td.n", value));
