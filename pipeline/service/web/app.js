// The search page: what is asked lies in the address; `show` makes the page agree with it.

import { addressOf, queryOf, readAddress, searchOf } from "./address.js";
import { ApiError, get, post, search, upload } from "./api.js";
import { drawComparison } from "./compare.js";
import { $, announce, command, copy, count, el, fileName, picture, plural, remember, remembered, seconds, setLook, themeButton, toast,
  toasts } from "./dom.js";
import { drawFigures } from "./figures.js";
import { currentId, drawGrid, focusCard, moveFocus, prepareStops, pressMarks, setStop, showMarks, skeleton } from "./grid.js";
import { bindKeys, openSheet } from "./keys.js";
import { drawTray, Marks } from "./marks.js";
import { closeViewer, drawViewer, viewer } from "./viewer.js";

const PAGE = 48; // divides by 2, 3, 4, 6 and 8 columns
const MOST = 480; // cards
const COMPARED = 20;

let run = { images: 0, labels: {}, learners: [], models: {}, evaluations: [], limits: {} };
let state = {}; // what the page is to show
let shown = {}; // what it shows
let answer = null; // the ranking on the page
let other = null; // the ranking beside it
let before = null; // { name, learner, results, subject }: a ranking as it was before the last update
let drawn = null; // what the grid was drawn from
let turn = 0; // of show: a later one makes an earlier one stop
let hideMarked = false;
let cancel = null; // of the search under way
let teaching = false; // an update of the learner is under way
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

// What stays as it is when another query is asked.
function settings() {
  const { learner, label, unique } = state;
  return state.query_label ? { label, unique } : { learner, label, unique, with: state.with === "before" ? undefined : state.with };
}

const ask = (query) => go({ ...query, ...settings() });

function closeDialog() {
  if (!leaveDialog()) return; // it was closed already
  if (history.state?.overlay) history.back();
  else change({ open: undefined, explain: undefined }, { replace: true });
}

const viewOf = (asked) => (asked.view === "figures" ? "figures" : !queryOf(asked) ? "start" : asked.with ? "compare" : "results");

async function show(next, { scroll } = {}) {
  const mine = ++turn;
  const first = mine === 1; // a file may have been dropped before
  if (scroll !== undefined && !first) cancel?.abort(); // what was asked is not wanted any more
  state = next;
  if (!state.open) leaveDialog();
  let done = false;
  try {
    const view = viewOf(state);
    if (view === "start") await showStart(mine);
    else if (view === "figures") await showFigures();
    else await showAnswer(mine);
    done = true;
  } catch (error) {
    if (mine !== turn) return;
    // What is shown stays, and can be used as before; the address is of what was asked.
    state = viewer.open ? shown : { ...shown, open: undefined, explain: undefined };
    if (error.name !== "AbortError") failure(error, () => show(next, { scroll }));
  }
  const view = viewOf(state);
  if (!done && view === "start") await showStart(mine).catch(() => {});
  if (mine !== turn) return;
  shown = state;
  if (done) failure(null);
  else if (queryOf(state)) drawQuery();
  for (const [id, views] of PANELS) $(id).hidden = !views.includes(view);
  document.body.classList.toggle("no-marks", !answer?.key); // what a label asked for has no marks
  document.title = view === "figures" ? "Figures – visterm" : view === "start" ? "visterm" : `${queryName()} – visterm`;
  $('[data-go="figures"]').setAttribute("aria-current", view === "figures" ? "page" : "false");
  tray();
  if (!done) return;
  if (scroll !== undefined) {
    if (!first) placeFocus();
    requestAnimationFrame(() => scrollTo(0, scroll));
  }
  if (state.open && queryOf(state)) openDialog();
}

const PANELS = [["#start", ["start"]], ["#figures", ["figures"]], ["#asked", ["results", "compare"]], ["#results", ["results"]],
  ["#compare", ["compare"]]];

