"""The values that `visterm tune` tries for each setting of a learner and of the vectors' weights.

Values that a person would write, evenly spaced where the effect of a setting depends on its size: finer ones differ by
less than chance. The number of steps is not here: each trial finds its own, on the validation images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.config.loading import read_values, with_settings
from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError

WEIGHTS: dict[str, list[Any]] = {"features.weighting.tf": ["count", "sqrt"]}  # of visterms, whatever the learner


def search_space(learner: str, config: Config, *, visterms: bool, given: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Return the values to try of each setting, by its full name, such as ``oasis.C``.

    The value that the configuration has is always among them. ``given`` are texts ``oasis.C=0.1,1`` or ``C=0.1,1``:
    these settings alone take the place of the table's. UserError for settings or values that do not exist, and if
    there is no choice.
    """
    space = {f"{learner}.{key}": values for key, values in TABLE[learner].tried.items()}
    if visterms:
        space |= WEIGHTS
    if given:
        space = dict(_read(text, learner, config, allowed=WEIGHTS if visterms else {}) for text in given)
    for key, values in space.items():
        start = value_of(config, key)
        space[key] = [*values, *([] if start in values else [start])]
    if not any(len(values) > 1 for values in space.values()):
        raise UserError("--search: nothing to choose from; name two values at least, such as --search C=0.1,1")
    return space


def value_of(config: Config, key: str) -> Any:
    """Return a setting by its full name."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _read(text: str, learner: str, config: Config, *, allowed: Mapping[str, Any]) -> tuple[str, list[Any]]:
    key, equals, values_text = text.partition("=")
    if not equals or not key:
        raise UserError(f"--search {text}: expected setting=value,value, for example --search C=0.1,1")
    key = key if "." in key else f"{learner}.{key}"
    if not key.startswith(f"{learner}.") and key not in allowed:
        also = f" and {', '.join(allowed)}" if allowed else ""
        raise UserError(
            f"--search {text}: only settings of {learner}{also} can be tuned without extracting images again"
        )
    values = read_values(values_text)
    if not values:
        raise UserError(f"--search {text}: nothing to search; name values, such as --search C=0.1,1")
    for value in values:
        with_settings(config, {key: value}, source=f"--search {text}")
    return key, list(dict.fromkeys(values))
