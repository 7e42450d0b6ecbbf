"""The configuration of a run as it was checked when it was kept, which needs neither YAML nor pydantic.

Beside ``config.yaml``, which people read and change, lie its values in JSON, with the names of those that are not the
defaults. They count for that text of the file and for these models; otherwise the file is read and checked again.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from .models import Settings


class KeptFile(TypedDict):
    """Content of the file beside a configuration file."""

    of: str
    values: Settings
    changed: list[str]


class Kept:
    """Values of a configuration or of a section of it; all else of the model, which is then made."""

    def __init__(self, values: Settings, model: Callable[[], Any], changed: Sequence[str] = ()) -> None:
        self._values, self._model = values, functools.cache(model)
        self.changed = changed  # of a whole configuration: full names of the settings that are not the defaults

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of protocols, such as those of copies
            raise AttributeError(name)
        if name not in self._values:
            return getattr(self._model(), name)
        value = self._values[name]
        return Kept(value, lambda: getattr(self._model(), name)) if isinstance(value, dict) else value

    def model_dump(
        self, *, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> MutableMapping[str, Any]:
        """Return values by their names, as pydantic's models do."""
        names = [name for name in self._values if name in (include or self._values) and name not in (exclude or ())]
        return json.loads(json.dumps({name: self._values[name] for name in names}))

    def __eq__(self, other: object) -> bool:
        return self._model() == (other._model() if isinstance(other, Kept) else other)

    __hash__ = None  # type: ignore[assignment]  # as of models with lists


def file_of(config: Path) -> Path:
    """Path of the values that a configuration file had when it was kept."""
    return config.with_name(f".{config.stem}.json")


def values_kept(text: bytes, values: Settings, changed: list[str]) -> str:
    """Content of the file beside a configuration file of this text."""
    return json.dumps({"of": _fingerprint(text, values, changed), "values": values, "changed": changed})


def read_kept(config: Path) -> KeptFile | None:
    """Read what a configuration file said when it was kept; None if it or its models have changed since."""
    try:
        kept: KeptFile = json.loads(file_of(config).read_bytes())
        is_of_it = kept["of"] == _fingerprint(config.read_bytes(), kept["values"], kept["changed"])
        return kept if is_of_it else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _fingerprint(text: bytes, values: Settings, changed: list[str]) -> str:
    models = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"\0".join([text, json.dumps([values, changed]).encode(), *models])).hexdigest()
