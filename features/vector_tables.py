"""Import of precomputed vectors: .npy, .npz and Parquet files, with ids and labels."""

from __future__ import annotations

import csv
import hashlib
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.extras import how_to_install

from .images import StrPath, printable

MAX_FEATURES = 65_536  # numbers per vector: learners hold a square matrix of this side, 17 GB as float32
ROWS_AT_ONCE = 4096  # of a table, as float32


class VectorTable(NamedTuple):
    """Precomputed vectors; see `read_vectors`."""

    ids: list[str]
    X: Any  # ndarray or memory map of float16, 32 or 64, or CSR float32: (n, n_features), finite
    labels: list[list[str]] | None  # of each vector; None: the table has none

    def rows(self, which: Sequence[int] | slice, *, unit: bool = True) -> Any:
        """Return some vectors as float32, dense or CSR, of unit length unless they are all zero."""
        X = self.X[which]
        X = X if sp.issparse(X) else np.array(X, dtype=np.float32, order="C")
        return unit_rows(X) if unit else X

    def digests(self) -> list[str]:
        """SHA-256 of each vector in hexadecimal, to detect vectors that changed since their import."""
        digests: list[str] = []
        for start in range(0, len(self.ids), ROWS_AT_ONCE):
            part = self.rows(slice(start, start + ROWS_AT_ONCE), unit=False)
            if sp.issparse(part):
                bounds = zip(part.indptr, part.indptr[1:], strict=False)
                rows = (part.indices[a:b].astype(np.int64).tobytes() + part.data[a:b].tobytes() for a, b in bounds)
            else:
                rows = (row.tobytes() for row in part)
            digests += [hashlib.sha256(row).hexdigest() for row in rows]
        return digests


def read_vectors(
    file: StrPath,
    ids: StrPath | None = None,
    *,
    vector_column: str = "vector",
    id_column: str = "id",
    label_column: str = "label",
) -> VectorTable:
    """Read precomputed vectors.

    Parameters
    ----------
    file : path
        ``.npy``: an array (n, n_features) of float16, float32 or float64. ``.npz``: such an array under the name
        `vector_column`, or a CSR matrix as ``scipy.sparse.save_npz`` writes it, and optional arrays of text under
        `id_column` and `label_column`. ``.parquet``: a column of lists of numbers, and columns of ids and labels, where
        a label is a text or a list of texts. The only array or column of its kind may have any name.
    ids : path, optional
        The ids in the order of the vectors, if the file itself has none: ``.txt`` (one per line), ``.csv`` (with
        column names; may have a column of labels), ``.npy`` of text, or ``.parquet``.
    vector_column, id_column, label_column : str
        Names of arrays or columns.

    Returns
    -------
    VectorTable
        An empty text is no label. A ``.npy`` file is memory-mapped.

    Raises
    ------
    ValueError
        One line that names the file: the file cannot be read, is damaged, or holds pickled objects, an array of the
        wrong type or shape, a number that is not finite, a missing or repeated id, or fewer or more ids than vectors.
    """
    names = {"vector": vector_column, "id": id_column, "label": label_column}
    columns = _read_file(file, names)
    if columns.vector is None:
        raise ValueError(f"{printable(file)}: holds no vectors; use a .npy, .npz or .parquet file")
    if ids is not None:
        id_columns = _read_file(ids, names)
        if id_columns.id is None:
            raise ValueError(f"{printable(ids)}: holds no ids")
        columns.id = id_columns.id
        columns.label = columns.label if id_columns.label is None else id_columns.label
    if columns.id is None:
        raise ValueError(f"{printable(file)}: has no ids; give a file with one id per line: --ids ids.txt")
    X = _check_vectors(columns.vector, file)
    checked_ids = _check_ids(columns.id, X.shape[0], file if ids is None else ids)
    return VectorTable(checked_ids, X, _check_labels(columns.label, X.shape[0]))


def read_query_vectors(
    file: StrPath, n_features: int, *, unit: bool = True, vector_column: str = "vector"
) -> tuple[list[str], Any]:
    """Read query vectors from a file as of `read_vectors`; ids are not needed.

    Parameters
    ----------
    file : path
        A ``.npy`` may hold a single vector, (n_features,).
    n_features : int
        Required length of the vectors.
    unit : bool
        Scale them to unit length.
    vector_column : str

    Returns
    -------
    names : list of str
        ``FILE[0]``, ``FILE[1]``, ...; of one vector ``FILE``.
    X : ndarray or csr_matrix of float32, (n, n_features)

    Raises
    ------
    ValueError
        As `read_vectors`, or the vectors have the wrong length.
    """
    X = _read_file(file, {"vector": vector_column, "id": "id", "label": "label"}).vector
    if X is None:
        raise ValueError(f"{printable(file)}: holds no vectors")
    X = _check_vectors(X[None] if X.ndim == 1 else X, file)
    if X.shape[1] != n_features:
        raise ValueError(f"{printable(file)}: vectors of {X.shape[1]:,} numbers; those of the run have {n_features:,}")
    name = os.fsdecode(file)
    names = [name] if X.shape[0] == 1 else [f"{name}[{row}]" for row in range(X.shape[0])]
    return names, VectorTable(names, X, None).rows(slice(None), unit=unit)


