"""Deep vectors: speed, memory, the same photo at another size: ``python -m benchmarks deep [--quick]``.

Peer of speed: OpenCV's DNN module with the same ONNX file on as many threads, fed by ``cv2.imread``. Photos are those
of Caltech-101 as they come (about 300 x 240) and photos of flowers and textures enlarged to 12 megapixels with a
little noise, as a camera would add; see benchmarks/vectors.py for their folder. Two sides take turns; time of the
clock.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from sklearn.preprocessing import normalize

from visterm.features import decode_image, deep_embedder
from visterm.features.decoding import decode_picture
from visterm.pipeline.stages.extraction import ImageSource
from visterm.plugins.vectors.efficientnet import cached_model

from .photos import encode, enlarged, files_of
from .processes import peak_of_features, temporary_folder
from .records import ELAPSED, compared, race, record

SIZES = (1, 2, 4, 8)  # a photo's sides are divided by these
SIDE, MEAN, SCALE = 224, 127.0, 1 / 128
CLOCK = ELAPSED._replace(title=f"{os.cpu_count()} cores, elapsed time")


def forward(images: list[np.ndarray], net: cv2.dnn.Net) -> np.ndarray:
    """Vectors by OpenCV of pixels of the size of the input, unit rows."""
    rows = []
    for pixels in images:
        net.setInput(((pixels.astype(np.float32) - MEAN) * SCALE).transpose(2, 0, 1)[None])
        rows.append(net.forward()[0].copy())
    return normalize(np.array(rows))


def peer_vectors(paths: list[Path], net: cv2.dnn.Net) -> np.ndarray:
    """Vectors by OpenCV alone: decoded in full, the whole image in the input."""
    photos = (cv2.imread(str(path), cv2.IMREAD_COLOR_RGB) for path in paths)
    return forward([cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA) for pixels in photos], net)


def speed(name: str, what: str, ours, theirs, n: int, repeats: int, peer_name: str, limit: str) -> dict:
    """A record of two functions that return vectors, with the largest cosine distance between them."""
    X, Y = [], []
    times = race(lambda _: X.append(ours()), lambda _: Y.append(theirs()), repeats, CLOCK, unit="ms an image", things=n)
    apart = float((1 - (X[-1] * Y[-1]).sum(axis=1)).max())
    measured = f"{times['measured']}; cosine distance of the two at most {apart:.1g}"
    return record(name, what, peer_name, limit, times | {"n": n, "measured": measured}, cosine_distance=apart)


def of_files(name: str, what: str, paths: list[Path], folder: Path, repeats: int) -> dict:
    embedder = deep_embedder(resize="stretch", n_jobs=-1).fit()  # as the peer
    embedder.save(folder / name)
    source = ImageSource(folder / name, name, Path("/"), embedder.max_pixels, 256, "float32")
    images = [(i, os.fspath(path)) for i, path in enumerate(paths)]
    net = cv2.dnn.readNetFromONNX(str(cached_model("float32")))

    def ours() -> np.ndarray:
        outcomes, X = source.vectors(images, -1)
        assert all(outcome.reason is None for outcome in outcomes)
        return X

    return speed(
        name,
        what,
        ours,
        lambda: peer_vectors(paths, net),
        len(paths),
        repeats,
        "cv2.imread and OpenCV's DNN module, the same network",
        "the network's arithmetic, 0.8 Gflop an image, and decoding",
    )


def network(n: int) -> dict:
    """The network alone, without files."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(n)]
    embedder = deep_embedder(resize="stretch", n_jobs=-1).fit()
    net = cv2.dnn.readNetFromONNX(str(cached_model("float32")))
    halves = [images[: n // 2], images[n // 2 :]]

    def ours() -> np.ndarray:
        with ThreadPoolExecutor(2) as pool:
            return np.concatenate(list(pool.map(embedder.transform, halves)))

    what, limit = "the network of deep vectors, an image of 224 x 224 in memory", "its arithmetic, 0.8 Gflop an image"
    return speed("deep-network", what, ours, lambda: forward(images, net), n, 5, "OpenCV's DNN module", limit)


def same_photo(n: int, n_others: int) -> dict:
    """Share of photos found first by the same photo, smaller and encoded again, among themselves and others."""
    embedder = deep_embedder(n_jobs=-1).fit()
    chosen = files_of("flowers", "textures")
    chosen = [chosen[i] for i in np.random.default_rng(0).permutation(len(chosen))[:n]]
    others = files_of("caltech101")[:n_others]

    def versions(number: int) -> np.ndarray:
        """Vectors of the photo as it is kept, and of what is searched with: (1 + 2 * sizes, 1280)."""
        large = enlarged(chosen[number])
        smaller = [cv2.resize(large, None, fx=1 / f, fy=1 / f, interpolation=cv2.INTER_AREA) for f in SIZES[1:]]
        files = [encode(large), encode(large, 75), *(encode(small, 75) for small in smaller)]
        reduced = [decode_picture(file, "", min_side=embedder.min_side).pixels for file in files]
        return embedder.transform([*reduced, *(decode_image(file, "") for file in files[1:])])

    with ThreadPoolExecutor(2) as pool:
        of_photos = np.array(list(pool.map(versions, range(n))))
        parts = [others[i : i + 64] for i in range(0, len(others), 64)]
        gallery = np.concatenate([of_photos[:, 0], *pool.map(embedder.transform, parts)])
    p_at_1 = (np.einsum("nvd,gd->nvg", of_photos[:, 1:], gallery).argmax(axis=2) == np.arange(n)[:, None]).mean(axis=0)
    shares, in_full = p_at_1[: len(SIZES)], p_at_1[len(SIZES) :]
    return record(
        "deep-same-photo",
        "photos of 12 megapixels found first by themselves at 1/1 to 1/8 of their sides, encoded again, "
        f"among {len(gallery) - 1:,} others: the least share of the four",
        "queries decoded in full, not at reduced size",
        "100",
        compared(100 * float(shares.min()), 100 * float(in_full.min()), "% of photos", n, higher=True),
        measured="cosine; " + ", ".join(f"1/{f}: {100 * s:.1f} %" for f, s in zip(SIZES, shares, strict=True)),
        shares=[100 * float(share) for share in shares],
    )


def memory(folder: Path, few: int, many: int) -> dict:
    """Peak of ``visterm features --deep``, whose network runs in threads of the command itself."""
    photos = files_of("caltech101", "flowers", "textures")
    less, more = (peak_of_features(folder, photos, n, "--deep") for n in (few, many))
    return record(
        "deep-memory",
        f"visterm features --deep of {many:,} photos",
        f"ourselves with {few:,} photos",
        "1: memory does not depend on the number of images",
        compared(more, less, "MiB at the peak", many),
        measured="peak resident memory of the command",
    )


def run(quick: bool = False) -> list[dict]:
    photos, sources = files_of("caltech101")[:: 60 if quick else 10], files_of("flowers")[:: 180 if quick else 27]
    with temporary_folder() as folder:
        large = [folder / f"{i}.jpg" for i in range(len(sources))]
        for source, target in zip(sources, large, strict=True):
            target.write_bytes(encode(enlarged(source)))
        repeats = 2 if quick else 5
        return [
            network(20 if quick else 100),
            of_files("deep-extract", "a photo of 300 x 240, file to deep vector", photos, folder, repeats),
            of_files("deep-extract-12mp", "a photo of 12 megapixels, file to deep vector", large, folder, repeats),
            memory(folder, *((20, 40) if quick else (500, 5000))),
            same_photo(*((4, 100) if quick else (200, 2470))),
        ]
