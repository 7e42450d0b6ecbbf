// Paths and labels of images that are known by their columns alone: read in batches as they come
// into sight.

import { get } from "../core/api.js";

/**
 * An image: as the service describes it, or one that is known by its columns alone.
 * @typedef {{
 *   id: number,
 *   path: string | null,
 *   labels: string[],
 *   width?: number | null,
 *   height?: number | null,
 *   ratio?: number,
 *   color: string | null,
 *   group: number | null,
 *   thumbnail: string,
 *   rank?: number,
 *   score?: number,
 *   probability?: number | null,
 *   metric?: number | null,
 *   copies?: Photo[],
 * }} Photo
 */
/** @import { Schemas } from "../core/api.js" */

const [BATCH, DELAY] = [200, 30]; // images per request; milliseconds in which wishes gather
/** @type {Map<number, Photo[]>} */
const wanted = new Map(); // by id
const reading = new WeakSet(); // images that a request is on its way for
/** @type {number | null} */
let timer = null;
/** @type {((images: Photo[]) => void)[]} */
const tellers = [];

/** @type {(() => Photo[])[]} */
const holders = [];

/**
 * Lists of photos whose labels are kept up to date: a function that returns the one shown.
 * @param {() => Photo[]} images
 */
export const keepLabels = (images) => holders.push(images);

/**
 * Labels changed: give them to the photos that are shown.
 * @param {Schemas["ImageSummary"][]} described
 */
export function tellLabels(described) {
  const labels = new Map(described.map((image) => [image.id, image.labels]));
  const known = holders.flatMap((images) => images()).filter((image) => labels.has(image.id));
  for (const image of known) image.labels = labels.get(image.id) ?? [];
  for (const tell of tellers) tell(known);
}

/**
 * Called with the images that were completed.
 * @param {(images: Photo[]) => void} act
 */
export const whenKnown = (act) => tellers.push(act);

/**
 * An image as the page knows it from one row of columns.
 * @param {Schemas["Columns"]} columns
 * @param {number} i
 * @returns {Photo}
 */
export const fromColumns = (columns, i) => ({
  id: columns.ids[i],
  ratio: columns.ratios[i],
  color: columns.colors[i] < 0 ? null : `#${columns.colors[i].toString(16).padStart(6, "0")}`,
  group: columns.groups[i] < 0 ? null : columns.groups[i],
  thumbnail: `images/${columns.ids[i]}/thumbnail?v=${columns.keys[i]}`,
  path: null, // not known yet
  labels: [],
  ...(columns.scores ? { rank: i + 1, score: columns.scores[i] } : {}),
  ...(columns.probabilities ? { probability: columns.probabilities[i] } : {}),
  ...(columns.metrics && columns.metrics[i] >= 0 ? { metric: columns.metrics[i] } : {}),
});

/** @param {Pick<Photo, "ratio" | "width" | "height">} image */
export const ratioOf = (image) =>
  image.ratio ?? (image.width && image.height ? image.width / image.height : 0);

/** @param {Photo[]} images */
export function want(images) {
  for (const image of images) {
    const others = wanted.get(image.id) ?? [];
    if (image.path === null && !reading.has(image) && !others.includes(image))
      wanted.set(image.id, [...others, image]);
  }
  if (wanted.size && timer === null) timer = setTimeout(() => void read().catch(() => {}), DELAY);
}

async function read() {
  timer = null;
  const batch = [...wanted].slice(-BATCH); // what came into sight last
  const asked = new Map(batch);
  const all = batch.flatMap(([, images]) => images);
  for (const [id] of batch) wanted.delete(id);
  for (const image of all) reading.add(image);
  if (wanted.size) timer = setTimeout(() => void read().catch(() => {}), DELAY);
  const photos = await get("api/images", { ids: [...asked.keys()].join(",") }).finally(() =>
    all.forEach((image) => reading.delete(image)),
  );
  /** @type {Photo[]} */
  const known = [];
  for (const { path, labels, width, height, id } of photos)
    for (const image of asked.get(id) ?? [])
      known.push(Object.assign(image, { path, labels, width, height }));
  for (const tell of tellers) tell(known);
}

/**
 * Images with all that is known of them, however many they are.
 * @param {Photo[]} images
 */
export async function complete(images) {
  const lacking = images.filter((image) => image.path === null);
  for (let i = 0; i < lacking.length; i += BATCH) {
    const part = new Map(lacking.slice(i, i + BATCH).map((image) => [image.id, image]));
    for (const { path, labels, width, height, id } of await get("api/images", {
      ids: [...part.keys()].join(","),
    }))
      Object.assign(part.get(id) ?? {}, { path, labels, width, height });
  }
  return images.filter((image) => image.path !== null);
}
