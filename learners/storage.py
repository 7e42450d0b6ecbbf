"""A fitted learner as a folder: `learner.json`, and one .npy file per array, three per sparse one. No pickle.

The names of the array files hold the checksum of what is in them, and `learner.json`, replaced last and in one step,
names the files. So a folder is the old learner or the new one, never half of each, and the same learner always makes
the same files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path
from tokenize import TokenError
from typing import Any, TypedDict

import numpy as np

from visterm import sparse as sp
from visterm.files import replaced

FORMAT = 1
_FILE = "learner.json"
_SMALL = 1_000_000  # bytes of a file that is read in place of a copy
_CSR = ("data", "indices", "indptr")
_one_header = threading.RLock()
_log = logging.getLogger(__name__)


def save(folder: str | os.PathLike[str], name: str, params: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the learner called `name` to `folder`.

    TypeError if a parameter or a piece of state is neither an array nor something that JSON holds.
    """
    folder = Path(folder)
    # A new folder appears when it is complete; in an old one the new files stand beside the old ones until the end.
    target = folder if folder.exists() else folder.with_name(f".{folder.name}.tmp")
    if target != folder:
        shutil.rmtree(target, ignore_errors=True)  # of a process that was killed
        target.mkdir(parents=True)
    try:
        arrays: dict[str, Any] = {}
        tables: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for key, value in state.items():
            if isinstance(value, np.ndarray):
                arrays[key] = _write_array(target, key, value)
            elif sp.issparse(value):
                parts = {part: _write_array(target, f"{key}{part}", getattr(value, part)) for part in _CSR}
                tables[key] = {"shape": list(value.shape), **parts}
            else:
                plain[key] = value
        record = {"format": FORMAT, "class": name, "params": params, "state": plain, "arrays": arrays}
        if tables:
            record["tables"] = tables
        _write_record(target, record)
        if target != folder:
            os.replace(target, folder)
    except BaseException:
        if target != folder:
            shutil.rmtree(target, ignore_errors=True)
        raise
    entries = [*arrays.values(), *(table[part] for table in tables.values() for part in _CSR)]
    named = {entry["file"] for entry in entries}
    for path in folder.iterdir():
        if path.suffix in {".npy", ".tmp"} and path.name not in named:
            path.unlink()


def load(
    folder: str | os.PathLike[str], *, mmap_mode: str | None = None, verify: bool = True, tables: bool = True
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Class name, parameters and state as given to `save`; without sparse arrays unless `tables`.

    ValueError if no learner is there, for another format version, and for a missing or damaged file. A damaged sparse
    array is skipped with a warning in the log.
    """
    folder = Path(folder)
    try:
        record = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        version, name, params = record["format"], record["class"], record["params"]
    except OSError as error:
        raise ValueError(f"{folder}: no learner is saved here ({_FILE}: {error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{folder}: {_FILE} is damaged; train again") from None
    if version != FORMAT:
        raise ValueError(f"{folder}: saved in format {version!r}, this version reads {FORMAT}; train again")
    try:
        state = dict(record["state"])
        for key, entry in record["arrays"].items():
            state[key] = _read_array(folder, entry, mmap_mode, verify)
        for key, table in record.get("tables", {}).items() if tables else ():
            try:
                parts = [_read_array(folder, table[part], mmap_mode, verify) for part in _CSR]
                state[key] = sp.csr_array(tuple(parts), shape=tuple(table["shape"]))
            except ValueError as error:  # it explains the learner, and is not needed to use it
                _log.warning("%s is skipped: %s", key, error)
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder}: {_FILE} is damaged; train again") from None
    return name, params, state


class StoredArray(TypedDict):
    """The entry of an array file in `learner.json`."""

    file: str
    shape: list[int]
    dtype: str
    sha256: str


def _write_array(folder: Path, key: str, array: np.ndarray) -> StoredArray:
    array = np.ascontiguousarray(array)
    checksum = _sha256(array)
    name = f"{key}-{checksum[:16]}.npy"
    with replaced(folder / name) as file:  # also where there is such a file, which may be damaged
        np.save(file, array, allow_pickle=False)
    return {"file": name, "shape": list(array.shape), "dtype": array.dtype.str, "sha256": checksum}


def _sha256(array: np.ndarray) -> str:
    """Checksum of the bytes of a C-contiguous array; as those of numbers, since dates have no buffer."""
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data if array.size else b"").hexdigest()


def _write_record(folder: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=1, default=_plain_number, allow_nan=False) + "\n"
    with replaced(folder / _FILE) as file:
        file.write(text.encode())


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be saved with a learner")


def load_array(path: Path, mmap_mode: str | None = None) -> np.ndarray:
    """Read a .npy file, or map it by a mode of `numpy.load`, also while other threads read theirs.

    "copied r" and "copied c" map a nameless copy of the file, or read it where it is small or a copy has no room.
    Reading beyond the end of a mapped file that was cut short ends the process, and no other program has the copy.

    NumPy parses the header as Python, and threads of Python before 3.13 share the parser's count of depth: where the
    garbage collector hands over to another thread meanwhile, the first one ends with a SystemError (CPython issue
    106905).
    """
    if mmap_mode in ("copied r", "copied c"):
        return _copied(path, mmap_mode.removeprefix("copied "))
    with _one_header:
        # Callers pass on a plain string, which NumPy checks; its annotation names the four modes.
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)  # type: ignore[arg-type]


def _copied(path: Path, mode: str) -> np.ndarray:
    mapped = load_array(path, "r")  # of which only the header is read
    if isinstance(mapped, np.memmap) and mapped.flags.c_contiguous and mapped.nbytes >= _SMALL:
        with contextlib.suppress(OSError), open(path, "rb") as file, tempfile.TemporaryFile(dir=path.parent) as copy:
            shutil.copyfileobj(file, copy, _SMALL)
            copy.flush()
            options: Any = {"mode": mode, "offset": mapped.offset}
            return np.memmap(copy, mapped.dtype, shape=mapped.shape, **options)  # ValueError if it was cut short
    return load_array(path)


def _read_array(folder: Path, entry: dict[str, Any], mmap_mode: str | None, verify: bool) -> np.ndarray:
    name = Path(entry["file"]).name
    try:
        array = load_array(folder / name, mmap_mode)
    except OSError as error:
        raise ValueError(f"{folder}: {name} cannot be read ({error.strerror or error}); train again") from None
    except (ValueError, EOFError, TokenError):  # TokenError: of a header
        raise ValueError(f"{folder}: {name} is damaged; train again") from None
    if list(array.shape) != entry["shape"] or array.dtype.str != entry["dtype"]:
        raise ValueError(f"{folder}: {name} is not the array that {_FILE} describes; train again")
    if verify and _sha256(array) != entry["sha256"]:
        raise ValueError(f"{folder}: {name} is damaged (its checksum differs); train again")
    return array
