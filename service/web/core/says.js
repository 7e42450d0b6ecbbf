// What the page says: passing messages, boxes, questions in the small dialog.

import { $, activeElement, el, icon } from "./dom.js";

/** @import { Child } from "./dom.js" */

// Whether a bar stands at the foot, for what is scrolled into view.
export const dock = () =>
  document.documentElement.classList.toggle(
    "docked",
    ["#marks", "#selection"].some((id) => !$(id).hidden),
  );

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
  const box = el("div.toast", el("span", text), action && el("button", { onclick: done }, action));
  const leave = () =>
    setTimeout(() => (box.matches(":hover, :focus-within") ? leave() : box.remove()), 8000);
  toasts.replaceChildren(box);
  announce(action ? `${text} ${action} is available.` : text);
  leave();
}

/** Copy as the keys would, what is marked. @param {string} text */
function copyMarked(text) {
  placeMessages();
  const from = activeElement();
  const field = el("textarea.unseen");
  field.value = text;
  toasts.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  from.focus({ preventScroll: true });
  return copied;
}

/** @param {string} text @param {string} what */
export async function copy(text, what) {
  const copied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  // Browsers have no clipboard where the page did not come by HTTPS.
  toast(
    copied || copyMarked(text)
      ? `${what} copied.`
      : `The browser blocked copying: ${text.slice(0, 300)}`,
  );
}

/** @param {string} text */
export const command = (text) =>
  el("p.command", el("code", text), el("button", { onclick: () => copy(text, "Command") }, "Copy"));

/**
 * A box with a title, e.g. of an error, and a text or elements; `more` stands beside them.
 * @param {string} title
 * @param {Child} content
 * @param {...Child} more
 */
export const box = (title, content, ...more) => {
  const text = typeof content === "string" ? el("p", content) : content;
  return el("div.box", el("div", el("strong", title), text), ...more);
};

export const noImages = () =>
  box("This run has no images yet", [
    el("p", "To index a folder of images, run this command, then reload the page:"),
    command("visterm features FOLDER"),
  ]);

/** The button of every page that takes photos (adding.js). */
export const addButton = () =>
  el(
    "button",
    { class: "add", onclick: () => $("#photos-to-add").click() },
    icon("plus"),
    "Add photos",
  );

/**
 * Show the small dialog.
 * @param {Child} title
 * @param {...(Node | string)} parts
 */
export function showDialog(title, ...parts) {
  /** @type {HTMLDialogElement} */
  const dialog = $("#confirm");
  dialog.replaceChildren(el("h2", { id: "confirm-title", dir: "auto" }, title), ...parts);
  dialog.showModal();
  return dialog;
}

/**
 * The buttons of the small dialog, which each of them closes.
 * @param {...[string, (() => unknown)?, string?]} buttons words, what they do, and how they look
 */
export const dialogButtons = (...buttons) =>
  el(
    "form.row",
    { method: "dialog" },
    buttons.map(([words, onclick, look]) =>
      el("button", { type: "submit", class: look, onclick }, words),
    ),
  );
