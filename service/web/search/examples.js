// The images of a query of several: the examples in the address, each with a weight.

import { queryOf, wordsOf } from "../core/address.js";
import { toast } from "../core/says.js";
import { change } from "../core/history.js";
import { asList, state } from "../core/state.js";

/** @import { Query, Request } from "../core/address.js" */
/**
 * `image` is id:12 or upload:HASH.
 * @typedef {{ image: string, weight: number, query: Query }} Example
 */

const MOST = 8; // examples on the page

/** @param {string} text @returns {Example} */
const parse = (text) => {
  const [image, weight] = text.split("@");
  const [kind, name] = image.split(":");
  return {
    image,
    weight: weight === undefined ? 1 : Number(weight),
    query: kind === "id" ? { id: Number(name) } : { upload: name },
  };
};
/** @param {Example} example */
const written = ({ image, weight }) => (weight === 1 ? image : `${image}@${weight}`);
export const examples = () => asList(state.request.example).map(parse);
/** @param {Example[]} list */
export const keep = (list) =>
  change({
    example: list.length ? list.map(written) : undefined,
    metric: undefined,
    with: undefined,
  });

/** @param {Query | null} query @param {Query | null} other */
export const isSame = (query, other) => JSON.stringify(query) === JSON.stringify(other);

/**
 * A weight comes a moment after its slider: the example may be gone.
 * @param {string} image
 * @param {number} weight
 */
export function weigh(image, weight) {
  const list = examples();
  if (list.some((one) => one.image === image))
    keep(list.map((one) => (one.image === image ? { ...one, weight } : one)));
}

/**
 * Add images of the collection to the query; a negative weight subtracts them.
 * @param {number[]} ids
 * @param {number} [weight]
 */
export const addExamples = (ids, weight = 1) =>
  add(ids.map((id) => ({ image: `id:${id}`, query: { id }, weight })));

/** @param {string} upload */
export const addUpload = (upload) =>
  add([{ image: `upload:${upload}`, query: { upload }, weight: 1 }]);

/** @param {Example[]} images */
function add(images) {
  const { request } = state;
  if (!queryOf(request) || wordsOf(request))
    return change({ ...images[0].query, query_label: undefined, text: undefined });
  const added = images.filter(({ query }) => !isSame(query, queryOf(request)));
  if (!added.length) return toast("This image is the query itself.");
  const list = examples().filter((one) => !added.some(({ image }) => image === one.image));
  if (list.length + added.length > MOST)
    return toast(
      `A query can have ${MOST} further ` +
        `examples${list.length ? `, and has ${list.length} already` : ""}.`,
    );
  return keep([...list, ...added]);
}

export function removeFirst() {
  const [first, ...rest] = examples();
  if (!first) return change({ weight: undefined });
  return change({
    id: undefined,
    upload: undefined,
    ...first.query,
    weight: first.weight === 1 ? undefined : first.weight,
    example: rest.length ? rest.map(written) : undefined,
  });
}
