// The collection to wander in: the home page, albums, recent photos and labels to check.

import { addressOf } from "../core/address.js";
import { get, post } from "../core/api.js";
import { $, box, command, count, el, icon, plural } from "../core/dom.js";
import { redraw } from "../core/history.js";
import { readPoints } from "../map/mapdata.js";
import { verdict } from "../teach/labels.js";
import { failure } from "../core/messages.js";
import { coverOf, inParts, photoList } from "./photolist.js";
import { asList, state } from "../core/state.js";
import { addView } from "../core/views.js";
import { buildWall, drawWall } from "../map/wall.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas } from "../core/api.js" */
/** @import { View } from "../core/views.js" */
/** @typedef {Schemas["MapState"]} MapState */
/** @typedef {Schemas["ImageSummary"]} Summary */
/** @typedef {"label" | "folder"} Kind of album */

/** @param {Request} values */
const here = (values) => ({ href: addressOf(values), "data-go": "link" });
/** @param {string} words @param {Request} link @param {string} [more] */
const heading = (words, link, more = "See all") =>
  el("div", { class: "row" }, el("h2", {}, words), el("a", here(link), more));
/** @param {string} name */
const folderName = (name) => name || "Image directory";

/** @param {Schemas["Album"]} album @param {Kind} kind */
function album({ name, images, covers }, kind) {
  return el(
    "li",
    {},
    el(
      "a",
      { class: "album", ...here({ view: "album", [kind]: name || "." }) },
      coverOf(covers),
      el("strong", { dir: "auto" }, kind === "folder" ? folderName(name) : name),
      el("span", { class: "quiet" }, plural(images, "photo")),
    ),
  );
}

/** @param {Schemas["Album"][]} albums @param {Kind} kind */
const albumList = (albums, kind) =>
  el(
    "ul",
    { class: "albums" },
    albums.map((one) => album(one, kind)),
  );

// ---- home

const SMALL = 40; // pixels of a photo of the small map, at the least
const FEW = 1500; // photos that it is made from

/** @typedef {Schemas["Home"]} Home */

/**
 * What the first page shows, all at once, so that nothing moves when a part comes late; null where
 * it shows that already.
 * @returns {Promise<Home | null>}
 */
export const readHome = async () =>
  state.run.images && $("#home").dataset.version !== state.run.version ? get("api/home") : null;

/** @param {Home} home */
export function drawHome({ labels, folders, recent, map, alike, check }) {
  const home = $("#home");
  home.dataset.version = state.run.version ?? "";
  home.replaceChildren(
    el(
      "ul",
      { class: "ways" },
      mapCard(map),
      alikeCard(map, alike),
      checkCard(map, check, labels.total),
    ),
    labels.total
      ? el(
          "section",
          { "aria-label": "Labels" },
          heading("Labels", { view: "albums" }, `All ${count(labels.total)}`),
          albumList(labels.albums, "label"),
        )
      : "",
    folders.total && !folders.same_as_labels
      ? el(
          "section",
          { "aria-label": "Folders" },
          heading("Folders", { view: "folders" }, `All ${count(folders.total)}`),
          albumList(folders.albums, "folder"),
        )
      : "",
    recent.length
      ? el(
          "section",
          { "aria-label": "Recently added" },
          heading("Recently added", { view: "added" }),
          photoList(recent, { first: 0 }),
        )
      : "",
  );
}

/**
 * @param {Request} link
 * @param {HTMLElement} picture
 * @param {string} title
 * @param {string} words
 */
function way(link, picture, title, words) {
  return el(
    "li",
    {},
    el(
      "a",
      { class: "way", ...here(link) },
      picture,
      el("span", {}, el("strong", {}, title), el("span", { class: "quiet" }, words)),
    ),
  );
}

/** @param {MapState} map */
function mapCard(map) {
  return way(
    { view: "map" },
    map.ready ? mapPicture(map) : el("span", { class: "art" }, icon("image")),
    "Map of the collection",
    map.ready
      ? `${plural(map.images, "photo")}, the similar ones together`
      : map.making
        ? "is being drawn …"
        : "is not drawn yet",
  );
}

