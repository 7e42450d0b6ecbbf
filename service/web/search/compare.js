// Two rankings of one query, one row a rank: what moved, in words and arrows.

import { el, fileName, percent, picture, plural, targetOf } from "../core/dom.js";
import { info, named } from "../core/words.js";

/** @import { Photo } from "../gallery/details.js" */
/** @import { MarkOf } from "../teach/marks.js" */
/** @typedef {{ name: string, results: Photo[] }} Named a ranking and its name */
/** @typedef {{ kind: "same" | "up" | "down" | "new", by: number }} Move */

/**
 * How each image of `after` moved against `before`, by its id; and the images that left.
 * @param {Photo[]} before
 * @param {Photo[]} after
 */
function moves(before, after) {
  const place = new Map(before.map((image, i) => [image.id, i]));
  /** @type {Map<number, Move>} */
  const moved = new Map();
  after.forEach((image, i) => {
    const was = place.get(image.id);
    if (was === undefined) moved.set(image.id, { kind: "new", by: 0 });
    else
      moved.set(image.id, {
        kind: was === i ? "same" : was > i ? "up" : "down",
        by: Math.abs(was - i),
      });
  });
  return { moved, left: before.filter((image) => !moved.has(image.id)) };
}

/** @type {Record<Move["kind"], (by: number) => string>} */
const WORDS = {
  same: () => "= same",
  up: (by) => `▲ up ${by}`,
  down: (by) => `▼ down ${by}`,
  new: () => "★ new",
};

/**
 * Of the images that were marked: nothing is known of the others.
 * @param {Photo[]} images
 * @param {MarkOf} marks
 */
function precision(images, marks) {
  const marked = images.filter((image) => marks.get(image.id));
  return marked.length
    ? marked.filter((image) => marks.get(image.id) === 1).length / marked.length
    : null;
}

/**
 * @param {Named} before
 * @param {Named} after
 * @param {MarkOf} marks
 * @param {(image: Photo) => string} address
 */
export function drawComparison(before, after, marks, address) {
  const { moved, left } = moves(before.results, after.results);
  const tally = { same: 0, up: 0, down: 0, new: 0 };
  for (const { kind } of moved.values()) tally[kind] += 1;
  const n = after.results.length;
  const [first, second] = [precision(before.results, marks), precision(after.results, marks)];
  const words =
    `Top ${n}: ${tally.same} same rank, ${tally.up} up, ${tally.down} down, ${tally.new} new; ` +
    `overlap ${n - tally.new} of ${n}` +
    (first !== null && second !== null
      ? `; precision by your marks: ${percent(first)} to ${percent(second)}`
      : "") +
    ".";

  /** @param {Photo | undefined} image @param {number} place @param {Move} [move] */
  const cell = (image, place, move) =>
    !image
      ? el("td", { class: "none" }, `No result at rank ${place}`)
      : el(
          "td",
          { "data-id": image.id, "data-kind": move?.kind },
          el(
            "a",
            { class: "open", href: address(image) },
            picture(image, { size: 256, lazy: place > 6 }),
            el(
              "span",
              { class: "text" },
              named(fileName(image.path ?? ""), { class: "name" }),
              named(image.labels.join(", "), { class: "labels" }),
              marks.get(image.id)
                ? el(
                    "span",
                    { class: `judged ${marks.get(image.id) === 1 ? "relevant" : "not"}` },
                    marks.get(image.id) === 1 ? "✓ relevant" : "✕ not relevant",
                  )
                : null,
              move ? el("span", { class: `moved ${move.kind}` }, WORDS[move.kind](move.by)) : null,
            ),
          ),
        );
  const rows = Array.from({ length: Math.max(before.results.length, n) }, (_, i) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, i + 1),
      cell(before.results[i], i + 1),
      cell(after.results[i], i + 1, moved.get(after.results[i]?.id)),
    ),
  );
  const table = el(
    "table",
    { class: "versus" },
    el("caption", { class: "unseen" }, `${before.name} compared with ${after.name}`),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "Rank"),
        el("th", { scope: "col" }, before.name),
        el("th", { scope: "col" }, after.name),
      ),
    ),
    el("tbody", {}, rows),
  );
  /** @param {Event} event @param {boolean} on */
  const same = (event, on) => {
    table.querySelectorAll(".twin").forEach((node) => node.classList.remove("twin"));
    const id = targetOf(event).closest("td")?.dataset.id;
    if (on && id)
      table.querySelectorAll(`td[data-id="${id}"]`).forEach((node) => node.classList.add("twin"));
  };
  for (const name of ["pointerover", "focusin"])
    table.addEventListener(name, (event) => same(event, true));
  for (const name of ["pointerleave", "focusout"])
    table.addEventListener(name, (event) => same(event, false));
  return [
    el(
      "p",
      { class: "summary" },
      el("span", { id: "summary" }, words),
      first !== null && second !== null ? info("precision") : null,
    ),
    el(
      "p",
      { class: "quiet" },
      "Compare ranks, not scores: scores of different models are not comparable.",
    ),
    table,
    left.length
      ? el(
          "p",
          { class: "left" },
          `${plural(left.length, "image")} left the top ${n}: `,
          left.map((image, i) => [
            i ? ", " : "",
            el("a", { href: address(image) }, fileName(image.path ?? "")),
          ]),
        )
      : null,
  ];
}