// A focus that was on something that is gone goes to what has come.
function placeFocus() {
  const at = document.activeElement;
  if (at !== document.body && at.checkVisibility()) return;
  const card = $("#results a.open[tabindex='0']");
  (card?.checkVisibility() ? card : $("#main")).focus({ preventScroll: true });
}

const ADVICE = {
  401: "Open the address with its token once: /?token=…",
  404: "Choose another image, or take away a filter.",
  413: "Choose another image, or a smaller copy of it.",
  415: "Choose another image.",
  429: "The server is busy. Try again in a moment.",
};

function failure(error, retry) {
  if (!error) return $("#failure").replaceChildren();
  if (viewer.open) toast(error.message); // it hides the rest of the page
  const advice = ADVICE[error.status] ?? (answer ? "What is shown below is from before." : "");
  const button = (words, look, act = () => {}) =>
    el("button", { type: "button", class: look, onclick: () => (failure(null), placeFocus(), act()) }, words);
  $("#failure").replaceChildren(
    el("div", { class: "box" },
      el("div", {}, el("strong", {}, "That did not work"), el("p", {}, error.message), el("p", { class: "quiet" }, advice)),
      ...(retry ? [button("Try again", "", retry)] : []), button("Dismiss", "plain")));
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
      $("#start").hidden = $("#figures").hidden = true;
      $("#results").hidden = false;
      $("#results").replaceChildren(el("p", { class: "quiet" }, words), ...skeleton(24));
      drawn = null;
    }, 200),
    setTimeout(() => {
      const button = el("button", { type: "button", onclick: () => mine.abort() }, "Cancel");
      toasts.replaceChildren(el("div", { class: "toast", id: "waiting" }, el("span", {}, words), button));
      announce(`${words} Cancel is possible.`);
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

async function readRun() {
  run = await get("api/run");
  $("#run").textContent = `${run.run} · ${plural(run.images, "image")}`;
  const { upload_bytes, upload_seconds } = run.limits;
  $("#limits").textContent = `JPEG, PNG, WebP, BMP or TIFF, up to ${Math.floor(upload_bytes / 2 ** 20)} MiB. ` +
    `The server keeps the picture, and nothing else of the file, for ${plural(Math.round(upload_seconds / 86400), "day")}.`;
  $("#by-label").hidden = !run.annotators.length;
  $("#by-label select").replaceChildren(el("option", { value: "" }, "choose"),
    ...Object.keys(run.labels).map((name) => el("option", { value: name }, name)));
}

async function fetchAnswer(asked, k) {
  const key = JSON.stringify(asked);
  const kept = answers.get(key);
  if (kept?.version === run.version && (kept.results.length >= k || kept.ended)) return kept;
  return keepAnswer(key, await busy("Searching …", (signal) => search({ ...asked, k }, { signal })), k);
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
  const name = file.name || "pasted image";
  const mine = turn;
  try {
    const most = run.limits.upload_bytes;
    if (file.size > most) throw new ApiError(`${name}: larger than the ${Math.floor(most / 2 ** 20)} MiB that the server takes`, 413);
    const kept = settings();
    const found = await busy(`Searching with ${name} …`,
      (signal) => upload(file, { ...searchOf(kept), k: PAGE }, { signal }));
    const next = { ...kept, upload: found.upload ?? found.key };
    keepAnswer(JSON.stringify(searchOf(next)), found, PAGE);
    remember("names", { ...Object.fromEntries(Object.entries(remembered("names", {})).slice(-20)), [next.upload]: name });
    await go(next);
    if (!found.upload) say("The server could not keep this picture: the address works only until the page is reloaded.");
    if (files.length > 1) toast(`${name}: the first of ${files.length} files is used.`);
  } catch (error) {
    if (mine !== turn && error.name === "AbortError") return; // somebody has gone on meanwhile
    if (!answer) await show(shown); // takes the skeletons away
    if (error.name !== "AbortError") failure(error, [413, 415].includes(error.status) ? null : () => searchFiles(files));
  }
}

async function loadMore(button) {
  button.disabled = true;
  button.textContent = "Loading …";
  const [from, offset] = [answer, answer.results.length];
  try {
    const more = await search({ ...searchOf(state), k: PAGE, offset });
    if (answer !== from) return;
    if (more.version === from.version) {
      from.results.push(...more.results);
      from.ended = more.results.length < PAGE;
    } else run.version = null; // the collection or the learner has changed: all of it is asked again
    await change({ k: offset + PAGE }, { replace: true });
    const added = answer?.results.slice(offset) ?? [];
    if (added.length && !viewer.open) focusCard(added[0].id);
    announce(`${plural(added.length, "more result")}, ${offset + added.length} in all.`);
  } catch (error) {
    failure(error);
  } finally {
    button.disabled = false;
    button.textContent = "Load more";
  }
}

// ---- the views

async function showStart(mine) {
  if (run.images && !$("#samples .card")) await samples();
  if (mine !== turn) return;
  answer = drawn = null;
  $("#by-label select").value = "";
  marks.load(null);
  recent();
  if (!run.images)
    $("#samples").replaceChildren(el("li", { class: "whole box" },
      el("div", {}, el("strong", {}, "This run has no images yet"),
      el("p", {}, "Point visterm at a folder of images, then reload this page:"), command("visterm features FOLDER"))));
}

async function samples() {
  const images = await get("api/images", { sample: 12, seed: Math.floor(Math.random() * 1e6) });
  $("#samples").replaceChildren(...images.map((image) =>
    el("li", { class: "card" }, el("a", { class: "open", href: addressOf({ id: image.id }), "data-go": "link" },
      el("figure", {}, picture(image, { alt: `Search with ${image.path}`, lazy: false }),
        el("span", { class: "badge hint", "aria-hidden": "true" }, "Search with this")),
      el("p", { class: "caption", title: image.path }, el("span", { class: "name" }, fileName(image.path)),
        el("span", { class: "labels" }, image.labels.join(", ")))))));
}

const recentName = () => `recent ${run.run}`; // numbers of images are those of a run

function recent() {
  const kept = remembered(recentName(), []);
  $("#recent").replaceChildren(...(kept.length ? [el("h2", {}, "Recent queries"), el("ul", { class: "strip" }, kept.map(({ query, name }) =>
    el("li", {}, el("a", { href: addressOf(query), "data-go": "link", title: name }, queryPicture(query, name),
      query.query_label ? null : el("span", { class: "unseen" }, name)))))] : []));
}

const queryAddress = ({ id, upload }, size) =>
  id !== undefined ? `images/${id}/thumbnail?size=${size}` : `uploads/${encodeURIComponent(upload)}?size=${size}`;

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
  await readRun(); // an evaluation may be new
  const all = await Promise.all(run.evaluations.map(async (name) => {
    const at = `api/evaluations/${encodeURIComponent(name)}`;
    const [curves, metrics] = await Promise.all([get(`${at}/curves`), get(`${at}/metrics`)]);
    return { name, curves, metrics };
  }));
  $("#figures").replaceChildren(...drawFigures(all));
}

// What a ranking is of, whichever learner made it.
const subjectOf = (asked) => JSON.stringify({ ...searchOf(asked), learner: undefined });
const snapshot = () => (before?.subject === subjectOf(state) && before.learner === answer.learner ? before : null);

async function showAnswer(mine) {
  const asked = searchOf(state);
  const k = Math.min(MOST, state.with ? COMPARED : (state.k ?? PAGE));
  const found = await fetchAnswer(asked, k);
  const beside = state.with && state.with !== "before";
  const second = beside ? await fetchAnswer({ ...asked, learner: state.with }, COMPARED) : null;
  if (mine !== turn) return;
  if (found.version !== run.version) await readRun(); // the collection or a learner has changed meanwhile
  if (mine !== turn) return;
  found.of = JSON.stringify(queryOf(state));
  const isNew = answer?.of !== found.of;
  answer = found;
  other = beside ? second : snapshot();
  if (isNew) {
    $("#notes").replaceChildren();
    rememberQuery();
    marks.load(found.key).then(() => {
      if (answer?.of !== found.of) return;
      if (state.with) showComparison();
      else if (hideMarked) showGrid(true);
    }, (error) => toast(`The marks of this query could not be read: ${error.message}`));
    noteOldLink();
  }
  drawQuery();
  if (state.with) showComparison();
  else showGrid();
}

function rememberQuery() {
  const query = queryOf(state);
  const same = JSON.stringify(query);
  const kept = remembered(recentName(), []).filter((entry) => JSON.stringify(entry.query) !== same);
  remember(recentName(), [{ query, name: queryName() }, ...kept].slice(0, 10));
}

function noteOldLink() {
  const now = run.models[answer.learner]?.version ?? 0;
  if (state.model !== undefined && state.model !== now) note(`This link was made with model ${state.model}; you see model ${now}.`);
}

const note = (words, ...buttons) => $("#notes").replaceChildren(el("p", { class: "note" }, el("span", {}, words), ...buttons));
const modelName = (learner) => (run.models[learner]?.version ? `${learner}, model ${run.models[learner].version}` : learner);

function drawQuery() {
  const focused = document.activeElement;
  const [tabAt, onChip] = [[...$("#tabs").children].indexOf(focused), $("#chips").contains(focused)];
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
  const learners = (state.query_label ? run.annotators : run.learners).map((name) => [name, name]);
  options($("#learner"), learners, answer.learner);
  const earlier = snapshot() ? [["before", before.name]] : [];
  options($("#with"), [...earlier, ...learners.filter(([name]) => name !== answer.learner)], state.with, "nothing");
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
  const tabs = [tab(undefined, "All metrics"), ...metrics.map((metric) => tab(metric, `Metric ${metric + 1} (${found(metric)})`)),
    el("span", { class: "quiet wide-only" }, "Images of a label are ranked by one of the metrics that MuSL learned.")];
  $("#tabs").replaceChildren(...(metrics.length && !state.with ? tabs : []));
  $("#tabs").children[tabAt]?.focus();
  if (onChip) ($("#chips button") ?? $("#label")).focus();
  if ($("#options").open && !$("#options").contains(focused)) drawOptions();
}

// The link to what is seen, with the version of the model that made it.
function link() {
  const model = run.models[answer.learner]?.version || undefined;
  const kept = state.with === "before" ? undefined : state.with;
  return new URL(addressOf({ ...state, learner: answer.learner, with: kept, model }), document.baseURI).href;
}

function copyLink() {
  const until = answer.upload_expires && new Date(answer.upload_expires).toLocaleDateString("en", { day: "numeric", month: "long" });
  copy(link(), until ? `Link (works until ${until}, longer if it is used)` : "Link");
}

const passes = (result) => (state.metric === undefined || result.metric === state.metric) && !(hideMarked && marks.of.get(result.id));
const visible = () => answer.results.filter(passes);

function showGrid(anew = false) {
  const key = JSON.stringify([searchOf(state), answer.results.length, answer.ended, state.metric, hideMarked, answer.version]);
  if (drawn === key && !anew) return;
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
  if (focused !== null) focusCard(focused, { preventScroll: true }) || focusCard(images[0]?.id, { preventScroll: true });
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
      el("p", {}, "The ranking before an update is kept until the page is reloaded, for the query and the filters that it was made with."))));
    return;
  }
  const [left, right] = state.with === "before" ? [other, answer] : [answer, other];
  const named = (part) => ({ name: part === before ? part.name : modelName(part.learner), results: part.results.slice(0, COMPARED) });
  const focused = document.activeElement.closest("#compare td")?.dataset.id;
  const said = $("#summary")?.textContent;
  $("#compare").replaceChildren(...drawComparison(named(left), named(right), marks.of,
    (image) => addressOf({ ...state, open: image.id })).filter(Boolean));
  if (focused) $(`#compare td[data-id="${focused}"] a`)?.focus({ preventScroll: true });
  if ($("#summary").textContent !== said) announce($("#summary").textContent);
}

