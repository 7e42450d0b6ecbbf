"""Segments: immutable folders of visterm counts or vectors."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visterm.pipeline.errors import UserError

FORMAT = "1"


def stacked(blocks: Sequence[Any]) -> Any:
    """Stack CSR matrices, or dense arrays, vertically."""
    import numpy as np
    from scipy import sparse

    if len(blocks) == 1:
        return blocks[0]
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else sparse.vstack(blocks, format="csr")


def write_segment(folder: Path, counts: Any) -> None:
    """Write one segment: to a temporary folder, then renamed.

    Counts are int32 CSR (n, n_visterms); vectors float32, dense or CSR.
    """
    import numpy as np

    # Two workers of a cluster may write the same segment, if one was taken for dead: each has its own folder.
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
    temporary.mkdir(parents=True)
    try:
        if isinstance(counts, np.ndarray):
            arrays = {"vectors": counts}
        else:
            arrays = {"indptr": counts.indptr, "indices": counts.indices, "counts": counts.data}
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        sizes = {name: (temporary / f"{name}.npy").stat().st_size for name in arrays}
        kind = "dense" if "vectors" in arrays else "sparse"
        record = {"format": FORMAT, "stage": "segment", "kind": kind, "shape": list(counts.shape), "sizes": sizes}
        (temporary / "record.json").write_text(json.dumps(record))
        try:
            temporary.rename(folder)
        except OSError:
            if not is_whole(folder):
                raise
            shutil.rmtree(temporary)  # the other worker was first, with the same counts, which the catalogue may name
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)  # most likely a full disk
        raise


def is_whole(folder: Path) -> bool:
    """Whether the files of a segment have the sizes that its record notes."""
    try:
        sizes = json.loads((folder / "record.json").read_text()).get("sizes", {})
        return all((folder / f"{name}.npy").stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def read_segment(folder: Path) -> Any:
    """Read a segment, CSR or dense, memory-mapped; UserError if a file is missing or damaged."""
    import numpy as np
    from scipy import sparse

    shape = tuple(read_segment_record(folder)["shape"])
    try:
        if (folder / "vectors.npy").exists():
            vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
            if vectors.shape != shape or vectors.dtype != np.float32:
                raise ValueError(f"vectors.npy holds {vectors.dtype} {vectors.shape}, not float32 {shape}")
            return vectors
        data, indices, indptr = (
            np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("counts", "indices", "indptr")
        )
        return sparse.csr_matrix((data, indices, indptr), shape=shape, copy=False)
    except (OSError, EOFError, ValueError) as error:
        raise _damaged(folder, error) from None


def read_segment_record(folder: Path) -> dict[str, Any]:
    """Read the record of a segment and check its shape."""
    try:
        record = json.loads((folder / "record.json").read_text())
        n, n_columns = record["shape"]
        return record
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def _damaged(folder: Path, error: Exception) -> UserError:
    return UserError(f"{folder}: damaged segment ({error}); run 'visterm features' to extract its images again")
