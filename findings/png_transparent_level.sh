#!/usr/bin/env bash
# PNGs whose transparent parts are one level or one colour (the chunk tRNS), in Pillow and in OpenCV, with other than 8 bits.
#
# Guess: Image.convert("RGBA") makes the pixels of that level transparent, as both libraries' own formats of RGBA have them, and as
#   libvips and imagecodecs do; cv2.IMREAD_UNCHANGED returns an alpha channel for it.
# What happens:
#   1. Pillow, greys of 2 and 4 bits: levels are brought to 8 bits, the transparent one is not: nothing is transparent, unless it is 0.
#   2. Pillow, greys and RGB of 16 bits: the transparent level counts by its low byte alone, levels by their high one (RGB) or cut off
#      at 255 (greys). For 0x5A00 black is transparent, and what should be is not: the picture is turned inside out.
#   3. OpenCV gives no alpha for any grey, of 1 to 16 bits; for RGB of 8 and 16 bits it does, rightly.
#   Greys of 1 and 8 bits and RGB of 8 bits are right in Pillow.
# Who meets it: those who put logos, icons and cut-outs on a ground, or take the alpha for a mask, after an optimiser (oxipng, zopflipng,
#   optipng) has made the smallest file of them: a grey of few bits with a transparent level.
# Versions: Pillow 13.0.0, opencv-python-headless 5.0.0.93, pyvips-binary 8.18.7 (pyvips 3.2.0), imagecodecs 2026.3.6, Python 3.11.
#   Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pillow==13.0.0 opencv-python-headless==5.0.0.93 pyvips==3.2.0 pyvips-binary==8.18.7 \
  imagecodecs==2026.3.6 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import io
import struct
import zlib
from importlib.metadata import version

import cv2, imagecodecs, numpy as np, pyvips
from PIL import Image

print(*(f"{name} {version(name)}" for name in ("pillow", "opencv-python-headless", "pyvips-binary", "imagecodecs")))


def png(bits, channels, levels, key):
    row = "".join(f"{level:0{bits}b}" * channels for level in levels)
    row = bytes(int(row[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(row), 8))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", len(levels), 1, bits, {1: 0, 3: 2}[channels], 0, 0, 0),
        b"tRNS": struct.pack(">H", key) * channels,
        b"IDAT": zlib.compress(b"\0" + row),
        b"IEND": b"",
    }
    whole = [struct.pack(">I", len(c)) + name + c + struct.pack(">I", zlib.crc32(name + c)) for name, c in chunks.items()]
    return b"\x89PNG\r\n\x1a\n" + b"".join(whole)


def alphas(file):
    """Which pixels are transparent, by library; None without alpha."""
    of_pillow = np.asarray(Image.open(io.BytesIO(file)).convert("RGBA"))[0, :, 3]
    of_opencv = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    image = pyvips.Image.new_from_buffer(file, "")
    of_vips = [image(x, 0)[-1] for x in range(image.width)]
    of_imagecodecs = imagecodecs.png_decode(file)[0, :, -1]
    seen = [of_pillow, of_opencv[0, :, 3] if of_opencv.ndim == 3 else None, of_vips, of_imagecodecs]
    return [None if alpha is None else [int(value == 0) for value in alpha] for alpha in seen]


for bits, channels in ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1), (8, 3), (16, 3)):
    top = 2**bits - 1
    levels = sorted({0, top, *([top // 3] if bits > 1 else []), *([0x5A00] if bits == 16 else [])})
    key = {1: 1, 16: 0x5A00}.get(bits, top // 3)
    right = [int(level == key) for level in levels]
    pillow, opencv, vips, codecs = alphas(png(bits, channels, levels, key))
    print(f"{'grey' if channels == 1 else 'RGB'} of {bits:2} bits, levels {levels}, transparent {key}: Pillow {pillow}, OpenCV {opencv}, libvips {vips}")
    assert vips == codecs == right
    assert opencv == (None if channels == 1 else right)
    if bits in (2, 4):
        assert not any(pillow)
        assert alphas(png(bits, channels, levels, 0))[0][0] == 1  # the one level that is the same in all bits
    elif bits == 16:
        assert pillow == [int(level == 0) for level in levels] != right
    else:
        assert pillow == right
PY
