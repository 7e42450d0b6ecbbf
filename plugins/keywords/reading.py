"""Keywords of a collection's photos as labels, their hierarchy, and what else their tags say as fields."""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.store.files import write_text
from visterm.pipeline.store.labels import ReadLabels
from visterm.pipeline.store.notes import Notes

from .sidecars import Sidecars, beside, read_sidecar, read_xmp
from .tags import Tags, UnreadableTags, exiv2, read_tags, read_takeout

REMEMBERED = "keywords.json"  # beside the catalogue: what the files said when they were read last
_VERSION = 2  # of that file and of how it was read
NEWER = "written after its sidecar, and with other keywords; those of the sidecar are used"


class Entry(NamedTuple):
    """What a photo and its sidecars say, and when they were written."""

    stamp: list[Any]
    keywords: list[list[str]]  # each from the top of its hierarchy down
    people: list[str]
    fields: dict[str, str]
    problems: list[list[Any]]  # noun, what, number


def read_keywords(tags: Sequence[str], root: Path, paths: Sequence[str], folder: Path, *, whole: bool) -> ReadLabels:
    """Read the labels and fields of photos from their own tags and their sidecars.

    `tags` are ``keywords`` and ``people``, the labels to take. `folder` remembers what was read: only changed files are
    read again. `whole` says that `paths` are all photos of the collection. UserError without Exiv2.
    """
    exiv2()
    before = remembered(folder)
    entries = {} if whole else dict(before)
    used: set[str] = set()
    notes = Notes(Path("keywords"), skip_bad_rows=True)
    of_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        inner, name = os.path.split(path)
        of_folder[inner].append(name)
    others: dict[str, list[str]] = defaultdict(list)  # photos that are not asked for: a sidecar may be theirs
    for path in entries:
        if (inner := os.path.dirname(path)) in of_folder:
            others[inner].append(os.path.basename(path))
    for inner, names in of_folder.items():
        place = os.path.join(root, inner)
        files = beside(place, [*dict.fromkeys([*names, *others[inner]])])
        for reason, name in files.unused:
            notes.add("sidecar", reason, os.path.join(inner, name))
        for name in names:
            path, sidecars = os.path.join(inner, name), files.of.get(name, Sidecars())
            stamp = [_stamp(place, file) for file in (name, *sidecars)]
            entry = before.get(path)
            if entry is None or entry.stamp != stamp:
                entry = read_entry(place, name, sidecars, stamp)
            entries[path] = entry
            used.update(os.path.join(inner, file) for file in sidecars if file is not None)
    if entries != before:
        content = {"version": _VERSION, "photos": entries}
        write_text(folder / REMEMBERED, json.dumps(content))
    for path in paths:
        for noun, what, n in entries[path].problems:
            notes.add(noun, what, path, "" if noun == "image" else "skipped", n=n)
    labels = {path: dict.fromkeys(_labels(entries[path], tags), 1.0) for path in paths}
    parents = _hierarchy(entries.values(), notes)
    if n_without := sum(not own for own in labels.values()):
        path = next(path for path in paths if not labels[path])
        notes.add("image", f"without {' or '.join(tags)}", path, "no label", n=n_without)
    notes.doubtful({label for own in labels.values() for label in own})
    fields = {path: values for path in paths if (values := _fields(entries[path]))}
    notes.garbled("value", {text for values in fields.values() for text in values.values()})
    source = f"the {' and '.join(tags)} in the files and their sidecars"
    return ReadLabels(labels.get, fields, source, tuple(notes.lines()), parents, frozenset(used))


def remembered(folder: Path) -> dict[str, Entry]:
    """Return what photos said when they were read last, by path; of a damaged file nothing."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        content = json.loads((folder / REMEMBERED).read_text(encoding="utf-8"))
        if content["version"] == _VERSION:
            return {path: Entry(*entry) for path, entry in content["photos"].items()}
    return {}


def read_entry(folder: str, name: str, sidecars: Sidecars, stamp: list[Any]) -> Entry:
    """Read the tags of a photo and its sidecars; what cannot be read is among the problems."""
    problems: list[list[Any]] = []

    def read(what: str, reader: Any, *arguments: Any) -> Tags:
        try:
            tags = reader(*arguments)
        except UnreadableTags as error:
            problems.append(["image", f"whose {what} cannot be read ({error})", 1])
            return Tags()
        problems.extend(map(list, tags.problems))
        return tags

    own = _of_photo(os.path.join(folder, name), problems)
    xmp = read("sidecar", read_xmp, os.path.join(folder, sidecars.xmp)) if sidecars.xmp else Tags()
    takeout = read("JSON file of Takeout", _takeout, os.path.join(folder, sidecars.json)) if sidecars.json else Tags()
    differ = None not in (own.keywords, xmp.keywords) and own.keywords != xmp.keywords
    if differ and stamp[0] and stamp[1] and stamp[0][1] > stamp[1][1]:
        problems.append(["image", NEWER, 1])
    keywords = xmp.keywords if xmp.keywords is not None else own.keywords or []
    people = sorted({*own.people, *xmp.people, *takeout.people})
    return Entry(stamp, keywords, people, takeout.fields | own.fields | xmp.fields, problems)


def _of_photo(file: str, problems: list[list[Any]]) -> Tags:
    """The tags in a photo; none of a file that Exiv2 does not know, such as BMP, or that is gone."""
    if not os.path.exists(file):
        return Tags()
    try:
        tags = read_tags(file)
    except UnreadableTags as error:
        if "unknown image type" not in str(error):
            problems.append(["image", "whose tags cannot be read", 1])
        return Tags()
    problems.extend(map(list, tags.problems))
    return tags


def _takeout(file: str) -> Tags:
    read = read_takeout(read_sidecar(file))
    if read is None:
        raise UnreadableTags("without a title and a time")
    return read[1]


def _stamp(folder: str, name: str | None) -> list[int] | None:
    if name is not None:
        with contextlib.suppress(OSError):
            status = os.stat(os.path.join(folder, name))
            return [status.st_size, status.st_mtime_ns]
    return None


def _labels(entry: Entry, tags: Sequence[str]) -> list[str]:
    """The lowest levels of keywords, and names of people, as far as they are asked for."""
    keywords = [path[-1] for path in entry.keywords] if "keywords" in tags else []
    return keywords + (entry.people if "people" in tags else [])


def _fields(entry: Entry) -> dict[str, str]:
    people = {"people": "; ".join(name.replace(";", ",") for name in entry.people)} if entry.people else {}
    return entry.fields | people


def _hierarchy(entries: Iterable[Entry], notes: Notes) -> dict[str, list[str]]:
    """The keywords right above each keyword, without those that would make a circle."""
    parents: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for path in entry.keywords:
            for parent, child in zip(path, path[1:], strict=False):
                if parent != child:
                    parents[child].add(parent)
    while True:
        try:
            TopologicalSorter(parents).prepare()
            break
        except CycleError as error:
            circle = error.args[1][::-1]  # each below the next
            notes.add("circle", "in the hierarchy of keywords", " below ".join(circle[:4]), "taken apart")
            for child, parent in zip(circle, circle[1:], strict=False):
                parents[child].discard(parent)
    several = [f"{child} ({', '.join(sorted(above))})" for child, above in sorted(parents.items()) if len(above) > 1]
    if several:
        notes.add("keyword", "in several places of the hierarchy", several[0], "one label", n=len(several))
    return {child: sorted(above) for child, above in sorted(parents.items()) if above}
