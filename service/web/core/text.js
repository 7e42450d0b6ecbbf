// Numbers, names and lists in words.

/** @param {number} n */
export const count = (n) => n.toLocaleString("en");
/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
/** @param {number} share */
export const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
/** @param {number} s */
export const seconds = (s) =>
  s < 0.01 ? `${(1000 * s).toFixed(1)} ms` : s < 10 ? `${s.toFixed(2)} s` : `${s.toFixed(0)} s`;
/** @param {string} path */
export const fileName = (path) => path.slice(path.lastIndexOf("/") + 1) || path;
/** The end of a path, which tells photos apart. @param {string} path */
export const shortPath = (path) => path.split("/").slice(-2).join("/");
/** @param {number | null | undefined} number */
export const figure = (number) =>
  Number.isFinite(number) ? Number(Number(number).toPrecision(4)).toString() : "–";

/**
 * The list without what was left out of it.
 * @template T
 * @param {(T | null | undefined | false | "" | 0)[]} list
 */
export const present = (list) => /** @type {T[]} */ (list.filter(Boolean));
