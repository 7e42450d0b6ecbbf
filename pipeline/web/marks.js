// The marks of the present query: kept by the server at once, shown in a tray, taken up by "Update ranking".

import { get, post } from "./api.js";
import { $, el, fileName, icon, keyName, picture, plural, toast } from "./dom.js";

// An image that was marked and has since left the collection.
const gone = (id) => ({ id, path: `image ${id}`, labels: [], thumbnail: `images/${id}/thumbnail?v=` });

export class Marks {
  constructor(changed) {
    this.changed = changed; // called with an image's id (null: all) after every change
    this.key = null; // of the query
    this.of = new Map(); // image id -> 1 or -1
    this.images = new Map(); // image id -> image, for the tray
    this.unused = new Set(); // marked since the last update
    this.status = ["", ""]; // kind, words
    this.sending = Promise.resolve(); // one request after the other, so that undo undoes what it should
  }

  async load(key) {
    this.key = key;
    this.of = new Map();
    this.unused = new Set();
    this.status = ["", ""];
    if (!key) return;
    const { marks } = await get("marks", { query: key });
    if (this.key !== key) return;
    const pairs = Array.isArray(marks) ? marks.map((row) => [row.image, row.mark]) : Object.entries(marks);
    this.of = new Map(pairs.map(([id, mark]) => [Number(id), Number(mark)]).filter(([, mark]) => mark));
    await this.#fetchImages();
    this.changed(null);
  }

  async #fetchImages() {
    const missing = [...this.of.keys()].filter((id) => !this.images.has(id));
    await Promise.all(missing.map(async (id) => this.images.set(id, await get(`api/images/${id}`).catch(() => gone(id)))));
  }

  number(value) {
    return [...this.of.values()].filter((mark) => mark === value).length;
  }

  // Mark an image; the same mark again takes it back. Shown at once, rolled back if it cannot be kept.
  set(image, value, learner) {
    const before = this.of.get(image.id) ?? 0;
    const mark = before === value ? 0 : value;
    const key = this.key;
    this.images.set(image.id, image);
    this.#show(image.id, mark, ["saving", "Saving …"]);
    this.sending = this.sending.then(async () => {
      try {
        await post("marks", { query: key, image: image.id, mark, learner });
        this.#say(key, "saved", "Saved");
        const words = mark === 0 ? "Mark taken back" : mark === 1 ? "Marked as relevant" : "Marked as not relevant";
        toast(`${words}: ${fileName(image.path)}`, "Undo", () => this.undo());
      } catch (error) {
        if (key !== this.key) return;
        this.#show(image.id, before, ["failed", `Not saved: ${error.message}`]);
        toast(`The mark was not saved: ${error.message}`, "Retry", () => this.set(image, value, learner));
      }
    });
    return this.sending;
  }

  undo() {
    const key = this.key;
    this.sending = this.sending.then(async () => {
      try {
        await post("marks/undo", { query: key });
        await this.load(key);
        toast("Undone.");
      } catch (error) {
        toast(`Nothing was undone: ${error.message}`);
      }
    });
    return this.sending;
  }

  async clear(learner) {
    const cleared = [...this.of].map(([id, mark]) => [this.images.get(id), mark]);
    for (const [image, mark] of cleared) await this.set(image, mark, learner);
    toast(`${plural(cleared.length, "mark")} cleared.`, "Undo", async () => {
      for (const [image, mark] of cleared) await this.set(image, mark, learner);
    });
  }

  #show(id, mark, status) {
    if (mark) this.of.set(id, mark);
    else this.of.delete(id);
    this.unused.add(id);
    this.status = status;
    this.changed(id);
  }

  #say(key, kind, words) {
    if (key !== this.key) return;
    this.status = [kind, words];
    this.changed(undefined);
  }
}

// The bar at the foot of the page: what is marked, and what can be done with it.
export function drawTray(marks, { online, update, remove, clear }) {
  const [good, bad] = [marks.number(1), marks.number(-1)];
  const bar = $("#marks");
  bar.hidden = !good && !bad && !marks.status[1];
  if (bar.hidden) return bar.replaceChildren();
  const ready = good > 0 && bad > 0;
  const thumb = ([id, mark]) => {
    const image = marks.images.get(id) ?? gone(id);
    const words = `${fileName(image.path)}, ${mark === 1 ? "relevant" : "not relevant"}. Remove the mark`;
    const props = { type: "button", class: mark === 1 ? "relevant" : "not", title: words, "aria-label": words };
    return el("li", {},
      el("button", { ...props, onclick: () => remove(image, mark) }, picture(image), icon(mark === 1 ? "check" : "cross")));
  };
  const words = `${good} relevant, ${bad} not`;
  const unused = marks.unused.size ? ` · ${marks.unused.size} not used yet` : "";
  const reason = !online ? "No learner of this run learns from marks." : ready ? "" : "Updating needs one relevant and one not relevant.";
  const updateProps = { type: "button", id: "update", class: "primary", "aria-keyshortcuts": "U", title: "Update ranking (U)" };
  bar.replaceChildren(
    el("div", { class: "say" }, el("strong", {}, words), el("span", { class: "quiet" }, unused),
      el("span", { class: `status ${marks.status[0]}` }, marks.status[1]), reason ? el("span", { class: "quiet reason" }, reason) : null),
    el("ul", { class: "tray" }, [...marks.of].map(thumb)),
    el("div", { class: "do" }, good || bad ? el("button", { type: "button", onclick: clear }, "Clear all") : null,
      el("button", { ...updateProps, disabled: !ready || !online, onclick: update }, "Update ranking", keyName("U"))),
  );
}
