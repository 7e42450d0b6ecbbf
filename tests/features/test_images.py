"""Finding and reading images: every format and mode, every damage, every strange name."""

import concurrent.futures
import functools
import importlib.util
import io
import itertools
import os
import pathlib
import pickle
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from visterm.extras import how_to_install
from visterm.features import images
from visterm.features.decoding import decode_picture, shrink_to_side, undeclared_peak
from visterm.features.depth import Rules
from visterm.features.images import (
    EXTENSIONS,
    ImageError,
    decode_image,
    find_images,
    printable,
    read_image,
    read_picture,
    silence_decoders,
)
from visterm.plugins.dates.exif import exif_fields

REPOSITORY = pathlib.Path(__file__).parents[2]
DATA = pathlib.Path(os.environ.get("VISTERM_DATA", REPOSITORY / ".." / "shared" / "data"))
HEIC = pathlib.Path(__file__).with_name("picture.heic")  # of picture(), turned by its orientation, with a date
ODD = sorted((DATA / "odd").glob("*"))

needs_odd = pytest.mark.skipif(not ODD, reason=f"the folder of odd images {DATA / 'odd'} is not there")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
needs_user = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may read all")


def picture(height=48, width=54):
    """RGB pixels without any symmetry: a smooth ramp, so that lossy formats stay close."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    channels = 255 * x / width, 255 * y / height, 127 * (1 + np.sin((x + 2 * y) / 20))
    return np.stack(channels, axis=-1).astype(np.uint8)


def encode(pixels, kind, **options):
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, kind, **options)
    return file.getvalue()


def reason_of(data):
    with pytest.raises(ImageError) as caught:
        decode_image(data, "x.jpg")
    return caught.value.reason


def read_or_refuse(data):
    """Pixels, or None for a refusal; anything else fails the test."""
    try:
        pixels = decode_image(data, "x.jpg")
    except ImageError as error:
        refusal = error
    else:
        check(pixels)
        return pixels
    assert refusal.reason
    assert refusal.reason.isprintable()
    assert len(refusal.reason) < 150
    return None


def check(pixels):
    assert pixels.dtype == np.uint8
    assert pixels.ndim == 3
    assert pixels.shape[2] == 3
    assert pixels.size > 0
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable


def difference(a, b):
    assert a.shape == b.shape
    return np.abs(a.astype(int) - b).mean()


FORMATS = [
    *(("JPEG", options, 3) for options in ({"quality": 95}, {"quality": 95, "progressive": True})),
    ("JPEG", {"quality": 95, "subsampling": 0, "restart_marker_blocks": 2}, 2),
    *(("WEBP", {"lossless": True}, 0), ("WEBP", {"quality": 95}, 4), ("GIF", {}, 12)),
    ("AVIF", {"quality": 95}, 4),
    *(("JPEG2000", {"no_jp2": bare, "quality_mode": "dB", "quality_layers": [45]}, 4) for bare in (True, False)),
    *((kind, {}, 0) for kind in ("PNG", "BMP", "DIB", "TIFF", "PPM")),
    *(("TIFF", {"compression": compression}, 0) for compression in ("tiff_lzw", "tiff_adobe_deflate")),
    *(("TIFF", {"compression": "jpeg", "quality": 95}, 4), ("TIFF", {"big_tiff": True}, 0)),
]


@pytest.mark.parametrize(("kind", "options", "tolerance"), FORMATS)
def test_rgb_of_every_format(kind, options, tolerance, tmp_path):
    path = tmp_path / "wrong.jpg"  # the content decides
    path.write_bytes(encode(picture(), kind, **options))
    pixels = read_image(path)
    check(pixels)
    assert difference(pixels, picture()) <= tolerance


def test_heic():
    pytest.importorskip("pi_heif")
    pixels = read_image(HEIC)
    check(pixels)
    assert difference(pixels, picture()) <= 4
    pytest.importorskip("pi_heif")
    assert (
        reason_of(HEIC.read_bytes().replace(b"Exif\0", b"Ex\xff\xff\0", 1)) == "damaged (an item whose kind is no text)"
    )


def test_heic_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "pi_heif.as_plugin", None)
    assert reason_of(HEIC.read_bytes()) == f"unsupported kind (HEIC; run: {how_to_install('heic')})"


def dng(preview, orientation=1):
    """A camera's raw file by hand: a thumbnail of 16 x 12 pixels first, then the sensor's 128 x 96, and a JPEG."""
    file = bytearray(b"II*\0\0\0\0\0")

    def add(data):
        file.extend(data + b"\0" * (len(data) % 2))
        return len(file) - len(data) - len(data) % 2

    def directory(height, width, data, **tags):
        kinds = {1: "B", 3: "H", 4: "I", 5: "I", 10: "i"}
        entries = b""
        given = {int(tag[1:]): value for tag, value in tags.items()}
        given |= {256: (4, width), 257: (4, height), 273: (4, add(data)), 278: (4, height), 279: (4, len(data))}
        for tag, (kind, *values) in sorted(given.items()):
            packed = values[0] if kind == 2 else struct.pack(f"<{len(values)}{kinds[kind]}", *values)
            number = len(packed) if kind == 2 else len(values) // (2 if kind in (5, 10) else 1)
            place = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack("<I", add(packed))
            entries += struct.pack("<HHI", tag, kind, number) + place
        return add(struct.pack("<H", len(given)) + entries + bytes(4))

    eight = {"t258": (3, 8, 8, 8), "t277": (3, 3)}
    sensor = np.repeat(np.array([12000, 3000], "<u2"), 128 * 48).tobytes()  # bright above, dark below
    mosaic = {"t33421": (3, 2, 2), "t33422": (1, 0, 1, 1, 2), "t50717": (4, 16383), "t258": (3, 16), "t277": (3, 1)}
    inner = [directory(96, 128, sensor, t254=(4, 0), t259=(3, 1), t262=(3, 32803), **mosaic)]
    if preview:
        inner.append(directory(480, 640, preview, t254=(4, 1), t259=(3, 7), t262=(3, 6), **eight))
    colors = {
        "t50721": (10, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1),
        "t50728": (5, *[1] * 6),
        "t50778": (3, 21),
    }
    names = {"t271": (2, b"Made\0"), "t272": (2, b"Up\0"), "t50708": (2, b"Made Up\0"), "t50706": (1, 1, 4, 0, 0)}
    top = {"t254": (4, 1), "t259": (3, 1), "t262": (3, 2), "t274": (3, orientation), "t330": (4, *inner)}
    top["t306"] = 2, b"2024:05:03 14:22:10\0"
    place = directory(12, 16, bytes([90]) * 576, **top, **eight, **colors, **names)
    file[4:8] = struct.pack("<I", place)
    return bytes(file)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_of_a_raw_file_the_preview_is_read_not_the_thumbnail(orientation, tmp_path):
    pytest.importorskip("rawpy")
    pixels = cv2.resize(picture(), (640, 480))
    turns = {1: 0, 3: 2, 6: -1, 8: 1}[orientation]
    (tmp_path / "a.tif").write_bytes(dng(encode(pixels, "JPEG", quality=95), orientation))  # the content decides
    upright = np.rot90(pixels, turns)
    preview = read_image(tmp_path / "a.tif")
    check(preview)
    assert preview.shape == upright.shape
    assert difference(preview, upright) < 3
    small, height, width = read_picture(tmp_path / "a.tif", max_side=160)
    assert (small.shape[:2], (height, width)) == (tuple(n // 4 for n in upright.shape[:2]), upright.shape[:2])
    assert exif_fields(tmp_path / "a.tif")["date"] == "2024-05-03T14:22:10"


def test_a_raw_file_without_a_preview_is_developed_and_a_damaged_one_has_a_reason(tmp_path):
    pytest.importorskip("rawpy")
    developed = decode_image(dng(b""), "x")
    check(developed)
    assert developed.shape == (48, 64, 3)
    assert developed[:20].mean() > 1.2 * developed[-20:].mean()
    with pytest.raises(ImageError, match="too large: its sensor has more pixels than the limit of 9,999"):
        decode_image(dng(b""), "x", max_pixels=9999)
    sensor = np.full(128 * 48, 3000, "<u2").tobytes()  # of the lower half, which a copy that was cut short lacks
    assert reason_of(dng(b"").replace(sensor, bytes(len(sensor)))) == "truncated"
    assert reason_of(dng(b"")[:300] + b"\0" * 5000).startswith(("damaged", "truncated", "not an image"))
    assert reason_of(b"FUJIFILMCCD-RAW " + bytes(100)).startswith("damaged, or of a camera that LibRaw does not know")


def test_raw_files_without_their_package_and_beside_their_photos(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rawpy", None)
    reason = f"unsupported kind (a camera's raw file; run: {how_to_install('raw')})"
    for data in (
        dng(b""),
        b"FUJIFILMCCD-RAW ",
        b"II*\0\x10\0\0\0CR\2\0",
        b"II*\0\x08\n\0\0IIIICwaR",
        b"\0\0\0\x18ftypcrx ",
    ):
        assert reason_of(data) == reason
    for name in ("a.NEF", "a.jpg", "b.dng", "c/a.arw", "d.dng", "d.HEIC", "e.tif", "e.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    skipped = {}
    names = [str(path.relative_to(tmp_path)) for path in find_images(tmp_path, on_skip=skipped.__setitem__)]
    assert names == ["a.jpg", "b.dng", "c/a.arw", "d.HEIC", "e.png", "e.tif"]
    assert skipped == {tmp_path / name: "raw file of a photo" for name in ("a.NEF", "d.dng")}


def test_dates(tmp_path):
    def date_taken(path):
        return exif_fields(path).get("date")

    exif = Image.Exif()
    exif[0x0132] = "2024:05:04 00:00:01"
    file = tmp_path / "x.jpg"
    for kind in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF"):
        file.write_bytes(encode(picture(), kind, exif=exif))
        assert date_taken(file) == "2024-05-04T00:00:01", kind
        file.write_bytes(encode(picture(), kind))
        assert date_taken(file) is None
    exif.get_ifd(0x8769)[0x9003] = "2024:05:03 14:22:10"  # when it was taken comes before when it was changed
    file.write_bytes(encode(picture(), "JPEG", exif=exif))
    assert date_taken(file) == "2024-05-03T14:22:10"
    for text in ("0000:00:00 00:00:00", "yesterday", ""):
        exif.get_ifd(0x8769)[0x9003] = exif[0x0132] = text
        file.write_bytes(encode(picture(), "JPEG", exif=exif))
        assert date_taken(file) is None
    file.write_bytes(encode(picture(), "GIF"))
    assert date_taken(file) is None
    if importlib.util.find_spec("pi_heif"):
        assert date_taken(HEIC) == "2024-05-03T14:22:10"
    with pytest.raises(ImageError):
        date_taken(tmp_path / "none.jpg")


def photo_of(tmp_path, main=(), details=(), place=()):
    """Write a JPEG with these tags; return its fields."""
    exif = Image.Exif()
    exif.update(main)
    exif.get_ifd(0x8769).update(details)
    exif.get_ifd(0x8825).update(place)
    (tmp_path / "x.jpg").write_bytes(encode(picture(), "JPEG", exif=exif))
    return exif_fields(tmp_path / "x.jpg")


def test_camera_and_place(tmp_path):
    details = {0x9003: "2024:05:03 14:22:10", 0x8827: 400, 0x920A: 35.5, 0xA434: "XF 35mm\0"}
    place = {1: "S", 2: (33.0, 51.0, 25.5), 3: "E", 4: (151.0, 12.0, 0.0)}
    assert photo_of(tmp_path, {0x0110: " X100V "}, details, place) == {
        "date": "2024-05-03T14:22:10",
        "camera": "X100V",
        "lens": "XF 35mm",
        "iso": "400",
        "focal_length": "35.5",
        "latitude": "-33.857083",
        "longitude": "151.200000",
    }
    assert photo_of(tmp_path, {0x0110: "x" * 5000}) == {"camera": "x" * 100}


@pytest.mark.parametrize(
    ("main", "details", "place"),
    [
        ({0x0110: "\x1b[31m"}, {0x8827: 0, 0x920A: 0.0}, {}),
        ({0x0110: "\0\0"}, {0x920A: 1e9}, {2: (91.0, 0.0, 0.0), 4: (181.0, 0.0, 0.0)}),
        ({0x0110: ""}, {}, {2: (1.0, 2.0), 4: (1.0, 2.0, 3.0, 4.0)}),
        ({}, {}, {2: (IFDRational(0, 0),) * 3, 4: (IFDRational(1, 0),) * 3}),
        ({}, {0x920A: IFDRational(0, 0)}, {1: "N"}),
    ],
)
def test_exif_that_makes_no_sense_gives_no_fields(tmp_path, main, details, place):
    assert photo_of(tmp_path, main, details, place) == {}


@pytest.mark.parametrize("name", ["jpeg-exif", "avif", "heic", "tiff", "png"])
def test_dates_of_damaged_files(name, tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / "x"
    for _ in range(100):
        damaged = bytearray(ENCODINGS.get(name, HEIC.read_bytes()))
        for position in rng.integers(0, min(len(damaged), 400), size=3):
            damaged[position] = rng.integers(0, 256)
        file.write_bytes(damaged[: rng.integers(1, len(damaged))])
        exif_fields(file)  # no error


@pytest.mark.parametrize(
    ("mode", "kinds", "tolerance"),
    [
        ("L", ["JPEG", "PNG", "BMP", "TIFF", "GIF", "PPM"], 1),
        ("P", ["PNG", "BMP", "TIFF", "GIF"], 0),
        ("1", ["PNG", "BMP", "TIFF"], 0),
        ("CMYK", ["JPEG", "TIFF"], 3),
    ],
)
def test_every_mode_becomes_rgb(mode, kinds, tolerance):
    image = Image.fromarray(picture())
    image = image.quantize(200) if mode == "P" else image.convert(mode)
    expected = np.asarray(image.convert("RGB")) if mode != "CMYK" else picture()
    for kind in kinds:
        assert difference(decode_image(encode(image, kind), "x"), expected) <= tolerance, kind
    lab = Image.frombytes("LAB", (4, 4), bytes([136, 80, 67] * 16))  # a strong red: L* 53, a* 80, b* 67
    assert np.abs(decode_image(encode(lab, "TIFF"), "x")[0, 0].astype(int) - [255, 0, 0]).max() <= 12


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_transparency_lies_on_white(kind):
    alpha = np.full((48, 54, 1), 255, np.uint8)
    alpha[:10], alpha[10:20] = 0, 102  # 0.4
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels = decode_image(encode(np.dstack([picture(), alpha]), kind, **options), "x").astype(int)
    assert (pixels[:10] == 255).all()
    assert np.abs(pixels[10:20] - (0.4 * picture()[10:20] + 0.6 * 255)).max() <= 1
    np.testing.assert_array_equal(pixels[20:], picture()[20:])


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_white_on_transparent_lies_on_black_and_what_shows_on_white_does_not(kind):
    """Two white logos are two pictures; what can be seen on neither ground, or on white, keeps it."""
    logos = [Image.new("RGBA", (8, 6), (0, 0, 0, 0)) for _ in range(2)]
    logos[0].putpixel((1, 1), (255, 255, 255, 255))
    logos[1].paste((250, 252, 255, 255), (3, 2, 7, 5))
    seen = [decode_image(encode(logo, kind, lossless=True), "x") for logo in logos]
    assert [pixels[0, 0].tolist() for pixels in seen] == [[0, 0, 0]] * 2
    assert (seen[0][1, 1].tolist(), seen[1][3, 4].tolist()) == ([255] * 3, [250, 252, 255])
    for pixel in ((0, 0, 0, 0), (255, 255, 255, 255), (0, 0, 0, 9)):
        plain = Image.new("RGBA", (8, 6), pixel)
        assert decode_image(encode(plain, kind, lossless=True), "x").min() >= 245
    assert decode_picture(encode(logos[0], kind, lossless=True), "x", rules=Rules(1)).pixels.min() == 255  # older runs
    logos[0].putpixel((5, 5), (200, 0, 0, 255))
    assert decode_image(encode(logos[0], kind, lossless=True), "x")[0, 0].tolist() == [255] * 3


def test_transparent_palette_and_colour_key():
    palette = Image.fromarray(np.array([[0, 1, 2]], np.uint8))
    palette.putpalette([255, 0, 0, 0, 0, 255, 0, 0, 0])
    expected = [[[255, 0, 0], [255, 255, 255], [0, 0, 0]]]
    for kind in ("PNG", "GIF"):
        assert decode_image(encode(palette, kind, transparency=1), "x").tolist() == expected
    by_alpha = decode_image(encode(palette, "PNG", transparency=bytes([255, 0, 255])), "x")
    assert by_alpha.tolist() == expected
    key = encode(palette.convert("RGB"), "PNG", transparency=(0, 0, 255))
    assert decode_image(key, "x").tolist() == expected


@pytest.mark.parametrize(("bits", "kind"), [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2)])
def test_a_transparent_level_of_any_depth(bits, kind):
    """Pillow compares it with levels of 8 bits, and OpenCV reads greys without it."""
    channels, top = kind + 1, 2**bits - 1
    key = 0x5A00 if bits == 16 else top // 2
    levels = [[0] * channels, [key] * channels, [top] * channels]
    row = "".join(f"{level:0{bits}b}" for level in np.ravel(levels).tolist())
    row = bytes(int(row[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(row), 8))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 3, 1, bits, kind, 0, 0, 0),
        b"tRNS": struct.pack(">H", key) * channels,
        b"IDAT": zlib.compress(b"\0" + row),
        b"IEND": b"",
    }
    parts = [struct.pack(">I", len(c)) + n + c + struct.pack(">I", zlib.crc32(n + c)) for n, c in chunks.items()]
    pixels = decode_image(b"\x89PNG\r\n\x1a\n" + b"".join(parts), "x")
    assert pixels.tolist() == [[[level] * 3 for level in ((0, 0, 255) if bits == 1 else (0, 255, 255))]]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_scaling_down_turns_an_image_as_ever_and_tells_its_original_size(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = cv2.resize(picture(), (641, 482), interpolation=cv2.INTER_CUBIC)  # neither divides evenly
    data = encode(pixels, kind, exif=exif)
    full = decode_image(data, "x")
    for max_side in (64, 100, 300, 640):  # 1/8 and less, 1/4, 1/2, 1/1
        decoded = decode_picture(data, "x", max_side=max_side)
        assert (decoded.height, decoded.width) == full.shape[:2]
        expected = shrink_to_side(full, max_side)
        assert max(expected.shape) == max_side
        check(decoded.pixels)
        assert decoded.pixels.shape == expected.shape
        assert difference(decoded.pixels, expected) <= 3  # a wrong orientation: 40


@pytest.mark.parametrize("shape", [(1, 1), (48, 54), (500, 2), (300, 500)])
def test_images_within_the_limit_are_not_touched(shape):
    for kind in ("JPEG", "PNG"):
        data = encode(picture(*shape), kind)
        decoded = decode_picture(data, "x", max_side=500)
        np.testing.assert_array_equal(decoded.pixels, decode_image(data, "x"))
        assert (decoded.height, decoded.width) == shape


def test_a_thin_image_keeps_a_pixel():
    assert shrink_to_side(np.zeros((3000, 2), np.uint8), 500).shape == (500, 1)
    assert decode_picture(encode(picture(3, 4000), "JPEG"), "x", max_side=500).pixels.shape == (1, 500, 3)


def test_200_megapixels_are_refused_by_their_header_even_if_they_would_be_scaled_down():
    data = bytearray(encode(picture(), "JPEG"))
    at = data.index(b"\xff\xc0") + 5  # height and width of the frame
    data[at : at + 4] = struct.pack(">HH", 12_248, 16_330)
    with pytest.raises(ImageError, match="too large: 16330 x 12248 pixels is over the limit of 100,000,000"):
        decode_picture(bytes(data), "x", max_side=500)


@pytest.mark.parametrize("extension", [".png", ".tiff"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sixteen_bits_are_rounded_to_eight(extension, channels):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 65536, (20, 30, channels), dtype=np.uint16)
    if channels == 4:
        pixels[..., 3] = 65535
    ok, data = cv2.imencode(extension, pixels)  # BGR
    assert ok
    levels = pixels[..., 2::-1] if channels > 1 else np.dstack([pixels] * 3)
    np.testing.assert_array_equal(decode_image(data.tobytes(), "x"), np.floor(levels / 257 + 0.5))
    before = decode_picture(data.tobytes(), "x", rules=Rules(version=1)).pixels
    np.testing.assert_array_equal(before, levels >> 8)


def grey_tiff(pixels, bits, photometric, sample_format=1, extra=()):
    """A small uncompressed TIFF by hand: what Pillow cannot write."""
    height, width = pixels.shape
    data = pixels.tobytes()
    tags = {256: (4, width), 257: (4, height), 258: (3, bits), 259: (3, 1), 262: (3, photometric), 273: (4, 0)}
    tags |= {277: (3, 1), 278: (4, height), 279: (4, len(data)), 339: (3, sample_format), **dict(extra)}
    tags = {tag: value for tag, value in tags.items() if value is not None}
    if tags.get(273) == (4, 0):
        tags[273] = (4, 8 + 2 + 12 * len(tags) + 4)
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, (kind, value) in sorted(tags.items()))
    return struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4) + data


def test_white_is_zero_and_twelve_bits():
    grey = np.arange(0, 60000, 100, dtype=np.uint16).reshape(20, 30)
    expected = np.floor(grey / 257 + 0.5)
    for photometric, levels in ((1, expected), (0, 255 - expected)):
        pixels = decode_image(grey_tiff(grey, 16, photometric), "x")
        np.testing.assert_array_equal(pixels[..., 0], levels)
    grey8 = (grey >> 8).astype(np.uint8)
    np.testing.assert_array_equal(decode_image(grey_tiff(grey8, 8, 0), "x")[..., 0], 255 - grey8)
    packed = np.frombuffer(bytes.fromhex("FFF000800400"), np.uint8).reshape(1, 6)  # fff 000 800 400
    data = grey_tiff(packed, 12, 1, extra={256: (4, 4)}.items())
    assert decode_image(data, "x")[0, :, 0].tolist() == [255, 0, 128, 64]


@pytest.mark.parametrize(("white", "peak"), [(1, 0.8), (255, 200), (65535, 60000), (1e6, 1e6)])
def test_floats_have_the_smallest_white_that_holds_them(white, peak):
    grey = np.array([[0, peak / 2, peak, -3, np.nan]], np.float32)
    pixels = decode_image(encode(grey, "TIFF"), "x")
    expected = np.array([0, peak / 2 / white * 255, peak / white * 255, 0, 0])
    assert np.abs(pixels[0, :, 1] - expected).max() <= 0.51
    assert decode_image(encode(np.zeros((3, 4), np.float32), "TIFF"), "x").max() == 0
    assert read_or_refuse(encode(np.full((3, 4), np.inf, np.float32), "TIFF")) is not None


def in_depths(pixels):
    """The picture in files of other depths: name -> (data, pixels of 8 bits as a file)."""
    grey = pixels[..., 0]

    def scaled(white, kind):
        return np.floor(pixels.astype(float) * white / 255 + 0.5).astype(kind)

    def png(levels):
        return cv2.imencode(".png", levels[..., ::-1] if levels.ndim == 3 else levels)[1].tobytes()

    bits = {f"{n} in 16": scaled((1 << n) - 1, np.uint16) for n in (8, 10, 12, 14, 16)}
    files = {f"grey {name}": png(levels[..., 0]) for name, levels in bits.items()}
    files |= {f"colour {name}": png(levels) for name, levels in bits.items()}
    files |= {f"tiff {name}": grey_tiff(levels[..., 0], 16, 1) for name, levels in bits.items()}
    files["colour tiff"] = cv2.imencode(".tiff", bits["12 in 16"][..., ::-1])[1].tobytes()
    files |= {f"grey int32 {white}": encode(scaled(white, np.int32)[..., 0], "TIFF") for white in (255, 4095, 65535)}
    files |= {f"grey float {white}": encode((grey / 255 * white).astype("f4"), "TIFF") for white in (1, 255, 4095)}
    return files


def test_a_picture_is_the_same_in_every_depth():
    pixels = picture()
    pixels[-1, -1] = 255  # as most photos have some white
    for name, data in in_depths(pixels).items():
        expected = pixels if name.startswith("colour") else np.dstack([pixels[..., 0]] * 3)
        np.testing.assert_array_equal(decode_image(data, "x"), expected, name)


def test_a_header_declares_white():
    dim = (picture()[..., 0].astype(np.uint16) * 3) >> 2  # 0 to 191, which alone would be 8 bits
    bright = np.dstack([np.floor(dim * 255 / 4095 + 0.5)] * 3)
    for tag, kind in ((281, 3), (341, 3)):  # MaxSampleValue, SMaxSampleValue
        data = grey_tiff(dim, 16, 1, extra={tag: (kind, 4095)}.items())
        np.testing.assert_array_equal(decode_image(data, "x"), bright)
    png = cv2.imencode(".png", dim)[1].tobytes()
    chunk = b"sBIT" + bytes([12])
    declared = png[:33] + (1).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big") + png[33:]
    np.testing.assert_array_equal(decode_image(declared, "x"), bright)
    np.testing.assert_array_equal(decode_image(png, "x"), np.dstack([dim] * 3))
    pgm = b"P5 54 48 4095\n" + dim.astype(">u2").tobytes()
    assert np.abs(decode_image(pgm, "x") - bright).max() <= 1
    assert (decode_picture(png, "x", rules=Rules(white=4095)).pixels == bright).all(), "of a collection"
    assert (decode_picture(declared, "x", rules=Rules(white=65535)).pixels == bright).all(), "the header is surer"


def test_white_of_a_collection(tmp_path):
    levels = picture()[..., 0].astype(np.uint16)
    for number, white in enumerate([4095, 4095, 4095, 500, 500, 65535]):  # three dim or other ones of seven
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.floor(levels * (white / levels.max())).astype(np.uint16))
    cv2.imwrite(str(tmp_path / "mask.tif"), levels >> 7)
    (tmp_path / "a.jpg").write_bytes(encode(picture(), "JPEG"))
    (tmp_path / "broken.png").write_bytes((tmp_path / "0.png").read_bytes()[:60])
    paths = find_images(tmp_path)
    assert images.common_white(paths) == (4095, 6, (tmp_path / "3.png", tmp_path / "4.png"))
    assert images.common_white([tmp_path / "a.jpg", tmp_path / "gone.png"]) == (0, 0, ())


@pytest.mark.parametrize("color", [False, True])
def test_ten_bits_among_twelve_are_told_by_their_brightest_level(color):
    """Overexposed parts are at 1023 to the unit; an exposure that is dim is hardly ever."""
    pixels = picture() if color else picture()[..., 0]
    pixels[-1, -1] = 255
    ten = np.floor(pixels.astype(float) * 1023 / 255 + 0.5).astype(np.uint16)
    rules = Rules(white=4095)
    for levels, is_bright in ((ten, True), (np.minimum(ten, 1000), False)):
        data = cv2.imencode(".png", levels)[1].tobytes()
        read = decode_picture(data, "x", rules=rules).pixels
        assert abs(int(read.max()) - (255 if is_bright else 62)) <= 1
        old = decode_picture(data, "x", rules=Rules(version=2, white=4095)).pixels
        assert old.max() == (64 if is_bright else 62), "runs of before read as they did"


@pytest.mark.parametrize(("kind", "upper_half"), [(1, [128, 255]), (2, [0, 0])])
def test_32_bits_from_2_to_the_31_are_bright(kind, upper_half):
    """Unless they are of signed numbers, of which the upper half is negative."""
    levels = np.linspace(0, 2**32 - 1, 64 * 48).reshape(48, 64).astype(np.uint32)
    data = grey_tiff(levels, 32, 1, sample_format=kind)
    assert decode_picture(data, "x").pixels[[24, -1], [0, -1], 0].tolist() == upper_half
    assert decode_picture(data, "x", rules=Rules(version=2)).pixels[[24, -1], [0, -1], 0].tolist() == [0, 0]


def test_channels_that_are_no_colours():
    pixels = np.concatenate([picture(), picture()[::-1]], axis=2)
    planes = [np.ascontiguousarray(pixels[..., i]) for i in range(5)]
    n, size = len(planes), planes[0].nbytes
    head = 8 + 2 + 12 * 12 + 4
    lists = {258: [8] * n, 273: [0] * n, 279: [size] * n, 338: [0, 0]}
    start = head + sum(len(values) * 4 for values in lists.values())
    lists[273] = [start + i * size for i in range(n)]

    def planar(photometric, extra):
        tags = {256: (4, [54]), 257: (4, [48]), 258: (4, lists[258]), 259: (3, [1]), 262: (3, [photometric])}
        tags |= {273: (4, lists[273]), 277: (3, [n]), 278: (4, [48]), 279: (4, lists[279]), 284: (3, [2])}
        tags |= {338: (4, extra), 339: (3, [1])}
        body, entries = b"", b""
        for tag, (kind, values) in sorted(tags.items()):
            value = values[0] if len(values) == 1 else head + len(body)
            body += struct.pack(f"<{len(values)}I", *values) if len(values) > 1 else b""
            entries += struct.pack("<HHII", tag, kind, len(values), value)
        data = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4) + body
        return data.ljust(start, b"\0") + b"".join(plane.tobytes() for plane in planes)

    np.testing.assert_array_equal(decode_image(planar(2, [0, 0]), "x"), picture())
    with pytest.raises(ImageError, match="unsupported kind .5 channels that are no colours; save one of them, or RGB"):
        decode_image(planar(1, [0, 0, 0, 0]), "x")


@pytest.mark.parametrize("tile", [None, (16, 16)])
def test_deep_colors_in_planes_of_their_own(tmp_path, tile):
    """Pillow takes the bytes of such planes for levels, unless they are compressed; OpenCV mixes the planes up."""
    tifffile = pytest.importorskip("tifffile")
    planes = picture().transpose(2, 0, 1).astype(np.uint16) * 257
    for compression in (None, "zlib"):
        file = tmp_path / f"{compression}.tif"
        tifffile.imwrite(file, planes, photometric="rgb", planarconfig="separate", tile=tile, compression=compression)
    np.testing.assert_array_equal(read_image(tmp_path / "zlib.tif"), picture())
    with pytest.raises(ImageError, match="16 bits in separate planes are not supported; save it interleaved"):
        read_image(tmp_path / "None.tif")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation(kind, orientation):
    # How the camera lay: what has to be undone.
    mirrored = picture()[:, ::-1] if orientation in (2, 4, 5, 7) else picture()
    stored = np.rot90(mirrored, {1: 0, 2: 0, 3: 2, 4: 2, 5: 1, 6: 1, 7: -1, 8: -1}[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(np.ascontiguousarray(stored), kind, exif=exif)
    assert difference(decode_image(data, "x"), picture()) < 5


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_large_jpeg_is_decoded_at_reduced_size(tmp_path, orientation):
    """The pixels are those of the whole picture in small, upright; the size is that of the picture itself."""
    whole = cv2.resize(np.random.default_rng(0).integers(0, 256, (5, 8, 3), dtype=np.uint8), (800, 500))
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a.jpg").write_bytes(encode(whole, "JPEG", exif=exif))
    full = read_image(tmp_path / "a.jpg")
    for min_side, shorter in ((None, 500), (251, 500), (250, 250), (100, 125), (1, 63)):
        pixels, *size = read_picture(tmp_path / "a.jpg", min_side=min_side)
        assert tuple(size) == full.shape[:2]
        assert min(pixels.shape[:2]) == shorter
        small = cv2.resize(full, pixels.shape[1::-1], interpolation=cv2.INTER_AREA)
        assert np.abs(pixels.astype(int) - small).mean() < 4
    (tmp_path / "a.png").write_bytes(encode(whole, "PNG"))
    pixels, *size = read_picture(tmp_path / "a.png", min_side=1)
    assert pixels.shape[:2] == tuple(size) == (500, 800)


def test_broken_exif_does_not_spoil_the_picture():
    for kind in ("PNG", "WEBP", "JPEG"):
        data = encode(picture(), kind, exif=b"Exif\0\0rubbish")
        assert difference(decode_image(data, "x"), picture()) < 5


def test_first_frame_of_animations_and_documents():
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "lime", "blue")]
    for kind in ("GIF", "PNG", "WEBP", "TIFF", "AVIF"):
        options = {"WEBP": {"lossless": True}, "AVIF": {"quality": 100, "subsampling": "4:4:4"}}.get(kind, {})
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert np.abs(decode_image(data, "x").astype(int) - (255, 0, 0)).max() <= (2 if kind == "AVIF" else 0)


def test_reasons(tmp_path):
    damaged = bytearray(encode(picture(), "PNG"))
    damaged[60] ^= 0xFF
    for data, reason in [
        (b"", "empty file"),
        (b"%PDF-1.7\n", "unsupported kind (PDF)"),
        *((data, "not an image") for data in (b"Dear diary,\n", b"BMW, the story", b"<html><body>404", bytes(500))),
        *((encode(picture(), kind)[:-90], "truncated") for kind in ("PNG", "WEBP", "BMP")),
        (encode(picture(), "JPEG")[:-2], "truncated"),
    ]:
        assert reason_of(data) == reason
    assert reason_of(bytes(damaged)).startswith("damaged (")

    null = "embedded null byte" if sys.version_info < (3, 13) else "stat: embedded null character in path"
    for path, reason in [
        (tmp_path / "none.jpg", "cannot be read (no such file or directory)"),
        (tmp_path, "not a file (a folder)"),
        ("a\0b.jpg", f"cannot be read ({null})"),
    ]:
        with pytest.raises(ImageError) as caught:
            read_image(path)
        assert (caught.value.reason, caught.value.path) == (reason, path)


@needs_posix
@pytest.mark.timeout(60)
def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    for path, kind in [(tmp_path / "pipe.jpg", "named pipe"), ("/dev/zero", "device")]:
        with pytest.raises(ImageError, match=f"not a file .a {kind}."):
            read_image(path)


@pytest.fixture
def blocked(tmp_path, monkeypatch):
    """A file whose opening does not return before the test ends."""
    path, ended = tmp_path / "blocked.jpg", threading.Event()
    path.write_bytes(b"some")

    def wait_or_open(file, *arguments, **options):
        if file == path:
            ended.wait()
        return open(file, *arguments, **options)

    monkeypatch.setattr(images, "open", wait_or_open, raising=False)
    yield path
    ended.set()


@pytest.mark.timeout(60)
def test_a_file_whose_read_does_not_end_is_refused_and_the_next_is_read(blocked, tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(encode(picture(), "PNG"))
    for _ in range(2):
        refused = pytest.raises(ImageError, match=r"blocked\.jpg: reading it takes longer than 0\.4 s")
        with refused, monkeypatch.context() as patch:
            patch.setattr(images, "READ_SECONDS", 0.4, raising=False)
            read_image(blocked)
        check(read_image(tmp_path / "a.png"))
    before = set(threading.enumerate())  # those of other tests may end at any time
    for _ in range(5):
        read_image(tmp_path / "a.png")
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "file reader"]


@pytest.mark.timeout(60)
def test_no_thread_waits_for_a_file_once_reading_is_stopped(blocked, tmp_path, monkeypatch):
    monkeypatch.setattr(images, "_stopped", threading.Event())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        read = pool.submit(read_image, blocked)
        time.sleep(0.1)
        assert not read.done()
        images.stop_reading()
        assert read.exception(timeout=50).reason == "interrupted"
    with pytest.raises(ImageError, match="interrupted"):
        read_image(tmp_path / "none.jpg")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_files_without_a_size_are_empty(tmp_path):
    """Some of /proc never end, such as the kernel's log."""
    (tmp_path / "x.jpg").symlink_to("/proc/self/status")
    with pytest.raises(ImageError, match="empty file"):
        read_image(tmp_path / "x.jpg")


