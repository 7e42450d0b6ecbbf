"""The index of a learner in Milvus: its address, what a run keeps of it, and how it is updated."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import count, without_password
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.gallery import Gallery
from visterm.pipeline.search.recall import Recall, measure_recall
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import damage, fingerprint, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.retrieval import ExactIndex, Ranking

from .milvus import Entries, MilvusIndex, Scalars, StaleIndexError, drop_collection
from .milvus_connection import MilvusError, Unusable, close_file, was_removed

_ENTRIES = "entries.npy"  # int64 (2, n): ids and fingerprints


class RunIndex(MilvusIndex):
    """As `MilvusIndex`, with errors of Milvus as UserError."""

    def search(self, Q: Any, k: int | None = None, *, exclude: Any = None) -> Ranking:
        """As `ExactIndex.search`."""
        with _as_user_error():
            return super().search(Q, k, exclude=exclude)


def index_in_milvus(
    name: str,
    exact: ExactIndex,
    labels: np.ndarray | None,
    *,
    gallery: Gallery,
    config: Config,
    console: Any,
    is_current: Callable[[], bool],
) -> ExactIndex:
    """Open the index of a learner in Milvus, and update it to the images of the gallery.

    Returns the exact index if the one in Milvus is out of date and cannot be updated now: while another process writes
    to the run, if the run has changed since the gallery was opened, or if the file was removed while it was in use.
    """
    run, settings = gallery.run, config.index
    uri = _uri(run, config)
    if settings.uri is None:
        if was_removed(Path(uri)):
            console.warn(
                f"{uri} was removed while it was in use: {name} searches exactly until this program is restarted"
            )
            return exact
        Path(uri).parent.mkdir(exist_ok=True)
    with _as_user_error():
        index = RunIndex(
            exact.learner,
            gallery.X,
            labels,
            ids=gallery.images.ids,
            scalars=Scalars(gallery.images.folders(), gallery.images.label_names()),
            uri=uri,
            collection=collection_name(run, name),
            kind=settings.milvus,
            n_candidates=settings.n_candidates,
            n_jobs=config.compute.n_jobs,
        )
        if index.is_synchronized():
            return index
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(run.saving("index"))
            why = "" if is_current() else f"run {run.name} has changed since it was opened"
        except UserError as error:
            why = str(error)
        if why:
            console.warn(f"the index of {name} in Milvus is out of date, using exact search for now: {why}")
            return exact
        folder = run.folder / "index" / name
        with console.phase(f"updating the index of {name} in Milvus to {count(index.n_gallery, 'image')}"):
            try:
                with _as_user_error():
                    written, removed = index.synchronize(_last_entries(folder))
            except _StaleIndexError as error:
                learner = name.removesuffix("_look")  # which has an index of other shares than all, too
                command = f"visterm index --rebuild {run.option} --learner {learner}"
                raise UserError(f"{error}; run '{command}' to rebuild it") from None
        # No fingerprint of the learner: those of the entries cover what it makes of the images.
        record = make_record("index", {"kind": "milvus", "uri": without_password(uri)}, {"extractor": gallery.content})
        recall = _last_recall(folder)
        if recall is None or written == index.n_gallery:
            recall = measure_recall(index, exact, gallery.X)
            console.say(
                f"Milvus finds {recall['recall']:.1%} of the {recall['k']} nearest images for {name} (measured with "
                f"{count(recall['queries'], 'query')})"
            )
        record["recall"] = {**recall, "milvus": without_password(uri), "held": index.n_gallery}
        with publish(folder, record) as target:
            np.save(target / _ENTRIES, np.array([index.entries.ids, index.entries.fingerprints]))
    if removed or written < index.n_gallery:
        console.say(f"{count(written, 'image')} written to Milvus for {name}, {removed:,} removed")
    return index


def forget_in_milvus(run: Run, config: Config, name: str) -> None:
    """Remove the index of a learner from Milvus and from the run; the next search rebuilds it.

    A damaged file within the run is removed as a whole, with the indexes of all learners in it.
    """
    uri = _uri(run, config)
    own = Path(uri) if config.index.uri is None else None
    with run.saving("index"):
        if own is None or own.exists():  # otherwise there is no index yet
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


def _last_entries(folder: Path) -> Entries | None:
    """Read the entries after the last update; None if they are unknown."""
    try:
        if damage(folder, read_record(folder) or {}):
            return None
        ids, fingerprints = np.load(folder / _ENTRIES, allow_pickle=False)
    except (OSError, ValueError, EOFError, TokenError, UserError):  # EOFError: of an empty file
        return None
    return Entries(ids, fingerprints)


def _last_recall(folder: Path) -> Recall | None:
    """The recall that was measured when the index was first made."""
    with contextlib.suppress(UserError):
        record = read_record(folder)
        if record and record["config"].get("kind") == "milvus":
            return record["recall"]
    return None


class _StaleIndexError(UserError):
    """The index is not one that a search may update by itself."""


@contextlib.contextmanager
def _as_user_error() -> Iterator[None]:
    try:
        yield
    except StaleIndexError as error:
        raise _StaleIndexError(str(error)) from None
    except MilvusError as error:
        raise UserError(str(error)) from None
