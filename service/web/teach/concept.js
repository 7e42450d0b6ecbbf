// A label learned from a few photos: the page asks about one photo at a time, and shows which
// others surely fit. Answers are label edits: yes adds the label; no is kept, too, and not asked
// again.

import { get, post } from "../core/api.js";
import { $, activeElement, el, icon, keyName, link } from "../core/dom.js";
import { picture } from "../core/pictures.js";
import { failure } from "../core/messages.js";
import { announce, box, toast } from "../core/says.js";
import { count, plural } from "../core/text.js";
import { askToAccept, growing, percent } from "./growing.js";
import { editLabels, undoLabels } from "./labels.js";
import { bindLetters, bindSwipe, oneByOne } from "./onebyone.js";
import { ratioOf } from "../gallery/details.js";
import { did, undid } from "../core/undo.js";
import { asList, state } from "../core/state.js";
import { addView } from "../core/views.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas } from "../core/api.js" */
/** @import { Props } from "../core/dom.js" */
/** @typedef {Schemas["ConceptState"]} Concept */
/** @typedef {Schemas["ImageSummary"]} Image */

const keys = bindLetters("concept");
const ENOUGH = 10; // photos known after which what is found can be relied on (docs/labels.md)

/**
 * A button whose key is its first letter.
 * @param {string} words
 * @param {() => unknown} act
 * @param {Node} [sign]
 * @param {Props} [extra]
 */
const button = (words, act, sign, extra) =>
  el(
    "button",
    {
      onclick: act,
      "data-name": words,
      "aria-keyshortcuts": words[0],
      ...extra,
    },
    sign,
    words,
    keyName(words[0]),
  );

