"""A concept from a few images: which others show it, learned from answers of yes and no.

A logistic regression tells the images that show it from those that do not. The images that nobody was asked about count
as further ones that do not show it: all of them together as much as the images that show it, for they are mostly other
things. The image to ask about is the one that it is least sure of (uncertainty sampling, Lewis and Gale, SIGIR 1994).
`experiments/studies/labelling.py` compares this with other ways to ask.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.labels import check_labels
from visterm.pipeline.store.label_edits import check_label

if TYPE_CHECKING:
    import numpy as np

    from visterm.pipeline.search.searcher import Searcher

_INVERSE_REGULARIZATION = 10.0
_TOLERANCE = 1e-3  # of the logistic regression: ranks need no more
_MOST_STEPS = 200
_MOST_IMAGES = 2000  # of those that show it, of those that do not, and of the others, that it learns from


class Concept(NamedTuple):
    """Positive, negative and unlabelled rows of a label."""

    yes: set[int]  # with the label
    no: set[int]  # that people said do not have it
    ask: int | None  # the image to ask about next; None: none is left
    sure: np.ndarray  # int64, without the label, that surely fit it, the surest first


def learn_concept(
    searcher: Searcher, label: str, refused: Iterable[tuple[int, str]], skipped: Iterable[int] = ()
) -> Concept:
    """Learn what a label of a run means, without asking about the images that are `skipped`, by id.

    `refused` are images, by id, and labels that people said they do not have: `Decided.refused`. UnknownLabel if no
    image of the run has the label, UserError if it cannot be a label.
    """
    label, place = check_label(label), searcher.place
    check_labels([label], searcher.gallery)
    yes = set(searcher.gallery.albums.labels[label])
    no = {place[number] for number, name in refused if name == label and number in place} - yes
    scores = score_concept(searcher.X, yes, no)
    ask = image_to_ask(scores, yes | no | {place[number] for number in skipped if number in place})
    return Concept(yes, no, ask, sure_images(scores, yes | no))


def score_concept(
    X: Any, positive: Iterable[int], negative: Iterable[int] = (), *, others: Any = None, random_state: int = 0
) -> Any:
    """Score how well each row of X, or of `others`, from which nothing is learned, fits a concept.

    The rows are CSR or dense float32 of unit length. Of X at least one `positive` row shows the concept, `negative`
    ones do not; `random_state` draws those that nobody was asked about, if there are more than 2,000. A score above 0
    means: more likely than not. Once some ten images are known, at least nine in ten of the others above 0 usually show
    it (docs/labels.md).
    """
    import warnings

    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    from visterm.learners.sums import one_thread

    yes, no, scored = _rows(positive), _rows(negative), X if others is None else others
    if not len(yes):
        raise UserError("a concept needs at least one image that shows it")
    rest = np.setdiff1d(np.arange(X.shape[0]), np.concatenate([yes, no]))
    if not len(rest) and not len(no):
        return np.zeros(scored.shape[0])  # every image shows it
    rng = np.random.default_rng(random_state)
    yes, no, rest = (rng.permutation(some)[:_MOST_IMAGES] for some in (yes, no, rest))
    rows = np.concatenate([yes, no, rest])
    weights = np.ones(len(rows))
    weights[len(yes) + len(no) :] = len(yes) / max(1, len(rest))
    regression = LogisticRegression(C=_INVERSE_REGULARIZATION, tol=_TOLERANCE, max_iter=_MOST_STEPS)
    # Small products in turn: several threads take longer, and change the last digits.
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit(X[rows], np.arange(len(rows)) < len(yes), weights)
    return regression.decision_function(scored)


def image_to_ask(scores: np.ndarray, answered: Iterable[int]) -> int | None:
    """Return the row of the image that `score_concept` is least sure of; None if all of them are answered."""
    import numpy as np

    distances = np.abs(scores)
    distances[_rows(answered)] = np.inf
    row = int(distances.argmin())
    return row if np.isfinite(distances[row]) else None


def sure_images(scores: np.ndarray, answered: Iterable[int]) -> np.ndarray:
    """Return the rows of the images that surely show it by `score_concept`, the surest first, but those answered."""
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    return order[(scores[order] > 0) & ~np.isin(order, _rows(answered))]


def _rows(given: Iterable[int]) -> np.ndarray:
    import numpy as np

    return np.unique(np.fromiter(given, np.int64))
