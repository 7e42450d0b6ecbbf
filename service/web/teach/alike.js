// Duplicates: groups of photos of one picture, of one scene, and of pictures that look alike; and
// blank photos. Of one picture one is kept, of one scene those chosen, and of what looks alike
// those chosen may go; what is no duplicate is said once and for all.

import { get, post } from "../core/api.js";
import { $, $$, el } from "../core/dom.js";
import { box, dialogButtons, showDialog, toast } from "../core/says.js";
import { count, fileName, plural } from "../core/text.js";
import { redraw } from "../core/history.js";
import { did, undid } from "../core/undo.js";
import { placeFocus } from "../gallery/grid.js";
import { withOverview } from "../gallery/home.js";
import { restore } from "../gallery/select.js";
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
  blank: {
    title: (/** @type {number} */ n) => plural(n, "photo is blank", "photos are blank"),
    chosen: "Remove",
    apart: "",
  },
};

let n_groups = 0; // on the page, and those that "Show more" brings
let n_left = 0; // groups that were on the page, most of which the service lists no more

/** Of these nothing goes but what is chosen. */
const CHOSEN_GO = ["alike", "blank"];

/** @param {Schemas["AlikeGroup"]} group */
const keyOf = ({ degree, images }) => `${degree} ${images[0].id}`;

/** @param {HTMLElement} section */
const showAlike = (section) =>
  withOverview(section, "Photos that look alike", "n_alike", async () => {
    const undo = el("button.plain", { onclick: undoDifferent });
    const back = el("button.plain");
    const blank = el("div");
    n_left = 0;
    /** @type {Set<string>} */
    const drawn = new Set();
    const { holder, total } = await inParts(
      async (offset) => {
        const part = await get("api/alike", { offset: offset - n_left, limit: 20 });
        showUndo(undo, part.last);
        showRestore(back, part.removed);
        const { blank: images, n_blank: n_images } = part;
        if (n_images && !blank.firstChild)
          blank.append(
            drawGroup(
              { degree: "blank", images, n_images, splits: [], same: false, similarity: 1 },
              0,
            ),
          );
        // Of a group of which some photos went, the others may be listed again.
        const groups = part.groups.filter((one) => !drawn.has(keyOf(one)));
        for (const one of groups) drawn.add(keyOf(one));
        return { total: part.total + n_left, items: groups };
      },
      (groups, from) => groups.map((group, i) => drawGroup(group, from + i + 1)),
    );
    n_groups = total;
    section.replaceChildren(
      el(
        "div.row.head",
        el("h1", "Photos that look alike"),
        el("span.quiet", plural(total, "group")),
        undo,
        back,
      ),
      el(
        "p.quiet",
        "First copies of one picture, of another size, quality or brightness, cropped or " +
          "mirrored. Then pictures of one scene, and those that look alike. Removed photos " +
          "keep their files.",
      ),
      blank,
      total ? holder : box("No two photos look alike", "Nothing to tidy up."),
    );
  });

/**
 * Of one picture all but one may go, of one scene all but those chosen, else those chosen.
 * The first photo is the one that each of the others was compared with.
 * @param {Omit<Schemas["AlikeGroup"], "degree"> & { degree: keyof typeof WORDS }} group
 * @param {number} number
 */
