"""How a photo is fitted to the network of deep vectors.

Each way to fit a photo to the input, on four sets of photos: mAP of cosine and of OASIS, by whose similarity all that
it learned counts. Three splits, 40 % of each class tested; test images query test images. Two ways are averages of two
views, which take twice the time of the network, and one has more pixels, which takes 1.3 times.

Vectors and figures are kept in build/bench/fitting, a file for each set and way, so that an interrupted benchmark
resumes; delete a file to measure it again. Writes the table of docs/vectors.md.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.page import DOCS, replace, table
from benchmarks.photos import ALL_LABELS as SETS
from benchmarks.photos import labelled, of_each_class, quality
from benchmarks.records import FIRST, compared, kept_in, record
from benchmarks.vectors import CACHE, DATA, keep
from visterm.features import OnnxEmbedder
from visterm.learners import OASIS, Cosine
from visterm.plugins.vectors.efficientnet import PREPARATION, cached_model

WAYS: dict[str, dict[str, Any]] = {
    "stretch": {"resize": "stretch"},
    "pad": {"resize": "pad"},
    "crop": {"resize": "crop"},
    "crop, keep 0.875": {"resize": "crop", "keep": 0.875},
    "trim": {"resize": "trim"},
    "trim, keep 0.935": {"resize": "trim", "keep": 0.935},
    "crop, keep 0.875, 256 pixels": {"resize": "crop", "keep": 0.875, "size": 256},
}
VIEWS = {  # averages of two ways
    "stretch and crop, keep 0.875": ("stretch", "crop, keep 0.875"),
}
BEFORE = "stretch"  # until 0.3
DEFAULT = "trim, keep 0.935"
FOLDER = CACHE / "fitting"
PAGE = DOCS / "vectors.md"
SPLITS, TEST_SHARE, N_STEPS = 3, 0.4, 200_000
OF_CLASS, OF_COREL = 20, 600  # photos of a large set


def photos(name: str) -> tuple[list[Path], Any]:
    """Paths and labels of a set: of each class of a large one some, and some of Corel-5K with its words."""
    if name != "corel5k":
        paths, y = labelled(name)
        if name == "caltech101":
            rows = [row for c in np.unique(y) for row in np.flatnonzero(y == c)[:OF_CLASS]]
            paths, y = [paths[row] for row in rows], y[rows]
        return paths, y
    words: dict[str, list[str]] = {}
    with open(DATA / name / "labels.csv", newline="") as file:
        for row in csv.DictReader(file):
            words.setdefault(row["path"], []).append(row["label"])
    chosen = sorted(np.random.default_rng(0).permutation(sorted(words))[:OF_COREL])
    names = sorted({word for path in chosen for word in words[path]})
    y = sp.csr_array([[float(word in words[path]) for word in names] for path in chosen], dtype=np.float32)
    return [DATA / name / path for path in chosen], y


def model_of_any_size() -> Path:
    """Path of the network, for inputs of other sizes than 224 x 224, too."""
    import onnx

    def write(path: Path) -> None:
        model = onnx.load(cached_model("float32"))
        for axis, side in ((2, "height"), (3, "width")):
            model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = side
        onnx.save(model, path)

    return keep(FOLDER / "any-size.onnx", write)


def vectors_of(name: str, way: str) -> np.ndarray:
    """Unit vectors of the photos of a set."""
    if way in VIEWS:
        return normalize(np.sum([_raw(name, view) for view in VIEWS[way]], axis=0))
    return normalize(_raw(name, way))


def _raw(name: str, way: str) -> np.ndarray:
    def write(path: Path) -> None:
        settings = PREPARATION | {"keep": 1.0} | WAYS[way] | {"unit": False, "n_jobs": -1}
        np.save(path, OnnxEmbedder(model_of_any_size(), **settings).fit().transform(photos(name)[0]))

    return np.load(keep(FOLDER / f"{name}-{_plain(way)}.npy", write))


def _plain(way: str) -> str:
    return way.replace(",", "").replace(" ", "-")


def measure(name: str, way: str, n_splits: int = SPLITS, X: np.ndarray | None = None) -> list[list[float]]:
    """MAP of cosine and OASIS of each split, of the vectors of a way or other ones."""
    X, y = vectors_of(name, way) if X is None else X, photos(name)[1]
    figures = []
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        if sp.issparse(y):
            test, training = np.split(rng.permutation(len(X)), [round(TEST_SHARE * len(X))])
        else:
            size = round(TEST_SHARE * len(y) / len(np.unique(y)))
            test, training = of_each_class(y, rng, size, None)
        learner = OASIS(n_steps=N_STEPS, random_state=seed, n_jobs=-1).fit(X[training], y[training])
        figures.append([quality(one, X[test], y[test]) for one in (Cosine().fit(X), learner)])
    print(f"    {name}, {way}: cosine {np.mean(figures, axis=0)[0]:.3f}, OASIS {np.mean(figures, axis=0)[1]:.3f}")
    return figures


Results = dict[tuple[str, str], np.ndarray]  # by set and way: mAP of cosine and OASIS, means of splits


def records_of(results: Results) -> list[dict]:
    """The default beside stretching, which it replaced: of each set, cosine and OASIS."""
    return [
        record(
            f"fitting-{name}-{measured}",
            f"{measured} on deep vectors by default ({DEFAULT}): {title}",
            "the whole photo stretched, as until 0.3",
            FIRST,
            compared(results[name, DEFAULT][i], results[name, BEFORE][i], "mAP", SPLITS, higher=True),
            measured=f"means of {SPLITS} splits; OASIS of {N_STEPS:,} triplets",
        )
        for name, title in SETS.items()
        for i, measured in enumerate(("cosine", "oasis"))
    ]


def write(results: Results) -> None:
    """Replace the table of the page."""
    ways = [*WAYS, *VIEWS]
    rows = []
    for way in ways:
        of_sets = [results[name, way] for name in SETS]
        rows.append([way, *(f"{cosine:.3f} / {oasis:.3f}" for cosine, oasis in (*of_sets, np.mean(of_sets, axis=0)))])
    head = ("mAP of cosine / OASIS", *(title.partition(",")[0] for title in SETS.values()), "Mean")
    replace(PAGE, "fitting", table(head, rows))


def run(quick: bool = False) -> list[dict]:
    if quick:
        measure("flowers", DEFAULT, 1)
        return []
    results: Results = {}
    for way in (*WAYS, *VIEWS):
        for name in SETS:
            file = FOLDER / f"{name}-{_plain(way)}-map.json"
            figures = kept_in(file, lambda name=name, way=way: measure(name, way))
            results[name, way] = np.mean(figures, axis=0)
    write(results)
    return records_of(results)
