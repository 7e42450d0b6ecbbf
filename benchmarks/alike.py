"""Copies among photos, found by ``visterm duplicates``: ``python -m benchmarks alike [--quick]``.

To photos of each set, copies of some of them are added: of half the sides, of JPEG quality 50, without a fortieth of
each side (a crop of 5 % of width and height), and mirrored. A pair of files counts as found if a group "of the same
picture" holds it. Pairs of originals that are found, too, are real copies in the sets, or errors: they are counted
apart, and their paths are printed, to be looked at.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np

from visterm.pipeline import Searcher, find_duplicates
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features
from visterm.pipeline.store.run import Run

from .records import record
from .vectors import DATA

SETS = {"flowers": "flowers", "textures": "textures", "corel5k": "Corel-5K", "caltech101": "Caltech-101"}
KINDS = ("deep", "visterms")
PHOTOS = 400
MARK = " copy"  # in the names of copies
WAYS = ("scaled", "JPEG 50", "cropped", "mirrored")
PRECISION, RECALL = 0.99, 0.95  # asked


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


def measure(name: str, kind: str, n: int) -> dict:
    """One record: recall of each way, and the precision among pairs of which one is a planted copy."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "photos"
        folder.mkdir()
        planted = plant(name, folder, n)
        run = Run(Path(temporary) / "runs" / "photos")
        features(run, load_config(None, [f"features.kind={kind}"]), folder, Console(quiet=True))
        searcher = Searcher(run)
        paths = {image.id: image.path for image in searcher.images}
        same = [group["ids"] for group in find_duplicates(searcher) if group["same"]]
    pairs = {tuple(sorted((paths[a], paths[b]))) for ids in same for a, b in combinations(ids, 2)}
    true = {tuple(sorted(pair[:2])) for pair in planted}
    originals = {pair for pair in pairs if not any(MARK in path for path in pair)}
    # A copy of one of two originals that show the same picture is a copy of the other, too.
    of_originals = {frozenset(path.replace(MARK, "").split(".")[0] for path in pair) for pair in originals}
    with_copy = {
        pair
        for pair in pairs - originals
        if frozenset(path.replace(MARK, "").split(".")[0] for path in pair) not in of_originals
    }
    for pair in sorted(originals):
        print(f"    {name}, {kind}, originals of one picture: {', '.join(pair)}", flush=True)
    recall = len(true & pairs) / len(true)
    of_way = {
        way: np.mean([tuple(sorted(pair[:2])) in pairs for pair in planted if pair[2] == way]).item() for way in WAYS
    }
    return record(
        f"alike-{name}-{kind}",
        f"{SETS[name]}, {kind} vectors: planted copies that `visterm duplicates` calls the same picture",
        f"{RECALL} asked",
        "1.0: all of them",
        {"ours": recall, "peer": RECALL, "ratio": recall / RECALL, "unit": "recall", "n": len(true)},
        measured="once; " + ", ".join(f"{way} {share:.3f}" for way, share in of_way.items()),
        precision=len(true & with_copy) / max(len(with_copy), 1),
        originals=len(originals),
    )


def run(quick: bool = False) -> list[dict]:
    """One record per set and kind of vectors."""
    sets = ["flowers"] if quick else [*SETS]
    return [measure(name, kind, 60 if quick else PHOTOS) for name in sets for kind in KINDS[: 1 if quick else None]]
