"""The images that a learner or a version of it learned from, with their vectors: the rows of its table of teachers.

    <learner or version>/teachers/    rows.json, and vectors.npy, or sparse: data.npy, indices.npy, indptr.npy
                                      (of a version its table, as table_data.npy, ...)

They are kept with the learner, so that its table stays of use when images are changed or removed.
"""

from __future__ import annotations

import json
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError

from .checksums import check_files
from .records import read_record, repair_hint
from .run import Run, how_to_train

FOLDER = "teachers"
MOST_IMAGES = 20_000  # of a training that records its teachers
_CSR = ("data", "indices", "indptr")


class TaughtImages(NamedTuple):
    """Images that a learner learned from."""

    X: Any  # vectors: (n, n_features)
    rows: list[dict[str, Any]]  # of each its `id`, or `sha256` and `mark` (`number` and `time`; None of a query)
    table: Any = None  # CSR (n, n) of a version; that of a learner is its `teachers_`


def save_teachers(artifact: Path, images: TaughtImages) -> None:
    """Write the images of a learner or a version."""
    import numpy as np
    from scipy import sparse

    folder = artifact / FOLDER
    folder.mkdir()
    X, table = images.X, images.table
    arrays = {part: getattr(X, part) for part in _CSR} if sparse.issparse(X) else {"vectors": X}
    if table is not None:
        arrays |= {f"table_{part}": getattr(table, part) for part in _CSR}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", np.asarray(array), allow_pickle=False)
    (folder / "rows.json").write_text(json.dumps({"n_features": X.shape[1], "rows": images.rows}))


def is_explaining(file: str) -> bool:
    """Whether a file of a learner only explains its scores: its table of teachers, and their vectors."""
    return file.startswith(("files/teachers_", f"{FOLDER}/"))


def load_teachers(artifact: Path) -> TaughtImages | None:
    """Read what `save_teachers` wrote; None if there is nothing, UserError if it is damaged."""
    import numpy as np
    from scipy import sparse

    folder = artifact / FOLDER
    try:
        noted = (read_record(artifact) or {}).get("crc32", {})
        if folder.exists():
            check_files(artifact, {file: crc32 for file, crc32 in noted.items() if is_explaining(file)})
        known = json.loads((folder / "rows.json").read_text())

        def read(name: str) -> np.ndarray:
            return np.load(folder / f"{name}.npy", allow_pickle=False)

        def read_sparse(prefix: str, shape: tuple[int, int]) -> sparse.csr_array:
            array = sparse.csr_array(tuple(read(f"{prefix}{part}") for part in _CSR), shape=shape)
            array.check_format(full_check=True)
            return array

        n = len(known["rows"])
        for number, row in enumerate(known["rows"]):
            if not _is_row(row):
                raise ValueError(f"row {number} of rows.json names no image")
        shape = n, known["n_features"]
        X = read("vectors") if (folder / "vectors.npy").exists() else read_sparse("", shape)
        if X.shape != shape:
            raise ValueError("it has another number of images than rows.json")
        table = read_sparse("table_", (n, n)) if (folder / "table_data.npy").exists() else None
        return TaughtImages(X, known["rows"], table)
    except FileNotFoundError as error:
        if not folder.exists():
            return None
        raise UserError(f"{folder}: a file is gone ({error.filename}); {repair_hint(artifact)}") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, TokenError) as error:
        raise UserError(f"{folder}: damaged ({error}); {repair_hint(artifact)}") from None


def _is_row(row: Any) -> bool:
    """Whether a row is as `TaughtImages` describes it."""
    if not isinstance(row, dict):
        return False
    if "id" in row:
        return type(row["id"]) is int
    mark = row.get("mark")
    return isinstance(row.get("sha256"), str) and (
        mark is None or (isinstance(mark, dict) and type(mark.get("number")) is int and "time" in mark)
    )


def again(run: Run, name: str) -> str:
    """Return the command that retrains a learner with a table of teachers."""
    return f"'{how_to_train(run, name)} --force'"


def no_table(run: Run, name: str) -> UserError:
    """Make the error of a learner that was trained without a table."""
    return UserError(f"{name} was trained without a table of teachers; run {again(run, name)} to make one")


def check_table(run: Run, name: str, learner: Any) -> Any:
    """Return the table of a learner, CSR; UserError with the way to one if there is none."""
    from visterm.learners import OASIS

    if not isinstance(learner, OASIS):
        raise UserError(f"{name} has no table of teachers; oasis has one: use --learner oasis")
    table = getattr(learner, "teachers_", None)
    if table is None and (learner.variant in ("psd", "dissim") or learner.lock_free):
        setting = "oasis.lock_free" if learner.lock_free else f"oasis.variant={learner.variant}"
        raise UserError(f"{name} with {setting} has no table of teachers; train it without this setting")
    if table is None:
        raise no_table(run, name)
    return table


def taught_images(run: Run, name: str) -> TaughtImages:
    """Load the images that the base learned from; UserError if they were not kept."""
    taught = load_teachers(run.learner(name))
    if taught is None:
        raise no_table(run, name)
    return taught
