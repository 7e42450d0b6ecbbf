"""Vectors from elsewhere: tables of vectors with ids, and any ONNX image model, run by OpenCV's DNN module."""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import cv2
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .descriptors import as_rgb
from .images import MAX_PIXELS, StrPath, printable, read_image

MAX_FEATURES = 65_536  # numbers in a vector: learners hold a square of it, 17 GB as float32
FORMAT = 1  # of a saved embedder
TABLES = (".npy", ".npz", ".parquet")  # files that hold vectors
ROWS_AT_ONCE = 4096  # of a table, as float32

Floats = npt.NDArray[np.float32]

# ---------------------------------------------------------------------------------------------------------------
# Tables of vectors


class VectorTable(NamedTuple):
    """Vectors that were made elsewhere; see `read_vectors`."""

    ids: list[str]
    X: Any  # ndarray or memory map of float16, 32 or 64, or CSR float32: (n, n_features), finite
    labels: list[list[str]] | None  # of each vector; None: the table has none

    def rows(self, which: Sequence[int] | slice, *, unit: bool = True) -> Any:
        """Return some vectors as float32, dense or CSR, of unit length unless they are all zero."""
        X = self.X[which]
        X = X if sp.issparse(X) else np.array(X, dtype=np.float32, order="C")
        return unit_rows(X) if unit else X

    def digests(self) -> list[str]:
        """SHA-256 of each vector in hexadecimal: tells whether it has changed since it was taken over."""
        found: list[str] = []
        for start in range(0, len(self.ids), ROWS_AT_ONCE):
            part = self.rows(slice(start, start + ROWS_AT_ONCE), unit=False)
            if sp.issparse(part):
                bounds = zip(part.indptr, part.indptr[1:], strict=False)
                rows = (part.indices[a:b].astype(np.int64).tobytes() + part.data[a:b].tobytes() for a, b in bounds)
            else:
                rows = (row.tobytes() for row in part)
            found += [hashlib.sha256(row).hexdigest() for row in rows]
        return found


def read_vectors(
    file: StrPath,
    ids: StrPath | None = None,
    *,
    vector_column: str = "vector",
    id_column: str = "id",
    label_column: str = "label",
) -> VectorTable:
    """Read vectors that were made elsewhere.

    Parameters
    ----------
    file : path
        ``.npy``: an array (n, n_features) of float16, float32 or float64. ``.npz``: such an array of the name
        `vector_column`, or a CSR matrix as ``scipy.sparse.save_npz`` writes it; beside it, arrays of text may be named
        `id_column` and `label_column`. ``.parquet``: a column of lists of numbers; ids and labels are columns, a label
        being text or a list of texts. An array or column that is the only one of its kind need not have the name.
    ids : path, optional
        The ids in the order of the vectors, where the file itself has none: ``.txt`` (one a line), ``.csv`` (with
        column names; labels may stand beside them), ``.npy`` of text, or ``.parquet``.
    vector_column, id_column, label_column : str
        Names of arrays or columns.

    Returns
    -------
    VectorTable
        What is not there has no labels: an empty text is none. A ``.npy`` is memory-mapped.

    Raises
    ------
    ValueError
        One line that names the file: it cannot be read, is damaged, holds objects (which would have to be unpickled),
        an array of another kind or shape, a number that is not finite, an id twice or none, or fewer or more ids than
        vectors.
    """
    names = {"vector": vector_column, "id": id_column, "label": label_column}
    found = _read_file(file, names)
    if "vector" not in found:
        raise ValueError(f"{printable(file)}: holds no vectors; .npy, .npz and .parquet files can")
    beside = _read_file(ids, names) if ids is not None else {}
    place = file if ids is None else ids
    if ids is not None and "id" not in beside:
        raise ValueError(f"{printable(ids)}: holds no ids")
    found |= {kind: beside[kind] for kind in ("id", "label") if kind in beside}
    if "id" not in found:
        raise ValueError(f"{printable(file)}: whose vectors are these? give their ids, one a line: --ids ids.txt")
    X = _check_vectors(found["vector"], file)
    return VectorTable(_check_ids(found["id"], X.shape[0], place), X, _check_labels(found.get("label"), X.shape[0]))


