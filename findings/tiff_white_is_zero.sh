#!/usr/bin/env bash
# Grey TIFFs where 0 is white (PhotometricInterpretation 0, WhiteIsZero), with 8 and 16 bits: scans, faxes, radiographs, gels.
#
# Guess: which level is white is a matter of the file, as its compression is: a reader that knows the tag gives 0 for black, as all do with 1 bit; it does
#   so whatever the number of bits, or leaves the levels to its caller in all cases.
# What happens, without a word:
#   1. Pillow turns 8 bits over and 16 bits not: mode I;16 is the negative, with nothing in it that tells, and so are its conversion to 8 bits and
#      what is saved from it as PNG.
#   2. OpenCV: 8 bits are right. 16 bits are the negative with IMREAD_UNCHANGED and IMREAD_ANYDEPTH, and the picture with IMREAD_COLOR.
#   3. imageio and scikit-image give the negative for 8 bits, too, as tifffile, which both ask, leaves levels as they are; tifffile names the tag.
#   libvips is right with both.
# Who meets it: who indexes or classifies radiographs (MONOCHROME1, saved as TIFF), scans and gels: two readers of one file, or the preview and the array of one
#   library, give a picture and its negative; hashes differ in all bits, and gradients' signs and colour histograms are turned round.
# Versions: Pillow 13.0.0, opencv-python-headless 5.0.0.93, imageio 2.38.1, scikit-image 0.26.0, tifffile 2026.3.3, pyvips-binary 8.18.7 (pyvips 3.2.0),
#   NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 opencv-python-headless==5.0.0.93 imageio==2.38.1 scikit-image==0.26.0 tifffile==2026.3.3 \
  pyvips==3.2.0 pyvips-binary==8.18.7 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - "$folder" <<'PY'
import sys
from importlib.metadata import version

import cv2, imageio.v3, numpy as np, pyvips, skimage.io, tifffile
from PIL import Image

names = ("pillow", "opencv-python-headless", "imageio", "scikit-image", "tifffile", "pyvips-binary", "numpy")
print(*(f"{name} {version(name)}" for name in names))
file, saved = f"{sys.argv[1]}/scan.tif", f"{sys.argv[1]}/saved.png"
READERS = {
    "Pillow": lambda: np.asarray(Image.open(file)),
    "Pillow, saved as PNG": lambda: Image.open(file).save(saved) or np.asarray(Image.open(saved)),
    "OpenCV, IMREAD_UNCHANGED": lambda: cv2.imread(file, cv2.IMREAD_UNCHANGED),
    "OpenCV, IMREAD_ANYDEPTH": lambda: cv2.imread(file, cv2.IMREAD_ANYDEPTH),
    "OpenCV, IMREAD_COLOR": lambda: cv2.imread(file, cv2.IMREAD_COLOR)[..., 0],
    "libvips": lambda: pyvips.Image.new_from_file(file).numpy(),
    "imageio": lambda: imageio.v3.imread(file),
    "scikit-image": lambda: skimage.io.imread(file),
}
picture = np.tile(np.linspace(0, 1, 64), (32, 1))  # from black at the left to white at the right
negative = {}
for bits in (8, 16):
    levels = np.round((1 - picture) * (2**bits - 1)).astype(f"uint{bits}")
    for compression in (None, "zlib"):
        tifffile.imwrite(file, levels, photometric="miniswhite", compression=compression)
        assert tifffile.TiffFile(file).pages[0].photometric == 0
        seen = {name: bool(array[0, 0] > array[0, -1]) for name, read in READERS.items() for array in [read()]}
        assert negative.setdefault(bits, seen) == seen
    print(f"{bits} bits:", ", ".join(f"{name}: {'negative' if turned else 'right'}" for name, turned in negative[bits].items()))
always = {"imageio", "scikit-image"}
assert {name for name, turned in negative[8].items() if turned} == always
assert {name for name, turned in negative[16].items() if turned} == always | set(list(READERS)[:4])
PY
