"""Files with precomputed vectors, ids and labels: which they are, and what their arrays and columns hold."""

from __future__ import annotations

import collections
import csv
import glob
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from visterm import sparse as sp
from visterm.extras import how_to_install

from .images import StrPath, printable

_USUAL = {  # names that tools write, best first, behind the name asked for
    "vector": (
        *("embedding", "embeddings", "image_embedding", "image_embeddings", "image_embeds", "img_emb"),
        *("image_features", "features", "emb", "vectors"),
    ),
    "id": ("image_path", "path", "file_name", "filename", "file", "image_id", "key", "__key__", "uid", "url", "image"),
    "label": ("labels", "class", "class_name", "category"),
    "scale": ("scales",),
}
_SAFE = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "i1", "U8": "u1"}  # types of safetensors


class VectorPart(NamedTuple):
    """Unchecked content of one file; None if missing."""

    file: pathlib.Path
    vector: Any = None
    id: Any = None
    label: Any = None
    scale: Any = None  # of vectors of whole numbers
    chosen: Mapping[str, str] = {}  # names of the arrays or columns
    columns: Sequence[str] = ()  # all of them
    fields: Mapping[str, Sequence[Any]] = {}  # further columns of tables, of texts, numbers and dates


def read_parts(source: StrPath, names: Mapping[str, str], kinds: Mapping[str, Any]) -> list[VectorPart]:
    """Read a file, or those of a pattern or folder; rows of data sets without ids are numbered."""
    folder = pathlib.Path(os.fsdecode(source))
    by_split, n_rows = (folder / "dataset_dict.json").is_file(), collections.Counter[pathlib.Path]()
    parts = []
    for file in _files(folder, kinds):
        part = read_part(file, names)
        if part.id is None and part.vector is not None and (file.parent / "state.json").is_file():
            start = n_rows[file.parent]
            n_rows[file.parent] += len(part.vector)
            ids = [str(row) for row in range(start, start + len(part.vector))]
            part = part._replace(id=ids, chosen={**part.chosen, "id": ""})
        if by_split and part.id is not None:
            split = f"{file.parent.name}/"
            part = part._replace(id=[split + str(one).removeprefix(split) for one in part.id])
        parts.append(part)
    return parts


