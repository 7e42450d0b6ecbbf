// Lists of photos on the pages around the search: rows of equal height, whole photos. One function
// draws them all.

import { addressOf } from "../core/address.js";
import { $, el } from "../core/dom.js";
import { picture } from "../core/pictures.js";
import { fileName } from "../core/text.js";

/** @import { Schemas } from "../core/api.js" */
/** @import { Child } from "../core/dom.js" */
/** @typedef {Schemas["ImageSummary"]} Summary */

/**
 * @template {Summary} I
 * @param {I[]} images
 * @param {object} options
 * @param {(image: I) => string} [options.address] its link
 * @param {(image: I) => Child} [options.note] words below it
 * @param {string} [options.what] what the link does
 * @param {number} [options.first] how many are loaded at once
 * @param {boolean} [options.small]
 */
export function photoList(images, { first = 12, small = false, ...look } = {}) {
  return el(
    "ol",
    { class: small ? "photos small" : "photos" },
    images.map((image, i) => photo(image, { ...look, lazy: i >= first })),
  );
}

/**
 * @template {Summary} I
 * @param {I} image
 * @param {object} options
 * @param {(image: I) => string} [options.address] its link
 * @param {(image: I) => Child} [options.note] words below it
 * @param {string} [options.what] what the link does
 * @param {boolean} [options.lazy]
 */
export function photo(
  image,
  { address = ({ id }) => addressOf({ id }), note, what = "Search with", lazy = true } = {},
) {
  const labels = image.labels.join(", ");
  return el(
    "li",
    { style: { "--ratio": ratioOf(image), ...(image.color ? { "--shade": image.color } : {}) } },
    el(
      "a",
      { href: address(image), "data-go": "link", "data-photo": image.id, title: image.path },
      picture(image, {
        alt: `${what} ${image.path}${labels ? `, label ${labels}` : ""}`,
        lazy,
      }),
      el("span.pill", { dir: "auto", "aria-hidden": "true" }, labels || fileName(image.path)),
    ),
    note ? el("p.under", note(image)) : null,
  );
}

/**
 * Extreme shapes would fill a row or vanish in it.
 * @param {Summary} image
 */
const ratioOf = ({ width, height }) =>
  Math.min(2.6, Math.max(0.56, width && height ? width / height : 1.33)).toFixed(3);

/**
 * Four photos that stand for an album.
 * @param {Summary[]} images
 */
export function coverOf(images) {
  const shown = images.length > 3 ? images.slice(0, 4) : images.slice(0, 1);
  return el(
    "span",
    { class: `cover n${shown.length}` },
    shown.map((image) => picture(image, { lazy: true })),
  );
}

/**
 * A list that is read part by part; its button has the words `more`.
 * @template T
 * @param {(offset: number) => Promise<{ total: number, items: T[] }>} read
 * @param {(items: T[], offset: number) => HTMLElement[]} draw the elements of a part
 * @param {{ more?: string }} options
 */
export async function inParts(read, draw, { more = "Show more" } = {}) {
  const holder = el("div.parts");
  let shown = 0;
  const button = el("button.more", more);
  const next = async () => {
    button.disabled = true;
    button.textContent = more;
    try {
      const { total, items } = await read(shown);
      const nodes = draw(items, shown);
      button.before(...nodes);
      if (shown && nodes[0]) $("a, button", nodes[0])?.focus();
      shown += items.length;
      button.hidden = shown >= total || !items.length;
      return total;
    } finally {
      button.disabled = false;
    }
  };
  holder.append(button);
  button.addEventListener("click", () =>
    next().catch((error) => {
      button.textContent = `${error.message} Try again`;
    }),
  );
  return { holder, total: await next() };
}
