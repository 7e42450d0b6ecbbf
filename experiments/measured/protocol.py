"""The protocol that the experiments on photos share: folds, settings chosen on training images, figures.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.2: 40 training and 25 test images per class, five folds;
hyper-parameters and the number of steps by cross-validation on the training images; test images query each
other. Palette, codebook and idf use all 40 training images of a class, validation images included, but no labels.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import StratifiedKFold

from benchmarks.vectors import CACHE, fit_transform, keep, load_vectors
from visterm.retrieval import evaluate_test_test

from .grids import HOPELESS, ROUNDS, Curve, Grid, Point, search

ROOT = Path(__file__).resolve().parents[2]
N_FOLDS = 5
N_INNER_FOLDS = 5
ONE_PAIR = {"pairs_per_query": 1}  # as in the papers: a query is drawn for each triplet
CURVE = 50  # precision at k is measured for k up to this


def load_fold(classes: int, d: int, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """X, y of the training images and X, y of the test images: CSR float32 unit rows of d visterms."""
    X, y, train = load_vectors(d, f"caltech101-{classes}", fold=fold)
    return X[train], y[train], X[~train], y[~train]


def extracted(stem: str, paths: list[Path], train: np.ndarray, seed: int = 0, **options: Any) -> sp.csr_array:
    """Vectors of photos with an extractor fitted on the training photos; kept under build/bench."""
    from visterm.features import VistermExtractor

    sources = b"".join(path.read_bytes() for path in sorted((ROOT / "features").glob("*.py")))
    made_from = zlib.crc32(sources + repr((list(map(str, paths)), train.tolist(), options)).encode())

    def write(path: Path) -> None:
        sp.save_npz(path, fit_transform(VistermExtractor(random_state=seed, **options), paths, train))

    return sp.csr_array(sp.load_npz(keep(CACHE / f"{stem}-{seed}-{made_from:08x}.npz", write)))


def choose(
    grid: Grid,
    X: Any,
    y: Any,
    *,
    n_folds: int = N_INNER_FOLDS,
    grows: bool = True,
    quick: bool = False,
    splits: Sequence[tuple[np.ndarray, np.ndarray]] | None = None,
) -> tuple[Any, list[str]]:
    """The best learner of a grid in the mean of the inner folds, unfitted, and which settings are at the edge.

    The fewest steps are taken whose validation figure is within half a percent of the best. A point that is farther
    than `HOPELESS` behind the best on the first inner fold is not tried on the others, and not chosen; nor is one that
    is so far behind, divided by the number of folds, in the mean of the first two or more.

    The grid's learner keeps a `history_`, or learns at once and has a `score`; X and y are training images of the outer
    fold. `grows` says whether the grid may grow; `quick` takes its middle as it is. `splits`, in place of folds, are
    the rows to learn from and those held out.
    """
    grid = grid.small() if quick else grid
    splits = splits or list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, y))

    def curve(learner: Any, split: tuple[np.ndarray, np.ndarray]) -> Curve:
        shown, held_out = split
        if not hasattr(learner, "n_steps"):  # it learns at once
            return [(None, float(learner.fit(X[shown], y[shown]).score(X[held_out], y[held_out])))]
        learner.set_params(patience=None, refit=False)  # curves of one length
        history = learner.fit(X, y, validation_rows=held_out).history_
        return [(look["step"], look["validation"]) for look in history if look["validation"] is not None][1:]

    leader = [0.0] * len(splits)  # the best figure so far in the mean of the first inner folds, by their number

    def measure(points: list[Point]) -> list[Curve]:
        curves: list[list[Curve]] = [[] for _ in points]  # of each inner fold
        left, behind = list(range(len(points))), {}
        for k, split in enumerate(splits):
            for i in left:
                curves[i].append(curve(grid.at(points[i]), split))
            figures = {i: highest(mean_curve(curves[i])) for i in left}
            leader[k] = max(leader[k], *figures.values())
            behind |= {i: k for i, figure in figures.items() if figure < (1 - HOPELESS / (k + 1)) * leader[k]}
            left = [i for i in left if i not in behind]
            if not left:
                break
        # Those left out count as far behind the leader in the mean of all folds as in that of the last one they saw.
        return [
            [(step, figure * leader[-1] / leader[behind[i]]) if i in behind else (step, figure) for step, figure in own]
            for i, own in enumerate(map(mean_curve, curves))
        ]

    found = search(grid.points(), measure, limits=grid.limits, rounds=ROUNDS if grows and not quick else 0)
    return grid.at(found.point), found.edges


def mean_curve(curves: list[Curve]) -> Curve:
    """The mean of curves of the same steps."""
    return [(alike[0][0], float(np.mean([figure for _, figure in alike]))) for alike in zip(*curves, strict=True)]


def highest(curve: Curve) -> float:
    return max(figure for _, figure in curve)


def figures(system: Any, X: Any, y: np.ndarray) -> dict[str, Any]:
    """Test images query test images: `map`, and `precision` at 1 to `CURVE`.

    Images of the same score rank in the order of their rows, which is random here: rows sorted by class would put those
    that share nothing with the query class by class, which flatters the cosine.
    """
    order = np.random.default_rng(0).permutation(len(y))
    found = evaluate_test_test(system, X[order], y[order])
    return {"map": found.mean_average_precision, "precision": found.precision_curve[:CURVE].tolist()}


def settings_of(learner: Any) -> dict[str, Any]:
    """Parameters that differ from the defaults, as JSON."""
    defaults = type(learner)().get_params()
    return {key: value for key, value in learner.get_params().items() if value != defaults[key]}


def chosen_settings(chosen: Any, grid: Grid, edges: list[str]) -> dict[str, Any]:
    """The settings that were tried, as chosen, with the number of steps; and those at the edge."""
    names = [*grid.axes, *(["n_steps"] if hasattr(chosen, "n_steps") else [])]
    return {"settings": {name: getattr(chosen, name) for name in names}, "edges": edges}