// ---- the dialog

const lists = () => (state.with && other ? [answer.results.slice(0, COMPARED), other.results.slice(0, COMPARED)] : [visible()]);

function openDialog() {
  const second = lists()[1]?.some((image) => image.id === state.open) && !lists()[0].some((image) => image.id === state.open);
  const images = lists()[second ? 1 : 0];
  const image = images.find((one) => one.id === state.open);
  if (!image) {
    toast("The opened image is not among the results that are shown.");
    return change({ open: undefined, explain: undefined }, { replace: true });
  }
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
    learner: by === before ? null : by.learner,
    model: by === before ? before.name : modelName(by.learner),
    query: { values: query, address: queryAddress(query, 1024) },
    act: {
      close: closeDialog,
      left: () => step(-1),
      right: () => step(1),
      pivot: () => ask({ id: image.id }),
      relevant: () => mark(image, 1),
      not: () => mark(image, -1),
      explain: () => change({ explain: state.explain ? undefined : 1 }, { replace: true }),
      copy: copyLink,
    },
  });
}

function leaveDialog() {
  const id = closeViewer();
  if (id !== null && queryOf(state)) focusCard(id) || $(`#compare td[data-id="${id}"] a`)?.focus();
  return id !== null;
}

// ---- marks and what is learned from them

