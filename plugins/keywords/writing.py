"""Labels written into sidecars of XMP beside photos: what others wrote there stays, and photos are never changed."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.errors import system_errors_explained
from visterm.pipeline.store.files import write_bytes
from visterm.pipeline.store.hierarchy import read_hierarchy
from visterm.pipeline.store.notes import Notes

from .reading import remembered
from .sidecars import beside, read_sidecar
from .tags import SEPARATORS, SUBJECT, TAGS_LIST, UnreadableTags, exiv2, opened, parts_for_itself, read_tags, values_of

Path_ = tuple[str, ...]


class Written(NamedTuple):
    """Numbers of sidecars, and a line per kind of photos that got none."""

    written: int
    unchanged: int  # photos whose tags have these labels already
    warnings: list[str]


class _Kept(ValueError):
    """Why a sidecar is left as it is."""


def write_sidecars(
    root: Path,
    paths: Sequence[str],
    labels: Mapping[str, Collection[str]],
    refused: Mapping[str, Collection[str]],
    folder: Path,
    tags: Sequence[str],
) -> Written:
    """Write the labels of photos into their sidecars, each in one step.

    `labels` are those in effect, `refused` those that people removed, by path. `tags` are those that gave labels when
    `folder` remembered them: what a photo program has removed since is not written again. A photo whose tags have its
    labels already gets no sidecar. UserError where a sidecar cannot be written.
    """
    exiv2()
    before = remembered(folder) if tags else {}
    parents, notes, n_written, n_unchanged = read_hierarchy(folder), Notes(folder, skip_bad_rows=True), 0, 0
    of_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        of_folder[os.path.dirname(path)].append(os.path.basename(path))
    for inner, names in of_folder.items():
        place = root / inner
        files = beside(place, names).of
        for name in names:
            path = os.path.join(inner, name)
            if not (place / name).is_file():
                notes.add("image", "without a file", path, "no sidecar")
                continue
            entry = before.get(path)
            known = {*(one[-1] for one in entry.keywords), *entry.people} if entry is not None else set()
            sidecar = (files[name].xmp if name in files else None) or f"{name}.xmp"
            try:
                data = _merged(
                    place / name, place / sidecar, {*labels.get(path, ())} - known, refused.get(path, ()), parents
                )
            except (_Kept, UnreadableTags) as problem:
                notes.add("sidecar", f"not changed: {problem}", os.path.join(inner, sidecar), "")
                continue
            if data is None:
                n_unchanged += 1
                continue
            with system_errors_explained(place / sidecar, "cannot be written", f"{n_written:,} sidecars are written"):
                write_bytes(place / sidecar, data)
            n_written += 1
    return Written(n_written, n_unchanged, notes.lines())


def _merged(
    photo: Path, sidecar: Path, new: Collection[str], refused: Collection[str], parents: Mapping[str, Sequence[str]]
) -> bytes | None:
    """Return the bytes of a sidecar with labels added and removed; None if nothing changes."""
    existing = read_sidecar(sidecar) if os.path.lexists(sidecar) else None
    theirs = None if existing is None else read_tags(existing).keywords
    if theirs is None:
        try:
            theirs = read_tags(os.fspath(photo)).keywords or []
        except UnreadableTags:  # BMP, say
            theirs = []
    before: set[Path_] = set(map(tuple, theirs))
    leaves = {path[-1] for path in before}
    after = {path for path in before if path[-1] not in refused}
    after |= {_path(label, parents) for label in new if label not in leaves and label not in refused}
    if after == before:
        return None
    library = exiv2()
    image = library.ImageFactory.create(library.ImageType.xmp) if existing is None else opened(existing)
    others = _others(image)
    values = {datum.key(): values_of(datum) for datum in image.xmpData() if datum.key() in (SUBJECT, *SEPARATORS)}
    itself = parts_for_itself(sum(values.values(), []))
    above = itself.union(*(path[:-1] for path in after))
    _set(image, SUBJECT, sorted({path[-1] for path in after} | (above & {*values.get(SUBJECT, ())})))
    deep = any(len(path) > 1 for path in after)
    for key, separator in SEPARATORS.items():
        if key in values or (deep and key != TAGS_LIST):
            joined = sorted(separator.join(path) for path in after if not any(separator in part for part in path))
            kept = itself & {*values.get(key, ())}
            _set(image, key, sorted(kept.union(joined)) if deep or kept or key == TAGS_LIST else [])
    image.writeMetadata()
    data = bytes(image.io().mmap())
    again = opened(data)
    if _others(again) != others or {path[-1] for path in read_tags(data).keywords or ()} != {p[-1] for p in after}:
        raise _Kept("Exiv2 cannot keep all that others wrote in it")
    if existing is not None and read_sidecar(sidecar) != existing:
        raise _Kept("another program has just written it")
    return data


def _path(label: str, parents: Mapping[str, Sequence[str]]) -> Path_:
    """The path of a label in the hierarchy; the label alone where it has several."""
    path = [label]
    while len(above := parents.get(path[0], ())) == 1:
        path.insert(0, above[0])
    return tuple(path) if not above else (label,)


def _others(image: Any) -> list[tuple[str, str]]:
    """What a sidecar says beside keywords."""
    return sorted(
        (datum.key(), datum.toString()) for datum in image.xmpData() if datum.key() not in (SUBJECT, *SEPARATORS)
    )


def _set(image: Any, key: str, values: Sequence[str]) -> None:
    """Set a list in XMP: an empty one says that there are no keywords, whatever the photo itself says."""
    library, data = exiv2(), image.xmpData()
    place = data.findKey(library.XmpKey(key))
    if place != data.end():
        data.erase(place)
    if values or key == SUBJECT:
        value = library.XmpArrayValue(library.TypeId.xmpBag)
        for one in values:
            value.append(one)
        data.add(library.XmpKey(key), value)
