"""The extractor of a run and the vectors of its images."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from visterm.pipeline.errors import RunChanged, UserError

from .catalogue import Collection
from .checksums import check_files
from .files import file_sha256
from .images import Image
from .pictures import Read
from .records import fingerprint, read_record, repair_hint
from .run import Run

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.features import OnnxEmbedder, TextEmbedder, VistermExtractor
    from visterm.features.weights import VistermWeights
else:
    from visterm import numpy as np
    from visterm import sparse

ALIKE = 0.9  # cosine of an imported vector and of that of its model: exporters and decoders differ
_AT_ONCE = 100_000  # images whose vectors are in memory at a time
IN_MEMORY = 500_000_000  # bytes as float32 of vectors that a search holds in memory, where they are stored as float16
BY_ROWS = 100_000_000  # bytes as float32 of dense vectors, from which they stay on disk for work that reads some rows


def extractor_content(run: Run) -> str:
    """Return the fingerprint of the extractor: palette, codebook and idf."""
    record = run.record(run.extractor)
    if record is None:
        raise UserError(f"{run.folder}: no features yet; run 'visterm features IMAGES {run.option}' first")
    return record["content"]


def _opened(files: Path, read: Callable[[Path], Any]) -> Any:
    """Compare the files of an extractor with their checksums, and read them; UserError if they are damaged."""
    try:
        record = read_record(files.parent) or {}
        check_files(files.parent, record.get("crc32", {}))
        return read(files)
    except (OSError, ValueError, TokenError) as error:
        where = "" if str(files.parent) in str(error) else f"{files.parent}: "
        raise UserError(f"{where}{error}; {repair_hint(files.parent)}") from None


@functools.lru_cache(maxsize=1)
def load_extractor(files: Path, version: str) -> VistermExtractor | OnnxEmbedder | None:
    """Load the saved extractor of a version, and cache the last one; None for imported vectors without a model."""
    from visterm import features

    def read(files: Path) -> Any:
        if (files / "embedder.json").exists():
            return features.OnnxEmbedder.load(files)
        if (files / "vectors.json").exists():
            return None
        return features.VistermExtractor.load(files).set_params(n_jobs=1)  # segments run in parallel

    return _opened(files, read)


@functools.lru_cache(maxsize=1)
def load_weights(files: Path, version: str) -> VistermWeights | None:
    """Load the weights of the visterms of a version alone, and cache the last ones; None for other vectors."""

    def read(files: Path) -> Any:
        if any((files / name).exists() for name in ("vectors.json", "embedder.json")):
            return None
        from visterm.features import weights

        return weights.load_weights(files)

    return _opened(files, read)


def extractor_of(run: Run, content: str | None = None) -> VistermExtractor | OnnxEmbedder | None:
    """Load the extractor of a run, whose ``transform`` turns images into vectors.

    None for imported vectors without a model. UserError if it is no longer the one with the fingerprint `content`.
    """
    version = extractor_content(run)
    inputs = (run.record(run.extractor) or {}).get("inputs", {})  # with the model of imported vectors
    extractor = load_extractor((run.extractor / "files").absolute(), fingerprint(version, inputs))
    if content is not None and not content == version == extractor_content(run):
        raise RunChanged(f"the vectors of run {run.name} were made again after it was opened; reopen the run")
    return extractor


@functools.lru_cache(maxsize=1)
def _load_text_embedder(files: Path, version: str) -> TextEmbedder:
    from visterm.features import TextEmbedder

    return _opened(files, TextEmbedder.load)


def text_version(run: Run) -> str:
    """Return the fingerprint of a run's text model; empty if it has none."""
    record = run.record(run.text_model)
    return "" if record is None else fingerprint(record["config"], record["inputs"])


def text_embedder_of(run: Run, version: str) -> TextEmbedder:
    """Load the text model of a run, and cache the last one; UserError if it is no longer of this `text_version`."""
    if version != text_version(run):
        raise RunChanged(f"the text model of run {run.name} was changed after it was opened; reopen the run")
    return _load_text_embedder((run.text_model / "files").absolute(), version)


def is_imported(run: Run) -> bool:
    """Whether the vectors of a run were imported, though a model may be there that makes vectors of others."""
    return _opened((run.extractor / "files").absolute(), lambda files: (files / "vectors.json").exists())


def has_model(run: Run) -> bool:
    """Whether a run has what makes vectors of other images: all have but imported vectors without their model."""
    files = run.extractor / "files"
    return (files / "embedder.json").exists() or not (files / "vectors.json").exists()


def weights_of(run: Run) -> VistermWeights | None:
    """Load the weights of a run's visterms; None for other vectors."""
    return load_weights((run.extractor / "files").absolute(), extractor_content(run))


