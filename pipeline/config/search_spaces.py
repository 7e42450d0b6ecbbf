"""The values that `visterm tune` tries for each setting of a learner and of the vectors' weights.

Values that a person would write, evenly spaced where the effect of a setting depends on its size: finer ones differ by
less than chance. The number of steps is not here: each trial finds its own, on the validation images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visterm.pipeline.errors import UserError

from .loading import read_values, with_settings
from .models import Config

SPACES: dict[str, dict[str, list[Any]]] = {
    "oasis": {"C": [0.01, 0.03, 0.1, 0.3, 1.0], "init": ["identity", "zero"], "pairs_per_query": [32, 256]},
    "aroma": {"r": [0.01, 0.1, 1.0, 10.0, 100.0], "init": ["zero", "identity"], "pairs_per_query": [1, 32]},
    "wsabie": {
        "n_components": [50, 100, 200],
        "learning_rate": [0.005, 0.01, 0.02, 0.05, 0.1],
        "max_norm": [1.0, 3.0],
        "decay_steps": [10_000, 100_000, None],
    },
    "pamir": {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]},
    "warp": {"learning_rate": [0.01, 0.03, 0.1, 0.3, 1.0], "max_norm": [3.0, 10.0, 30.0]},
    "ovr": {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]},
    "knn": {"n_neighbors": [3, 10, 30, 100], "weights": ["similarity", "uniform"]},
    "hier": {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]},
    "lego": {"eta": [0.002, 0.005, 0.02, 0.08, 0.32], "margin": [0.3, 1.0, 3.0], "loss": ["triplet", "pairs"]},
    "mcml": {"trace_penalty": [0.0, 0.001, 0.003, 0.01, 0.03]},
    "musl": {"n_metrics": [1, 3, 5, 8], "alpha": [0.1, 0.5, 1.0], "r": [50.0, 500.0, 5000.0]},
}
WEIGHTS: dict[str, list[Any]] = {"features.weighting.tf": ["count", "sqrt"]}  # of visterms, whatever the learner


def search_space(learner: str, config: Config, *, visterms: bool, given: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Return the values to try of each setting, by its full name, such as ``oasis.C``.

    The value that the configuration has is always among them. ``given`` are texts ``oasis.C=0.1,1`` or ``C=0.1,1``:
    these settings alone take the place of the table's. UserError for settings or values that do not exist, and if
    there is no choice.
    """
    space = {f"{learner}.{key}": values for key, values in SPACES[learner].items()}
    if visterms:
        space |= WEIGHTS
    if given:
        space = dict(_read(text, learner, config, allowed=WEIGHTS if visterms else {}) for text in given)
    for key, values in space.items():
        own = value_of(config, key)
        space[key] = [*values, *([] if own in values else [own])]
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
