// Pictures of the collection, and what stands where one does not come.

import { patiently } from "./api.js";
import { el } from "./dom.js";
import { shortPath } from "./text.js";

/** @import { Photo } from "../gallery/details.js" */

/**
 * What stands where a picture cannot be shown: the end of its path, if it may be seen.
 * @param {string} name
 * @param {string | null} [path]
 */
export const missing = (name, path) =>
  el(
    "span.missing",
    { role: "img", "aria-label": `${name}, image not available` },
    shortPath(path ?? "image not available"),
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
  return orElse(img, () => missing(alt || image.path || "photo", image.path), image.id);
}

// Of these browsers keep the first 250 alone.
performance.onresourcetimingbufferfull = () => performance.clearResourceTimings();

/**
 * The status of a picture that did not come; 0 where the browser does not tell.
 * @param {HTMLImageElement} img
 */
export function statusOf(img) {
  const [last] = performance.getEntriesByName(img.currentSrc, "resource").slice(-1);
  return /** @type {PerformanceResourceTiming | undefined} */ (last)?.responseStatus ?? 0;
}

/**
 * Where a thumbnail does not come: once more where the server was too busy, else the original; and
 * where that does not come either, or there is no file, what `fail` does.
 * @param {HTMLImageElement} img
 * @param {() => unknown} fail
 * @param {number} [id]
 */
export async function otherwise(img, fail, id) {
  const { src } = img;
  const original = `images/${id}/original`;
  if (id === undefined || img.getAttribute("src") === original) return fail();
  let status = statusOf(img);
  if (!status || status === 429)
    status = await patiently(img.currentSrc || src, { method: "HEAD" }).then(
      (answer) => answer.status,
      () => 0,
    );
  if (img.src !== src) return null; // it shows another one by now
  if (status === 404 || status === 410) return fail();
  if (status !== 200 || img.dataset.again) {
    img.removeAttribute("srcset");
    img.src = original;
  } else {
    img.dataset.again = "1";
    img.src = src;
  }
  return null;
}

/**
 * @param {HTMLImageElement} img
 * @param {() => Node} make what stands in its place
 * @param {number} [id]
 */
export function orElse(img, make, id) {
  img.addEventListener("error", () => void otherwise(img, () => img.replaceWith(make()), id));
  return img;
}
