// Where a match comes from: a heat map on both photos, the regions that make half of the score, and
// one sentence; the numbers are folded away.

import { $$, el, numbers, svg, table, targetOf } from "../core/dom.js";
import { figure, percent } from "../core/text.js";
import { info } from "../core/words.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["ExplainedImage"]} Side */
/** @typedef {Schemas["RegionPair"]} Pair */
/** @typedef {"query_region" | "result_region"} Which the name of the region of a side in a pair */

// A cell has the full colour where it adds so many times what it would if the best score of the
// ranking came evenly from all of the photo: one scale for both photos and for all results.
const FULL = 4;
const HUES = [55, 200, 320]; // of the pairs, as many as the service gives

/**
 * Numbers of the pairs that a region is in, counted from 0.
 * @param {Pair[]} pairs
 * @param {Which} which
 * @param {number} region
 */
const pairsOf = (pairs, which, region) =>
  pairs.flatMap((pair, i) => (pair[which] === region ? [i] : []));

/**
 * The cells of a photo, orange where they raise the score and blue where they lower it.
 * @param {Side} side
 * @param {number} best
 */
const heat = ({ width, height, cells, cell_heat }, best) =>
  svg(
    "g.heat",
    cells.map(([x, y, w, h], i) => {
      const share = (cell_heat[i] * width * height) / (w * h * FULL * best);
      return svg("rect", {
        x,
        y,
        width: w,
        height: h,
        class: share < 0 ? "minus" : null,
        opacity: Math.min(1, Math.abs(share)).toFixed(3),
      });
    }),
  );

/**
 * The outline of a region, with the numbers of its pairs in its strongest cell.
 * @param {Side} side
 * @param {number} region
 * @param {number[]} own
 */
function outline({ width, height, cells, cell_heat, regions }, region, own) {
  const inside = regions[region].cells;
  const hottest = inside.reduce((one, other) =>
    Math.abs(cell_heat[other]) > Math.abs(cell_heat[one]) ? other : one,
  );
  const [x, y, w, h] = cells[hottest];
  const [cx, cy] = [x + w / 2, y + h / 2];
  const r = 0.03 * Math.max(width, height) * (innerWidth < 640 ? 1.7 : 1);
  const half = r * (1 + 0.9 * (own.length - 1)); // of the width of a badge
  const lines = regions[region].outline
    .map(([x1, y1, x2, y2]) => `M${x1} ${y1}L${x2} ${y2}`)
    .join("");
  const area = inside.map(
    (i) => `M${cells[i][0]} ${cells[i][1]}h${cells[i][2]}v${cells[i][3]}h${-cells[i][2]}z`,
  );
  return svg(
    "g.region",
    { "data-pairs": own.join(" "), style: { "--hue": HUES[own[0]] } },
    svg("path.area", { d: area.join("") }),
    svg("path.edge", { d: lines }),
    svg("path.line", { d: lines }),
    svg("rect", { x: cx - half, y: cy - r, width: 2 * half, height: 2 * r, rx: r }),
    svg(
      "text",
      { x: cx, y: cy + 0.42 * r, "font-size": 1.2 * r, "text-anchor": "middle" },
      own.map((i) => i + 1).join(", "),
    ),
  );
}

/**
 * A photo with its heat map and its regions.
 * @param {Side} side
 * @param {string} href
 * @param {string} name
 * @param {Pair[]} pairs
 * @param {Which} which
 * @param {number} best
 */
function overlay(side, href, name, pairs, which, best) {
  const { width, height, regions } = side;
  const places = regions.map(
    ({ place }, i) =>
      `${place} (${pairsOf(pairs, which, i)
        .map((j) => j + 1)
        .join(", ")})`,
  );
  const outlined = places.length ? `; outlined: ${places.join(", ")}` : "";
  const absent = svg(
    "text",
    { x: width / 2, y: height / 2, "text-anchor": "middle", "font-size": width / 16 },
    "image not available",
  );
  return svg(
    "svg.overlay",
    {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": regions.length
        ? `${name}: heat map of where the score comes from${outlined}`
        : name,
      style: { "--ratio": width / height },
    },
    svg("image", {
      href,
      width,
      height,
      preserveAspectRatio: regions.length ? "none" : "xMidYMid meet", // its size may be unknown
      onerror: (/** @type {Event} */ event) => targetOf(event).replaceWith(absent),
    }),
    heat(side, best),
    regions.map((_, i) => outline(side, i, pairsOf(pairs, which, i))),
  );
}

/**
 * A region in a cell of the table: the rectangle around it, cut out of the photo, and its place.
 * @param {Side} side
 * @param {number} number
 * @param {string} href
 */
function regionCell({ width, height, cells, regions }, number, href) {
  const region = regions[number];
  const boxes = region.cells.map((i) => cells[i]);
  const [left, top] = [0, 1].map((axis) => Math.min(...boxes.map((box) => box[axis])));
  const [right, bottom] = [0, 1].map((axis) =>
    Math.max(...boxes.map((box) => box[axis] + box[axis + 2])),
  );
  return el(
    "td",
    el(
      "span.block",
      svg(
        "svg.crop",
        {
          viewBox: `${left} ${top} ${right - left} ${bottom - top}`,
          preserveAspectRatio: "xMidYMid slice",
          "aria-hidden": "true",
        },
        svg("image", { href, width, height, preserveAspectRatio: "none" }),
      ),
      el("span", `${region.place}, ${region.cells.length} of ${cells.length} cells`),
    ),
  );
}

