#!/bin/sh
# Guess: what is changed in `image.getexif()` of Pillow belongs to the image: copies, conversions and resized images have it.
# What happens: the edit stays with that one object. `copy`, `convert` and `resize` start from the bytes in `image.info["exif"]`, so a
#   deleted or changed tag is back. A picture that was turned upright by hand, with its orientation deleted, is turned once more by
#   whoever opens the result; `ImageOps.exif_transpose` rewrites `info` as well and has no such fault.
# Who meets it: pipelines that turn pictures by `transpose` and the tag, or remove tags (GPS) before they convert and save.
# Versions: Pillow 11.3.0 and 12.0.0. Date: 2026-11-28.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/try.py" <<'PYTHON'
import io, PIL
from PIL import Image, ImageOps

ORIENTATION = 0x0112
exif, data = Image.Exif(), io.BytesIO()
exif[ORIENTATION] = 6  # to be turned by 90 degrees
Image.new("RGB", (80, 40)).save(data, "JPEG", exif=exif)

image = Image.open(data)
upright = image.transpose(Image.Transpose.ROTATE_270)  # 40 x 80
del upright.getexif()[ORIENTATION]
results = {
    "itself": upright.getexif().get(ORIENTATION),
    "copy": upright.copy().getexif().get(ORIENTATION),
    "convert": upright.convert("L").getexif().get(ORIENTATION),
    "resize": upright.resize((20, 40)).getexif().get(ORIENTATION),
    "exif_transpose, then convert": ImageOps.exif_transpose(image).convert("L").getexif().get(ORIENTATION),
}
turned_twice = ImageOps.exif_transpose(upright.convert("L")).size
print("Pillow", PIL.__version__, results, "size after opening again:", turned_twice)
assert results == {"itself": None, "copy": 6, "convert": 6, "resize": 6, "exif_transpose, then convert": None}
assert turned_twice == (80, 40)  # lies on its side again
PYTHON
for version in 11.3.0 12.0.0; do
    python3 -m venv "$folder/venv-$version"
    "$folder/venv-$version/bin/pip" install --quiet "pillow==$version"
    "$folder/venv-$version/bin/python" "$folder/try.py"
done
