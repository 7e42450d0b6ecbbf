"""Is-a tables: which labels are siblings."""

from __future__ import annotations

import graphlib
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.tables import read_rows, readable

if TYPE_CHECKING:
    from scipy import sparse


def read_is_a(file: Path) -> dict[str, set[str]]:
    """Read the parents of each label from a CSV table with the columns ``label,parent``, where a label may repeat.

    UserError if the table cannot be read, lacks a column or a name, or runs in a circle.
    """
    parents: dict[str, set[str]] = defaultdict(set)
    for line, row in read_rows(file, ("label", "parent")):
        label, parent = readable(row["label"]), readable(row["parent"])
        if label == parent:
            raise UserError(f"{file}, line {line}: {label} cannot be its own parent")
        parents[label].add(parent)
    if not parents:
        raise UserError(f"{file}: holds no row; the columns are label,parent")
    try:
        graphlib.TopologicalSorter(parents).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]  # graphlib names the parent first
        shown = [*circle[:4], "...", circle[-1]] if len(circle) > 6 else circle
        raise UserError(f"{file}: runs in a circle: {' is a '.join(shown)}") from None
    return dict(parents)


def parents_of(names: Sequence[str], file: Path, *, numbered: bool) -> dict[str, list[str]]:
    """Return the table as HIER takes it, for labels of these names; ``numbered`` names them by their places.

    UserError as `read_is_a`, or if the table names none of the labels.
    """
    table = read_is_a(file)
    known = {*table, *(parent for parents in table.values() for parent in parents)}
    if known.isdisjoint(names):
        raise UserError(f"{file}: names none of the {count(len(names), 'label')} of this run, such as {names[0]}")
    place = {name: str(i) if numbered else name for i, name in enumerate(names)}
    # Nodes that are no label keep their names, which must not be those of places.
    renamed = {name: place.get(name, f"is-a {name}" if numbered else name) for name in known}
    return {renamed[child]: sorted(renamed[parent] for parent in parents) for child, parents in table.items()}


def siblings_of(labels: Sequence[str], file: Path) -> tuple[tuple[list[str], sparse.csr_array], str | None]:
    """Return the sorted labels and the matrix of sibling pairs by an is-a table, and a warning about labels not in it.

    UserError as `read_is_a`, or if the table names none of the labels.
    """
    import numpy as np
    from scipy import sparse

    from visterm.retrieval import siblings_from_parents

    table = read_is_a(file)
    names = sorted(set(labels))
    unknown = [name for name in names if name not in table]
    if len(unknown) == len(names):
        raise UserError(f"{file}: names none of the {count(len(names), 'label')} of this run, such as {names[0]}")
    numbers = {parent: i for i, parent in enumerate(sorted({p for some in table.values() for p in some}))}
    rows = [row for row, name in enumerate(names) for _ in table.get(name, ())]
    columns = [numbers[parent] for name in names for parent in table.get(name, ())]
    parents = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(numbers)))
    warning = None
    if unknown:
        warning = (
            f"{os.path.basename(file)} gives no parent for {len(unknown):,} of {count(len(names), 'label')}, such as "
            f"{unknown[0]}: such a label has no sibling but itself"
        )
    return (names, siblings_from_parents(parents)), warning
