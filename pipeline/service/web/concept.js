// A label learned from a few photos: the page asks about one photo at a time, and shows which
// others surely fit. Answers are label edits: yes adds the label; no is kept, too, and not asked
// again.

import { addressOf } from "./address.js";
import { get } from "./api.js";
import { announce, box, count, el, icon, keyName, picture, plural, toast } from "./dom.js";
import { editLabels, undoLabels } from "./labels.js";
import { bindLetters, bindSwipe, oneByOne } from "./onebyone.js";
import { ratioOf } from "./details.js";
import { asList, state } from "./state.js";
import { addView } from "./views.js";

/** @import { Request } from "./address.js" */
/** @import { Schemas } from "./api.js" */
/** @typedef {Schemas["ConceptState"]} Concept */
/** @typedef {Schemas["ImageSummary"]} Image */

const keys = bindLetters("concept");
const ENOUGH = 10; // answers after which the ranking has all but settled (docs/concepts.md)

/** @param {HTMLElement} section @param {Request} request */
async function showConcept(section, request) {
  const [label] = asList(request.label);
  if (!label) {
    section.replaceChildren(
      el("h1", {}, "Find more of these"),
      box("Nothing to look for yet", el("p", {}, "Select photos, then “Find more of these”.")),
    );
    return;
  }
  /** @type {number[]} */
  let skipped = [];

  const next = async () => {
    const asked = skipped.length ? skipped.join(",") : undefined;
    const concept = await get("api/concept", { label, skip: asked });
    if (state.request.view === "concept") draw(concept);
  };
  const step = oneByOne(next);

  /** @param {Image[] | { id: number }[]} images @param {"add" | "remove"} change */
  const edit = (images, change) =>
    editLabels(
      images.map(({ id }) => ({ id, label, change })),
      "concept",
    );
  const undo = () =>
    void step(async () => {
      if (skipped.length) skipped = skipped.slice(0, -1);
      else await undoLabels();
    });
  /** @param {Concept} concept */
  const addSure = ({ sure }) =>
    step(async () => {
      const done = await edit(
        sure.map((id) => ({ id })),
        "add",
      );
      toast(`${label} added to ${plural(done.changed, "photo")}.`, "Undo", undo);
    });

  /** @param {Concept} concept */
  const draw = (concept) => {
    const { ask, yes, no, n_sure: n } = concept;
    const back = el(
      "button",
      { type: "button", onclick: undo, "aria-keyshortcuts": "U" },
      "Undo ",
      keyName("U"),
    );
    const tally = el(
      "p",
      { class: "quiet" },
      `${plural(yes, "photo")} with this label, ${count(no)} without. `,
      yes + no < ENOUGH ? `${ENOUGH} answers are usually enough.` : "More answers make it surer.",
    );
    section.replaceChildren(
      el(
        "div",
        { class: "row head" },
        el("h1", {}, "Is this ", el("bdi", {}, `“${label}”`), "?"),
        el("a", { href: addressOf({ view: "album", label }), "data-go": "link" }, "Show the album"),
      ),
      ask
        ? question(ask, tally, back)
        : el(
            "div",
            { class: "parts" },
            box(
              "No photo is left to ask about",
              el("p", {}, "All photos are answered or skipped."),
            ),
            el("div", { class: "row" }, back),
          ),
      sureOnes(concept),
    );
    if (!ask) keys({ u: undo });
    announce(
      `${ask ? `Is this ${label}? Photo ${ask.path}.` : "No photo is left to ask about."} ` +
        `${plural(n, "photo")} found.`,
    );
  };

  /** @param {Image} image @param {HTMLElement} tally @param {HTMLElement} back */
  const question = (image, tally, back) => {
    const yes = () => void step(() => edit([image], "add"));
    const no = () => void step(() => edit([image], "remove"));
    const skip = () => void step(async () => void (skipped = [...skipped, image.id]));
    keys({ y: yes, n: no, s: skip, u: undo });
    const photo = el(
      "a",
      { href: addressOf({ id: image.id }), "data-go": "link", class: "doubted asked" },
      picture(image, { size: 1024, alt: `Photo ${image.path}`, lazy: false }),
    );
    bindSwipe(photo, no, yes);
    return el(
      "div",
      { class: "concept" },
      photo,
      el(
        "div",
        { class: "row answers" },
        el(
          "button",
          { type: "button", class: "primary", onclick: yes, "aria-keyshortcuts": "Y" },
          icon("check"),
          "Yes ",
          keyName("Y"),
        ),
        el(
          "button",
          { type: "button", onclick: no, "aria-keyshortcuts": "N" },
          icon("cross"),
          "No ",
          keyName("N"),
        ),
        el(
          "button",
          { type: "button", onclick: skip, "aria-keyshortcuts": "S" },
          "Skip ",
          keyName("S"),
        ),
        back,
      ),
      tally,
    );
  };

  /** @param {Concept} concept */
  const sureOnes = (concept) => {
    const { n_sure: n, surest } = concept;
    if (!n) return el("p", { class: "quiet sure" }, "No other photo surely shows it yet.");
    const add = el(
      "button",
      { type: "button", onclick: () => void addSure(concept) },
      icon("plus"),
      `Add the label to ${plural(concept.sure.length, "photo")}`,
    );
    return el(
      "section",
      { class: "sure", "aria-label": "Found" },
      el("h2", {}, `${plural(n, "photo")} found`),
      el(
        "p",
        { class: "quiet" },
        "At least 9 of 10 are usually right, the first ones most surely. A cross says no to one.",
      ),
      el("div", { class: "row" }, add),
      el(
        "ul",
        { class: "photos small" },
        surest.map((image) =>
          el(
            "li",
            { style: { "--ratio": ratioOf(image) || 1.5 } },
            el(
              "a",
              {
                href: addressOf({ id: image.id }),
                "data-go": "link",
                "data-photo": image.id,
                style: { "--shade": image.color ?? "" },
              },
              picture(image, { alt: `Photo ${image.path}` }),
            ),
            el(
              "button",
              {
                type: "button",
                class: "round",
                "aria-label": `No: ${image.path}`,
                title: "No",
                onclick: () => void step(() => edit([image], "remove")),
              },
              icon("cross"),
            ),
          ),
        ),
      ),
      n > surest.length && el("p", { class: "quiet" }, `The ${surest.length} surest are shown.`),
    );
  };

  await next();
}

addView("concept", {
  title: ({ label }) =>
    asList(label)[0] ? `Find more: ${asList(label)[0]}` : "Find more of these",
  show: showConcept,
});
