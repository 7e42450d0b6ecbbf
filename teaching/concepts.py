"""A concept from a few images: which others show it, learned from answers of yes and no.

A logistic regression tells the images that show it from those that do not. The images that nobody was asked about count
as further ones that do not show it: all of them together as much as the images that show it, for they are mostly other
things. The image to ask about is the one that it is least sure of (uncertainty sampling, Lewis and Gale, SIGIR 1994).
`experiments/studies/labelling.py` compares this with other ways to ask.

A label that was learned stays a concept: images that are added later are offered for it. How certain a suggestion is
was measured: answers are left out in turn, and a logistic curve turns their scores into probabilities (Platt 1999).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.labels import check_labels
from visterm.pipeline.store.files import write_text
from visterm.pipeline.store.label_edits import check_label
from visterm.pipeline.store.run import Run

if TYPE_CHECKING:
    import numpy as np

    from visterm.pipeline.search.searcher import Searcher
else:
    from visterm import numpy as np

_INVERSE_REGULARIZATION = 10.0
_TOLERANCE = 1e-3  # of the logistic regression: ranks need no more
_MOST_STEPS = 200
_MOST_IMAGES = 2000  # of those that show it, of those that do not, and of the others, that it learns from
_OF_CURVE = 10.0  # inverse regularization of the curve that turns scores into probabilities
_N_FOLDS = 5  # that answers are left out in
_ENOUGH, _OF_EACH = 10, 3  # answers that certainty is measured with: in all, and of yes and no each
_one_change = threading.Lock()  # of what is kept of concepts, which two requests may change at once


class Concept(NamedTuple):
    """Positive, negative and unlabelled rows of a label."""

    yes: set[int]  # with the label
    no: set[int]  # that people said do not have it
    ask: int | None  # the image to ask about next; None: none is left
    sure: np.ndarray  # int64, without the label, that surely fit it, the surest first
    scores: np.ndarray  # float64 (n_images,)

    def certainty(self, searcher: Searcher) -> np.ndarray | None:
        """Probability that each of the sure images shows it, as answers left out say; None: too few answers."""
        from sklearn.linear_model import LogisticRegression

        yes, no = (np.random.default_rng(0).permutation(_rows(some))[:_MOST_IMAGES] for some in (self.yes, self.no))
        if len(yes) + len(no) < _ENOUGH or min(len(yes), len(no)) < _OF_EACH:
            return None
        if not len(self.sure):
            return np.zeros(0)
        folds, scores, shows = np.arange(searcher.X.shape[0]), [], []
        for fold in range(_N_FOLDS):
            held = np.concatenate([yes[fold::_N_FOLDS], no[fold::_N_FOLDS]])
            rest = np.setdiff1d(folds, held)
            known = (np.searchsorted(rest, np.setdiff1d(some, held)) for some in (yes, no))
            scores.append(score_concept(searcher.X[rest], *known, others=searcher.X[held]))
            shows.append(np.isin(held, yes))
        # Answers of each kind count the same: how many there are of each follows from what was asked.
        curve = LogisticRegression(C=_OF_CURVE, class_weight="balanced")
        curve.fit(np.concatenate(scores)[:, None], np.concatenate(shows))
        return curve.predict_proba(self.scores[self.sure][:, None])[:, 1]


class Growth(NamedTuple):
    """Images that were added since somebody looked at a concept, and that surely fit it."""

    label: str
    n_images: int  # with the label
    last: int  # id of the last image that was there then
    new: list[int]  # ids, the surest first
    certainty: float | None  # mean of theirs; None: too few answers


def learn_concept(
    searcher: Searcher, label: str, refused: Iterable[tuple[int, str]], skipped: Iterable[int] = ()
) -> Concept:
    """Learn what a label of a run means, without asking about the images that are `skipped`, by id.

    `refused` are images, by id, and labels that people said they do not have: `Decided.refused`. UnknownLabel if no
    image of the run has the label, UserError if it cannot be a label.
    """
    kept, place = searcher.gallery.albums.labels, searcher.place
    label = check_label(label, kept.__contains__)
    check_labels([label], searcher.gallery)
    yes = set(kept[label])
    no = {place[number] for number, name in refused if name == label and number in place} - yes
    scores = score_concept(searcher.X, yes, no)
    ask = image_to_ask(scores, yes | no | {place[number] for number in skipped if number in place})
    return Concept(yes, no, ask, sure_images(scores, yes | no), scores)


def followed(run: Run) -> dict[str, int]:
    """Return the labels that stay concepts, each with the last id of an image when somebody looked through it.

    Of those that were let go of it is -1 - the last id.
    """
    try:
        kept = json.loads(run.concepts.read_text("utf-8"))
        return {str(label): int(last) for label, last in kept.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # none yet, or not ours: nothing is lost but a notice
        return {}


def follow(searcher: Searcher, labels: Iterable[str], *, again: bool, last: int | None = None) -> None:
    """Let labels stay concepts; `again`: the images up to the id `last`, now the last one, were looked through."""
    newest = int(searcher.images.ids.max(initial=0))
    last = newest if last is None else min(last, newest)
    now = {check_label(label, lambda label: label in searcher.gallery.albums.labels): last for label in labels}
    with _one_change:
        kept = followed(searcher.run)
        after = kept | now if again else now | kept
        if after != kept:
            write_text(searcher.run.concepts, json.dumps(after, ensure_ascii=False, indent=1))


def offer(run: Run, label: str, offered: bool) -> None:
    """Let go of a concept, or take it up again as it was: images that were new then are new still."""
    with _one_change:
        kept = followed(run)
        if label in kept and (kept[label] >= 0) != offered:
            write_text(run.concepts, json.dumps(kept | {label: -1 - kept[label]}, ensure_ascii=False, indent=1))


def follow_renamed(run: Run, names: Iterable[str], into: str) -> None:
    """Let a new label stay a concept if one of the labels that it takes the place of does."""
    with _one_change:
        kept = followed(run)
        if into not in kept and (lasts := [kept[name] for name in names if kept.get(name, -1) >= 0]):
            write_text(run.concepts, json.dumps(kept | {into: min(lasts)}, ensure_ascii=False, indent=1))


def unfollow(run: Run, labels: Iterable[str]) -> None:
    """Let labels be concepts no more."""
    with _one_change:
        kept = followed(run)
        if gone := kept.keys() & set(labels):
            after = {label: last for label, last in kept.items() if label not in gone}
            write_text(run.concepts, json.dumps(after, ensure_ascii=False, indent=1))


def growth(searcher: Searcher, refused: set[tuple[int, str]]) -> list[Growth]:
    """Return the concepts of a run with the images that were added and surely fit; `refused` as of `learn_concept`."""
    grown, newest = [], int(searcher.images.ids.max(initial=0))
    for label, last in followed(searcher.run).items():
        if last < 0 or not (rows := searcher.gallery.albums.labels.get(label)):
            continue
        ids, certainty = [], None
        if newest > last:
            concept = learn_concept(searcher, label, refused)
            new = searcher.images.ids[concept.sure] > last
            ids = searcher.images.ids[concept.sure[new]].tolist()
            if ids and (known := concept.certainty(searcher)) is not None:
                certainty = float(known[new].mean())
        grown.append(Growth(label, len(rows), last, ids, certainty))
    return grown


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
    distances = np.abs(scores)
    distances[_rows(answered)] = np.inf
    row = int(distances.argmin())
    return row if np.isfinite(distances[row]) else None


def sure_images(scores: np.ndarray, answered: Iterable[int]) -> np.ndarray:
    """Return the rows of the images that surely show it by `score_concept`, the surest first, but those answered."""
    order = np.argsort(-scores, kind="stable")
    return order[(scores[order] > 0) & ~np.isin(order, _rows(answered))]


def _rows(given: Iterable[int]) -> np.ndarray:
    return np.unique(np.fromiter(given, np.int64))
