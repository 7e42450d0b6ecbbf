"""What the models share with commands that import no pydantic: see `kept`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TAGS = ("keywords", "people")  # of files and sidecars: in place of tables of labels
# Settings of features that are not those of visterms.
NOT_OF_VISTERMS = frozenset(("kind", "precision", "deep", "onnx", "text_model", "text_tokenizer", "text_layer"))


def tags_of(labels: str | Sequence[str]) -> list[str]:
    """Which tags of the files give labels, by the setting ``labels``; none where others do."""
    labels = [labels] if isinstance(labels, str) else labels
    return [name for name in TAGS if name in labels]


def has_tables(labels: str | Sequence[str]) -> bool:
    """Whether labels and fields come from tables, by the setting ``labels``."""
    return labels not in ("auto", "none") and not tags_of(labels)


def counts_visterms(config: Any) -> bool:
    """Whether vectors are counts of visterms, neither those of a network nor imported ones."""
    return config.features.kind == "visterms" and config.collection.vectors.file is None
