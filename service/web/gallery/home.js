// The collection to wander in: the home page, albums, recent photos and labels to check.

import { get, post } from "../core/api.js";
import { $, el, icon, link } from "../core/dom.js";
import { box, command } from "../core/says.js";
import { count, plural } from "../core/text.js";
import { redraw } from "../core/history.js";
import { readPoints } from "../map/mapdata.js";
import { newOnes } from "../teach/growing.js";
import { verdict } from "../teach/labels.js";
import { failure } from "../core/messages.js";
import { coverOf, inParts, photoList } from "./photolist.js";
import { asList, state, viewOf } from "../core/state.js";
import { addView } from "../core/views.js";
import { buildWall, drawWall } from "../map/wall.js";

/** @import { Request } from "../core/address.js" */
/** @import { Schemas } from "../core/api.js" */
/** @import { Child } from "../core/dom.js" */
/** @import { View } from "../core/views.js" */
/** @typedef {Schemas["MapState"]} MapState */
/** @typedef {Schemas["ImageSummary"]} Summary */
/** @typedef {"label" | "folder"} Kind of album */

/** @param {string} words @param {Request} request @param {string} [more] */
const heading = (words, request, more = "See all") =>
  el("div.row", el("h2", words), link(request, more));
/** @param {string} name */
const folderName = (name) => name || "Image directory";

/** @param {Schemas["Album"]} album @param {Kind} kind */
function album({ name, images, covers }, kind) {
  return el(
    "li",
    link(
      { view: "album", [kind]: name || "." },
      [
        coverOf(covers),
        el("strong", { dir: "auto" }, kind === "folder" ? folderName(name) : name),
        el("span.quiet", plural(images, "photo")),
      ],
      { class: "album" },
    ),
  );
}

