"""A collection of the size of the OASIS paper's, made up, and learning from it: ``python -m benchmarks.webscale``.

OASIS-JMLR section 5.2 learned from 2.3 million images of d = 10,000 visterms, some 70 of them in an image, and from the
clicks of 150,000 text queries. Neither is public. This makes a stand-in of any size, in blocks, the same in every run:

- Visterms are numbered as a codebook numbers them, so that those which occur together are neighbours. Groups of
  `GROUP` neighbours have Zipf popularities, an image takes some visterms of each group that it has (`PER_GROUP`).
- A topic prefers some groups, a query mixes `TOPICS_PER_QUERY` topics, and an image takes a part of its groups from its
  query and the rest from all (`FROM_QUERY`): so images of a query share visterms, those of like queries share some, and
  most of what an image has says nothing, as in photographs.
- Queries have heavy-tailed numbers of images, images heavy-tailed numbers of clicks; some belong to two queries.

`python -m benchmarks.webscale statistics` prints its statistics beside those of Caltech-101's vectors, from which the
constants were chosen.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from .vectors import ROOT, keep

D = 10_000  # visterms; a trial in small takes fewer
GROUP = 16  # neighbouring visterms that occur together
ENTRIES = 75  # of an image, drawn; 70 without repetitions
PER_GROUP = 1.45  # visterms that an image takes of a group that it has
POPULARITY = 0.45  # Zipf exponent of groups, and of visterms in one
FROM_QUERY = 0.35  # of an image's groups
N_TOPICS, GROUPS_PER_TOPIC, TOPICS_PER_QUERY = 1_000, 12, 2
SECOND_QUERY = 0.2  # of the images belong to two queries
QUERY_TAIL = 0.8  # Zipf exponent of the images of a query
CLICK_TAIL = 1.2  # Pareto exponent of clicks
IMAGES_PER_QUERY = 18  # on average: 2.7 million images have 150,000 queries
BLOCK = 50_000  # images made at once

SIZES = {"small": (23_000, 4_000), "medium": (230_000, 40_000), "full": (2_300_000, 400_000)}


# -- what all images are made from -------------------------------------------------------------------------------------


class World:
    """Groups, topics and queries; a function of the numbers of images and of visterms alone."""

    def __init__(self, n_images: int, d: int = D) -> None:
        rng = np.random.default_rng(1)
        self.d, n_groups = d, d // GROUP
        self.n_queries = max(20, n_images // IMAGES_PER_QUERY)
        self.groups = cumulated(rng.permutation(zipf(n_groups, POPULARITY)))
        self.topics = np.stack([rng.choice(n_groups, GROUPS_PER_TOPIC, replace=False) for _ in range(N_TOPICS)])
        self.query_topics = rng.integers(0, N_TOPICS, (self.n_queries, TOPICS_PER_QUERY))
        self.queries = cumulated(rng.permutation(zipf(self.n_queries, QUERY_TAIL)))
        self.places = cumulated(zipf(GROUP, POPULARITY))  # popularity of the visterms of a group, in turned order
        self.turns = rng.integers(0, GROUP, n_groups)


def zipf(n: int, exponent: float) -> np.ndarray:
    return np.arange(1, n + 1, dtype=float) ** -exponent


def cumulated(weights: np.ndarray) -> np.ndarray:
    return np.cumsum(weights) / weights.sum()


def choose(sums: np.ndarray, n, rng: np.random.Generator) -> np.ndarray:
    """Places in proportion to the weights that `sums` adds up."""
    return np.searchsorted(sums, rng.random(n), side="right").clip(max=len(sums) - 1)


def make_block(world: World, start: int, n: int) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray, np.ndarray]:
    """Images start ... start + n: unit rows; and their clicks as (image, query, count)."""
    rng = np.random.default_rng([2, start])
    query = choose(world.queries, n, rng)
    # As many groups as an image has visterms, of which it then takes the first so many: few look alike in size.
    sizes = np.maximum(4, ENTRIES * rng.lognormal(-0.18, 0.6, n)).astype(int)
    image = np.repeat(np.arange(n), sizes)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.arange(len(image)) - first  # of an entry within its image
    n_groups = np.maximum(1, (sizes / PER_GROUP).astype(int))[image]
    slot = order % n_groups  # which of the image's groups
    # One draw for each group of each image, read by all entries of that slot.
    topical = rng.random(len(image)) < FROM_QUERY
    topic = world.query_topics[query[image], rng.integers(0, TOPICS_PER_QUERY, len(image))]
    group = np.where(
        topical,
        world.topics[topic, rng.integers(0, GROUPS_PER_TOPIC, len(image))],
        choose(world.groups, len(image), rng),
    )[first + slot]
    place = (choose(world.places, len(image), rng) + world.turns[group]) % GROUP
    columns = (group * GROUP + place).astype(np.int32)
    # Weights of an image fall off as tf-idf does: a few are large.
    values = rng.exponential(1.0, len(image)).astype(np.float32) + np.float32(0.1)
    X = sp.csr_matrix((values, columns, np.concatenate([[0], np.cumsum(sizes)])), shape=(n, world.d))
    X.sum_duplicates()
    norms = np.sqrt(np.add.reduceat(X.data * X.data, X.indptr[:-1]))
    X.data /= np.repeat(norms, np.diff(X.indptr))
    clicks = np.ceil(rng.pareto(CLICK_TAIL, n) + 0.01).clip(max=10_000).astype(np.int32)
    second = np.flatnonzero(rng.random(n) < SECOND_QUERY)
    others = choose(world.queries, len(second), rng)
    images = np.concatenate([np.arange(n), second]) + start
    counts = np.concatenate([clicks, np.ones(len(second), np.int32)])
    return X, images, np.concatenate([query, others]), counts


# -- on disk -----------------------------------------------------------------------------------------------------------


def folder_of(n_images: int, d: int) -> Path:
    """Another one for each version of this file, which decides what is made."""
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    return ROOT / "build" / "webscale" / f"{n_images}-{d}-{version}"


def make(n_images: int, d: int = D, *, progress=None) -> Path:
    """Folder with the images' CSR arrays and their clicks, made where it is missing; a killed run starts again."""
    folder = folder_of(n_images, d)

    def write(marker: Path) -> None:
        world = World(n_images, d)
        folder.mkdir(parents=True, exist_ok=True)
        files = {name: (folder / f"{name}.bin").open("wb") for name in ("indices", "data")}
        lengths, clicks = [np.zeros(1, np.int64)], []
        for start in range(0, n_images, BLOCK):
            X, *click = make_block(world, start, min(BLOCK, n_images - start))
            X.indices.astype(np.int32).tofile(files["indices"])
            X.data.astype(np.float32).tofile(files["data"])
            lengths.append(np.diff(X.indptr))
            clicks.append(click)
            if progress is not None:
                progress(start + X.shape[0])
        for file in files.values():
            file.close()
        indptr = np.cumsum(np.concatenate(lengths))
        np.save(folder / "indptr.npy", indptr.astype(np.int32 if indptr[-1] < 2**31 else np.int64))
        images, queries, counts = (np.concatenate(parts) for parts in zip(*clicks, strict=True))
        y = sp.csr_matrix((counts, (images, queries)), shape=(n_images, world.n_queries), dtype=np.int32)
        for name in ("indptr", "indices", "data"):
            np.save(folder / f"clicks_{name}.npy", getattr(y, name))
        marker.write_text(json.dumps({"n_images": n_images, "entries": int(indptr[-1]), "n_queries": world.n_queries}))

    keep(folder / "made.json", write)
    return folder


