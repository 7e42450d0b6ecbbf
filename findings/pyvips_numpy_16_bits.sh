#!/usr/bin/env bash
# NumPy arrays of 16 bits (scans, microscopy, radiographs, depth) in pyvips, on their way to files and thumbnails.
#
# Guess: new_from_array takes the range of levels from the type of the array, as it takes the number of channels from its shape; where it
#   does not, all operations and file formats take levels the same way, so that one look at a saved file tells.
# What happens: the image is one of 16 bits with the name of 8 (b-w, srgb), and what becomes of it depends on who asks:
#   1. thumbnail_image and colourspace cut at 255: all but the darkest 0.4 % of the range is white, in grey as in colour.
#   2. PNG: colour is written with 16 bits, rightly; grey with 8 bits, cut at 255, a white page.
#   3. TIFF is right with 16 bits, JPEG and WebP scale to 8 bits rightly, for grey and colour.
#   A file of these levels that pyvips opens itself is right throughout, and so is new_from_array(..., interpretation="auto"), which is not
#   the default.
# Who meets it: who reads by tifffile, pydicom or OpenCV and makes previews or PNGs by pyvips, after a look at a JPEG or a colour PNG; hashes
#   and vectors of such thumbnails are alike for all photos.
# Versions: pyvips 3.2.0, pyvips-binary 8.18.7, Pillow 13.0.0, tifffile 2026.3.3, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyvips==3.2.0 pyvips-binary==8.18.7 pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import io
from importlib.metadata import version

import numpy as np, pyvips, tifffile
from PIL import Image

print(*(f"{name} {version(name)}" for name in ("pyvips", "pyvips-binary", "numpy")))
y, x = np.mgrid[:64, :64]
grey = (x * 2 + y * 2).astype(np.uint8)
PICTURES = {"grey": grey, "colour": np.stack([grey, grey[::-1], grey[:, ::-1]], axis=-1)}  # what should be seen, of 8 bits


def opened(levels, how):
    if how == "a file":
        file = io.BytesIO()
        tifffile.imwrite(file, levels, photometric="minisblack" if levels.ndim == 2 else "rgb")
        return pyvips.Image.new_from_buffer(file.getvalue(), "")
    return pyvips.Image.new_from_array(levels, interpretation=how)


def saved(image, ending):
    data = image.write_to_buffer(ending)
    if ending == ".tif":
        return tifffile.imread(io.BytesIO(data))
    if ending == ".png":  # by libvips, as Pillow reads colours of 8 bits alone
        return pyvips.Image.new_from_buffer(data, "").numpy()
    return np.asarray(Image.open(io.BytesIO(data)).convert("L" if image.bands == 1 else "RGB"))


def off(read, picture):
    scale = 257 if read.dtype == np.uint16 else 1
    return np.abs(read.squeeze() / scale - picture).max()


outcomes = {}
for name, picture in PICTURES.items():
    levels = picture.astype(np.uint16) * 257
    for how in (None, "auto", "a file"):
        image = opened(levels, how).copy_memory()
        results = {ending: saved(image, ending) for ending in (".png", ".tif", ".jpg", ".webp")}
        results["thumbnail"] = image.thumbnail_image(64).numpy()
        results["colourspace"] = image.colourspace("b-w" if name == "grey" else "srgb").numpy()
        print(f"{name}, {how or 'from NumPy'} ({image.interpretation}):", end=" ")
        for kind, read in results.items():
            difference = off(read, picture)
            outcomes[name, how, kind] = difference < 40  # of 255; JPEG and WebP lose some
            print(f"{kind} {8 * read.itemsize} bits, {'right' if difference < 40 else f'off by {difference:.0f}, {(read == 255).mean():.0%} white'};", end=" ")
        print()
wrong = {case for case, right in outcomes.items() if not right}
assert wrong == {("grey", None, ".png"), *((name, None, kind) for name in PICTURES for kind in ("thumbnail", "colourspace"))}
PY