def _files(source: pathlib.Path, kinds: Mapping[str, Any]) -> list[pathlib.Path]:
    """Return the file itself, or the files of a pattern or folder in the order of their numbers."""

    def in_order(files: Sequence[pathlib.Path]) -> list[pathlib.Path]:
        return sorted(files, key=lambda file: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", str(file))])

    if not source.is_dir():
        matched = [] if source.exists() else glob.glob(str(source), recursive=True)
        if not matched and glob.has_magic(str(source)) and not source.exists():
            raise ValueError(
                f"{printable(source)}: no file matches this pattern; give another, such as 'img_emb/*.npy'"
            )
        return in_order([*map(pathlib.Path, matched)]) or [source]
    try:
        if (source / "dataset_dict.json").is_file():
            splits = json.loads((source / "dataset_dict.json").read_text())["splits"]
            return [file for split in splits for file in _files(source / split, kinds)]
        if (source / "state.json").is_file():
            state = json.loads((source / "state.json").read_text())
            if state.get("_indices_data_files"):  # of versions before 2.12
                raise ValueError(f"{printable(source)}: its rows are chosen by an index; save flatten_indices() of it")
            return [source / one["filename"] for one in state["_data_files"]]
    except (OSError, LookupError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{printable(source)}: not a whole data set ({error or type(error).__name__})") from None
    files = [file for file in source.iterdir() if file.suffix.lower() in kinds]
    suffixes = sorted({file.suffix.lower() for file in files})
    if len(suffixes) != 1:
        several = f"holds {' and '.join(suffixes)} files" if files else f"a folder without {', '.join(kinds)} files"
        raise ValueError(f"{printable(source)}: {several}; name them by a pattern, such as '{printable(source)}/*.npy'")
    return in_order(files)


def read_part(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    """Read one file; ``names`` are those of its arrays or columns by role. ValueError, one line, if it cannot be."""
    kind = file.suffix.lower()
    if kind not in READERS:
        raise ValueError(f"{printable(file)}: unknown file type {kind!r}; known: {', '.join(READERS)}")
    try:
        return READERS[kind](file, names)
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


def _choose(names: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Choose the column or array of each role: by its name, by a usual one, or as the only one of its kind.

    ``kinds`` are those of all columns: ``vector``, ``text`` or another one.
    """
    chosen: dict[str, str] = {}
    for role in ("vector", "label", "id", "scale"):
        asked = [names[role]] if names[role] in kinds else []
        usual = [name for name in _USUAL[role] if name in kinds and (kinds[name] == "vector") == (role == "vector")]
        alone = [name for name, kind in kinds.items() if kind == role or (kind, role) == ("text", "id")]
        alone = [name for name in alone if name not in chosen.values()]
        if best := [*asked, *usual, *(alone if len(alone) == 1 else [])]:
            chosen[role] = best[0]
        elif role == "vector" and alone:
            raise _BadTable(
                f"no array is named {names['vector']!r} and several could hold the vectors: {', '.join(alone)}"
            )
    return chosen


def having(part: VectorPart) -> str:
    """Say which columns a file has."""
    return f"; it has {', '.join(map(repr, part.columns[:20]))}" if part.columns else ""


def _read_npy(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return VectorPart(file, id=array.tolist()) if array.dtype.kind in "US" else VectorPart(file, array)


def _read_npz(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    with open(file, "rb") as stream:  # np.load leaves a damaged one open
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not a .npz archive")
        arrays = {name: archive[name] for name in archive.files}
    if not {"data", "indices", "indptr", "shape"} <= set(arrays):
        return _of_arrays(file, names, arrays)
    if arrays.get("format") is not None and arrays["format"].item() not in (b"csr", "csr"):
        raise _BadTable("its sparse matrix is not CSR; save matrix.tocsr()")
    parts = arrays["data"], arrays["indices"], arrays["indptr"]
    if any(part.ndim != 1 for part in parts) or arrays["shape"].shape != (2,):
        raise ValueError("the arrays of its sparse matrix do not match")
    if parts[0].dtype.kind != "f" or parts[1].dtype.kind not in "iu" or parts[2].dtype.kind not in "iu":
        raise _BadTable(f"its sparse matrix holds {parts[0].dtype}, not float32 or float64")
    matrix = sp.csr_matrix(parts, shape=tuple(arrays["shape"].tolist()))
    matrix.check_format(full_check=True)  # indices of a damaged file may point outside the arrays
    return _of_arrays(file, names, arrays)._replace(vector=matrix)


def _read_safetensors(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    # The library reads whole arrays alone; these are memory-mapped.
    with open(file, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > os.fstat(stream.fileno()).st_size - 8:
            raise ValueError("its header ends behind the file")
        header = json.loads(stream.read(size))
    arrays = {}
    for name, told in header.items():
        if name != "__metadata__" and told["dtype"] in _SAFE and told["shape"]:
            start, shape = 8 + size + told["data_offsets"][0], tuple(told["shape"])
            array = np.memmap(file, _SAFE[told["dtype"]], "r", start, shape) if 0 not in shape else np.empty(shape)
            bits = told["dtype"] == "BF16"
            arrays[name] = (array.astype(np.uint32) << 16).view(np.float32) if bits else array
    return _of_arrays(file, names, arrays)


def _of_arrays(file: pathlib.Path, names: Mapping[str, str], arrays: Mapping[str, Any]) -> VectorPart:
    kinds = {
        name: "text" if array.dtype.kind in "US" else "vector" if _is_vector(array) else ""
        for name, array in arrays.items()
    }
    chosen = _choose(names, kinds)
    values = {role: arrays[name] for role, name in chosen.items()}
    values |= {role: values[role].tolist() for role in ("id", "label") if role in values}
    return VectorPart(file, **values, chosen=chosen, columns=list(arrays))


def _is_vector(array: Any) -> bool:
    return array.ndim == 2 and (array.dtype.kind == "f" or array.dtype in (np.int8, np.uint8))


def _read_arrow(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    try:
        import pyarrow as pa
        import pyarrow.dataset as ds
    except ImportError:
        raise _BadTable(f"{file.suffix} files need pyarrow: {how_to_install('parquet')}") from None

    with open(file, "rb") as stream:
        streamed = file.suffix.lower() != ".parquet" and not stream.read(6).startswith(b"ARROW1")
    if streamed:  # as the library datasets writes it
        table: Any = ds.dataset(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
    else:
        table = ds.dataset(str(file), format="parquet" if file.suffix.lower() == ".parquet" else "ipc")
    fields = {field.name: _plain(field.type) for field in table.schema}
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    kinds = {
        name: "vector" if _holds_vectors(kind) else "text" if any(one(kind) for one in texts) else ""
        for name, kind in fields.items()
    }
    chosen = _choose(names, kinds)
    of_images = {name for name in chosen.values() if pa.types.is_struct(fields[name])}  # their bytes are not read
    wide = [] if "vector" in chosen else _numbered([name for name in fields if pa.types.is_floating(fields[name])])
    taken = (*chosen.values(), *wide)
    rest = [name for name, kind in fields.items() if name not in taken and _is_field(kind)]
    columns = table.to_table(
        columns={name: ds.field(name, "path") if name in of_images else ds.field(name) for name in (*taken, *rest)}
    )
    columns.validate(full=True)  # damaged offsets would end the process
    values: dict[str, Any] = {role: columns[name].to_pylist() for role, name in chosen.items() if role != "vector"}
    if "vector" in chosen:
        values["vector"] = _stacked(columns[chosen["vector"]], chosen["vector"])
    elif wide:
        chosen["vector"] = f"{wide[0]} to {wide[-1]}"
        values["vector"] = np.column_stack([columns[name].to_numpy() for name in wide])
    if chosen.get("id") in of_images and None in values["id"]:
        values["id"] = None
    if "scale" in values:
        values["scale"] = np.array(values["scale"], np.float32)
    if "label" in chosen and (told := (table.schema.metadata or {}).get(b"huggingface")):
        of_class = json.loads(told).get("info", {}).get("features", {}).get(chosen["label"], {})
        if classes := of_class.get("feature", of_class).get("names"):
            several = ([one] if isinstance(one, int) else one or [] for one in values["label"])
            values["label"] = [[classes[one] for one in row if 0 <= one < len(classes)] for row in several]
    further = {name: columns[name].to_pylist() for name in rest}
    return VectorPart(file, **values, chosen=chosen, columns=list(fields), fields=further)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return columns of a number each in their order, such as emb_0 to emb_511; none if there are others."""
    parts = [re.fullmatch(r"(.*?)(\d+)", name) for name in names]
    if len(names) < 2 or None in parts or len({part[1] for part in parts if part}) > 1:
        return []
    return sorted(names, key=lambda name: int(re.sub(r".*?(\d+)$", r"\1", name)))


def _plain(kind: Any) -> Any:
    """Return the type of the values of an extension type or dictionary."""
    import pyarrow as pa

    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_field(kind: Any) -> bool:
    import pyarrow as pa

    of = pa.types
    texts = of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind)
    return texts or of.is_integer(kind) or of.is_floating(kind) or of.is_boolean(kind) or of.is_temporal(kind)


def _holds_vectors(kind: Any) -> bool:
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and (pa.types.is_floating(kind.value_type) or kind.value_type in (pa.int8(), pa.uint8()))


def _stacked(column: Any, name: str) -> Any:
    """Turn a column of lists of equal length into an array (n, n_features)."""
    shape = getattr(column.type, "shape", [])
    if not _holds_vectors(_plain(column.type)) or sum(side != 1 for side in shape) > 1:
        raise _BadTable(f"column {name!r} holds {column.type}, not lists of float32, float64 or int8")
    chunks = [getattr(chunk, "storage", chunk) for chunk in column.chunks if len(chunk)]
    if any(chunk.null_count or chunk.flatten().null_count for chunk in chunks):
        raise _BadTable(f"column {name!r} has missing values")
    lengths = sorted({n for chunk in chunks for n in np.unique(chunk.value_lengths().to_numpy(zero_copy_only=False))})
    if len(lengths) > 1:
        raise _BadTable(f"the vectors of column {name!r} have different lengths, from {lengths[0]} to {lengths[-1]}")
    if not chunks or not lengths[0]:
        return np.empty((len(column), 0), np.float32)
    return np.concatenate([c.flatten().to_numpy(zero_copy_only=False).reshape(-1, lengths[0]) for c in chunks])


def _read_csv(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
        try:
            reader = csv.DictReader(stream)
            columns = list(reader.fieldnames or [])
            chosen = _choose(names, dict.fromkeys(columns, ""))
            if "id" not in chosen:
                raise _BadTable(f"no column {names['id']!r}; the first line must name the columns")
            rows = list(reader)
        except csv.Error as error:
            raise _BadTable(f"not a CSV table ({error})") from None
    chosen = {role: chosen[role] for role in ("id", "label") if role in chosen}
    values = {role: [row[name] for row in rows] for role, name in chosen.items()}
    fields = {name: [row[name] for row in rows] for name in columns if name and name not in chosen.values()}
    return VectorPart(file, **values, chosen=chosen, columns=columns, fields=fields)


def _read_text(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return VectorPart(file, id=text.removesuffix("\n").split("\n") if text else [])


VECTORS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    **dict.fromkeys((".parquet", ".arrow", ".feather"), _read_arrow),
}
READERS = VECTORS | {".csv": _read_csv, ".txt": _read_text}
