"""Settings of k-NN, one-vs-rest and PAMIR-IA, cross-validated."""

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.annotators import SET
from benchmarks.vectors import load_vectors
from visterm.learners import PAMIR, KNNAnnotator, OneVsRestPA


def main(_: list[str]) -> None:
    for d in (1000, 10_000):
        cross_validate(d)


def cross_validate(d: int) -> None:
    """Precision at 1 in five folds of the training images, for many settings."""
    X, y, train = load_vectors(d, SET)
    X, y = X[train], y[train]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))

    def precision(learner, rows):
        return np.mean(learner.classes_[learner.annotate(X[rows], 1)[0][:, 0]] == y[rows])

    for kind, pass_steps in ((OneVsRestPA, 10_000), (PAMIR, 100_000)):
        print(f"d = {d}, {kind.__name__}: C, then p@1 after each {pass_steps} steps")
        for C in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            curves = np.zeros((5, 10))
            for curve, (learned, asked) in zip(curves, folds, strict=True):
                seen = []
                kind(C=C, n_steps=10 * pass_steps, pass_steps=pass_steps, random_state=0).fit(
                    X[learned],
                    y[learned],
                    callback=lambda learner, seen=seen, asked=asked: seen.append(precision(learner, asked)),
                )
                curve[:] = seen
            print(f"{C:6}", " ".join(f"{value:.3f}" for value in curves.mean(axis=0)))
    print(
        f"d = {d}, KNNAnnotator: neighbours, then p@1 exact, exact with uniform votes, in leaves of 700, 350, 175, 90"
    )
    for n_neighbors in (1, 3, 10, 30, 100):
        variants = [{}, {"weights": "uniform"}, *({"algorithm": "tree", "leaf_size": n} for n in (700, 350, 175, 90))]
        precisions = [
            np.mean(
                [
                    precision(
                        KNNAnnotator(n_neighbors=n_neighbors, random_state=0, **variant).fit(X[learned], y[learned]),
                        asked,
                    )
                    for learned, asked in folds
                ]
            )
            for variant in variants
        ]
        print(f"{n_neighbors:6}", " ".join(f"{value:.3f}" for value in precisions))
