"""Files with precomputed vectors, ids and labels: which they are, and what their arrays and columns hold."""

from __future__ import annotations

import csv
import glob
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    "label": ("labels", "class", "class_name", "category"),
    "id": ("image_path", "path", "file_name", "filename", "file", "image_id", "key", "__key__", "uid", "url", "image"),
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
    fields: Mapping[str, Sequence[Any]] = {}  # further columns, of texts, numbers and dates


class _Columns(NamedTuple):
    """The columns or arrays of a file by name; the only one of a file without names is called ""."""

    kinds: Mapping[str, str]  # "vector", "text", "number" (a float), "cell" (of CSV), "field", or "" for all else
    load: Callable[[Mapping[str, str]], Mapping[str, Any]]  # names and roles to arrays and lists


class _BadTable(Exception):
    """The file is readable, but its content is wrong."""


def read_parts(source: StrPath, names: Mapping[str, str], kinds: Iterable[str]) -> list[VectorPart]:
    """Read a file, or those of a pattern or folder; rows of data sets without ids are numbered."""
    folder, parts = pathlib.Path(os.fsdecode(source)), list[VectorPart]()
    by_split = (folder / "dataset_dict.json").is_file()
    for file in _files(folder, kinds):
        part, split = read_part(file, names), f"{file.parent.name}/" if by_split else ""
        if part.id is None and part.vector is not None and (file.parent / "state.json").is_file():
            first = sum(len(one.id) for one in parts if one.file.parent == file.parent)
            part = part._replace(id=range(first, first + len(part.vector)), chosen={**part.chosen, "id": ""})
        if split and part.id is not None:
            part = part._replace(id=[split + str(one).removeprefix(split) for one in part.id])
        parts.append(part)
    if not parts:
        raise ValueError(f"{printable(folder)}: a data set without rows")
    return parts


def _files(source: pathlib.Path, kinds: Iterable[str]) -> list[pathlib.Path]:
    """Return the file itself, or the files of a pattern or folder in the order of their numbers."""
    name = printable(source)
    files = [source]
    if not source.exists() and glob.has_magic(str(source)):
        files = [pathlib.Path(file) for file in glob.glob(str(source), recursive=True)]
        if not files:
            raise ValueError(f"{name}: no file matches this pattern; give another, such as 'img_emb/*.npy'")
    if source.is_dir():
        try:
            if (source / "dataset_dict.json").is_file():
                splits = json.loads((source / "dataset_dict.json").read_text())["splits"]
                return [file for split in splits for file in _files(source / split, kinds)]
            if (source / "state.json").is_file():
                state = json.loads((source / "state.json").read_text())
                if state.get("_indices_data_files"):  # of versions before 2.12
                    raise ValueError(f"{name}: its rows are chosen by an index; save flatten_indices() of it")
                return [source / one["filename"] for one in state["_data_files"]]
        except (OSError, LookupError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{name}: not a whole data set ({error or type(error).__name__})") from None
        files = [file for file in source.iterdir() if file.suffix.lower() in kinds]
        suffixes = sorted({file.suffix.lower() for file in files})
        if len(suffixes) != 1:
            holds = f"holds {' and '.join(suffixes)} files" if files else f"a folder without {', '.join(kinds)} files"
            raise ValueError(f"{name}: {holds}; name them by a pattern, such as '{name}/*.npy'")
    return sorted(files, key=lambda file: [int(t) if t.isdigit() else t for t in re.split(r"(\d+)", str(file))])


def read_part(file: pathlib.Path, names: Mapping[str, str]) -> VectorPart:
    """Read one file; ``names`` are those of its arrays or columns by role. ValueError, one line, if it cannot be."""
    suffix = file.suffix.lower()
    if suffix not in READERS:
        raise ValueError(f"{printable(file)}: unknown file type {suffix!r}; known: {', '.join(READERS)}")
    try:
        kinds, load = READERS[suffix](file)
        chosen = _choose(names, kinds)
        wide = [] if "vector" in chosen else _numbered([name for name, kind in kinds.items() if kind == "number"])
        roles = {name: "" for name, kind in kinds.items() if name and kind not in ("vector", "")}
        roles |= dict.fromkeys(wide, "number") | {name: role for role, name in reversed(chosen.items())}
        loaded = load(roles)
        values = {role: loaded[name] for role, name in chosen.items()}
        if wide:
            chosen["vector"] = f"{wide[0]} to {wide[-1]}"
            values["vector"] = np.column_stack([loaded[name] for name in wide])
        fields = {name: loaded[name] for name, role in roles.items() if not role}
    except MemoryError:
        reason = "not enough memory for the array that its header announces"
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error})"
    except _BadTable as error:
        reason = str(error)
    except Exception as error:  # NumPy, PyArrow and zipfile raise nearly everything on damaged files
        reason = f"damaged or truncated ({' '.join(str(error).split())[:150] or type(error).__name__})"
        if "Python objects in dtype" in str(error) or "Object arrays" in str(error):
            reason = "holds Python objects, which are not unpickled; save numbers as float32, ids as text (dtype=str)"
        elif "pickle" in str(error):  # NumPy takes every unknown file for a pickle
            reason = "damaged, or not a NumPy file"
    else:
        chosen = {role: name for role, name in chosen.items() if name}
        return VectorPart(file, **values, chosen=chosen, columns=[name for name in kinds if name], fields=fields)
    raise ValueError(f"{printable(file)}: {reason}")


