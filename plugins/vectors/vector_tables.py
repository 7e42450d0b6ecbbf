"""Import of precomputed vectors: arrays and tables, one file or many, with ids and labels."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from visterm import sparse as sp
from visterm.features.images import StrPath, printable
from visterm.features.vector_files import READERS, VECTORS, VectorPart, read_part, read_parts

MAX_FEATURES = 65_536  # numbers per vector: learners hold a square matrix of this side, 17 GB as float32
ROWS_AT_ONCE = 4096  # of a table, as float32


class VectorTable(NamedTuple):
    """Precomputed vectors; see `read_vectors`."""

    ids: list[str]
    X: Any  # (n, n_features), finite: ndarray, memory map or rows of several, or CSR float32
    labels: list[list[str]] | None  # of each vector; None: the table has none
    source: str = ""  # which files and columns they come from
    fields: Mapping[str, Sequence[Any]] = {}  # further columns, a value per vector

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
        A file, a pattern of files (``img_emb/*.npy``), which are read in the order of their numbers, or a folder of
        them. ``.npy``: an array (n, n_features) of float16, float32, float64, int8 or uint8. ``.npz`` and
        ``.safetensors``: such an array under the name `vector_column`, or in ``.npz`` a CSR matrix as
        ``scipy.sparse.save_npz`` writes it, and optional arrays of text under `id_column` and `label_column`.
        ``.parquet``, ``.arrow`` and ``.feather``: a column of lists or tensors of numbers, or a column per number
        (``0``, ``1``, ...), and columns of ids and labels, where a label is a text, a number or a list of them. Of int8
        and uint8, an array or column ``scale`` has a factor per vector, per number or for all. Folders may be those of
        ``Dataset.save_to_disk`` and ``DatasetDict.save_to_disk`` of the library datasets, whose ids then begin with the
        split, and of clip-retrieval, with ``img_emb`` and ``metadata``.
    ids : path, optional
        The ids in the order of the vectors, if the file itself has none, as `file`, or ``.txt`` (one per line) or
        ``.csv`` (with column names); may have a column of labels.
    vector_column, id_column, label_column : str
        Names of arrays or columns; further columns of tables, of texts, numbers and dates, are fields.
        Where a default is missing, names that tools write are looked for, such as
        ``embedding`` and ``image_path``, or else the only array or column of its kind is taken.

    Returns
    -------
    VectorTable
        An empty text is no label. ``.npy`` and ``.safetensors`` files are memory-mapped.

    Raises
    ------
    ValueError
        One line that names the file: the file cannot be read, is damaged, or holds pickled objects, an array of the
        wrong type or shape, a number that is not finite, a missing or repeated id, or fewer or more ids than vectors;
        or files have vectors of different lengths or types.
    """
    names = {"vector": vector_column, "id": id_column, "label": label_column, "scale": "scale"}
    if ids is None and os.path.isdir(os.path.join(file, "img_emb")):  # of clip-retrieval
        file, ids = (os.path.join(os.fsdecode(file), name) for name in ("img_emb", "metadata"))
    parts = read_parts(file, names, VECTORS)
    id_parts = parts if ids is None else read_parts(ids, names, READERS)
    if any(part.vector is None for part in parts):
        raise ValueError(f"{printable(file)}: holds no vectors{_having(parts)}; use a {', '.join(VECTORS)} file")
    if any(part.id is None for part in id_parts):
        if ids is not None:
            raise ValueError(f"{printable(ids)}: no column {id_column!r}, nor another of ids{_having(id_parts)}")
        raise ValueError(f"{printable(file)}: has no ids; give a file with one id per line: --ids ids.txt")
    named = [name for part in (*parts, *id_parts) for name in part.columns]
    for role, name in names.items():
        if named and name not in (role, *named):
            raise ValueError(f"{printable(file)}: no column {name!r}{_having(parts)}")
    X = _joined(parts)
    n = X.shape[0]
    for part, id_part in zip(parts, id_parts, strict=False):
        if len(parts) == len(id_parts) > 1 and len(id_part.id) != part.vector.shape[0]:
            raise ValueError(
                f"{printable(id_part.file)}: {len(id_part.id):,} ids for the {part.vector.shape[0]:,} vectors of "
                f"{printable(part.file)}; there must be one per vector, in the same order"
            )
    checked = _check_ids([one for part in id_parts for one in part.id], n, file if ids is None else ids)
    labels, sources = None, [("vectors", "vector", parts), ("ids", "id", id_parts)]
    labelled = id_parts if all(part.label is not None for part in id_parts) else parts
    if all(part.label is not None for part in labelled):
        labels = _check_labels([label for part in labelled for label in part.label], n)
        sources.append(("labels", "label", labelled))
    fields: dict[str, list[Any]] = {}
    for files in (id_parts, parts):
        joined = {name: [one for part in files for one in part.fields.get(name, ())] for name in files[0].fields}
        fields |= {name: values for name, values in joined.items() if len(values) == n}
    return VectorTable(checked, X, labels, _source(sources, fields), fields)


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
    names = {"vector": vector_column, "id": "id", "label": "label", "scale": "scale"}
    part = read_part(pathlib.Path(os.fsdecode(file)), names)
    if part.vector is None:
        raise ValueError(f"{printable(file)}: holds no vectors{_having([part])}")
    X = _joined([part._replace(vector=part.vector[None]) if part.vector.ndim == 1 else part])
    if X.shape[1] != n_features:
        raise ValueError(f"{printable(file)}: vectors of {X.shape[1]:,} numbers; those of the run have {n_features:,}")
    name = os.fsdecode(file)
    rows = [name] if X.shape[0] == 1 else [f"{name}[{row}]" for row in range(X.shape[0])]
    return rows, VectorTable(rows, X, None).rows(slice(None), unit=unit)


