// Which photos a query and a result are both like: what ranks them together, beside the two alone.

import { el } from "../core/dom.js";
import { picture } from "../core/pictures.js";
import { figure } from "../core/text.js";
import { info } from "../core/words.js";

/** @import { Schemas } from "../core/api.js" */

const SHOWN = 12; // photos

/**
 * The photos, and what they add to the score; nothing where results are ranked without neighbours.
 * @param {Schemas["Explanation"]} explanation
 */
export function drawNeighbours({ neighbours }) {
  if (!neighbours) return "";
  const { score, alone, sentence, photos } = neighbours;
  const parts = `${figure(alone)} of the two alone, ${figure(score - alone)} by these`;
  return el(
    "section.neighbours",
    el("h3", "Both are like these photos", info("neighbours")),
    el("p", photos.length ? `Score ${figure(score)}: ${parts}.` : sentence),
    el(
      "div.shared",
      photos
        .slice(0, SHOWN)
        .map((photo) =>
          el(
            "span",
            { title: `${photo.path}: ${figure(photo.contribution)}` },
            picture({ thumbnail: "", ...photo }, { alt: photo.path }),
          ),
        ),
    ),
  );
}