def load(n_images: int, d: int = D) -> tuple[sp.csr_array, sp.csr_array]:
    """Images (n_images, d), memory-mapped, and clicks (images x queries)."""
    folder = make(n_images, d)
    indptr = np.load(folder / "indptr.npy")
    arrays = [
        np.memmap(folder / f"{name}.bin", dtype, "r") for name, dtype in (("data", np.float32), ("indices", np.int32))
    ]
    X = sp.csr_array((*arrays, indptr), shape=(n_images, d))
    X.has_canonical_format = True  # as they were made: to look would read all of them
    y = sp.csr_array(
        tuple(np.load(folder / f"clicks_{name}.npy") for name in ("data", "indices", "indptr")),
        shape=(n_images, json.loads((folder / "made.json").read_text())["n_queries"]),
    )
    return X, y


# -- statistics --------------------------------------------------------------------------------------------------------


def statistics(X: sp.csr_matrix, pairs: tuple[np.ndarray, np.ndarray], others: tuple[np.ndarray, np.ndarray]) -> dict:
    """What makes vectors cheap or dear to learn from, and related ones alike."""
    sizes = np.diff(X.indptr)
    often = np.sort(np.bincount(X.indices, minlength=X.shape[1]) / X.shape[0])[::-1]
    lines = [len(np.unique(X.indices[a:b] // GROUP)) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    ones = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), shape=X.shape)

    def mean_dot(M, which):
        return float(M[which[0]].multiply(M[which[1]]).sum() / len(which[0]))

    per_pair = sizes.mean() ** 2 / X.shape[1]  # that two images would share if all visterms were equally frequent
    return {
        "entries": float(sizes.mean()),
        "spread of entries": float(sizes.std() / sizes.mean()),
        "share of images of visterm 1, 100, 1000, 5000": [
            float(often[i] / sizes.mean() * 1000) for i in (0, 99, 999, 4999)
        ],
        "cache lines an entry": float(np.sum(lines) / sizes.sum()),
        "visterms shared by related images, to chance": mean_dot(ones, pairs) / per_pair,
        "by others": mean_dot(ones, others) / per_pair,
        "cosine of related images": mean_dot(X, pairs),
        "of others": mean_dot(X, others),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webscale", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("statistics", "make"))
    parser.add_argument("--size", default="small", choices=SIZES)
    arguments = parser.parse_args()
    n_images = sum(SIZES[arguments.size])
    if arguments.what == "make":
        print(make(n_images, progress=lambda n: print(f"{n:,} images", file=sys.stderr)))
        return
    rng = np.random.default_rng(0)
    X, y = load(n_images)
    by_source = {}
    rows = np.arange(min(20_000, n_images))
    X, y = sp.csr_matrix(X[rows]), sp.csr_matrix(y[rows])
    main_query = np.asarray(y.argmax(axis=1)).ravel()
    by_source["made up"] = statistics(X, *some_pairs(main_query, rng))
    if os.environ.get("VISTERM_DATA"):
        from .vectors import caltech_vectors

        real, labels, _ = caltech_vectors(D)
        real.sort_indices()
        by_source["Caltech-101"] = statistics(
            sp.csr_matrix(real), *some_pairs(np.unique(labels, return_inverse=True)[1], rng)
        )
    print(json.dumps(by_source, indent=1))


def some_pairs(label: np.ndarray, rng: np.random.Generator, n: int = 20_000):
    a, b = rng.integers(0, len(label), (2, 60 * n))
    keep_ = a != b
    same = np.flatnonzero(keep_ & (label[a] == label[b]))[:n]
    other = np.flatnonzero(keep_ & (label[a] != label[b]))[:n]
    return (a[same], b[same]), (a[other], b[other])


if __name__ == "__main__":
    main()