/** @param {MapState} map */
function mapPicture(map) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  let frame = 0;
  /** @type {Awaited<ReturnType<typeof readPoints>> | undefined} */
  let points;
  const draw = () => {
    const dpr = Math.min(2, devicePixelRatio || 1);
    const [width, height] = [canvas.clientWidth * dpr, canvas.clientHeight * dpr];
    if (!points || !width || !height) return; // not there yet
    [canvas.width, canvas.height] = [width, height];
    const wall = buildWall(points, canvas, SMALL * dpr);
    drawWall(canvas, points, wall, {
      box: { left: 0, top: 0, width, height },
      step: wall.step,
      gap: Math.round(2 * dpr),
      loaded: drawSoon,
    });
  };
  const drawSoon = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };
  new ResizeObserver(drawSoon).observe(canvas);
  readPoints(map, FEW).then((all) => {
    points = all;
    drawSoon();
  }, failure);
  return canvas;
}

/** @param {Summary[] | undefined} images @param {"alike" | "tag"} sign */
const art = (images, sign) =>
  images?.length ? coverOf(images) : el("span", { class: "art" }, icon(sign));

/** @param {MapState} map @param {Schemas["AlikeGroups"] | null} alike */
function alikeCard(map, alike) {
  return way(
    { view: "alike" },
    art(
      alike?.groups.flatMap(({ images }) => images.slice(0, 2)),
      "alike",
    ),
    "Photos that look alike",
    map.ready ? plural(map.n_alike, "group") : "found with the map",
  );
}

/** @param {MapState} map @param {Schemas["LabelsToCheck"] | null} check @param {number} labels */
function checkCard(map, check, labels) {
  if (!labels) return "";
  return way(
    { view: "check" },
    art(
      check?.entries.map(({ image }) => image),
      "tag",
    ),
    "Check these labels",
    map.ready
      ? plural(map.n_check, "photo that fits its label badly", "photos that fit their label badly")
      : "found with the map",
  );
}

// ---- albums

/** @param {Kind} kind @param {string} title @returns {View["show"]} */
function albumsView(kind, title) {
  return async (section) => {
    const search = el("input", {
      type: "search",
      "aria-label": `Filter ${title.toLowerCase()}`,
      placeholder: `Filter ${title.toLowerCase()}`,
    });
    const place = el("div", {});
    let turn = 0;
    const draw = async () => {
      const mine = ++turn;
      /** @param {number} offset */
      const read = async (offset) => {
        const { total, albums } = await get("api/albums", {
          kind,
          q: search.value || undefined,
          offset,
          limit: 60,
        });
        return { total, items: albums };
      };
      const { holder, total } = await inParts(read, (albums) => [albumList(albums, kind)]);
      if (mine !== turn) return;
      place.replaceChildren(
        ...(total
          ? [holder]
          : [search.value ? el("p", { class: "quiet" }, "No such name.") : nothing(kind)]),
      );
    };
    /** @type {number | undefined} */
    let timer;
    search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => draw().catch(failure), 120);
    });
    section.replaceChildren(
      el(
        "div",
        { class: "row head" },
        el("h1", {}, title),
        search,
        el(
          "a",
          here({ view: kind === "label" ? "folders" : "albums" }),
          kind === "label" ? "By folder" : "By label",
        ),
      ),
      place,
    );
    await draw();
  };
}

/** @param {Kind} kind */
const nothing = (kind) =>
  kind === "label"
    ? box("No labels", [
        el(
          "p",
          {},
          "Images have labels if they lie in one folder per label, or by a table labels.csv " +
            "with the columns path and label.",
        ),
        el("p", {}, el("a", here({ view: "folders" }), "Look at the folders")),
      ])
    : box("No images", [
        el("p", {}, "This run has no images yet."),
        command("visterm features FOLDER"),
      ]);

// ---- what the overview found

/**
 * @param {HTMLElement} section
 * @param {string} title
 * @param {(map: MapState) => Promise<void>} draw
 */
