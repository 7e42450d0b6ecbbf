// The search page: what is asked lies in the address; `show` makes the page agree with it.

import { addressOf, queryOf, readAddress, searchOf } from "./address.js";
import { get, post, search, upload } from "./api.js";
import { drawComparison } from "./compare.js";
import { $, announce, command, copy, count, el, fileName, picture, plural, remember, remembered, seconds, setLook, themeButton, toast,
  toasts } from "./dom.js";
import { drawFigures } from "./figures.js";
import { currentId, drawGrid, focusCard, moveFocus, prepareStops, setStop, showMark, skeleton } from "./grid.js";
import { bindKeys, openSheet } from "./keys.js";
import { drawTray, Marks } from "./marks.js";
import { closeViewer, drawViewer, viewer } from "./viewer.js";

const PAGE = 48; // divides by 2, 3, 4, 6 and 8 columns
const MOST = 480; // cards
const COMPARED = 20;

let run = { images: 0, labels: {}, learners: [], models: {}, evaluations: [], limits: {} };
let state = {};
let answer = null; // the ranking on the page
let other = null; // the ranking beside it
let before = null; // { name, learner, results, key }: as it was before the last update
let drawn = null; // what the grid was drawn from
let turn = 0; // of show: a later one makes an earlier one stop
let hideMarked = false;
let cancel = null; // of the request under way
const answers = new Map(); // of this session, by what was asked: Back is immediate

// ---- moving about

function keepScroll() {
  clearTimeout(keepScroll.timer);
  history.replaceState({ ...history.state, scroll: scrollY }, "");
}

function go(next, { replace = false, overlay = false } = {}) {
  if (replace) history.replaceState({ ...history.state }, "", addressOf(next));
  else {
    keepScroll();
    history.pushState({ overlay }, "", addressOf(next));
  }
  return show(next, replace || overlay ? {} : { scroll: 0 });
}

const change = (values, options) => go({ ...state, ...values }, options);
const ask = (query) => go({ ...query, learner: state.query_label ? undefined : state.learner, label: state.label, unique: state.unique });
const closeDialog = () => (history.state?.overlay ? history.back() : change({ open: undefined, explain: undefined }, { replace: true }));

async function show(next, { scroll } = {}) {
  const mine = ++turn;
  state = next;
  const view = state.view === "figures" ? "figures" : !queryOf(state) ? "start" : state.with ? "compare" : "results";
  if (viewer.open && !state.open) leaveDialog();
  try {
    if (view === "start") await showStart();
    else if (view === "figures") await showFigures();
    else await showAnswer(mine);
    if (mine !== turn) return;
    failure(null);
  } catch (error) {
    if (mine !== turn || error.name === "AbortError") return;
    failure(error);
    if (!answer || view === "figures") {
      $("#start").hidden = view === "figures";
      $("#results").hidden = $("#asked").hidden = $("#compare").hidden = $("#marks").hidden = true;
      return view === "figures" || showStart().catch(() => {});
    }
  }
  $("#start").hidden = view !== "start";
  $("#figures").hidden = view !== "figures";
  $("#asked").hidden = view !== "results" && view !== "compare";
  $("#results").hidden = view !== "results";
  $("#compare").hidden = view !== "compare";
  document.body.classList.toggle("no-marks", !answer?.key); // what a label asked for has no marks
  document.title = view === "figures" ? "Figures – visterm" : view === "start" ? "visterm" : `${queryName()} – visterm`;
  tray();
  if (scroll !== undefined) requestAnimationFrame(() => scrollTo(0, scroll));
  if (state.open && (view === "results" || view === "compare")) openDialog();
}

const ADVICE = {
  401: "Open the address with its token once: /?token=…",
  404: "Ask again with an image, or take away a filter.",
  429: "The server is busy. Try again in a moment.",
};

function failure(error) {
  if (!error) return $("#failure").replaceChildren();
  const advice = ADVICE[error.status] ?? "The results below, if any, are from before.";
  $("#failure").replaceChildren(
    el("div", { class: "box" },
      el("div", {}, el("strong", {}, "That did not work"), el("p", {}, error.message), el("p", { class: "quiet" }, advice)),
      el("button", { type: "button", onclick: () => show(state) }, "Try again"),
      el("button", { type: "button", class: "plain", onclick: () => failure(null) }, "Dismiss")));
}

