"""The table of teachers of a trained learner: which images taught it (`visterm.learners.Teachers`)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import again, check_table, taught_images


def teaching_ids(run: Run, name: str, learner: Any) -> set[int]:
    """Ids of the images that a base learned anything from."""
    import numpy as np

    table = check_table(run, name, learner)
    rows = taught_images(run, name).rows
    has_entries = np.union1d(np.flatnonzero(np.diff(table.indptr)), table.indices)
    return {rows[row]["id"] for row in has_entries}


def without_taught(run: Run, name: str, learner: Any, ids: Container[int]) -> Any:
    """Return the base without all that some images took part in: see `Teachers.without`."""
    from visterm.learners import Teachers

    check_table(run, name, learner)
    taught = taught_images(run, name)
    rows = [place for place, row in enumerate(taught.rows) if row["id"] in ids]
    try:
        return Teachers(learner, taught.X).without(rows)
    except ValueError as error:
        raise UserError(f"{name}: {error}; run {again(run, name)} to make the table again") from None
