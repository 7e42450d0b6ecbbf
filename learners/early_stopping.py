"""Early stopping: when to validate and to stop, and measures of a learner's present state on held-out images.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.2.1: "a small subset of the training set to trace the mean
average precision of the model at regular intervals".
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import joblib
import numpy as np
import scipy.sparse as sp

from . import validation
from .base import SimilarityLearner
from .rows import is_dense, take_rows
from .sides import scores_of
from .similarity import ratio_of_spreads
from .sums import unit_rows
from .triplets import related_images

_QUERIES_AT_ONCE = 64  # of a validation, for a thread

History = list[dict[str, Any]]


def validates_now(n_steps: int, target: int, pass_steps: int) -> bool:
    """Whether to validate now: after each of 16 passes, then eight times while the steps double, and at the end.

    The curve flattens: between two validation checks lies a small part of what was learned, and most time goes into
    learning.
    """
    passes = -(-n_steps // pass_steps)
    return n_steps >= target or passes % (1 << max(0, passes.bit_length() - 4)) == 0


def is_saturated(history: History, best_step: int, patience: int | None) -> bool:
    """No better validation figure in the last `patience` validation checks."""
    since = sum(entry["validation"] is not None and entry["step"] > best_step for entry in history)
    return patience is not None and since >= patience


class Measured(NamedTuple):
    """Held-out images measured with the present state."""

    quality: validation.Quality
    choice: validation.Choice | None = None  # where the weight of the learner was chosen
    scale: float = 1.0


Measure = Callable[[], Measured]
Side = Callable[[Any], Any]


class HeldOutImages:
    """Some images, those of `rows`, each against all others of a fit.

    The learner gives its parameters, and its state whenever it is measured; `seed` draws the images that are queries,
    where there are many.
    """

    def __init__(self, learner: SimilarityLearner, X: Any, y: Any, rows: np.ndarray, seed: int) -> None:
        self._learner, self._y, self._rows = learner, y, rows
        self._places = validation.choose_queries(len(rows), seed)  # of the queries among the images
        self._relevant = related_images(y, rows[self._places], rows, cutoff=learner.click_cutoff)
        images = take_rows(X, rows)
        self._gallery = images.toarray() if sp.issparse(images) and is_dense(images) else images

    def by_sides(self, query_side: Side, gallery_side: Side) -> Measure:
        """Function that measures the inner products of two sides."""
        places, gallery = self._places, self._gallery
        parts = [slice(start, start + _QUERIES_AT_ONCE) for start in range(0, len(places), _QUERIES_AT_ONCE)]
        queries = [gallery[places[part]] for part in parts]

        def measure() -> Measured:
            side = gallery_side(gallery)

            def of_queries(images: Any, part: slice) -> np.ndarray:
                return validation.precisions(scores_of(query_side(images), side), self._relevant[part], places[part])

            with ThreadPoolExecutor(joblib.effective_n_jobs(self._learner.n_jobs)) as pool:
                precisions = np.concatenate(list(pool.map(of_queries, queries, parts)))
            return Measured(validation.Quality.of(precisions))

        return measure

    def by_learner(self) -> Measure:
        """Function that measures the learner's similarity."""
        return self.by_sides(self._learner.transform_query, self._learner._gallery_side)

    def by_cosine(self) -> Measure:
        """Function that measures the vectors themselves."""
        return self.by_sides(unit_rows, unit_rows)

    def by_share(self, unseen: np.ndarray | None, world: str, shares: list[float], cautious: float) -> Measure:
        """Function that chooses the weight of the learner, and measures with it; arguments as of `Worlds`.

        `unseen` are rows of classes that are not trained on.
        """
        learner, places, gallery = self._learner, self._places, self._gallery
        is_unseen = np.isin(self._rows, () if unseen is None else unseen)
        groups = validation.groups_of(self._y)[self._rows[places]]
        queries = gallery[places]
        of_vectors = scores_of(unit_rows(queries), unit_rows(gallery))
        worlds = validation.Worlds(self._relevant, places, is_unseen, groups, of_vectors)
        cosine, score = scores_of(learner._cosine_side(queries), gallery), learner._scorer(queries, gallery)
        others = np.arange(len(self._rows)) != places[:, None]

        def measure() -> Measured:
            learned = score()
            scale = 1.0 if learner.begins_at == "vectors" else ratio_of_spreads(cosine[others], learned[others])
            choice = worlds.choose(cosine, np.float32(scale) * learned, world, shares, cautious)
            return Measured(choice.quality, choice, scale)

        return measure
