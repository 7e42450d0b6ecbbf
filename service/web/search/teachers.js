// Which of the training images made two images similar: pairs that learning put together or kept
// apart, each with what stands behind it. All of them add up to the score.

import { count, el, figure } from "../core/dom.js";
import { info, named } from "../core/words.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["Teacher"]} Teacher */

export const TEACHERS = 4; // listed on each side

/** @param {Schemas["TeacherImage"]} image */
const picture = (image) =>
  image.thumbnail === null
    ? el("span", { class: "gone" }, "not in the collection")
    : el("img", {
        src: `${image.thumbnail}&size=256`,
        alt: image.path ?? "",
        title: image.path ?? "",
        loading: "lazy",
      });

/** @param {Teacher} teacher */
function reason({ mark, label, query, result }) {
  if (mark) return `mark ${mark.number}, ${mark.time.slice(0, 10)}`;
  if (label !== null) return ["both ", named(label)];
  const labels = [query, result].map((image) => image.labels.join(", ") || "no label");
  return [named(labels[0]), " and ", named(labels[1])];
}

/** @param {Teacher} teacher */
const row = (teacher) =>
  el(
    "tr",
    {},
    el("td", {}, picture(teacher.query)),
    el("td", {}, teacher.together ? "was put with" : "was kept apart from"),
    el("td", {}, picture(teacher.result)),
    el("td", {}, reason(teacher)),
    el("td", { class: "n" }, figure(teacher.contribution)),
  );

/** @param {string} caption @param {Teacher[]} teachers */
const table = (caption, teachers) =>
  teachers.length
    ? el(
        "div",
        { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
        el(
          "table",
          {},
          el("caption", {}, caption),
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ["Like the query", "With", "Like the result", "Because", "Score"].map((name, i) =>
                el("th", { scope: "col", class: i === 4 ? "n" : null }, name),
              ),
            ),
          ),
          el("tbody", {}, teachers.map(row)),
        ),
      )
    : "";

/**
 * The teachers of an explanation, or why there are none.
 * @param {Schemas["Explanation"]} explanation
 */
export function drawTeachers({ teachers, no_teachers }) {
  const root = el("section", { class: "teachers" });
  root.append(el("h3", {}, "Learned from these of your images", info("teachers")));
  if (!teachers) {
    root.append(el("p", { class: "quiet" }, `${no_teachers ?? "There are none"}.`));
    return root;
  }
  const { unlearned, common, learned, rest, n_rest, pairs } = teachers;
  const parts = [
    `Score ${figure(teachers.score)}: the same without learning ${figure(unlearned)}`,
    common ? `learned for every result of this query ${figure(common)}` : null,
    `learned about these two ${figure(learned)}, mostly from:`,
  ];
  root.append(
    el("p", {}, parts.filter(Boolean).join(", ")),
    table(
      "For",
      pairs.filter((one) => one.contribution > 0),
    ),
    table(
      "Against",
      pairs.filter((one) => one.contribution < 0),
    ),
    n_rest
      ? el("p", { class: "quiet" }, `The other ${count(n_rest)} together: ${figure(rest)}.`)
      : "",
  );
  return root;
}
