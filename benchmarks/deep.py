"""Deep vectors: speed, memory, the same photo at another size: ``python -m benchmarks deep [--quick]``.

Peer of speed: OpenCV's DNN module with the same ONNX file on as many threads, fed by ``cv2.imread``. Photos are those
of Caltech-101 as they come (about 300 x 240) and photos of flowers and textures enlarged to 12 megapixels with a
little noise, as a camera would add; see benchmarks/vectors.py for their folder. Two sides take turns; time of the
clock.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from visterm.features import decode_image, deep_embedder
from visterm.features.decoding import decode_picture
from visterm.features.efficientnet import cached_model
from visterm.pipeline.stages.extraction import ImageSource

from .vectors import DATA

COMMAND = "python -m benchmarks deep"
LARGE = 4000  # pixels of the longer side: 12 megapixels at 4 : 3
SIZES = (1, 2, 4, 8)  # a photo's sides are divided by these
SIDE, MEAN, SCALE = 224, 127.0, 1 / 128
# The network runs in threads of the command itself. Not ru_maxrss, in which Linux counts the parent's memory.
PEAK = """
import re, sys
from visterm.pipeline.cli.app import app
app(sys.argv[1:], standalone_mode=False)
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


def enlarge(path: Path, seed: int) -> np.ndarray:
    """Return a photo at 12 megapixels with a little noise, uint8 BGR."""
    photo = cv2.imread(str(path))
    factor = LARGE / max(photo.shape[:2])
    large = cv2.resize(photo, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    noise = np.random.default_rng(seed).integers(-8, 9, (256, 256, 3), dtype=np.int16)
    tiles = [math.ceil(side / 256) for side in large.shape[:2]]
    noise = np.tile(noise, (*tiles, 1))[: large.shape[0], : large.shape[1]]
    return cv2.add(large, noise, dtype=cv2.CV_8U)


def encode(pixels: np.ndarray, quality: int = 90) -> bytes:
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def peer_vectors(paths: list[Path], net: cv2.dnn.Net) -> np.ndarray:
    """Vectors by OpenCV alone, unit rows: decoded in full, the whole image in the input."""
    rows = []
    for path in paths:
        pixels = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
        small = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
        net.setInput(((small - MEAN) * SCALE).transpose(2, 0, 1)[None])
        rows.append(net.forward()[0].copy())
    X = np.array(rows)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def speed(name: str, what: str, paths: list[Path], folder: Path, repeats: int) -> dict:
    embedder = deep_embedder(n_jobs=-1).fit()
    embedder.save(folder / name)
    source = ImageSource(folder / name, name, Path("/"), embedder.max_pixels, 256)
    images = [(i, os.fspath(path)) for i, path in enumerate(paths)]
    net = cv2.dnn.readNetFromONNX(str(cached_model()))
    X, Y, times = None, None, []
    for _ in range(repeats + 1):  # the first is warm-up
        start = time.perf_counter()
        outcomes, X = source.vectors(images, -1)
        middle = time.perf_counter()
        Y = peer_vectors(paths, net)
        times.append((middle - start, time.perf_counter() - middle))
    assert all(outcome.reason is None for outcome in outcomes)
    ours, peer = 1000 * np.median(times[1:], axis=0) / len(paths)
    apart = 1 - (X * Y).sum(axis=1)
    return {
        "name": name,
        "what": what,
        "ours": float(ours),
        "peer": float(peer),
        "peer_name": "cv2.imread and OpenCV's DNN module, the same network",
        "ratio": float(peer / ours),
        "limit": "the network's arithmetic, 0.8 Gflop an image, and decoding",
        "unit": "ms an image",
        "n": len(paths),
        "measured": f"median of {repeats} in turns, {os.cpu_count()} cores, elapsed time; "
        f"cosine distance of the two at most {apart.max():.1g}",
        "command": COMMAND,
        "cosine_distance": float(apart.max()),
    }


def network(n: int) -> dict:
    """The network alone, without files."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(n)]
    embedder = deep_embedder(n_jobs=-1).fit()
    net = cv2.dnn.readNetFromONNX(str(cached_model()))
    halves = [images[: n // 2], images[n // 2 :]]

    def ours() -> np.ndarray:
        with ThreadPoolExecutor(2) as pool:
            return np.concatenate(list(pool.map(embedder.transform, halves)))

    def peer() -> np.ndarray:
        rows = []
        for pixels in images:
            net.setInput(((pixels.astype(np.float32) - MEAN) * SCALE).transpose(2, 0, 1)[None])
            rows.append(net.forward()[0].copy())
        return np.array(rows)

    times = []
    for _ in range(6):
        start = time.perf_counter()
        X = ours()
        middle = time.perf_counter()
        Y = peer()
        times.append((middle - start, time.perf_counter() - middle))
    mine, others = 1000 * np.median(times[1:], axis=0) / n
    apart = float((1 - (X * Y).sum(axis=1) / np.linalg.norm(Y, axis=1)).max())
    return {
        "name": "deep-network",
        "what": "the network of deep vectors, an image of 224 x 224 in memory",
        "ours": float(mine),
        "peer": float(others),
        "peer_name": "OpenCV's DNN module",
        "ratio": float(others / mine),
        "limit": "its arithmetic, 0.8 Gflop an image",
        "unit": "ms an image",
        "n": n,
        "measured": f"median of 5 in turns, {os.cpu_count()} cores, elapsed time; cosine distance at most {apart:.1g}",
        "command": COMMAND,
        "cosine_distance": apart,
    }


def same_photo(n: int, n_others: int) -> dict:
    """Share of photos found first by the same photo, smaller and encoded again, among themselves and others."""
    embedder = deep_embedder(n_jobs=-1).fit()
    chosen = [path for folder in ("flowers", "textures") for path in sorted((DATA / folder).glob("*/*.jpg"))]
    chosen = [chosen[i] for i in np.random.default_rng(0).permutation(len(chosen))[:n]]
    others = sorted((DATA / "caltech101").glob("*/*.jpg"))[:n_others]

    def versions(number: int) -> np.ndarray:
        """Vectors of the photo as it is kept, and of what is searched with: (1 + 2 * sizes, 1280)."""
        large = enlarge(chosen[number], number)
        smaller = [cv2.resize(large, None, fx=1 / f, fy=1 / f, interpolation=cv2.INTER_AREA) for f in SIZES[1:]]
        files = [encode(large), encode(large, 75), *(encode(small, 75) for small in smaller)]
        reduced = [decode_picture(file, "", min_side=embedder.min_side).pixels for file in files]
        return embedder.transform([*reduced, *(decode_image(file, "") for file in files[1:])])

    with ThreadPoolExecutor(2) as pool:
        of_photos = np.array(list(pool.map(versions, range(n))))
        parts = [others[i : i + 64] for i in range(0, len(others), 64)]
        gallery = np.concatenate([of_photos[:, 0], *pool.map(embedder.transform, parts)])
    found = (np.einsum("nvd,gd->nvg", of_photos[:, 1:], gallery).argmax(axis=2) == np.arange(n)[:, None]).mean(axis=0)
    shares, in_full = found[: len(SIZES)], found[len(SIZES) :]
    return {
        "name": "deep-same-photo",
        "what": "photos of 12 megapixels found first by themselves at 1/1 to 1/8 of their sides, encoded again, "
        f"among {len(gallery) - 1:,} others: the least share of the four",
        "ours": 100 * float(shares.min()),
        "peer": 100 * float(in_full.min()),
        "peer_name": "queries decoded in full, not at reduced size",
        "ratio": float(shares.min() / in_full.min()),
        "limit": "100",
        "unit": "% of photos",
        "n": n,
        "measured": "cosine; " + ", ".join(f"1/{f}: {100 * s:.1f} %" for f, s in zip(SIZES, shares, strict=True)),
        "command": COMMAND,
        "shares": [100 * float(share) for share in shares],
    }


def memory(folder: Path, few: int, many: int) -> dict:
    """Peak of ``visterm features --deep``."""
    paths = sorted(
        path for name in ("caltech101", "flowers", "textures", "corel5k") for path in (DATA / name).rglob("*.jpg")
    )

    def peak(n: int) -> float:
        for i in range(n):
            link = folder / f"{n}" / f"{i % 10}" / f"{i}.jpg"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(paths[i % len(paths)].resolve())
        command = [sys.executable, "-c", PEAK, "--quiet", "features", folder / f"{n}", "--deep"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
        return int(done.stdout.split()[-1]) / 1024

    less, more = peak(few), peak(many)
    return {
        "name": "deep-memory",
        "what": f"visterm features --deep of {many:,} photos",
        "ours": more,
        "peer": less,
        "peer_name": f"ourselves with {few:,} photos",
        "ratio": less / more,
        "limit": "1: memory does not depend on the number of images",
        "unit": "MiB at the peak",
        "n": many,
        "measured": "peak resident memory of the command",
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    photos = sorted((DATA / "caltech101").glob("*/*.jpg"))[:: 60 if quick else 10]
    sources = sorted((DATA / "flowers").glob("*/*.jpg"))[:: 180 if quick else 27]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        large = [folder / f"{i}.jpg" for i in range(len(sources))]
        for i, (source, target) in enumerate(zip(sources, large, strict=True)):
            target.write_bytes(encode(enlarge(source, i)))
        repeats = 2 if quick else 5
        return [
            network(20 if quick else 100),
            speed("deep-extract", "a photo of 300 x 240, file to deep vector", photos, folder, repeats),
            speed("deep-extract-12mp", "a photo of 12 megapixels, file to deep vector", large, folder, repeats),
            memory(folder, *((20, 40) if quick else (500, 5000))),
            same_photo(*((4, 100) if quick else (200, 2470))),
        ]