// While something is asked: what is there is dimmed, skeletons stand in for nothing, and after 2 s it can be cancelled.
async function busy(words, work) {
  cancel?.abort();
  const mine = (cancel = new AbortController());
  const panels = [$("#results"), $("#compare")];
  const timers = [
    setTimeout(() => {
      for (const panel of panels) panel.setAttribute("aria-busy", "true");
      if (answer) return;
      $("#start").hidden = true;
      $("#results").hidden = false;
      $("#results").replaceChildren(el("p", { class: "quiet" }, words), ...skeleton(24));
      drawn = null;
    }, 200),
    setTimeout(() => {
      const button = el("button", { type: "button", onclick: () => mine.abort() }, "Cancel");
      toasts.replaceChildren(el("div", { class: "toast", id: "waiting" }, el("span", {}, words), button));
    }, 2000),
  ];
  try {
    return await work(mine.signal);
  } finally {
    timers.forEach(clearTimeout);
    $("#waiting")?.remove();
    if (cancel === mine) {
      cancel = null;
      for (const panel of panels) panel.removeAttribute("aria-busy");
    }
  }
}

// ---- asking

async function fetchAnswer(asked, k) {
  const key = JSON.stringify(asked);
  const kept = answers.get(key);
  if (kept && (kept.results.length >= k || kept.ended)) return kept;
  const found = await busy("Searching …", (signal) => search({ ...asked, k }, { signal }));
  return keepAnswer(key, found, k);
}

function keepAnswer(key, found, k) {
  found.ended = found.results.length < k;
  answers.set(key, found);
  if (answers.size > 30) answers.delete(answers.keys().next().value);
  return found;
}

async function searchFiles(files) {
  const [file] = files;
  if (!file) return toast("No image in what was given.");
  const most = run.limits.upload_bytes;
  if (file.size > most) return failure(new Error(`${file.name}: larger than the ${Math.floor(most / 2 ** 20)} MiB that the server takes`));
  try {
    const values = { learner: state.learner, label: state.label, exclude_duplicates: state.unique ? "true" : undefined };
    const found = await busy(`Searching with ${file.name || "the pasted image"} …`,
      (signal) => upload(file, { ...values, k: PAGE }, { signal }));
    const next = { upload: found.upload, learner: state.learner, label: state.label, unique: state.unique };
    found.name = file.name || "pasted image";
    keepAnswer(JSON.stringify(searchOf(next)), found, PAGE);
    remember("names", { ...Object.fromEntries(Object.entries(remembered("names", {})).slice(-20)), [found.upload]: found.name });
    await go(next);
    if (files.length > 1) toast(`${found.name}: the first of ${files.length} files is used.`);
  } catch (error) {
    if (!answer) show(state); // takes the skeletons away
    if (error.name !== "AbortError") setTimeout(() => failure(error));
  }
}

async function loadMore(button) {
  button.disabled = true;
  button.textContent = "Loading …";
  const mine = turn;
  const shown = answer;
  try {
    const more = await search({ ...searchOf(state), k: PAGE, offset: shown.results.length });
    if (mine !== turn) return;
    const first = more.results[0];
    shown.results.push(...more.results);
    shown.ended = more.results.length < PAGE;
    await change({ k: shown.results.length }, { replace: true });
    if (first) focusCard(first.id);
    announce(`${plural(more.results.length, "more result")}, ${shown.results.length} in all.`);
  } catch (error) {
    failure(error);
    button.disabled = false;
    button.textContent = "Load more";
  }
}

// ---- the views

async function showStart() {
  answer = drawn = null;
  $("#by-label select").value = "";
  marks.key = null;
  marks.of.clear();
  recent();
  if (!run.images) {
    $("#samples").replaceChildren(el("li", { class: "whole box" },
      el("div", {}, el("strong", {}, "This run has no images yet"),
      el("p", {}, "Point visterm at a folder of images, then reload this page:"), command("visterm features FOLDER"))));
    return;
  }
  if (!$("#samples").children.length) await samples();
}

