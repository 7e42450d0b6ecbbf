// A gallery of any number of images: justified rows (layout.js), of which only those near the
// screen are in the document. One tile is a stop of the Tab key; the arrow keys move among the
// tiles. Select.js adds selecting, results.js and photos.js what a tile shows.

import { ratioOf, want } from "./details.js";
import { $, $$, activeElement, el, targetOf } from "../core/dom.js";
import { missing, otherwise, thumbnail } from "../core/pictures.js";
import { remember, remembered } from "../core/remember.js";
import { justify, rowAt } from "./layout.js";
import { PAGE } from "../core/state.js";

/** @import { Photo } from "./details.js" */
/** @import { Row } from "./layout.js" */
/** @typedef {{ x: number, y: number }} Point of the screen */
/** @typedef {{ at: number, words: string }} Break a heading before the image at a place */
/** @typedef {"left" | "right" | "up" | "down" | "first" | "last"} Direction */
/**
 * `img` is null where neither the thumbnail nor the original came.
 * @typedef {{
 *   node: HTMLElement,
 *   img: HTMLImageElement | null,
 *   image: Photo,
 *   loaded: boolean,
 * }} Tile
 */
/**
 * Functions of an image; `dress` fills a tile beyond its picture, again whenever the image changes.
 * @typedef {{
 *   dress?: (image: Photo, node: HTMLElement) => void,
 *   href: (image: Photo) => string,
 *   alt: (image: Photo) => string,
 * }} Make
 */

const GAP = 4;
const HEADING = 56; // pixels above a heading between rows
const AHEAD = 1; // screens above and below that are drawn
const FAST = 2.5; // screens a second: what passes faster is not loaded
const FURTHER = 60; // photos before and after those drawn whose names are read with them
const BUDGET = 4; // milliseconds of a frame for tiles that are not seen yet
const OVER = 250; // milliseconds over which a speed is measured
const SETTLED = 120; // milliseconds without a fast scroll
// Longer sides of the thumbnails that the service keeps.
const SIZES = [128, 256, 384, 512, 768, 1024];
export const [SMALLEST, LARGEST] = [72, 480]; // pixels of a row
const USUAL = 210;

export const rowHeight = () => {
  /** @type {number | null} */
  const kept = remembered("rowHeight", null);
  const height = kept ?? (innerWidth < 640 ? 130 : USUAL);
  return Math.min(LARGEST, Math.max(SMALLEST, height));
};

/** @type {Set<Gallery>} */
const galleries = new Set();

/**
 * Photos larger or smaller, here and in every gallery of the page. `at`: the point of the screen
 * that stays.
 * @param {number} height
 * @param {Point} [at]
 */
export function setRowHeight(height, at) {
  remember("rowHeight", Math.round(Math.min(LARGEST, Math.max(SMALLEST, height))));
  for (const gallery of galleries) gallery.layOut(at);
  dispatchEvent(new Event("rowheight"));
}

/**
 * The picture of a tile: the sizes that the service keeps, as wide as they are.
 * @param {HTMLImageElement} img
 * @param {Photo} image
 * @param {number} width
 */
function sources(img, image, width) {
  const ratio = ratioOf(image) || 1.5;
  const wide = Math.min(1, ratio);
  img.sizes = `${width}px`;
  img.srcset = SIZES.map(
    (size) => `${thumbnail(image, size)} ${Math.max(1, Math.round(size * wide))}w`,
  ).join(", ");
  img.src = thumbnail(image, 384);
}

export class Gallery {
  /** @type {Photo[]} */
  images = [];
  /** @type {Break[]} */
  breaks = [];
  /** @type {Map<number, Tile>} */
  tiles = new Map(); // those in the document, by their places
  at = 0; // the place that is a stop of the Tab key
  wide = 0;

  // The layout, see layout.js: of each image its row, left side and width.
  /** @type {Row[]} */
  rows = [];
  row = new Int32Array(0);
  left = new Float32Array(0);
  widths = new Float32Array(0);

