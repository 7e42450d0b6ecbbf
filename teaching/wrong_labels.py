"""Labels that are likely wrong: each label of an image is judged by all other images.

How well a label fits is its probability p, by a logistic regression that is trained without the image, times 1 + s,
where s is the share of the nearest images that have it, the nearer the more weight. The score is the rank from 0 to 1,
the worst fit last. `python -m experiments.studies wrong_labels` compares this with each signal alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm import sparse
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.label_edits import LabelEdits
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.vectors import supervision

from .minimum import minimise

if TYPE_CHECKING:
    import numpy as np

    from visterm.pipeline.search.searcher import Searcher
else:
    from visterm import numpy as np

LISTED = 20
N_FOLDS = 5
N_NEIGHBORS = 15
_INVERSE_REGULARIZATION = 3.0
_TOLERANCE = 3e-5  # share of the loss of the logistic regression that a step gains at least: ranks need no more
_MOST_STEPS = 40
_DIRECTIONS = 256  # main directions of dense vectors that it learns from
# What the page lists:
BETTER = 4.0  # a label is checked where another one fits this many times better
MAX_WORK = 2e10  # multiplications in a step of the regression; with more of them the nearest images judge:
FEW_NEIGHBORS = 0.2  # a label is checked where fewer of the nearest images have it,
MOST_NEIGHBORS = 0.5  # and at least these have one other label
MIN_LABEL = 4  # images that a label needs for that, or nearest images that have labels


class JudgedLabels(NamedTuple):
    """Result of `judge_labels`: an entry for each label of each image that can be judged."""

    images: np.ndarray  # int64 (n,), rows of the images
    labels: np.ndarray  # int64 (n,), their labels as numbers of `names`
    suggested: np.ndarray  # int64 (n,), of the labels that an image does not have the one that fits best
    score: np.ndarray  # float64 (n,), the rank of `fit`, from 0 to 1: the larger, the more likely is the label wrong
    # By the logistic regression that has not seen the image, times the number of the image's labels, at most 1.
    probability: np.ndarray
    suggested_probability: np.ndarray
    fit: np.ndarray  # the probability and the neighbours in one number: how well the label fits
    suggested_fit: np.ndarray
    names: np.ndarray  # str (n_labels,)


def judge_labels(X: Any, y: Any, names: Any = None) -> JudgedLabels:
    """Compute how likely each label of each image is wrong.

    Parameters
    ----------
    X : CSR, array or StoredVectors of float32, shape (n_images, d)
        Unit rows. Those with a label are held in memory.
    y : array of shape (n_images,), or CSR of shape (n_images, n_labels)
        The label of each image; or where above 0, of several labels. Images without a label are not judged.
    names : sequence of str, optional
        Names of the columns of a CSR y; default: their numbers.

    Returns
    -------
    JudgedLabels
        Without labels of one image: nothing is known of these. Empty where fewer than two labels are left.
    """
    if sparse.issparse(y):
        has = sparse.csr_array(y > 0)
        names = np.arange(has.shape[1]).astype(str) if names is None else np.asarray(names)
    else:
        names, numbers = np.unique(np.asarray(y), return_inverse=True)
        has = sparse.csr_array((np.ones(len(numbers), bool), (np.arange(len(numbers)), numbers)))
    X = sparse.csr_matrix(X) if sparse.issparse(X) else X
    images, labels = has.nonzero()
    usable = np.bincount(labels, minlength=len(names))[labels] > 1
    images, labels = images[usable].astype(np.int64), labels[usable].astype(np.int64)
    if len(np.unique(labels)) < 2:
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        return JudgedLabels(none, none, none, nothing, nothing, nothing, nothing, nothing, names)
    rows, places = np.unique(images, return_inverse=True)
    X, own = X[rows], np.zeros((len(rows), len(names)), bool)
    own[places, labels] = True
    probabilities = cross_validated(X, own)
    known = probabilities[places, labels] > 0  # else no image with the label was left to train on
    places, labels = places[known], labels[known]
    fits = probabilities * (1 + _shares_of_nearest(X, own))
    best = np.where(own, -np.inf, fits).argmax(axis=1)[places]
    n_own = own[places].sum(axis=1)  # that many labels share a sum of 1 where all of them fit
    p, better = np.minimum(n_own * probabilities[places, labels], 1), np.minimum(n_own * probabilities[places, best], 1)
    fit, better_fit = n_own * fits[places, labels], n_own * fits[places, best]
    _, equal, n_equal = np.unique(-fit, return_inverse=True, return_counts=True)
    ranks = (n_equal.cumsum() - n_equal / 2)[equal] / len(fit)  # from 0 to 1; equal values share the mean of theirs
    return JudgedLabels(rows[places], labels, best, ranks, p, better, fit, better_fit, names)


def judge_run(searcher: Searcher) -> JudgedLabels:
    """Judge the labels of a run's images; UserError if none can be judged."""
    run = searcher.run
    if searcher.config.collection.clicks is not None:
        raise UserError(f"run {run.name} has clicks, and these are no labels that can be wrong")
    y, names = supervision(searcher.images)
    judged = judge_labels(searcher.X, y, names)
    if not len(judged.images):
        some = any(image.labels for image in searcher.images)
        why = "needs two labels of two images each to judge labels" if some else f"has no labels: {WAYS_TO_LABEL}"
        raise UserError(f"run {run.name} {why}")
    return judged