const marks = new Marks(() => {
  if (!answer) return;
  showMarks(answer.results, marks.of);
  if (viewer.open) pressMarks(viewer, marks.of.get(state.open));
  else if (shown.with) showComparison();
  tray();
});

const online = () => (run.models[answer?.learner] ? answer.learner : Object.keys(run.models)[0]);

function tray() {
  if (!answer || $("#asked").hidden) return ($("#marks").hidden = true);
  const { learner } = answer;
  drawTray(marks, { online: online(), update, remove: (image) => marks.put(image, 0, learner), clear: () => marks.clear(learner) });
}

async function mark(image, value) {
  if (!answer.key) return toast("Marks belong to a query image; search with an image to mark its results.");
  const saved = await marks.toggle(image, value, answer.learner);
  if (saved && marks.ready && remembered("updateEach", false)) update();
}

// Change the learner, one request at a time; what is known of the run and of the rankings is then asked again.
async function teach(how, body, words, retry) {
  if (teaching) return null;
  teaching = true;
  say(words);
  try {
    await marks.sending;
    const done = await post(`feedback/${how}`, body);
    run.version = null;
    return done;
  } catch (error) {
    $("#notes").replaceChildren();
    failure(error, retry);
    return null;
  } finally {
    teaching = false;
  }
}

