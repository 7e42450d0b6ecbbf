// Human evaluation: one query, one candidate at a time, relevant or not. Neither rank nor learner
// is told.

import { get, post } from "../core/api.js";
import { lineChart } from "../core/charts.js";
import { $, activeElement, el, icon, keyName, numbers, table } from "../core/dom.js";
import { missing, orElse, picture } from "../core/pictures.js";
import { remember, remembered } from "../core/remember.js";
import { announce, box, command } from "../core/says.js";
import { plural } from "../core/text.js";
import { bindKeys, bindTop } from "../core/keys.js";

/** @import { Schemas } from "../core/api.js" */
/** @import { Series } from "../core/charts.js" */
/** @import { Child } from "../core/dom.js" */
/** @typedef {Schemas["JudgingResults"]} Results */
/** @typedef {Schemas["DecisionRequest"]["decision"]} Decision */

// Decisions, their words, keys and icons.
/** @type {[Decision, string, string, "check" | "cross" | "question"][]} */
const VERDICTS = [
  ["relevant", "Relevant", "A", "check"],
  ["not", "Not relevant", "X", "cross"],
  ["unsure", "Cannot say", "Space", "question"],
];

const asked = new URLSearchParams(location.search);
let judge = asked.get("judge") ?? "";
/** @type {Schemas["JudgingTask"] | null} */
let task = null; // what is on the screen, as the service gave it
let shownAt = 0; // when the last picture of the two was there
let sending = false; // keys wait while a decision is kept

/** @param {Error | null} error @returns {void} */
function failure(error) {
  if (!error) return $("#failure").replaceChildren();
  $("#failure").replaceChildren(
    box(
      "Request failed",
      el("p", error.message),
      el("button", { onclick: () => location.reload() }, "Reload"),
    ),
  );
}

function askName() {
  const name = el("input", {
    type: "text",
    name: "judge",
    maxlength: 60,
    required: true,
    autocomplete: "name",
    value: remembered("judge", ""),
  });
  const form = el(
    "form.panel.start",
    el("h1", "Judge search results"),
    el("p", "Say of each image whether it is relevant to the query."),
    el("p", "Each decision is saved. To resume later, enter the same name."),
    el("label", "Your name", name),
    el("button.primary", { type: "submit" }, "Start"),
    el("p", el("a", { href: "?results=1" }, "Results so far")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    judge = name.value.trim();
    if (!judge) return;
    remember("judge", judge);
    history.pushState(null, "", `?judge=${encodeURIComponent(judge)}`);
    load();
  });
  $("#stage").replaceChildren(form);
  name.focus();
}

/** @param {Error} error */
const showNothing = (error) =>
  $("#stage").replaceChildren(
    el("h1", "Judge search results"),
    box("Nothing to judge yet", [el("p", error.message), command("visterm judge")]),
  );

async function load() {
  try {
    draw(await get("api/judge/next", { judge }));
    failure(null);
  } catch (error) {
    if (error.status !== 409) return failure(error);
    showNothing(error);
  }
}

