"""Learning curves: the systems, the vectors they learn from, and what is measured along their steps."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize

from benchmarks.vectors import CACHE, choose_images, keep
from visterm.learners import AROMA, OASIS, Cosine

from .jobs import ROOT
from .protocol import N_FOLDS, ONE_PAIR, figures, load_fold

LEARNERS = {"OASIS": OASIS, "AROMA": AROMA}
# Numbers of steps at which a curve is measured.
POINTS = [
    *(2_500, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 50_000, 75_000, 100_000, 150_000, 200_000),
    *(300_000, 400_000, 500_000),
]
PASS = 2_500
STEPS = 200_000  # of the AROMA paper's figure 3
MORE_STEPS = 1_000_000
FEW_FOLDS = 3
C_TRIED = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0)
R_TRIED = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)

# Systems: learner and parameters.
EUCLIDEAN: tuple[str, dict] = ("Euclidean", {})
PAPER_OASIS: tuple[str, dict] = ("OASIS", {"C": 0.1})
OASIS_FROM_ZERO = ("OASIS", {"C": 0.1, "init": "zero"})
UNLIMITED = ("OASIS", {"C": 1e9, "init": "zero"})
PAPER_AROMA: tuple[str, dict] = ("AROMA", {"r": 0.01})
FROM_IDENTITY = ("AROMA", {"r": 0.01, "init": "identity"})
PAPER_FACTORED = ("AROMA", {"r": 0.01, "covariance": "factored"})
# Another r, to see what it does: nothing here is chosen (experiments/lead.py chooses).
LARGE_R: tuple[str, dict] = ("AROMA", {"r": 10.0})
LARGE_R_FROM_IDENTITY = ("AROMA", {"r": 10.0, "init": "identity"})
LARGE_R_FACTORED = ("AROMA", {"r": 10.0, "covariance": "factored"})
LARGE_C: tuple[str, dict] = ("OASIS", {"C": 1.0})
LARGE_C_FROM_ZERO = ("OASIS", {"C": 1.0, "init": "zero"})
DRAWN = [PAPER_OASIS, PAPER_AROMA, PAPER_FACTORED, LARGE_R]
BOTH_STARTS = [PAPER_OASIS, OASIS_FROM_ZERO, FROM_IDENTITY, PAPER_AROMA]
EVIDENCE = [*BOTH_STARTS[:2], LARGE_R_FROM_IDENTITY, LARGE_R, *BOTH_STARTS[2:], UNLIMITED]

UNIT, WIDE = "tf-idf, unit length", "10,000 visterms"
# Other vectors and splits than the protocol's, which the AROMA paper may have had.
SETTINGS = {
    UNIT: "as everywhere here",
    "tf-idf, not normalised": "counts times idf, as they are",
    "tf, unit length": "without idf",
    "presence and idf, unit length": "whether a visterm occurs, in place of how often (section 5.1 speaks of presence)",
    "5-fold split": "four fifths of all images to learn from, as section 5 says",
}


def tried_of(name: str) -> list[tuple[str, dict]]:
    """The systems whose sensitivity to C or r is measured."""
    if name == "OASIS":
        return [("OASIS", {"C": C}) for C in C_TRIED]
    if name == "AROMA factored":  # a step takes a tenth of a millisecond: three decades alone
        return [("AROMA", {"r": r, "covariance": "factored"}) for r in R_TRIED[1:5]]
    return [("AROMA", {"r": r}) for r in R_TRIED]


def measure(
    learner: str, parameters: dict[str, Any], n_steps: int, classes: int, setting: str, along: bool, fold: int
) -> dict[str, Any]:
    """Figures after `n_steps` and on the way; the test images serve the plots only and choose nothing."""
    X, y, test_X, test_y = vectors(setting, classes, fold)
    if learner == "Euclidean":
        return {"curve": [{"step": n_steps} | ways_to_rank(Cosine().fit(X, y), X, y, test_X, test_y)]}
    curve = []

    def look(learned: Any) -> None:
        if learned.n_steps_ == n_steps or (along and learned.n_steps_ in POINTS):
            point = {"step": learned.n_steps_} | ways_to_rank(learned, X, y, test_X, test_y)
            if along:
                point["training_map"] = figures(learned, X, y)["map"]
            if learner == "AROMA":
                point["variance"] = mean_variance(learned)
            curve.append(point)

    settings = parameters | ONE_PAIR | {"n_steps": n_steps, "pass_steps": PASS, "random_state": fold}
    LEARNERS[learner](**settings).fit(X, y, callback=look)
    return {"curve": curve}


def ways_to_rank(system: Any, X: Any, y: np.ndarray, test_X: Any, test_y: np.ndarray) -> dict[str, float]:
    """Figures of test images that query each other, and precision at 1 for other queries and galleries."""
    own = figures(system, test_X, test_y)
    among_training = system.similarity(X, X)
    np.fill_diagonal(among_training, -np.inf)
    return {
        "p1": own["precision"][0],
        "p10": own["precision"][9],
        "map": own["map"],
        "kept": precision_at_1(system.similarity(test_X, test_X), test_y, test_y),
        "in_training": precision_at_1(system.similarity(test_X, X), test_y, y),
        "among_training": precision_at_1(among_training, y, y),
    }


def mean_variance(learned: AROMA) -> float:
    """Mean of Sigma, or of the diagonal of Lambda; both start at 1."""
    covariance = learned.covariance_
    return float(np.mean(np.diag(covariance[0]) if isinstance(covariance, tuple) else covariance))


def precision_at_1(scores: np.ndarray, of_queries: np.ndarray, of_gallery: np.ndarray) -> float:
    """Share of the queries whose first result is of their class."""
    return float(np.mean(of_gallery[scores.argmax(axis=1)] == of_queries))


def vectors(setting: str, classes: int, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """As `load_fold`, in another setting."""
    if setting == "5-fold split":
        return five_folds(classes, fold)
    X, y, test_X, test_y = load_fold(classes, 10_000 if setting == WIDE else 1000, fold)
    if setting in (UNIT, WIDE):
        return X, y, test_X, test_y
    idf = -np.log(np.maximum((X != 0).sum(axis=0), 1) / X.shape[0])
    return reweighted(X, idf, setting), y, reweighted(test_X, idf, setting), test_y


def five_folds(classes: int, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Four fifths of all images to learn from, also palette, codebook and idf."""
    paths, y, _ = choose_images(f"caltech101-{classes}")
    learned, _ = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(y, y))[fold]
    train = np.isin(np.arange(len(y)), learned)
    X = extracted("five-folds", paths, train, fold)
    return X[train], y[train], X[~train], y[~train]


