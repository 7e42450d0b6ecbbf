"""Local binary patterns: the texture of a pixel's neighbourhood as one of 59 codes.

Eight neighbours g_0 ... g_7 lie on a circle of radius 2 around the centre g_c; bit i of the pattern is g_i >= g_c.
The 58 patterns with at most two changes between 0 and 1 around the circle have a code each, all others share one
(Ojala, Pietikäinen, Mäenpää, PAMI 2002; LBP(8,2) in Chechik et al., OASIS, JMLR 2010, §3).

The four neighbours on the diagonals lie between pixels, at distance sqrt 2 in x and y. With f = sqrt 2 - 1 and the
pixels a = (1, 1), b = (1, 2), c = (2, 1), d = (2, 2) seen from the centre p, bilinear interpolation gives

    g - p = A + sqrt(2) B,    A = 6a - 4(b + c) + 3d - p,    B = 3(b + c) - 4a - 2d,

two integers with |B| <= 1530. Its sign decides the bit, and flat areas make ties common, so it must be exact.
3363/2378 is a convergent of sqrt 2: no fraction with a denominator below 2378 + 985 lies between the two, nor
equals the convergent if its denominator is below 2378. So A + B 3363/2378 and A + B sqrt 2 have the same sign for
|B| < 2378, and are zero together, and the bit is

    816 a + 577 (b + c) + 408 d >= 2378 p

in whole numbers below 2**20.
"""

from __future__ import annotations

import numba
import numpy as np

N_PATTERNS = 59


def _pattern_codes() -> np.ndarray:
    """Code of each of the 256 patterns, numbered as scikit-image's ``nri_uniform`` numbers them."""
    codes = np.empty(256, dtype=np.uint8)
    for pattern in range(256):
        bits = [pattern >> i & 1 for i in range(8)]
        changes = sum(bits[i] != bits[i - 1] for i in range(8))
        ones = sum(bits)
        if changes > 2:
            codes[pattern] = 58
        elif ones == 0:
            codes[pattern] = 0
        elif ones == 8:
            codes[pattern] = 57
        else:
            first = next(i for i in range(8) if bits[i] and not bits[i - 1])  # where the run of ones begins
            codes[pattern] = 1 + (ones - 1) * 8 + -first % 8  # rotations counted against the neighbours' order
    return codes


PATTERN_CODES = _pattern_codes()  # (256,)


@numba.njit(cache=True, nogil=True)
def lbp_rows(gray, codes, out):
    """Fill `out` (H, W) with the codes of `gray` (H, W), both uint8; `codes` is `PATTERN_CODES`.

    One pass a row over five padded rows and one over the look-up table: the first has no branches and no table,
    which is what lets LLVM vectorise it.
    """
    height, width = gray.shape
    rows = np.empty((5, width + 4), dtype=np.uint8)  # ring buffer: row y of the image stands in rows[y % 5]
    patterns = np.empty(width, dtype=np.uint8)
    for y in range(-2, height + 2):
        row = rows[y % 5]
        source = gray[min(max(y, 0), height - 1)]
        row[2 : width + 2] = source
        row[0] = row[1] = source[0]
        row[width + 2] = row[width + 3] = source[width - 1]
        if y < 2:
            continue
        r0, r1, r2, r3, r4 = rows[(y - 4) % 5], rows[(y - 3) % 5], rows[(y - 2) % 5], rows[(y - 1) % 5], row
        _patterns(r0, r1, r2, r3, r4, patterns)
        target = out[y - 2]
        for x in range(width):
            target[x] = codes[patterns[x]]


@numba.njit(cache=True, nogil=True)
def _patterns(r0, r1, r2, r3, r4, out):
    """Patterns of a row of pixels from the padded rows two above to two below it."""
    i32, u8 = np.int32, np.uint8
    for x in range(out.size):
        p = i32(r2[x + 2])
        exact = 2378 * p
        bits = u8(r2[x + 4] >= p)
        bits |= u8(816 * i32(r1[x + 3]) + 577 * (i32(r1[x + 4]) + i32(r0[x + 3])) + 408 * i32(r0[x + 4]) >= exact) << 1
        bits |= u8(r0[x + 2] >= p) << 2
        bits |= u8(816 * i32(r1[x + 1]) + 577 * (i32(r1[x]) + i32(r0[x + 1])) + 408 * i32(r0[x]) >= exact) << 3
        bits |= u8(r2[x] >= p) << 4
        bits |= u8(816 * i32(r3[x + 1]) + 577 * (i32(r3[x]) + i32(r4[x + 1])) + 408 * i32(r4[x]) >= exact) << 5
        bits |= u8(r4[x + 2] >= p) << 6
        bits |= u8(816 * i32(r3[x + 3]) + 577 * (i32(r3[x + 4]) + i32(r4[x + 3])) + 408 * i32(r4[x + 4]) >= exact) << 7
        out[x] = bits


def lbp_codes(gray: np.ndarray) -> np.ndarray:
    """Return the uniform local binary pattern, LBP(8,2), of every pixel.

    Parameters
    ----------
    gray : ndarray of uint8, (H, W)
        Grey levels.

    Returns
    -------
    ndarray of uint8, (H, W)
        Codes 0 ... 58, numbered as ``skimage.feature.local_binary_pattern(gray, 8, 2, "nri_uniform")`` numbers them.
        A flat area has code 57 (all eight neighbours >= centre); 58 is the bin of all patterns that are not uniform.

    Raises
    ------
    ValueError
        `gray` is not two-dimensional uint8.

    Notes
    -----
    - Pixels whose circle leaves the image see the nearest edge pixel instead (the paper is silent).
    - Bits are decided in exact arithmetic. scikit-image rounds the circle to five decimals, so that the two can differ
      where centre and interpolated neighbour differ by less than 0.01 grey levels, but not on flat areas.

    References
    ----------
    T. Ojala, M. Pietikäinen, T. Mäenpää: Multiresolution gray-scale and rotation invariant texture classification with
    local binary patterns. IEEE PAMI 24(7), 2002.

    Examples
    --------
    >>> lbp_codes(np.full((2, 3), 200, dtype=np.uint8))
    array([[57, 57, 57],
           [57, 57, 57]], dtype=uint8)
    """
    gray = np.asarray(gray)
    if gray.ndim != 2 or gray.dtype != np.uint8:
        raise ValueError(f"gray must be a 2-D uint8 array, not {gray.ndim}-D {gray.dtype}")
    out = np.empty(gray.shape, dtype=np.uint8)
    if gray.size:
        lbp_rows(np.ascontiguousarray(gray), PATTERN_CODES, out)
    return out
