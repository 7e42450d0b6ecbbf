"""Versions of a learner that feedback updated."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict, Field

from visterm.pipeline.store.records import fingerprint, read_record
from visterm.pipeline.store.run import Run

KEPT = 5  # versions that undo can go back to


class InForce(BaseModel):
    """What `in_force.json` says of one learner."""

    model_config = ConfigDict(extra="forbid", strict=True)

    base: str  # fingerprint of the trained learner that versions stand on
    version: int = Field(default=0, ge=0)  # that answers; 0 is the base
    last: int = Field(default=0, ge=0)  # highest number that a version has had; none is given again
    set_aside: list[int] = []  # marks not to be learned from: refused, or before a reset
    # What undo goes back to, the latest last: a version, and after a refusal or reset what was set aside before it.
    before: list[tuple[int, list[int] | None]] = []
    void: bool = False  # versions were made, of a base that is no longer there


def fingerprint_of(run: Run, learner: str) -> str:
    """What tells a trained learner from every other, one trained again with the same settings too; "" of none."""
    record = read_record(run.learner(learner))
    try:
        files = (run.learner(learner) / "files" / "learner.json").read_bytes()
    except OSError:
        return ""
    return fingerprint(record and record.get("created"), hashlib.sha256(files).hexdigest())