/**
 * The pairs of regions as a table, and what all others add.
 * @param {Schemas["Explanation"]} explanation
 * @param {Record<Which, string>} pictures
 */
function tableOf({ query, result, regions, rest }, pictures) {
  const others = 1 - regions.reduce((sum, pair) => sum + pair.share, 0);
  return table("Pairs of regions", ["Pair", "In the query", "In the result", "Share", "Score"], 3, [
    ...regions.map((pair, i) =>
      el(
        "tr",
        { tabindex: "0", "data-pairs": i },
        el("th", { scope: "row" }, el("span.number", { style: { "--hue": HUES[i] } }, i + 1)),
        regionCell(query, pair.query_region, pictures.query_region),
        regionCell(result, pair.result_region, pictures.result_region),
        numbers(percent(pair.share), figure(pair.contribution)),
      ),
    ),
    el(
      "tr",
      el("th", { scope: "row", colspan: 3 }, "All other pairs of cells"),
      numbers(percent(others), figure(rest)),
    ),
  ]);
}

/**
 * The explanation as one element. `best` is the score of the ranking's first result; `pictures` are
 * the two addresses.
 * @param {Schemas["Explanation"]} explanation
 * @param {Record<Which, string>} pictures
 * @param {number} best
 */
export function drawExplanation(explanation, pictures, best) {
  const { query, result, regions, score, positive, negative } = explanation;
  const full = Math.abs(best) || Math.abs(score) || 1;
  const strength = el("input", { type: "range", min: 0, max: 100, value: 80 });
  /** @param {Side} side @param {Which} which @param {string} name */
  const photo = (side, which, name) =>
    el(
      "figure",
      overlay(side, pictures[which], name, regions, which, full),
      el("figcaption", name),
    );
  const canvas = el(
    "div.pictures",
    photo(query, "query_region", "Query"),
    photo(result, "result_region", "Result"),
    svg("svg.joint", { "aria-hidden": "true" }, svg("line"), svg("line")),
  );
  const heats = [...query.cell_heat, ...result.cell_heat];
  const lowers = Math.min(...heats) < -0.02 * Math.max(...heats); // less is not seen
  const root = el(
    "div.explanation",
    el("p.where", explanation.sentence),
    canvas,
    heats.length > 0 &&
      el(
        "div.row",
        el("label", "Heat map ", strength),
        el(
          "span.scale",
          lowers ? ["lowers the score", el("span.bar.minus")] : "adds nothing",
          el("span.bar"),
          "adds most",
        ),
        info("explain"),
      ),
    el(
      "details.numbers",
      el("summary", "Numbers"),
      regions.length ? tableOf(explanation, pictures) : null,
      el(
        "p.quiet",
        `Score ${figure(score)}`,
        negative < 0 ? `: raised by ${figure(positive)}, lowered by ${figure(-negative)}.` : ".",
      ),
    ),
  );
  /** @param {Element | null} node @returns {HTMLElement | null | undefined} */
  const paired = (node) => node?.closest("[data-pairs]");
  /** @param {Event} event @param {boolean} on */
  const point = (event, on) => {
    // Where nothing is pointed at, the pair that has the focus.
    const at =
      (on && paired(targetOf(event))) ||
      (event.type !== "focusout" && paired(document.activeElement));
    const pair = at ? at.dataset.pairs?.split(" ")[0] : undefined;
    for (const node of $$("[data-pairs]", root))
      node.classList.toggle(
        "on",
        pair !== undefined && (node.dataset.pairs ?? "").split(" ").includes(pair),
      );
    canvas.classList.toggle("pointed", pair !== undefined);
    join();
  };
  // A line between the two regions of the pair that is pointed at.
  const join = () => {
    const origin = canvas.getBoundingClientRect();
    const ends = [...canvas.querySelectorAll(".region.on rect")].map((node) =>
      node.getBoundingClientRect(),
    );
    canvas.classList.toggle("joined", ends.length === 2);
    if (ends.length !== 2) return;
    for (const line of canvas.querySelectorAll(".joint line"))
      ends.forEach(({ x, y, width, height }, i) => {
        line.setAttribute(`x${i + 1}`, String(x + width / 2 - origin.x));
        line.setAttribute(`y${i + 1}`, String(y + height / 2 - origin.y));
      });
  };
  for (const name of ["pointerover", "focusin"])
    root.addEventListener(name, (event) => point(event, true));
  for (const name of ["pointerleave", "focusout"])
    root.addEventListener(name, (event) => point(event, false));
  const show = () =>
    canvas.style.setProperty("--heat", String(heats.length && Number(strength.value) / 100));
  strength.addEventListener("input", show);
  show();
  return root;
}