  settled = true; // nobody scrolls fast
  frame = 0; // the request of one, 0 for none
  /** @type {number | undefined} */
  calm; // timer of the end of a scroll
  /** @type {{ origin: number, now: number }[]} */
  passed = []; // the last frames

  /** @param {HTMLOListElement} root @param {Make} make */
  constructor(root, { dress = () => {}, href, alt }) {
    this.root = root;
    this.dress = dress;
    this.href = href;
    this.alt = alt;
    root.classList.add("gallery");
    galleries.add(this);
    this.resized = new ResizeObserver(([{ contentRect }]) => {
      if (Math.abs(contentRect.width - this.wide) < 1 || !contentRect.width) return;
      this.layOut();
    });
    this.resized.observe(root);
    this.scrolled = () => {
      if (this.frame) return;
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
      });
    };
    addEventListener("scroll", this.scrolled, { passive: true });
    addEventListener("reachable", () => this.again());
    root.addEventListener("focusin", (event) => {
      /** @type {HTMLElement | null} */
      const tile = targetOf(event).closest(".tile");
      if (tile) this.stop(Number(tile.dataset.index));
    });
    this.pinch();
  }

  /**
   * Show images, with headings before some of them.
   * @param {Photo[]} images
   * @param {Break[]} [breaks]
   * @returns {void}
   */
  show(images, breaks = []) {
    const same = images[0]?.id === this.images[0]?.id && this.images.length > 0;
    const focused = this.focusedId();
    const more =
      same &&
      images.length >= this.images.length &&
      this.images.every((image, i) => image === images[i]);
    this.images = images;
    this.breaks = breaks;
    if (!same) this.at = 0;
    if (more && this.root.isConnected) {
      // tiles stay, with the finger or the pointer on them
      for (const { node } of this.tiles.values())
        node.setAttribute("aria-setsize", String(images.length));
      this.refreshAll();
      return this.layOut(null);
    }
    for (const tile of this.tiles.values()) tile.node.remove();
    this.tiles.clear();
    this.layOut(null);
    if (focused !== null && !this.focus(this.indexOf(focused))) this.focus(0);
  }

  /** @param {number} id */
  indexOf(id) {
    return this.images.findIndex((image) => image.id === id);
  }

  /**
   * Lay out again, so that the picture at a point of the screen (or the first one seen) stays
   * there.
   * @param {Point | null} [at]
   */
  layOut(at) {
    const old = at === null ? null : this.anchor(at);
    this.wide = this.root.clientWidth;
    if (!this.wide) return;
    const ratios = this.images.map(ratioOf);
    const options = { gap: GAP, heading: HEADING, breaks: this.breaks.map((one) => one.at) };
    // The first rows do not depend on the photos that follow later, so that these move nothing.
    const first =
      ratios.length <= PAGE
        ? []
        : justify(ratios.slice(0, PAGE), this.wide, rowHeight(), {
            ...options,
            breaks: options.breaks.filter((place) => place < PAGE),
          })
            .rows.slice(0, -1)
            .map((row) => row.end);
    const layout = justify(ratios, this.wide, rowHeight(), { ...options, fixed: first });
    const { rows, row, left, widths } = layout;
    Object.assign(this, { rows, row, left, widths });
    this.root.style.height = `${layout.height}px`;
    for (const one of this.root.querySelectorAll(".divider")) one.remove();
    for (const { at: index, words } of this.breaks) {
      const top = this.rows[this.row[index]]?.top;
      if (top !== undefined)
        this.root.append(
          el("li.divider", { style: { top: `${top - HEADING}px` } }, el("h2", words)),
        );
    }
    for (const [index, tile] of this.tiles) this.place(index, tile);
    if (old)
      scrollBy(
        0,
        this.root.getBoundingClientRect().top + this.rows[this.row[old.index]].top - old.top,
      );
    this.draw();
  }

  /** @param {Point} [at] */
  anchor(at) {
    if (!this.rows.length) return null;
    const origin = this.root.getBoundingClientRect();
    if (origin.top > 0 && !at) return null;
    const index = this.indexAt(at?.x ?? -1, at?.y ?? 0);
    return { index, top: origin.top + this.rows[this.row[index]].top };
  }

  /**
   * The image at a point of the screen, the nearest one beyond the edges; -1 without images.
   * @param {number} x
   * @param {number} y
   */
  indexAt(x, y) {
    if (!this.images.length) return -1;
    const origin = this.root.getBoundingClientRect();
    const row = this.rows[rowAt(this.rows, y - origin.top)];
    let index = row.first;
    while (index < row.end - 1 && this.left[index + 1] <= x - origin.left) index += 1;
    return index;
  }

  // Draw the rows near the screen, remove the others.
  draw() {
    if (!this.root.isConnected || this.root.closest("[hidden]")) return;
    const origin = this.root.getBoundingClientRect().top;
    const now = performance.now();
    if (this.isFast(origin, now)) {
      this.settled = false;
      this.settle();
    }
    const margin = AHEAD * innerHeight;
    const [from, to] = [-origin - margin, -origin + innerHeight + margin];
    const keep = new Set();
    if (this.rows.length)
      for (let r = rowAt(this.rows, from); r < this.rows.length && this.rows[r].top < to; r++)
        for (let i = this.rows[r].first; i < this.rows[r].end; i++) keep.add(i);
    const focused = this.focusedIndex();
    if (focused >= 0) keep.add(focused);
    for (const [index, tile] of this.tiles)
      if (!keep.has(index)) {
        if (!tile.img?.complete) {
          // It is not needed any more.
          tile.img?.removeAttribute("srcset");
          tile.img?.removeAttribute("src");
        }
        tile.node.remove();
        this.tiles.delete(index);
      }
    const absent = [...keep].filter((index) => !this.tiles.has(index));
    const middle = rowAt(this.rows, innerHeight / 2 - origin);
    absent.sort((a, b) => Math.abs(this.row[a] - middle) - Math.abs(this.row[b] - middle));
    for (const index of absent) {
      if (performance.now() - now > BUDGET && this.outside(index, origin)) {
        // the others in the next frame
        this.scrolled();
        break;
      }
      this.make(index);
    }
    if (this.settled) this.load();
  }

  /**
   * By the way of the last frames: a single late frame tells little.
   * @param {number} origin
   * @param {number} now
   */
  isFast(origin, now) {
    const before = this.passed;
    this.passed = [
      ...before.filter((one, i) => now - one.now < OVER || i === before.length - 1),
      { origin, now },
    ];
    const [first] = this.passed;
    return 1000 * Math.abs(origin - first.origin) > FAST * innerHeight * (now - first.now);
  }

  // Load pictures when the scroll has slowed down.
  settle() {
    clearTimeout(this.calm);
    this.calm = setTimeout(() => {
      const { top } = this.root.getBoundingClientRect();
      if (this.isFast(top, performance.now())) return this.settle();
      this.settled = true;
      this.load();
    }, SETTLED);
  }

  /** @param {number} index @param {number} origin */
  outside(index, origin) {
    const { top, height } = this.rows[this.row[index]];
    return origin + top > innerHeight || origin + top + height < 0;
  }

  /** @param {number} index @returns {Tile} */
  make(index) {
    const image = this.images[index];
    const img = el("img", { alt: this.alt(image), decoding: "async", draggable: "false" });
    const node = el(
      "li.tile",
      {
        "data-id": image.id,
        "data-index": index,
        "aria-setsize": this.images.length,
        "aria-posinset": index + 1,
      },
      el(
        "a.open",
        {
          href: this.href(image),
          draggable: "false",
          tabindex: index === this.at ? 0 : -1,
        },
        img,
      ),
    );
    if (image.color) node.style.setProperty("--shade", image.color);
    const tile = { node, img, image, loaded: false };
    this.tiles.set(index, tile);
    this.place(index, tile);
    let next = Infinity; // the document has the tiles in their order, for keys and screen readers
    for (const other of this.tiles.keys()) if (other > index && other < next) next = other;
    this.root.insertBefore(node, this.tiles.get(next)?.node ?? null);
    return tile;
  }

  /** @param {number} index @param {Tile} tile */
  place(index, { node, img, loaded }) {
    const { top, height } = this.rows[this.row[index]];
    node.style.transform = `translate(${this.left[index]}px, ${top}px)`;
    node.style.width = `${this.widths[index]}px`;
    node.style.height = `${height}px`;
    if (loaded && img) img.sizes = `${this.widths[index]}px`;
  }

  load() {
    const now = performance.now();
    const origin = this.root.getBoundingClientRect().top;
    let unknown = false;
    for (const [index, tile] of this.tiles) {
      unknown ||= tile.image.path === null;
      if (tile.loaded) continue;
      if (performance.now() - now > BUDGET && this.outside(index, origin)) {
        // the others in the next frame
        this.scrolled();
        continue;
      }
      this.fill(index, tile);
    }
    if (!unknown) return;
    const places = [...this.tiles.keys()];
    const [first, last] = [Math.min(...places) - FURTHER, Math.max(...places) + FURTHER];
    want(this.images.slice(Math.max(0, first), last)); // those that come next, too
  }

  /**
   * What a tile has beyond its place and its colour.
   * @param {number} index
   * @param {Tile} tile
   */
  fill(index, tile) {
    tile.loaded = true;
    this.dress(tile.image, tile.node);
    this.setStops(tile, index === this.at);
    if (!tile.img) return;
    tile.img.addEventListener("load", () => tile.node.classList.add("seen"), { once: true });
    tile.img.addEventListener("error", () => this.fail(tile));
    sources(tile.img, tile.image, this.widths[index]);
  }

  /**
   * The thumbnail is not there: the original, else words.
   * @param {Tile} tile
   */
  fail(tile) {
    if (!tile.img?.hasAttribute("src")) return; // taken away by draw()
    const gone = () => {
      tile.node.classList.add("seen", "gone");
      tile.img?.replaceWith(missing(this.alt(tile.image), tile.image.path));
      tile.img = null;
    };
    void otherwise(tile.img, gone, tile.image.id);
  }

  // Try again to load pictures that did not come.
  again() {
    for (const [index, tile] of this.tiles)
      if (!tile.img) {
        tile.node.remove();
        this.tiles.delete(index);
      }
    this.draw();
  }

  /**
   * Draw again what an image shows, e.g. a mark.
   * @param {{ id: number }} image
   */
  refresh(image) {
    for (const tile of this.tiles.values()) {
      if (tile.image.id !== image.id || !tile.loaded) continue;
      const focused = activeElement();
      const held = tile.node.contains(focused) ? focused.dataset.act : null;
      if (tile.img) tile.img.alt = this.alt(tile.image);
      else $(".missing", tile.node).replaceWith(missing(this.alt(tile.image), tile.image.path));
      this.dress(tile.image, tile.node);
      this.setStops(tile, Number(tile.node.dataset.index) === this.at);
      if (held) $(`[data-act="${held}"]`, tile.node)?.focus({ preventScroll: true });
    }
  }

  refreshAll() {
    for (const tile of [...this.tiles.values()]) this.refresh(tile.image);
  }

  // ---- focus

  /** @param {Tile} tile @param {boolean} on */
  setStops(tile, on) {
    for (const part of $$("a, button", tile.node)) part.tabIndex = on ? 0 : -1;
  }

  /**
   * Make a tile the stop of the Tab key; its buttons can then be reached, too.
   * @param {number} index
   */
  stop(index) {
    const [before, now] = [this.tiles.get(this.at), this.tiles.get(index)];
    if (before && this.at !== index) this.setStops(before, false);
    this.at = index;
    if (now) this.setStops(now, true);
  }

  focusedTile() {
    /** @type {HTMLElement | null} */
    const tile = activeElement().closest(".tile");
    return tile && this.root.contains(tile) ? tile : null;
  }

  focusedId() {
    const tile = this.focusedTile();
    return tile ? Number(tile.dataset.id) : null;
  }

  focusedIndex() {
    return Number(this.focusedTile()?.dataset.index ?? -1);
  }

  /**
   * Focus an image by its place, wherever it is. False: there is no such place.
   * @param {number} index
   * @param {FocusOptions} [options]
   */
  focus(index, options = {}) {
    if (index < 0 || index >= this.images.length || !this.rows.length) return false;
    if (!options.preventScroll) this.reveal(index);
    const tile = this.tiles.get(index) ?? this.make(index);
    if (!tile.loaded) this.fill(index, tile);
    this.stop(index);
    $("a.open", tile.node).focus({ preventScroll: true });
    return true;
  }

  /**
   * Scroll as little as shows a row, below what sticks to the top and above what sticks to the
   * foot.
   * @param {number} index
   */
  reveal(index) {
    const { top, height } = this.rows[this.row[index]];
    const style = getComputedStyle(document.documentElement);
    const [above, below] = [
      parseFloat(style.scrollPaddingTop) || 0,
      parseFloat(style.scrollPaddingBottom) || 0,
    ];
    const y = this.root.getBoundingClientRect().top + top;
    if (y < above) scrollBy(0, y - above);
    else if (y + height > innerHeight - below)
      scrollBy(0, Math.min(y - above, y + height - innerHeight + below));
    this.draw();
  }

  /**
   * Where a key leads from a place; -1: nowhere.
   * @param {number} index
   * @param {Direction} where
   */
  neighbour(index, where) {
    const last = this.images.length - 1;
    if (where === "left" || where === "right") {
      const next = index + (where === "left" ? -1 : 1);
      return next > last ? -1 : next;
    }
    if (where === "first") return 0;
    if (where === "last") return last;
    const row = this.rows[this.row[index] + (where === "up" ? -1 : 1)];
    if (!row) return -1;
    const middle = this.left[index] + this.widths[index] / 2;
    let best = row.first;
    for (let i = row.first; i < row.end; i++)
      if (
        Math.abs(this.left[i] + this.widths[i] / 2 - middle) <
        Math.abs(this.left[best] + this.widths[best] / 2 - middle)
      )
        best = i;
    return best;
  }

  /** @param {Direction} where */
  move(where) {
    const at = this.focusedIndex();
    return at >= 0 && this.focus(this.neighbour(at, where));
  }

  // ---- two fingers, or the wheel with Ctrl (which a pinch on a touchpad sends), make the photos
  // larger or smaller

  pinch() {
    this.root.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        setRowHeight(rowHeight() * Math.exp(-event.deltaY / 200), {
          x: event.clientX,
          y: event.clientY,
        });
      },
      { passive: false },
    );
    /** @type {{ apart: number, height: number } | null} */
    let from = null;
    /** @param {TouchList} touches */
    const apart = ([a, b]) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    this.root.addEventListener(
      "touchstart",
      ({ touches }) => {
        from = touches.length === 2 ? { apart: apart(touches), height: rowHeight() } : null;
      },
      { passive: true },
    );
    this.root.addEventListener(
      "touchmove",
      (event) => {
        if (!from || event.touches.length !== 2) return;
        event.preventDefault();
        const [a, b] = event.touches;
        setRowHeight((from.height * apart(event.touches)) / from.apart, {
          x: (a.clientX + b.clientX) / 2,
          y: (a.clientY + b.clientY) / 2,
        });
      },
      { passive: false },
    );
  }
}

// Grey tiles of many shapes that stand for results under way.
export const skeleton = () =>
  el(
    "ol.gallery.waiting",
    { "aria-hidden": "true" },
    Array.from({ length: 24 }, (_, i) =>
      el("li.tile", {
        style: { flex: `1 0 ${((i * 5) % 7) * 30 + 150}px`, height: `${rowHeight()}px` },
      }),
    ),
  );