def extracted(stem: str, paths: list[Path], train: np.ndarray, seed: int, **options: Any) -> sp.csr_array:
    """Vectors of 1,000 visterms that the training images define; kept under build/bench."""
    from visterm.features import VistermExtractor

    sources = b"".join(path.read_bytes() for path in sorted((ROOT / "features").glob("*.py")))
    made_from = zlib.crc32(sources + repr((list(map(str, paths)), train.tolist(), options)).encode())

    def write(path: Path) -> None:
        extractor = VistermExtractor(n_visterms=1000, random_state=seed, **{"max_side": None} | options)
        extractor.fit([path for path, learned in zip(paths, train, strict=True) if learned])
        sp.save_npz(path, sp.csr_matrix(extractor.transform(paths)))

    return sp.csr_array(sp.load_npz(keep(CACHE / f"{stem}-{seed}-{made_from:08x}.npz", write)))


def reweighted(X: Any, idf: np.ndarray, setting: str) -> Any:
    """Rows of unit tf-idf with other weights; their counts are multiples of the least one, which is nearly always 1."""
    counts = sp.csr_array(X, copy=True)
    counts.data /= idf[counts.indices]
    counts.data /= np.repeat(np.minimum.reduceat(counts.data, counts.indptr[:-1]), np.diff(counts.indptr))
    if setting.startswith("presence"):
        counts.data[:] = 1
    if not setting.startswith("tf,"):
        counts.data *= idf[counts.indices]
    return (normalize(counts) if setting.endswith("unit length") else counts).astype(np.float32)