async function samples() {
  const found = await get("api/images", { sample: 12, seed: Math.floor(Math.random() * 1e6) });
  const images = Array.isArray(found) ? found : found.images;
  $("#samples").replaceChildren(...images.map((image) =>
    el("li", { class: "card" }, el("a", { class: "open", href: addressOf({ id: image.id }), "data-go": "link" },
      el("figure", {}, picture(image, { alt: `Search with ${image.path}`, lazy: false }),
        el("span", { class: "badge hint", "aria-hidden": "true" }, "Search with this")),
      el("p", { class: "caption", title: image.path }, el("span", { class: "name" }, fileName(image.path)),
        el("span", { class: "labels" }, (image.labels ?? []).join(", ")))))));
}

function recent() {
  const kept = remembered("recent", []);
  $("#recent").replaceChildren(...(kept.length ? [el("h2", {}, "Recent queries"), el("ul", { class: "strip" }, kept.map(({ query, name }) =>
    el("li", {}, el("a", { href: addressOf(query), "data-go": "link", title: name }, queryPicture(query, name),
      el("span", { class: "unseen" }, name)))))] : []));
}

const queryAddress = ({ id, upload }, size) =>
  id !== undefined ? `images/${id}/thumbnail?size=${size}` : `uploads/${encodeURIComponent(upload)}`;

function queryPicture(query, name) {
  if (query.query_label) return el("span", { class: "word" }, name);
  const img = el("img", { src: queryAddress(query, 256), alt: "", draggable: "false" });
  img.addEventListener("error", () => img.replaceWith(el("span", { class: "word" }, name)));
  return img;
}

function queryName() {
  if (state.query_label) return state.query_label;
  if (state.upload) return remembered("names", {})[state.upload] ?? "uploaded image";
  return (answer?.query ?? "").split("/").slice(-2).join("/");
}

async function showFigures() {
  const all = await Promise.all(run.evaluations.map(async (name) => {
    const at = `api/evaluations/${encodeURIComponent(name)}`;
    const [curves, metrics] = await Promise.all([get(`${at}/curves`), get(`${at}/metrics`)]);
    return { name, curves, metrics };
  }));
  $("#figures").replaceChildren(...drawFigures(all));
}

async function showAnswer(mine) {
  const asked = searchOf(state);
  const k = Math.min(MOST, state.with ? COMPARED : (state.k ?? PAGE));
  const found = await fetchAnswer(asked, k);
  const second = !state.with ? null : state.with === "before" ? before : await fetchAnswer({ ...asked, learner: state.with }, COMPARED);
  if (mine !== turn) return;
  const isNew = answer?.key !== found.key || answer.query !== found.query;
  if (found.version !== run.version) run = await get("api/run"); // the collection or a learner has changed meanwhile
  if (mine !== turn) return;
  answer = found;
  other = second;
  if (isNew) {
    $("#notes").replaceChildren();
    rememberQuery();
    marks.load(found.key).catch((error) => toast(`The marks of this query could not be read: ${error.message}`));
    noteOldLink();
  }
  drawQuery();
  if (state.with) showComparison();
  else showGrid();
}

function rememberQuery() {
  const query = queryOf(state);
  const same = JSON.stringify(query);
  const kept = remembered("recent", []).filter((entry) => JSON.stringify(entry.query) !== same);
  remember("recent", [{ query, name: queryName() }, ...kept].slice(0, 10));
}

function noteOldLink() {
  const now = run.models[answer.learner]?.version ?? 0;
  if (state.model !== undefined && state.model !== now) note(`This link was made with model ${state.model}; you see model ${now}.`);
}

const note = (words, ...buttons) => $("#notes").replaceChildren(el("p", { class: "note" }, el("span", {}, words), ...buttons));
const modelName = (learner) => (run.models[learner]?.version ? `${learner}, model ${run.models[learner].version}` : learner);

