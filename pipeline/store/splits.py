"""Train/test split, from folders or by share."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import os
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from visterm.pipeline.console import count

from .database import Database
from .tables import readable

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

WHOLE_CLASSES = "class"  # the catalogue's "split_by" where whole classes are trained on or tested
_SMALL, _MANY = 4, 20  # a class of fewer images cannot give two to each side; of so many classes a share can be drawn
FEW_CLICKED = 200  # images: two fifths of fewer say little as test images, and are missed where they are learned from
SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
}
SPLIT_FIELD = "split"  # of a table of images
_OF_TABLE = "+table"  # in the catalogue: the table's field decides
_DATE = r"(19|20)\d\d([-_. ]?(0[1-9]|1[0-2])([-_. ]?(0[1-9]|[12]\d|3[01]))?)?"
_CAMERA = r"[1-9]\d\d_?(CANON|NIKON|MSDCF|APPLE|OLYMP|MEDIA|GOPRO|PANA|FUJI|LEICA|SIGMA|RICOH|PENTX|CASIO|KODAK|ANDRO)"
_NO_CLASS = re.compile(f"({_DATE}|photos from {_DATE}|{_CAMERA}|dcim|camera|camera roll|takeout|google photos)", re.I)
_DAY_OR_MONTH = re.compile(r"(0?[1-9]|[12]\d|3[01])([-_. ].*)?")  # below a folder of a year
_SHARD = re.compile(r"(?:.*/)?(\d{4,})/\1\d+\.\w+")  # of img2dataset: 00012/000120345.jpg
_ONLY_IMAGES = {"images", "image", "imgs", "img", "photos", "pictures", "jpegimages"}
_OF_MASKS = "masks?|gt|ground.?truths?|annotations?|segmentations?|segmentation(class|object)|labels?|depth"
_OF_MASKS += "|_?(thumbs?|thumbnails?|previews?|resized)"
_MASKS, _END_OF_MASKS = re.compile(_OF_MASKS, re.I), re.compile(f"[-_. ]({_OF_MASKS}).*$", re.I)


def split_named(name: str) -> str | None:
    """Return train, test or validation by one of their names, also with a year: Train, valid, val2017."""
    return SPLIT_NAMES.get(re.sub(r"[-_ ]?(19|20)\d\d$", "", name.strip().lower()))


def split_within(name: str) -> str | None:
    """Return the split that a word of a name says, as in seg_train and instances_val2017.json."""
    return next(filter(None, map(split_named, re.split(r"[^a-z0-9]+", name.lower()))), None)


class Layout:
    """Meaning of the levels of folders: root/{train,test,validation}/<label>/..., root/<label>/..., or none.

    `text` is as the catalogue keeps it: ``split``, ``classes`` or ``flat``, which is the `kind`; ``split2``: below two
    other folders; ``classes/1``, ``split/1``: the class is one level deeper; ``/-1``: the deepest folder, ``/none``: no
    folder; ``~`` at the end: dates and cameras beside the classes name none. `ignored` are folders above the classes
    that name none: dates, cameras, shards of img2dataset, or a single folder that holds all others; `is_chosen` says
    whether the level of the classes is the user's choice.
    """

    is_chosen = False

    def __init__(self, text: str) -> None:
        match = re.match(r"(split|classes|flat)?(\d*)(?:/(-?\d+|none))?(~)?", text)
        assert match is not None  # it matches anything
        self.text, self.kind = match[0], match[1] or "flat"
        self._above = int(match[2] or 0)
        self._level = None if self.kind == "flat" or match[3] == "none" else int(match[3] or 0)
        self._skips_dates = match[4] is not None
        self.ignored: list[str] = []
        self._label_in = functools.cache(self._class_of)  # many images are in one folder

    @classmethod
    def of(cls, paths: Sequence[str], level: int | None = None) -> Layout:
        """Recognize the layout of these images' folders; `level` is that of the classes, 1 or -1 at an end."""
        folders = {path.rpartition(os.sep)[0] for path in paths}
        tree = [folder.split(os.sep) for folder in folders if folder and not os.path.isabs(folder)]
        depth, split, ignored, dated = 0, None, [], False
        shards = bool(paths) and all(map(_SHARD.fullmatch, paths))
        while names := {parts[depth] for parts in tree if len(parts) > depth}:
            splits = {split_named(name) for name in names}
            if split is None and "train" in splits and None not in splits:
                split = depth
            elif all(map(_NO_CLASS.fullmatch, names)) or (dated and all(map(_DAY_OR_MONTH.fullmatch, names))):
                dated = True
                ignored += sorted(names)
            elif len(names) == 1 and (min(names).lower() in _ONLY_IMAGES or all(len(p) != depth + 1 for p in tree)):
                ignored += names
            elif shards and all(len(parts) == depth + 1 for parts in tree):
                ignored += sorted(names)
            else:
                break
            depth += 1
        offset: int | None = depth if split is None else depth - split - 1
        if level is not None:
            offset, ignored = level - (level > 0), []
        elif not names and (split is None or offset):  # else images lie in train/, and classes may follow
            offset = None
        if not tree or (split is None and offset is None):
            text = "flat"
        else:
            text = "classes" if split is None else f"split{split or ''}"
            text += "/none" if offset is None else f"/{offset}" if offset else ""
        if level is None and offset is not None and (beside := _dates_beside(names)):
            text, ignored = f"{text}~", ignored + beside
        layout = cls(text)
        layout.ignored, layout.is_chosen = ignored, level is not None
        return layout

    def label(self, path: str) -> str | None:
        """The class that the folder of an image names, in NFC and without spaces around it; None outside the root."""
        return self._label_in(path.rpartition(os.sep)[0])

    def _class_of(self, folder: str) -> str | None:
        if self._level is None or os.path.isabs(folder):
            return None
        parts = self._below_split(folder)
        if not -len(parts) <= self._level < len(parts):
            return None
        name = parts[self._level]
        return None if self._skips_dates and _is_date(name) else readable(name).strip() or None

    def _below_split(self, folder: str) -> list[str]:
        return folder.split(os.sep)[self._above + 1 if self.kind == "split" else 0 :]

    def repeated(self, folders: Iterable[str]) -> str | None:
        """Say that the folders which name the classes hold the same folders, which may be the classes, or splits."""
        if self._level is None or self.is_chosen:
            return None
        level, below = self._level, defaultdict(set)
        for parts in (self._below_split(folder) for folder in folders if not os.path.isabs(folder)):
            if len(parts) > level:
                below[parts[level]].update(parts[level + 1 : level + 2] or [""])  # "": photos lie directly inside
        n_in = Counter(name for names in below.values() for name in names)
        shared = sorted(name for name, n in n_in.items() if 2 * n > len(below) > 1)
        if "" in shared or len(shared) < 2 or 2 * len(shared) < len(n_in) or any(map(_MASKS.fullmatch, shared)):
            return None
        names, above = (", ".join(part[:3]) + ", ..." * (len(part) > 3) for part in (shared, sorted(below)))
        if "train" in map(split_named, shared):
            return (
                f"folders {names} below those of the labels ({above}) are no split, which is drawn: put train and test "
                "above the labels, or give a table with a column split"
            )
        return (
            f"folders {above} name the labels, and hold the same folders {names}: if these are the labels, --set "
            f"collection.label_level={level + 2}"
        )

    def split(self, path: str) -> str | None:
        """The split that a folder of an image names."""
        parts = path.split(os.sep)[:-1]
        return split_named(parts[self._above]) if len(parts) > self._above else None


