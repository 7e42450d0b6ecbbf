"""Train/test split, from folders or by share."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence

from visterm.pipeline.config.models import Config, SplitConfig

from .database import Database

FEW_CLICKED = 200  # images: two fifths of fewer say little as test images, and are missed where they are learned from
SPLIT_FOLDERS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}


class Layout:
    """Meaning of the folders: root/{train,test,validation}/<label>/..., root/<label>/..., or none."""

    def __init__(self, kind: str):
        self.kind = kind  # split, classes or flat
        self._label_in = functools.cache(self._class_of)  # many images are in one folder

    @classmethod
    def of(cls, paths: Sequence[str]) -> Layout:
        """Recognise the layout of these images' folders."""
        folders = {top.lower() for top in {path.partition(os.sep)[0] for path in paths if os.sep in path}}
        if folders <= set(SPLIT_FOLDERS) and "train" in folders:  # images beside these folders have no class
            return cls("split")
        return cls("classes" if folders else "flat")

    def label(self, path: str) -> str | None:
        """The class that the folder of an image names; None outside the root."""
        return self._label_in(path.rpartition(os.sep)[0])

    def _class_of(self, folder: str) -> str | None:
        depth = {"split": 1, "classes": 0}.get(self.kind)
        parts = folder.split(os.sep)
        if depth is None or len(parts) <= depth or os.path.isabs(folder):
            return None
        return parts[depth] or None

    def split(self, path: str) -> str | None:
        """The split that the top folder of an image names."""
        return SPLIT_FOLDERS.get(path.split(os.sep)[0].lower())


def mistyped_split(paths: Sequence[str], layout: Layout) -> str | None:
    """Warn if folders look like root/{train,test}/<class>/... but count as classes because one has another name."""
    if layout.kind != "classes":
        return None
    folders = {path.rpartition(os.sep)[0] for path in paths}
    tops = {folder.partition(os.sep)[0] for folder in folders if os.sep in folder}
    splits = sorted(top for top in tops if top.lower() in SPLIT_FOLDERS)
    if not splits:
        likely = {top: difflib.get_close_matches(top.lower(), SPLIT_FOLDERS, n=1, cutoff=0.7) for top in sorted(tops)}
        if len(likely) < 2 or not all(likely.values()):
            return None
        meant = ", ".join(f"{top} ({near[0]}?)" for top, near in likely.items())
        return f"folders {meant} look like a split, and are taken for classes; a split has train, test and validation"
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
    """Return the settings that decide the split, as JSON."""
    labels = config.collection.labels if config.collection.labels in ("auto", "none") else "table"
    kind = "clicks" if config.collection.clicks is not None else labels
    return json.dumps([config.split.model_dump(), config.collection.classes, kind])


def trains_on_all(config: Config, n_clicked: int) -> bool:
    """Whether all clicked images are trained on: they are few, and nobody asked for test images."""
    defaults = SplitConfig()
    return n_clicked < FEW_CLICKED and (config.split.train, config.split.test) == (defaults.train, defaults.test)


def share(part: int | float, n: int) -> int:
    """Return the number of images, out of n, that a number or a share means."""
    return min(part, n) if isinstance(part, int) else min(n, int(part * n + 0.5))


def assign_splits(db: Database, config: Config, layout: Layout) -> None:
    """Assign a split to every labelled image without one; to all of them if the deciding settings changed."""
    key = split_key(config) + layout.kind
    stale = "" if db["split"] != key else " AND labels IS NULL"
    db.execute(f"UPDATE images SET split = NULL WHERE status != 'removed' AND split IS NOT NULL{stale}")
    db["split"] = key
    draw_splits(db, config, layout)


def draw_splits(db: Database, config: Config, layout: Layout) -> None:
    """Assign train and test to labelled images that have no split, in each class by a hash of seed and path.

    Images that have a split keep it; SQLite counts them, as they may be many.
    """
    # Unreadable ones too: they keep their places, or others would move up once extraction fails on them.
    labelled = "status NOT IN ('removed', 'excluded') AND labels IS NOT NULL"
    free = db.execute(f"SELECT id, path, labels FROM images WHERE {labelled} AND split IS NULL").fetchall()
    if not free:
        return
    chosen: list[tuple[str | None, int]]
    if layout.kind == "split":
        chosen = [(layout.split(os.fsdecode(path)), id_) for id_, path, _ in free]
    else:
        counted = f"SELECT labels, split, count(*) FROM images WHERE {labelled} GROUP BY labels, split"
        pooled = config.collection.clicks is not None
        classes: dict[str, str] = {}  # of the texts of labels
        size: Counter[str] = Counter()
        taken: Counter[tuple[str, str]] = Counter()
        for text, split, n in db.execute(counted):
            label = classes.setdefault(text, "" if pooled else min(json.loads(text)))
            size[label] += n
            taken[label, split] += n
        room = {}
        for label, n in size.items():
            wanted = (1.0, 0.0) if pooled and trains_on_all(config, n) else (config.split.train, config.split.test)
            train, test = (share(part, n) for part in wanted)
            train, test = train - taken[label, "train"], min(test, n - train) - taken[label, "test"]
            if train > 0 or test > 0:
                room[label] = ["train"] * train + ["test"] * test
        members = defaultdict(list)
        for id_, path, text in free:
            if classes[text] in room:
                order = hashlib.sha256(f"{config.split.seed}:".encode() + path).digest()
                members[classes[text]].append((order, id_))
        chosen = [
            (split, id_)
            for label in members
            for (_, id_), split in zip(sorted(members[label]), room[label], strict=False)
        ]
    db.executemany("UPDATE images SET split = ? WHERE id = ?", chosen)