function drawGroup({ degree, images, n_images, splits }, number) {
  const { title: titled, chosen: words, apart } = WORDS[degree];
  const title = titled(n_images);
  const one = degree === "picture";
  const section = el(degree === "blank" ? "section.panel.blank" : "section.panel.group", {
    "aria-label": number ? `Group ${number}: ${title}` : title,
  });
  /** @param {Summary} image @param {number} i */
  const choice = (image, i) =>
    el(
      "label.check",
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
  const button = el("button");
  const hint = el("span.quiet", "Choose which to keep");
  const others = (/** @type {number} */ own) =>
    images.map(({ id }) => id).filter((id) => id !== own);
  const toRemove = () => {
    const chosen = /** @type {HTMLInputElement[]} */ ($$("input:checked", section)).map(
      ({ value }) => Number(value),
    );
    return CHOSEN_GO.includes(degree)
      ? chosen
      : images.map(({ id }) => id).filter((id) => !chosen.includes(id));
  };
  const draw = () => {
    const n = toRemove().length;
    const kept = one ? "one" : count(images.length - n);
    button.textContent = CHOSEN_GO.includes(degree)
      ? `Remove ${count(n)}`
      : `Keep ${kept}, remove ${count(n)}`;
    // Of a scene at least one is kept.
    button.hidden = !n || (degree === "scene" && n === images.length);
    hint.hidden = degree !== "scene" || !button.hidden;
  };
  button.addEventListener("click", () => askToRemove(section, toRemove()));
  const labels = new Set(images.map((image) => image.labels.join(", ")));
  section.append(
    el(
      "div.row",
      el("h2", title),
      el(
        "span.row",
        hint,
        button,
        apart
          ? el(
              "button",
              {
                title: "They are all different: do not show them together again",
                onclick: () =>
                  sayDifferent(
                    images.map(({ id }) => [id]),
                    section,
                  ),
              },
              apart,
            )
          : null,
      ),
    ),
    one && labels.size > 1
      ? el(
          "p.quiet",
          { dir: "auto" },
          `With different labels: ${[...labels].map((name) => name || "none").join(" · ")}`,
        )
      : "",
    one && splits.length > 1
      ? el("p.quiet", `Copies in ${splits.join(" and ")}: what is tested was trained on.`)
      : "",
    el(
      "ol.photos.small",
      images.map((image, i) => {
        const item = photo(image);
        item.append(
          el(
            "p.under",
            choice(image, i),
            el("span.quiet", { dir: "auto" }, fileName(image.path)),
            image.width ? el("span.quiet", `${image.width}\u00a0×\u00a0${image.height}`) : null,
            apart && images.length > 2
              ? el(
                  "button.plain",
                  {
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
  if (section.matches(".group")) {
    n_groups -= 1;
    n_left += 1;
  }
  $("#alike .head .quiet").textContent = plural(n_groups, "group");
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
    else await redraw().then(placeFocus);
    showUndo($("#alike .head .plain"), last);
    did("different", undoDifferent);
    toast("They are not shown together again.", "Undo", () => void undoDifferent());
  } catch (error) {
    failure(error);
  }
}

const undoDifferent = () =>
  post("api/alike/undo", undefined).then(() => {
    undid("different");
    toast("They may be shown together again.");
    return redraw().then(placeFocus);
  }, failure);

/** @param {HTMLElement} button @param {Schemas["LastRemoval"] | null} removal */
function showRestore(button, removal) {
  button.hidden = !removal;
  if (!removal) return;
  button.textContent = `Undo: ${plural(removal.images, "photo")} removed`;
  button.onclick = () => restore([removal.undo]).then(placeFocus);
}

/**
 * Asked once more, with all that goes, and can be undone.
 * @param {HTMLElement} section
 * @param {number[]} ids
 */
async function askToRemove(section, ids) {
  try {
    const images = await get("api/images/details", { ids: ids.join() });
    showDialog(
      `Remove ${plural(ids.length, "photo")} from the collection?`,
      el(
        "p",
        images.length === 1
          ? "It no longer appears in searches. Its file stays on disk."
          : "They no longer appear in searches. Their files stay on disk.",
      ),
      el(
        "ul",
        images.map(({ path, width, height, bytes, taken, split }) =>
          el(
            "li",
            el("span", { dir: "auto" }, path),
            el(
              "span.quiet",
              ` ${[
                width ? `${width}\u00a0×\u00a0${height}` : null,
                bytes === null ? "file gone" : `${count(Math.ceil(bytes / 1000))}\u00a0KB`,
                taken?.slice(0, 10),
                split,
              ]
                .filter(Boolean)
                .join(", ")}`,
            ),
          ),
        ),
      ),
      dialogButtons(["Cancel"], ["Remove", () => void remove(section, ids), "primary"]),
    );
  } catch (error) {
    failure(error);
  }
}

/** @param {HTMLElement} section @param {number[]} ids */
async function remove(section, ids) {
  try {
    const { undo } = await post("api/images/remove", { ids });
    if (undo) did("removal", () => restore([undo]));
    leave(section);
    if (undo) showRestore($("#alike .head button:last-child"), { undo, images: ids.length });
    toast(
      `${plural(ids.length, "photo")} removed from the collection.`,
      undo ? "Undo" : undefined,
      undo ? () => void restore([undo]) : undefined,
    );
    await readRun();
  } catch (error) {
    failure(error);
  }
}

addView("alike", { title: "Photos that look alike", show: showAlike });