def reading_of(run: Run, max_pixels: int) -> Read:
    """Return the function that reads files as the extractor of a run does, which is loaded at its first call."""

    def read(file: str, data: bytes) -> np.ndarray:
        extractor = extractor_of(run)
        if extractor is None:
            raise UserError(f"run {run.name} has imported vectors")
        return extractor.read(file, max_pixels=max_pixels, data=data).pixels

    return read


def n_features(run: Run) -> int:
    """Return the length of the vectors of a run."""
    record = run.record(run.extractor) or {}
    return record.get("n_features") or record["config"]["features"]["n_visterms"]


def vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix | np.ndarray:
    """Read the vectors of images, float32 with unit rows: weighted visterms in CSR (n, n_visterms), or others."""
    stored, weighting = collection.counts(images), weights_of(run)
    return stored if weighting is None else weighting.transform(stored)


def searched_vectors(run: Run, collection: Collection, images: Sequence[Image]) -> Any:
    """Read `vectors` to search in; many that are stored as float16 stay on disk, as `StoredVectors`."""
    if collection.dense_bytes(images, "float16") > IN_MEMORY:
        return collection.in_place(images)
    return vectors(run, collection, images)


def checksums(run: Run, collection: Collection) -> dict[str, str]:
    """Return checksums of the codebook (palette, centres or trees, idf) and of the vectors of all images by path.

    The same images and settings give the same on every machine. Imported vectors and those of a network have no
    codebook.
    """
    arrays = [[path.name, file_sha256(path)] for path in sorted((run.extractor / "files").glob("*.npy"))]
    digests = [hashlib.sha256() for _ in range(3)]  # of lengths, columns and values, so that blocks leave no trace
    images = collection.images()
    for start in range(0, len(images), _AT_ONCE):
        block: Any = vectors(run, collection, images[start : start + _AT_ONCE])
        parts = (
            (block.indptr[1:] - block.indptr[:-1], block.indices, block.data) if sparse.issparse(block) else (block,)
        )
        for digest, part in zip(digests, parts, strict=False):
            digest.update(part.tobytes())
    sums = {"codebook": fingerprint(arrays)} if arrays else {}
    return sums | ({"vectors": fingerprint([digest.hexdigest() for digest in digests])} if images else {})


def mapped_vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix | np.ndarray:
    """Read `vectors`; more than `_AT_ONCE` are memory-mapped from nameless files, which vanish with the process."""
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


def vectors_by_rows(run: Run, collection: Collection, images: Sequence[Image]) -> Any:
    """Read `vectors` for work that reads some rows at a time: many dense ones stay on disk, as `StoredVectors`."""
    if collection.dense_bytes(images) > BY_ROWS:
        return collection.in_place(images)
    return mapped_vectors(run, collection, images)


def supervision(images: Sequence[Image], *, clicks: bool = False) -> tuple[np.ndarray | sparse.csr_matrix, list[str]]:
    """Return the labels of images, and the sorted names of the labels.

    Labels are (n,) strings if each image has exactly one; otherwise, and for clicks, CSR weights with a column per
    name.
    """
    return supervision_of([image.labels for image in images], clicks=clicks)


def supervision_of(
    labels: Sequence[Mapping[str, float]], *, clicks: bool
) -> tuple[np.ndarray | sparse.csr_matrix, list[str]]:
    """Return `supervision` from the labels of each image, with their weights."""
    names = sorted({name for of_image in labels for name in of_image})
    if not clicks and all(len(of_image) == 1 for of_image in labels):
        return np.array([next(iter(of_image)) for of_image in labels]), names
    place = {name: i for i, name in enumerate(names)}
    rows = [row for row, of_image in enumerate(labels) for _ in of_image]
    columns = [place[name] for of_image in labels for name in of_image]
    weights = [weight for of_image in labels for weight in of_image.values()]
    y = sparse.csr_matrix((weights, (rows, columns)), shape=(len(labels), len(names)), dtype=np.float32)
    return y, names


def identity(images: Sequence[Image]) -> str:
    """Return one fingerprint of images, their labels and splits."""
    return fingerprint([[image.path, image.sha256, image.labels, image.split] for image in images])


def embed(embedder: OnnxEmbedder, images: Iterable[Any], parent: int = -1, *, few: bool = False) -> np.ndarray:
    """Embed images with the model of a run; ``parent`` is the parent process id of a worker.

    For a few, one thread does where joblib, which counts the cores, is not there: its import takes longer.
    """
    from visterm.features import ImageError

    if os.getppid() == parent:
        import cv2

        cv2.setNumThreads(1)  # there is one process per core
    elif not few or "joblib" in sys.modules:
        embedder.n_jobs = -1  # threads change the speed, not the vectors
    try:
        return embedder.transform(images)
    except ImageError:
        raise
    except ImportError as error:
        raise UserError(str(error)) from None
    except ValueError as error:
        raise UserError(f"{error}; run 'visterm features --force' with a model that fits") from None
