"""Settings that have no effect beside others, such as a number of visterms where vectors are a network's."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .kept import Kept

if TYPE_CHECKING:
    from .models import Config

_OF_IMAGES = ("visterms", "deep", "onnx")


def _kind(config: Config) -> str:
    return config.features.kind if config.collection.vectors.file is None else "collection.vectors.file"


def _has_layout(config: Config) -> bool:
    """Whether folders give the labels."""
    collection = config.collection
    return collection.clicks is None and (
        collection.labels == "auto" or (collection.has_tables and collection.label_column == "none")
    )


# Settings, where they have no effect, and why.
_RULES: tuple[tuple[tuple[str, ...], Callable[[Config], bool], str], ...] = (
    (
        ("collection.vectors.unit", "collection.vectors.*_column"),
        lambda config: config.collection.vectors.file is None,
        "without collection.vectors.file",
    ),
    (
        ("collection.name_column", "collection.label_column", "collection.label_separator"),
        lambda config: not config.collection.has_tables,
        "without a table of images (collection.labels)",
    ),
    (
        ("collection.label_separator",),
        lambda config: config.collection.has_tables and config.collection.label_column in ("none", "0/1"),
        "as collection.label_column says",
    ),
    (
        ("collection.skip_bad_rows",),
        lambda c: not c.collection.has_tables and c.collection.clicks is None and c.collection.triplets is None,
        "without a table of images, clicks or triplets",
    ),
    (("collection.label_level",), lambda config: not _has_layout(config), "as folders do not give the labels"),
    (
        ("collection.exclude", "collection.max_pixels", "features.[!pt]*"),
        lambda config: _kind(config) not in _OF_IMAGES,
        "as vectors come from collection.vectors.file",
    ),
    (("features.[!kpdot]*",), lambda config: _kind(config) in ("deep", "onnx"), "as features.kind is not visterms"),
    (("features.precision",), lambda config: _kind(config) == "visterms", "as features.kind is visterms"),
    (("features.deep.*",), lambda config: _kind(config) in ("visterms", "onnx"), "as features.kind is not deep"),
    (("features.onnx.*",), lambda config: _kind(config) in ("visterms", "deep"), "as features.kind is not onnx"),
    (
        ("features.onnx.keep",),
        lambda config: _kind(config) == "onnx" and config.features.onnx.resize not in ("crop", "trim"),
        "as features.onnx.resize is neither crop nor trim",
    ),
    (
        ("features.deep.keep",),
        lambda config: _kind(config) == "deep" and config.features.deep.resize not in ("crop", "trim"),
        "as features.deep.resize is neither crop nor trim",
    ),
    (
        ("features.codebook.n_trees", "features.codebook.n_candidates", "features.codebook.min_samples_leaf"),
        lambda config: _kind(config) == "visterms" and config.features.codebook.kind != "forest",
        "as features.codebook.kind is not forest",
    ),
    (("split.by",), lambda config: config.collection.clicks is not None, "beside collection.clicks"),
    (("evaluate.class_splits",), lambda config: config.evaluate.protocol != "open", "as evaluate.protocol is not open"),
    (("index.exact_milliseconds",), lambda config: config.index.kind != "auto", "as index.kind is not auto"),
    (("*.click_cutoff",), lambda config: config.collection.clicks is None, "without collection.clicks"),
    (("index.n_candidates",), lambda config: config.index.kind == "exact", "as index.kind is exact"),
)


def set_settings(config: Config, *sections: str) -> list[str]:
    """List the settings of these sections that differ from their defaults, by their full names."""
    if isinstance(config, Kept):
        return [name for name in config.changed if name.partition(".")[0] in sections]
    from .models import Config

    defaults = Config()
    return _differences(config.model_dump(include={*sections}), defaults.model_dump(include={*sections}))


def _differences(values: dict[str, Any], defaults: dict[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in values.items():
        if isinstance(value, dict):
            names += _differences(value, defaults[key], f"{prefix}{key}.")
        elif value != defaults[key]:
            names.append(f"{prefix}{key}")
    return names


def idle_settings(config: Config, *sections: str) -> list[str]:
    """List the settings of these sections that somebody changed and that have no effect, a line per reason."""
    names, lines = set_settings(config, *sections), []
    for patterns, is_idle, reason in _RULES:
        idle = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if idle and is_idle(config):
            lines.append(f"{', '.join(idle)}: no effect {reason}")
    return lines
