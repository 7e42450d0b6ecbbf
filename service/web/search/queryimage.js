// The picture of a query: an image of the collection, or an upload.

import { wordsOf } from "../core/address.js";
import { el } from "../core/dom.js";
import { orElse } from "../core/pictures.js";

/** @import { Query } from "../core/address.js" */

/** @param {Query} query @param {number} size */
export const queryAddress = ({ id, upload }, size) =>
  id !== undefined
    ? `images/${id}/thumbnail?size=${size}`
    : `uploads/${encodeURIComponent(upload ?? "")}?size=${size}`;

/**
 * The picture of a query; its name where there is none.
 * @param {Query} query
 * @param {string} name
 */
export function queryPicture(query, name) {
  if (wordsOf(query)) return el("span.word", name);
  const img = el("img", { src: queryAddress(query, 256), alt: "", draggable: "false" });
  return orElse(img, () => el("span.word", name));
}
