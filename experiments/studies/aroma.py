"""Settings of AROMA: ``python -m experiments.studies aroma [--dimensions 1000]``, or with ``--pairs``.

Prints the mAP of each r, cross-validated on the training images and on the test images; with ``--pairs``, mAP and
seconds by the number of pairs per query, of the diagonal form on deep vectors.
"""

import argparse

import numpy as np
from sklearn.base import clone

from benchmarks.photos import SETS, folds_of, labelled, quality
from benchmarks.records import ELAPSED, seconds
from benchmarks.vectors import load_vectors
from visterm.features import deep_embedder
from visterm.learners import AROMA, OASIS

from .both import N_TRAIN, split

REGULARISERS = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0)
AGGRESSIVENESS = (0.03, 0.1, 0.3, 1.0)
N_FOLDS = 5


def cross_validated(learner, X, y) -> float:
    """Mean mAP of the images of each fold among each other, learned from the other folds."""
    folds = folds_of(y, N_FOLDS, 0)
    parts = [(folds != k, folds == k) for k in range(N_FOLDS)]
    return float(np.mean([quality(learner.fit(X[rest], y[rest]), X[part], y[part]) for rest, part in parts]))


def compare_pairs() -> None:
    """Print mAP and elapsed seconds, two threads, by pairs per query, of two splits of each set of photos."""
    embedder = deep_embedder(n_jobs=-1)
    for name in SETS:
        paths, y = labelled(name)
        X = embedder.fit_transform(paths)
        for pairs in (1, 8, 32, 128):
            figures = []
            for seed in range(2):
                train, test = split(y, N_TRAIN, seed)
                form = {"n_steps": 100_000, "pass_steps": 5000, "init": "zero", "whiten": False}
                learner = AROMA(pairs_per_query=pairs, random_state=0, n_jobs=2, **form)
                spent = seconds(learner.fit, X[train], y[train], clock=ELAPSED)
                figures.append((spent, quality(learner, X[test], y[test])))
            spent, precision = np.mean(figures, axis=0)
            print(f"{name:14} {pairs:4} pairs: mAP {precision:.4f} after {spent:.1f} s", flush=True)


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.studies aroma", description="mAP of settings of AROMA")
    parser.add_argument("--dimensions", type=int, default=10_000)
    parser.add_argument("--set", default="caltech101-38", dest="name")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--covariance", default="diagonal")
    parser.add_argument("--init", default="zero")
    parser.add_argument("--pairs", action="store_true", help="by the number of pairs per query, on deep vectors")
    arguments = parser.parse_args(options)
    if arguments.pairs:
        compare_pairs()
        return
    X, y, train = load_vectors(arguments.dimensions, arguments.name)
    common = {"n_steps": arguments.steps, "random_state": 0}
    form = {"covariance": arguments.covariance, "init": arguments.init, "pass_steps": 5000, "n_jobs": -1}
    settings = [(f"AROMA r={r:g}", AROMA(r=r, **form, **common)) for r in REGULARISERS]
    settings += [(f"OASIS C={C:g}", OASIS(C=C, **common)) for C in AGGRESSIVENESS]
    print(f"{'':14} {'cross-validated':>16} {'test images':>12}")
    for name, learner in settings:
        inner = cross_validated(clone(learner), X[train], y[train])
        outer = quality(clone(learner).fit(X[train], y[train]), X[~train], y[~train])
        print(f"{name:14} {inner:16.4f} {outer:12.4f}", flush=True)
