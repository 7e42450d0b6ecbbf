"""Original files without metadata."""

import contextlib
import io
import struct

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import PngImagePlugin

from visterm.features import ImageError, decode_image
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features as features_stage
from visterm.service.metadata import without_metadata

SECRET = b"taken at home"
XMP = b'<x tiff:Orientation="8"/>' + SECRET


def image_file(kind, orientation=1, **options):
    """An image whose metadata say where it was taken."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    exif = Pillow.Exif()
    exif[0x010E] = SECRET.decode()
    exif[0x0112] = orientation
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 7.0)})
    stream = io.BytesIO()
    if kind == "PNG":
        options["pnginfo"] = PngImagePlugin.PngInfo()
        options["pnginfo"].add_text("Comment", SECRET.decode())
    profile = b"profile" * 30
    Pillow.fromarray(pixels).save(stream, kind, exif=exif, icc_profile=profile, dpi=(72, 72), **options)
    return stream.getvalue()


def placed(data):
    """What tells of the place, the profile of the colours, and the upright pixels."""
    with Pillow.open(io.BytesIO(data)) as image:
        image.load()
        exif = image.getexif()
        return dict(exif.get_ifd(0x8825)), image.info.get("icc_profile"), decode_image(data, "x")


@pytest.mark.parametrize("orientation", [1, 3, 6])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("JPEG", {"comment": SECRET, "xmp": XMP}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("WEBP", {"xmp": XMP}),
        ("WEBP", {"lossless": True}),
    ],
)
def test_metadata_go_and_pixels_stay(kind, options, orientation):
    data = image_file(kind, orientation, **options)
    kept = without_metadata(data, "x", 10**6)
    before, after = placed(data), placed(kept)
    assert SECRET in data
    assert before[0]
    assert SECRET not in kept
    assert not after[0]
    assert kept[:2] == data[:2]  # no fallback to PNG
    assert after[1] == before[1]
    np.testing.assert_array_equal(after[2], before[2])


def test_what_lies_behind_or_within_the_image_goes():
    """As the second picture of a phone's file, with its own metadata."""
    for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
        data = image_file(kind)
        assert SECRET not in without_metadata(data + SECRET, "x", 10**6)
    data = image_file("JPEG")
    preview = b"JFIF\0\1\1\0\0\1\0\1\2\2" + bytes(12)
    data = data[:2] + b"\xff\xe0" + struct.pack(">H", len(preview) + 2) + preview + data[2:]
    assert preview not in without_metadata(data, "x", 10**6)
    gif = io.BytesIO()
    Pillow.new("P", (40, 60)).save(gif, "GIF", comment=SECRET)
    for data in (gif.getvalue(), image_file("TIFF", 6), image_file("TIFF", compression="tiff_lzw", big_tiff=True)):
        png = without_metadata(data, "x", 10**6)
        assert png.startswith(b"\x89PNG")
        assert SECRET not in png
        np.testing.assert_array_equal(decode_image(png, "x"), decode_image(data, "x"))


@pytest.mark.parametrize("orientation", [1, 8])
def test_orientation_of_xmp(orientation):
    """Decoders obey it where there is no EXIF."""
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", f'<x tiff:Orientation="{orientation}"/>')
    stream = io.BytesIO()
    Pillow.new("RGB", (40, 60)).save(stream, "PNG", pnginfo=info)
    kept = without_metadata(stream.getvalue(), "x", 10**6)
    assert decode_image(kept, "x").shape == ((60, 40, 3) if orientation == 1 else (40, 60, 3))
    assert b"tiff" not in kept


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_damaged_files(kind):
    """Each is copied, decoded, or refused."""
    data, rng = image_file(kind), np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(data[: rng.integers(1, len(data) + 1)])
        for _ in range(rng.integers(0, 4)):
            damaged[rng.integers(len(damaged))] = rng.integers(256)
        with contextlib.suppress(ImageError):
            without_metadata(bytes(damaged), "x", 10**6)


@pytest.mark.parametrize("keep", [False, True])
def test_originals(own, own_photos, serving, keep):
    (own_photos / "fig/1.jpg").write_bytes(image_file("JPEG", 6))
    (own_photos / "fig/2.jpg").write_bytes(gif := _gif())
    features_stage(own, own.configure(None, []), None, Console(quiet=True))
    with serving(own, settings={"keep_metadata": keep}) as client:
        images = client.get("/api/images", params={"label": "fig", "limit": 200}).json()
        photo, animation = (
            client.get(f"/images/{next(i['id'] for i in images if i['path'] == path)}/original")
            for path in ("fig/1.jpg", "fig/2.jpg")
        )
        assert ("latitude" in client.get("/api/run").json()["fields"]) == keep
        assert client.get("/search", params={"id": 1, "where": "latitude>0"}).status_code == (200 if keep else 422)
    assert (SECRET in photo.content) == keep
    assert placed(photo.content)[2].shape == (60, 40, 3)
    assert photo.headers["content-type"] == "image/jpeg"
    if not keep:
        assert animation.headers["content-type"] == "image/png"
        assert animation.headers["content-disposition"].endswith("2.jpg.png")
    assert (animation.content == gif) == keep


def _gif():
    stream = io.BytesIO()
    Pillow.fromarray(np.random.default_rng(0).integers(0, 256, (80, 90), np.uint8)).save(stream, "GIF")
    return stream.getvalue()
