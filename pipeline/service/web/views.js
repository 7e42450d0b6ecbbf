// The pages behind ?view=NAME. A module adds its own with addView, and pages.js imports the module.

import { addNames } from "./address.js";
import { $, el } from "./dom.js";

const views = new Map();

// title: of the window, or a function of the request; params: names of the address that the view
// reads; numbers: those of them that are numbers; show: async function (section, request, turn)
// that draws into its section.
export function addView(name, { title, params = [], numbers = [], show }) {
  views.set(name, { title, show });
  addNames(params, numbers);
}

export const knows = (name) => views.has(name);

export const titleOf = (request) => {
  const { title } = views.get(request.view) ?? { title: "Page not found" };
  return typeof title === "function" ? title(request) : title;
};

export function sectionOf(name) {
  const id = knows(name) ? name : "unknown";
  return (
    $(`#${id}`) ??
    $("#main").insertBefore(el("section", { id, class: "view", hidden: true }), $("#marks"))
  );
}

export async function showView(request, turn) {
  const section = sectionOf(request.view);
  if (knows(request.view)) return views.get(request.view).show(section, request, turn);
  return section.replaceChildren(
    el("h1", {}, "There is no such page"),
    el(
      "p",
      { class: "quiet" },
      `This run has no page “${request.view.slice(0, 100)}”. The address may be mistyped or ` +
        "of another version.",
    ),
    el(
      "p",
      {},
      el("a", { class: "button primary", href: "./", "data-go": "start" }, "Go to the start page"),
    ),
  );
}

// Hide the sections of all views but one.
export function showOnly(name) {
  for (const other of [...views.keys(), "unknown"])
    if ($(`#${other}`)) $(`#${other}`).hidden = true;
  if (name) sectionOf(name).hidden = false;
}
