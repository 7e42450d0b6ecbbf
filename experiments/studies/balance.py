"""Queries by image and by class (`balance`), on classes of very different size.

The visterms of caltech101. The largest class keeps all of its images, the smallest
a twentieth, training and test images alike, with sizes in geometric steps; which class gets which size is drawn. OASIS
and AROMA are trained with the settings of the command. Writes balance.json.
"""

import json
from pathlib import Path

import numpy as np

from benchmarks.photos import extracted
from visterm.learners import AROMA, OASIS
from visterm.retrieval import evaluate_test_test

FILE = Path(__file__).with_name("balance.json")
SKEW = 20
EARLY = {"validation_fraction": 0.2, "patience": 5, "refit": True, "random_state": 0}
LEARNERS = {
    "oasis": OASIS(n_steps=4_000_000, **EARLY),
    "aroma": AROMA(n_steps=300_000, pass_steps=10_000, **EARLY),
}


def skewed(y: np.ndarray, seed: int) -> np.ndarray:
    """Rows that are kept: of each class a share between 1 and 1 / SKEW, but two images at least."""
    rng = np.random.default_rng(seed)
    classes = np.unique(y)
    shares = rng.permutation(np.geomspace(1, 1 / SKEW, len(classes)))
    rows = []
    for label, share in zip(classes, shares, strict=True):
        members = rng.permutation(np.flatnonzero(y == label))
        rows.append(members[: max(2, round(share * len(members)))])
    return np.sort(np.concatenate(rows))


def measure(seeds: int) -> list[dict]:
    """mAP over all test images, and mean over classes, for each learner, balance and seed."""
    from visterm.pipeline import open_run

    run, _ = extracted("caltech101", "visterms")
    X, y, _, splits, _ = open_run(run.folder)
    rows = []
    for seed in range(seeds):
        train, test = (np.flatnonzero(splits == name) for name in ("train", "test"))
        train, test = train[skewed(y[train], seed)], test[skewed(y[test], seed)]
        for name, learner in LEARNERS.items():
            for balance in ("image", "class"):
                fitted = learner.set_params(balance=balance).fit(X[train], y[train])
                result = evaluate_test_test(fitted, X[test], y[test])
                precisions = result.average_precision
                by_class = np.mean([np.nanmean(precisions[y[test] == label]) for label in np.unique(y[test])])
                rows.append(
                    {
                        "learner": name,
                        "balance": balance,
                        "seed": seed,
                        "map": float(np.nanmean(precisions)),
                        "map_of_classes": float(by_class),
                    }
                )
                print(rows[-1], flush=True)
        FILE.write_text(json.dumps(rows, indent=1) + "\n")  # each seed takes a minute
    return rows


def main(arguments: list[str]) -> None:
    rows = measure(int(arguments[0]) if arguments else 3)
    for name in LEARNERS:
        means = {
            balance: [
                np.mean([one[key] for one in rows if (one["learner"], one["balance"]) == (name, balance)])
                for key in ("map", "map_of_classes")
            ]
            for balance in ("image", "class")
        }
        for balance, (overall, of_classes) in means.items():
            print(f"{name}, by {balance}: mAP {overall:.3f}, mean over classes {of_classes:.3f}")
