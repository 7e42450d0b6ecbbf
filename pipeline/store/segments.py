"""Segments: immutable folders of visterm counts or vectors."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from visterm import sparse
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, naming

from .checksums import OWN, Record, check_files, check_seal, files_crc32, sealed
from .files import sync
from .records import FORMAT, repair_hint

if TYPE_CHECKING:
    import numpy as np
else:
    from visterm import numpy as np

RECORD, IMAGES = "record.json", "images.jsonl"
_valid: set[tuple[str, int]] = set()  # segments whose numbers were checked, with the checksum of their record


def stacked(blocks: Sequence[Any]) -> Any:
    """Stack CSR matrices, or dense arrays, vertically."""
    if len(blocks) == 1:
        return blocks[0]
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks)

    return sparse.vstack(blocks, format="csr")


def write_segment(folder: Path, counts: Any, images: Sequence[Any] = (), **origin: str) -> None:
    """Write one segment: to a temporary folder, then renamed; its bytes are on the disk when this returns.

    Counts are int32 CSR (n, n_visterms); vectors float32, dense or CSR, or dense float16. ``images`` describes each
    row, as `row_of` returns it, and ``origin`` where they come from: the catalogue can be rebuilt from these.
    """
    import uuid  # imported late: it asks for the platform

    # Two workers of a cluster may write the same segment, if one was taken for dead: each has its own folder.
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    temporary.mkdir(parents=True)
    try:
        if isinstance(counts, np.ndarray):
            arrays = {"vectors": counts}
        else:
            arrays = {"indptr": counts.indptr, "indices": counts.indices, "counts": counts.data}
        with naming(folder, sum(array.nbytes for array in arrays.values())):
            for name, array in arrays.items():
                np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        (temporary / IMAGES).write_text("".join(f"{json.dumps(image)}\n" for image in images))
        names = [*(f"{name}.npy" for name in arrays), IMAGES]
        sizes = {name: (temporary / f"{name}.npy").stat().st_size for name in arrays}
        kind = "dense" if "vectors" in arrays else "sparse"
        record = {"format": FORMAT, "stage": "segment", "kind": kind, "shape": list(counts.shape), "sizes": sizes}
        if counts.dtype == np.float16:
            record["dtype"] = "float16"
        record |= {"origin": origin, "crc32": files_crc32(temporary, names)}
        (temporary / RECORD).write_text(json.dumps(sealed(record)))
        for path in (*(temporary / name for name in (*names, RECORD)), temporary):
            sync(path)
        try:
            temporary.rename(folder)
        except OSError:
            if not is_whole(folder):
                raise
            shutil.rmtree(temporary)  # the other worker was first, with the same counts, which the catalogue may name
        sync(folder.parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)  # most likely a full disk
        raise


def in_precision(vectors: Any, precision: str, names: Sequence[str]) -> Any:
    """Return dense vectors as they are stored, in "float16" or "float32"; sparse ones are returned as they are.

    UserError for one that float16 cannot hold; `names` are those of the images.
    """
    if not isinstance(vectors, np.ndarray) or vectors.dtype == precision:
        return vectors
    largest = np.abs(vectors).max(axis=1, initial=0)
    limits = np.finfo(np.float16)
    unfit = (largest > limits.max) | ((largest > 0) & (largest < limits.smallest_normal))
    for row in np.flatnonzero(unfit)[:1]:
        raise UserError(
            f"{one_line(names[row])}: the largest number of its vector is {largest[row]:.2g}, and float16 holds "
            f"{limits.smallest_normal:.0e} to {limits.max:,.0f}; keep float32 with --set features.precision=float32"
        )
    return vectors.astype(precision)


def as_stored(vectors: Any, precision: str) -> Any:
    """Round float32 vectors as `in_precision` does: what an image gives is then the same in the collection and not.

    Rows that float16 cannot hold stay as they are; so do sparse vectors.
    """
    if not isinstance(vectors, np.ndarray) or precision == "float32":
        return vectors
    with np.errstate(over="ignore"):
        rounded = vectors.astype(precision).astype(np.float32)
    return np.where(np.isfinite(rounded).all(axis=1, keepdims=True), rounded, vectors)


def row_of(id_: int, path: str, *content: str | int | None) -> list[Any]:
    """Return the description of an image that a segment keeps beside its row.

    Its content is SHA-256, width, height, and, since version 0.4, the hash of its pixels.
    """
    return [id_, path, *content]


def read_images(folder: Path) -> list[list[Any]]:
    """Read the descriptions of a segment's rows; UserError if they are damaged."""
    crc32 = read_segment_record(folder)["crc32"]
    try:
        check_files(folder, {IMAGES: crc32[IMAGES]})
        return [json.loads(line) for line in (folder / IMAGES).read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise damaged(folder, error) from None


def has_segments(segments: Path) -> bool:
    """Whether there are segments in a folder."""
    with contextlib.suppress(OSError):
        return any(name.isdecimal() for name in os.listdir(segments))
    return False


def is_whole(folder: Path) -> bool:
    """Whether the files of a segment have the sizes and the checksums that its record notes, and valid numbers."""
    try:
        record = read_segment_record(folder)
        if any((folder / f"{name}.npy").stat().st_size != size for name, size in record["sizes"].items()):
            return False
        read_segment(folder)
    except (OSError, ValueError, UserError):
        return False
    return True


def check_ahead(segments: Path) -> None:
    """Compare the checksums of all segments in the background, so that reading them finds it done."""

    def check() -> None:
        with contextlib.suppress(OSError):  # a command that reads them says what is wrong
            for name in sorted(os.listdir(segments)):
                is_whole(segments / name)

    threading.Thread(target=check, daemon=True).start()


def read_segment(folder: Path) -> Any:
    """Read a segment: CSR, or dense as `RowFile`; UserError if a file is missing or damaged.

    The files are compared with their checksums, and their numbers are checked, once per process.
    """
    record = read_segment_record(folder)
    shape = tuple(record["shape"])
    key = os.path.abspath(folder), record[OWN]
    try:
        check_files(folder, record["crc32"])
        if record["kind"] == "dense":
            from visterm.retrieval.stored import RowFile

            file = folder / "vectors.npy"  # Windows, which has no preadv, lets nobody cut a mapped file
            vectors: Any = RowFile(file) if hasattr(os, "preadv") else np.load(file, mmap_mode="r")
            if vectors.shape != shape or vectors.dtype not in (np.float16, np.float32):
                raise ValueError(f"vectors.npy holds {vectors.dtype} {vectors.shape}, not floats {shape}")
            return vectors
        data, indices, indptr = (
            np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("counts", "indices", "indptr")
        )
        from visterm import sparse

        counts = sparse.csr_matrix((data, indices, indptr), shape=shape, copy=False)
        if key not in _valid:  # compiled code does not look whether a column exists
            counts.check_format(full_check=True)
            if len(data) and not data.min() >= 0 and np.issubdtype(data.dtype, np.integer):
                raise ValueError("a negative count")
            _valid.add(key)
        return counts
    except (OSError, EOFError, ValueError, TokenError) as error:  # TokenError: of an array's header
        raise damaged(folder, error) from None


def read_segment_record(folder: Path) -> Record:
    """Read the record of a segment and check its shape and its checksum."""
    try:
        record = json.loads((folder / RECORD).read_text())
        check_seal(record)
        n, n_columns = record["shape"]
        if not (isinstance(n, int) and isinstance(n_columns, int) and n > 0 and n_columns > 0):
            raise ValueError(f"a shape of {n} x {n_columns}")
        return record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(folder, error) from None


def damaged(folder: Path, error: Exception | str) -> UserError:
    """Return the error that names a damaged segment, and the command that repairs it."""
    reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error) or "cut short"
    return UserError(f"{folder}: damaged segment ({reason}); {repair_hint(folder)}")
