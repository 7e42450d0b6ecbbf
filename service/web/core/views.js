// The pages behind ?view=NAME. A module adds its own with addView, and pages.js imports the module.

import { addNames } from "./address.js";
import { $, el } from "./dom.js";

/** @import { Request } from "./address.js" */
/**
 * @typedef {{
 *   title: string | ((request: Request) => string),
 *   params?: string[],
 *   numbers?: string[],
 *   show: (section: HTMLElement, request: Request, turn: number) => Promise<void>,
 * }} View
 */

/** @type {Map<string, View>} */
const views = new Map();

/**
 * title: of the window, or a function of the request; params: names of the address that the view
 * reads; numbers: those of them that are numbers; show: async function (section, request, turn)
 * that draws into its section.
 * @param {string} name
 * @param {View} view
 */
export function addView(name, { title, params = [], numbers = [], show }) {
  views.set(name, { title, show });
  addNames(params, numbers);
}

/** @param {string} name */
export const knows = (name) => views.has(name);

/** @param {Request} request */
export const titleOf = (request) => {
  const { title } = views.get(request.view ?? "") ?? { title: "Page not found" };
  return typeof title === "function" ? title(request) : title;
};

/** @param {string} name @returns {HTMLElement} */
export function sectionOf(name) {
  const id = knows(name) ? name : "unknown";
  return (
    $(`#${id}`) ??
    $("#main").insertBefore(el("section", { id, class: "view", hidden: true }), $("#marks"))
  );
}

/** @param {Request} request @param {number} turn */
export async function showView(request, turn) {
  const name = request.view ?? "";
  const section = sectionOf(name);
  const view = views.get(name);
  if (view) return view.show(section, request, turn);
  return section.replaceChildren(
    el("h1", {}, "There is no such page"),
    el(
      "p",
      { class: "quiet" },
      `This run has no page “${name.slice(0, 100)}”. The address may be mistyped or ` +
        "of another version.",
    ),
    el(
      "p",
      {},
      el("a", { class: "button primary", href: "./", "data-go": "start" }, "Go to the start page"),
    ),
  );
}

/**
 * Hide the sections of all views but one.
 * @param {string | null | undefined} name
 */
export function showOnly(name) {
  for (const other of [...views.keys(), "unknown"])
    if ($(`#${other}`)) $(`#${other}`).hidden = true;
  if (name) sectionOf(name).hidden = false;
}
