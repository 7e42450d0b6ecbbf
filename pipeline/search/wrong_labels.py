"""Labels that are likely wrong: each label of an image is judged by all other images.

The probability of the label, by a logistic regression that is trained without the image, says how well it fits. The
score is the rank of the improbability, from 0 to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.label_edits import LabelEdits
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.vectors import supervision

if TYPE_CHECKING:
    import numpy as np

    from .searcher import Searcher

LISTED = 20
N_FOLDS = 5
_INVERSE_REGULARIZATION = 10.0
_TOLERANCE = 1e-3  # of the logistic regression: ranks need no more
_MOST_STEPS = 100


class JudgedLabels(NamedTuple):
    """What `judge_labels` returns: an entry for each label of each image that can be judged.

    Attributes
    ----------
    images : ndarray of int64, (n,)
        Rows of the images.
    labels, suggested : ndarray of int64, (n,)
        Their labels as numbers of `names`, and of the labels that an image does not have the most probable one.
    score : ndarray of float64, (n,)
        The rank of its improbability, from 0 to 1. The larger, the more likely is the label wrong.
    probability, suggested_probability : ndarray of float64, (n,)
        By the logistic regression that has not seen the image, times the number of the image's labels, at most 1.
    names : ndarray of str, (n_labels,)
    """

    images: np.ndarray
    labels: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    probability: np.ndarray
    suggested_probability: np.ndarray
    names: np.ndarray


def judge_labels(X: Any, y: Any, names: Any = None) -> JudgedLabels:
    """Compute how likely each label of each image is wrong.

    Parameters
    ----------
    X : CSR or dense of float32, shape (n_images, d)
        Unit rows.
    y : array of shape (n_images,), or CSR of shape (n_images, n_labels)
        The label of each image; or where above 0, of several labels. Images without a label are not judged.
    names : sequence of str, optional
        Names of the columns of a CSR y; default: their numbers.

    Returns
    -------
    JudgedLabels
        Without labels of one image: nothing is known of these. Empty where fewer than two labels are left.
    """
    import numpy as np
    from scipy import sparse

    if sparse.issparse(y):
        has = sparse.csr_array(y > 0)
        names = np.arange(has.shape[1]).astype(str) if names is None else np.asarray(names)
    else:
        names, numbers = np.unique(np.asarray(y), return_inverse=True)
        has = sparse.csr_array((np.ones(len(numbers), bool), (np.arange(len(numbers)), numbers)))
    X = sparse.csr_matrix(X) if sparse.issparse(X) else np.asarray(X)
    images, labels = has.nonzero()
    usable = np.bincount(labels, minlength=len(names))[labels] > 1
    images, labels = images[usable].astype(np.int64), labels[usable].astype(np.int64)
    if len(np.unique(labels)) < 2:
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        return JudgedLabels(none, none, none, nothing, nothing, nothing, names)
    rows, places = np.unique(images, return_inverse=True)
    X, own = X[rows], np.zeros((len(rows), len(names)), bool)
    own[places, labels] = True
    probabilities = cross_validated(X, own)
    known = probabilities[places, labels] > 0  # else no image with the label was left to train on
    places, labels = places[known], labels[known]
    best = np.where(own, -np.inf, probabilities).argmax(axis=1)[places]
    n_own = own[places].sum(axis=1)  # that many labels share a sum of 1 where all of them fit
    p, better = np.minimum(n_own * probabilities[places, labels], 1), np.minimum(n_own * probabilities[places, best], 1)
    return JudgedLabels(rows[places], labels, best, _ranks(-p), p, better, names)


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
        first, as of `JudgedLabels`: labels that are less probable than another one, ``suggested``. Without labels that
        people added or confirmed, and images whose file is gone.

    Raises
    ------
    UserError
        The run has no labels that can be judged.
    """
    import numpy as np

    run = searcher.run
    if searcher.config.collection.clicks is not None:
        raise UserError(f"run {run.name} has clicks, and these are no labels that can be wrong")
    y, names = supervision(searcher.images)
    judged = judge_labels(searcher.X, y, names)
    if not len(judged.images):
        some = any(image.labels for image in searcher.images)
        why = "needs two labels of two images each to judge labels" if some else f"has no labels: {WAYS_TO_LABEL}"
        raise UserError(f"run {run.name} {why}")
    confirmed = LabelEdits(run.label_edits).decided().confirmed
    entries: list[dict[str, Any]] = []
    for place in np.argsort(-judged.score, kind="stable").tolist():
        row, label = int(judged.images[place]), str(judged.names[judged.labels[place]])
        image = searcher.images[row]
        p, better = float(judged.probability[place]), float(judged.suggested_probability[place])
        if len(entries) == k:
            break
        if better <= p or (image.id, label) in confirmed or searcher.deleted([row]):
            continue
        entry = {"id": image.id, "path": image.path, "label": label, "score": round(float(judged.score[place]), 4)}
        entry |= {"probability": round(p, 4), "suggested": str(judged.names[judged.suggested[place]])}
        entries.append(entry | {"suggested_probability": round(better, 4)})
    return entries


def cross_validated(X: Any, own: np.ndarray) -> np.ndarray:
    """Probability of each label for each image, by a logistic regression trained without it: (n_images, n_labels).

    `own` says which labels an image has, bool. An image with several labels is trained on once for each; the
    probabilities of an image sum to 1.
    """
    import warnings

    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    folds = _folds(own)
    probabilities = np.zeros(own.shape)
    for fold in range(N_FOLDS):
        training, left_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        images, labels = own[training].nonzero()
        if not len(left_out) or len(np.unique(labels)) < 2:
            continue
        regression = LogisticRegression(C=_INVERSE_REGULARIZATION, tol=_TOLERANCE, max_iter=_MOST_STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.fit(X[training[images]], labels)
        probabilities[np.ix_(left_out, regression.classes_)] = regression.predict_proba(X[left_out])
    return probabilities


def _folds(own: np.ndarray) -> np.ndarray:
    """The fold of each image, such that the images of a label, from the rarest label on, lie in different folds."""
    import numpy as np

    rng = np.random.default_rng(0)
    folds = np.full(len(own), -1)
    for label in np.argsort(own.sum(axis=0), kind="stable"):
        free = rng.permutation(np.flatnonzero(own[:, label] & (folds < 0)))
        folds[free] = (rng.integers(N_FOLDS) + np.arange(len(free))) % N_FOLDS
    return folds


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 to 1; equal values share the mean of theirs."""
    from scipy.stats import rankdata

    return (rankdata(values) - 0.5) / len(values)
