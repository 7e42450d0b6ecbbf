// Lists of photos on the pages around the search: rows of equal height, whole photos. One function
// draws them all.

import { addressOf } from "./address.js";
import { el, fileName, picture } from "./dom.js";

// images: as the service sends them; address: function of an image, its link; note: function of an
// image, words below it; first: how many are loaded at once.
export function photoList(
  images,
  {
    address = ({ id }) => addressOf({ id }),
    note,
    what = "Search with",
    first = 12,
    small = false,
  } = {},
) {
  return el(
    "ol",
    { class: small ? "photos small" : "photos" },
    images.map((image, i) => photo(image, { address, note, what, lazy: i >= first })),
  );
}

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
      el(
        "span",
        { class: "pill", dir: "auto", "aria-hidden": "true" },
        labels || fileName(image.path),
      ),
    ),
    note ? el("p", { class: "under" }, note(image)) : null,
  );
}

// Extreme shapes would fill a row or vanish in it.
const ratioOf = ({ width, height }) =>
  Math.min(2.6, Math.max(0.56, width && height ? width / height : 1.33)).toFixed(3);

// Four photos that stand for an album.
export function coverOf(images) {
  const shown = images.length > 3 ? images.slice(0, 4) : images.slice(0, 1);
  return el(
    "span",
    { class: `cover n${shown.length}` },
    shown.map((image) => picture(image, { lazy: true })),
  );
}

// A list that is read part by part: read(offset) gives { total, items }, draw(items, offset) the
// nodes of a part.
export async function inParts(read, draw, { more = "Show more" } = {}) {
  const holder = el("div", { class: "parts" });
  let shown = 0;
  const button = el("button", { type: "button", class: "more" }, more);
  const next = async () => {
    button.disabled = true;
    try {
      const { total, items } = await read(shown);
      const nodes = draw(items, shown);
      button.before(...nodes);
      if (shown) nodes[0]?.querySelector("a, button")?.focus();
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
