// Small things that all parts of the page share: elements, icons, numbers in words, messages, what
// this browser remembers. Text from the server is only ever set as text (textContent, attributes),
// never as markup.

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
/** @import { Photo } from "../gallery/details.js" */
/** @typedef {Node | string | number | boolean | null | undefined | readonly unknown[]} Child */

const SVG = "http://www.w3.org/2000/svg";

/** @param {unknown} child */
const isPresent = (child) => child !== null && child !== undefined && child !== false;

/**
 * @template {HTMLElement | SVGElement} E
 * @param {E} node
 * @param {Props} props
 * @param {Child[]} children
 */
function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [key, entry] of Object.entries(value)) node.style.setProperty(key, String(entry));
    else node.setAttribute(name, value === true ? "" : value);
  }
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
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props} props
 * @param {Child[]} children
 */
export const el = (tag, props = {}, ...children) =>
  fill(document.createElement(tag), props, children);

/**
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Props} props
 * @param {Child[]} children
 */
export const svg = (tag, props = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), props, children);

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
  copies: "M8 8h12v12H8zM16 8V4H4v12h4",
  copy: "M8 8h12v12H8zM16 8V4H4v12h4",
  columns: "M4 5h16v14H4zM12 5v14",
  info: "M12 11v6M12 7v.1M21 12a9 9 0 1 1-18 0a9 9 0 0 1 18 0z",
  download: "M12 4v11M7 11l5 5l5-5M5 20h14",
  table: "M4 5h16v14H4zM4 10h16M4 15h16M10 5v14",
  bin: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  keyboard: "M3 7h18v10H3zM7 10.5v.1M11 10.5v.1M15 10.5v.1M18 10.5v.1M8 14h8",
  sliders: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  alike: "M3.5 8h10v12h-10zM8 8V4h12.5v12H14",
  tag: "M3.5 11.5v-8h8l9 9-8 8zM8 8v.1",
  folder: "M3 6.5v12h18V8.5h-9.5l-2-2z",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 2.5-2.5L20 17M15.5 9v.1",
  camera: "M3.5 7.5h4l1.5-2.5h6l1.5 2.5h4v11.5h-17zM15.5 13a3.5 3.5 0 1 1-7 0a3.5 3.5 0 0 1 7 0z",
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

/** @param {number} n */
export const count = (n) => n.toLocaleString("en");
/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
/** @param {number} share */
export const percent = (share) => `${Math.round(100 * share)} %`;
/** @param {number} s */
export const seconds = (s) =>
  s < 0.01 ? `${(1000 * s).toFixed(1)} ms` : s < 10 ? `${s.toFixed(2)} s` : `${s.toFixed(0)} s`;
/** @param {string} path */
export const fileName = (path) => path.slice(path.lastIndexOf("/") + 1) || path;
/** @param {number | null | undefined} number */
export const figure = (number) =>
  Number.isFinite(number) ? Number(Number(number).toPrecision(4)).toString() : "–";

/**
 * The list without what was left out of it.
 * @template T
 * @param {(T | null | undefined | false | "" | 0)[]} list
 */
export const present = (list) => /** @type {T[]} */ (list.filter(Boolean));

/** @param {Event} event */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

// The element with the focus: the body where none has it.
export const activeElement = () =>
  /** @type {HTMLElement} */ (document.activeElement ?? document.body);

// ---- what this browser remembers (theme, recent queries); nothing of it leaves the browser

/** @template T @param {string} name @param {T} otherwise @returns {T} */
export function remembered(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`visterm.${name}`) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {unknown} value */
export function remember(name, value) {
  try {
    localStorage.setItem(`visterm.${name}`, JSON.stringify(value));
  } catch {
    // private windows may refuse: the setting then lasts as long as the page
  }
}

/** @param {{ theme?: string }} [options] */
export function setLook({ theme = remembered("theme", "system") } = {}) {
  document.documentElement.dataset.theme = theme;
  remember("theme", theme);
}