@needs_posix
def test_huge_file_is_not_read(tmp_path):
    path = tmp_path / "huge.png"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ImageError, match="too large: 1,099,511,627,776 bytes is over the limit"):
        read_image(path)
    for kind in ("PNG", "JPEG"):
        data = encode(picture(10, 20), kind)
        decode_image(data, "x", max_pixels=200)
        with pytest.raises(ImageError, match="x: too large: 20 x 10 pixels is over the limit of 199"):
            decode_image(data, "x", max_pixels=199)


def test_error_is_one_line_and_can_be_pickled():
    error = ImageError(pathlib.Path(os.fsdecode(b"a\nb \x1b[31m\xff.jpg")), "truncated")
    assert str(error) == r"a\nb \x1b[31m\xff.jpg: truncated"
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.reason, str(again)) == (error.path, error.reason, str(error))
    assert isinstance(error, ValueError)
    assert printable('Zoë\'s "cat" 猫.jpg') == 'Zoë\'s "cat" 猫.jpg'


@needs_posix
@pytest.mark.parametrize("name", [b"a b.jpg", b'it\'s "1".jpg', b"a\nb.jpg", b"\xff\xfe.jpg", b"-r.jpg", b"%d*.jpg"])
def test_strange_names(name, tmp_path):
    path = tmp_path / os.fsdecode(name)
    try:
        path.write_bytes(encode(picture(), "JPEG"))
    except OSError:
        pytest.skip("this file system refuses such names")
    assert find_images(tmp_path) == [path]
    check(read_image(path))
    path.write_bytes(b"no")
    with pytest.raises(ImageError, match="not an image") as caught:
        read_image(path)
    assert "\n" not in str(caught.value)


