"""What a run holds, read back: its extractor, the vectors of its images, and its learners.

Heavy libraries are imported where they are used: finding out that nothing has to be done must not cost seconds.
"""

from __future__ import annotations

import difflib
import functools
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .collection import WAYS_TO_LABEL, Collection, Image
from .errors import UserError
from .run import Run, fingerprint, read_record

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.features import OnnxEmbedder, VistermExtractor
    from visterm.learners import SimilarityLearner

    from .console import Console

# Learners by the name of their section -> of their class.
TRAINED = {
    "oasis": "OASIS",
    "aroma": "AROMA",
    "wsabie": "WSABIE",
    "musl": "MuSL",
    "lego": "LEGO",
    "mcml": "MCML",
    "pamir": "PAMIR",
    "ovr": "OneVsRestPA",
    "knn": "KNNAnnotator",
}
RANKERS = (*TRAINED, "cosine")  # cosine needs no training
_AT_ONCE = 100_000  # images whose vectors are held in memory
_CHECKED_BYTES = 100_000_000  # learners up to this size are checked whole before they search: 0.1 s


# --- images and their vectors -----------------------------------------------------------------------------------


def extractor_content(run: Run) -> str:
    """The fingerprint of what was learned from images: palette, codebook and idf."""
    record = read_record(run.extractor)
    if record is None:
        raise UserError(f"{run.folder}: no features yet; run 'visterm features IMAGES --run {run.name}' first")
    return record["content"]


@functools.lru_cache(maxsize=1)
def load_extractor(files: Path, version: str) -> VistermExtractor | OnnxEmbedder | None:
    """The saved extractor of a version: the last one is kept, so that not every call reads it again.

    None where vectors were made elsewhere.
    """
    from visterm.features import OnnxEmbedder, VistermExtractor

    try:
        if (files / "vectors.json").exists():
            return None
        if (files / "embedder.json").exists():
            return OnnxEmbedder.load(files)
        return VistermExtractor.load(files).set_params(n_jobs=1)  # the segments are what runs in parallel
    except (OSError, ValueError) as error:
        raise UserError(f"{error}; run 'visterm features --force' to learn it again") from None


def extractor_of(run: Run) -> VistermExtractor | OnnxEmbedder | None:
    """What turns images into the vectors of a run, by its ``transform``; None where they were made elsewhere."""
    return load_extractor((run.extractor / "files").absolute(), extractor_content(run))


def n_features(run: Run) -> int:
    """Length of the vectors of a run."""
    record = read_record(run.extractor) or {}
    return record.get("n_features") or record["config"]["features"]["n_visterms"]


def vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix | np.ndarray:
    """Vectors of some images, float32 with unit rows: weighted visterms, CSR (n, n_visterms), or others, also dense."""
    stored, weighting = collection.counts(images), getattr(extractor_of(run), "weighting_", None)
    return stored if weighting is None else weighting.transform(stored)


def mapped_vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix | np.ndarray:
    """`vectors`; more than `_AT_ONCE` are mapped from files in the run's folder.

    The files have no name, and so go with the process, however it ends.
    """
    import numpy as np
    from scipy import sparse

    if len(images) <= _AT_ONCE:
        return vectors(run, collection, images)
    lengths, width = [], 0
    with tempfile.TemporaryFile(dir=run.folder) as values, tempfile.TemporaryFile(dir=run.folder) as columns:
        for start in range(0, len(images), _AT_ONCE):
            block: Any = vectors(run, collection, images[start : start + _AT_ONCE])
            width = block.shape[1]
            if sparse.issparse(block):
                lengths.append(np.diff(block.indptr))
                block.indices.tofile(columns)
                block.data.tofile(values)
            else:
                block.tofile(values)
        data = np.memmap(values, np.float32, "r")
        if not lengths:
            return data.reshape(-1, width)
        ends = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        arrays = data, np.memmap(columns, np.int32, "r"), ends
        return sparse.csr_matrix(arrays, shape=(len(images), width), copy=False)


