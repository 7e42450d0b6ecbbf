// One photo, over the whole screen: zoom and pan, the neighbours as a strip, details at the side,
// the query beside it, why it matched.

import { get } from "../core/api.js";
import { complete } from "./details.js";
import { $, $$, activeElement, el, icon, keyName, targetOf } from "../core/dom.js";
import { missing, orElse, picture, thumbnail } from "../core/pictures.js";
import { remember, remembered } from "../core/remember.js";
import { announce, copy, placeMessages } from "../core/says.js";
import { count, figure, percent, plural, present } from "../core/text.js";
import { drawExplanation } from "../search/explain.js";
import { altText, markButtons } from "./grid.js";
import { labelEditor } from "../teach/labels.js";
import { drawNeighbours } from "../search/neighbours.js";
import { drawTeachers, TEACHERS } from "../search/teachers.js";
import { info, named } from "../core/words.js";
import { zoomable } from "./zoom.js";

/** @import { Query } from "../core/address.js" */
/** @import { Photo } from "./details.js" */
/** @import { Child, Props } from "../core/dom.js" */
/** @import { Mark } from "../teach/marks.js" */
/**
 * What the viewer shows: `best` is the score of the first result, `learner` is null where the model
 * that ranked the image is no longer there, `act` holds what its buttons do.
 * @typedef {{
 *   image: Photo,
 *   images: Photo[],
 *   best: number,
 *   mark: Mark | undefined,
 *   markable: boolean,
 *   explain: boolean,
 *   beside: boolean,
 *   learner: string | null,
 *   learned_weight: number | undefined,
 *   model: string | null,
 *   query: { values: Query, name: string, address: string | null } | null,
 *   act: { [name: string]: (id?: number) => unknown },
 * }} Shown
 */

/** @type {HTMLDialogElement} */
export const viewer = $("#viewer");
const STRIP = 20; // neighbours on each side in the strip
/** @type {number | null} */
let shown = null; // the id of the image drawn
/** @type {ReturnType<typeof zoomable> | null} */
let zoom = null;
/** @type {{ image: Photo, section: HTMLElement } | null} */
let labels = null; // those of the photo shown: what is typed stays when the viewer is drawn again

/** @param {Photo} image */
function labelsOf(image) {
  if (labels?.image !== image) labels = { image, section: labelEditor(image) };
  return labels.section;
}

/** @param {number | null} factor */
export const zoomBy = (factor) => (factor ? zoom?.zoom(factor) : zoom?.reset());

export function toggleDetails() {
  const on = !remembered("viewerDetails", innerWidth > 900);
  remember("viewerDetails", on);
  placeDetails(on);
}

/** @param {boolean} [on] */
function placeDetails(on = remembered("viewerDetails", innerWidth > 900)) {
  viewer.classList.toggle("with-details", on);
  $('[data-act="details"]', viewer)?.setAttribute("aria-pressed", String(on));
}

/** @param {Photo} image @param {string} alt */
function photo(image, alt) {
  const img = el("img", {
    src: thumbnail(image, 1024),
    srcset: `${thumbnail(image, 1024)} 1024w, ${thumbnail(image, 2048)} 2048w`,
    sizes: "(min-width: 900px) 75vw, 100vw",
    alt,
    draggable: "false",
    decoding: "async",
  });
  return orElse(img, () => missing(alt, image.path), image.id);
}