def find_wrong_labels(searcher: Searcher, k: int = LISTED) -> list[dict[str, Any]]:
    """Find labels of a run's images that are likely wrong.

    Parameters
    ----------
    searcher : Searcher
    k : int
        Return so many at most.

    Returns
    -------
    list of dict
        ``{"id", "path", "label", "score", "probability", "suggested", "suggested_probability"}``, the most likely wrong
        first, as of `JudgedLabels`: labels that fit worse than another one, ``suggested``. Without labels that people
        added or confirmed, and images whose file is gone.

    Raises
    ------
    UserError
        The run has no labels that can be judged.
    """
    judged = judge_run(searcher)
    confirmed = LabelEdits(searcher.run.label_edits).decided().confirmed
    entries: list[dict[str, Any]] = []
    for place in np.argsort(-judged.score, kind="stable").tolist():
        row, label = int(judged.images[place]), str(judged.names[judged.labels[place]])
        image = searcher.images[row]
        if len(entries) == k:
            break
        worse = judged.fit[place] < judged.suggested_fit[place]
        if not worse or (image.id, label) in confirmed or searcher.deleted([row]):
            continue
        entry = {"id": image.id, "path": image.path, "label": label, "score": round(float(judged.score[place]), 4)}
        entry |= {"probability": round(float(judged.probability[place]), 4)}
        entry |= {"suggested": str(judged.names[judged.suggested[place]])}
        entries.append(entry | {"suggested_probability": round(float(judged.suggested_probability[place]), 4)})
    return entries


def rules_of_checks() -> dict[str, Any]:
    """Settings that `labels_to_check` depends on, for records."""
    return {
        "neighbors": N_NEIGHBORS,
        "regression": [N_FOLDS, _INVERSE_REGULARIZATION, _TOLERANCE, _MOST_STEPS, _DIRECTIONS],
        "better": BETTER,
        "max_work": MAX_WORK,
        "by_neighbors": [FEW_NEIGHBORS, MOST_NEIGHBORS, MIN_LABEL],
    }


