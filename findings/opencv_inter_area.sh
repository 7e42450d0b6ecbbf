#!/usr/bin/env bash
# Resizing by areas where one side shrinks and the other grows.
#
# Guess: cv2.resize(..., INTER_AREA) averages along the side that shrinks, whatever the other side does.
# What happens: as soon as one side grows, it interpolates between two pixels along both. Of 640 columns that become 64,
#   128 count: stripes whose mean is half are gone.
# Who meets it: panoramas, strips and small photos that are stretched to the square input of a network.
# Versions: opencv-python-headless 5.0.0.93, NumPy 2, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opencv-python-headless==5.0.0.93 "numpy<3" 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import sys
import cv2, numpy as np

print("opencv", cv2.__version__)
stripes = np.where(np.isin(np.arange(640) % 10, (2, 3, 4, 5, 6)), 255, 0).astype(np.uint8)  # the first two of each ten are dark
strip = np.tile(stripes, (8, 1))
means = {height: float(cv2.resize(strip, (64, height), interpolation=cv2.INTER_AREA).mean()) / 255 for height in (4, 8, 9, 64)}
print("mean of the stripes:", strip.mean() / 255, "resized to 64 columns and", means, "rows")
counting = np.zeros(640, int)
for column in range(640):
    one = np.zeros((8, 640), np.uint8)
    one[:, column] = 255
    counting[column] = cv2.resize(one, (64, 64), interpolation=cv2.INTER_AREA).any()
print("columns that count:", counting.sum(), "of 640")
sys.exit(0 if means[8] > 0.49 and means[9] < 0.1 and counting.sum() == 128 else "changed")
PY