def read_query_vectors(
    file: StrPath, n_features: int, *, unit: bool = True, vector_column: str = "vector"
) -> tuple[list[str], Any]:
    """Read vectors to search with, from a file as of `read_vectors` that need not have ids.

    Parameters
    ----------
    file : path
        A ``.npy`` may hold a single vector, (n_features,).
    n_features : int
        Length that the vectors must have.
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
        As `read_vectors`, or the vectors have another length.
    """
    X = _read_file(file, {"vector": vector_column, "id": "id", "label": "label"}).get("vector")
    if X is None:
        raise ValueError(f"{printable(file)}: holds no vectors")
    X = _check_vectors(X[None] if X.ndim == 1 else X, file)
    if X.shape[1] != n_features:
        raise ValueError(f"{printable(file)}: vectors of {X.shape[1]:,} numbers; those of the run have {n_features:,}")
    name = os.fsdecode(file)
    names = [name] if X.shape[0] == 1 else [f"{name}[{row}]" for row in range(X.shape[0])]
    return names, VectorTable(names, X, None).rows(slice(None), unit=unit)


def _read_file(file: StrPath, names: dict[str, str]) -> dict[str, Any]:
    """``{"vector", "id", "label"}`` of one file, as far as it has them, all unchecked."""
    readers = {".npy": _read_npy, ".npz": _read_npz, ".parquet": _read_parquet, ".csv": _read_csv, ".txt": _read_text}
    kind = os.path.splitext(os.fspath(file))[1].lower()
    if kind not in readers:
        raise ValueError(f"{printable(file)}: unknown kind {kind or 'of file'!r}; known: {', '.join(readers)}")
    try:
        return readers[kind](pathlib.Path(file), names)
    except MemoryError:
        raise ValueError(f"{printable(file)}: not enough memory for what its header announces") from None
    except OSError as error:
        raise ValueError(f"{printable(file)}: cannot be read ({error.strerror or error})") from None
    # Whatever a damaged file makes of itself in NumPy, PyArrow and zipfile, which knows some kinds of compression by
    # name alone (NotImplementedError).
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError, OverflowError, NotImplementedError) as error:
        if "Python objects in dtype" in str(error) or "Object arrays" in str(error):
            reason = "holds Python objects, which are not read; save numbers as float32 and ids as text (dtype=str)"
        elif "pickle" in str(error):  # whatever NumPy does not know it takes for a pickle
            reason = "damaged, or no file of NumPy's"
        else:
            reason = f"damaged, or cut short ({' '.join(str(error).split())[:150] or type(error).__name__})"
        raise ValueError(f"{printable(file)}: {reason}") from None
    except _BadTable as error:
        raise ValueError(f"{printable(file)}: {error}") from None


class _BadTable(Exception):
    """A file that can be read, but does not hold what it should."""


def _read_npy(file: pathlib.Path, names: dict[str, str]) -> dict[str, Any]:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return {"id" if array.dtype.kind in "US" else "vector": array}


def _read_npz(file: pathlib.Path, names: dict[str, str]) -> dict[str, Any]:
    with open(file, "rb") as stream:  # np.load leaves a damaged one open
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not a .npz archive")
        arrays = {name: archive[name] for name in archive.files}
    found: dict[str, Any] = {kind: arrays.pop(name) for kind, name in names.items() if name in arrays}
    if {"data", "indices", "indptr", "shape"} <= set(arrays):
        if arrays.get("format") is not None and arrays["format"].item() not in (b"csr", "csr"):
            raise _BadTable("its sparse matrix is not CSR; save matrix.tocsr()")
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        if any(part.ndim != 1 for part in parts) or arrays["shape"].shape != (2,):
            raise ValueError("the arrays of its sparse matrix do not fit together")
        if parts[0].dtype.kind != "f" or parts[1].dtype.kind not in "iu" or parts[2].dtype.kind not in "iu":
            raise _BadTable(f"its sparse matrix holds {parts[0].dtype}, not float32 or float64")
        found["vector"] = sp.csr_matrix(parts, shape=tuple(arrays["shape"].tolist()))
        found["vector"].check_format(full_check=True)  # a damaged file must not become a read outside the arrays
        return found
    if "vector" not in found:
        able = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.ndim == 2]
        if len(able) == 1:
            found["vector"] = arrays.pop(able[0])
        elif able:
            raise _BadTable(f"which array holds the vectors? name it {names['vector']!r}; it has {', '.join(able)}")
    if "id" not in found:
        texts = [name for name, array in arrays.items() if array.dtype.kind in "US"]
        if len(texts) == 1:
            found["id"] = arrays[texts[0]]
    return found