function drawQuery() {
  $("#query").replaceChildren(
    queryPicture(queryOf(state), queryName()),
    el("div", {}, el("h1", { title: answer.query }, queryName()),
      el("p", { class: "quiet" }, `searched ${plural(answer.n_searched, "image")} in ${seconds(answer.seconds)}`,
        el("span", { class: "wide-only" }, ` · ${modelName(answer.learner)}`)),
      el("p", { class: "links" }, el("button", { type: "button", class: "plain pick" }, "Another image"),
        el("button", { type: "button", class: "plain", onclick: copyLink }, "Copy link"),
        el("a", { href: "./", "data-go": "start" }, "Clear"))));
  const options = (select, names, chosen, first) => select.replaceChildren(...(first ? [el("option", { value: "" }, first)] : []),
    ...names.map(([value, words]) => el("option", { value, selected: value === chosen }, words)));
  const learners = (state.query_label ? run.annotators?.length ? run.annotators : run.learners : run.learners).map((name) => [name, name]);
  options($("#learner"), learners, answer.learner);
  const snapshot = before?.key === answer.key ? [["before", before.name]] : [];
  options($("#with"), [...snapshot, ...learners.filter(([name]) => name !== answer.learner)], state.with, "nothing");
  options($("#label"), Object.entries(run.labels).map(([name, n]) => [name, `${name} (${count(n)})`]), state.label, "any");
  const chip = (words, act) => el("button", { type: "button", class: "chip", "aria-label": `Remove the filter: ${words}`, onclick: act },
    words, el("span", { "aria-hidden": "true" }, "×"));
  $("#chips").replaceChildren(...[
    state.label && chip(`label: ${state.label}`, () => change({ label: undefined, k: undefined })),
    state.unique && chip("without exact duplicates", () => change({ unique: undefined, k: undefined })),
    hideMarked && chip("marked images hidden", () => setHideMarked(false)),
  ].filter(Boolean));
  const metrics = [...new Set(answer.results.map((result) => result.metric).filter(Number.isInteger))].sort((a, b) => a - b);
  const tab = (metric, words) => {
    const choose = () => change({ metric }, { replace: true });
    return el("button", { type: "button", "aria-pressed": String(state.metric === metric), onclick: choose }, words);
  };
  const found = (metric) => answer.results.filter((result) => result.metric === metric).length;
  const tabs = [tab(undefined, "All metrics"), ...metrics.map((metric) => tab(metric, `Metric ${metric + 1} (${found(metric)})`))];
  $("#tabs").replaceChildren(...(metrics.length && !state.with ? tabs : []));
}

// The link to what is seen, with the version of the model that made it.
function link() {
  const model = run.models[answer.learner]?.version || undefined;
  return new URL(addressOf({ ...state, learner: answer.learner, model }), document.baseURI).href;
}

function copyLink() {
  const until = answer.upload_expires && new Date(answer.upload_expires).toLocaleDateString("en", { day: "numeric", month: "long" });
  copy(link(), until ? `Link (works until ${until}, longer if it is used)` : "Link");
}

const passes = (result) => (state.metric === undefined || result.metric === state.metric) && !(hideMarked && marks.of.get(result.id));
const visible = () => answer.results.filter(passes);

function showGrid() {
  const key = JSON.stringify([searchOf(state), answer.results.length, state.metric, hideMarked, answer.version, answer.stamp]);
  if (drawn === key) return;
  drawn = key;
  const focused = currentId();
  const images = visible();
  const opened = (image) => addressOf({ ...state, open: image.id });
  const parts = images.length ? drawGrid(images, answer.results[0]?.score, marks.of, opened) : [empty()];
  if (!answer.ended && answer.results.length < MOST) {
    const button = el("button", { type: "button", class: "more", onclick: () => loadMore(button) }, "Load more");
    parts.push(button);
  } else if (images.length) parts.push(el("p", { class: "quiet end" },
    `${answer.ended ? "All" : "The first"} ${plural(answer.results.length, "result")} are shown.`));
  $("#results").replaceChildren(...parts);
  prepareStops();
  if (focused !== null && !focusCard(focused)) {
    const first = $("#results .card");
    if (first) setStop(first);
  }
  announce(`${plural(images.length, "result")} by ${modelName(answer.learner)}.`);
}

