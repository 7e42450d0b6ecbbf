"""The index of a learner in Milvus: where it lies, what a run remembers of it, and how it keeps in step."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import fingerprint, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.retrieval import ExactIndex, MilvusError, MilvusIndex, Ranking
from visterm.retrieval.milvus import Entries, OutOfStep, Unusable, close_file, drop_collection, shown

from .searcher import Searcher

_REMEMBERED = "entries.npy"  # int64 (2, n): ids and fingerprints


class RunIndex(MilvusIndex):
    """As `MilvusIndex`; what Milvus complains of is a UserError."""

    def search(self, Q: Any, k: int | None = None, *, exclude: Any = None) -> Ranking:
        """As `ExactIndex.search`."""
        with _as_user_error():
            return super().search(Q, k, exclude=exclude)


def index_in_milvus(searcher: Searcher, name: str, exact: ExactIndex) -> ExactIndex:
    """Make the index of a learner, in step with what the searcher holds.

    Parameters
    ----------
    searcher : Searcher
    name : str
        The learner.
    exact : ExactIndex
        Its exact index. It is returned in place of one in Milvus where that would have to change and may not: while
        others write to the run, and for a searcher that is older than the run.

    Raises
    ------
    UserError
        Milvus cannot be used, or holds something else under this name; the message says what to do.
    """
    run, settings, console = searcher.run, searcher.config.index, searcher._console
    uri = _uri(run, searcher.config)
    if settings.uri is None:
        Path(uri).parent.mkdir(parents=True, exist_ok=True)
    with _as_user_error():
        index = RunIndex(
            exact.learner,
            searcher.X,
            searcher.labels_for(name),
            ids=[image.id for image in searcher.images],
            uri=uri,
            collection=collection_name(run, name),
            n_candidates=settings.n_candidates,
            n_jobs=searcher.config.compute.n_jobs,
        )
        if index.in_step():
            return index
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(run.locked())
            why = "" if searcher.is_as_on_disk() else f"run {run.name} has changed since it was opened"
        except UserError as error:
            why = str(error)
        if why:
            console.warn(f"the index of {name} in Milvus is not in step, searching exactly meanwhile: {why}")
            return exact
        folder = run.folder / "index" / name
        with console.phase(f"bringing {name} in Milvus in step with {count(index.n_gallery, 'image')}"):
            try:
                with _as_user_error():
                    written, removed = index.bring_in_step(_remembered(folder))
            except _OutOfStep as error:
                raise UserError(
                    f"{error}; 'visterm index --rebuild --run {run.name} --learner {name}' makes it anew"
                ) from None
        # The learner's own fingerprint is of no use here: what it makes of the images is in those of the entries.
        record = make_record("index", {"kind": "milvus", "uri": shown(uri)}, {"extractor": searcher._content})
        recall = _recall_of(folder)
        if recall is None or written == index.n_gallery:
            recall = searcher.recall_of(index, exact)
            console.say(
                f"Milvus finds {recall['recall']:.1%} of the {recall['k']} nearest images for {name} (measured with "
                f"{count(recall['queries'], 'query')})"
            )
        record["recall"] = recall | {"milvus": shown(uri), "held": index.n_gallery}
        with publish(folder, record) as target:
            np.save(target / _REMEMBERED, np.array([index.entries.ids, index.entries.fingerprints]))
    if removed or written < index.n_gallery:
        console.say(f"{count(written, 'image')} written to Milvus for {name}, {removed:,} removed")
    return index


def forget_in_milvus(run: Run, config: Config, name: str) -> None:
    """Remove the index of a learner from Milvus and from the run; the next search makes it anew.

    A damaged file within the run goes as a whole, whatever learners are in it.
    """
    uri = _uri(run, config)
    own = Path(uri) if config.index.uri is None else None
    with run.locked():
        if own is None or own.exists():  # else nothing was made yet
            with _as_user_error():
                try:
                    drop_collection(uri, collection_name(run, name))
                except Unusable:
                    if own is None:
                        raise
                    close_file(uri)
                    own.unlink() if own.is_file() else shutil.rmtree(own)
        shutil.rmtree(run.folder / "index" / name, ignore_errors=True)


def collection_name(run: Run, learner: str) -> str:
    """Name of a learner's collection: Milvus takes letters, digits and underscores."""
    name = run.name
    if not re.fullmatch("[A-Za-z0-9_]{1,100}", name):
        name = f"{re.sub('[^A-Za-z0-9_]', '_', name)[:100]}_{fingerprint(name)[:8]}"
    return f"visterm_{name}_{learner}"


def _uri(run: Run, config: Config) -> str:
    return config.index.uri or os.fspath(run.folder / "index" / "milvus.db")


def _remembered(folder: Path) -> Entries | None:
    """What Milvus held when it was last brought in step; None where nobody knows."""
    try:
        ids, fingerprints = np.load(folder / _REMEMBERED, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # EOFError: of an empty file
        return None
    return Entries(ids, fingerprints)


def _recall_of(folder: Path) -> dict[str, Any] | None:
    """What was measured when the index was first made."""
    with contextlib.suppress(UserError):
        record = read_record(folder)
        if record and record["config"].get("kind") == "milvus":
            return record["recall"]
    return None


class _OutOfStep(UserError):
    """Nothing that a search mends by itself."""


@contextlib.contextmanager
def _as_user_error() -> Iterator[None]:
    try:
        yield
    except OutOfStep as error:
        raise _OutOfStep(str(error)) from None
    except MilvusError as error:
        raise UserError(str(error)) from None
