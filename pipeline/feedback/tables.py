"""The table of teachers of a trained learner: which images taught it (`visterm.learners.Teachers`)."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.models import how_to_train
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import TaughtImages, load_teachers


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
