#!/usr/bin/env bash
# cleanvision: pictures with a palette (GIF, small PNG), of one bit, and of 16 bits, among those that it looks for copies and for dark ones.
#
# Guess: "exact duplicates" show the same picture, to the last pixel; "dark" and "light" are of what is seen. What cleanvision cannot judge it
#   leaves out, or converts first, as it does for near duplicates.
# What happens, without a word: hashes and brightness are of the bytes that NumPy gets from Pillow, which are indexes into a palette, or True and
#   False, and nothing tells the palette, the kind or the shape.
#   1. One drawing in three colourings, with a palette each, is one set of exact duplicates; so are two grey grounds of one level, 100 x 50 and
#      50 x 100. The same drawings as RGB are told apart.
#   2. A white page of one bit is dark (0.004 of 1), and so are bright drawings of few colours (0.008): index 2 of 255.
#   3. 16 bits: brightness is up to 257 of 1. A dark photo is not dark, and light: its light score is -14, of a scale that begins at 0.
# Who meets it: who cleans a set of icons, logos, maps, flags, masks or scanned pages before training or indexing; deletes all but one of each set of
#   exact duplicates, or what is dark. An optimiser that gives PNGs palettes (pngquant, oxipng) brings it about without a change to be seen.
# Versions: cleanvision 0.3.7, Pillow 13.0.0, ImageHash 4.3.2, pandas 3.1.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q cleanvision==0.3.7 pillow==13.0.0 ImageHash==4.3.2 pandas==3.1.1 numpy==2.4.6 2>/dev/null
mkdir "$folder/photos"
TQDM_DISABLE=1 "$folder/venv/bin/python" -W ignore - "$folder/photos" <<'PY'
import pathlib
import sys
from importlib.metadata import version

import numpy as np
from cleanvision import Imagelab
from PIL import Image, ImageDraw

print(*(f"{name} {version(name)}" for name in ("cleanvision", "pillow", "ImageHash", "pandas", "numpy")))
folder = pathlib.Path(sys.argv[1])


def drawing(*colours):
    image = Image.new("P", (64, 64), 0)
    image.putpalette(bytes(level for colour in colours for level in colour))
    draw = ImageDraw.Draw(image)
    draw.ellipse([10, 10, 54, 54], fill=1)
    draw.rectangle([28, 5, 36, 60], fill=2)
    return image


drawings = {
    "red.png": drawing((255, 255, 255), (220, 0, 0), (250, 240, 0)),
    "green.png": drawing((230, 230, 255), (0, 200, 60), (250, 250, 250)),
    "blue.gif": drawing((250, 250, 250), (0, 0, 200), (200, 255, 255)),
}
for name, image in drawings.items():
    image.save(folder / name)
    image.convert("RGB").save(folder / f"rgb_{name.partition('.')[0]}.png")
page = Image.new("1", (200, 300), 1)
ImageDraw.Draw(page).rectangle([20, 20, 60, 24], fill=0)
page.save(folder / "page.png")
dark = np.random.default_rng(0).normal(8000, 2500, (100, 100)).clip(0, 65535).astype(np.uint16)  # an eighth of the range
Image.fromarray(dark).save(folder / "deep.png")
for name, size in (("wide.png", (100, 50)), ("high.png", (50, 100))):
    Image.new("L", size, 200).save(folder / name)

lab = Imagelab(data_path=str(folder), verbose=False)
lab.find_issues(n_jobs=1, verbose=False)
issues = lab.issues.rename(index=lambda path: pathlib.Path(path).name)
sets = sorted(sorted(pathlib.Path(path).name for path in one) for one in lab.info["exact_duplicates"]["sets"])
print("1. exact duplicates:", sets)
assert ["blue.gif", "green.png", "red.png"] in sets and ["high.png", "wide.png"] in sets
assert not any("rgb_" in name for one in sets for name in one)
for i, name in enumerate(("page.png", *drawings, "rgb_red.png", "deep.png")):
    row = issues.loc[name]
    seen = " and ".join(word for word in ("dark", "light") if row[f"is_{word}_issue"]) or "neither"
    print(f"{'2.' if i == 0 else '  '} {name}: {seen}; score of dark {row.dark_score:.3f}, of light {row.light_score:.3f}")
assert issues.loc[["page.png", *drawings], "is_dark_issue"].all() and issues.loc[["page.png", *drawings], "dark_score"].max() < 0.01
assert not issues.loc["rgb_red.png", "is_dark_issue"] and issues.loc["rgb_red.png", "dark_score"] > 0.9
assert issues.loc["deep.png", "is_light_issue"] and issues.loc["deep.png", "light_score"] < -5 and issues.loc["deep.png", "dark_score"] > 50
PY