/** @param {Shown} given @returns {Promise<void>} */
export async function drawViewer(given) {
  const { image, images, act, query } = given;
  const at = images.findIndex((other) => other.id === image.id);
  const focused = viewer.contains(activeElement()) ? activeElement() : null;
  /**
   * @param {string} name
   * @param {Parameters<typeof icon>[0]} sign
   * @param {string} words
   * @param {string} key
   * @param {Props} [extra]
   */
  const round = (name, sign, words, key, extra = {}) =>
    el(
      "button.round",
      {
        "data-act": name,
        "aria-label": words,
        title: `${words} (${key})`,
        "aria-keyshortcuts": /^[ -~]$/.test(key) ? key : null,
        ...extra,
      },
      icon(sign),
    );
  const stage = el("div.stage");
  viewer.replaceChildren(
    el(
      "header",
      el("span.counter", `${count(at + 1)} / ${count(images.length)}`),
      el("span.spring"),
      round("out", "minus", "Zoom out", "-"),
      round("in", "plus", "Zoom in", "+"),
      query?.address
        ? round("beside", "columns", "Compare with query", "C", {
            "aria-pressed": String(given.beside),
          })
        : "",
      round("details", "info", "Details", "I", { "aria-pressed": "false" }),
      round("close", "cross", "Close", "Esc", { class: "round close" }),
    ),
    el(
      "div.inside",
      el(
        "div.view",
        stage,
        round("left", "left", "Previous photo", "←", {
          class: "round step before",
          disabled: at <= 0,
        }),
        round("right", "right", "Next photo", "→", {
          class: "round step after",
          disabled: at >= images.length - 1,
        }),
      ),
      el("div.side", sideOf(given, images[at + 1])),
    ),
    bar(given),
    strip(images, at),
  );
  viewer.classList.toggle("explaining", given.explain);
  placeDetails();
  viewer.onclick = (event) => {
    /** @type {HTMLElement | null} */
    const acted = targetOf(event).closest("[data-act]");
    if (acted?.dataset.act === "show") act.show(Number(acted.dataset.id));
    else if (acted) act[acted.dataset.act ?? ""]?.();
  };
  viewer.oncancel = (event) => {
    event.preventDefault();
    act.close();
  };
  viewer.onclose = () => shown !== null && act.close(); // by the browser, which need not ask
  if (!viewer.open) viewer.showModal();
  placeMessages();
  const same = focused?.isConnected && focused !== viewer ? focused : null; // a field for a label
  /** @type {HTMLElement[]} */
  const acting = $$(`[data-act="${focused?.dataset.act}"]:not(:disabled)`, viewer);
  const again = acting.find((button) => button.checkVisibility());
  /** @type {HTMLElement} */
  const next = same ?? again ?? $(".close", viewer);
  next.focus({ preventScroll: true });
  shown = image.id;
  zoom = null;
  const strips = $(".film", viewer);
  const current = $('[aria-current="true"]', strips);
  if (current)
    strips.scrollLeft = current.offsetLeft - (strips.clientWidth - current.offsetWidth) / 2;

  if (image.path === null) {
    const draw = () => void (shown === image.id && image.path !== null && drawViewer(given));
    complete([image]).then(draw, () => {});
  }
  if (!given.explain) {
    const pictures = [photo(image, altText(image))];
    if (query?.address && given.beside) {
      pictures.unshift(
        el("img", { src: query.address, alt: `Query, ${query.name}`, draggable: "false" }),
      );
      stage.classList.add("beside");
    }
    const panes = pictures.map((img, i) =>
      el(
        "div.pane",
        img,
        given.beside ? el("span.what", i ? `Result ${image.rank ?? ""}` : "Query") : null,
      ),
    );
    stage.replaceChildren(...panes);
    const swipe = { left: act.right, right: act.left, down: act.close };
    zoom = zoomable(stage, pictures, { swipe });
    for (const near of [images[at - 1], images[at + 1], images[at + 2]])
      if (near) new Image().src = thumbnail(near, 1024);
    return;
  }
  stage.append(el("p.quiet.wait", "Computing the explanation …"));
  try {
    if (!query?.address)
      throw new Error(
        "Results of a label query cannot be explained. Search with an image to see which " +
          "blocks match.",
      );
    if (!given.learner)
      throw new Error(
        "The model that ranked this image has been replaced. Undo the update to see the " +
          "explanation.",
      );
    const explanation = await get("explain", {
      ...query.values,
      result: image.id,
      learner: given.learner,
      learned_weight: given.learned_weight,
      teachers: TEACHERS,
    });
    if (!stage.isConnected) return;
    stage.replaceChildren(
      drawNeighbours(explanation),
      drawExplanation(
        explanation,
        { query_region: query.address, result_region: thumbnail(image, 1024) },
        explanation.neighbours ? explanation.score : given.best,
      ),
      drawTeachers(explanation),
    );
    announce(`${explanation.neighbours?.sentence ?? ""} ${explanation.sentence}`);
  } catch (error) {
    stage.replaceChildren(
      el(
        "div.box",
        { role: "alert" },
        el("div", el("strong", "No explanation available"), el("p", error.message)),
      ),
    );
  }
}

/** Fields of photos; others have the names of a table. @type {{ [field: string]: string }} */
const FIELDS = {
  camera: "Camera",
  lens: "Lens",
  iso: "ISO",
  focal_length: "Focal length (mm)",
  rating: "Rating",
  people: "People",
  title: "Title",
  description: "Description",
};

/**
 * Add facts that are read when the photo is opened: when it was taken, its file, what a table says.
 * @param {HTMLElement} facts
 * @param {number} id
 * @param {(name: string, value: string) => Child} fact
 */
function addOrigin(facts, id, fact) {
  const more = get(`api/images/${id}`);
  more.then(
    ({ path, taken, bytes, fields }) => {
      const folder = path.slice(0, Math.max(0, path.lastIndexOf("/")));
      const isOfFile = fields.date_source === "file";
      const others = Object.entries(fields).filter(([name]) => !/^date(_source)?$/.test(name));
      const rows = present([
        taken && fact(isOfFile ? "File changed" : "Taken", taken.replace("T", ", ")),
        ...others.map(([name, value]) => fact(FIELDS[name] ?? name, value)),
        folder && fact("Folder", folder),
        bytes && fact("File", `${count(Math.ceil(bytes / 1024))} KB`),
      ]);
      for (const row of rows) facts.append(.../** @type {Node[]} */ (row));
    },
    () => {}, // the photo was removed
  );
  return facts;
}

