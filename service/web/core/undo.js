// What Ctrl Z undoes: the last thing that was done on this page, of any kind. Each kind also has a
// button of its own, which says with `undid` that it was pressed.

/** @typedef {{ kind: string, undo: () => unknown }} Done */

/** @type {Done[]} */
const done = [];
/** @type {string | null} */
let undoing = null; // the kind that Ctrl Z undoes now

/** @param {string} kind @param {() => unknown} undo */
export const did = (kind, undo) => void done.push({ kind, undo });

/** @param {string} kind the last of which was undone */
export function undid(kind) {
  if (undoing === kind) return;
  const at = done.findLastIndex((one) => one.kind === kind);
  if (at >= 0) done.splice(at, 1);
}

/** Undo the last thing; false if nothing was done since the page was loaded. */
export function undoLast() {
  const last = done.pop();
  if (!last) return false;
  undoing = last.kind;
  void Promise.resolve(last.undo()).finally(() => (undoing = null));
  return true;
}
