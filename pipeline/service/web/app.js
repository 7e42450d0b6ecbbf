// The search page: connects what people do (clicks, keys, files, the address) to the modules that do it.

import { readAddress } from "./address.js";
import { toggleExplanation } from "./dialog.js";
import { $ } from "./dom.js";
import { currentId, moveFocus, setStop } from "./grid.js";
import { ask, change, followHistory, go, start } from "./history.js";
import { bindKeys, bindTop } from "./keys.js";
import { mark, update } from "./learning.js";
import { failure } from "./messages.js";
import { bindOptions } from "./options.js";
import { readRun, searchFiles } from "./search.js";
import { marksChanged, show } from "./show.js";
import { drawSamples } from "./start.js";
import { lists, marks, state } from "./state.js";
import { viewer } from "./viewer.js";

function bindClicks() {
  document.addEventListener("click", (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (event.target.closest(".pick")) return $("#file").click();
    const card = event.target.closest("#results .card[data-id]");
    const act = event.target.closest("[data-act]")?.dataset.act;
    const opened = event.target.closest("#results a.open, #compare a");
    const inner = event.target.closest("a[data-go]");
    if (card && act) {
      const image = state.ranking.results.find((one) => one.id === Number(card.dataset.id));
      setStop(card);
      if (act === "pivot") ask({ id: image.id });
      else mark(image, act === "relevant" ? 1 : -1);
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
  $("#file").addEventListener("change", (event) => {
    searchFiles([...event.target.files]);
    event.target.value = ""; // so that the same file can be chosen twice
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length || event.target.closest?.("input, textarea")) return;
    event.preventDefault();
    searchFiles(files);
  });
  const dragging = (event, on) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    $("#dropping").hidden = !on;
  };
  for (const name of ["dragenter", "dragover"]) addEventListener(name, (event) => dragging(event, true));
  addEventListener("dragleave", (event) => event.relatedTarget || dragging(event, false));
  addEventListener("drop", (event) => {
    dragging(event, false);
    if (event.dataTransfer?.files.length) searchFiles([...event.dataTransfer.files]);
  });
}

function bindSelects() {
  $("#learner").addEventListener("change", ({ target: { value: learner } }) =>
    change({ learner, with: state.request.with === learner ? undefined : state.request.with, metric: undefined, k: undefined,
      model: undefined }));
  $("#with").addEventListener("change", ({ target: { value } }) => change({ with: value || undefined, metric: undefined }));
  $("#label").addEventListener("change", ({ target: { value } }) =>
    change({ label: value || undefined, metric: undefined, k: undefined }));
  $("#by-label select").addEventListener("change", ({ target: { value } }) => value && go({ query_label: value }));
}

function bindResultKeys() {
  // Act on the result that has the focus or is in the dialog.
  const at = (act) => () => {
    const id = viewer.open ? state.request.open : currentId() ?? Number(document.activeElement.closest("#compare td")?.dataset.id);
    const image = lists().flat().find((one) => one.id === id);
    return image ? act(image) : false;
  };
  const within = (name) => () => {
    if (!viewer.open) return moveFocus(name);
    return ["left", "right"].includes(name) && $(`[data-act="${name}"]`, viewer).click();
  };
  bindKeys("search", "#results, #viewer, #marks, #compare", {
    ...Object.fromEntries(["left", "right", "up", "down", "first", "last"].map((name) => [name, within(name)])),
    pivot: at((image) => void ask({ id: image.id })),
    relevant: at((image) => void mark(image, 1)),
    not: at((image) => void mark(image, -1)),
    explain: at((image) => void (viewer.open ? toggleExplanation() : change({ open: image.id, explain: 1 }, { overlay: true }))),
    update: () => void update(),
    undo: () => (marks.key ? void marks.undo() : false),
  });
}

async function begin() {
  try {
    await readRun();
  } catch (error) {
    $("#start").hidden = false;
    return failure(error, begin);
  }
  await start();
}

marks.changed = marksChanged;
followHistory(show);
bindOptions();
bindClicks();
bindFiles();
bindSelects();
bindResultKeys();
bindTop("search");
begin();