def labels_to_check(searcher: Searcher, neighbors: np.ndarray, n_listed: int) -> list[dict[str, Any]]:
    """Find the labels that the page lists, as of `Overview`: those that another one fits much better, the worst first.

    `neighbors` are the nearest images of each, (n_images, k): evidence, and of very many images what judges.
    """
    if _work(searcher) > MAX_WORK:
        return _unlike_neighbors(searcher, neighbors)[:n_listed]
    try:
        judged = judge_run(searcher)
    except UserError:  # there is nothing to judge
        return []
    clear = np.flatnonzero(judged.suggested_fit >= BETTER * judged.fit)
    check: list[dict[str, Any]] = []
    names = searcher.images.label_names()
    for place in clear[np.argsort(-judged.score[clear], kind="stable")][:n_listed].tolist():
        row = int(judged.images[place])
        entry: dict[str, Any] = {"id": searcher.images[row].id}
        votes, n = _votes(names, neighbors[row])
        for which, labels, probabilities in (
            ("", judged.labels, judged.probability),
            ("suggested_", judged.suggested, judged.suggested_probability),
        ):
            label = str(judged.names[labels[place]])
            entry[which.rstrip("_") or "label"] = label
            entry[f"{which}probability"] = round(float(probabilities[place]), 4)
            entry[f"{which}share"] = round(votes[label] / max(n, 1), 3)
        check.append(entry)
    return check


def _votes(names: list[tuple[str, ...]], neighbors: np.ndarray) -> tuple[Counter[str], int]:
    """How many of some images have each label, and any; `names` are those of all images."""
    near = [names[other] for other in neighbors.tolist()]
    return Counter(label for labels in near for label in labels), sum(bool(labels) for labels in near)


def _unlike_neighbors(searcher: Searcher, neighbors: np.ndarray) -> list[dict[str, Any]]:
    """Labels that the nearest images seldom have, the worst first."""
    images, names = searcher.images, searcher.images.label_names()
    sizes = Counter(label for labels in names for label in labels)
    check: list[dict[str, Any]] = []
    for row, image in enumerate(images):
        votes, n = _votes(names, neighbors[row])
        if n < MIN_LABEL:
            continue
        best, n_best = min(votes.items(), key=lambda vote: (-vote[1], vote[0]))
        for label in image.labels:
            share = votes[label] / n
            clear = share < FEW_NEIGHBORS and n_best >= MOST_NEIGHBORS * n and best not in image.labels
            if sizes[label] >= MIN_LABEL and clear:
                entry = {"id": image.id, "label": label, "probability": None, "share": round(share, 3)}
                suggested = {"suggested": best, "suggested_probability": None, "suggested_share": round(n_best / n, 3)}
                check.append(entry | suggested)
    check.sort(key=lambda entry: (entry["share"] - entry["suggested_share"], entry["id"]))
    return check


def _work(searcher: Searcher) -> float:
    """Multiplications in a step of the regression: labels of images, times numbers of a vector, times labels."""
    X: Any = searcher.X
    labels = [label for image in searcher.images for label in image.labels]
    return len(labels) * (X.nnz / X.shape[0] if sparse.issparse(X) else X.shape[1]) * len(set(labels))


def cross_validated(X: Any, own: np.ndarray) -> np.ndarray:
    """Probability of each label for each image, by a logistic regression trained without it: (n_images, n_labels).

    `own` says which labels an image has, bool. An image with several labels counts once for each; the probabilities of
    an image sum to 1.
    """
    from scipy.special import softmax

    from visterm.learners.sums import one_thread

    folds = _folds(own)
    probabilities = np.zeros(own.shape)
    with one_thread():  # small products: several threads take longer
        X = X if sparse.issparse(X) else _main_directions(np.asarray(X, np.float32))
        for fold in range(N_FOLDS):
            training, left_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            labels = np.flatnonzero(own[training].any(axis=0))
            if not len(left_out) or len(labels) < 2:
                continue
            W, bias = _regression(X[training], own[np.ix_(training, labels)].astype(np.float32))
            probabilities[np.ix_(left_out, labels)] = softmax((X[left_out] @ W + bias).astype(np.float64), axis=1)
    return probabilities


def _main_directions(X: np.ndarray) -> np.ndarray:
    """Vectors from their mean, turned such that features are uncorrelated; without the directions of least variance."""
    from sklearn.utils.extmath import randomized_svd

    X = X - X.mean(axis=0)
    size = min(_DIRECTIONS, *X.shape)
    return np.ascontiguousarray(X @ randomized_svd(X, size, n_iter=3, random_state=0)[2].T)