function empty() {
  const hidden = answer.results.length - visible().length;
  const why = hidden
    ? `The filters on this page hide all ${plural(hidden, "result")} loaded.`
    : state.label
      ? `No image with the label ${state.label} was found among ${plural(answer.n_searched, "image")}.`
      : "The collection has nothing to compare this image with.";
  const removeAll = () => {
    hideMarked = false;
    change({ label: undefined, metric: undefined, unique: undefined });
  };
  return el("div", { class: "box" }, el("div", {}, el("strong", {}, "No results"), el("p", {}, why),
    run.images > 1 ? el("button", { type: "button", onclick: removeAll }, "Remove all filters") : command("visterm add FOLDER")));
}

function showComparison() {
  if (!other) {
    $("#compare").replaceChildren(el("div", { class: "box" }, el("div", {}, el("strong", {}, "Nothing to compare with"),
      el("p", {}, "The earlier ranking is kept only until the page is reloaded."))));
    return;
  }
  const [left, right] = state.with === "before" ? [other, answer] : [answer, other];
  const named = (part) => ({ name: part === before ? part.name : modelName(part.learner), results: part.results.slice(0, COMPARED) });
  $("#compare").replaceChildren(...drawComparison(named(left), named(right), marks.of,
    (image) => addressOf({ ...state, open: image.id })).filter(Boolean));
  announce($("#summary").textContent);
}

// ---- the dialog

const lists = () => (state.with && other ? [answer.results.slice(0, COMPARED), other.results.slice(0, COMPARED)] : [visible()]);

function openDialog() {
  const second = lists()[1]?.some((image) => image.id === state.open) && !lists()[0].some((image) => image.id === state.open);
  const images = lists()[second ? 1 : 0];
  const image = images.find((one) => one.id === state.open);
  if (!image) return change({ open: undefined, explain: undefined }, { replace: true });
  const by = second ? other : answer;
  const step = (by) => {
    const next = images[images.indexOf(image) + by];
    if (next) change({ open: next.id }, { replace: true });
  };
  const query = queryOf(state);
  drawViewer({
    image,
    images,
    best: by.results[0]?.score,
    mark: marks.of.get(image.id),
    explain: Boolean(state.explain),
    learner: by.learner,
    model: modelName(by.learner),
    query: { values: query, address: queryAddress(query, 1024) },
    act: {
      close: closeDialog,
      left: () => step(-1),
      right: () => step(1),
      pivot: () => ask({ id: image.id }),
      relevant: () => mark(image, 1),
      not: () => mark(image, -1),
      explain: () => change({ explain: state.explain ? undefined : 1 }, { replace: true }),
    },
  });
}

function leaveDialog() {
  const id = closeViewer();
  if (id !== null && queryOf(state)) focusCard(id) || document.querySelector(`#compare td[data-id="${id}"] a`)?.focus();
}

// ---- marks and what is learned from them

const marks = new Marks((id) => {
  if (!answer) return;
  const shown = id === undefined ? [] : answer.results.filter((image) => id === null || image.id === id);
  for (const image of shown) showMark(image.id, marks.of.get(image.id) ?? 0, image);
  if (viewer.open && id !== undefined && (id === null || id === state.open))
    for (const [name, value] of [["relevant", 1], ["not", -1]])
      $(`.mark.${name}`, viewer)?.setAttribute("aria-pressed", String(marks.of.get(state.open) === value));
  tray();
});

const online = () => (run.models[answer?.learner] ? answer.learner : Object.keys(run.models)[0]);

function tray() {
  if (!answer || $("#asked").hidden) return ($("#marks").hidden = true);
  drawTray(marks, { online: online(), update, remove: (image, value) => mark(image, value), clear: () => marks.clear(answer.learner) });
}

async function mark(image, value) {
  if (!answer.key) return toast("Marks belong to a query image; search with an image to mark its results.");
  await marks.set(image, value, answer.learner);
  if (remembered("updateEach", false) && marks.number(1) && marks.number(-1)) update();
}

