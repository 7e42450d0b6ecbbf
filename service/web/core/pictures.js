// Pictures of the collection, and what stands where one does not come.

import { el } from "./dom.js";

/** @import { Photo } from "../gallery/details.js" */

/**
 * What stands where a picture cannot be shown.
 * @param {string} name
 */
export const missing = (name) =>
  el(
    "span.missing",
    { role: "img", "aria-label": `${name}, image not available` },
    "image not available",
  );

/** @param {{ thumbnail: string }} image @param {number} size */
export const thumbnail = (image, size) => `${image.thumbnail}&size=${size}`;

/**
 * A picture of the collection: its thumbnail, else the original, else words.
 * @param {Pick<Photo, "id" | "path" | "thumbnail"> & Partial<Photo>} image
 * @param {{ size?: number, alt?: string, lazy?: boolean }} [options]
 */
export function picture(image, { size = 256, alt = "", lazy = true } = {}) {
  const img = el("img", {
    src: thumbnail(image, size),
    alt,
    width: image.width,
    height: image.height,
    loading: lazy ? "lazy" : "eager",
    decoding: "async",
    draggable: "false",
  });
  return orElse(img, () => missing(alt || image.path || "photo"), image.id);
}

/**
 * Where a picture does not come: the original of an image, else what a function makes.
 * @param {HTMLImageElement} img
 * @param {() => Node} make
 * @param {number} [id]
 */
export function orElse(img, make, id) {
  img.addEventListener("error", () => {
    const original = `images/${id}/original`;
    if (id === undefined || img.getAttribute("src") === original) return img.replaceWith(make());
    img.removeAttribute("srcset");
    img.src = original;
  });
  return img;
}
