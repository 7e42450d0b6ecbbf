#!/usr/bin/env bash
# mahotas: local binary patterns, and images moved or enlarged by mahotas.interpolate.
#
# Guess: lbp and lbp_transform compare each pixel with points on a circle about it, interpolated between pixels, as scikit-image does;
#   without ties, and with four points at distance 1, which lie on pixels, both give the same codes. interpolate.shift by 0 and
#   interpolate.zoom by 1 give the image back, as scipy.ndimage does.
# What happens: nothing is interpolated: instead of between the pixels below and above a place the next pixel below and to the right is taken,
#   for whole numbers, too. shift by 0 moves the image up and to the left by a pixel, and leaves 0 in the last row and column. A pattern
#   is that of a circle about another pixel, of the wrong points: at distance 1 half of the codes are right, at distance 2 with
#   eight points a quarter; flat ground and noise look alike as before, so histograms are plausible.
# Who meets it: who takes lbp from mahotas for texture (plants, cells, fabrics), or compares its histograms with those of a paper or of
#   scikit-image; who registers or augments images by interpolate.shift.
# Versions: mahotas 1.4.19 (1.4.13, 1.4.17 and 1.4.18 likewise), NumPy 2.4.6, scikit-image 0.26.0, SciPy 1.17.1; the wheels for x86-64,
#   Python 3.11. Date: 2026-11-29.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mahotas==1.4.19 numpy==2.4.6 scikit-image==0.26.0 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
from mahotas import interpolate
from mahotas.features.lbp import lbp_transform
from scipy import ndimage
from skimage.feature import local_binary_pattern

print(*(f"{name} {version(name)}" for name in ("mahotas", "scikit-image", "scipy", "numpy")))
small = np.arange(16.0).reshape(4, 4)
moved = interpolate.shift(small, [0, 0], order=1)
print("shift by 0:", *small.astype(int).tolist(), "becomes", *moved.astype(int).tolist())
assert np.array_equal(ndimage.shift(small, [0, 0], order=1), small)
assert np.array_equal(moved[:-1, :-1], small[1:, 1:]) and not moved[-1].any() and not moved[:, -1].any()
half, right = (module.shift(small, [0, 0.5], order=1)[1] for module in (interpolate, ndimage))
print("shift by half a column, second row:", half, "scipy:", right)
assert np.array_equal(half, small[2])
large = interpolate.zoom(small, 2, order=1)[2]
print("zoom by 2, third row:", large, "scipy:", ndimage.zoom(small, 2, order=1)[2].round(2))
assert np.array_equal(large, large.round())

# Different values everywhere, so that there are no ties.
image = np.random.default_rng(0).permutation(60 * 60).reshape(60, 60)


def taken(image, points, radius):
    """Return the codes of patterns whose points are the pixels at floor + 1, zeros outside."""
    codes = np.zeros(image.shape, int)
    rows, columns = np.indices(image.shape)
    for i, angle in enumerate(np.linspace(0, 2 * np.pi, points + 1)[:-1]):
        y = np.floor(rows - radius * np.sin(angle)).astype(int) + 1
        x = np.floor(columns - radius * np.cos(angle)).astype(int) + 1
        inside = (y >= 0) & (y < image.shape[0]) & (x >= 0) & (x < image.shape[1])
        values = np.where(inside, image[y.clip(0, image.shape[0] - 1), x.clip(0, image.shape[1] - 1)], 0)
        codes += (values > image).astype(int) << i
    turns = [((codes >> k) | (codes << (points - k))) & (2**points - 1) for k in range(points)]
    return np.min(turns, axis=0)


shares = {}
for points, radius in ((4, 1), (8, 2)):
    middle = slice(radius + 1, -radius - 1), slice(radius + 1, -radius - 1)
    theirs = lbp_transform(image, radius, points)
    exact = local_binary_pattern(image, points, radius, "ror")
    shares[radius] = (theirs == exact)[middle].mean()
    explained = (theirs == taken(image, points, radius))[middle].mean()
    print(f"{points} points at {radius}: {shares[radius]:.1%} as scikit-image; {explained:.1%} as by the pixels at floor + 1")
    assert explained > 0.95
assert shares[1] < 0.6 and shares[2] < 0.3
PY
