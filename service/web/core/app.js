// The search page: connects what people do (clicks, keys, files, the address) to the modules that
// do it.

import { queryOf, readAddress, wordsOf } from "./address.js";
import { takeDrop, takeFiles } from "../gallery/adding.js";
import "../teach/again.js";
import { toggleBeside, toggleExplanation } from "../gallery/dialog.js";
import { $, activeElement, targetOf } from "./dom.js";
import { addExamples } from "../search/examples.js";
import { onFiles, searchFiles } from "../search/files.js";
import { rowHeight, setRowHeight } from "../gallery/gallery.js";
import { currentId, moveFocus } from "../gallery/grid.js";
import { ask, change, followHistory, go, redraw, start } from "./history.js";
import { bindKeys, bindTop } from "./keys.js";
import { mark, markAll, update } from "../teach/learning.js";
import { failure } from "./messages.js";
import { bindOptions } from "./options.js";
import "./pages.js";
import { forgetPhotos, hasGallery, photosGallery } from "../gallery/photos.js";
import { showRest, theGallery } from "../search/results.js";
import { readRun } from "../search/search.js";
import { bindSearchBox } from "../search/searchbox.js";
import { bindActs, clearSelection, extend, selectAll, toggle } from "../gallery/select.js";
import { marksChanged, show } from "./show.js";
import { drawSamples } from "../gallery/start.js";
import { lists, marks, state, tellBegun, viewOf } from "./state.js";
import { undoLast } from "./undo.js";
import { toggleDetails, viewer, zoomBy } from "../gallery/viewer.js";

/** @import { Photo } from "../gallery/details.js" */
/** @import { Direction, Gallery } from "../gallery/gallery.js" */

const IN_GALLERY = "#results, #photos, #album, #added";
const shownGallery = () =>
  hasGallery(state.request) ? photosGallery() : state.request.view ? null : theGallery();

const hasPhotos = () => hasGallery(state.request) || viewOf(state.request) === "results";

/** All photos of the gallery on the page, also those that are not loaded yet. */
async function selectEverything() {
  if (!state.request.view) await showRest().catch(failure);
  const gallery = shownGallery();
  if (gallery && hasPhotos()) selectAll(gallery);
}

function bindClicks() {
  document.addEventListener("click", (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const target = targetOf(event);
    if (target.closest(".pick")) return $("#file").click();
    if (target.closest(".select-all")) return void selectEverything();
    /** @type {HTMLElement | null} */
    const tile = target.closest(`:is(${IN_GALLERY}) .tile[data-index]`);
    /** @type {HTMLElement | null} */
    const button = target.closest("[data-act]");
    const act = button?.dataset.act;
    /** @type {HTMLAnchorElement | null} */
    const opened = target.closest(`:is(${IN_GALLERY}) a.open, #compare a`);
    /** @type {HTMLAnchorElement | null} */
    const inner = target.closest("a[data-go]");
    const gallery = shownGallery();
    if (tile && act && gallery) {
      const place = Number(tile.dataset.index);
      const image = gallery.images[place];
      gallery.stop(place);
      if (act === "pivot") ask({ id: image.id });
      else if (act !== "select") mark(image, act === "relevant" ? 1 : -1);
    } else if (opened) {
      event.preventDefault();
      change({ open: readAddress(opened.search).open, explain: undefined }, { overlay: true });
    } else if (inner) {
      event.preventDefault();
      go(readAddress(inner.search));
    }
  });
  $("#others").addEventListener("click", () => drawSamples().catch(failure));
}

function bindFiles() {
  for (const field of ["#file", "#photo"]) onFiles(field, searchFiles);
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length || targetOf(event).closest?.("input, textarea")) return;
    event.preventDefault();
    void takeFiles(files, searchFiles);
  });
  /** @param {DragEvent} event @param {boolean} on */
  const dragging = (event, on) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    $("#dropping").hidden = !on;
  };
  addEventListener("dragenter", (event) => dragging(event, true));
  addEventListener("dragover", (event) => dragging(event, true));
  addEventListener("dragleave", (event) => event.relatedTarget || dragging(event, false));
  addEventListener("drop", (event) => {
    dragging(event, false);
    void takeDrop(event, searchFiles);
  });
}

