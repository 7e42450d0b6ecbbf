"""Trained learners of a run."""

from __future__ import annotations

import difflib
import itertools
import mmap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.errors import UserError

from .catalogue import Collection
from .checksums import Record, check_files
from .images import Image
from .labels import WAYS_TO_LABEL
from .run import Run, how_to_train
from .teachers import is_explaining
from .vectors import extractor_content, identity, n_features

if TYPE_CHECKING:
    import numpy as np

    from visterm.learners import Similarity, SimilarityLearner
    from visterm.pipeline.console import Console
else:
    from visterm import numpy as np


TRAINED = {name: row.class_name for name, row in TABLE.items()}
AGAIN = "again"  # in the record of a model that `train --again` took, by held-out images
LEARNER_NAMES = (*TRAINED, "cosine")  # cosine needs no training
TITLES = {name: row.title for name, row in TABLE.items()} | {"cosine": "Plain look (cosine)"}
_WHOLE_BYTES = 100_000_000  # learners up to this size are read and checked completely before a search: 0.1 s


def check_learners(names: Sequence[str], known: Iterable[str] = LEARNER_NAMES) -> None:
    """Raise an error for names of no learner, with those that are known to the command."""
    for name in names:
        if name not in LEARNER_NAMES:
            near = difflib.get_close_matches(name, known, n=1)
            raise UserError(
                f"unknown learner {name}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
            )


def trained_record(run: Run, name: str) -> Record:
    """Read the record of a trained learner; an empty one for cosine."""
    return run.record(run.learner(name)) or {"inputs": {}, "config": {}, "result": {}}


def warn_if_stale(run: Run, name: str, images: Sequence[Image], console: Console) -> None:
    """Warn if a learner was trained on other images or labels than these."""
    inputs = trained_record(run, name)["inputs"]
    if inputs and "triplets" not in inputs and inputs["images"] != identity(images):
        console.warn(
            f"{name} was trained before the training images or their labels changed; "
            f"'{how_to_train(run, name)}' retrains it"
        )


def load_trained(run: Run, name: str, *, verify: bool = True) -> SimilarityLearner:
    """Load the trained learner of a run; cosine needs no training."""
    check_trained(run, name)
    if name == "cosine":
        return _cosine(run)
    return load_files(run, name, verify=verify)


def load_similarity(run: Run, name: str) -> Similarity:
    """Load the similarity of the trained learner of a run, without what learns; see `visterm.learners`."""
    from visterm.learners import saved, similarity

    check_trained(run, name)
    if name == "cosine":
        return similarity.CosineSimilarity(n_features(run))
    return load_files(run, name, load=saved.load_similarity)


def load_files(
    run: Run, name: str, *, mmap_mode: str = "r", verify: bool = False, load: Callable[..., Any] | None = None
) -> Any:
    """Load the files of a trained learner by `load_learner`, compared with their checksums; UserError if damaged.

    A search reads only some rows of a large W, and checking all of it would take most of the time: without ``verify``,
    arrays of more than _WHOLE_BYTES together are not compared. They are memory-mapped, and smaller ones are not: a file
    that is cut short while it is mapped ends the process. A service maps copies; see `check_uncut` for the others.
    """
    if load is None:
        from visterm.learners import load_learner

        load = load_learner

    folder, crc32 = run.learner(name), trained_record(run, name).get("crc32", {})
    try:
        # What explains a learner is checked where it is used: a damaged table must not keep anyone from searching.
        crc32 = {file: known for file, known in crc32.items() if not is_explaining(file)}
        sizes = (path.stat().st_size for path in folder.glob("files/*.npy") if not path.name.startswith("teachers_"))
        small = sum(sizes) < _WHOLE_BYTES
        whole = verify or small
        check_files(folder, {file: known for file, known in crc32.items() if whole or not file.endswith(".npy")})
        mode = f"copied {mmap_mode}" if run.is_served else mmap_mode
        return load(folder / "files", mmap_mode=None if small else mode, verify=whole and not crc32)
    except MemoryError:
        raise UserError(f"{folder}: neither its disk nor the memory has room for a copy of it") from None
    except (OSError, ValueError) as error:
        where = "" if str(folder) in str(error) else f"{folder}: "
        raise UserError(f"{where}{error}; run '{how_to_train(run, name)} --force'") from None


def mapped_arrays(learner: Similarity) -> list[Any]:
    """Return the arrays that map files of a loaded learner."""
    values = vars(learner).values()
    arrays = [(value.data, value.indices, value.indptr) if hasattr(value, "indptr") else (value,) for value in values]
    return [owner for array in itertools.chain(*arrays) if (owner := mapped_by(array)) is not None]


def check_uncut(run: Run, name: str, mapped: Sequence[Any]) -> None:
    """Raise UserError if a mapped file of a loaded learner was cut short since.

    Reading beyond its end would end the process. The check takes a microsecond per array.
    """
    for array in mapped:
        if array.base.size() < array.offset + array.nbytes:
            again = f"{how_to_train(run, name)} --force"
            raise UserError(f"{array.filename}: cut short while it was in use; run '{again}'")


def mapped_by(array: Any) -> np.memmap | None:
    """Return the array that maps the file which an array lies in; None for one in memory."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
            return array
        array = array.base
    return None


def check_trained(run: Run, name: str, able: Sequence[str] = LEARNER_NAMES) -> None:
    """Raise an error for a learner that is not trained, or on other features; name those that can be used instead."""
    if name == "cosine":
        return
    record = run.record(run.learner(name))
    if record is None:
        with Collection(run.collection) as collection:
            has_labels = bool(collection.label_sizes()) or run.configure(None, []).collection.triplets is not None
        cosine = "; --learner cosine needs no training" if "cosine" in able else ""
        if not has_labels:
            ways = "" if cosine else f": {WAYS_TO_LABEL}"
            raise UserError(f"run {run.name} has no labels that {name} could learn from{ways}{cosine}")
        others = [trained for trained in able if trained in run.learners()]
        hint = f"trained: {', '.join(others)}; use --learner {others[0]}, or " if others else ""
        raise UserError(f"run {run.name} has no trained {name}; {hint}run '{how_to_train(run, name)}' first{cosine}")
    if record["inputs"]["extractor"] != extractor_content(run):
        raise UserError(f"run {run.name}: {name} was trained on other features; run '{how_to_train(run, name)}' again")


def _cosine(run: Run) -> SimilarityLearner:
    """Cosine similarity for vectors of this run."""
    from visterm.learners import Cosine

    return Cosine().fit(np.zeros((1, n_features(run)), dtype=np.float32))
