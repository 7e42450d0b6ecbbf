"""Settings that a tuning has chosen for a learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .run import Run

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Settings


def tuned_settings(run: Run, name: str, trained: Mapping[str, Any]) -> Settings:
    """Return the settings that `tune` chose and that a learner, given its record, was trained with; {} if it was not.

    Keys are full names, such as ``oasis.C``.
    """
    best = (run.record(run.tuning(name)) or {}).get("result", {}).get("best", {})
    extractor = run.record(run.extractor) or {"config": {}}
    used = {"features": extractor["config"].get("features", {})} | trained["config"]
    return best if best and all(_value_of(used, key) == value for key, value in best.items()) else {}


def tuned_text(settings: Mapping[str, Any]) -> str:
    """Return settings as ``C=0.1, init=zero``, without the names of their sections."""
    texts = {key.rpartition(".")[2]: value for key, value in settings.items()}
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in texts.items())


def _value_of(sections: Any, key: str) -> Any:
    for name in key.split("."):
        sections = sections.get(name) if isinstance(sections, dict) else None
    return sections
