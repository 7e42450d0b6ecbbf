// Why two images match: both stay visible; what did not matter is dimmed, the strongest pairs of
// blocks (of a network: cells) have numbered outlines, a line joins the two of a pair, and a table
// shows both blocks of each and a word for what they share.

import { el, figure, plural, svg, targetOf } from "./dom.js";
import { info } from "./words.js";

/** @import { Schemas } from "./api.js" */
/** @typedef {Schemas["ExplainedImage"]} Side */
/** @typedef {Schemas["ExplainedPair"]} Pair */
/** @typedef {"query_block" | "result_block"} Block the name of the block of a side in a pair */

const CELLS = 32; // of the dimming, along the longer side
// A square with this share of the best score of the ranking is bright: one scale for all results.
const FULL = 0.004;
const HUES = [28, 200, 320, 90, 260, 170, 0, 50];

/**
 * Every block's contribution is spread evenly over its area; blocks of all scales add up.
 * @param {Side} side
 */
function heatCells({ width, height, boxes, heat }) {
  const side = Math.max(width, height) / CELLS;
  const [columns, rows] = [
    Math.max(1, Math.round(width / side)),
    Math.max(1, Math.round(height / side)),
  ];
  const [w, h] = [width / columns, height / rows];
  const cells = new Float64Array(columns * rows);
  boxes.forEach(([x, y, bw, bh], i) => {
    for (
      let row = Math.max(0, Math.floor(y / h));
      row < Math.min(rows, Math.ceil((y + bh) / h));
      row++
    )
      for (
        let column = Math.max(0, Math.floor(x / w));
        column < Math.min(columns, Math.ceil((x + bw) / w));
        column++
      ) {
        const across = Math.min(x + bw, (column + 1) * w) - Math.max(x, column * w);
        const down = Math.min(y + bh, (row + 1) * h) - Math.max(y, row * h);
        cells[row * columns + column] += (heat[i] * across * down) / (bw * bh);
      }
  });
  return { cells, columns, w, h };
}

/**
 * Where in a rectangle a badge is farthest from those that are there already.
 * @param {number[]} rectangle
 * @param {number} edge
 * @param {number[][]} taken
 */
function freeSpot([x, y, w, h], edge, taken) {
  const spots = [0, 0.5, 1].flatMap((down) =>
    [0, 0.5, 1].map((across) => [
      x + edge + across * (w - 2 * edge),
      y + edge + down * (h - 2 * edge),
    ]),
  );
  /** @param {number[]} spot */
  const room = ([sx, sy]) => Math.min(...taken.map(([tx, ty]) => Math.hypot(sx - tx, sy - ty)));
  return taken.length
    ? spots.reduce((best, spot) => (room(spot) > room(best) ? spot : best))
    : spots[0];
}

/**
 * @param {Side} side
 * @param {string} href
 * @param {string} words
 * @param {Pair[]} pairs
 * @param {Block} block
 * @param {number} full
 */
function overlay(side, href, words, pairs, block, full) {
  const { cells, columns, w, h } = heatCells(side);
  const dim = svg("g", { class: "dim" });
  cells.forEach((value, i) => {
    // What lowers the score is dark, too.
    const dark = 1 - Math.sqrt(Math.min(1, Math.max(0, value) / full));
    if (dark > 0.02)
      dim.append(
        svg("rect", {
          x: (i % columns) * w - 0.5,
          y: Math.floor(i / columns) * h - 0.5,
          width: w + 1,
          height: h + 1,
          opacity: dark.toFixed(2),
        }),
      );
  });
  dim.style.setProperty("filter", `blur(${(w * 0.6).toFixed(1)}px)`);
  const unit = (Math.max(side.width, side.height) / 100) * (innerWidth < 640 ? 1.7 : 1);
  /** @type {number[][]} */
  const badges = [];
  const rectangles = pairs.map((pair, i) => {
    const [x, y, bw, bh] = side.boxes[pair[block]];
    const [bx, by] = freeSpot([x, y, bw, bh], 3.4 * unit, badges);
    badges.push([bx, by]);
    return svg(
      "g",
      {
        class: pair.contribution < 0 ? "pair minus" : "pair",
        "data-pair": i,
        style: { "--hue": HUES[i % HUES.length] },
      },
      svg("rect", { class: "outline", x, y, width: bw, height: bh }),
      svg("rect", { class: "line", x, y, width: bw, height: bh }),
      svg("circle", { cx: bx, cy: by, r: 3 * unit }),
      svg(
        "text",
        { x: bx, y: by + 1.3 * unit, "font-size": 3.8 * unit, "text-anchor": "middle" },
        i + 1,
      ),
    );
  });
  return svg(
    "svg",
    {
      class: "overlay",
      viewBox: `0 0 ${side.width} ${side.height}`,
      role: "img",
      "aria-label": words,
      style: { "--ratio": side.width / side.height },
    },
    svg("image", { href, width: side.width, height: side.height, preserveAspectRatio: "none" }),
    dim,
    ...rectangles,
  );
}

