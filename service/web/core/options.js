// The menu "Options": how photos are shown, and (folded) which learner ranks and the model that
// marks update.

import { wordsOf } from "./address.js";
import { $, $$, activeElement, el, targetOf } from "./dom.js";
import { remember, remembered } from "./remember.js";
import { command } from "./says.js";
import { percent, plural } from "./text.js";
import { LARGEST, rowHeight, setRowHeight, SMALLEST } from "../gallery/gallery.js";
import { change, redraw } from "./history.js";
import { reset } from "../teach/learning.js";
import { chooseLearner, learnerName, modelName, onlineLearner, snapshot, state } from "./state.js";
import { info } from "./words.js";

/** @import { Child } from "./dom.js" */

const LIKELY = 0.8; // probability that the filter asks for

/** @param {boolean} on */
export function setHideMarked(on) {
  state.hideMarked = on;
  redraw();
}

/** @param {boolean} [on] */
function showDetails(on = remembered("alwaysDetails", false)) {
  remember("alwaysDetails", on);
  document.documentElement.dataset.details = on ? "always" : "hover";
}

/**
 * @param {string[][]} names values and their words
 * @param {string | undefined} chosen
 * @param {(value: string) => unknown} choose
 * @param {string} [first] words of no value
 */
const select = (names, chosen, choose, first) =>
  el(
    "select",
    { onchange: (event) => choose(event.target.value) },
    first ? el("option", { value: "" }, first) : null,
    names.map(([value, words]) => el("option", { value, selected: value === chosen }, words)),
  );

/** @param {string} learner */
export function rankBy(learner) {
  if (!wordsOf(state.request)) chooseLearner(learner);
  return change({
    learner,
    with: state.request.with === learner ? undefined : state.request.with,
    metric: undefined,
    model: undefined,
  });
}

// Which learner ranks, and a second one beside it.
function ranking() {
  const { run, request } = state;
  const learners = (
    wordsOf(request) && request.text_by !== "model" ? run.annotators : run.learners
  ).map((name) => [name, learnerName(name)]);
  const before = snapshot();
  const earlier = before ? [["before", before.name]] : [];
  return [
    el(
      "div.field",
      el("label", "Ranked by ", select(learners, state.ranking.learner, rankBy)),
      info("learner"),
    ),
    el(
      "div.field",
      el(
        "label",
        "Compare with ",
        select(
          [...earlier, ...learners.filter(([name]) => name !== state.ranking.learner)],
          request.with,
          (value) => change({ with: value || undefined, metric: undefined }),
          "nothing",
        ),
      ),
    ),
  ];
}

function modelOf() {
  const learner = onlineLearner();
  const model = learner === undefined ? undefined : state.run.models[learner];
  if (!learner || !model)
    return [
      el("p.quiet", "No learner of this run learns from marks. To train one, run:"),
      command("visterm train --learner oasis"),
    ];
  return [
    el("p", `${modelName(learner)}, ${plural(model.marks ?? 0, "mark")} used since training`),
    el(
      "p.row",
      el(
        "button",
        { disabled: !model.version, onclick: () => reset(learner) },
        "Reset to base model",
      ),
      el("a", { href: "feedback/export" }, "Export marks"),
    ),
  ];
}