async function refresh(learner) {
  const named = learner === run.default_learner && !state.learner ? undefined : learner;
  await change({ learner: named, with: undefined, model: undefined }, { replace: true });
  scrollTo(0, 0); // what has changed is best seen from the first result on
}

async function update() {
  const learner = online();
  if (!learner) return toast("No learner of this run learns from marks.");
  if (!marks.ready) return toast("Updating needs one relevant and one not relevant.");
  const { key, used } = marks;
  const taught = new Map(marks.of);
  const old = answer.learner === learner
    ? { name: `before (${modelName(learner)})`, learner, results: answer.results, subject: subjectOf(state) } : null;
  const done = await teach("update", { learner, query: key }, "Learning from the marks …", update);
  if (!done) return;
  const here = marks.key === key; // else somebody has gone on meanwhile
  if (here && (done.accepted || done.map_after !== null)) marks.used = taught; // refused marks are set aside
  if (!done.accepted) return say(`Model ${done.from_version} stays: ${done.reason}.`);
  before = old;
  await (here ? refresh(learner) : show(state));
  const changed = done.changed_in_top ? `${done.changed_in_top} of the top 20 changed` : "The top 20 did not change";
  const held = done.map_after === null ? ""
    : ` mAP on held-out queries ${done.map_before.toFixed(3)} to ${done.map_after.toFixed(3)}.`;
  say(`Model ${done.from_version} to ${done.to_version}: learned from ${done.n_relevant} relevant, ${done.n_not} not, ` +
    `${Math.round(done.milliseconds)} ms. ${changed}.${held}${done.behind ? ` It does not answer yet: ${done.behind}.` : ""}`,
    el("button", { type: "button", onclick: () => takeBack("undo", learner, used) }, "Undo"),
    here && snapshot() && el("button", { type: "button", onclick: () => change({ with: "before" }) }, "Compare"));
}