def _read_parquet(file: pathlib.Path, names: dict[str, str]) -> dict[str, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise _BadTable("Parquet files need pyarrow: pip install 'visterm[parquet]'") from None

    try:
        columns = pq.read_schema(file)
        lists = [f.name for f in columns if _is_list(f.type) and pa.types.is_floating(f.type.value_type)]
        texts = [f.name for f in columns if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        chosen = {kind: name for kind, name in names.items() if name in columns.names}
        if "vector" not in chosen and len(lists) == 1:
            chosen["vector"] = lists[0]
        if "id" not in chosen and len(others := [name for name in texts if name != chosen.get("label")]) == 1:
            chosen["id"] = others[0]
        if not chosen:
            raise _BadTable(
                f"no columns {', '.join(map(repr, names.values()))}; it has {', '.join(map(repr, columns.names[:20]))}"
            )
        table = pq.read_table(file, columns=sorted(set(chosen.values())), memory_map=True)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    found: dict[str, Any] = {kind: table[name].to_pylist() for kind, name in chosen.items() if kind != "vector"}
    if "vector" in chosen:
        found["vector"] = _stacked(table[chosen["vector"]], chosen["vector"])
    return found


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


def _read_csv(file: pathlib.Path, names: dict[str, str]) -> dict[str, Any]:
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
        try:
            reader = csv.DictReader(stream)
            if names["id"] not in (reader.fieldnames or []):
                raise _BadTable(f"no column {names['id']!r}; the first line must hold the names of the columns")
            rows = list(reader)
        except csv.Error as error:
            raise _BadTable(f"not a CSV table ({error})") from None
    kinds = [kind for kind in ("id", "label") if names[kind] in (reader.fieldnames or [])]
    return {kind: [row[names[kind]] for row in rows] for kind in kinds}


def _read_text(file: pathlib.Path, names: dict[str, str]) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return {"id": text.removesuffix("\n").split("\n") if text else []}


def _check_vectors(X: Any, file: StrPath) -> Any:
    """Finite floats (n, n_features); CSR becomes float32."""
    name = printable(file)
    if X.dtype.kind != "f":
        raise ValueError(f"{name}: holds {X.dtype}, not float32 or float64; convert them with .astype('float32')")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{name}: has the shape {X.shape}, not (number of vectors, numbers in each)")
    if X.shape[1] > MAX_FEATURES:
        raise ValueError(
            f"{name}: vectors of {X.shape[1]:,} numbers; at most {MAX_FEATURES:,} can be learned from: reduce them "
            "first, by PCA for example"
        )
    with np.errstate(over="ignore"):  # told below
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
    """As many different texts as there are vectors."""
    name = printable(file)
    ids = ids.tolist() if isinstance(ids, np.ndarray) and ids.ndim == 1 else ids
    if not isinstance(ids, list) or not all(isinstance(one, str | bytes | int) for one in ids):
        raise ValueError(f"{name}: ids must be texts or whole numbers, one for each vector")
    ids = [os.fsdecode(one) if isinstance(one, bytes) else str(one) for one in ids]
    if len(ids) != n:
        raise ValueError(f"{name}: {len(ids):,} ids for {n:,} vectors; there must be one for each, in the same order")
    place: dict[str, int] = {}
    for row, one in enumerate(ids):
        if not one or "\0" in one:
            raise ValueError(f"{name}: the id in row {row:,} (from 0) is {'empty' if not one else 'damaged'}")
        if place.setdefault(one, row) != row:
            raise ValueError(f"{name}: the id {printable(one)!r} stands in rows {place[one]:,} and {row:,} (from 0)")
    return ids


def _check_labels(labels: Any, n: int) -> list[list[str]] | None:
    """Labels of each vector: none, one or several."""
    if labels is None:
        return None
    labels = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if len(labels) != n:
        raise ValueError(f"{len(labels):,} labels for {n:,} vectors; there must be one for each, in the same order")
    found = []
    for label in labels:
        several = label if isinstance(label, list) else [label]
        found.append([_text(one) for one in several if one is not None and _text(one)])
    return found


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


# ---------------------------------------------------------------------------------------------------------------
# What an ONNX file says of its graph. Its format is Protocol Buffers: fields of (number, type, value), nested. The few
# that matter are read here, as a package that reads all of them would be larger than what it is needed for.

_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 5, 11, 12
_NODE_OUTPUT, _TENSOR_NAME, _VALUE_NAME, _VALUE_TYPE = 2, 8, 1, 2
_TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_DIM, _DIM_VALUE = 1, 2, 1, 1


class _Graph(NamedTuple):
    """Names of an ONNX graph, and the shape of its image input: None for a side that may vary."""

    inputs: list[str]
    shape: list[int | None]
    outputs: list[str]
    tensors: list[str]  # what its nodes give, in the order of the file


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message: a memoryview, or an int."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        if kind not in (1, 2, 5):
            raise ValueError("not a message")
        size = {1: 8, 5: 4}.get(kind)
        size = varint() if size is None else size
        if place + size > len(data):
            raise ValueError("cut short")
        yield key >> 3, data[place : place + size]
        place += size


def _one(data: memoryview, number: int) -> memoryview:
    """The last field of a number that is a message or text; empty if there is none."""
    return ([memoryview(b"")] + [value for found, value in _fields(data) if found == number])[-1]


def _read_graph(data: bytes) -> _Graph:
    """Names in an ONNX file; ValueError if it is none."""
    inputs: dict[str, list[int | None]] = {}
    outputs, tensors, constants = [], [], set()
    try:
        for number, value in _fields(_one(memoryview(data), _MODEL_GRAPH)):
            if number == _GRAPH_NODE:
                tensors += [str(name, "utf-8") for found, name in _fields(value) if found == _NODE_OUTPUT]
            elif number == _GRAPH_INITIALIZER:
                constants.add(str(_one(value, _TENSOR_NAME), "utf-8"))
            elif number == _GRAPH_INPUT:
                tensor = _one(_one(value, _VALUE_TYPE), _TYPE_TENSOR)
                dims = [dim for found, dim in _fields(_one(tensor, _TENSOR_SHAPE)) if found == _SHAPE_DIM]
                sides = [dict(_fields(dim)).get(_DIM_VALUE) for dim in dims]
                shape = [side if isinstance(side, int) and side > 0 else None for side in sides]
                inputs[str(_one(value, _VALUE_NAME), "utf-8")] = shape
            elif number == _GRAPH_OUTPUT:
                outputs.append(str(_one(value, _VALUE_NAME), "utf-8"))
    except (ValueError, IndexError, TypeError):
        outputs = []
    if not outputs or not tensors:
        raise ValueError("not an ONNX model, or damaged")
    names = [name for name in inputs if name not in constants]
    return _Graph(names, inputs[names[0]] if names else [], outputs, [name for name in tensors if name])


def _as_output(name: str) -> bytes:
    """Bytes that, put behind an ONNX file, make a tensor of its graph an output.

    Fields of the same number are merged by whoever reads them, so that this adds to the graph that is there. OpenCV
    must know a tensor as an output: it uses the memory of others again, and would give what lies there by then.
    """

    def field(number: int, value: bytes) -> bytes:
        size, head = len(value), bytearray([number << 3 | 2])
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        return bytes([*head, size]) + value

    tensor = bytes([1 << 3, 1]) + field(_TENSOR_SHAPE, b"")  # float32, of a shape that is not told
    value = field(_VALUE_NAME, name.encode()) + field(_VALUE_TYPE, field(_TYPE_TENSOR, tensor))
    return field(_MODEL_GRAPH, field(_GRAPH_OUTPUT, value))


# ---------------------------------------------------------------------------------------------------------------

TRIAL_SECONDS = 300  # for one batch; a model may hold a loop that never ends
_TRIAL = """
import sys
import cv2
import numpy as np
network = cv2.dnn.readNetFromONNX(np.frombuffer(sys.stdin.buffer.read(), np.uint8))
network.setInput(np.zeros([int(n) for n in sys.argv[2].split(",")], np.float32))
network.forward(sys.argv[1])
"""


class OnnxEmbedder(TransformerMixin, BaseEstimator):
    """Turn images into dense vectors with an ONNX image model, run by OpenCV's DNN module.

    Parameters
    ----------
    model : path
        The ONNX file: one input, float32 (n, 3, height, width).
    size : int, (int, int) or None
        Height and width of the input in pixels; one number for a square. None: as the model says.
    resize : {"crop", "stretch", "pad"}
        How an image gets this size. "crop": the middle of it, as much as has the shape of the input. "stretch": all of
        it, whatever becomes of its shape. "pad": all of it, with the mean colour beside it.
    keep : float
        With "crop", the share of the longest possible sides that is kept: 0.875 is what resizing to 256 and cropping to
        224 does.
    mean, scale : float or three floats
        The model gets ``(pixel - mean) * scale`` of pixels from 0 to 255; three numbers are for red, green and blue.
    channels : {"rgb", "bgr"}
        In which order the model wants them.
    layer : str or None
        Name of the tensor in the model that is the vector; None: the output, if there is one. A map of channels (n, c,
        h, w) is averaged over its places.
    batch : int
        Images that the model is run on at once. With 1 a vector does not depend on the images beside it, not even in
        its last bit.
    unit : bool
        Scale vectors to unit length.
    max_pixels : int
        Larger image files are refused, see `read_image`.

    Attributes
    ----------
    n_features_out_ : int
        Length of the vectors.
    size_ : (int, int)
        Height and width of the input.
    sha256_ : str
        Of the model file, in hexadecimal.

    Notes
    -----
    An image is reduced by averaging over areas, and enlarged by linear interpolation. The network is used by one thread
    at a time, and has OpenCV's own threads.
    """

    def __init__(
        self,
        model="",
        *,
        size=None,
        resize="crop",
        keep=1.0,
        mean=0.0,
        scale=1 / 255,
        channels="rgb",
        layer=None,
        batch=1,
        unit=True,
        max_pixels=MAX_PIXELS,
    ):
        self.model = model
        self.size = size
        self.resize = resize
        self.keep = keep
        self.mean = mean
        self.scale = scale
        self.channels = channels
        self.layer = layer
        self.batch = batch
        self.unit = unit
        self.max_pixels = max_pixels

    def fit(self, images: Any = None, y: Any = None) -> Self:
        """Check settings and model, by running it on noise. Nothing is learned.

        Parameters
        ----------
        images, y
            Not looked at.

        Returns
        -------
        OnnxEmbedder
            Itself.

        Raises
        ------
        ValueError
            One line: the model cannot be read or run, has no such layer, does not give one vector an image, or a
            setting is out of range.
        """
        self._check_settings()
        data = self._read_model()
        self.sha256_ = hashlib.sha256(data).hexdigest()
        data, layer = self._look_into(data)
        self._try_apart(data, layer)
        self._open(data, layer)
        noise = np.random.default_rng(0).integers(0, 256, (self.batch, *self.size_, 3), dtype=np.uint8)
        rows = self._run(np.stack([self._prepare(pixels) for pixels in noise]))
        self.n_features_out_ = rows.shape[1]
        if rows.shape[1] > MAX_FEATURES:
            raise self._bad(
                f"gives vectors of {rows.shape[1]:,} numbers; at most {MAX_FEATURES:,} can be learned from: name "
                "another layer"
            )
        if self.batch > 1:
            alone = self._run(self._prepare(noise[-1])[None])
            if not np.allclose(alone, rows[-1:], rtol=1e-3, atol=1e-4 * np.abs(rows).max()):
                raise self._bad(f"gives other vectors for {self.batch} images at once than for one: set batch to 1")
        return self

    def transform(self, images: Iterable[Any]) -> Floats:
        """Return the vectors of images.

        Parameters
        ----------
        images : iterable of path or ndarray
            Paths, RGB uint8 arrays (H, W, 3) and grey uint8 arrays (H, W). A generator is consumed as the work goes on.

        Returns
        -------
        ndarray of float32, (n_images, n_features_out_)

        Raises
        ------
        ImageError
            A path cannot be read.
        ValueError
            The model fails, gives a number that is not finite, or has changed since `fit`.
        """
        check_is_fitted(self)
        if isinstance(images, str | bytes | os.PathLike):
            raise ValueError(f"images must be a sequence of images, not one path: use [{os.fspath(images)!r}]")
        waiting, found = iter(images), [np.empty((0, self.n_features_out_), np.float32)]
        while batch := [self._prepare(self._pixels(image)) for image in islice(waiting, self.batch)]:
            found.append(self._run(np.stack(batch)))
        X = np.concatenate(found)
        return unit_rows(X) if self.unit else X

    def _pixels(self, image: Any) -> npt.NDArray[np.uint8]:
        if isinstance(image, str | os.PathLike):
            return read_image(image, max_pixels=self.max_pixels)
        return as_rgb(image)

    def _check_settings(self) -> None:
        for name, allowed in (("resize", ("crop", "stretch", "pad")), ("channels", ("rgb", "bgr"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be more than 0 and at most 1, not {self.keep!r}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch!r}")
        for name in ("mean", "scale"):
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.shape not in ((), (3,)) or not np.isfinite(value).all():
                raise ValueError(f"{name} must be one number, or three for red, green and blue, not {value.tolist()}")

    # -----------------------------------------------------------------------------------------------------------
    # The network

    def _bad(self, what: str) -> ValueError:
        return ValueError(f"{printable(self.model)}: {what}")

    def _read_model(self) -> bytes:
        try:
            return pathlib.Path(self.model).read_bytes()
        except OSError as error:
            raise self._bad(f"the model cannot be read ({error.strerror})") from None

    def _look_into(self, data: bytes) -> tuple[bytes, str]:
        """Return a model file whose outputs have the layer among them, and the layer; sets ``size_``."""
        try:
            graph = _read_graph(data)
        except ValueError as error:
            raise self._bad(str(error)) from None
        if len(graph.inputs) != 1:
            raise self._bad(
                f"has {len(graph.inputs)} inputs ({', '.join(graph.inputs[:5])}); an image model has one, the image"
            )
        self.size_ = self._input_size(graph.shape)
        if self.layer is None and len(graph.outputs) > 1:
            raise self._bad(f"which of its outputs is the vector? set layer to one of {', '.join(graph.outputs[:10])}")
        layer = graph.outputs[0] if self.layer is None else self.layer
        if layer not in (*graph.outputs, *graph.tensors):
            near = difflib.get_close_matches(layer, graph.tensors, n=1)
            last = graph.tensors[-10:]
            more = f" and {len(graph.tensors) - len(last)} before" if len(graph.tensors) > len(last) else ""
            raise self._bad(
                f"has no layer {layer!r}" + (f" (did you mean {near[0]}?)" if near else "") + f"; the last of it are "
                f"{', '.join(last)}{more}"
            )
        return data if layer in graph.outputs else data + _as_output(layer), layer

    def _try_apart(self, data: bytes, layer: str) -> None:
        """Run the model in a process of its own: some that are damaged end the process that OpenCV reads them in."""
        shape = ",".join(map(str, (self.batch, 3, *self.size_)))
        command = [sys.executable, "-c", _TRIAL, layer, shape]
        try:
            done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._bad(f"OpenCV has not run this model once in {TRIAL_SECONDS} s") from None
        code = done.returncode
        if code < 0:  # by a signal; an error that is told is told again here
            raise self._bad(f"OpenCV ends with {signal.Signals(-code).name} on this model; it is damaged, or too large")

    def _open(self, data: bytes, layer: str) -> None:
        """Make the network."""
        try:
            self._network = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8)), layer, threading.Lock()
        except cv2.error as error:
            raise self._bad(f"OpenCV cannot run this model ({_reason(error)})") from None

    def _input_size(self, shape: list[int | None]) -> tuple[int, int]:
        if len(shape) not in (0, 4) or (shape and shape[1] not in (3, None)):
            sides = " x ".join(str(n or "?") for n in shape)
            raise self._bad(f"takes {sides} numbers, not images x 3 x height x width")
        own = shape[2:] if shape else [None, None]
        if self.size is None:
            if own[0] is None or own[1] is None:
                raise self._bad("takes images of any size: set size, to 224 for example")
            return own[0], own[1]
        wanted = [self.size] * 2 if isinstance(self.size, int | np.integer) else list(self.size)
        if len(wanted) != 2 or not all(isinstance(n, int | np.integer) and 1 <= n <= 4096 for n in wanted):
            raise ValueError(f"size must be one or two whole numbers, height and width up to 4096, not {self.size!r}")
        if any(n is not None and n != side for n, side in zip(own, wanted, strict=True)):
            fixed = " x ".join(str(n or "any") for n in own)
            raise self._bad(f"takes images of {fixed}, not {wanted[0]} x {wanted[1]} (height x width)")
        return int(wanted[0]), int(wanted[1])

    def _run(self, images: Floats) -> Floats:
        """Vectors of prepared images (n, 3, height, width), not yet of unit length."""
        if not hasattr(self, "_network"):  # it does not travel with copies
            data = self._read_model()
            if hashlib.sha256(data).hexdigest() != self.sha256_:
                raise self._bad("the model has changed since it was taken")
            self._open(*self._look_into(data))
        network, layer, lock = self._network
        try:
            with lock:
                network.setInput(images)
                found = np.array(network.forward(layer))  # the network's own memory is used again
        except cv2.error as error:
            some = f" on {len(images)} images at once (batch: 1 may help)" if len(images) > 1 else ""
            raise self._bad(f"OpenCV cannot run this model{some} ({_reason(error)})") from None
        shape = found.shape
        if found.ndim == 1 and len(images) == 1:
            found = found[None]
        if found.ndim == 4:
            found = found.mean(axis=(2, 3))
        if found.ndim != 2 or len(found) != len(images) or found.dtype.kind != "f":
            raise self._bad(
                f"{layer} gives {found.dtype} {shape} for {len(images)} image{'s' * (len(images) > 1)}, not one vector "
                "an image; name another layer" + (", or set batch to 1" if len(images) > 1 else "")
            )
        if not np.isfinite(found).all():
            raise self._bad(f"{layer} gives numbers that are not finite; do mean and scale fit the model?")
        return found.astype(np.float32, copy=False)

    def _prepare(self, pixels: npt.NDArray[np.uint8]) -> Floats:
        """Turn RGB pixels (H, W, 3) into what the model takes, (3, height, width)."""
        (height, width), (old_height, old_width) = self.size_, pixels.shape[:2]
        left = top = 0
        if self.resize == "crop":
            factor = min(old_height / height, old_width / width) * self.keep
            sides = [max(1, round(side * factor)) for side in (height, width)]
            top, left = (old_height - sides[0]) // 2, (old_width - sides[1]) // 2
            pixels = pixels[top : top + sides[0], left : left + sides[1]]
            inner = height, width
            top = left = 0
        elif self.resize == "pad":
            factor = max(old_height / height, old_width / width)
            inner = max(1, round(old_height / factor)), max(1, round(old_width / factor))
            top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
        else:
            inner = height, width
        shrinks = pixels.shape[0] > inner[0] or pixels.shape[1] > inner[1]
        interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        small = cv2.resize(np.ascontiguousarray(pixels), inner[::-1], interpolation=interpolation)
        with np.errstate(over="ignore"):  # told where the model does not give finite numbers
            values = (small.astype(np.float32) - np.float32(self.mean)) * np.float32(self.scale)
        canvas = np.zeros((height, width, 3), np.float32)
        canvas[top : top + inner[0], left : left + inner[1]] = values
        if self.channels == "bgr":
            canvas = canvas[:, :, ::-1]
        return canvas.transpose(2, 0, 1)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_network"}

    # -----------------------------------------------------------------------------------------------------------
    # On disk

    def save(self, folder: StrPath) -> None:
        """Write the fitted embedder into a folder, which is made if need be.

        Parameters
        ----------
        folder : path
            Gets a copy of the model, ``model.onnx``, and ``embedder.json`` (settings, format version and SHA-256).

        Raises
        ------
        ValueError
            The model has changed since `fit`.
        """
        check_is_fitted(self)
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.model, folder / "model.onnx")
        with open(folder / "model.onnx", "rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != self.sha256_:
                raise self._bad("the model has changed since it was taken")
        settings = {name: _plain(value) for name, value in self.get_params().items() if name != "model"}
        state = {"size": list(self.size_), "n_features_out": self.n_features_out_, "sha256": self.sha256_}
        record = {"format": FORMAT, "settings": settings, "fitted": state}
        (folder / "embedder.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: StrPath) -> OnnxEmbedder:
        """Read an embedder that `save` has written; the model itself is read, and checked, when it is first used.

        Parameters
        ----------
        folder : path

        Returns
        -------
        OnnxEmbedder

        Raises
        ------
        ValueError
            The folder is not such a folder, is of another format version, or is damaged.
        """
        folder = pathlib.Path(folder)
        try:
            record = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}, this program reads {FORMAT}: make it again")
            embedder = cls(folder / "model.onnx", **record["settings"])
            height, width = record["fitted"]["size"]
            embedder.size_ = int(height), int(width)
            embedder.n_features_out_ = int(record["fitted"]["n_features_out"])
            embedder.sha256_ = str(record["fitted"]["sha256"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder} holds no embedder that can be read: {error}") from None
        return embedder


def _plain(value: Any) -> Any:
    """Settings as JSON knows them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _reason(error: cv2.error) -> str:
    """One line of what OpenCV says."""
    return printable(" ".join(str(getattr(error, "err", "") or error).split()))[:200]