/** @param {Schemas["NextTask"]} next */
function draw(next) {
  task = next.task;
  if (!task) return void showEnd(next).catch(failure);
  const focused = activeElement();
  /**
   * A path often names the class, so alternative texts do not tell it.
   * @param {string} name
   * @param {number} id
   * @param {string} words
   */
  const side = (name, id, words) => {
    const img = el("img", {
      src: `images/${id}/thumbnail?size=1024`,
      alt: words,
      draggable: "false",
    });
    img.addEventListener("load", () => {
      shownAt = performance.now();
    });
    return el(
      "figure",
      el("figcaption", name),
      orElse(img, () => missing(name)),
    );
  };
  /** @param {typeof VERDICTS[number]} verdict */
  const button = ([decision, words, key, sign]) =>
    el(
      "button",
      {
        class: decision,
        "data-decision": decision,
        "aria-keyshortcuts": key,
        onclick: () => decide(decision),
      },
      icon(sign),
      words,
      keyName(key),
    );
  /** @type {HTMLDetailsElement} */
  const guide = $("#guide");
  const unfolded = guide?.open ?? next.done === 0;
  $("#stage").replaceChildren(
    el(
      "div.head",
      el("h1", `Query ${next.query_index + 1} of ${next.n_queries}`),
      el("progress", { max: next.total, value: next.done, "aria-label": "Progress" }),
      el("span.count", `${next.done} / ${next.total}`),
      el("span.quiet", { id: "left" }, timeLeft(next.seconds_left)),
      el(
        "button",
        {
          id: "undo",
          onclick: undo,
          disabled: next.done === 0,
          title: "Undo (Backspace)",
        },
        "Undo",
      ),
      el("span.status", { id: "status" }),
    ),
    el(
      "div.duel",
      side("Query", task.query, "Query image"),
      side("Relevant to the query?", task.image, `Image ${next.done + 1} of ${next.total}`),
    ),
    el("div.verdicts", { role: "group", "aria-label": "Decision" }, VERDICTS.map(button)),
    next.instructions
      ? el(
          "details",
          { id: "guide", open: unfolded },
          el("summary", "Instructions"),
          el(
            "div.panel",
            next.instructions.split("\n\n").map((words) => el("p", words)),
          ),
        )
      : "",
  );
  shownAt = performance.now();
  document.title = `${next.done} / ${next.total} – Judge – visterm`;
  // Who goes on with Enter or Space finds the focus where it was.
  if (focused.dataset.decision) $(`[data-decision="${focused.dataset.decision}"]`).focus();
  else if (focused.id === "undo") ($("#undo:enabled") ?? $("#main")).focus();
  else if (!focused.isConnected) $("#main").focus();
}

/**
 * In words that do not change with every decision.
 * @param {number | null} seconds
 */
function timeLeft(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 50) return "less than a minute left";
  const minutes = Math.round(seconds / 60);
  return minutes < 60
    ? `about ${plural(minutes, "minute")} left`
    : `about ${plural(Math.round(minutes / 60), "hour")} left`;
}

/** @param {() => Promise<Schemas["NextTask"]>} ask @param {string} words what has been done */
async function send(ask, words) {
  if (sending) return;
  sending = true;
  $("#status").textContent = "Saving …";
  try {
    const next = await ask();
    draw(next);
    failure(null);
    if (next.task)
      announce(`${words} Image ${next.done + 1} of ${next.total}, query ${next.query_index + 1}.`);
    $("#status").textContent = "Saved";
  } catch (error) {
    failure(error); // the image stays, so that it can be decided again
    $(".chosen")?.classList.remove("chosen");
    $("#status").textContent = "Not saved";
  } finally {
    sending = false;
  }
}

/** @param {Decision} decision */
function decide(decision) {
  if (!task || sending) return;
  $(`[data-decision="${decision}"]`).classList.add("chosen");
  const words = VERDICTS.find(([name]) => name === decision)?.[1];
  const seconds = (performance.now() - shownAt) / 1000;
  const body = { judge, task: task.task, image: task.image, decision, seconds };
  return send(() => post("api/judge/decisions", body), `${words}.`);
}

const undo = () => void send(() => post("api/judge/undo", { judge }), "Undone.");