/** @param {Schemas["Album"][]} albums @param {Kind} kind */
const albumList = (albums, kind) =>
  el(
    "ul.albums",
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
export function drawHome(home) {
  const { labels, folders, recent } = home;
  $("#home").dataset.version = state.run.version ?? "";
  $("#home").replaceChildren(
    ways(home),
    labels.total
      ? el(
          "section",
          { "aria-label": "Labels" },
          heading("Labels", { view: "albums" }, `All ${count(labels.total)}`),
          albumList(labels.albums, "label"),
        )
      : "",
    folders.total > 1 && !folders.same_as_labels
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

/** @type {MapState} */
let drawn; // what the cards show

/** @param {Home} home */
function ways({ map, alike, check, labels }) {
  drawn = map;
  return el("ul.ways", mapCard(map), alikeCard(map, alike), checkCard(map, check, labels.total));
}

/** Draw the cards again when a part of what they show is there, as long as the page shows them. */
export const followHome = () =>
  followMap(drawn, async (map) => {
    if (viewOf(state.request) !== "start") return false;
    if (JSON.stringify(parts(map)) !== JSON.stringify(parts(drawn)))
      $("#home .ways").replaceWith(ways(await get("api/home")));
    else showProgress(map);
    return true;
  });

/** @param {MapState} map */
const parts = (map) => [map.version, map.making, map.n_alike, map.n_check];

/**
 * @param {Request} request
 * @param {HTMLElement} picture
 * @param {string} title
 * @param {Child} words
 */
function way(request, picture, title, words) {
  return el(
    "li",
    link(request, [picture, el("span", el("strong", title), el("span.quiet", words))], {
      class: "way",
    }),
  );
}

/** @param {MapState} map */
function mapCard(map) {
  return way(
    { view: "map" },
    mapPicture(map),
    "Map of the collection",
    map.ready
      ? [`${plural(map.images, "photo")}, the similar ones together`, map.making && progress(map)]
      : map.making
        ? ["The photos in rows; soon the similar ones together", progress(map)]
        : "The photos in rows; no map yet",
  );
}

/** @param {MapState} map */
const phase = (map) => `${map.phase ?? "starting"} …`;

/** @param {MapState} map */
const progress = (map) =>
  el("progress", {
    max: 1,
    value: map.share,
    title: phase(map),
    "aria-label": "Progress of the map",
  });

/** @param {MapState} map */
function showProgress(map) {
  /** @type {HTMLProgressElement} */
  const bar = $("main progress[title]");
  if (!bar) return;
  bar.value = map.share;
  bar.title = phase(map);
}

/**
 * What a card says of a part that may not be there yet.
 * @param {MapState} map
 * @param {number | null} n
 * @param {(n: number) => string} words
 */
const known = (map, n, words) =>
  n !== null ? words(n) : map.making ? "Looking for them …" : "Not known yet";

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
const art = (images, sign) => (images?.length ? coverOf(images) : el("span.art", icon(sign)));

/** @param {MapState} map @param {Schemas["AlikeGroups"] | null} alike */
function alikeCard(map, alike) {
  return way(
    { view: "alike" },
    art(
      alike?.groups.flatMap(({ images }) => images.slice(0, 2)),
      "alike",
    ),
    "Photos that look alike",
    known(map, map.n_alike, (n) => plural(n, "group")),
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
    known(map, map.n_check, (n) =>
      n
        ? (n < 2000 ? "" : "At least ") + // as many as are kept
          plural(n, "label is probably wrong", "labels are probably wrong")
        : "No label looks wrong",
    ),
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
    const place = el("div");
    const news = kind === "label" ? await newOnes() : [];
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
        ...(total ? [holder] : [search.value ? el("p.quiet", "No such name.") : nothing(kind)]),
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
        "div.row.head",
        el("h1", title),
        search,
        link(
          { view: kind === "label" ? "folders" : "albums" },
          kind === "label" ? "By folder" : "By label",
        ),
        kind === "label" ? el("a", { href: "api/labels.csv", download: "" }, "Labels as CSV") : "",
      ),
      news.length ? el("p.note.links", news) : "",
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
          "Select photos and choose “Label”, or open one and add a label to it. Photos also have " +
            "labels if they lie in one folder per label, or by a table labels.csv.",
        ),
        el(
          "p.links",
          link({ view: "photos" }, "All photos"),
          link({ view: "folders" }, "Look at the folders"),
        ),
      ])
    : box("No images", [
        el("p", "This run has no images yet."),
        command("visterm features FOLDER"),
      ]);

// ---- what the overview found

/**
 * @param {HTMLElement} section
 * @param {string} title
 * @param {"n_alike" | "n_check"} part that must be there
 * @param {() => Promise<void>} draw
 */
export async function withOverview(section, title, part, draw) {
  const map = await get("api/map");
  if (map[part] !== null) return draw();
  section.replaceChildren(
    el("h1", title),
    notDrawn(map, (next) => next[part] !== null),
  );
}

/**
 * What stands where something is not there yet; it draws the page again when it is.
 * @param {MapState} map
 * @param {(map: MapState) => boolean} isThere
 */
export function notDrawn(map, isThere) {
  const turn = state.turn;
  followMap(map, (next) => {
    if (state.turn !== turn) return false;
    showProgress(next);
    if (isThere(next) || next.making !== map.making) void redraw();
    return true;
  });
  if (map.making)
    return el(
      "div.panel.making",
      el("p", "Looking for what belongs together …"),
      progress(map),
      el("p.quiet", "It runs in the background. You can go on searching."),
    );
  const button = el("button.primary", "Look now");
  button.addEventListener("click", () =>
    drawMap()
      .then(() => redraw())
      .catch(failure),
  );
  return el(
    "div.panel.making",
    map.problem ? box("The last try failed", map.problem) : "",
    el(
      "p",
      "The collection has not been looked through yet. That takes seconds for a thousand " +
        "photos.",
    ),
    button,
  );
}

export const drawMap = () => post("api/map", {});

const [EVERY, PATIENCE, SELDOM] = [1000, 10, 10_000]; // milliseconds; looks at a map nobody draws

/** @type {number | undefined} */
let waiting; // timer of the next look at the map

/**
 * Look at the map every second while it is drawn. It may be soon, after a start of the service or a
 * change: seldom, if that takes long.
 * @param {MapState} map
 * @param {(map: MapState) => boolean | Promise<boolean>} tell returns whether to go on
 * @param {number} [idle] looks so far at a map that was not being drawn
 */
export function followMap(map, tell, idle = 0) {
  clearTimeout(waiting);
  if (!map.making && map.current) return;
  waiting = setTimeout(
    async () => {
      const next = await get("api/map").catch(() => map);
      if (await Promise.resolve(tell(next)).catch(() => true))
        followMap(next, tell, next.making ? 0 : idle + 1);
    },
    idle < PATIENCE ? EVERY : SELDOM,
  );
}

/**
 * Why a label may be wrong.
 * @param {Schemas["LabelToCheck"]} entry
 */
function doubt(entry) {
  const { label, suggested } = entry;
  return [
    el("strong", { dir: "auto" }, `${label}?`),
    ` ${verdict(entry)}`,
    link({ view: "album", label: suggested }, suggested, { dir: "auto" }),
    ".",
  ];
}

/** @param {HTMLElement} section @param {Request} request */
const showCheck = (section, request) =>
  withOverview(section, "Check these labels", "n_check", async () => {
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
        "div.row.head",
        el("h1", label ? `Check the label ${label}` : "Check these labels"),
        el("span.quiet", plural(total, "photo")),
        label ? link({ view: "check" }, "All labels") : null,
      ),
      el(
        "p.quiet",
        "Compared with all other photos, another label fits these much better. Theirs may be " +
          "wrong, or the photo unusual.",
      ),
      total
        ? el("p", link({ view: "queue", label }, "Go through them", { class: "button primary" }))
        : "",
      total
        ? holder
        : box("No label looks wrong", "No label fits a photo much better than its own."),
    );
  });

addView("albums", { title: "Labels", show: albumsView("label", "Labels") });
addView("folders", { title: "Folders", show: albumsView("folder", "Folders") });
addView("check", { title: "Check these labels", show: showCheck });
