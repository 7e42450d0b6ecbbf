#!/usr/bin/env bash
# TIFFs of 16 bits per colour whose colours lie in separate planes (PlanarConfiguration 2), as tifffile writes arrays of
# channels first, and GDAL with INTERLEAVE=BAND.
#
# Guess: both libraries read them as those of 8 bits, or refuse them.
# What happens:
#   1. Uncompressed: Pillow takes the bytes of a plane for levels of 8 bits: the upper half, each row torn into two.
#   2. OpenCV mixes the planes up, compressed or not: each pixel gets three levels that lie side by side in one plane.
#   Neither says a word. Pillow is right where the planes are compressed (by libtiff), and both are right with 8 bits.
# Who meets it: whoever reads scans, microscopy or satellite images by Pillow or OpenCV.
# Versions: Pillow 13.0.0, opencv-python-headless 5.0.0.93, tifffile 2026.3.3, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 opencv-python-headless==5.0.0.93 tifffile==2026.3.3 numpy==2.4.6
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys
import cv2, numpy as np, PIL, tifffile
from PIL import Image

print("Pillow", PIL.__version__, "OpenCV", cv2.__version__, "tifffile", tifffile.__version__)
y, x = np.mgrid[:64, :64]
picture = np.stack([x * 4, y * 4, np.full_like(x, 128)], axis=-1).astype(np.uint8)
right = {}
for bits in (8, 16):
    planes = picture.transpose(2, 0, 1).astype(f"uint{bits}") * (257 if bits == 16 else 1)
    for compression in (None, "zlib"):
        file = f"{sys.argv[1]}/picture.tif"
        tifffile.imwrite(file, planes.astype(f"uint{bits}"), photometric="rgb", planarconfig="separate", compression=compression)
        of_pillow = np.asarray(Image.open(file).convert("RGB")).astype(int)
        of_opencv = cv2.imread(file, cv2.IMREAD_UNCHANGED)[..., ::-1].astype(float) / (257 if bits == 16 else 1)
        off = [int(np.abs(read - picture).max()) for read in (of_pillow, of_opencv)]
        right[bits, compression] = tuple(one <= 1 for one in off)
        print(f"{bits} bits, {compression}: largest difference of 255: Pillow {off[0]}, OpenCV {off[1]}")
assert right == {(8, None): (True, True), (8, "zlib"): (True, True), (16, None): (False, False), (16, "zlib"): (True, False)}
PY
