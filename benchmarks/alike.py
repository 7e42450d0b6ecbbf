"""Copies among photos, as ``visterm duplicates`` and the page find them: ``python -m benchmarks alike [--quick]``.

To photos of each set, copies of some of them are added: of half the sides, of JPEG quality 50, without a fortieth of
each side (a crop of 5 % of width and height), and mirrored. Pairs of originals that are found, too, are real copies in
the sets, or errors: they are counted apart, and their names are printed, to be looked at.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import cv2
import numpy as np

from visterm.pipeline.search.duplicates import find_same_pictures
from visterm.pipeline.store.images import Image

from .records import ELAPSED, record, timed
from .vectors import DATA

SETS = {"flowers": "flowers", "textures": "textures", "corel5k": "Corel-5K", "caltech101": "Caltech-101"}
PHOTOS = 400
MARK = " copy"  # in the names of copies
WAYS = ("scaled", "JPEG 50", "cropped", "mirrored")
RECALL = 0.95  # asked, and a precision of 0.99


def copied(pixels: np.ndarray, way: str) -> np.ndarray:
    """A copy of a picture, uint8 (height, width, 3)."""
    height, width = pixels.shape[:2]
    if way == "scaled":
        return cv2.resize(pixels, (max(1, width // 2), max(1, height // 2)), interpolation=cv2.INTER_AREA)
    if way == "cropped":
        y, x = round(height / 40), round(width / 40)
        return pixels[y : height - y, x : width - x]
    return pixels[:, ::-1] if way == "mirrored" else pixels


def plant(name: str, folder: Path, n: int) -> list[tuple[str, str, str]]:
    """Write n photos of a set, and a copy of every second of them; return the pairs with the way of the copy."""
    paths = sorted(path for path in (DATA / name).rglob("*") if path.suffix in (".jpg", ".jpeg"))
    chosen = np.random.default_rng(0).permutation(len(paths))[:n]
    pairs = []
    for number, path in enumerate(paths[i] for i in sorted(chosen)):
        own = folder / f"{number:03}{path.suffix}"
        shutil.copy(path, own)
        if number % 2:
            way = WAYS[number // 2 % len(WAYS)]
            copy = folder / f"{number:03}{MARK}.jpg"
            quality = 50 if way == "JPEG 50" else 90
            cv2.imwrite(str(copy), copied(cv2.imread(str(path)), way), [cv2.IMWRITE_JPEG_QUALITY, quality])
            pairs.append((own.name, copy.name, way))
    return pairs


def measure(name: str, n: int) -> dict:
    """One record: recall, also of each way, and the precision among pairs of which one is a planted copy."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        planted = {tuple(sorted((own, copy))): way for own, copy, way in plant(name, folder, n)}
        paths = sorted(path.name for path in folder.iterdir())
        images = [Image(i, path, path, {}, None, 0, i) for i, path in enumerate(paths)]
        same, took = timed(find_same_pictures, folder, images, 100_000_000, clock=ELAPSED)
    pairs = {tuple(sorted((paths[i], paths[j]))) for i, j in same}
    originals = {pair for pair in pairs if not any(MARK in path for path in pair)}
    for pair in sorted(originals):
        print(f"    {name}, originals of one picture: {', '.join(pair)}", flush=True)
    # A copy of one of two originals that show the same picture is a copy of the other, too.
    of_originals = {sources(pair) for pair in originals}
    judged = {pair for pair in pairs - originals if sources(pair) not in of_originals}
    hits = {pair: pair in pairs for pair in planted}
    ways = {way: np.mean([hit for pair, hit in hits.items() if planted[pair] == way]).item() for way in WAYS}
    recall = sum(hits.values()) / len(hits)
    return record(
        f"alike-{name}",
        f"{SETS[name]}: planted copies that are found to show the same picture",
        f"{RECALL} asked",
        "1.0: all of them",
        {"ours": recall, "peer": RECALL, "ratio": recall / RECALL, "unit": "recall", "n": len(hits)},
        measured=f"once, {len(paths)} photos in {took:.0f} s; "
        + ", ".join(f"{way} {share:.3f}" for way, share in ways.items())
        + f"; precision {len(judged & planted.keys()) / max(len(judged), 1):.3f}",
        originals=len(originals),
    )


def sources(pair: tuple[str, ...]) -> frozenset[str]:
    """Numbers of the originals of two files."""
    return frozenset(path[:3] for path in pair)


def run(quick: bool = False) -> list[dict]:
    """One record per set."""
    return [measure(name, 60 if quick else PHOTOS) for name in (["flowers"] if quick else SETS)]
