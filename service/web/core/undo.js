// What Ctrl Z undoes: the last thing that was done on this page, of any kind. Each kind also has a
// button of its own. Whoever undid a thing says so with `undid`; until then it can be undone.

/** @typedef {{ kind: string, undo: () => unknown, trying?: boolean }} Done */
/**
 * Steps that are left to undo of one thing, with their numbers where they have some.
 * @typedef {{ steps: number, of?: number[] }} ToUndo
 */

/** @type {Done[]} */
const done = [];

/** @param {string} kind @param {() => unknown} undo calls `undid` where it succeeds */
export const did = (kind, undo) => void done.push({ kind, undo });

/** @param {string} kind the last of which was undone */
export function undid(kind) {
  const tried = done.findLastIndex((one) => one.kind === kind && one.trying);
  const at = tried < 0 ? done.findLastIndex((one) => one.kind === kind) : tried;
  if (at >= 0) done.splice(at, 1);
}

/** Undo the last thing; false if nothing was done since the page was loaded. */
export function undoLast() {
  const last = done.findLast(({ trying }) => !trying);
  if (!last) return false;
  last.trying = true;
  void Promise.resolve(last.undo()).finally(() => (last.trying = false));
  return true;
}