/**
 * The details of an image, and what can be done with it.
 * @param {Shown} given
 * @param {Photo | undefined} next
 */
function sideOf({ image, mark, markable, explain, model, query }, next) {
  const unknown = image.path === null ? "…" : null; // until it has been read
  const [relevant, not] = markButtons(mark, true);
  relevant.append(keyName("A"));
  not.append(keyName("X"));
  /** @param {string} name @param {Child} value @param {Parameters<typeof info>[0]} [what] */
  const fact = (name, value, what) => [el("dt", name, what ? info(what) : null), el("dd", value)];
  /** @param {string} name @param {string} words @param {string} key @param {Props} [extra] */
  const button = (name, words, key, extra = {}) =>
    el(
      "button",
      {
        "data-act": name,
        "aria-keyshortcuts": key,
        title: `${words} (${key})`,
        ...extra,
      },
      words,
      keyName(key),
    );
  const { score, probability } = image;
  const gap = score !== undefined && next?.score !== undefined ? score - next.score : undefined;
  return [
    el("h2", { id: "viewer-title" }, image.rank ? `Result ${image.rank}` : "Photo"),
    el("p.path", unknown ?? named(image.path ?? "")),
    el(
      "div.actions",
      markable ? [relevant, not] : null,
      button("pivot", "Search with this", "S"),
      query?.address
        ? button("explain", explain ? "Hide explanation" : "Explain", "E", {
            "aria-pressed": String(explain),
          })
        : null,
    ),
    addOrigin(
      el(
        "dl.facts",
        image.width ? fact("Size", `${image.width} × ${image.height}`) : null,
        model ? fact("Ranked by", model, "learner") : null,
        score === undefined ? null : fact("Score", figure(score), "score"),
        gap === undefined ? null : fact("Ahead of the next", figure(gap), "gap"),
        probability === undefined || probability === null
          ? null
          : fact("Likely the same kind", percent(probability), "probability"),
      ),
      image.id,
      fact,
    ),
    labelsOf(image),
    image.copies?.length
      ? el(
          "div.same",
          el("h3", plural(image.copies.length, "copy", "copies")),
          el(
            "ul",
            image.copies.map((same) =>
              el(
                "li",
                el(
                  "a",
                  { href: `images/${same.id}/original`, target: "_blank", rel: "noopener" },
                  el("img", {
                    src: thumbnail(same, 128),
                    alt: `Open copy ${same.path ?? same.rank}`,
                    width: 56,
                    height: 56,
                  }),
                ),
              ),
            ),
          ),
        )
      : null,
    el(
      "p.links",
      el(
        "a",
        { href: `images/${image.id}/original`, target: "_blank", rel: "noopener" },
        "Open original",
      ),
      el("button.plain", { "data-act": "copy" }, "Copy link"),
      image.path &&
        el("button.plain", { onclick: () => copy(image.path ?? "", "The path") }, "Copy path"),
    ),
  ];
}

/**
 * What is done most, below the photo where the screen is narrow: one tap each.
 * @param {Shown} given
 */
const bar = ({ mark, markable }) =>
  el(
    "div.taps",
    { role: "group", "aria-label": "This photo" },
    markable ? markButtons(mark, true) : null,
    el(
      "button",
      { "data-act": "pivot", "aria-label": "Search with this" },
      icon("search"),
      "Search",
    ),
  );

/**
 * The neighbours, small.
 * @param {Photo[]} images
 * @param {number} at
 */
function strip(images, at) {
  const from = Math.max(0, at - STRIP);
  return el(
    "div.film",
    { role: "group", "aria-label": "Neighbouring photos" },
    images.slice(from, at + STRIP + 1).map((image, i) => {
      const current = from + i === at;
      const button = el(
        "button",
        {
          "data-act": "show",
          "data-id": image.id,
          tabindex: current ? 0 : -1,
          "aria-current": current ? "true" : null,
          "aria-label": `Show ${image.rank ? `result ${image.rank}` : `photo ${from + i + 1}`}`,
        },
        picture(image, { size: 128 }),
      );
      if (image.color) button.style.setProperty("--shade", image.color);
      return button;
    }),
  );
}

// Close it; return the id of the image that it showed, null if it was closed.
export function closeViewer() {
  const id = shown;
  shown = null;
  zoom = null;
  labels = null;
  if (viewer.open) viewer.close();
  placeMessages();
  return id;
}
