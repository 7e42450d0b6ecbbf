#!/usr/bin/env bash
# imagehash and pictures with transparent parts: logos, icons, stickers, cut-out products.
#
# Guess: a hash is of what a picture shows, on white or on black; two different logos have different hashes.
# What happens: the hash is of the colours that a file holds, whatever is transparent. White logos, on transparent white as design
#   programs write them, all have the hash of an empty picture, at distance 0 from each other, by all five hashes; so has a black
#   logo on transparent black. The same logo, on transparent white and on transparent black, which no viewer can tell apart, has
#   two hashes that are far from each other.
# Who meets it: those who look for duplicates among logos, icons and products on a transparent ground: all of one colour are one
#   group, and what is left after "keep one" is one of them.
# Versions: ImageHash 4.3.2, Pillow 13.0.0, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ImageHash==4.3.2 pillow==13.0.0 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import imagehash
from PIL import Image, ImageDraw

print(*(f"{name} {version(name)}" for name in ("ImageHash", "pillow", "numpy")))
HASHES = (imagehash.average_hash, imagehash.phash, imagehash.dhash, imagehash.whash, imagehash.colorhash)


def logo(shape, colour, ground):
    picture = Image.new("RGBA", (128, 128), (*ground, 0))
    draw = ImageDraw.Draw(picture)
    getattr(draw, shape)([(20, 40), (108, 100)], fill=(*colour, 255), width=9)
    return picture


def shown(picture, ground):
    return Image.alpha_composite(Image.new("RGBA", picture.size, (*ground, 255)), picture).convert("RGB")


white, black, red = (255, 255, 255), (0, 0, 0), (200, 30, 30)
for make in HASHES:
    ellipse, cross = logo("ellipse", white, white), logo("line", white, white)
    stored, seen = make(ellipse) - make(cross), make(shown(ellipse, black)) - make(shown(cross, black))
    print(f"{make.__name__}: two white logos {stored}, as seen on black {seen}")
    assert stored == 0
    assert make(logo("ellipse", black, black)) - make(logo("line", black, black)) == 0
    assert seen > 0 or make is imagehash.colorhash

one, other = logo("ellipse", red, white), logo("ellipse", red, black)
assert shown(one, (90, 90, 90)).tobytes() == shown(other, (90, 90, 90)).tobytes()
apart = imagehash.average_hash(one) - imagehash.average_hash(other)
print("one red logo, transparent white and transparent black:", apart, "of 64 bits apart")
assert apart > 10
PY
