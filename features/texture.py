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

in whole numbers below 2**20, which single precision holds exactly.
"""

from __future__ import annotations

import numpy as np

from visterm.compiled import njit

N_PATTERNS = 59


def _pattern_codes() -> np.ndarray:
    """Code of each of the 256 patterns, numbered as scikit-image's ``nri_uniform`` numbers them."""
    codes = np.empty(256, dtype=np.uint8)
    for pattern in range(256):
        bits = [pattern >> i & 1 for i in range(8)]
        changes = sum(bits[i] != bits[i - 1] for i in range(8))
        ones = sum(bits)
        if changes > 2:
            codes[pattern] = N_PATTERNS - 1
        elif ones == 0:
            codes[pattern] = 0
        elif ones == 8:
            codes[pattern] = 57
        else:
            first = next(i for i in range(8) if bits[i] and not bits[i - 1])  # where the run of ones begins
            codes[pattern] = 1 + (ones - 1) * 8 + -first % 8  # rotations counted against the neighbours' order
    return codes


PATTERN_CODES = _pattern_codes()  # (256,)
UNIFORM_PATTERNS = np.argsort(PATTERN_CODES, kind="stable")[: N_PATTERNS - 1]  # the one pattern of each code but 58


@njit(cache=True, nogil=True)
def lbp_patterns(gray: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (H, W) with the patterns, 0 ... 255, of `gray` (H, W), both uint8."""
    height, width = gray.shape
    rows = np.empty((5, width + 4), dtype=np.float32)  # ring: row y of the image stands in rows[y % 5]
    for y in range(-2, height + 2):
        row = rows[y % 5]
        source = gray[min(max(y, 0), height - 1)]
        for x in range(width):
            row[x + 2] = source[x]
        row[0] = row[1] = row[2]
        row[width + 2] = row[width + 3] = row[width + 1]
        if y >= 2:
            _row_patterns(rows[(y - 4) % 5], rows[(y - 3) % 5], rows[(y - 2) % 5], rows[(y - 1) % 5], row, out[y - 2])


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})
def _row_patterns(
    r0: np.ndarray, r1: np.ndarray, r2: np.ndarray, r3: np.ndarray, r4: np.ndarray, out: np.ndarray
) -> None:
    """Patterns of a row of pixels, from the padded rows two above it to two below it.

    All numbers are whole and below 2**24, so single precision is exact. No branches and no tables, which is what lets
    LLVM turn the loop into one of vectors.
    """
    near, side, far, centre = np.float32(816), np.float32(577), np.float32(408), np.float32(2378)
    u8 = np.uint8
    for x in range(out.size):
        p = r2[x + 2]
        q = centre * p
        bits = u8(r2[x + 4] >= p)
        bits |= u8(near * r1[x + 3] + side * (r1[x + 4] + r0[x + 3]) + far * r0[x + 4] >= q) << 1
        bits |= u8(r0[x + 2] >= p) << 2
        bits |= u8(near * r1[x + 1] + side * (r1[x] + r0[x + 1]) + far * r0[x] >= q) << 3
        bits |= u8(r2[x] >= p) << 4
        bits |= u8(near * r3[x + 1] + side * (r3[x] + r4[x + 1]) + far * r4[x] >= q) << 5
        bits |= u8(r4[x + 2] >= p) << 6
        bits |= u8(near * r3[x + 3] + side * (r3[x + 4] + r4[x + 3]) + far * r4[x + 4] >= q) << 7
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
    patterns = np.empty(gray.shape, dtype=np.uint8)
    if gray.size:
        lbp_patterns(np.ascontiguousarray(gray), patterns)
    return PATTERN_CODES[patterns]