function say(words, ...buttons) {
  note(words, ...buttons.filter(Boolean));
  if (viewer.open || $("#asked").hidden) return toast(words); // where the note is not seen
  toasts.replaceChildren();
  announce(words);
}

// Undo the last update, or go back to the base model; `used`: the marks that are then learned.
async function takeBack(how, learner, used) {
  const { key } = marks;
  const done = await teach(how, { learner }, "Going back …", () => takeBack(how, learner, used));
  if (!done) return;
  before = null;
  if (marks.key === key) marks.used = used;
  await (answer ? refresh(learner) : show(state));
  if (how === "undo") say(`Undone: ${modelName(learner)} ranks again as before.`);
  else
    say(`${learner} is the base model again. Marks made until now are kept, but not learned again.`,
      el("button", { type: "button", onclick: () => takeBack("undo", learner, new Map()) }, "Undo"));
  placeFocus();
}

function reset(learner) {
  const dialog = $("#confirm");
  const yes = () => {
    dialog.close();
    takeBack("reset", learner, new Map(marks.of));
  };
  dialog.replaceChildren(el("h2", { id: "confirm-title" }, `Reset ${learner} to its base model?`),
    el("p", {}, "It forgets what it learned from marks, of all queries. The marks are kept, but only new ones are learned from then on."),
    el("form", { method: "dialog", class: "row" }, el("button", {}, "Cancel"),
      el("button", { type: "button", class: "primary", onclick: yes }, "Reset")));
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

  $("#learner").addEventListener("change", ({ target: { value: learner } }) =>
    change({ learner, with: state.with === learner ? undefined : state.with, metric: undefined, k: undefined, model: undefined }));
  $("#with").addEventListener("change", (event) => change({ with: event.target.value || undefined, metric: undefined }));
  $("#label").addEventListener("change", (event) => change({ label: event.target.value || undefined, metric: undefined, k: undefined }));
  $("#options").addEventListener("toggle", drawOptions);
  $("#options").addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !$("#options").contains(relatedTarget)) $("#options").open = false;
  });
  $("#options").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    $("#options").open = false;
    $("#options summary").focus();
  });
  $("#by-label select").addEventListener("change", ({ target: { value } }) => value && go({ query_label: value }));
  $("#others").addEventListener("click", () => samples().catch(failure));
  $("#help").addEventListener("click", () => openSheet("search"));
  themeButton($("#theme"));

  const at = (act) => () => {
    const id = viewer.open ? state.open : currentId() ?? Number(document.activeElement.closest("#compare td")?.dataset.id);
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
  try {
    await readRun();
  } catch (error) {
    $("#start").hidden = false;
    return failure(error, begin);
  }
  await show(readAddress(), { scroll: history.state?.scroll ?? 0 });
}

history.scrollRestoration = "manual";
listen();
begin();
