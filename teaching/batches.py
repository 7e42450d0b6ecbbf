"""The marks of a run as training data, and the step that learns them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection as Container
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.held_out import HeldOutSet, NoHeldOutSet, draw_held_out, sparse_vectors
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content

from .marks import Mark, RelevanceMarks

if TYPE_CHECKING:
    from scipy import sparse


# Large enough to change rankings, small enough not to hurt other queries: `benchmarks.feedback` measures both.
STEPS_PER_MARK = 10
UPDATABLE: dict[str, dict[str, Any]] = {"oasis": {"C": 0.03}, "aroma": {"r": 10.0}}


class FeedbackBatch(NamedTuple):
    """The marks of one query, as rows of a matrix: the query first, then relevant images, then the others."""

    X: sparse.csr_matrix
    n_relevant: int
    numbers: list[int]  # of the marks


class FeedbackData(NamedTuple):
    """Training and held-out data of an update."""

    batches: list[FeedbackBatch]
    marks: dict[int, Mark]  # that count, by number
    n_left_out: int  # of them: image or query is gone, or the query has marks of one kind only
    held_out: HeldOutSet | None  # None: no images are labelled


def collect_batches(run: Run, marks: RelevanceMarks, learner: str, set_aside: Container[int] = ()) -> FeedbackData:
    """Collect the marks that a learner can learn from, except those set aside, and the images to measure it on."""
    from scipy import sparse

    standing = {
        key: [mark for mark in of_query if mark.number not in set_aside and mark.sha256 != key]
        for key, of_query in marks.standing().items()
    }
    content = extractor_content(run)
    with Collection(run.collection) as collection:
        images = collection.images()
        by_content = {image.sha256: image for image in reversed(images)}
        contents = {key for key in standing if key in by_content}
        contents.update(mark.sha256 for of_query in standing.values() for mark in of_query if mark.sha256 in by_content)
        held_out = None
        with contextlib.suppress(NoHeldOutSet):
            held_out = draw_held_out(run, learner, collection, images, contents)
        place = {sha256: row for row, sha256 in enumerate(sorted(contents))}
        X = sparse_vectors(run, collection, [by_content[sha256] for sha256 in place]) if place else None
    batches: list[FeedbackBatch] = []
    n_left_out = 0
    for key, of_query in standing.items():
        query = X[[place[key]]] if key in place and X is not None else marks.vector(key, content)
        here = [mark for mark in of_query if mark.sha256 in place]
        relevant = [mark for mark in here if mark.mark > 0]
        others = [mark for mark in here if mark.mark < 0]
        if query is None or not relevant or not others or X is None:
            n_left_out += len(of_query)
            continue
        n_left_out += len(of_query) - len(here)
        chosen = [*relevant, *others]
        rows = sparse.vstack([query, X[[place[mark.sha256] for mark in chosen]]], format="csr")
        batches.append(FeedbackBatch(rows, len(relevant), [mark.number for mark in chosen]))
    return FeedbackData(
        batches, {mark.number: mark for of_query in standing.values() for mark in of_query}, n_left_out, held_out
    )


def prepare_learner(model: Any, learner: str) -> None:
    """Set the parameters that `partial_fit` reads, independent of how the base was trained."""
    settings = {"click_cutoff": None, "check_negatives": True, "pairs_per_query": 1, **UPDATABLE[learner]}
    if learner == "oasis":
        # Projecting all of W after every update would cost minutes; a symmetric one stays so at every step.
        variant = {"symmetric": "online-symmetric", "psd": "online-symmetric"}.get(model.variant, model.variant)
        settings |= {"n_rankers": 1, "psd_every": None, "variant": variant}
    elif model.covariance == "factored":
        raise UserError(
            "aroma with the factored covariance does not learn from marks: one mark would change all of W; use the "
            "diagonal covariance, or oasis"
        )
    model.set_params(**settings)


def learn_batch(model: Any, batch: FeedbackBatch) -> None:
    """Update a prepared learner by the marks of one query."""
    import numpy as np
    from scipy import sparse

    n_steps = STEPS_PER_MARK * len(batch.numbers)
    y = sparse.csr_array((np.arange(batch.X.shape[0]) <= batch.n_relevant).astype(np.float32)[:, None])
    with _without_message("never a query"):  # images marked as not relevant are no queries on purpose
        model.set_params(n_steps=n_steps, pass_steps=n_steps).partial_fit(batch.X, y)


@contextlib.contextmanager
def _without_message(text: str) -> Iterator[None]:
    """Keep one message of the samplers from the log."""
    log = logging.getLogger("visterm.learners.samplers")

    def keep(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)