export async function withOverview(section, title, draw) {
  const map = await get("api/map");
  if (map.ready) return draw(map);
  section.replaceChildren(el("h1", {}, title), notDrawn(map));
}

/**
 * What stands where the map is not drawn yet; it draws the page again when it is.
 * @param {MapState} map
 */
export function notDrawn(map) {
  if (map.making) {
    wait();
    return el(
      "div",
      { class: "panel making" },
      el("p", {}, `Looking for what belongs together: ${map.phase ?? "starting"} …`),
      el("progress", { max: 1, value: map.share, "aria-label": "Progress of the map" }),
      el("p", { class: "quiet" }, "It runs in the background. You can go on searching."),
    );
  }
  const button = el("button", { type: "button", class: "primary" }, "Look now");
  button.addEventListener("click", () =>
    drawMap()
      .then(() => redraw())
      .catch(failure),
  );
  return el(
    "div",
    { class: "panel making" },
    map.problem ? box("The last try failed", el("p", {}, map.problem)) : "",
    el(
      "p",
      {},
      "The collection has not been looked through yet. It takes seconds for a thousand " +
        "photos and two minutes for 50,000, in the background.",
    ),
    button,
  );
}

export const drawMap = () => post("api/map", {});

/** @type {number | undefined} */
let waiting; // timer of the next look at the map
function wait() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const map = await get("api/map").catch(() => null);
    const views = ["map", "alike", "check"];
    if (!views.includes(state.request.view ?? "")) return;
    /** @type {HTMLProgressElement} */
    const bar = $("main progress");
    if (map?.making && bar) {
      bar.value = map.share;
      const words = bar.previousElementSibling;
      if (words) words.textContent = `Looking for what belongs together: ${map.phase} …`;
      wait();
    } else redraw();
  }, 1000);
}

/**
 * Why a label may be wrong.
 * @param {Schemas["LabelToCheck"]} entry
 */
function doubt(entry) {
  const { label, suggested, suggested_share } = entry;
  const share = `${Math.round(100 * suggested_share)} %`;
  return [
    el("strong", { dir: "auto" }, `${label}?`),
    ` ${verdict(entry)}${share} of the nearest photos are `,
    el("a", { dir: "auto", ...here({ view: "album", label: suggested }) }, suggested),
    ".",
  ];
}

/** @param {HTMLElement} section @param {Request} request */
const showCheck = (section, request) =>
  withOverview(section, "Check these labels", async () => {
    const [label] = asList(request.label);
    const { holder, total } = await inParts(
      async (offset) => {
        const part = await get("api/check", { label, offset, limit: 60 });
        return { total: part.total, items: part.entries };
      },
      (entries) => {
        const of = new Map(entries.map((entry) => [entry.image.id, entry]));
        return [
          photoList(
            entries.map(({ image }) => image),
            {
              first: 12,
              note: (image) => {
                const entry = of.get(image.id);
                return entry ? doubt(entry) : null;
              },
            },
          ),
        ];
      },
    );
    section.replaceChildren(
      el(
        "div",
        { class: "row head" },
        el("h1", {}, label ? `Check the label ${label}` : "Check these labels"),
        el("span", { class: "quiet" }, plural(total, "photo")),
        label ? el("a", here({ view: "check" }), "All labels") : null,
      ),
      el(
        "p",
        { class: "quiet" },
        "By all other photos, another label fits these much better. A label may be wrong, or the " +
          "photo unusual.",
      ),
      total
        ? el(
            "p",
            {},
            el(
              "a",
              { class: "button primary", ...here({ view: "queue", label }) },
              "Go through them",
            ),
          )
        : "",
      total
        ? holder
        : box(
            "No label looks wrong",
            el(
              "p",
              {},
              "By all other photos, no other label fits a photo much better than its own.",
            ),
          ),
    );
  });

addView("albums", { title: "Labels", show: albumsView("label", "Labels") });
addView("folders", { title: "Folders", show: albumsView("folder", "Folders") });
addView("check", { title: "Check these labels", show: showCheck });
