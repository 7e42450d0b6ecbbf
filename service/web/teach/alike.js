// Duplicates: groups of photos of one picture, of one scene, and of pictures that look alike. Of
// one picture one is kept, of one scene those chosen, and of what looks alike those chosen may go;
// what is no duplicate is said once and for all.

import { get, post } from "../core/api.js";
import { $, $$, box, count, el, plural, toast } from "../core/dom.js";
import { redraw } from "../core/history.js";
import { withOverview } from "../gallery/home.js";
import { failure } from "../core/messages.js";
import { inParts, photo } from "../gallery/photolist.js";
import { readRun } from "../search/search.js";
import { addView } from "../core/views.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["ImageSummary"]} Summary */

/** Of each degree: a title, what is said of chosen photos, and that they are no such duplicates. */
const WORDS = {
  picture: {
    title: (/** @type {number} */ n) => `One picture in ${count(n)} photos`,
    chosen: "Keep",
    apart: "Not the same",
  },
  scene: {
    title: (/** @type {number} */ n) => `One scene in ${count(n)} photos`,
    chosen: "Keep",
    apart: "Not the same scene",
  },
  alike: {
    title: (/** @type {number} */ n) => plural(n, "picture looks alike", "pictures look alike"),
    chosen: "Remove",
    apart: "Not alike",
  },
};

/** @param {HTMLElement} section */
const showAlike = (section) =>
  withOverview(section, "Photos that look alike", async () => {
    const undo = el("button", { type: "button", class: "plain", onclick: undoDifferent });
    const { holder, total } = await inParts(
      async (offset) => {
        const part = await get("api/alike", { offset, limit: 20 });
        showUndo(undo, part.last);
        return { total: part.total, items: part.groups };
      },
      (groups, from) => groups.map((group, i) => drawGroup(group, from + i + 1)),
    );
    section.replaceChildren(
      el(
        "div",
        { class: "row head" },
        el("h1", {}, "Photos that look alike"),
        el("span", { class: "quiet" }, plural(total, "group")),
        undo,
      ),
      el(
        "p",
        { class: "quiet" },
        "First photos of one picture: equal files, and copies of another size, quality or " +
          "brightness, cropped or mirrored. Then pictures of one scene, and those that look " +
          "alike. Removing photos from the collection leaves their files where they are; what " +
          "you say is different is not shown together again.",
      ),
      total ? holder : box("No two photos look alike", el("p", {}, "Nothing to tidy up here.")),
    );
  });

/**
 * Of one picture all but one may go, of one scene all but those chosen, else those chosen.
 * @param {Schemas["AlikeGroup"]} group
 * @param {number} number
 */
