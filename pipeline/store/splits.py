"""Train/test split, from folders or by share."""

from __future__ import annotations

import difflib
import functools
import json
import os
from collections.abc import Callable, Sequence

from visterm.pipeline.config.models import Config

SPLIT_FOLDERS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}


class Layout:
    """What the folders say: root/{train,test,validation}/<label>/..., root/<label>/..., or nothing."""

    def __init__(self, kind: str):
        self.kind = kind  # split, classes or flat

    @classmethod
    def of(cls, paths: Sequence[str]) -> Layout:
        """What the folders of these images say."""
        folders = {top.lower() for top in {path.partition(os.sep)[0] for path in paths if os.sep in path}}
        if folders <= set(SPLIT_FOLDERS) and "train" in folders:  # images beside these folders have no class
            return cls("split")
        return cls("classes" if folders else "flat")

    def label(self, path: str) -> str | None:
        """The class that the folder of an image names; outside the root folders say nothing."""
        return self._label_in(path.rpartition(os.sep)[0])

    @functools.cached_property
    def _label_in(self) -> Callable[[str], str | None]:
        """The class of the images in a folder; remembered, as there are many in each."""

        @functools.cache
        def label_in(folder: str) -> str | None:
            depth = {"split": 1, "classes": 0}.get(self.kind)
            parts = folder.split(os.sep)
            if depth is None or len(parts) <= depth or os.path.isabs(folder):
                return None
            return parts[depth] or None

        return label_in

    def split(self, path: str) -> str | None:
        """The split that the top folder of an image names."""
        return SPLIT_FOLDERS.get(path.split(os.sep)[0].lower())


def mistyped_split(paths: Sequence[str], layout: Layout) -> str | None:
    """Warn if folders look like root/{train,test}/<class>/..., but are taken for classes, as one has another name."""
    if layout.kind != "classes":
        return None
    folders = {path.rpartition(os.sep)[0] for path in paths}
    tops = {folder.partition(os.sep)[0] for folder in folders if os.sep in folder}
    splits = sorted(top for top in tops if top.lower() in SPLIT_FOLDERS)
    if not splits:
        return None
    others = sorted({folder.partition(os.sep)[0] for folder in folders if folder} - set(splits))
    if not others:
        return f"there is no folder train beside {', '.join(splits)}, so these folders are taken for classes"
    near = difflib.get_close_matches(others[0].lower(), SPLIT_FOLDERS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"folders {', '.join(splits)} look like a split, but {others[0]} beside them is none{hint}: all of them are "
        f"taken for classes; a split has only the folders train, test and validation"
    )


def split_key(config: Config) -> str:
    """What decides which images may be learned from, besides the images themselves."""
    labels = config.collection.labels if config.collection.labels in ("auto", "none") else "table"
    kind = "clicks" if config.collection.clicks is not None else labels
    return json.dumps([config.split.model_dump(), config.collection.classes, kind])


def share(wanted: int | float, n: int) -> int:
    """Return how many of n images a number or a share means."""
    return min(wanted, n) if isinstance(wanted, int) else min(n, int(wanted * n + 0.5))