/** @param {number | null | undefined} value */
const percent = (value) =>
  value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`;

/** @param {Schemas["NextTask"]} next */
async function showEnd(next) {
  const results = await get("api/judge/results");
  document.title = "Done – Judge – visterm";
  drawResults(results, [
    el("h1", { tabindex: "-1" }, "Done. Thank you!"),
    el(
      "p",
      `You judged ${plural(next.total, "image")} for ` +
        `${plural(next.n_queries, "query", "queries")}.`,
    ),
    el(
      "p.row",
      el("button", { id: "undo", onclick: undo }, "Undo last decision"),
      el("span.status", { id: "status" }),
      el("a", { href: "judge" }, "Start as another judge"),
    ),
  ]);
}

// The page of results, with an address of its own.
async function showResults() {
  try {
    const results = await get("api/judge/results");
    document.title = "Results – Judge – visterm";
    drawResults(results, [
      el("h1", { tabindex: "-1" }, "Results of judging"),
      el(
        "p.quiet",
        `Study ${results.study} of ${results.learner}: ` +
          `${plural(results.queries.length, "query", "queries")}, ` +
          `${plural(results.judges.length, "judge")}.`,
      ),
      el("p", el("a", { href: "judge" }, "Judge some images")),
    ]);
  } catch (error) {
    if (error.status !== 409) return failure(error);
    showNothing(error);
  }
}

/** @param {Results} results @param {Child} head */
function drawResults(results, head) {
  /** @param {{ precision_at: { [k: string]: number | null } }} row */
  const at = (row) => row.precision_at?.[results.k];
  /** @type {[number, number][]} */
  const curve = Object.entries(results.precision_at ?? {}).flatMap(([k, value]) =>
    value === null ? [] : [[Number(k), value]],
  );
  const random = results.random_relevant;
  /** @type {Series[]} */
  const series = [{ name: results.learner, kind: "learner", points: curve }];
  if (curve.length && random !== null)
    series.push({
      name: "Random images",
      kind: "chance",
      points: [
        [curve[0][0], random],
        [curve[curve.length - 1][0], random],
      ],
    });
  const judged = results.queries
    .filter((row) => row.judges)
    .sort((a, b) => (at(b) ?? 0) - (at(a) ?? 0));
  $("#stage").replaceChildren(
    el(
      "section.panel.done",
      head,
      el("h2", "Results so far"),
      el(
        "dl.facts",
        el("dt", `Precision at ${results.k}, ${results.learner}`),
        el("dd", percent(at(results))),
        el("dt", "Random images judged relevant"),
        el("dd", percent(random)),
      ),
      curve.length > 1
        ? lineChart(series, {
            x: "k, the number of first results",
            y: "Precision at k",
            label: `Precision at k by the judges: ${percent(at(results))} at ${results.k}`,
          })
        : null,
      table(
        "Results per judge",
        [
          "Judge",
          "Judged",
          "Cannot say",
          "Seconds per image",
          `Precision at ${results.k}`,
          "Agreement with other judges",
        ],
        1,
        results.judges.map((row) =>
          el(
            "tr",
            el("th", { scope: "row", dir: "auto" }, row.judge),
            numbers(
              `${row.done} / ${row.total}`,
              row.unsure,
              row.seconds === null ? "–" : row.seconds.toFixed(1),
              percent(at(row)),
              percent(row.coherence),
            ),
          ),
        ),
        "Judges",
      ),
      judged.length
        ? [
            el("h2", "Queries, the best first"),
            el(
              "ol.judged",
              judged.map((row) => {
                const { query: id, path } = row;
                return el(
                  "li",
                  el(
                    "a",
                    { href: `./?id=${id}` },
                    picture({ id, path, thumbnail: `images/${id}/thumbnail?` }, { alt: path }),
                  ),
                  el("strong", percent(at(row))),
                  el("span.quiet", plural(row.judges, "judge")),
                );
              }),
            ),
          ]
        : el("p.quiet", "A query counts once a judge has decided on all its images."),
      el(
        "p.row",
        "Export: ",
        [
          ["csv", "CSV"],
          ["json", "JSON"],
          ["qrels", "TREC qrels"],
        ].map(([format, name]) => el("a", { href: `api/judge/export?format=${format}` }, name)),
      ),
    ),
  );
  $("h1").focus();
}

bindKeys("judge", "body", {
  relevant: () => (task ? void decide("relevant") : false),
  not: () => (task ? void decide("not") : false),
  unsure: () => (task ? void decide("unsure") : false),
  undo: () => ($("#undo:enabled") ? void undo() : false),
});
bindTop("judge");
addEventListener("popstate", () => location.reload());
if (asked.get("results")) showResults();
else if (judge) load();
else askName();