async function teach(path, body, words) {
  try {
    await marks.sending;
    return await busy(words, () => post(path, body));
  } catch (error) {
    failure(error);
    return null;
  }
}

// After the model has changed: what is known of the run and of the rankings is asked again.
async function refresh(learner) {
  run = await get("api/run");
  answers.clear();
  drawn = null;
  const named = learner === run.default_learner && !state.learner ? undefined : learner;
  await change({ learner: named, with: undefined, model: undefined }, { replace: true });
}

async function update() {
  const learner = online();
  if (!learner || !marks.number(1) || !marks.number(-1)) return toast("Updating needs one relevant and one not relevant.");
  const old = { name: `before (${modelName(learner)})`, learner, results: answer.results, key: answer.key, wasBy: answer.learner };
  const done = await teach("feedback/update", { learner, query: marks.key }, "Learning from the marks …");
  if (!done) return;
  if (done.accepted === false) return say(`Model ${done.from_version} stays: ${done.reason}.`);
  marks.unused.clear();
  toasts.replaceChildren(); // the undo of a mark that is learned is another one
  await refresh(learner);
  before = old.wasBy === learner ? old : null;
  const changed = done.changed_in_top ?? answer.results.slice(0, 20).filter((image, i) => old.results[i]?.id !== image.id).length;
  const measured = Number.isFinite(done.map_before) && Number.isFinite(done.map_after);
  const held = measured ? ` mAP on held-out queries ${done.map_before.toFixed(3)} to ${done.map_after.toFixed(3)}.` : "";
  const words = `Model ${done.from_version} to ${done.to_version}: learned from ${done.n_relevant} relevant, ${done.n_not} not, ${Math.round(done.milliseconds)} ms. ` +
    `${changed ? `${changed} of the top 20 changed` : "The top 20 did not change"}.${held}`;
  drawQuery();
  say(words,
    el("button", { type: "button", onclick: () => undoUpdate(learner) }, "Undo"),
    before ? el("button", { type: "button", onclick: () => change({ with: "before" }) }, "Compare") : null);
}

function say(words, ...buttons) {
  note(words, ...buttons);
  announce(words);
}

async function undoUpdate(learner) {
  const done = await teach("feedback/undo", { learner }, "Going back …");
  if (!done) return;
  before = null;
  await refresh(learner);
  say(`Undone: ${modelName(learner)} ranks again as before.`);
}

function reset(learner) {
  const dialog = $("#confirm");
  const yes = el("button", { type: "button", class: "primary", onclick: async () => {
    dialog.close();
    if (!(await teach("feedback/reset", { learner }, "Going back to the base model …"))) return;
    before = null;
    await refresh(learner);
    say(`${learner} is the base model again. The marks are kept.`);
  } }, "Reset");
  dialog.replaceChildren(el("h2", { id: "confirm-title" }, `Reset ${learner} to its base model?`),
    el("p", {}, "It forgets what it learned from marks. The marks themselves are kept and can be learned again."),
    el("form", { method: "dialog", class: "row" }, el("button", {}, "Cancel"), yes));
  dialog.showModal();
}

// ---- options

function setHideMarked(on) {
  hideMarked = on;
  show(state);
}

function drawOptions() {
  const choice = (words, on, act) => el("label", { class: "check" },
    el("input", { type: "checkbox", checked: on, onchange: (event) => act(event.target.checked) }), ` ${words}`);
  const density = el("select", { onchange: (event) => setLook({ density: event.target.value }) },
    ["compact", "normal", "large"].map((name) => el("option", { value: name, selected: remembered("density", "normal") === name }, name)));
  const model = answer && run.models[online()];
  $("#options .menu").replaceChildren(
    choice("Hide exact duplicates", Boolean(state.unique), (on) => change({ unique: on ? 1 : undefined, k: undefined })),
    choice("Hide marked images", hideMarked, setHideMarked),
    choice("Update after each mark", remembered("updateEach", false), (on) => remember("updateEach", on)),
    el("label", {}, "Size of the images ", density),
    el("h2", {}, "Model"),
    ...(model ? [el("p", {}, `${modelName(online())}, ${plural(model.marks ?? 0, "mark")} learned since it was trained`),
      el("p", { class: "row" }, el("button", { type: "button", disabled: !model.version, onclick: () => reset(online()) }, "Reset to base"),
        el("a", { href: "feedback/export" }, "Export marks"))]
      : [el("p", { class: "quiet" }, "No learner of this run learns from marks. To have one:"), command("visterm train --learner oasis")]));
}

