"""The index of a learner: exact, in two stages or in Milvus, and the files that a run keeps for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from visterm import sparse
from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.store.files import discard, publish
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record, read_record
from visterm.pipeline.store.run import Run

from .gallery import Gallery
from .recall import measure_recall

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from visterm.learners import Similarity
    from visterm.pipeline.config.models import Config
    from visterm.retrieval import ExactIndex, TwoStageIndex

VECTORS = "vectors"  # the index of the vectors themselves, in the run
_COMPARED = 100  # gallery sides and vectors


def make_index(
    name: str,
    learner: Similarity,
    labels: np.ndarray | None,
    *,
    gallery: Gallery,
    config: Config,
    trained_from: Any,
    console: Any,
    is_current: Callable[[], bool],
) -> ExactIndex:
    """Make the index of a learner, of the kind that ``index.kind`` names.

    `trained_from` identifies the training of the learner; `is_current` says whether the run still holds the gallery.
    With ``index.kind`` milvus, a plain `ExactIndex` means that the index in Milvus cannot be updated now.
    """
    from visterm.retrieval import ExactIndex

    settings = config.index
    exact = ExactIndex(learner, gallery.X, labels, n_jobs=config.compute.n_jobs)
    if settings.kind == "milvus":
        return load("Milvus").index_in_milvus(
            name, exact, labels, gallery=gallery, config=config, console=console, is_current=is_current
        )
    is_small = settings.kind == "auto" and _milliseconds(exact.gallery_) <= settings.exact_milliseconds
    if is_small or settings.kind == "exact":
        return exact
    if not sparse.issparse(exact.gallery_):
        inputs = {
            "learner": fingerprint(trained_from),
            "labels": fingerprint(None if labels is None else labels.tolist()),
        }
        return _graph_index(name, exact, labels, inputs, gallery=gallery, config=config, console=console)
    from visterm.retrieval import TwoStageIndex

    # The inverted file of sparse vectors is not worth saving; the run keeps the measured recall.
    run = gallery.run
    folder = run.folder / "index" / name
    inputs = {"extractor": gallery.content, "learner": fingerprint(trained_from)}
    record = make_record("index", {"n_candidates": settings.n_candidates}, inputs)
    index = TwoStageIndex(learner, gallery.X, labels, n_candidates=settings.n_candidates, n_jobs=config.compute.n_jobs)
    with contextlib.suppress(UserError):  # a damaged record: measure again
        if is_up_to_date(folder, record):
            return index
    _measure(index, exact, gallery.X, name, record, console)
    _save(folder, record, None, run, name, console)
    return index


def _graph_index(
    name: str,
    exact: ExactIndex,
    labels: np.ndarray | None,
    inputs: dict[str, Any],
    *,
    gallery: Gallery,
    config: Config,
    console: Any,
) -> ExactIndex:
    """Open the graph of dense gallery sides that the run keeps, and add new images; or build it.

    The graph of the vectors themselves serves all learners that move only the query side, whatever they learn later.
    Other gallery sides depend on `inputs`.
    """
    from visterm.retrieval import TwoStageIndex, graph

    run, n_jobs = gallery.run, config.compute.n_jobs
    of_vectors = _are_vectors(exact.gallery_, gallery.X)
    folder = run.folder / "index" / (VECTORS if of_vectors else name)
    inputs = {"extractor": gallery.content, **({} if of_vectors else inputs)}
    record = make_record("index", {"graph": graph.FORMAT}, inputs)
    arguments = exact.learner, gallery.X, labels
    options: dict[str, Any] = {"ids": gallery.images.ids, "n_candidates": config.index.n_candidates, "n_jobs": n_jobs}
    index = None
    try:
        graph.faiss()
        if is_up_to_date(folder, record):
            record["recall"] = (read_record(folder) or record).get("recall")  # that of the index as it was built
            index = TwoStageIndex.load(folder, *arguments, **options)
    except ImportError as error:
        console.warn(f"{name} searches exactly, without an index: {error}")
        return exact
    except (ValueError, UserError) as error:
        console.say(f"the index for {name} is built again: {error}")
    if index is not None and index.n_new <= graph.NEW_IMAGES:
        return index
    if index is not None:
        with console.phase(f"adding {count(index.n_new, 'image')} to the index for {name}"):
            index.update()
    else:
        with console.phase(f"building the index of {count(len(gallery.images), 'image')} for {name}"):
            index = TwoStageIndex(*arguments, **options)
        _measure(index, exact, gallery.X, name, record, console)
    _save(folder, record, index, run, name, console)
    return index


def _measure(index: TwoStageIndex, exact: ExactIndex, X: Any, name: str, record: dict[str, Any], console: Any) -> None:
    """Measure the recall of a new index, add it to the record of the index, and report it."""
    record["recall"] = recall = measure_recall(index, exact, X)
    console.say(
        f"two stages find {recall['recall']:.1%} of the {recall['k']} nearest images for {name} (measured with "
        f"{count(recall['queries'], 'query')}; --set index.kind=exact finds all)"
    )


def _save(folder: Path, record: dict[str, Any], index: TwoStageIndex | None, run: Run, name: str, console: Any) -> None:
    """Write the record of an index to the run, and its graph if it has one; warn where that is not possible."""
    try:
        with run.saving("index"), publish(folder, record) as target:
            if index is not None:
                index.save(target)
    except (UserError, OSError) as error:
        console.warn(f"the index for {name} cannot be saved: {error}")


def _are_vectors(sides: np.ndarray, X: Any) -> bool:
    """Whether gallery sides are the vectors themselves, up to rounding, judged by a sample."""
    import numpy as np

    if sides.shape != X.shape:
        return False
    sample = np.unique(np.linspace(0, len(sides) - 1, _COMPARED).astype(int))
    return np.allclose(sides[sample], X[sample], rtol=2.0**-10, atol=1e-6)  # vectors in float16 have nearly unit length


def forget_index(run: Run, config: Config, name: str) -> None:
    """Delete the index of a learner from the run and from Milvus; that of the vectors where it has none."""
    if config.index.kind == "milvus":
        load("Milvus").forget_in_milvus(run, config, name)
        return
    folder = run.folder / "index" / name
    with run.saving("index"):
        has_index = folder.exists() or name.endswith("_look")
        discard(folder if has_index else folder.with_name(VECTORS))


def _milliseconds(gallery: Any) -> float:
    """Estimated time of an exact query on one core, measured with a million sparse and 100,000 dense images."""
    if not sparse.issparse(gallery):
        return 0.3e-6 * gallery.size
    return 1e-6 * (0.6 * gallery.nnz + 7 * gallery.shape[0])
