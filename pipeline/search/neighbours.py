"""The graph of a gallery's neighbours in a run: read, brought up to date, or made."""

from __future__ import annotations

import functools
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import is_up_to_date, make_record

from .gallery import Gallery

if TYPE_CHECKING:
    import numpy as np

    from visterm.retrieval import ExactIndex, Neighbours

    from .explanation_regions import SharedNeighbours, SharedPhoto


CHANGED_SHARE = 0.2  # of the photos; with more, a graph is made again
NAMED = 3  # photos of a sentence
_SILENT = 5_000  # photos whose graph takes a second
_FILE = "graph.npz"


def graph_of(name: str, index: ExactIndex, inputs: Any, *, gallery: Gallery, console: Any) -> Neighbours:
    """Return the graph of the neighbours of a gallery under the similarity of an index.

    Parameters
    ----------
    name : str
        Of the learner.
    index : ExactIndex
    inputs : JSON
        What the similarity depends on.
    gallery : Gallery
    console : Console
        Says what takes long.
    """
    from visterm.retrieval import Neighbours
    from visterm.retrieval.neighbours import FORMAT

    folder = gallery.run.folder / "neighbours" / name
    record = make_record("neighbours", {"format": FORMAT}, {"similarity": inputs})
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
    if len(ids) < _SILENT:
        made = find(index, gallery.X)
    else:
        with console.phase(f"finding the neighbours of {count(len(ids), 'photo')} for {name}"):
            made = find(index, gallery.X)
    try:
        with gallery.run.locked(), publish(folder, record) as target:
            record["strength"] = round(made.strength, 3)
            _write(target / _FILE, made, ids)
    except (UserError, OSError) as error:
        if len(ids) >= _SILENT:
            console.say(f"the neighbours for {name} cannot be saved: {error}")
    return made


def explain_neighbours(
    searcher: Any, query: Any, result: Any, learner: str | None = None, *, learned_weight: float | None = None
) -> SharedNeighbours | None:
    """Say which photos a query and a result are both near to; None where results are ranked without neighbours.

    Parameters
    ----------
    searcher : Searcher
    query : whatever `Searcher.search` takes, one image
    result : int, str or path
        An image of the collection.
    learner, learned_weight
        As for `Searcher.search`.

    Raises
    ------
    UserError
        An image cannot be found or read, or the learner cannot be used.
    """
    by = searcher.by_neighbours(learner or searcher.default_learner(), learned_weight)
    if by is None:
        return None
    read, of_result = (searcher.queries([f"id:{one}" if isinstance(one, Integral) else one]) for one in (query, result))
    for one in (read, of_result):
        if one.errors:
            raise UserError(f"{one.names[0]}: {one.errors[0]}")
    row = of_result.rows[0]
    if row < 0 or row == read.rows[0]:
        return None  # nothing is ranked: the same photo, or one from elsewhere
    shared = by.explain(read.Q, row, own=read.rows[0])
    images = [searcher.images[i] for i in shared.rows.tolist()]
    photos: list[SharedPhoto] = [
        {"id": image.id, "path": image.path, "labels": sorted(image.labels), "contribution": float(f"{part:.6g}")}
        for image, part in zip(images, shared.parts, strict=True)
    ]
    return {
        "score": round(float(shared.alone + shared.parts.sum()), 6),
        "alone": float(f"{shared.alone:.6g}"),
        "sentence": _sentence([image.path for image in images if image.path != searcher.images[row].path]),
        "photos": photos,
    }


def _sentence(paths: list[str]) -> str:
    if not paths:
        return "No photo is near to both: the result ranks by what the two have in common."
    first = ", ".join(one_line(path) for path in paths[:NAMED])
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"Both are like {count(len(paths), 'photo')} of yours: {first}{more}."


def in_words(shared: SharedNeighbours) -> list[str]:
    """Return an explanation by neighbours as lines for the terminal."""
    lines = [shared["sentence"], f"score {shared['score']:.4f}: {shared['alone']:.4f} of the two alone, and"]
    for photo in shared["photos"]:
        lines.append(f"  {photo['contribution']:8.4f}  {one_line(photo['path'])}")
    return lines if shared["photos"] else lines[:1]


def _read(folder: Path) -> tuple[Neighbours, np.ndarray]:
    """Read a graph and the ids of its photos; not memory-mapped, as a file may be cut short while it is served."""
    import zipfile

    import numpy as np

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
    import numpy as np

    arrays: dict[str, Any] = graph.arrays() | {"ids": np.asarray(ids, np.int64)}
    np.savez(file, **arrays)


def _rows_of(held: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
    """Return the row that each photo of a graph has now, -1 if it is gone; None where too many have changed."""
    import numpy as np

    order = np.argsort(ids, kind="stable")
    places = order[np.minimum(np.searchsorted(ids, held, sorter=order), len(ids) - 1)]
    rows = np.where(ids[places] == held, places, -1)
    n_kept = np.count_nonzero(rows >= 0)
    changed = len(held) - n_kept + len(ids) - n_kept
    return rows if changed <= CHANGED_SHARE * len(ids) else None