// What the bar of the selection does with the page.
bindActs({
  canMark: () => Boolean(!state.request.view && state.ranking?.key),
  canAdd: () => Boolean(!state.request.view && queryOf(state.request) && !wordsOf(state.request)),
  add: (images) => void addExamples(images.map((image) => image.id)),
  markOf: (id) => (state.request.view ? 0 : marks.of.get(id)),
  mark: (images, value) => void markAll(images, value),
  changed: (removed) => {
    state.run.version = null;
    forgetPhotos();
    return removed.some((image) => image.id === state.request.id)
      ? go({})
      : readRun().then(() => redraw());
  },
});

function bindResultKeys() {
  /**
   * Act on the photo that has the focus or is in the viewer.
   * @param {(image: Photo) => unknown} act
   */
  const at = (act) => () => {
    /** @type {HTMLElement | null} */
    const compared = activeElement().closest("#compare td");
    const id = viewer.open
      ? state.request.open
      : (shownGallery()?.focusedId() ?? currentId() ?? Number(compared?.dataset.id));
    const image = (state.request.view ? [state.listed] : lists())
      .flat()
      .find((one) => one.id === id);
    return image ? act(image) : false;
  };
  /** @param {(image: Photo) => unknown} act */
  const searched = (act) => at((image) => (state.request.view ? false : act(image)));
  /** @param {Direction} name */
  const within = (name) => () => {
    if (!viewer.open)
      return state.request.view ? Boolean(shownGallery()?.move(name)) : moveFocus(name);
    if (viewer.querySelector(".explanation :focus")) return false; // it scrolls
    return ["left", "right"].includes(name) && $(`[data-act="${name}"]`, viewer).click();
  };
  /** @param {number} factor */
  const size = (factor) => () =>
    void (viewer.open ? zoomBy(factor) : setRowHeight(rowHeight() * factor));
  /** @param {(gallery: Gallery) => unknown} act */
  const select = (act) => () => {
    const gallery = shownGallery();
    return !viewer.open && gallery && gallery.focusedIndex() >= 0 ? act(gallery) : false;
  };
  bindKeys("search", `${IN_GALLERY}, #viewer, #marks, #compare, #selection`, {
    left: within("left"),
    right: within("right"),
    up: within("up"),
    down: within("down"),
    first: within("first"),
    last: within("last"),
    add: at((image) => void addExamples([image.id])),
    subtract: at((image) => void addExamples([image.id], -0.5)),
    pivot: at((image) => void ask({ id: image.id })),
    relevant: searched((image) => void mark(image, 1)),
    not: searched((image) => void mark(image, -1)),
    explain: searched(
      (image) =>
        void (viewer.open
          ? toggleExplanation()
          : change({ open: image.id, explain: 1 }, { overlay: true })),
    ),
    beside: () => (viewer.open && $('[data-act="beside"]', viewer) ? void toggleBeside() : false),
    details: () => (viewer.open ? void toggleDetails() : false),
    larger: size(1.25),
    smaller: size(0.8),
    whole: () => (viewer.open ? void zoomBy(null) : false),
    select: select((gallery) => void toggle(gallery, gallery.focusedIndex())),
    extend: ({ key }) => {
      const where = /** @type {Direction} */ (key.slice(5).toLowerCase()); // of ArrowLeft, ...
      return select((gallery) => extend(gallery, where))() !== false;
    },
    all: () => !viewer.open && hasPhotos() && void selectEverything(),
    deselect: () => !viewer.open && clearSelection(),
    update: () => void update(),
    undo: ({ key }) =>
      key === "Backspace"
        ? marks.key
          ? void marks.undo()
          : false
        : // The queue and a concept undo their own steps.
          !["queue", "concept"].includes(state.request.view ?? "") &&
          (undoLast() || (marks.key ? void marks.undo() : false)),
  });
}

async function begin() {
  try {
    await readRun();
  } catch (error) {
    $("#start").hidden = false;
    return failure(error, begin);
  }
  const started = start();
  tellBegun();
  await started;
}

marks.changed = marksChanged;
followHistory(show);
bindOptions();
bindClicks();
bindFiles();
bindResultKeys();
bindTop("search");
bindSearchBox();
begin();
