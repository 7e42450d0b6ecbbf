// The marks of the present query: kept by the server at once, shown in a tray, taken up by "Update
// ranking".

import { get, post } from "../core/api.js";
import { $, $$, activeElement, el, icon, keyName, refill } from "../core/dom.js";
import { picture } from "../core/pictures.js";
import { dock, toast } from "../core/says.js";
import { fileName, plural } from "../core/text.js";
import { undid } from "../core/undo.js";

/** @import { ToUndo } from "../core/undo.js" */
/** @import { Photo } from "../gallery/details.js" */
/** @import { Schemas } from "../core/api.js" */
/** @typedef {Pick<Photo, "id" | "path">} Marked an image with a mark */
/** @typedef {1 | -1 | 0} Mark 0: none */
/** @typedef {Map<number, Mark>} MarkOf by the id of an image */
/** @typedef {string | null | undefined} Key of a query; null for none */

/** @param {string} name */
const shorten = (name) => (name.length > 60 ? `${name.slice(0, 40)} … ${name.slice(-15)}` : name);

export class Marks {
  changed = () => {}; // called after every change; the page sets it
  // One request after the other, so that undo undoes what it should.
  /** @type {Promise<void>} */
  sending = Promise.resolve();
  waiting = 0; // requests
  saving = 0; // marks whose request is not yet answered
  /** @type {string | undefined} */
  learner;
  /** @type {Key} */
  key = null;
  /** @type {MarkOf} */
  of = new Map(); // as shown
  /** @type {MarkOf} */
  kept = new Map(); // as the server said last
  /** @type {MarkOf} */
  used = new Map(); // as the learner knows them
  /** @type {Map<string, Set<number>>} */
  learned = new Map(); // by learner, the images whose marks it knew when this query was opened
  /** @type {Map<number, string | null>} */
  paths = new Map(); // by the id of an image
  status = ["", ""]; // kind, words

  /** @param {Key} key */
  #forget(key) {
    this.key = key;
    this.of = new Map();
    this.kept = new Map();
    this.used = new Map();
    this.learned = new Map();
    this.paths = new Map();
    this.status = ["", ""];
  }

  /** @param {Key} key */
  async load(key) {
    this.#forget(key);
    this.changed();
    if (!key) return;
    await this.#send(
      key,
      () => get("marks", { query: key }),
      ({ learned }) => {
        this.learned = new Map(
          Object.entries(learned).map(([learner, ids]) => [learner, new Set(ids)]),
        );
        this.use(this.learner);
      },
    );
  }

  /**
   * What is shown at once gives way to what the server keeps as soon as no request is under way.
   * @param {Key} key
   * @param {() => Promise<Schemas["QueryMarks"]>} ask
   * @param {(answer: Schemas["QueryMarks"]) => void} [then]
   * @returns {Promise<void>}
   */
  #send(key, ask, then = () => {}) {
    this.waiting += 1;
    const asked = this.sending.then(ask).then((answer) => {
      if (key !== this.key) return;
      this.kept = new Map(answer.marks.map((row) => [row.image, row.mark]));
      for (const row of answer.marks) this.paths.set(row.image, row.path);
      then(answer);
    });
    const done = asked.finally(() => {
      this.waiting -= 1;
      if (!this.waiting) this.of = new Map(this.kept);
      this.changed();
    });
    this.sending = done.catch(() => {});
    return done;
  }

  /**
   * Take the marks that a learner has learned for those used.
   * @param {string | undefined} learner
   */
  use(learner) {
    this.learner = learner;
    const known = learner === undefined ? undefined : this.learned.get(learner);
    this.used = new Map(known ? [...this.kept].filter(([id]) => known.has(id)) : []);
  }

  /** @param {Mark} value */
  number(value) {
    return [...this.of.values()].filter((mark) => mark === value).length;
  }

  get ready() {
    return this.number(1) > 0 && this.number(-1) > 0;
  }

  get unused() {
    return [...new Set([...this.of.keys(), ...this.used.keys()])].filter(
      (id) => this.of.get(id) !== this.used.get(id),
    ).length;
  }

  // Whether an update has anything to learn.
  get toLearn() {
    return this.unused > 0 && (this.ready || this.used.size > 0);
  }

  /**
   * Mark several images; one message, one undo.
   * @param {Marked[]} images
   * @param {Mark} mark
   * @param {string} learner
   * @param {ToUndo} toUndo
   * @returns {Promise<boolean>}
   */
  async putAll(images, mark, learner, toUndo) {
    const { key } = this;
    const words = mark === 1 ? "relevant" : mark === -1 ? "not relevant" : "unmarked";
    try {
      for (const image of images) await this.#keep(image, mark, learner, key);
      toast(`${plural(images.length, "photo")} marked as ${words}.`, "Undo", () =>
        this.undo(key, toUndo),
      );
      return true;
    } catch (error) {
      toast(`Some photos were not marked: ${error.message}`, "Retry", () =>
        this.putAll(images, mark, learner, toUndo),
      );
      return false;
    }
  }

  /**
   * The same mark again takes it back.
   * @param {Marked} image
   * @param {Mark} value
   * @param {string} learner
   */
  toggle(image, value, learner) {
    return this.put(image, this.of.get(image.id) === value ? 0 : value, learner);
  }

  /**
   * Mark an image (0: take the mark back): shown at once, rolled back if it cannot be kept. True:
   * it is kept.
   * @param {Marked} image
   * @param {Mark} mark
   * @param {string} learner
   * @param {Key} [key]
   * @returns {Promise<boolean>}
   */
  async put(image, mark, learner, key = this.key) {
    try {
      await this.#keep(image, mark, learner, key);
      const words =
        mark === 0 ? "Mark removed" : mark === 1 ? "Marked as relevant" : "Marked as not relevant";
      toast(
        image.path === null ? `${words}.` : `${words}: ${shorten(fileName(image.path))}`,
        "Undo",
        () => this.undo(key),
      );
      return true;
    } catch (error) {
      toast(`Mark not saved: ${error.message}`, "Retry", () => this.put(image, mark, learner, key));
      return false;
    }
  }

  /** @param {Marked} image @param {Mark} mark @param {string} learner @param {Key} key */
  async #keep(image, mark, learner, key) {
    /** @param {...string} status */
    const say = (...status) => {
      if (key !== this.key) return;
      this.status = status;
      this.changed();
    };
    if (key === this.key) {
      this.paths.set(image.id, image.path);
      if (mark) this.of.set(image.id, mark);
      else this.of.delete(image.id);
    }
    this.saving += 1;
    say("saving", "Saving …");
    try {
      await this.#send(key, () =>
        post("marks", { query: String(key), image: image.id, mark, learner }),
      ).finally(() => {
        this.saving -= 1;
      });
      if (!this.saving) say("saved", "Saved"); // not while the next one is under way
    } catch (error) {
      say("failed", `Not saved: ${error.message}`);
      throw error;
    }
  }

  /** @param {Key} [key] @param {ToUndo} [toUndo] its last marks */
  async undo(key = this.key, toUndo = { steps: 1 }) {
    const n = toUndo.steps;
    try {
      for (; toUndo.steps; toUndo.steps -= 1)
        await this.#send(key, () => post("marks/undo", { query: String(key) }));
      undid("mark");
      toast(n === 1 ? "Last mark undone." : `${plural(n, "mark")} undone.`);
    } catch (error) {
      toast(error.message);
    }
  }

  /** @param {string} learner */
  async clear(learner) {
    const { key, paths } = this;
    /** @type {[Marked, Mark][]} */
    const all = [...this.of].map(([id, mark]) => [{ id, path: paths.get(id) ?? null }, mark]);
    try {
      for (const [image] of all) await this.#keep(image, 0, learner, key);
      toast(`${plural(all.length, "mark")} cleared.`, "Undo", async () => {
        for (const [image, mark] of all) if (!(await this.put(image, mark, learner, key))) return;
        toast(`${plural(all.length, "mark")} restored.`);
      });
    } catch (error) {
      toast(`Some marks were not cleared: ${error.message}`);
    }
  }
}

