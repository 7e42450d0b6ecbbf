// Which of the training images made two images similar: pairs that learning put together or kept
// apart, each with what stands behind it. All of them add up to the score.

import { el, numbers, table } from "../core/dom.js";
import { picture } from "../core/pictures.js";
import { count, figure, percent } from "../core/text.js";
import { info, named } from "../core/words.js";

/** @import { Schemas } from "../core/api.js" */
/** @typedef {Schemas["Teacher"]} Teacher */

export const TEACHERS = 4; // listed on each side

/** @param {Schemas["TeacherImage"]} image */
const photo = ({ id, path, thumbnail }) =>
  id === null || thumbnail === null
    ? el("span.gone", "not in the collection")
    : picture({ id, path, thumbnail }, { alt: path ?? "" });

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
    el("td", photo(teacher.query)),
    el("td", teacher.together ? "was put with" : "was kept apart from"),
    el("td", photo(teacher.result)),
    el("td", reason(teacher)),
    numbers(figure(teacher.contribution)),
  );

/** @param {string} caption @param {Teacher[]} teachers */
const tableOf = (caption, teachers) =>
  teachers.length
    ? table(
        caption,
        ["Like the query", "With", "Like the result", "Because", "Score"],
        4,
        teachers.map(row),
      )
    : "";

/**
 * The teachers of an explanation, or why there are none.
 * @param {Schemas["Explanation"]} explanation
 */
export function drawTeachers({ teachers, no_teachers }) {
  const root = el("section.teachers");
  root.append(el("h3", "Learned from these of your images", info("teachers")));
  if (!teachers) {
    root.append(el("p.quiet", `${no_teachers ?? "There are none"}.`));
    return root;
  }
  const { unlearned, common, learned, rest, n_rest, pairs } = teachers;
  const parts = [
    `Score ${figure(teachers.score)}: the same without learning ${figure(unlearned)}`,
    common ? `learned for every result of this query ${figure(common)}` : null,
    `learned about these two ${figure(learned)}.`,
  ];
  const [first, against] = [
    pairs.filter((one) => one.contribution > 0),
    pairs.filter((one) => one.contribution < 0),
  ];
  const together = first.reduce((sum, one) => sum + one.contribution, 0);
  const carry = learned > 0 && together >= learned / 2;
  const share = learned > 0 && first.length ? first[0].contribution / learned : null;
  root.append(
    el("p", parts.filter(Boolean).join(", ")),
    el(
      "details",
      { open: carry },
      el(
        "summary",
        carry
          ? "These pairs carry at least half of it"
          : "Many pairs share it" +
              (share === null ? "" : `: the strongest carries ${percent(share)}`),
      ),
      tableOf("For", first),
      tableOf("Against", against),
      n_rest ? el("p.quiet", `The other ${count(n_rest)} together: ${figure(rest)}.`) : "",
    ),
  );
  return root;
}