@dataclass
class _Columns:
    """Unchecked content of one file; None if missing."""

    vector: Any = None
    id: Any = None
    label: Any = None


def _read_file(file: StrPath, names: dict[str, str]) -> _Columns:
    readers = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet, ".csv": _read_csv, ".txt": _read_text}
    kind = os.path.splitext(os.fspath(file))[1].lower()
    if kind not in readers:
        raise ValueError(f"{printable(file)}: unknown file type {kind!r}; known: {', '.join(readers)}")
    try:
        return readers[kind](pathlib.Path(file), names)
    except MemoryError:
        raise ValueError(f"{printable(file)}: not enough memory for the array that its header announces") from None
    except OSError as error:
        raise ValueError(f"{printable(file)}: cannot be read ({error.strerror or error})") from None
    except _BadTable as error:
        raise ValueError(f"{printable(file)}: {error}") from None
    except Exception as error:  # NumPy, PyArrow and zipfile raise nearly everything on damaged files
        if "Python objects in dtype" in str(error) or "Object arrays" in str(error):
            reason = "holds Python objects, which are not unpickled; save numbers as float32, ids as text (dtype=str)"
        elif "pickle" in str(error):  # NumPy takes every unknown file for a pickle
            reason = "damaged, or not a NumPy file"
        else:
            reason = f"damaged or truncated ({' '.join(str(error).split())[:150] or type(error).__name__})"
        raise ValueError(f"{printable(file)}: {reason}") from None


class _BadTable(Exception):
    """The file is readable, but its content is wrong."""


def _read_npy(file: pathlib.Path, names: dict[str, str]) -> _Columns:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return _Columns(id=array) if array.dtype.kind in "US" else _Columns(array)


def _read_npz(file: pathlib.Path, names: dict[str, str]) -> _Columns:
    with open(file, "rb") as stream:  # np.load leaves a damaged one open
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not a .npz archive")
        arrays = {name: archive[name] for name in archive.files}
    columns = _Columns(**{kind: arrays.pop(name) for kind, name in names.items() if name in arrays})
    if {"data", "indices", "indptr", "shape"} <= set(arrays):
        if arrays.get("format") is not None and arrays["format"].item() not in (b"csr", "csr"):
            raise _BadTable("its sparse matrix is not CSR; save matrix.tocsr()")
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        if any(part.ndim != 1 for part in parts) or arrays["shape"].shape != (2,):
            raise ValueError("the arrays of its sparse matrix do not match")
        if parts[0].dtype.kind != "f" or parts[1].dtype.kind not in "iu" or parts[2].dtype.kind not in "iu":
            raise _BadTable(f"its sparse matrix holds {parts[0].dtype}, not float32 or float64")
        columns.vector = sp.csr_matrix(parts, shape=tuple(arrays["shape"].tolist()))
        columns.vector.check_format(full_check=True)  # indices of a damaged file may point outside the arrays
        return columns
    if columns.vector is None:
        candidates = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.ndim == 2]
        if len(candidates) == 1:
            columns.vector = arrays.pop(candidates[0])
        elif candidates:
            raise _BadTable(
                f"no array is named {names['vector']!r} and several could hold the vectors: {', '.join(candidates)}"
            )
    if columns.id is None:
        texts = [name for name, array in arrays.items() if array.dtype.kind in "US"]
        if len(texts) == 1:
            columns.id = arrays[texts[0]]
    return columns