export function drawOptions() {
  const menu = $("#options .menu");
  const controls = () => $$("input, select, button, summary", menu);
  const focused = controls().indexOf(activeElement());
  const searched = state.ranking && !state.request.view && !$("#asked").hidden;
  /** @type {HTMLDetailsElement} */
  const advanced = $("details", menu);
  const unfolded = advanced?.open ?? Boolean(state.request.with || state.request.learner);
  /**
   * @param {string} words
   * @param {boolean} on
   * @param {(on: boolean) => unknown} act
   * @param {Child} [extra]
   */
  const choice = (words, on, act, extra) =>
    el(
      "div.field",
      el(
        "label.check",
        el("input", {
          type: "checkbox",
          checked: on,
          onchange: (event) => act(event.target.checked),
        }),
        ` ${words}`,
      ),
      extra,
    );
  const size = el("input", {
    type: "range",
    min: Math.log(SMALLEST),
    max: Math.log(LARGEST),
    step: "any",
    value: Math.log(rowHeight()),
    oninput: (event) => setRowHeight(Math.exp(event.target.value)),
  });
  // The filter by probability, or why there are none.
  const likely = () => {
    const { base_rate: base, no_probability: reason } = state.ranking ?? {};
    if (reason) return el("p.quiet", `No probabilities: ${reason}.`);
    return choice(
      `Only photos that are ${percent(LIKELY)} likely of the same kind`,
      Boolean(state.request.min_probability),
      (on) => change({ min_probability: on ? LIKELY : undefined }),
      typeof base === "number"
        ? el("p.quiet", `Two photos drawn at random: ${percent(base)}.`)
        : null,
    );
  };
  /** @param {boolean} on */
  const fold = (on) => {
    remember("fold", on);
    state.fold = on;
    redraw();
  };
  /** @param {"after" | "before"} name @param {string} words */
  const date = (name, words) => {
    const [year, month = "01", day = "01"] = state.request[name]?.slice(0, 10).split("-") ?? [];
    const value = year ? `${year}-${month}-${day}` : "";
    const input = el("input", {
      type: "date",
      value,
      onchange: (event) => change({ [name]: event.target.value || undefined }),
    });
    return el("label.wide-field", `${words} `, input);
  };
  // A condition on a field, such as "camera=X100", which becomes a chip.
  const condition = () => {
    const names = state.run.fields.filter((name) => name !== "date" && name !== "date_source");
    if (!names.length) return null;
    const given = state.request.where ?? [];
    const input = el("input", {
      list: "fields",
      placeholder: `${names[0]}=…`,
      onchange: (event) => change({ where: [given, event.target.value.trim()].flat() }),
    });
    return el(
      "label.wide-field",
      "Only where ",
      input,
      el(
        "datalist",
        { id: "fields" },
        names.map((name) => el("option", { value: `${name}=` })),
      ),
    );
  };
  const searchChoices = () => [
    date("after", "Taken from"),
    date("before", "Taken before"),
    condition() ?? "",
    choice("Hide marked images", state.hideMarked, setHideMarked),
    choice("Update ranking after each mark", remembered("updateEach", false), (on) =>
      remember("updateEach", on),
    ),
    el(
      "details",
      { open: unfolded },
      el("summary", "Advanced"),
      el(
        "div.advanced",
        ranking(),
        choice("Hide exact duplicates", Boolean(state.request.exclude_duplicates), (on) =>
          change({ exclude_duplicates: on ? "true" : undefined }),
        ),
        likely(),
        el("h2", "Model"),
        modelOf(),
      ),
    ),
  ];
  menu.replaceChildren(
    el("label.wide-field", "Photo size ", size),
    choice("Always show rank, name and marks", remembered("alwaysDetails", false), showDetails),
    choice("Show copies as one photo", state.fold, fold),
    ...(searched ? searchChoices() : []),
  );
  controls()[focused]?.focus();
}

export function bindOptions() {
  /** @type {HTMLDetailsElement} */
  const options = $("#options");
  showDetails();
  options.addEventListener(
    "toggle",
    (event) => event.target === options && options.open && drawOptions(),
  );
  options.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !options.contains(relatedTarget)) options.open = false;
  });
  options.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    options.open = false;
    $("#options > summary").focus();
  });
  document.addEventListener("click", (event) => {
    const target = targetOf(event);
    if (options.open && target.isConnected && !options.contains(target)) options.open = false;
  });
  addEventListener("rowheight", () => {
    /** @type {HTMLInputElement} */
    const slider = $("#options input[type=range]");
    if (slider && slider !== document.activeElement) slider.value = String(Math.log(rowHeight()));
  });
}