/** @param {HTMLElement} button */
export function themeButton(button) {
  const order = ["system", "light", "dark"];
  const say = () => {
    const theme = remembered("theme", "system");
    button.setAttribute("aria-label", `Theme: ${theme}. Change`);
    button.title = `Theme: ${theme}`;
    button.dataset.theme = theme;
  };
  button.addEventListener("click", () => {
    setLook({ theme: order[(order.indexOf(remembered("theme", "system")) + 1) % 3] });
    say();
  });
  setLook();
  say();
}

// Whether a bar stands at the foot, for what is scrolled into view.
export const dock = () =>
  document.documentElement.classList.toggle(
    "docked",
    ["#marks", "#selection"].some((id) => $(id) && !$(id).hidden),
  );

// ---- messages

export const toasts = $("#toasts");
const live = $("#live");

// An open dialog makes the rest of the page inert: what is said then is said inside it.
export function placeMessages() {
  const place = $("dialog[open]") ?? document.body;
  if (live.parentElement !== place) place.append(toasts, live);
}

/** @param {string} text */
export function announce(text) {
  placeMessages();
  // The same words twice are still read twice.
  live.textContent = live.textContent === text ? `${text}\u00a0` : text;
}

/**
 * A passing message with an optional action. It stays 8 s, and as long as it is pointed at or has
 * the focus.
 * @param {string} text
 * @param {string} [action]
 * @param {() => unknown} [act]
 */
export function toast(text, action, act) {
  const from = activeElement();
  const done = () => {
    box.remove();
    if (from.isConnected) from.focus({ preventScroll: true });
    act?.();
  };
  /** @param {string} title @param {Child} content @param {...Child} more */
  const box = el(
    "div",
    { class: "toast" },
    el("span", {}, text),
    action && el("button", { type: "button", onclick: done }, action),
  );
  const leave = () =>
    setTimeout(() => (box.matches(":hover, :focus-within") ? leave() : box.remove()), 8000);
  toasts.replaceChildren(box);
  announce(action ? `${text} ${action} is available.` : text);
  leave();
}

/** @param {string} text @param {string} what */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied.`);
  } catch {
    toast(`The browser blocked copying. ${what}: ${text}`);
  }
}

/** @param {string} text */
export const command = (text) =>
  el(
    "p",
    { class: "command" },
    el("code", {}, text),
    el("button", { type: "button", onclick: () => copy(text, "Command") }, "Copy"),
  );

/**
 * A box with a title, e.g. of an error; `more` stands beside the text.
 * @param {string} title
 * @param {Child} content
 * @param {...Child} more
 */
export const box = (title, content, ...more) =>
  el("div", { class: "box" }, el("div", {}, el("strong", {}, title), content), ...more);

/**
 * What stands where a picture cannot be shown.
 * @param {string} name
 */
export const missing = (name) =>
  el(
    "span",
    { class: "missing", role: "img", "aria-label": `${name}, image not available` },
    "image not available",
  );

/** @param {{ thumbnail: string }} image @param {number} size */
export const thumbnail = (image, size) => `${image.thumbnail}&size=${size}`;

/**
 * A picture of the collection: its thumbnail, else the original, else words.
 * @param {Pick<Photo, "id" | "path" | "thumbnail"> & Partial<Photo>} image
 * @param {{ size?: number, alt?: string, lazy?: boolean }} [options]
 */
export function picture(image, { size = 256, alt = "", lazy = true } = {}) {
  const img = el("img", {
    src: thumbnail(image, size),
    alt,
    width: image.width,
    height: image.height,
    loading: lazy ? "lazy" : "eager",
    decoding: "async",
    draggable: "false",
  });
  img.addEventListener("error", () => {
    const original = `images/${image.id}/original`;
    if (img.getAttribute("src") !== original) img.src = original;
    else img.replaceWith(missing(alt || image.path || "photo"));
  });
  return img;
}