/**
 * A block, cut out of its picture.
 * @param {Side} side
 * @param {number[]} box
 * @param {string} href
 */
const crop = (side, box, href) =>
  svg(
    "svg",
    {
      class: "crop",
      viewBox: `${box[0]} ${box[1]} ${box[2]} ${box[3]}`,
      preserveAspectRatio: "xMidYMid slice",
      "aria-hidden": "true",
    },
    svg("image", { href, width: side.width, height: side.height, preserveAspectRatio: "none" }),
  );

/**
 * Where a block is, and how many others of its image are like it.
 * @param {number[]} box
 * @param {Side} side
 * @param {number} n
 */
const place = ([x, y, w, h], { width, height }, n) => {
  const [across, down] = [(x + w / 2) / width, (y + h / 2) / height];
  const words = [
    down < 1 / 3 ? "top" : down > 2 / 3 ? "bottom" : "middle",
    across < 1 / 3 ? "left" : across > 2 / 3 ? "right" : "centre",
  ];
  return `${words.join(" ")}${n > 1 ? ` + ${n - 1} similar` : ""}`;
};

/**
 * The class of a column of the table of pairs.
 * @param {number} column
 */
const classOf = (column) => (column < 4 ? null : column < 6 ? "n" : "n wide-only");
/** @param {number} share */
const percent = (share) => `${(100 * share).toFixed(1)} %`;

/**
 * MuSL compares bits: whether a visterm's share of an image is below a threshold.
 * @param {Schemas["ExplainedBit"][]} bits
 */
function bitsInWords(bits) {
  const agree = bits.filter((bit) => bit.contribution > 0);
  const absent = agree.filter((bit) => !bit.n_query_blocks && !bit.n_result_blocks).length;
  return (
    `The metric of this result compares ${plural(bits.length, "visterm")}: ${agree.length} agree ` +
    `(${absent} absent from both images), ${bits.length - agree.length} disagree.`
  );
}

/**
 * The explanation as one element. `best` is the score of the ranking's first result; `pictures` are
 * the two addresses.
 * @param {Schemas["Explanation"]} explanation
 * @param {Record<Block, string>} pictures
 * @param {number} best
 */
