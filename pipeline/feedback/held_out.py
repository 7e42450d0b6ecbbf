"""Held-out images that an update is measured on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import supervision, vectors

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse


MAX_HELD_OUT = 2000  # images that the guard ranks, and
MIN_QUERIES = 20  # among images that no mark names, below which those are not looked at apart
MAX_QUERIES = 250  # those of them that it ranks them for: half of an update's time at 10,000 visterms goes into these


class HeldOut(NamedTuple):
    """Labelled images that a version is measured on: each is ranked among all, for some of them as queries."""

    X: sparse.csr_matrix
    own: np.ndarray  # (n_queries,) rows that are queries
    relevant: np.ndarray  # bool (n_queries, n), each to itself, too
    unmarked: np.ndarray  # bool (n,), images that no mark names
    what: str  # they are, for messages

    def queries(self, among: np.ndarray) -> np.ndarray:
        """Which queries are among some of the images, bool (n,), and have another one of them to find."""
        import numpy as np

        return np.flatnonzero(among[self.own] & (self.relevant[:, among].sum(axis=1) > 1))

    def precisions(self, scores: np.ndarray, among: np.ndarray) -> np.ndarray:
        """Average precision of float32 (n_queries, n) scores, of the `queries` among some of the images."""
        import numpy as np

        from visterm.learners.validation import mean_average_precision

        columns = np.flatnonzero(among)
        found = []
        for row in self.queries(among):
            here, own = np.ix_([row], columns), np.searchsorted(columns, self.own[[row]])
            found.append(mean_average_precision(scores[here], self.relevant[here], own))
        return np.array(found)


def sparse_vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix:
    """Vectors as `artifacts.vectors`; dense ones, of other models than visterms, become sparse, too."""
    from scipy import sparse

    return sparse.csr_matrix(vectors(run, collection, images))


def draw_held_out(run: Run, learner: str, collection: Collection, images: Sequence[Image], marked: set[str]) -> HeldOut:
    """Labelled test images; where none of them has another one to find, all labelled images."""
    import numpy as np

    from visterm.learners.triplets import related_images

    config = run.configure(None, [])
    clicks = config.collection.clicks is not None
    labelled = [image for image in images if image.labels]
    test = [image for image in labelled if image.split == "test"]
    for chosen, what in ((test, "test images"), (labelled, "labelled images, most of them trained on")):
        if not chosen:
            continue
        rng = np.random.default_rng(0)
        chosen = [chosen[row] for row in np.sort(rng.permutation(len(chosen))[:MAX_HELD_OUT])]
        own = np.sort(rng.permutation(len(chosen))[:MAX_QUERIES])
        y, _ = supervision(chosen, clicks=clicks)
        cutoff = getattr(config, learner).click_cutoff if clicks else None
        relevant = related_images(y, own, np.arange(len(chosen)), cutoff=cutoff)
        if relevant.sum() > len(own):  # each is related to itself
            unmarked = np.array([image.sha256 not in marked for image in chosen])
            return HeldOut(sparse_vectors(run, collection, chosen), own, relevant, unmarked, what)
    raise UserError(f"run {run.name}: no labelled images to measure an update on; nothing is learned without")


def digest_of(held_out: HeldOut) -> str:
    """Which images these are, by their vectors."""
    found = hashlib.sha256()
    X = held_out.X  # CSR, or dense where vectors are not of visterms
    for array in (X.indptr, X.indices, X.data) if hasattr(X, "indptr") else (X,):
        found.update(array.tobytes())
    return found.hexdigest()
