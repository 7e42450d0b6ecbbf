"""The graph of a gallery's neighbours in a run: read, brought up to date, or made."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import is_up_to_date, make_record

from .gallery import Gallery

if TYPE_CHECKING:
    import numpy as np

    from visterm.retrieval import ExactIndex, Neighbours
else:
    from visterm import numpy as np


CHANGED_SHARE = 0.2  # of the photos; with more, a graph is made again
SILENT = 5_000  # photos whose graph takes a second
_FILE = "graph.npz"


def graph_of(name: str, index: ExactIndex, inputs: Any, *, gallery: Gallery, console: Any) -> Neighbours:
    """Return the graph of the neighbours of a gallery under the similarity of an index of a learner.

    `inputs`, JSON, are what the similarity depends on. The console says what takes long.
    """
    from visterm.retrieval import Neighbours
    from visterm.retrieval.neighbours import FORMAT

    folder = gallery.run.folder / "neighbours" / name
    record = make_record("neighbours", {"format": FORMAT}, {"extractor": gallery.content, "similarity": inputs})
    ids, find = gallery.images.ids, Neighbours.of
    try:
        if is_up_to_date(folder, record):
            graph, held = _read(folder)
            if len(held) == len(ids) and (held == ids).all():
                return graph
            if (rows := _rows_of(held, ids)) is not None:
                find = functools.partial(graph.updated, rows=rows)
    except (UserError, OSError, ValueError) as error:
        console.say(f"the neighbours for {name} are found again: {error}")
    if len(ids) < SILENT:
        made = find(index, gallery.X)
    else:
        with console.phase(f"finding the neighbours of {count(len(ids), 'photo')} for {name}"):
            made = find(index, gallery.X)
    try:
        with gallery.run.saving("neighbours"), publish(folder, record) as target:
            record["strength"] = round(made.strength, 3)
            _write(target / _FILE, made, ids)
    except (UserError, OSError) as error:
        if len(ids) >= SILENT:
            console.say(f"the neighbours for {name} cannot be saved: {error}")
    return made


def _read(folder: Path) -> tuple[Neighbours, np.ndarray]:
    """Read a graph and the ids of its photos; not memory-mapped, as a file may be cut short while it is served."""
    import zipfile

    from visterm.retrieval import Neighbours

    try:
        with np.load(folder / _FILE, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{folder / _FILE}: damaged ({error})") from None
    try:
        graph, ids = Neighbours.restored(held), held["ids"]
        if ids.shape != (len(graph),) or ids.dtype != np.int64:
            raise ValueError("damaged")
    except (KeyError, ValueError) as error:
        raise ValueError(f"{folder / _FILE}: {error}") from None
    return graph, ids


def _write(file: Path, graph: Neighbours, ids: np.ndarray) -> None:
    arrays: dict[str, Any] = graph.arrays() | {"ids": np.asarray(ids, np.int64)}
    np.savez(file, **arrays)


def _rows_of(held: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
    """Return the row that each photo of a graph has now, -1 if it is gone; None where too many have changed."""
    order = np.argsort(ids, kind="stable")
    places = order[np.minimum(np.searchsorted(ids, held, sorter=order), len(ids) - 1)]
    rows = np.where(ids[places] == held, places, -1)
    n_kept = np.count_nonzero(rows >= 0)
    changed = len(held) - n_kept + len(ids) - n_kept
    return rows if changed <= CHANGED_SHARE * len(ids) else None