// ---- what comes from outside

function listen() {
  addEventListener("popstate", (event) => {
    clearTimeout(keepScroll.timer);
    const next = readAddress();
    const same = (part) => JSON.stringify([searchOf(part), part.with, part.view, part.metric]);
    show(next, same(next) === same(state) ? {} : { scroll: event.state?.scroll ?? 0 });
  });
  addEventListener("scroll", () => {
    clearTimeout(keepScroll.timer);
    keepScroll.timer = setTimeout(keepScroll, 150);
  }, { passive: true });

  document.addEventListener("click", (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (event.target.closest(".pick")) return $("#file").click();
    const menu = $("#options");
    if (menu.open && !menu.contains(event.target)) menu.open = false;
    const card = event.target.closest("#results .card[data-id]");
    const act = event.target.closest("[data-act]")?.dataset.act;
    const opened = event.target.closest("#results a.open, #compare a");
    const inner = event.target.closest("a[data-go]");
    if (card && act) {
      const image = answer.results.find((one) => one.id === Number(card.dataset.id));
      setStop(card, false);
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

  $("#file").addEventListener("change", (event) => {
    searchFiles([...event.target.files]);
    event.target.value = ""; // the same file can be chosen twice
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length || event.target.closest?.("input, textarea")) return;
    event.preventDefault();
    searchFiles(files);
  });
  let depth = 0;
  const dragging = (event, by) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    depth = Math.max(0, depth + by);
    $("#dropping").hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => dragging(event, 1));
  addEventListener("dragover", (event) => dragging(event, 0));
  addEventListener("dragleave", (event) => dragging(event, -1));
  addEventListener("drop", (event) => {
    dragging(event, -depth);
    depth = 0;
    if (event.dataTransfer?.files.length) searchFiles([...event.dataTransfer.files]);
  });

  $("#learner").addEventListener("change", ({ target: { value: learner } }) =>
    change({ learner, with: state.with === learner ? undefined : state.with, metric: undefined, k: undefined, model: undefined }));
  $("#with").addEventListener("change", (event) => change({ with: event.target.value || undefined, metric: undefined }));
  $("#label").addEventListener("change", (event) => change({ label: event.target.value || undefined, metric: undefined, k: undefined }));
  $("#options").addEventListener("toggle", drawOptions);
  $("#others").addEventListener("click", () => samples().catch(failure));
  $("#help").addEventListener("click", () => openSheet("search"));
  themeButton($("#theme"));

  const at = (act) => () => {
    const id = viewer.open ? state.open : currentId();
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
    explain: at((image) => void (viewer.open ? change({ explain: state.explain ? undefined : 1 }, { replace: true })
      : change({ open: image.id, explain: 1 }, { overlay: true }))),
    update: () => void update(),
    undo: () => (marks.key ? void marks.undo() : false),
    sheet: () => openSheet("search"),
  });
}

async function begin() {
  history.scrollRestoration = "manual";
  setLook();
  listen();
  try {
    run = await get("api/run");
  } catch (error) {
    $("#start").hidden = false;
    return failure(error);
  }
  $("#run").textContent = `${run.run} · ${plural(run.images, "image")}`;
  $("#limits").textContent = `Up to ${Math.floor(run.limits.upload_bytes / 2 ** 20)} MiB. Pictures stay on this server.`;
  const labels = $("#by-label select");
  labels.replaceChildren(el("option", { value: "" }, "choose"),
    ...Object.keys(run.labels).map((name) => el("option", { value: name }, name)));
  labels.addEventListener("change", () => labels.value && go({ query_label: labels.value }));
  $("#by-label").hidden = !run.annotators.length;
  await show(readAddress(), { scroll: history.state?.scroll ?? 0 });
}

begin();