/** @param {HTMLElement} section @param {Request} request */
async function showConcept(section, request) {
  const [label] = asList(request.label);
  const drawNothing = () => {
    keys({});
    section.replaceChildren(
      el("h1", "Find more of these"),
      box(
        label ? `No photo is labelled “${label}”` : "No label is given",
        el("p", "Select photos that show it, then “Find more of these”."),
        link({ view: "photos" }, "All photos"),
      ),
    );
  };
  if (!label) return drawNothing();
  /** @type {(number | (() => unknown))[]} */
  const acts = []; // since the page was opened: photos skipped, by id; of others, what undoes them

  const grown = (await growing()).find((one) => one.label === label);
  const added = grown
    ? await get("api/images", { ids: grown.new.slice(0, 60).join(",") }).catch(() => [])
    : [];

  const next = async () => {
    const skipped = acts.filter((id) => Number(id) >= 0).join(",") || undefined;
    const concept = await get("api/concept", { label, skip: skipped }).catch((error) => {
      if (error.status === 404) return null; // the first step was undone
      throw error;
    });
    if (state.request.view !== "concept") return;
    if (concept) draw(concept);
    else drawNothing();
  };
  const step = oneByOne(next);

  /** @param {number[]} ids @param {"add" | "remove"} change */
  const edit = async (ids, change) => {
    const done = await editLabels(
      ids.map((id) => ({ id, label, change })),
      "concept",
    );
    acts.push(() => !done.toUndo.steps || undoLabels(done.toUndo));
    return done;
  };
  const undo = () =>
    void step(async () => {
      const last = acts.at(-1) ?? undoLabels;
      if (typeof last === "number" || (await last()) !== null) acts.pop();
    }, true);
  /** @param {number[]} ids */
  const addTo = (ids) =>
    step(async () => {
      const done = await edit(ids, "add");
      toast(`${label} added to ${plural(done.changed, "photo")}.`, "Undo", undo);
    });

  /** @param {Concept} concept */
  const draw = (concept) => {
    const { ask, yes, no, n_sure: n } = concept;
    const focused = section.contains(activeElement()) ? activeElement().dataset.name : null;
    const tally = el(
      "p.quiet",
      `${plural(yes, "photo")}: yes. ${plural(no, "photo")}: no. `,
      yes + no < ENOUGH ? "Some ten are usually enough. " : "More answers make it surer. ",
      matchMedia("(pointer: coarse)").matches && "Swipe right for yes, left for no.",
    );
    section.replaceChildren(
      el(
        "div.row.head",
        el("h1", "Does this show ", el("bdi", label), "?"),
        link({ view: "album", label }, "Show the album"),
        concept.offered !== null && offerButton(concept.offered),
      ),
      el(
        "div.doubt",
        ask
          ? question(ask, tally)
          : el(
              "div.parts",
              box("No photo is left to ask about", "All photos are answered or skipped."),
              el("div.row.answers", button("Undo", undo)),
            ),
        sureOnes(concept),
      ),
    );
    if (!ask) keys({ u: undo });
    if (focused) $(`[data-name="${focused}"]`, section)?.focus({ preventScroll: true });
    announce(
      `${ask ? `Does this show ${label}? Photo ${ask.path}.` : "No photo is left to ask about."} ` +
        `${plural(n, "photo")} found.`,
    );
  };

  /**
   * Undone by the button of the page, and by Ctrl Z anywhere.
   * @param {string} kind
   * @param {() => Promise<unknown>} back
   */
  const undoable = (kind, back) => {
    const act = () => back().then(() => undid(kind));
    did(kind, () => act().catch(failure));
    acts.push(act);
  };
  /** @param {boolean} offered */
  const send = (offered) => post("api/concept/offer", { label, offered });
  /** @param {boolean} offered */
  const offer = (offered) =>
    step(async () => {
      await send(offered);
      undoable("offer", () => send(!offered));
      const words = offered ? "will be" : "are no longer";
      toast(`Photos that are added ${words} offered for ${label}.`, "Undo", undo);
    });
  /** @param {boolean} offered */
  const offerButton = (offered) =>
    el(
      "button",
      { onclick: () => void offer(!offered) },
      offered ? "Do not offer new photos" : "Offer new photos",
    );

  const look = () =>
    step(async () => {
      await post("api/concept/looked", { label });
      const seen = added.splice(0);
      undoable("looked", async () => {
        await post("api/concept/looked", { label, last: grown?.last });
        added.push(...seen);
      });
      toast("They are marked as seen.", "Undo", undo);
    });

  /** @param {Image} image @param {HTMLElement} tally */
  const question = (image, tally) => {
    const yes = () => void step(() => edit([image.id], "add"));
    const no = () => void step(() => edit([image.id], "remove"));
    const skip = () => void step(async () => void acts.push(image.id));
    keys({ y: yes, n: no, s: skip, u: undo });
    const photo = link(
      { id: image.id },
      picture(image, { size: 1024, alt: `Photo ${image.path}`, lazy: false }),
      { class: "doubted asked" },
    );
    bindSwipe(photo, no, yes);
    return el(
      "div.concept",
      photo,
      el(
        "div.row.answers",
        button("Yes", yes, icon("check"), { class: "primary" }),
        button("No", no, icon("cross")),
        button("Skip", skip),
        button("Undo", undo),
      ),
      tally,
    );
  };

  /** @param {Concept} concept */
  const sureOnes = (concept) => {
    const { yes, no, n_sure: n, sure } = concept;
    const news = grown?.new.filter((id) => sure.includes(id)).length ?? 0;
    const fresh = added.filter(({ id }) => sure.includes(id));
    const surest = [
      ...fresh,
      ...concept.surest.filter(({ id }) => !fresh.some((one) => one.id === id)),
    ];
    if (!n) return el("p.quiet.sure", "No other photo surely shows it yet.");
    const add = el(
      "button",
      { onclick: () => askToAccept(label, (ids) => ids.length && addTo(ids)).catch(failure) },
      icon("plus"),
      `Add the label to ${plural(sure.length, "photo")} …`,
    );
    const looked = el("button", { onclick: () => void look() }, "Mark as seen");
    return el(
      "section.sure",
      { "aria-label": "Found" },
      el("h2", `${plural(n, "photo")} found`, fresh.length ? `, ${count(news)} new` : ""),
      fresh.length > 0 &&
        el(
          "p",
          "The new ones come first",
          grown?.certainty ? `; about ${percent(grown.certainty)} of them are right. ` : ". ",
          looked,
        ),
      el(
        "p.quiet",
        yes + no < ENOUGH || fresh.length
          ? "They probably show it, the first ones most likely. Press the cross of others."
          : "At least 9 of 10 are usually right, the first ones surest. Press the cross of others.",
      ),
      el("div.row", add),
      el(
        "ul.photos.small",
        surest.map((image) =>
          el(
            "li",
            { style: { "--ratio": ratioOf(image) || 1.5 } },
            link(
              { id: image.id },
              [
                picture(image, {
                  alt: `${fresh.includes(image) ? "New photo" : "Photo"} ${image.path}`,
                }),
                fresh.includes(image) && el("span.pill.on", { "aria-hidden": "true" }, "New"),
              ],
              { "data-photo": image.id, style: { "--shade": image.color ?? "" } },
            ),
            el(
              "button.round",
              {
                "aria-label": `No: ${image.path}`,
                title: "No",
                onclick: () => void step(() => edit([image.id], "remove")),
              },
              icon("cross"),
            ),
          ),
        ),
      ),
      n > surest.length && el("p.quiet", `The ${surest.length} surest are shown.`),
    );
  };

  await next();
}

addView("concept", {
  title: ({ label }) =>
    asList(label)[0] ? `Find more: ${asList(label)[0]}` : "Find more of these",
  show: showConcept,
});