class _Rows:
    """Rows of several arrays as one, float32; each array with a scale, which numpy multiplies it by, or None."""

    def __init__(self, parts: Sequence[tuple[Any, Any]]) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(len(array) for array, _ in parts)])
        self.shape = int(self.starts[-1]), parts[0][0].shape[1]

    def __getitem__(self, which: Sequence[int] | slice) -> np.ndarray:
        rows = np.asarray(range(self.shape[0])[which] if isinstance(which, slice) else which, np.intp)
        part_of, made = (
            np.searchsorted(self.starts, rows, "right") - 1,
            np.empty((len(rows), self.shape[1]), np.float32),
        )
        for part in np.unique(part_of):
            array, scale = self.parts[part]
            local = rows[part_of == part] - self.starts[part]
            by_row = scale is not None and len(scale) == len(array)
            made[part_of == part] = array[local] * (1 if scale is None else scale[local] if by_row else scale)
        return made


def _having(parts: Sequence[VectorPart]) -> str:
    """Say which columns a file has."""
    return f"; it has {', '.join(map(repr, parts[0].columns[:20]))}" if parts[0].columns else ""


def _source(sources: Iterable[tuple[str, str, Sequence[VectorPart]]], fields: Iterable[str]) -> str:
    """Say which columns of which files hold the vectors, ids, labels and fields."""
    said: dict[str, list[str]] = {}  # by the files
    for noun, role, parts in sources:
        name = parts[0].chosen.get(role)
        column = f" from column {printable(name)!r}" if name else "" if name is None else ": row numbers"
        first, last = (os.path.join(*part.file.parts[-2:]) for part in (parts[0], parts[-1]))
        files = f"{len(parts)} files, {first} to {last}" if len(parts) > 1 else parts[0].file.name
        said.setdefault(printable(files), []).append(noun + column)
    of_fields = [f"fields {', '.join(map(printable, fields))}"] if fields else []
    return "; ".join([*(f"{', '.join(columns)} of {files}" for files, columns in said.items()), *of_fields])


