// Rows of nearly equal height that fill the width with whole pictures ("justified"). Numbers only,
// so that 50,000 pictures take milliseconds.

// Width by height of a tile: others stand in a tile of this shape.
/** @typedef {{ first: number, end: number, top: number, height: number }} Row */

const [NARROW, WIDE, UNKNOWN] = [0.4, 4, 1.5];

/**
 * ratios: width by height of each picture, 0 if unknown; breaks: places at which a row begins under
 * a heading of `heading` pixels; fixed: ends of the first rows, where these are given.
 * @param {number[]} ratios
 * @param {number} width
 * @param {number} target
 * @param {{ gap?: number, breaks?: number[], heading?: number, fixed?: number[] }} [options]
 */
export function justify(
  ratios,
  width,
  target,
  { gap = 4, breaks = [], heading = 0, fixed = [] } = {},
) {
  const n = ratios.length;
  const [left, widths] = [new Float32Array(n), new Float32Array(n)];
  const row = new Int32Array(n); // of each picture
  /** @type {Row[]} */
  const rows = [];
  const sums = new Float64Array(n + 1);
  for (let i = 0; i < n; i++)
    sums[i + 1] = sums[i] + Math.min(WIDE, Math.max(NARROW, ratios[i] || UNKNOWN));
  /** @param {number} first @param {number} end */
  const heightOf = (first, end) => (width - gap * (end - first - 1)) / (sums[end] - sums[first]);
  let y = 0;

  /** @param {number} first @param {number} end @param {boolean} last */
  const close = (first, end, last) => {
    const filled = heightOf(first, end);
    const full = !last || filled <= 1.25 * target;
    const height = Math.max(1, Math.round(full ? filled : target));
    if (breaks.includes(first)) y += heading;
    let x = 0;
    for (let i = first; i < end; i++) {
      const right =
        full && i === end - 1
          ? width
          : Math.round((sums[i + 1] - sums[first]) * height) + gap * (i - first);
      left[i] = x;
      widths[i] = Math.max(1, right - x);
      row[i] = rows.length;
      x = right + gap;
    }
    rows.push({ first, end, top: y, height });
    y += height + gap;
  };

  /**
   * The rows of one part, from `first` to `end`, such that their heights differ least from the
   * target: the best way to each place is one of the best ways to the places before it and one more
   * row.
   * @param {number} first
   * @param {number} end
   */
  const part = (first, end) => {
    const [cost, from] = [
      new Float64Array(end - first + 1).fill(Infinity),
      new Int32Array(end - first + 1),
    ];
    cost[0] = 0;
    for (let to = first + 1; to <= end; to++)
      for (let begin = to - 1; begin >= first; begin--) {
        const height = heightOf(begin, to);
        const off =
          to === end && height > target
            ? 0
            : height > target
              ? height / target - 1
              : target / height - 1;
        const sum = cost[begin - first] + off * off;
        if (sum < cost[to - first]) [cost[to - first], from[to - first]] = [sum, begin];
        if (height < target / 1.7 && to - begin > 1) break; // more pictures are only smaller
      }
    /** @type {number[]} */
    const ends = [];
    for (let at = end; at > first; at = from[at - first]) ends.unshift(at);
    ends.forEach((to, i) => close(i ? ends[i - 1] : first, to, to === end));
  };

  let first = 0;
  for (const end of fixed) {
    close(first, end, breaks.includes(end));
    first = end;
  }
  for (const end of [...breaks.filter((at) => at > first), n]) {
    if (end > first) part(first, end);
    first = end;
  }
  return { left, widths, row, rows, height: Math.max(0, y - gap) };
}

/**
 * The row at a height, by bisection.
 * @param {Row[]} rows
 * @param {number} y
 */
export function rowAt(rows, y) {
  let [low, high] = [0, rows.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rows[middle].top <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}