def _exif(date):
    exif = Image.Exif()
    exif[0x0132] = date
    return exif


def every_encoding():
    rgb = Image.fromarray(picture())
    grey, palette, mask = rgb.convert("L"), rgb.quantize(64), rgb.convert("1")
    return {
        "jpeg": encode(rgb, "JPEG"),
        "jpeg-progressive": encode(rgb, "JPEG", progressive=True),
        "jpeg-thumbnail": encode(rgb, "JPEG", exif=b"Exif\0\0" + encode(rgb, "JPEG")),
        "jpeg-cmyk": encode(rgb.convert("CMYK"), "JPEG"),
        "png": encode(rgb, "PNG"),
        "png-palette": encode(palette, "PNG"),
        "png-16": encode(np.asarray(grey).astype(np.uint16) * 256, "PNG"),
        "webp": encode(rgb, "WEBP"),
        "webp-lossless": encode(rgb.convert("RGBA"), "WEBP", lossless=True),
        "bmp": encode(rgb, "BMP"),
        "bmp-palette": encode(palette, "BMP"),
        "tiff": encode(rgb, "TIFF"),
        "tiff-header-first": grey_tiff(np.asarray(grey), 8, 1),
        "tiff-lzw": encode(rgb, "TIFF", compression="tiff_lzw"),
        "tiff-deflate": encode(rgb, "TIFF", compression="tiff_adobe_deflate"),
        "tiff-jpeg": encode(rgb, "TIFF", compression="jpeg"),
        "tiff-fax": encode(mask, "TIFF", compression="group4"),
        "gif": encode(palette, "GIF"),
        "avif": encode(rgb, "AVIF"),
        "jp2": encode(rgb, "JPEG2000"),
        "j2k-16": encode(Image.fromarray(picture()[..., 0].astype(np.uint16) * 16), "JPEG2000", no_jp2=True),
        "jpeg-exif": encode(rgb, "JPEG", exif=_exif("2024:05:04 00:00:01")),
        **({"heic": HEIC.read_bytes()} if importlib.util.find_spec("pi_heif") else {}),
        "ppm": encode(rgb, "PPM"),
    }