def _read_parquet(file: pathlib.Path, names: dict[str, str]) -> _Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise _BadTable(f"Parquet files need pyarrow: {how_to_install('parquet')}") from None

    try:
        columns = pq.read_schema(file)
        lists = [f.name for f in columns if _is_list(f.type) and pa.types.is_floating(f.type.value_type)]
        texts = [f.name for f in columns if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        chosen = {kind: name for kind, name in names.items() if name in columns.names}
        if "vector" not in chosen and len(lists) == 1:
            chosen["vector"] = lists[0]
        if "id" not in chosen and len(names_left := [name for name in texts if name != chosen.get("label")]) == 1:
            chosen["id"] = names_left[0]
        if not chosen:
            raise _BadTable(
                f"no columns {', '.join(map(repr, names.values()))}; it has {', '.join(map(repr, columns.names[:20]))}"
            )
        table = pq.read_table(file, columns=sorted(set(chosen.values())), memory_map=True)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    result = _Columns(**{kind: table[name].to_pylist() for kind, name in chosen.items() if kind != "vector"})
    if "vector" in chosen:
        result.vector = _stacked(table[chosen["vector"]], chosen["vector"])
    return result


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _stacked(column: Any, name: str) -> Any:
    """Turn a column of lists of equal length into an array (n, n_features)."""
    import pyarrow as pa

    if not _is_list(column.type) or not pa.types.is_floating(column.type.value_type):
        raise _BadTable(f"column {name!r} holds {column.type}, not lists of float32 or float64")
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if any(chunk.null_count or chunk.flatten().null_count for chunk in chunks):
        raise _BadTable(f"column {name!r} has missing values")
    lengths = sorted({n for chunk in chunks for n in np.unique(chunk.value_lengths().to_numpy(zero_copy_only=False))})
    if len(lengths) > 1:
        raise _BadTable(f"the vectors of column {name!r} have different lengths, from {lengths[0]} to {lengths[-1]}")
    if not chunks or not lengths[0]:
        return np.empty((len(column), 0), np.float32)
    return np.concatenate([c.flatten().to_numpy(zero_copy_only=False).reshape(-1, lengths[0]) for c in chunks])


def _read_csv(file: pathlib.Path, names: dict[str, str]) -> _Columns:
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
        try:
            reader = csv.DictReader(stream)
            if names["id"] not in (reader.fieldnames or []):
                raise _BadTable(f"no column {names['id']!r}; the first line must name the columns")
            rows = list(reader)
        except csv.Error as error:
            raise _BadTable(f"not a CSV table ({error})") from None
    kinds = [kind for kind in ("id", "label") if names[kind] in (reader.fieldnames or [])]
    return _Columns(**{kind: [row[names[kind]] for row in rows] for kind in kinds})


def _read_text(file: pathlib.Path, names: dict[str, str]) -> _Columns:
    text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return _Columns(id=text.removesuffix("\n").split("\n") if text else [])


def _check_vectors(X: Any, file: StrPath) -> Any:
    """Check that vectors are finite floats (n, n_features); return CSR as float32."""
    name = printable(file)
    if X.dtype.kind != "f":
        raise ValueError(f"{name}: holds {X.dtype}, not float32 or float64; convert them with .astype('float32')")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name}: has shape {X.shape}, not (n_vectors, n_features)")
    if X.shape[1] > MAX_FEATURES:
        raise ValueError(
            f"{name}: vectors of {X.shape[1]:,} numbers; at most {MAX_FEATURES:,} are supported: reduce them "
            "first, for example by PCA"
        )
    with np.errstate(over="ignore"):  # reported below
        if sp.issparse(X):
            X = X.astype(np.float32)
            X.sum_duplicates()
        for start in range(0, X.shape[0], ROWS_AT_ONCE):
            part = X[start : start + ROWS_AT_ONCE].astype(np.float32)
            if not np.isfinite(part.data if sp.issparse(part) else part).all():
                dense = part.toarray() if sp.issparse(part) else part
                row = start + int(np.flatnonzero(~np.isfinite(dense).all(axis=1))[0])
                raise ValueError(f"{name}: the vector in row {row:,} (from 0) holds NaN, infinity or more than 3e38")
    return X


def _check_ids(ids: Any, n: int, file: StrPath) -> list[str]:
    """Check that there are as many distinct ids as vectors, and return them as text."""
    name = printable(file)
    ids = ids.tolist() if isinstance(ids, np.ndarray) and ids.ndim == 1 else ids
    if not isinstance(ids, list) or not all(isinstance(one, str | bytes | int) for one in ids):
        raise ValueError(f"{name}: ids must be texts or integers, one per vector")
    ids = [os.fsdecode(one) if isinstance(one, bytes) else str(one) for one in ids]
    if len(ids) != n:
        raise ValueError(f"{name}: {len(ids):,} ids for {n:,} vectors; there must be one per vector, in the same order")
    first_row: dict[str, int] = {}
    for row, one in enumerate(ids):
        if not one or "\0" in one:
            raise ValueError(f"{name}: the id in row {row:,} (from 0) is {'empty' if not one else 'damaged'}")
        if first_row.setdefault(one, row) != row:
            raise ValueError(f"{name}: the id {printable(one)!r} is in rows {first_row[one]:,} and {row:,} (from 0)")
    return ids


def _check_labels(labels: Any, n: int) -> list[list[str]] | None:
    """Return the labels of each vector as a list: none, one or several."""
    if labels is None:
        return None
    labels = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if len(labels) != n:
        raise ValueError(f"{len(labels):,} labels for {n:,} vectors; there must be one per vector, in the same order")
    checked = []
    for label in labels:
        several = label if isinstance(label, list) else [label]
        checked.append([_text(one) for one in several if one is not None and _text(one)])
    return checked


def _text(label: Any) -> str:
    return os.fsdecode(label) if isinstance(label, bytes) else str(label)


def unit_rows(X: Any) -> Any:
    """Scale the rows of a float32 array or CSR matrix to unit length; rows of zeros stay.

    Parameters
    ----------
    X : ndarray or csr_matrix of float32, (n, n_features)

    Returns
    -------
    ndarray or csr_matrix of float32, (n, n_features)
    """
    if sp.issparse(X):
        squares = X.data.astype(np.float64) ** 2
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        lengths = np.sqrt(np.bincount(rows, weights=squares, minlength=X.shape[0]))
        lengths[lengths == 0] = 1
        return sp.csr_matrix(((X.data / lengths[rows]).astype(np.float32), X.indices, X.indptr), shape=X.shape)
    wide = X.astype(np.float64)  # squares of large or small float32 numbers leave its range
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return (wide / lengths).astype(np.float32)