def _choose(names: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Choose the column or array of each role: by its name, by a usual one, or as the only one of its kind."""
    chosen: dict[str, str] = {}
    for role, usual in _USUAL.items():
        asked = [name for name in [names[role]] if name in kinds and (role, kinds[name]) != ("vector", "cell")]
        known = [name for name in usual if name in kinds and (kinds[name] == "vector") == (role == "vector")]
        kind = {"vector": "vector", "id": "text"}.get(role)
        alone = [name for name in kinds if kinds[name] == kind and name not in chosen.values()]
        if best := [*asked, *known, *(alone if len(alone) == 1 else [])]:
            chosen[role] = best[0]
        elif role == "vector" and alone:
            raise _BadTable(
                f"no array is named {names['vector']!r} and several could hold the vectors: {', '.join(alone)}"
            )
    return chosen


def _numbered(names: Sequence[str]) -> list[str]:
    """Return columns of a number each in their order, such as emb_0 to emb_511; none if there are others."""
    parts = [part for name in names if (part := re.fullmatch(r"(.*?)(\d+)", name))]
    if len(names) < 2 or len(parts) < len(names) or len({part[1] for part in parts}) > 1:
        return []
    return [part[0] for part in sorted(parts, key=lambda part: int(part[2]))]


def _of_arrays(arrays: Mapping[str, Any]) -> _Columns:
    def kind(array: Any) -> str:
        if array.ndim == 2 and (array.dtype.kind == "f" or array.dtype in (np.int8, np.uint8)):
            return "vector"
        return "text" if array.ndim == 1 and array.dtype.kind in "US" else ""

    kinds = {name: kind(array) for name, array in arrays.items()}
    numbers = ("vector", "scale")
    return _Columns(kinds, lambda roles: {n: arrays[n] if roles[n] in numbers else arrays[n].tolist() for n in roles})


def _read_npy(file: pathlib.Path) -> _Columns:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if array.dtype.kind in "US":
        return _Columns({"": "text"}, lambda roles: {"": array.tolist()})
    return _Columns({"": "vector"}, lambda roles: {"": array})


def _read_npz(file: pathlib.Path) -> _Columns:
    with open(file, "rb") as stream:  # np.load leaves a damaged one open
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not a .npz archive")
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
    saved = {"data", "shape", "format"} <= set(arrays)  # by scipy.sparse.save_npz
    if saved or {"data", "indices", "indptr", "shape"} <= set(arrays):
        parts = () if saved else tuple(arrays[name] for name in ("data", "indices", "indptr"))
        matrix = sp.load_npz(file) if saved else sp.csr_matrix(parts, arrays["shape"])
        if matrix.format != "csr":
            raise _BadTable("its sparse matrix is not CSR; save matrix.tocsr()")
        if matrix.dtype.kind != "f":
            raise _BadTable(f"its sparse matrix holds {matrix.dtype}, not float32 or float64")
        matrix.check_format(full_check=True)  # indices of a damaged file may point outside the arrays
        arrays["vector"] = matrix
    return _of_arrays(arrays)


def _read_safetensors(file: pathlib.Path) -> _Columns:
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
    return _of_arrays(arrays)


def _read_arrow(file: pathlib.Path) -> _Columns:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds
    except ImportError:
        raise _BadTable(f"{file.suffix} files need pyarrow: {how_to_install('parquet')}") from None

    form = "parquet" if file.suffix.lower() == ".parquet" else "ipc"
    with open(file, "rb") as stream:
        streamed = form == "ipc" and not stream.read(6).startswith(b"ARROW1")
    if streamed:  # as the library datasets writes it
        table: Any = ds.dataset(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
    else:
        table = ds.dataset(str(file), format=form)
    features, types = features_of(table.schema), {}
    for field in table.schema:
        kind = getattr(field.type, "storage_type", field.type)
        types[field.name] = kind.value_type if pa.types.is_dictionary(kind) else kind

    def kind_of(kind: Any) -> str:
        if getattr(kind, "value_type", None) in (pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint8()):
            return "vector"
        if kind in (pa.string(), pa.large_string(), pa.string_view()):
            return "text"
        return "number" if pa.types.is_floating(kind) else "field" if pa.types.is_primitive(kind) else ""

    def values(name: str, role: str, column: Any) -> Any:
        column.validate(full=True)  # damaged offsets would end the process
        if role == "number":
            return column.to_numpy()
        if role != "vector":
            named = [named_class(value, features.get(name)) for value in column.to_pylist()]
            return None if pa.types.is_struct(types[name]) and role == "id" and None in named else named
        written = table.schema.field(name).type
        if kind_of(column.type) != "vector" or sum(side != 1 for side in getattr(written, "shape", [])) > 1:
            raise _BadTable(f"column {name!r} holds {written}, not lists of float32, float64 or int8")
        numbers, lengths = pc.list_flatten(column), pc.min_max(pc.list_value_length(column))
        shortest, longest = lengths["min"].as_py() or 0, lengths["max"].as_py() or 0
        if column.null_count or numbers.null_count:
            raise _BadTable(f"column {name!r} has missing values")
        if shortest != longest:
            raise _BadTable(f"the vectors of column {name!r} have different lengths, from {shortest} to {longest}")
        return numbers.to_numpy().reshape(len(column), longest)

    def load(roles: Mapping[str, str]) -> Mapping[str, Any]:
        """Read these columns; of images, which are dictionaries, the paths without their bytes."""
        parts = {name: ["path"] if pa.types.is_struct(types[name]) else [] for name in roles}
        read = table.to_table(columns={name: ds.field(name, *parts[name]) for name in roles})
        plain = {name: read[name] if parts[name] else read[name].cast(types[name]) for name in roles}
        return {name: values(name, role, plain[name]) for name, role in roles.items()}

    return _Columns({name: kind_of(kind) for name, kind in types.items()}, load)


def features_of(schema: Any) -> Mapping[str, Any]:
    """Return what the library datasets wrote of the columns of a table: the names of classes, among others."""
    try:
        return dict(json.loads(schema.metadata[b"huggingface"])["info"]["features"])
    except (ValueError, LookupError, TypeError):
        return {}


def named_class(value: Any, feature: Any) -> Any:
    """Return a value of a column, of a class its name: the library datasets writes numbers, and names beside them."""
    if isinstance(feature, list) and feature:  # of older versions
        feature = {"feature": feature[0]}
    if not isinstance(feature, dict):
        return value
    if isinstance(value, list):
        return [named_class(one, feature.get("feature")) for one in value]
    names = feature.get("names")
    if isinstance(value, int) and isinstance(names, list):
        return names[value] if 0 <= value < len(names) else None
    return value


def _read_csv(file: pathlib.Path) -> _Columns:
    with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
        try:
            reader = csv.DictReader(stream)
            rows = list(reader)
        except csv.Error as error:
            raise _BadTable(f"not a CSV table ({error})") from None
    kinds = {name: "cell" for name in reader.fieldnames or [] if name}
    return _Columns(kinds, lambda roles: {name: [row[name] for row in rows] for name in roles})


def _read_text(file: pathlib.Path) -> _Columns:
    text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return _Columns({"": "text"}, lambda roles: {"": text.removesuffix("\n").split("\n") if text else []})


VECTORS: dict[str, Callable[[pathlib.Path], _Columns]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    **dict.fromkeys((".parquet", ".arrow", ".feather"), _read_arrow),
}
READERS = VECTORS | {".csv": _read_csv, ".txt": _read_text}
