// Why two images match: heat maps over both, the strongest pairs of blocks (of a network: cells) as numbered rectangles,
// and as a table.

import { el, figure, plural, svg } from "./dom.js";

const CELLS = 24; // of a heat map, along the longer side
const FULL = 0.004; // a square with this share of the best score of the ranking has full colour: one scale for all results
const HUES = [28, 200, 320, 90, 260, 170, 0, 50];

// Every block's contribution is spread evenly over its area; blocks of all scales add up.
function heatCells({ width, height, boxes, heat }) {
  const side = Math.max(width, height) / CELLS;
  const [columns, rows] = [Math.max(1, Math.round(width / side)), Math.max(1, Math.round(height / side))];
  const [w, h] = [width / columns, height / rows];
  const cells = new Float64Array(columns * rows);
  boxes.forEach(([x, y, bw, bh], i) => {
    for (let row = Math.max(0, Math.floor(y / h)); row < Math.min(rows, Math.ceil((y + bh) / h)); row++)
      for (let column = Math.max(0, Math.floor(x / w)); column < Math.min(columns, Math.ceil((x + bw) / w)); column++) {
        const across = Math.min(x + bw, (column + 1) * w) - Math.max(x, column * w);
        const down = Math.min(y + bh, (row + 1) * h) - Math.max(y, row * h);
        cells[row * columns + column] += (heat[i] * across * down) / (bw * bh);
      }
  });
  return { cells, columns, w, h };
}

// Where in a rectangle a badge is farthest from those that are there already.
function freeSpot([x, y, w, h], edge, taken) {
  const spots = [0, 0.5, 1].flatMap((down) => [0, 0.5, 1].map((across) =>
    [x + edge + across * (w - 2 * edge), y + edge + down * (h - 2 * edge)]));
  const room = ([sx, sy]) => Math.min(...taken.map(([tx, ty]) => Math.hypot(sx - tx, sy - ty)));
  return taken.length ? spots.reduce((best, spot) => (room(spot) > room(best) ? spot : best)) : spots[0];
}

function overlay(side, href, words, pairs, block, full) {
  const { cells, columns, w, h } = heatCells(side);
  const heat = svg("g", { class: "heat", "shape-rendering": "crispEdges" });
  cells.forEach((value, i) => {
    const strength = Math.min(1, Math.abs(value) / full);
    if (strength < 0.02) return;
    heat.append(svg("rect", { x: (i % columns) * w, y: Math.floor(i / columns) * h, width: w, height: h, class: value > 0 ? "for"
      : "against", opacity: strength.toFixed(3) }));
  });
  const unit = (Math.max(side.width, (side.height * 4) / 3) / 100) * (innerWidth < 640 ? 1.7 : 1); // both pictures stand in boxes of 4 : 3
  const badges = [];
  const rectangles = pairs.map((pair, i) => {
    const [x, y, bw, bh] = side.boxes[pair[block]];
    const [bx, by] = freeSpot([x, y, bw, bh], 3.4 * unit, badges);
    badges.push([bx, by]);
    return svg("g", { class: pair.contribution < 0 ? "pair minus" : "pair", "data-pair": i, style: { "--hue": HUES[i % HUES.length] } },
      svg("rect", { class: "outline", x, y, width: bw, height: bh }),
      svg("rect", { class: "line", x, y, width: bw, height: bh }),
      svg("circle", { cx: bx, cy: by, r: 3 * unit }),
      svg("text", { x: bx, y: by + 1.3 * unit, "font-size": 3.8 * unit, "text-anchor": "middle" }, i + 1));
  });
  return svg("svg", { class: "overlay", viewBox: `0 0 ${side.width} ${side.height}`, role: "img", "aria-label": words },
    svg("image", { href, width: side.width, height: side.height, preserveAspectRatio: "none" }), heat, ...rectangles);
}

// Where a block is, and how many others of its image are like it.
const place = ([x, y, w, h], { width, height }, n) => {
  const [across, down] = [(x + w / 2) / width, (y + h / 2) / height];
  const words = [down < 1 / 3 ? "top" : down > 2 / 3 ? "bottom" : "middle", across < 1 / 3 ? "left" : across > 2 / 3 ? "right" : "centre"];
  return [words.join(" "), el("span", { class: "wide-only quiet" },
    ` (${Math.round(x)}, ${Math.round(y)}), ${Math.round(w)} × ${Math.round(h)}`), n > 1 ? ` + ${n - 1} similar` : ""];
};

function legend(full) {
  return el("p", { class: "legend" }, el("span", {}, figure(-full)),
    el("span", { class: "ramp", role: "img",
    "aria-label": `Colour scale from ${figure(-full)} (blue) through 0 (transparent) to ${figure(full)} (orange)` }),
    el("span", {}, figure(full)), el("span", { class: "quiet" }, " score per square; same scale for both images and all results"));
}

const classOf = (column) => (column < 3 ? null : column < 5 ? "n" : "n wide-only"); // of the table of pairs
const percent = (share) => `${(100 * share).toFixed(1)} %`;

