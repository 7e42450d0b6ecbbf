"""The index of a learner: exact, in two stages or in Milvus, and what a run keeps of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record
from visterm.pipeline.store.run import Run

from .gallery import Gallery
from .recall import measure_recall

if TYPE_CHECKING:
    import numpy as np

    from visterm.learners import SimilarityLearner
    from visterm.retrieval import ExactIndex


def make_index(
    name: str,
    learner: SimilarityLearner,
    labels: np.ndarray | None,
    *,
    gallery: Gallery,
    config: Config,
    trained_from: Any,
    console: Any,
    is_current: Callable[[], bool],
) -> ExactIndex:
    """Make the index of a learner, of the kind that ``index.kind`` names.

    `trained_from` tells this training of the learner from others; `is_current` says whether the run still holds the
    gallery. With ``index.kind`` milvus, a plain `ExactIndex` means that the index in Milvus cannot be updated now.
    """
    from scipy import sparse

    from visterm.retrieval import ExactIndex, TwoStageIndex

    settings = config.index
    exact = ExactIndex(learner, gallery.X, labels, n_jobs=config.compute.n_jobs)
    if settings.kind == "milvus":
        from .milvus_index import index_in_milvus

        return index_in_milvus(
            name, exact, labels, gallery=gallery, config=config, console=console, is_current=is_current
        )
    is_small = settings.kind == "auto" and _milliseconds(exact.gallery_) <= settings.exact_milliseconds
    if is_small or settings.kind == "exact":
        return exact
    # In two stages. The run keeps the measured recall, and lists that take long to build.
    run, n_jobs = gallery.run, config.compute.n_jobs
    folder = run.folder / "index" / name
    inputs = {"extractor": gallery.content, "learner": fingerprint(trained_from)}
    record = make_record("index", {"n_candidates": settings.n_candidates}, inputs)
    quick = sparse.issparse(exact.gallery_)  # takes only a transposed copy, which is not worth saving
    with contextlib.suppress(ValueError, UserError):  # damaged, or mostly of other images: build a new one
        if is_up_to_date(folder, record):
            if quick:
                return TwoStageIndex(learner, gallery.X, labels, n_candidates=settings.n_candidates, n_jobs=n_jobs)
            return TwoStageIndex.load(folder, learner, gallery.X, labels, n_jobs=n_jobs)
    with console.phase(f"building the index of {count(len(gallery.images), 'image')} for {name}"):
        index = TwoStageIndex(learner, gallery.X, labels, n_candidates=settings.n_candidates, n_jobs=n_jobs)
        record["recall"] = recall = measure_recall(index, exact, gallery.X)
        try:
            with run.locked(), publish(folder, record) as target:
                if not quick:
                    index.save(target)
        except (UserError, OSError) as error:
            console.warn(f"the index for {name} cannot be saved: {error}")
    console.say(
        f"two stages find {recall['recall']:.1%} of the {recall['k']} nearest images for {name} (measured with "
        f"{count(recall['queries'], 'query')}; --set index.kind=exact finds all)"
    )
    return index


def forget_index(run: Run, config: Config, name: str) -> None:
    """Remove what is kept of the index of a learner, in the run and in Milvus."""
    if config.index.kind == "milvus":
        from .milvus_index import forget_in_milvus

        forget_in_milvus(run, config, name)
        return
    with run.locked():
        shutil.rmtree(run.folder / "index" / name, ignore_errors=True)


def _milliseconds(gallery: Any) -> float:
    """Estimated time of an exact query on one core: per entry and per image, measured with a million images."""
    return 1e-6 * (0.6 * gallery.size + 7 * gallery.shape[0])