ENCODINGS = every_encoding()


@pytest.mark.parametrize("name", ENCODINGS)
def test_cut_short_is_never_read_as_another_picture(name):
    data = ENCODINGS[name]
    whole = decode_image(data, "x")
    lengths = {*range(0, len(data), 1 + len(data) // 150), *range(max(0, len(data) - 20), len(data))}
    for length in sorted(lengths):
        pixels = read_or_refuse(data[:length])
        if pixels is not None:  # only padding or an end mark was lost
            np.testing.assert_array_equal(pixels, whole)
            assert length > len(data) - 25, f"read although cut to {length} of {len(data)} bytes"
            assert not name.startswith("jpeg")


@pytest.mark.parametrize("name", ENCODINGS)
def test_damaged_bytes(name):
    rng = np.random.default_rng(0)
    data = ENCODINGS[name]
    for part in (0.1, 0.5, 0.9):
        length = int(len(data) * part)
        pixels = read_or_refuse(data[:length] + bytes(len(data) - length))
        assert pixels is None or not name.startswith(("jpeg", "png"))
    for trial in range(100):
        damaged = bytearray(data)
        where = rng.integers(0, min(len(data), 200) if trial % 2 else len(data), size=1 + trial % 5)
        for position in where:
            damaged[position] = rng.integers(0, 256)
        read_or_refuse(bytes(damaged))


def test_what_follows_a_jpeg_is_ignored():
    data = encode(picture(), "JPEG")
    whole = decode_image(data, "x")
    for tail in (b"\0" * 1000, b"\xff\xd8\xff\xe0", data[:500], b"\r\n"):
        np.testing.assert_array_equal(decode_image(data + tail, "x"), whole)


def png_claiming(width, height):
    data = bytearray(encode(picture(), "PNG"))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


def jpeg_claiming(width, height, progressive=False):
    data = bytearray(encode(picture(), "JPEG", progressive=progressive))
    frame = data.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def small_claiming(width, height, kind):
    """The size of a BMP or a GIF lies at a fixed place."""
    data = bytearray(encode(Image.fromarray(picture()).quantize(64), kind))
    place, form = {"BMP": (18, "<ii"), "GIF": (6, "<HH")}[kind]
    struct.pack_into(form, data, place, width, height)
    return bytes(data)


def webp_claiming(width, height):
    data = bytearray(encode(Image.fromarray(picture()), "WEBP", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0"))
    assert data[12:16] == b"VP8X"
    data[24:30] = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return bytes(data)


def tiff_claiming(width, height, **tags):
    extra = {256: (4, width), 257: (4, height), 278: (4, height)}
    extra |= {int(tag[1:]): value for tag, value in tags.items()}
    return grey_tiff(picture()[..., 0], 8, 1, extra=extra.items())


def tiled(side, compression=1):
    strips, tiles = dict.fromkeys(("t273", "t278", "t279")), {"t324": (4, 200), "t325": (4, 100)}
    return {"t259": (3, compression), "t322": (4, side), "t323": (4, side)} | strips | tiles


def bombs():
    """Small files that claim much: name -> (data, what the reason says)."""
    claims = [png_claiming, jpeg_claiming, webp_claiming, tiff_claiming]
    cases = {f.__name__: (f(16000, 16000), "too large") for f in claims}
    cases["bmp"] = small_claiming(16000, 16000, "BMP"), "too large"
    cases["gif"] = small_claiming(65000, 65000, "GIF"), "too large"
    cases["png huge"] = png_claiming(2**31 - 1, 2**31 - 1), "too large"
    cases["png one row"] = png_claiming(90_000_000, 1), "no side may be over"
    cases["tiff one column"] = tiff_claiming(1, 90_000_000, t278=(4, 1)), "no side may be over"
    cases["tiff few strips"] = tiff_claiming(9000, 9000, t278=(4, 1)), "has 1 of 9,000 strips"
    cases["tiff few tiles"] = tiff_claiming(9000, 9000, **tiled(16)), "has 1 of 316,969 strips"
    for compression in (1, 5, 8, 32773):
        for side in (2**14, 2**15, 2**20, 2**31 - 16):
            data = tiff_claiming(54, 48, **tiled(side, compression))
            cases[f"tiff tiles {side} {compression}"] = data, "too large"
        data = tiff_claiming(54, 48, t259=(3, compression), t273=(4, 2**32 - 1))
        cases[f"tiff offset {compression}"] = data, ""
        data = tiff_claiming(54, 48, t259=(3, compression), t279=(4, 2**32 - 1))
        cases[f"tiff bytes {compression}"] = data, "damaged" if compression > 1 else None
    cases["tiff samples"] = tiff_claiming(54, 48, t277=(3, 65535)), "damaged"
    cases["tiff no rows"] = tiff_claiming(54, 48, t278=(4, 0)), "damaged"

    scans = encode(picture(), "JPEG", progressive=True)
    scan = scans[scans.rindex(b"\xff\xc4", 0, scans.rindex(b"\xff\xda")) : -2]
    cases["jpeg scans"] = scans[:-2] + 200 * scan + b"\xff\xd9", "more than 100 scans"
    plain = encode(picture(), "JPEG")
    scan = plain[plain.rindex(b"\xff\xda") : -2]
    cases["jpeg plain scans"] = plain[:-2] + 5000 * scan + b"\xff\xd9", None
    cases["jpeg no scan data"] = plain[: plain.rindex(b"\xff\xda") + 2] + b"\xff\xd9", "truncated"
    cases["jpeg segments"] = b"\xff\xd8" + b"\xff\xe0\0\2" * 2_000_000, "more than 10,000 segments"
    cases["jpeg markers"] = b"\xff\xd8" + b"\xff\x01" * 2_000_000, "more than 10,000 segments"
    cases["jpeg fill"] = b"\xff\xd8" + b"\xff" * 5_000_000, "truncated"
    cases["jpeg rubbish"] = b"\xff\xd8\xff\xe0\0\2" + b"\xff\0" * 2_000_000, "truncated"
    cases["jpeg zero width"] = jpeg_claiming(0, 100), "zero width or height"
    cases["png zero height"] = png_claiming(100, 0), "zero width or height"
    return cases


def test_bombs_are_refused_from_their_header():
    for name, (data, sign) in bombs().items():
        start = time.process_time()
        if sign is None:
            read_or_refuse(data)
        else:
            reason = reason_of(data)
            assert sign in reason, f"{name}: {reason}"
        assert time.process_time() - start < 3, name


@needs_posix
def test_bombs_need_no_memory(tmp_path):
    for number, (data, _) in enumerate(bombs().values()):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    grown = run_python(
        """
        import resource
        from visterm.features import ImageError, find_images, read_image
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = peak()
        for path in find_images(sys.argv[1]):
            try:
                read_image(path)
            except ImageError:
                pass
        print(peak() - before)
        """,
        tmp_path,
    ).stdout
    assert int(grown) < 60_000  # KiB


def webp_of_one_colour(width, height, mode="RGB"):
    return encode(Image.new(mode, (width, height), 1), "WEBP", lossless=True, method=0)


def test_many_pixels_in_a_tiny_file_are_refused_unless_a_blank_image_needs_no_more():
    for data in (
        webp_of_one_colour(2400, 2000),
        webp_of_one_colour(2400, 2000, "RGBA"),
        *(claiming(9000, 9000) for claiming in (png_claiming, jpeg_claiming, tiff_claiming)),
        small_claiming(9000, 9000, "BMP"),
        small_claiming(9000, 9000, "GIF"),
    ):
        size = "2400 x 2000" if data.startswith(b"RIFF") else "9000 x 9000"
        assert reason_of(data) == f"damaged or a decompression bomb: {size} pixels in {len(data):,} bytes"
    data = webp_of_one_colour(2000, 2000)
    assert len(data) < 100
    assert decode_image(data, "x").shape == (2000, 2000, 3)
    page = Image.new("1", (4960, 7016), 1)  # A4 at 600 dots per inch
    assert decode_image(encode(page, "PNG"), "x").min() == 255


@pytest.mark.parametrize("options", [{"quality": 60}, {"lossless": True}])
def test_webp_has_the_bits_that_pillow_gives(options):
    data = encode(picture(47, 53), "WEBP", **options)
    np.testing.assert_array_equal(decode_image(data, "x"), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
@pytest.mark.parametrize(("mode", "most"), [("RGB", 8), ("RGBA", 19)])
def test_memory_of_webp(tmp_path, mode, most):
    """The canvas of Pillow's decoder, its copies and ours take 17 bytes per pixel, and 21 with transparency."""
    n_pixels = 4000 * 2000
    (tmp_path / "a.webp").write_bytes(encode(Image.new(mode, (4000, 2000), 1), "WEBP", quality=0, method=0))
    grown = run_python(
        r"""
        import re
        from visterm.features import read_image
        peak = lambda: 1024 * int(re.search(r"VmHWM:\s*([0-9]+)", open("/proc/self/status").read())[1])
        before = peak()
        read_image(sys.argv[1])
        print(peak() - before)
        """,
        tmp_path / "a.webp",
    ).stdout
    assert int(grown) < most * n_pixels


@functools.cache
def read_odd(path):
    """Pixels of an odd file, or the reason of its refusal; each file is read once."""
    data = path.read_bytes()
    pixels = read_or_refuse(data)
    return reason_of(data) if pixels is None else pixels


# Odd files that have to be refused; all others are read.
REFUSED = {
    "bmp__b__badbitcount.bmp": "unsupported kind",
    "bmp__b__badheadersize.bmp": "unsupported kind",
    "bmp__b__badwidth.bmp": "too large",
    "bmp__b__shortfile.bmp": "truncated",
    "bmp__q__pal8oversizepal.bmp": "damaged",
    "broken_data_stream.png": "damaged",
    "crash-1152ec2d1a1a71395b6f2ce6721c38924d025bf3.tif": "damaged",
    "crash-1185209cf7655b5aed8ae5e77784dfdd18ab59e9.tif": "damaged",
    "crash-2020-10-test.tif": "damaged",
    "crash-338516dbd2f0e83caddb8ce256c22db3bd6dc40f.tif": "damaged",
    "crash-63b1dffefc8c075ddc606c0a2f5fdc15ece78863.tif": "damaged",
    "decompression_bomb.gif": "too large",
    "hopper_unknown_pixel_mode.tif": "unsupported kind",
    "oom-225817ca0f8c663be7ab4b9e717b02c661e66834.tif": "damaged",
    "seek_too_large.tif": "damaged",
    "truncated_end_chunk.png": "truncated",
    "zero_width.gif": "zero width",
}
# Kinds that Pillow may learn to read: either outcome is right.
UNDECIDED = {
    "bmp__q__pal2.bmp",
    "bmp__q__rgb32-111110.bmp",
    "bmp__q__rgba16-4444.bmp",
    "bmp__q__rgba32abf.bmp",
    "hopper_webp.tif",
}


@needs_odd
@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", ODD, ids=lambda path: path.name)
def test_odd_file_is_read_or_refused(path):
    outcome = read_odd(path)
    if path.name in REFUSED:
        assert isinstance(outcome, str)
        assert outcome.startswith(REFUSED[path.name])
    elif path.name not in UNDECIDED:
        assert isinstance(outcome, np.ndarray), outcome


@needs_odd
@pytest.mark.parametrize(
    "names",
    [
        "exif_Landscape_[1368].jpg",
        "exif_Portrait_[1368].jpg",
        "hopper_orientation_[3467].jpg",
        "hopper_orientation_[3468].webp",
        "g4_orientation_[15678].tif",
    ],
)
def test_orientations_of_one_picture_agree(names):
    pictures = [read_odd(path) for path in sorted((DATA / "odd").glob(names))]
    assert len(pictures) >= 4
    for a, b in itertools.pairwise(pictures):
        assert a.shape == b.shape
        step = 1 + a.shape[0] // 400
        assert difference(a[::step, ::step], b[::step, ::step]) < 6


@needs_odd
def test_hopper_looks_the_same_in_every_kind():
    # Blurred, so that palettes, dithering and lossy coding do not matter: a wrong order of channels does.
    def small(name):
        return cv2.resize(read_image(DATA / "odd" / name), (16, 16), interpolation=cv2.INTER_AREA)

    names = [".bmp", ".jpg", ".ppm", ".gif", "_8bit.ppm", "_lzw.tif", "_jpg.tif", "_lzma.tif", "_orientation_3.webp"]
    for name in names:
        assert difference(small(f"hopper{name}"), small("hopper.png")) < 8, name
    grey = cv2.cvtColor(small("hopper.png"), cv2.COLOR_RGB2GRAY)[..., None].repeat(3, axis=2)
    for name in ("2I", "2IR", "4I", "4IR"):
        assert difference(small(f"tiff_gray_2_4_bpp__hopper{name}.tif"), grey) < 16, name
    target = read_image(DATA / "odd" / "tiff_16bit_RGBa_target.png")
    for name in ("strip", "tiled"):
        pixels = read_image(DATA / "odd" / f"tiff_{name}_planar_16bit_RGBa.tiff")
        assert difference(pixels, target) < 2


def test_finds_by_extension_in_the_order_of_bytes(tmp_path):
    names = [f"image{extension[1:]}{extension}" for extension in EXTENSIONS]
    names += ["B.JPG", "a.JpEg", "a/z.png", "a.b/c.png", "a-b/c.png", "deep/er/and/deeper/x.tif", "é.jpg"]
    others = ["notes.txt", "README", "a/movie.mp4", "archive.tar.gz", "jpg"]
    hidden = [".hidden.jpg", ".git/x.jpg", "a/.DS_Store", "a/Thumbs.db", "desktop.ini", "__MACOSX/._x.jpg"]
    for name in names + others + hidden:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    skipped = []
    paths = find_images(tmp_path, on_skip=lambda path, reason: skipped.append((path, reason)))
    assert paths == sorted((tmp_path / name for name in names), key=os.fsencode)
    told = ["__MACOSX", ".git", ".hidden.jpg"]  # not files that no image could be
    assert [str(p.relative_to(tmp_path)) for p, _ in skipped] == sorted(others + told)
    reasons = dict((p.name, reason) for p, reason in skipped)
    assert reasons["notes.txt"] == "not a supported image name (.txt)"
    assert reasons["README"] == "not a supported image name (no extension)"
    assert find_images(str(tmp_path) + os.sep) == paths


def test_previews_and_deleted_files_of_systems_are_skipped(tmp_path):
    systems = ["@eaDir", "#recycle", "$RECYCLE.BIN", "a/@EADIR", "System Volume Information", "lost+found", "@__thumb"]
    systems += ["RECYCLER", "found.000", "~snapshot"]
    systems += ["a/Catalog Previews.lrdata", "b/CaptureOne", "files_trashbin", "A.photoslibrary/resources"]
    hidden = [".Trash-1000", ".thumbnails", ".@__thumb"]
    kept = ["trash", "recycle", "resources", "A.photoslibrary/originals", "eaDir"]  # classes of waste among them
    for folder in systems + hidden + kept:
        (tmp_path / folder / "x").mkdir(parents=True)
        (tmp_path / folder / "x/1.jpg").touch()

    skipped = {}
    paths = find_images(tmp_path, on_skip=skipped.__setitem__)
    assert paths == sorted((tmp_path / folder / "x/1.jpg" for folder in kept), key=os.fsencode)
    expected = {tmp_path / folder: "folder of previews or deleted files" for folder in systems}
    assert skipped == expected | {tmp_path / folder: "hidden by its name" for folder in hidden}
    assert find_images(tmp_path / "@eaDir") == [tmp_path / "@eaDir/x/1.jpg"], "given by its name"


def test_roots(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").touch()
    with pytest.raises(FileNotFoundError, match="no such folder; give the folder") as caught:
        find_images(tmp_path / "no\nne")
    assert "\n" not in str(caught.value)
    with pytest.raises(NotADirectoryError, match=r"a\.jpg: not a folder; give"):
        find_images(tmp_path / "a.jpg")
    assert find_images(tmp_path / ".") == [tmp_path / "a.jpg"]
    monkeypatch.chdir(tmp_path)
    assert find_images(".") == find_images(pathlib.Path()) == [pathlib.Path("a.jpg")]


@needs_posix
@needs_user
def test_unreadable_files_and_folders(tmp_path):
    (tmp_path / "locked").mkdir(mode=0)
    (tmp_path / "a.jpg").touch(mode=0)
    skipped = []
    assert find_images(tmp_path, on_skip=lambda *skip: skipped.append(skip)) == [tmp_path / "a.jpg"]
    assert skipped == [(tmp_path / "locked", "folder cannot be read (permission denied)")]
    with pytest.raises(PermissionError, match="locked: permission denied; give"):
        find_images(tmp_path / "locked")
    with pytest.raises(ImageError, match="permission denied"):
        read_image(tmp_path / "a.jpg")


@needs_posix
@pytest.mark.timeout(60)
def test_links_and_special_files(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "sub").mkdir(parents=True)
    outside.mkdir()
    for path in (root / "a" / "1.jpg", root / "a" / "sub" / "2.jpg", outside / "3.jpg"):
        path.touch()
    (root / "0-first-but-a-link").symlink_to("a")
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "sub" / "self").symlink_to(".")
    (root / "x").symlink_to(outside)
    (root / "y").symlink_to(outside)
    (outside / "back").symlink_to(root)
    (root / "file.png").symlink_to(outside / "3.jpg")
    (root / "broken.jpg").symlink_to("nowhere")
    (root / "loop.jpg").symlink_to("loop.jpg")
    os.mkfifo(root / "pipe.jpg")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)  # a socket's path must be short
        try:
            server.bind("socket.jpg")
        finally:
            os.chdir(here)

    (tmp_path / "link to root").symlink_to(root)
    for top in (root, tmp_path / "link to root"):
        skipped = {}
        paths = find_images(top, on_skip=lambda path, reason, skipped=skipped: skipped.update({path: reason}))
        assert [str(path.relative_to(top)) for path in paths] == ["a/1.jpg", "a/sub/2.jpg", "file.png", "x/3.jpg"]
        assert {str(path.relative_to(top)): reason for path, reason in skipped.items()} == {
            "0-first-but-a-link": f"same folder as {top}/a",
            "a/sub/self": "symlink loop",
            "a/up": "symlink loop",
            "broken.jpg": "broken symlink",
            "loop.jpg": "symlink loop",
            "pipe.jpg": "not a file (a named pipe)",
            "socket.jpg": "not a file (a socket)",
            "x/back": "symlink loop",
            "y": f"same folder as {top}/x",
        }


def test_many_files_are_found_fast(tmp_path):
    for folder in range(20):
        (tmp_path / str(folder)).mkdir()
        for number in range(100):
            (tmp_path / str(folder) / f"{number}.jpg").touch()
    start = time.process_time()
    assert len(find_images(tmp_path)) == 2_000
    assert time.process_time() - start < 5  # 0.02 s


def run_python(code, *arguments, status=0, **options):
    """Run a script in a process of its own."""
    options = {"capture_output": True, "text": True, "timeout": 60} | options
    script = "import os, sys\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], **options)
    assert done.returncode == status, done.stderr
    return done


def test_silence_keeps_messages_and_tracebacks():
    done = run_python(
        """
        from visterm.features import silence_decoders
        print("before", file=sys.stderr)
        original = sys.stderr
        with silence_decoders():
            os.write(2, b"noise of a C library\\n")
            print("within", file=sys.stderr)
            descriptors = os.listdir("/dev/fd") if os.path.exists("/dev/fd") else None
            with silence_decoders():  # idempotent: leaving the inner one changes nothing
                silence_decoders()
                assert descriptors is None or os.listdir("/dev/fd") == descriptors
            os.write(2, b"more noise\\n")
            print("still within", file=sys.stderr)
        assert sys.stderr is original
        os.write(2, b"after\\n")
        silence_decoders()  # and again, for good
        os.write(2, b"noise\\n")
        print("end", file=sys.stderr)
        1 / 0
        """,
        status=1,
    )
    *messages, rest = done.stderr.split("\n", maxsplit=5)
    assert messages == ["before", "within", "still within", "after", "end"]
    assert rest.startswith("Traceback")
    assert rest.endswith("ZeroDivisionError: division by zero\n")


@needs_posix
def test_silence_keeps_the_terminal():
    import pty

    reader, terminal = pty.openpty()
    run_python(
        """
        from visterm.features import silence_decoders
        assert sys.stderr.isatty()
        silence_decoders()
        assert sys.stderr.isatty()
        assert not os.isatty(2)
        print("seen", file=sys.stderr)
        """,
        capture_output=False,
        stderr=terminal,
    )
    os.close(terminal)
    assert os.read(reader, 100).strip() == b"seen"
    os.close(reader)


@needs_posix
def test_silence_without_a_stderr():
    run_python(
        """
        import io
        from visterm.features import silence_decoders
        with silence_decoders():
            pass
        os.close(2)
        sys.stderr = None
        with silence_decoders():
            assert sys.stderr is None
            os.write(2, b"noise")  # open, so that no file of ours takes its number
        try:
            os.write(2, b"noise")
        except OSError:
            pass
        else:
            raise AssertionError("descriptor 2 should be closed again")
        sys.stderr = replaced = io.StringIO()
        with silence_decoders():
            assert sys.stderr is replaced
        """
    )


def test_silence_in_this_process(capfd, monkeypatch):
    monkeypatch.setattr("visterm.features.images._silenced", False)
    level = cv2.utils.logging.getLogLevel()
    stderr = sys.stderr
    with silence_decoders():
        assert cv2.utils.logging.getLogLevel() == cv2.utils.logging.LOG_LEVEL_SILENT
        assert sys.stderr is stderr  # pytest's own, not descriptor 2
        os.write(2, b"noise")
    assert cv2.utils.logging.getLogLevel() == level
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


@needs_odd
def test_odd_files_make_no_noise():
    done = run_python(
        """
        from visterm.features import ImageError, read_image, silence_decoders
        silence_decoders()
        for name in sorted(os.listdir(sys.argv[1])):
            if name.startswith("exif_"):
                continue  # large, and sound
            try:
                read_image(os.path.join(sys.argv[1], name))
            except ImageError:
                pass
        """,
        DATA / "odd",
    )
    assert done.stderr == ""
    assert done.stdout == ""


def test_deep_grey_is_limited_by_memory_and_converted_in_blocks_of_rows(tmp_path):
    """Four bytes per pixel: as many pixels as of RGB would take a third more."""
    Image.fromarray(np.zeros((30, 40), np.float32)).save(tmp_path / "deep.tif")
    assert read_image(tmp_path / "deep.tif", max_pixels=1600).shape == (30, 40, 3)
    with pytest.raises(ImageError, match="30 pixels of 4 bytes each are over the limit of 4,500 bytes"):
        read_image(tmp_path / "deep.tif", max_pixels=1500)
    levels = np.linspace(0, 900, 700 * 3, dtype=np.float32).reshape(700, 3)
    Image.fromarray(levels).save(tmp_path / "deep.tif")
    expected = (levels * np.float32(255 / 1023) + np.float32(0.5)).astype(np.uint8)
    np.testing.assert_array_equal(read_image(tmp_path / "deep.tif")[:, :, 0], expected)


def test_damaged_files_of_many_bits_are_looked_at_without_a_word():
    file = io.BytesIO()
    Image.new("I;16", (40, 30)).save(file, "TIFF", software="x" * 40)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for length in range(8, len(file.getvalue()), 7):
            undeclared_peak(file.getvalue()[:length], "a.tif", 10**6)
    assert not said