def _regression(X: Any, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (d, n_labels) and bias of a multinomial logistic regression.

    An image of several `targets`, float32 of 0 and 1, is worth one image for each, without the work of several.
    L-BFGS learns each weight in a scale of its own, from what its feature and its label contribute to the curvature: a
    tenth of the steps, as labels are rare by different degrees.
    """
    from scipy.optimize import minimize

    n_targets = targets.sum()
    each = targets.sum(axis=1, keepdims=True) / n_targets
    targets = targets / n_targets
    penalty = 1 / (_INVERSE_REGULARIZATION * n_targets)
    share = targets.sum(axis=0)
    share = share * (1 - share)
    squares = np.asarray((X.multiply(X) if sparse.issparse(X) else X * X).T @ each)
    scale, scale_of_bias = 1 / np.sqrt(squares * share + penalty), 1 / np.sqrt(share)
    d, n_labels = scale.shape

    def sides(variables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        variables = variables.astype(np.float32)
        return variables[n_labels:].reshape(d, n_labels) * scale, variables[:n_labels] * scale_of_bias

    def loss(variables: np.ndarray) -> tuple[float, np.ndarray]:
        W, bias = sides(variables)
        scores = X @ W + bias
        scores -= scores.max(axis=1, keepdims=True)
        fit = float(np.vdot(targets, scores))
        np.exp(scores, out=scores)
        sums = scores.sum(axis=1, keepdims=True)
        value = float(np.vdot(each, np.log(sums))) - fit + float(penalty * np.vdot(W, W)) / 2
        scores *= each / sums
        scores -= targets
        gradient = np.concatenate([scores.sum(axis=0) * scale_of_bias, ((X.T @ scores + penalty * W) * scale).ravel()])
        return value, gradient.astype(np.float64)

    start = np.zeros((d + 1) * n_labels)
    start[:n_labels] = np.log(targets.sum(axis=0)) / scale_of_bias  # how frequent each label is: fewer steps
    if sparse.issparse(X):  # of many features few steps are remembered: they cost most of the time
        return sides(minimise(loss, start, kept=3, tolerance=_TOLERANCE, most_steps=_MOST_STEPS))
    options = {"maxiter": _MOST_STEPS, "maxcor": 10, "ftol": _TOLERANCE, "gtol": 0}
    return sides(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x)


def _shares_of_nearest(X: Any, own: np.ndarray) -> np.ndarray:
    """Share of the nearest images by cosine that have each label, float32 (n_images, n_labels).

    Weights fall from the nearest image to 0 at the farthest of `N_NEIGHBORS`.
    """
    from visterm.learners import Cosine
    from visterm.retrieval import ExactIndex

    n = len(own)
    nearest = ExactIndex(Cosine().fit(X), X).search(X, min(N_NEIGHBORS, n - 1), exclude=np.arange(n))
    weights = nearest.scores - nearest.scores[:, -1:] + np.float32(1e-6)  # all are equally near: all count the same
    weights /= weights.sum(axis=1, keepdims=True)
    places = np.repeat(np.arange(n), weights.shape[1]), nearest.indices.ravel()
    votes = sparse.csr_array((weights.ravel(), places), shape=(n, n)) @ sparse.csr_array(own.astype(np.float32))
    return np.asarray(votes.toarray())


def _folds(own: np.ndarray) -> np.ndarray:
    """The fold of each image, such that the images of a label, from the rarest label on, lie in different folds."""
    rng = np.random.default_rng(0)
    folds = np.full(len(own), -1)
    for label in np.argsort(own.sum(axis=0), kind="stable"):
        free = rng.permutation(np.flatnonzero(own[:, label] & (folds < 0)))
        folds[free] = (rng.integers(N_FOLDS) + np.arange(len(free))) % N_FOLDS
    return folds
