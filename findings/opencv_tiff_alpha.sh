#!/usr/bin/env bash
# RGBA in a TIFF, as Pillow, tifffile and design programs write it, read by OpenCV.
#
# Guess: cv2.IMREAD_UNCHANGED returns the levels of the file, or the same ones for 8 and for 16 bits; cv2.IMREAD_COLOR leaves the alpha
#   out, as it does for PNG and WebP.
# What happens: what is read depends on the kind of alpha (ExtraSamples), on its bits and on the flag, and nothing tells which it was:
#   1. Straight alpha (unassociated, Pillow's and most programs'), 8 bits: colours are multiplied by alpha, with IMREAD_UNCHANGED too,
#      and what is transparent is black for good. With 16 bits IMREAD_UNCHANGED returns the levels of the file.
#   2. IMREAD_COLOR of 8 and of 16 bits lays such a picture on black, where for PNG and WebP of the same pixels it drops the alpha.
#   3. Multiplied alpha (associated) stays multiplied, so that one array of BGRA may be either. OpenCV's own TIFFs come back as they
#      were, as it declares no kind of alpha in them.
#   Pillow and libvips return straight levels for both kinds.
# Who meets it: who reads cut-outs and scans with masks, composites what was read (dark rims: multiplied twice), keeps only the colours
#   (features of a picture on black), or compares a TIFF with the PNG that was made of it (no duplicates).
# Versions: opencv-python-headless 5.0.0.93, Pillow 13.0.0, tifffile 2026.3.3, pyvips-binary 8.18.7 (pyvips 3.2.0), Python 3.11.
#   Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opencv-python-headless==5.0.0.93 pillow==13.0.0 tifffile==2026.3.3 pyvips==3.2.0 pyvips-binary==8.18.7 \
  numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import io
from importlib.metadata import version

import cv2, numpy as np, pyvips, tifffile
from PIL import Image

print(*(f"{name} {version(name)}" for name in ("opencv-python-headless", "pillow", "tifffile", "pyvips-binary")))
STRAIGHT = [[64, 32, 0, 128], [200, 100, 50, 0], [255, 255, 255, 255]]
COLOURS = [pixel[:3] for pixel in STRAIGHT]
MULTIPLIED = [[32, 16, 0, 128], [0, 0, 0, 0], [255, 255, 255, 255]]
ON_BLACK = [pixel[:3] for pixel in MULTIPLIED]


def saved(kind, **options):
    file = io.BytesIO()
    Image.fromarray(np.array([STRAIGHT], np.uint8)).save(file, kind, **options)
    return file.getvalue()


def tiff(pixels, bits, alpha):
    file = io.BytesIO()
    levels = (np.array([pixels]) * (257 if bits == 16 else 1)).astype(f"uint{bits}")
    tifffile.imwrite(file, levels, photometric="rgb", extrasamples=[alpha])
    return file.getvalue()


def eight(array):
    """Levels of 0 to 255."""
    return np.round(np.asarray(array) / (257 if np.asarray(array).max() > 255 else 1)).astype(int).tolist()


def by_opencv(file, flag):
    pixels = cv2.imdecode(np.frombuffer(file, np.uint8), flag)[0]
    return eight(pixels[..., [2, 1, 0, 3][: pixels.shape[1]]])


own = cv2.imencode(".tiff", np.array([STRAIGHT], np.uint8)[..., [2, 1, 0, 3]])[1].tobytes()
CASES = {  # name -> file, what UNCHANGED and COLOR read
    "PNG": (saved("PNG"), STRAIGHT, COLOURS),
    "WebP": (saved("WEBP", lossless=True, exact=True), STRAIGHT, COLOURS),
    "OpenCV's own TIFF": (own, STRAIGHT, COLOURS),
    "Pillow's TIFF, 8 bits": (saved("TIFF"), MULTIPLIED, ON_BLACK),
    "straight, 8 bits": (tiff(STRAIGHT, 8, "unassalpha"), MULTIPLIED, ON_BLACK),
    "straight, 16 bits": (tiff(STRAIGHT, 16, "unassalpha"), STRAIGHT, ON_BLACK),
    "multiplied, 8 bits": (tiff(MULTIPLIED, 8, "assocalpha"), MULTIPLIED, ON_BLACK),
    "multiplied, 16 bits": (tiff(MULTIPLIED, 16, "assocalpha"), MULTIPLIED, ON_BLACK),
}
seen = [row for row, (*_, alpha) in enumerate(STRAIGHT) if alpha]  # what is transparent has no colour once it is multiplied
for name, (file, unchanged, color) in CASES.items():
    read = by_opencv(file, cv2.IMREAD_UNCHANGED), by_opencv(file, cv2.IMREAD_COLOR)
    print(f"{name}: first pixels UNCHANGED {read[0][:2]}, COLOR {read[1][:2]}")
    assert read == (unchanged, color), name
    image = pyvips.Image.new_from_buffer(file, "")
    others = eight(Image.open(io.BytesIO(file)).convert("RGBA"))[0], eight([image(x, 0) for x in range(3)])
    for levels in others:
        assert np.abs(np.array(levels)[seen] - np.array(STRAIGHT)[seen]).max() <= 1, (name, levels)
print("Pillow and libvips: straight levels of all of them")
PY
