"""MuSL: systems, one trial of a system, and its measures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, softmax

from benchmarks.musl_data import load_trial
from visterm.learners import MuSL

NEIGHBORS = (1, 5, 10, 20)  # numbers of voters; the paper does not state its own

STARTS = "joint, best of 5 starts"
# Systems to compare, and how each is trained.
SYSTEMS = {
    "one metric": {},
    "joint": {},
    "joint, not re-trained": {"retrain": False},
    STARTS: {"n_starts": 5, "negatives_per_example": 300},
    "k-means": {"grouping": "kmeans"},
    "random": {"grouping": "random"},
}


def accuracy(learner: MuSL, X: np.ndarray, y: np.ndarray, asked: np.ndarray, answered: np.ndarray) -> list[float]:
    """Mean of the diagonal of the confusion matrix in %, for each number of NEIGHBORS."""
    truth = y[asked]
    found = [learner.categorize(X[asked], X[answered], y[answered], n_neighbors=k) for k in NEIGHBORS]
    return [float(100 * np.mean([(votes[truth == c] == c).mean() for c in np.unique(truth)])) for votes in found]


def match(grouping: Sequence[int], other: Sequence[int]) -> int:
    """Number of categories on which two groupings agree under the best pairing of their groups."""
    size = 1 + max(*grouping, *other)
    table = np.zeros((size, size), int)
    np.add.at(table, (np.asarray(grouping), np.asarray(other)), 1)
    rows, columns = linear_sum_assignment(-table)
    return int(table[rows, columns].sum())


def stability(groupings: Sequence[Sequence[int]]) -> float:
    """Mean share in % of the categories on which the groupings of two trials agree."""
    return float(np.mean([100 * match(a, b) / len(a) for a, b in itertools.combinations(groupings, 2)]))


def corrected_stability(groupings: Sequence[Sequence[int]], seed: int = 0) -> float:
    """Stability less that of chance, 0 to 100 % (Lange, Roth, Braun, Buhmann, Neural Computation 16, 2004).

    One less the disagreement of the trials divided by that of random groupings of the same sizes.
    """
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(grouping) for grouping in groupings for _ in range(5)]
    return 100 * (1 - (100 - stability(groupings)) / (100 - stability(shuffled)))


def metrics_of_sources(metrics: np.ndarray, sources: np.ndarray) -> dict[str, int]:
    """The most frequent metric among the categories of each source."""
    return {str(source): int(np.bincount(metrics[sources == source]).argmax()) for source in np.unique(sources)}


def measure(
    *, trial: int, system: str, n_metrics: int, settings: dict[str, Any], validate: bool = False, part: str = ""
) -> dict[str, Any]:
    """Train and test one learner on one trial; with `validate`, on images that choose settings and that no trial tests.

    Result: `accuracy`, `novel` (among categories never seen), `all` (known and novel), each in % for NEIGHBORS; `own`,
    as `novel` with the metric that most known categories of the same source have, and `astray`, how many novel ones
    were given another; `within`, as `novel` among those of the same source, mean of the sources; `grouping` and
    `sources`, a number a known category; `categories` and `photos`, the name and the first training image of each. Of
    the parts, "caltech" has the `accuracy` on Caltech-20, and "evolution" the shares of the metrics in each category,
    round by round.
    """
    if part == "caltech":
        images = load_trial(trial, "caltech101-20", None)
    elif validate:
        images = load_trial(trial, new=None, choosing=True)
    else:
        images = load_trial(trial)
    X, y, known, train = images["X"], images["y"], ~images["novel"], images["train"]
    learner = MuSL(n_metrics=n_metrics, random_state=trial, **(SYSTEMS[system] | settings))
    if part == "caltech" or validate:
        return {"accuracy": accuracy(learner.fit(X[train], y[train]), X, y, ~train, train)}
    if part == "evolution":
        return evolution(learner, X[known & train], y[known & train])
    learner.fit(X[known & train], y[known & train])
    categories, first = np.unique(y, return_index=True)
    source = images["source"][first]
    seen = known[first]
    result = {
        "accuracy": accuracy(learner, X, y, known & ~train, known & train),
        "grouping": learner.metric_of_category_.tolist(),
        "sources": np.unique(source[seen], return_inverse=True)[1].tolist(),
        "categories": categories[seen].tolist(),
        "photos": images["path"][first[seen]].tolist(),
    }
    expected = metrics_of_sources(learner.metric_of_category_, source[seen])
    learner.assign_categories(X[train], y[train])
    result["novel"] = accuracy(learner, X, y, ~known & ~train, ~known & train)
    result["all"] = accuracy(learner, X, y, ~train, train)
    novel_of = [~known & (images["source"] == name) for name in expected]
    within = [accuracy(learner, X, y, rows & ~train, rows & train) for rows in novel_of]
    result["within"] = np.mean(within, axis=0).tolist()
    own = np.where(seen, learner.metric_of_category_, [expected[name] for name in source])
    result["astray"] = int((own != learner.metric_of_category_).sum())
    learner.metric_of_category_ = own
    result["own"] = accuracy(learner, X, y, ~known & ~train, ~known & train)
    return result


def evolution(learner: MuSL, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Along the rounds of grouping: log likelihood a pair of each category and metric, and the weights of two pairs."""
    n_own = np.unique(y, return_counts=True)[1]
    n_negative = n_own * np.minimum(learner.negatives_per_example, len(y) - n_own)
    n_positive = n_own * (n_own - 1)
    n_pairs = n_negative + (n_negative if learner.balanced else n_positive)  # (C,), as they are weighted
    rounds: list[np.ndarray] = []
    learner.set_params(retrain=False).fit(X, y, callback=lambda learned: rounds.append(learned.likelihoods_.copy()))
    L = np.array(rounds)  # (T, C, K)
    shares = softmax(learner.r / n_pairs.sum() * L, axis=2)
    return {
        "categories": np.unique(y).tolist(),
        "likelihoods": (L / n_pairs[:, None]).tolist(),
        "pairs": pair_weights(learner, X, y, shares),
    }


def pair_weights(learner: MuSL, X: np.ndarray, y: np.ndarray, shares: np.ndarray) -> dict[str, dict[str, Any]]:
    """Weight of two pairs under each metric after each round (equation 9), from the share of it that categories have.

    Both are of two images of one category: of all such, those that the category's metric has nearest and farthest in
    the end. The learner was fitted without re-training; `shares` are (T, C, K).
    """
    n_rounds, _, n_metrics = shares.shape
    X = X.toarray() if sp.issparse(X) else np.asarray(X)
    below = [X[:, learner.stump_features_[k]] < learner.stump_thresholds_[k] for k in range(n_metrics)]
    sides = np.stack(below, axis=1)  # (n, K, T)
    codes = np.unique(y, return_inverse=True)[1]
    i, j = np.triu_indices(len(y), 1)
    i, j = i[codes[i] == codes[j]], j[codes[i] == codes[j]]
    own = learner.metric_of_category_[codes[i]]
    distances = (sides[i, own] != sides[j, own]).sum(axis=1)
    t = np.arange(1, n_rounds + 1)
    midpoint = (n_rounds if learner.midpoint == "final" else t) / 2
    found = {}
    for name, pair in (("easy", distances.argmin()), ("difficult", distances.argmax())):
        H = np.cumsum(sides[i[pair]] != sides[j[pair]], axis=1)  # (K, T)
        weights = shares[:, codes[i[pair]]].T * (1 - expit(learner.alpha * (midpoint - H)))
        found[name] = {"category": str(y[i[pair]]), "weights": weights.T.tolist()}
    return found