/**
 * The bar at the foot of the page: what is marked, and what can be done with it.
 * @param {Marks} marks
 * @param {object} acts
 * @param {string | undefined} acts.online the learner that marks update
 * @param {() => void} acts.update
 * @param {(image: Marked) => void} acts.remove
 * @param {() => void} acts.clear
 */
export function drawTray(marks, { online, update, remove, clear }) {
  const [good, bad] = [marks.number(1), marks.number(-1)];
  const bar = $("#marks");
  const buttons = () => $$("button:enabled", bar);
  const at = buttons().indexOf(activeElement());
  bar.hidden = !good && !bad && !marks.status[1];
  dock();
  if (bar.hidden) return bar.replaceChildren();
  /** @param {[number, Mark]} entry */
  const thumb = ([id, mark]) => {
    const image = { id, path: marks.paths.get(id) ?? "", thumbnail: `images/${id}/thumbnail?v=` };
    const words =
      `${shorten(fileName(image.path))}, ${mark === 1 ? "relevant" : "not relevant"}. Remove ` +
      "mark";
    const props = {
      class: mark === 1 ? "relevant" : "not",
      title: words,
      "aria-label": words,
    };
    return el(
      "li",
      el(
        "button",
        { ...props, onclick: () => remove(image) },
        picture(image),
        icon(mark === 1 ? "check" : "cross"),
      ),
    );
  };
  const reason = !online
    ? "No learner of this run learns from marks."
    : !marks.ready && (good || bad)
      ? `Mark one result as ${good ? "not relevant" : "relevant"}, too, to update the ranking.`
      : "";
  const updateProps = {
    id: "update",
    class: "primary",
    "aria-keyshortcuts": "U",
    title: "Update ranking (U)",
  };
  refill(bar, [
    el(
      "div.say",
      el("strong", `${good} relevant, ${bad} not relevant`),
      el("span.quiet", marks.unused ? ` · ${marks.unused} not used yet` : ""),
      el("span", { class: `status ${marks.status[0]}` }, marks.status[1]),
      reason ? el("span.quiet.reason", reason) : null,
    ),
    el("ul.tray", [...marks.of].map(thumb)),
    el(
      "div.do",
      good || bad ? el("button", { onclick: clear }, "Clear marks") : null,
      online && marks.toLearn
        ? el("button", { ...updateProps, onclick: update }, "Update ranking", keyName("U"))
        : null,
    ),
  ]);
  if (at >= 0) (buttons()[at] ?? buttons().at(-1) ?? $("#results a.open[tabindex='0']"))?.focus();
}
