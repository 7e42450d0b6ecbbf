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

from benchmarks.vectors import CACHE, keep, load_vectors
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
        extractor = VistermExtractor(random_state=seed, **options)
        extractor.fit([path for path, learned in zip(paths, train, strict=True) if learned])
        sp.save_npz(path, sp.csr_matrix(extractor.transform(paths)))

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

    The fewest steps are taken whose validation figure is within half a percent of the best. A point that is
    farther than `HOPELESS` behind the best on the first inner fold is not tried on the others, and not chosen.

    Parameters
    ----------
    grid : Grid
        Its learner keeps a `history_`, or learns at once and has a `score`.
    X, y : training images of the outer fold
    n_folds : int
    grows : bool
        Whether the grid may grow.
    quick : bool
        Take the middle of the grid as it is.
    splits : list of (rows to learn from, rows held out), optional
        In place of folds.
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

    leader = 0.0, 0.0  # the best figure on the first inner fold, and in the mean of all

    def measure(points: list[Point]) -> list[Curve]:
        nonlocal leader
        curves = [curve(grid.at(point), splits[0]) for point in points]
        firsts = [highest(own) for own in curves]
        best = max(leader[0], *firsts)
        behind = [first < (1 - HOPELESS) * best for first in firsts]
        for i in np.flatnonzero(~np.array(behind)):
            alike = [curves[i], *(curve(grid.at(points[i]), split) for split in splits[1:])]
            means = np.mean([[figure for _, figure in own] for own in alike], axis=0).tolist()
            curves[i] = [(step, mean) for (step, _), mean in zip(curves[i], means, strict=True)]
            if firsts[i] == best:
                leader = best, highest(curves[i])
        # Those left out count as far behind the leader in the mean as on the first fold.
        return [
            [(step, figure * leader[1] / leader[0]) for step, figure in own] if out else own
            for own, out in zip(curves, behind, strict=True)
        ]

    found = search(grid.points(), measure, limits=grid.limits, rounds=ROUNDS if grows and not quick else 0)
    return grid.at(found.point), found.edges


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