// MuSL compares bits: whether a visterm's share of an image is below a threshold.
function bitsInWords(bits) {
  const agree = bits.filter((bit) => bit.contribution > 0);
  const absent = agree.filter((bit) => !bit.n_query_blocks && !bit.n_result_blocks).length;
  return `The metric of this result compares ${plural(bits.length,
    "visterm")}: ${agree.length} agree (${absent} absent from both images), ${bits.length - agree.length} disagree.`;
}

// The explanation as one element. `best` is the score of the ranking's first result; `pictures` are the two addresses.
export function drawExplanation(explanation, pictures, best) {
  const root = el("div", { class: "explanation" });
  const { query, result, pairs, score, positive, negative, parts } = explanation;
  const full = FULL * (Math.abs(best) || Math.abs(score) || 1);
  const many = el("input", { type: "range", min: 0, max: Math.min(30, pairs.length), value: Math.min(innerWidth < 640 ? 4 : 8, pairs.length),
    "aria-label": "Number of pairs" });
  const opacity = el("input", { type: "range", min: 0, max: 100, value: 80, "aria-label": "Heat map opacity" });
  const canvas = el("div", { class: "pictures" });
  const below = el("div", { class: "table" });

  const draw = () => {
    const shown = pairs.slice(0, Number(many.value));
    const side = (which, block, name) => {
      const words = `${name}: heat map of the ${parts}s that contribute to the score; the table lists the ${plural(shown.length, "numbered pair")}`;
      return el("figure", {}, overlay(which, pictures[block], words, shown, block, full), el("figcaption", {}, name));
    };
    canvas.replaceChildren(side(query, "query_block", "Query"), side(result, "result_block", "Result"),
      svg("svg", { class: "joint", "aria-hidden": "true" }, svg("line"), svg("line")));
    let total = 0;
    const rows = shown.map((pair, i) => {
      total += pair.share;
      return el("tr", { tabindex: "0", "data-pair": i },
        el("th", { scope: "row" }, el("span", { class: "number", style: { "--hue": HUES[i % HUES.length] } }, i + 1)),
        el("td", {}, place(query.boxes[pair.query_block], query, pair.n_query_blocks)),
        el("td", {}, place(result.boxes[pair.result_block], result, pair.n_result_blocks)),
        [figure(pair.contribution), percent(pair.share), percent(total)].map((words, j) => el("td", { class: classOf(j + 3) }, words)));
    });
    const heads = ["Pair", `${parts[0].toUpperCase()}${parts.slice(1)} in query`, `${parts[0].toUpperCase()}${parts.slice(1)} in result`, "Score", "Share", "Running total"];
    const table = el("table", {},
      el("caption", {}, `Strongest ${parts} pairs`),
      el("thead", {}, el("tr", {}, heads.map((name, i) =>
        el("th", { scope: "col", class: classOf(i) }, el("span", { class: i ? null : "unseen" }, name))))),
      el("tbody", {}, rows));
    const whole = negative < 0 ? "all positive and negative contributions" : `the score ${figure(score)}`;
    const these = shown.length === 1 ? "This pair explains" : `These ${shown.length} pairs explain`;
    const made = shown.length ? `${these} ${percent(total)} of ${whole}. ` : `Score ${figure(score)}. `;
    const more = explanation.bits ? bitsInWords(explanation.bits)
      : negative < 0 ? `Score ${figure(score)}: positive contributions ${figure(positive)}, negative ${figure(negative)}.` : "";
    below.replaceChildren(
      shown.length ? el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Strongest ${parts} pairs` }, table) : "",
      el("p", { class: "quiet" }, made + more),
    );
  };
  const point = (event, on) => {
    const at = event.target.closest("[data-pair]")?.dataset.pair;
    root.querySelectorAll("[data-pair].on").forEach((node) => node.classList.remove("on"));
    if (on && at !== undefined) root.querySelectorAll(`[data-pair="${at}"]`).forEach((node) => node.classList.add("on"));
    join();
  };
  // A line between the numbers of the pair that is pointed at.
  const join = () => {
    const origin = canvas.getBoundingClientRect();
    const ends = [...canvas.querySelectorAll(".pair.on circle")].map((node) => node.getBoundingClientRect());
    for (const line of canvas.querySelectorAll(".joint line"))
      ends.forEach((end, i) => {
        line.setAttribute(`x${i + 1}`, end.x + end.width / 2 - origin.x);
        line.setAttribute(`y${i + 1}`, end.y + end.height / 2 - origin.y);
      });
    canvas.classList.toggle("joined", ends.length === 2);
  };
  for (const name of ["pointerover", "focusin"]) root.addEventListener(name, (event) => point(event, true));
  for (const name of ["pointerleave", "focusout"]) root.addEventListener(name, (event) => point(event, false));
  many.addEventListener("input", draw);
  opacity.addEventListener("input", () => canvas.style.setProperty("--heat", opacity.value / 100));
  canvas.style.setProperty("--heat", 0.8);
  draw();
  root.append(canvas, el("div", { class: "row" }, legend(full), el("label", {}, "Pairs ", many), el("label", {}, "Heat map ", opacity)), below);
  return root;
}
