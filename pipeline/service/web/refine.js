// A query of several images, or of a part of one: examples with weights, and a rectangle on the
// picture.

import { queryOf } from "./address.js";
import { $, el, toast } from "./dom.js";
import { change } from "./history.js";
import { openRegion } from "./region.js";
import { startAdding } from "./searchbox.js";
import { queryAddress } from "./start.js";
import { asList, state } from "./state.js";

const MOST = 8; // examples on the page

const parse = (text) => {
  const [image, weight] = text.split("@");
  const [kind, name] = image.split(":");
  return {
    image,
    weight: weight === undefined ? 1 : Number(weight),
    query: kind === "id" ? { id: Number(name) } : { upload: name },
  };
};
const written = ({ image, weight }) => (weight === 1 ? image : `${image}@${weight}`);
const examples = () => asList(state.request.also).map(parse);
const keep = (list) =>
  change({ also: list.length ? list.map(written) : undefined, metric: undefined, with: undefined });

const isSame = (query, other) => JSON.stringify(query) === JSON.stringify(other);

// A weight comes a moment after its slider: the example may be gone.
function weigh(image, weight) {
  const list = examples();
  if (list.some((one) => one.image === image))
    keep(list.map((one) => (one.image === image ? { ...one, weight } : one)));
}

// Add images of the collection to the query; a negative weight subtracts them.
export const addExamples = (ids, weight = 1) =>
  add(ids.map((id) => ({ image: `id:${id}`, query: { id }, weight })));

// Add an image of the collection, or an upload.
export const addExample = (id, weight = 1, upload = null) =>
  upload
    ? add([{ image: `upload:${upload}`, query: { upload }, weight }])
    : addExamples([id], weight);

function add(images) {
  const { request } = state;
  if (!queryOf(request) || request.query_label)
    return change({ ...images[0].query, query_label: undefined });
  const added = images.filter(({ query }) => !isSame(query, queryOf(request)));
  if (!added.length) return toast("This image is the query itself.");
  const list = examples().filter((one) => !added.some(({ image }) => image === one.image));
  if (list.length + added.length > MOST)
    return toast(
      `A query can have ${MOST} further ` +
        `examples${list.length ? `, and has ${list.length} already` : ""}.`,
    );
  return keep([...list, ...added]);
}

// The links of the query panel.
export function refineLinks() {
  if (state.request.query_label) return [];
  return [
    el("button", { type: "button", class: "plain", onclick: startAdding }, "Add an example"),
    el(
      "button",
      { type: "button", class: "plain", onclick: () => openRegion() },
      state.request.region ? "Change region" : "Search a region",
    ),
  ];
}

const signed = (weight) => `${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(1)}`;

function slider(weight, name, set) {
  const value = el("output", {}, signed(weight));
  const range = el("input", {
    type: "range",
    min: -1,
    max: 1,
    step: 0.1,
    value: weight,
    "aria-label": `Weight of ${name}`,
  });
  range.addEventListener("input", () => {
    value.textContent = signed(Number(range.value));
    range.closest("li").classList.toggle("minus", Number(range.value) < 0);
  });
  range.addEventListener("change", () => set(Number(range.value)));
  return el("span", { class: "weight" }, range, value);
}

function tile(query, name, weight, set, remove, region) {
  const box = region?.split(",").map(Number);
  let timer; // of a new weight: keys change it step by step
  const later = (value) => {
    clearTimeout(timer);
    timer = setTimeout(() => set(value), 250);
  };
  const act = () => {
    clearTimeout(timer);
    remove.act();
  };
  return el(
    "li",
    { class: weight < 0 ? "minus" : "" },
    el(
      "figure",
      {},
      el("img", { src: queryAddress(query, 256), alt: name, draggable: "false" }),
      box &&
        el("span", {
          class: "region",
          "aria-hidden": "true",
          style: Object.fromEntries(
            ["left", "top", "width", "height"].map((side, i) => [side, `${100 * box[i]}%`]),
          ),
        }),
    ),
    slider(weight, name, later),
    el(
      "button",
      {
        type: "button",
        class: "remove",
        "aria-label": remove.words,
        title: remove.words,
        onclick: act,
      },
      "×",
    ),
  );
}

// Draw the examples and the region of the query; nothing where there are none.
export function drawExamples() {
  const { request } = state;
  let strip = $("#examples");
  if (!strip) {
    strip = el("div", { id: "examples" });
    $("#asked .panel").after(strip);
  }
  const list = examples();
  if (!list.length && !request.region && request.weight === undefined)
    return strip.replaceChildren();
  const focused =
    document.activeElement.closest?.("#examples") &&
    document.activeElement.getAttribute("aria-label");
  const query = queryOf(request);
  const whole = request.region
    ? { words: "Search the whole image", act: () => change({ region: undefined }) }
    : { words: "Remove the first image", act: removeFirst };
  strip.replaceChildren(
    el(
      "ul",
      { class: "examples", "aria-label": "Examples of the query" },
      tile(
        query,
        request.region ? "the region" : "the first image",
        request.weight ?? 1,
        (weight) =>
          isSame(query, queryOf(state.request)) &&
          change({ weight: weight === 1 ? undefined : weight }),
        whole,
        request.region,
      ),
      list.map((example, i) =>
        tile(
          example.query,
          `example ${i + 2}`,
          example.weight,
          (weight) => weigh(example.image, weight),
          {
            words: `Remove example ${i + 2}`,
            act: () => keep(examples().filter((one) => one.image !== example.image)),
          },
        ),
      ),
      el(
        "li",
        { class: "add" },
        el("button", { type: "button", onclick: startAdding }, "+ Add an example"),
      ),
    ),
    el(
      "p",
      { class: "quiet" },
      "Drag a slider to the left of its middle to move away from a picture. Relevance marks " +
        "need a query of one whole image.",
    ),
  );
  if (focused) strip.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}

function removeFirst() {
  const [first, ...rest] = examples();
  if (!first) return change({ weight: undefined });
  return change({
    id: undefined,
    upload: undefined,
    ...first.query,
    weight: first.weight === 1 ? undefined : first.weight,
    also: rest.length ? rest.map(written) : undefined,
  });
}
