"""Which labels lie below which, where keywords have a hierarchy: a table that `hier.is_a` and `evaluate.is_a` take."""

from __future__ import annotations

import contextlib
import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from .database import Database
from .fields import note_change
from .files import write_text

IS_A = "is_a.csv"  # beside the catalogue


def enter_hierarchy(db: Database, parents: Mapping[str, Sequence[str]]) -> None:
    """Keep the labels right above each label; without any, remove those of before."""
    file = db.folder / IS_A
    if dict(parents) == read_hierarchy(db.folder):
        return
    note_change(db)
    if not parents:
        file.unlink(missing_ok=True)
        return
    text = io.StringIO()
    rows = [(label, parent) for label, above in parents.items() for parent in above]
    csv.writer(text, lineterminator="\n").writerows([("label", "parent"), *rows])
    write_text(file, text.getvalue())


def read_hierarchy(folder: Path) -> dict[str, list[str]]:
    """Read the labels right above each label; none where there is no hierarchy, or it is damaged."""
    parents: dict[str, list[str]] = defaultdict(list)
    with contextlib.suppress(OSError, ValueError, csv.Error), open(folder / IS_A, encoding="utf-8", newline="") as file:
        for label, parent in list(csv.reader(file))[1:]:
            parents[label].append(parent)
        return dict(parents)
    return {}


def above(label: str, parents: Mapping[str, Sequence[str]]) -> set[str]:
    """Return a label and all that is above it."""
    seen, waiting = set(), [label]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += parents.get(name, ())
    return seen