def as_ranked(config: Config, split_by: str | None) -> Config:
    """Return the configuration that results are ranked with: without neighbours where classes are of two or three.

    Such images have no others of their class to be near to: with 3,000 pairs, mAP falls by 0.006. `split_by` is the
    catalogue's.
    """
    if not split_by or config.split.by != "auto" or config.search.neighbours == "none":
        return config
    return config.model_copy(update={"search": config.search.model_copy(update={"neighbours": "none"})})


def _is_date(name: str) -> bool:
    """Whether a folder is named by a date or a camera, also beside classes, where ``camera`` may be one."""
    return name.lower() != "camera" and _NO_CLASS.fullmatch(name) is not None


def _dates_beside(names: set[str]) -> list[str]:
    """Return the dates and cameras among the names of folders, unless others are numbers: then years may be, too."""
    others = [name for name in names if not _is_date(name)]
    return sorted(filter(_is_date, names)) if others and not any(map(str.isdecimal, others)) else []


def mistyped_split(folders: Iterable[str], layout: Layout) -> str | None:
    """Warn if folders look like root/{train,test}/<class>/... but count as classes because one has another name."""
    if layout.kind != "classes":
        return None
    tops = {folder.partition(os.sep)[0]: os.sep in folder for folder in sorted(folders) if folder}  # with folders below
    splits = [top for top, is_above in tops.items() if is_above and split_named(top)]
    others = [top for top in tops if top not in splits]
    if splits and not others:
        return f"there is no folder train beside {', '.join(splits)}, so these folders are taken for classes"
    if splits:
        near = difflib.get_close_matches(others[0].lower(), SPLIT_NAMES, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        look = f"{', '.join(splits)} look like a split, but {others[0]} beside them is none{hint}"
    else:
        worded = [top for top in tops if split_within(top)]
        above = [top for top, is_above in tops.items() if is_above] or [*tops]
        likely = {top: difflib.get_close_matches(top.lower(), SPLIT_NAMES, n=1, cutoff=0.7) for top in above}
        if {"train", "test"} <= set(map(split_within, worded)):
            look = f"{', '.join(worded)} look like a split"
        elif len(likely) > 1 and all(likely.values()):
            meant = (top if near[0] == top.lower() else f"{top} ({near[0]}?)" for top, near in likely.items())
            look = f"{', '.join(meant)} look like a split"
        else:
            return None
    return f"folders {look}: all are taken for classes; name them train, test, validation, or give a column split"


def masks_among(paths: Sequence[str], folders: Iterable[str]) -> str | None:
    """Warn of images in folders of masks, annotations or thumbnails by their name, beside images of the same names."""
    named = {folder: name for folder in folders for name in folder.split(os.sep) if _MASKS.fullmatch(name)}
    if not named:
        return None
    masks, photos = [], set()
    for path in paths:
        folder, _, name = path.rpartition(os.sep)
        stem = os.path.splitext(name)[0]
        masks.append((folder, stem)) if folder in named else photos.add(stem)
    if 2 * sum(stem in photos or _END_OF_MASKS.sub("", stem) in photos for _, stem in masks) <= len(masks):
        return None
    setting = shlex.quote(f"collection.exclude=[{named[masks[0][0]]}]")
    return (
        f"{count(len(masks), 'image')} in folders of masks, annotations or previews, such as {masks[0][0]}, with the "
        f"names of others: taken for photos; --set {setting} skips them"
    )


def split_key(config: Config) -> str:
    """Return the settings that decide the split, as JSON."""
    labels = config.collection.labels if config.collection.labels in ("auto", "none") else "table"
    kind = "clicks" if config.collection.clicks is not None else labels
    split = config.split.model_dump(exclude={"by"} if config.split.by == "auto" else None)  # as runs before it have it
    return json.dumps([split, config.collection.classes, kind])


def drawn_here(text: str) -> bool:
    """Whether visterm drew the splits of a catalogue, with this text; else its folders or a table name them."""
    kind = text.rpartition("]")[2]
    return not kind.startswith("split") and not kind.endswith(_OF_TABLE)


def trains_on_all(config: Config, n_clicked: int) -> bool:
    """Whether all clicked images are trained on: they are few, and nobody asked for test images."""
    from visterm.pipeline.config.models import SplitConfig

    defaults = SplitConfig()
    return n_clicked < FEW_CLICKED and (config.split.train, config.split.test) == (defaults.train, defaults.test)


def share(part: int | float, n: int) -> int:
    """Return the number of images, out of n, that a number or a share means."""
    return min(part, n) if isinstance(part, int) else min(n, int(part * n + 0.5))


def assign_splits(db: Database, config: Config, layout: Layout, *, by_table: bool = False) -> None:
    """Assign a split to every labelled image without one; to all of them if the deciding settings changed.

    `by_table`: the field split of a table of images names the splits.
    """
    key = split_key(config) + layout.text + (_OF_TABLE if by_table else "")
    stale = " AND labels IS NULL"
    if db["split"] != key:
        stale, db["split_by"] = "", None
    db.execute(f"UPDATE images SET split = NULL WHERE status != 'removed' AND split IS NOT NULL{stale}")
    db["split"] = key
    draw_splits(db, config, layout)


def draw_splits(db: Database, config: Config, layout: Layout) -> None:
    """Assign train and test to labelled images that have no split: see `SplitConfig`.

    Within each class the images are drawn by a hash of seed and path, of whole classes the labels by one of seed and
    label. Images that have a split keep it, unless a table names the splits; SQLite counts them, as they may be many.
    """
    # Unreadable ones too: they keep their places, or others would move up once extraction fails on them.
    labelled = "status NOT IN ('removed', 'excluded') AND labels IS NOT NULL"
    chosen: list[tuple[str | None, int]]
    if db["split"].endswith(_OF_TABLE):
        rows = db.execute(f"SELECT given, split, id FROM images LEFT JOIN fields USING (id) WHERE {labelled}")
        named = ((split_named(json.loads(given or "{}").get(SPLIT_FIELD, "")), old, id_) for given, old, id_ in rows)
        chosen = [(split, id_) for split, old, id_ in named if split != old]
        db.executemany("UPDATE images SET split = ? WHERE id = ?", chosen)
        return
    free = db.execute(f"SELECT id, path, labels FROM images WHERE {labelled} AND split IS NULL").fetchall()
    if not free:
        return
    if layout.kind == "split":
        chosen = [(layout.split(os.fsdecode(path)), id_) for id_, path, _ in free]
    else:
        classes = _Classes(
            db.execute(f"SELECT labels, split, count(*) FROM images WHERE {labelled} GROUP BY 1, 2"), config
        )
        whole = classes.are_drawn_whole()
        db["split_by"] = WHOLE_CLASSES if whole else None
        chosen = (classes.draw_whole if whole else classes.draw_within)(free)
    db.executemany("UPDATE images SET split = ? WHERE id = ?", chosen)


class _Classes:
    """The classes of labelled images, and how many of their images have which split.

    `counted` are (labels, split, number of images).
    """

    def __init__(self, counted: Iterable[tuple[str, str | None, int]], config: Config):
        self._split, self._pooled = config.split, config.collection.clicks is not None
        self._trains_on_all = functools.partial(trains_on_all, config)
        self._of: dict[str, str] = {}  # class by the text of the labels
        self._size: Counter[str] = Counter()
        self._taken: Counter[tuple[str, str | None]] = Counter()
        self._one_label = True
        for text, split, n in counted:
            labels = json.loads(text)
            self._one_label &= len(labels) == 1
            label = self._of.setdefault(text, "" if self._pooled else min(labels))
            self._size[label] += n
            self._taken[label, split] += n

    def are_drawn_whole(self) -> bool:
        """Whether to draw whole classes: told so, or of one label per image, most of classes too small to be split."""
        if self._split.by != "auto" or self._pooled:
            return self._split.by == "class" and not self._pooled
        if not (self._one_label and isinstance(self._split.train, float) and isinstance(self._split.test, float)):
            return False
        several = [n for n in self._size.values() if n >= 2]
        small = [n for n in several if n < _SMALL]
        return self._split.test > 0 and len(small) >= _MANY and 2 * sum(small) > sum(several)

    def draw_within(self, free: Sequence[tuple[int, bytes, str]]) -> list[tuple[str | None, int]]:
        """Split and id of images without a split: shares of each class."""
        room = {}
        for label, n in self._size.items():
            wanted = (1.0, 0.0) if self._pooled and self._trains_on_all(n) else (self._split.train, self._split.test)
            if splits := _room(wanted, n, self._taken[label, "train"], self._taken[label, "test"]):
                room[label] = splits
        members = defaultdict(list)
        for id_, path, text in free:
            if self._of[text] in room:
                members[self._of[text]].append((self._order(path), id_))
        return [
            (split, id_)
            for label in members
            for (_, id_), split in zip(sorted(members[label]), room[label], strict=False)
        ]

    def draw_whole(self, free: Sequence[tuple[int, bytes, str]]) -> list[tuple[str | None, int]]:
        """Split and id of images without a split: shares of the classes, of those of one image apart from others.

        An image of a class that has a split follows most of its images.
        """
        split_of: dict[str, str] = {}
        for label in self._size:
            train, test = (self._taken[label, split] for split in ("train", "test"))
            if train or test:
                split_of[label] = "train" if train >= test else "test"
        for alone in (True, False):
            labels = [label for label, n in self._size.items() if (n == 1) == alone]
            taken = Counter(split_of[label] for label in labels if label in split_of)
            room = _room((self._split.train, self._split.test), len(labels), taken["train"], taken["test"])
            undrawn = (label for label in labels if label not in split_of)
            split_of |= zip(sorted(undrawn, key=lambda label: self._order(label.encode())), room, strict=False)
        return [(split_of[self._of[text]], id_) for id_, _, text in free if self._of[text] in split_of]

    def _order(self, name: bytes) -> bytes:
        return hashlib.sha256(f"{self._split.seed}:".encode() + name).digest()


def _room(wanted: tuple[int | float, int | float], n: int, n_train: int, n_test: int) -> list[str]:
    """Splits that are still to be given, of n images or classes of which some have one."""
    train, test = (share(part, n) for part in wanted)
    return ["train"] * (train - n_train) + ["test"] * (min(test, n - train) - n_test)