export function drawExplanation(explanation, pictures, best) {
  const root = el("div", { class: "explanation" });
  const { query, result, pairs, score, positive, negative, parts } = explanation;
  const full = FULL * (24 / CELLS) ** 2 * (Math.abs(best) || Math.abs(score) || 1);
  const many = el("input", {
    type: "range",
    min: 0,
    max: Math.min(30, pairs.length),
    value: Math.min(innerWidth < 640 ? 4 : 8, pairs.length),
  });
  const dark = el("input", { type: "range", min: 0, max: 100, value: 65 });
  const canvas = el("div", { class: "pictures" });
  const below = el("div", { class: "table" });

  const draw = () => {
    const shown = pairs.slice(0, Number(many.value));
    /** @param {Side} which @param {Block} block @param {string} name */
    const side = (which, block, name) => {
      const words =
        `${name}: bright where ${parts}s add to the score, dimmed elsewhere; the table lists ` +
        `the ${plural(shown.length, "numbered pair")}`;
      return el(
        "figure",
        {},
        overlay(which, pictures[block], words, shown, block, full),
        el("figcaption", {}, name),
      );
    };
    canvas.replaceChildren(
      side(query, "query_block", "Query"),
      side(result, "result_block", "Result"),
      svg("svg", { class: "joint", "aria-hidden": "true" }, svg("line"), svg("line")),
    );
    let total = 0;
    /** @param {Side} which @param {number} i @param {number} n @param {string} href */
    const blockOf = (which, i, n, href) =>
      el(
        "td",
        {},
        el(
          "span",
          { class: "block" },
          crop(which, which.boxes[i], href),
          el("span", {}, place(which.boxes[i], which, n)),
        ),
      );
    const rows = shown.map((pair, i) => {
      total += pair.share;
      return el(
        "tr",
        { tabindex: "0", "data-pair": i },
        el(
          "th",
          { scope: "row" },
          el("span", { class: "number", style: { "--hue": HUES[i % HUES.length] } }, i + 1),
        ),
        blockOf(query, pair.query_block, pair.n_query_blocks, pictures.query_block),
        blockOf(result, pair.result_block, pair.n_result_blocks, pictures.result_block),
        el("td", { class: "words" }, pair.words || "–"),
        [percent(pair.share), figure(pair.contribution), percent(total)].map((words, j) =>
          el("td", { class: classOf(j ? j + 4 : 4) }, words),
        ),
      );
    });
    const part = `${parts[0].toUpperCase()}${parts.slice(1)}`;
    const heads = [
      "Pair",
      `${part} in query`,
      `${part} in result`,
      "In common",
      "Share",
      "Score",
      "Running total",
    ];
    const table = el(
      "table",
      {},
      el("caption", {}, `Strongest ${parts} pairs`),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((name, i) =>
            el(
              "th",
              { scope: "col", class: classOf(i) },
              el("span", { class: i ? null : "unseen" }, name),
            ),
          ),
        ),
      ),
      el("tbody", {}, rows),
    );
    const whole =
      negative < 0 ? "all positive and negative contributions" : `the score ${figure(score)}`;
    const these = shown.length === 1 ? "This pair explains" : `These ${shown.length} pairs explain`;
    const made = shown.length
      ? `${these} ${percent(total)} of ${whole}. `
      : `Score ${figure(score)}. `;
    const more = explanation.bits
      ? bitsInWords(explanation.bits)
      : negative < 0
        ? `Score ${figure(score)}: positive contributions ${figure(positive)}, negative ` +
          `${figure(negative)}.`
        : "";
    below.replaceChildren(
      shown.length
        ? el(
            "div",
            {
              class: "wide",
              tabindex: "0",
              role: "region",
              "aria-label": `Strongest ${parts} pairs`,
            },
            table,
          )
        : "",
      el("p", { class: "quiet" }, made + more),
    );
  };
  /** @param {Event} event @param {boolean} on */
  const point = (event, on) => {
    const pair = /** @type {HTMLElement | null} */ (targetOf(event).closest("[data-pair]"));
    const at = pair?.dataset.pair;
    root.querySelectorAll("[data-pair].on").forEach((node) => node.classList.remove("on"));
    if (on && at !== undefined)
      root.querySelectorAll(`[data-pair="${at}"]`).forEach((node) => node.classList.add("on"));
    canvas.classList.toggle("pointed", on && at !== undefined);
    join();
  };
  // A line between the two blocks of the pair that is pointed at, from edge to edge.
  const join = () => {
    const origin = canvas.getBoundingClientRect();
    const ends = [...canvas.querySelectorAll(".pair.on .line")].map((node) =>
      node.getBoundingClientRect(),
    );
    canvas.classList.toggle("joined", ends.length === 2);
    if (ends.length !== 2) return;
    const [a, b] = ends;
    const stacked = b.top > a.bottom && b.left < a.right; // one picture under the other
    const points = stacked
      ? [
          [a.x + a.width / 2, a.bottom],
          [b.x + b.width / 2, b.top],
        ]
      : [
          [a.right, a.y + a.height / 2],
          [b.left, b.y + b.height / 2],
        ];
    for (const line of canvas.querySelectorAll(".joint line"))
      points.forEach(([x, y], i) => {
        line.setAttribute(`x${i + 1}`, String(x - origin.x));
        line.setAttribute(`y${i + 1}`, String(y - origin.y));
      });
  };
  for (const name of ["pointerover", "focusin"])
    root.addEventListener(name, (event) => point(event, true));
  for (const name of ["pointerleave", "focusout"])
    root.addEventListener(name, (event) => point(event, false));
  many.addEventListener("input", draw);
  const dim = () => canvas.style.setProperty("--dim", String(Number(dark.value) / 100));
  dark.addEventListener("input", dim);
  dim();
  draw();
  root.append(
    canvas,
    el(
      "div",
      { class: "row" },
      el("label", {}, "Pairs ", many),
      el("label", {}, "Dim the rest ", dark),
      info("explain"),
    ),
    below,
  );
  return root;
}