def supervision(images: Sequence[Image], *, clicks: bool = False) -> tuple[np.ndarray | sparse.csr_matrix, list[str]]:
    """What is known about some images, and the names of their labels, sorted.

    Labels are (n,) strings if each image has just one, else, and for clicks, CSR (n, n_labels) of weights whose columns
    have the order of the names.
    """
    import numpy as np
    from scipy import sparse

    names = sorted({name for image in images for name in image.labels})
    if not clicks and all(len(image.labels) == 1 for image in images):
        return np.array([next(iter(image.labels)) for image in images]), names
    place = {name: i for i, name in enumerate(names)}
    rows = [row for row, image in enumerate(images) for _ in image.labels]
    columns = [place[name] for image in images for name in image.labels]
    weights = [weight for image in images for weight in image.labels.values()]
    y = sparse.csr_matrix((weights, (rows, columns)), shape=(len(images), len(names)), dtype=np.float32)
    return y, names


def identity(images: Sequence[Image]) -> str:
    """One fingerprint of images and what is known about them."""
    return fingerprint([[image.path, image.sha256, image.labels, image.split] for image in images])


# --- learners ---------------------------------------------------------------------------------------------------


def check_learners(names: Sequence[str]) -> None:
    """Refuse names that are not those of learners."""
    for name in names:
        if name not in RANKERS:
            near = difflib.get_close_matches(name, RANKERS, n=1)
            raise UserError(
                f"unknown learner {name}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(RANKERS)}")
            )


def default_learner(run: Run, usual: str, console: Console, trained: Sequence[str] | None = None) -> str:
    """The learner where none is named: the usual one, or else the first of those that are trained.

    Where none is trained, the usual one all the same: who asks it is told what to do.
    """
    if trained is None:
        found = run.learners()
        trained = [name for name in TRAINED if name in found]
    if usual in trained or not trained:
        return usual
    only = f", the only learner of run {run.name} that is trained for this" if len(trained) == 1 else ""
    console.say(f"by {trained[0]}{only or f'; {usual} is not trained'}")
    return trained[0]


def trained_record(run: Run, name: str) -> dict[str, Any]:
    """The record of a trained learner; an empty one of cosine."""
    return read_record(run.learner(name)) or {"inputs": {}, "config": {}, "result": {}}


def warn_if_stale(run: Run, name: str, learnt_from: Sequence[Image], console: Console) -> None:
    """Warn of a learner that was trained on other images or labels than these."""
    inputs = trained_record(run, name)["inputs"]
    if inputs and inputs["images"] != identity(learnt_from):
        console.warn(
            f"{name} was trained before the training images or their labels changed; "
            f"'{how_to_train(run, name)}' renews it"
        )


def how_to_train(run: Run, name: str) -> str:
    """The command that trains a learner of a run."""
    return f"visterm train --learner {name} --run {shlex.quote(run.name)}"


def load_trained(run: Run, name: str, *, verify: bool = True) -> SimilarityLearner:
    """Load the trained learner of a run; cosine needs no training."""
    from visterm.learners import load_learner

    check_trained(run, name)
    if name == "cosine":
        return _cosine(run)
    try:
        files = run.learner(name) / "files"
        size = sum(path.stat().st_size for path in files.glob("*.npy"))
        # Of a large W a search reads only some rows; checking all of it would be most of the time.
        return load_learner(files, mmap_mode="r", verify=verify or size < _CHECKED_BYTES)
    except ValueError as error:
        raise UserError(f"{error}; run '{how_to_train(run, name)} --force'") from None


def check_trained(run: Run, name: str, able: Sequence[str] = RANKERS) -> None:
    """Refuse a learner that is not trained, or on other features, and say which could be taken; cosine needs none."""
    if name == "cosine":
        return
    record = read_record(run.learner(name))
    if record is None:
        collection = Collection(run.collection)
        has_labels = bool(collection.labels())
        collection.close()
        cosine = "; --learner cosine needs no training" if "cosine" in able else ""
        if not has_labels:
            ways = "" if cosine else f": {WAYS_TO_LABEL}"
            raise UserError(f"run {run.name} has no labels that {name} could learn from{ways}{cosine}")
        others = [other for other in able if other in run.learners()]
        hint = f"trained: {', '.join(others)}; use --learner {others[0]}, or " if others else ""
        raise UserError(f"run {run.name} has no trained {name}; {hint}run '{how_to_train(run, name)}' first{cosine}")
    if record["inputs"]["extractor"] != extractor_content(run):
        raise UserError(f"run {run.name}: {name} was trained on other features; run '{how_to_train(run, name)}' again")


def _cosine(run: Run) -> SimilarityLearner:
    """The untrained similarity, for vectors of this run."""
    import numpy as np

    from visterm.learners import Cosine

    return Cosine().fit(np.zeros((1, n_features(run)), dtype=np.float32))