function drawGroup({ degree, images, n_images }, number) {
  const { title: titled, chosen: words, apart } = WORDS[degree];
  const title = titled(n_images);
  const one = degree === "picture";
  const section = el("section", {
    class: "panel group",
    "aria-label": `Group ${number}: ${title}`,
  });
  const largest = [...images].sort(
    (a, b) => (b.width ?? 0) * (b.height ?? 0) - (a.width ?? 0) * (a.height ?? 0),
  );
  /** @param {Summary} image @param {number} i */
  const choice = (image, i) =>
    el(
      "label",
      { class: "check" },
      el("input", {
        type: one ? "radio" : "checkbox",
        name: `of-${images[0].id}`,
        value: image.id,
        checked: one && !i,
        "aria-label": `${words} ${image.path}`,
        onchange: () => draw(),
      }),
      ` ${words}`,
    );
  const button = el("button", { type: "button" });
  const hint = el("span", { class: "quiet" }, "Choose which to keep");
  const others = (/** @type {number} */ own) =>
    images.map(({ id }) => id).filter((id) => id !== own);
  const toRemove = () => {
    const chosen = /** @type {HTMLInputElement[]} */ ($$("input:checked", section)).map(
      ({ value }) => Number(value),
    );
    return degree === "alike"
      ? chosen
      : images.map(({ id }) => id).filter((id) => !chosen.includes(id));
  };
  const draw = () => {
    const n = toRemove().length;
    const kept = one ? "one" : count(images.length - n);
    button.textContent =
      degree === "alike" ? `Remove ${count(n)}` : `Keep ${kept}, remove ${count(n)}`;
    // Of a scene at least one is kept.
    button.hidden = !n || (degree === "scene" && n === images.length);
    hint.hidden = degree !== "scene" || !button.hidden;
  };
  button.addEventListener("click", () => remove(section, toRemove()));
  const labels = new Set(images.map((image) => image.labels.join(", ")));
  section.append(
    el(
      "div",
      { class: "row" },
      el("h2", {}, title),
      el(
        "span",
        { class: "row" },
        hint,
        button,
        el(
          "button",
          {
            type: "button",
            title: "They are all different: do not show them together again",
            onclick: () =>
              sayDifferent(
                images.map(({ id }) => [id]),
                section,
              ),
          },
          apart,
        ),
      ),
    ),
    one && labels.size > 1
      ? el(
          "p",
          { class: "quiet", dir: "auto" },
          `With different labels: ${[...labels].map((name) => name || "none").join(" · ")}`,
        )
      : "",
    el(
      "ol",
      { class: "photos small" },
      largest.map((image, i) => {
        const item = photo(image);
        item.append(
          el(
            "p",
            { class: "under" },
            choice(image, i),
            image.width
              ? el("span", { class: "quiet" }, `${image.width}\u00a0×\u00a0${image.height}`)
              : null,
            images.length > 2
              ? el(
                  "button",
                  {
                    type: "button",
                    class: "plain",
                    "aria-label": `${apart}: ${image.path}`,
                    title: "It differs from the rest: do not show them together again",
                    onclick: () => sayDifferent([[image.id], others(image.id)]),
                  },
                  apart,
                )
              : null,
          ),
        );
        return item;
      }),
    ),
  );
  draw();
  return section;
}

/** @param {HTMLElement} section */
function leave(section) {
  const after = section.nextElementSibling ?? section.previousElementSibling;
  section.remove();
  if (after) $("button, a", after)?.focus();
}

/** @param {HTMLElement} button @param {Schemas["DifferentStep"] | null} step */
function showUndo(button, step) {
  button.hidden = !step;
  if (step) button.textContent = `Undo: ${plural(step.images, "photo")} said to be different`;
}

/**
 * Photos of different parts are never shown as duplicates of each other again.
 * @param {number[][]} parts
 * @param {HTMLElement} [section] a group of which nothing is left
 */
async function sayDifferent(parts, section) {
  try {
    const { last } = await post("api/alike/different", { parts });
    if (section) leave(section);
    else redraw();
    showUndo($("#alike .head .plain"), last);
    toast("They are not shown together again.", "Undo", () => void undoDifferent());
  } catch (error) {
    failure(error);
  }
}

const undoDifferent = () => post("api/alike/undo", undefined).then(() => redraw(), failure);

/**
 * Asked once more, and can be undone.
 * @param {HTMLElement} section
 * @param {number[]} ids
 */
async function remove(section, ids) {
  /** @type {HTMLDialogElement} */
  const dialog = $("#confirm");
  dialog.replaceChildren(
    el("h2", { id: "confirm-title" }, `Remove ${plural(ids.length, "photo")} from the collection?`),
    el("p", {}, "They no longer appear in searches. Their files stay on disk."),
    el(
      "form",
      { method: "dialog", class: "row" },
      el("button", { value: "" }, "Cancel"),
      el("button", { value: "yes", class: "primary" }, "Remove"),
    ),
  );
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (dialog.returnValue !== "yes") return;
  try {
    const { undo } = await post("api/images/remove", { ids });
    leave(section);
    toast(
      `${plural(ids.length, "photo")} removed from the collection.`,
      undo ? "Undo" : undefined,
      undo ? () => post("api/images/restore", { undo }).then(() => redraw(), failure) : undefined,
    );
    await readRun();
  } catch (error) {
    failure(error);
  }
}

addView("alike", { title: "Photos that look alike", show: showAlike });