def _joined(parts: Sequence[VectorPart]) -> Any:
    """Check the vectors of all files; return those of one file as they are stored, CSR as float32."""
    checked, first = [_check_vectors(part) for part in parts], parts[0]
    for part in parts[1:]:
        for what, ours, others in (
            ("vectors of {} numbers", part.vector.shape[1], first.vector.shape[1]),
            ("numbers of type {}", part.vector.dtype, first.vector.dtype),
            ("vectors that are {}", *("sparse" if sp.issparse(p.vector) else "dense" for p in (part, first))),
        ):
            if ours != others:
                raise ValueError(f"{printable(part.file)}: {what.format(ours)}, and {others} in {first.file.name}")
    if len(checked) == 1:
        return checked[0]
    if sp.issparse(checked[0]):
        return sp.vstack(checked, "csr")
    return _Rows([pair for one in checked for pair in (one.parts if isinstance(one, _Rows) else [(one, None)])])


def _check_vectors(part: VectorPart) -> Any:
    """Check that the vectors of a file are finite numbers (n, n_features)."""
    name, X = printable(part.file), part.vector
    whole = X.dtype in (np.int8, np.uint8)
    if X.dtype.kind != "f" and not whole:
        raise ValueError(f"{name}: holds {X.dtype}, not float32 or float64; convert them with .astype('float32')")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name}: has shape {X.shape}, not (n_vectors, n_features)")
    if X.shape[1] > MAX_FEATURES:
        raise ValueError(
            f"{name}: vectors of {X.shape[1]:,} numbers; at most {MAX_FEATURES:,} are supported: reduce them "
            "first, for example by PCA"
        )
    if whole and part.scale is not None:
        scale = np.asarray(part.scale, np.float32).reshape(-1)
        if len(scale) not in (1, *X.shape):
            raise ValueError(f"{name}: {len(scale):,} scales for {X.shape[0]:,} vectors of {X.shape[1]:,} numbers")
        X = _Rows([(X, scale[:, None] if len(scale) == X.shape[0] else np.broadcast_to(scale, X.shape[1:])[None])])
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        if sp.issparse(X):
            X = X.astype(np.float32)
            X.sum_duplicates()
        for start in range(0, X.shape[0], ROWS_AT_ONCE):
            sums = X[start : start + ROWS_AT_ONCE].astype(np.float32) @ np.ones(X.shape[1])  # in double precision
            if not np.isfinite(sums).all():
                row = start + int(np.argmin(np.isfinite(sums)))
                raise ValueError(f"{name}: the vector in row {row:,} (from 0) holds NaN, infinity or more than 3e38")
    return X


def _check_ids(ids: Sequence[Any], n: int, file: StrPath) -> list[str]:
    """Check that there are as many distinct ids as vectors, and return them as text."""
    name = printable(file)
    if len(ids) != n:
        raise ValueError(f"{name}: {len(ids):,} ids for {n:,} vectors; there must be one per vector, in the same order")
    rows: dict[str, int] = {}
    for row, one in enumerate(ids):
        text = _text(one)
        wrong = "is damaged" if "\0" in text else "" if text else "is empty"
        if not isinstance(one, str | bytes | int):
            wrong = f"is {'missing' if one is None else f'a {type(one).__name__}'}; ids are texts or integers"
        if wrong:
            raise ValueError(f"{name}: the id in row {row:,} (from 0) {wrong}")
        if rows.setdefault(text, row) != row:
            raise ValueError(f"{name}: the id {printable(text)!r} is in rows {rows[text]:,} and {row:,} (from 0)")
    return list(rows)


def _check_labels(labels: Sequence[Any], n: int) -> list[list[str]]:
    """Return the labels of each vector as a list: none, one or several."""
    if len(labels) != n:
        raise ValueError(f"{len(labels):,} labels for {n:,} vectors; there must be one per vector, in the same order")
    lists = (label if isinstance(label, list) else [label] for label in labels)
    return [[text for one in several if one is not None and (text := _text(one))] for several in lists]


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)


def unit_rows(X: Any) -> Any:
    """Scale the rows of float32 (n, n_features), an array or CSR matrix, to unit length; rows of zeros stay."""
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
