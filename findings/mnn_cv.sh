#!/usr/bin/env bash
# MNN.cv, whose functions bear OpenCV's names and constants, for resizing and histograms on phones.
#
# Guess: a way to interpolate that MNN.cv lists is carried out, or refused, so that INTER_AREA averages, as its page says that resize does what
#   OpenCV's does; a histogram of a byte image counts every pixel once, whatever the number of bins.
# What happens, without a word:
#   1. resize with INTER_CUBIC, INTER_AREA, INTER_LANCZOS4 or INTER_LINEAR_EXACT takes the nearest pixel, number by number as INTER_NEAREST.
#      A photo shrunk "by area" for a hash or a network has one pixel of each cell. INTER_LINEAR is OpenCV's.
#   2. calcHist of bytes with fewer bins than levels counts one level per bin: of 32 bins an eighth of the pixels, of 8 a thirty-second. With 256
#      bins, or of the image as float32, it is OpenCV's.
# Who meets it: who carries preprocessing or colour histograms over from OpenCV to a phone by changing the import; hashes and vectors stay
#   plausible, and histograms have the right shape.
# Versions: MNN 3.6.1, opencv-python-headless 5.0.0.93, NumPy 2.4.6, Python 3.11, x86-64. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q MNN==3.6.1 opencv-python-headless==5.0.0.93 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY' | grep -v "^The device supports"
from importlib.metadata import version

import cv2, MNN, MNN.cv as mnn, numpy as np

print(*(f"{name} {version(name)}" for name in ("MNN", "opencv-python-headless", "numpy")))
rng = np.random.default_rng(0)
photo = rng.integers(0, 256, size=(64, 80, 3), dtype=np.uint8)


def given(array):
    return MNN.expr.const(array, list(array.shape), MNN.expr.NHWC, MNN.expr.uint8 if array.dtype == np.uint8 else MNN.expr.float)


def taken(variable, shape):
    return np.array(variable.read()).reshape(shape).astype(float)


for size in ((20, 16), (33, 21)):
    small = {}
    for name in ("NEAREST", "LINEAR", "CUBIC", "AREA", "LANCZOS4", "LINEAR_EXACT"):
        small[name] = taken(mnn.resize(given(photo), size, interpolation=getattr(mnn, f"INTER_{name}")), (*size[::-1], 3))
        off = np.abs(small[name] - cv2.resize(photo, size, interpolation=getattr(cv2, f"INTER_{name}"))).mean()
        print(f"resize to {size} INTER_{name}: that of INTER_NEAREST {np.array_equal(small[name], small['NEAREST'])}, off OpenCV's by {off:.1f} levels")
        assert np.array_equal(small[name], small["NEAREST"]) == (name != "LINEAR") and (off > 15 or name in ("NEAREST", "LINEAR"))
    assert np.abs(small["LINEAR"] - cv2.resize(photo, size)).max() <= 1

for bins in (256, 32, 8):
    right = cv2.calcHist([photo], [0], None, [bins], [0, 256]).ravel()
    of_bytes, of_floats = (taken(mnn.calcHist([given(photo.astype(kind))], [0], None, [bins], [0.0, 256.0]), bins) for kind in (np.uint8, np.float32))
    print(f"histogram of {bins} bins: {of_bytes.sum():.0f} of {right.sum():.0f} pixels counted, as float32 {of_floats.sum():.0f}")
    assert np.array_equal(of_floats, right) and abs(of_bytes.sum() / right.sum() - bins / 256) < 0.05
PY
