"""Which files beside a photo belong to it: sidecars of XMP, and the JSON files of Google Takeout."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .tags import Tags, UnreadableTags, read_tags, read_takeout

MOST_BYTES = 10_000_000  # of a sidecar
_TAKEOUT = ".supplemental-metadata"  # of which Takeout cuts what makes a name too long
_SHORTEST_CUT = 40  # characters of a photo's name that is itself cut
# What Takeout adds to the name of a photo that was edited, in the language of the account: people have met these, and
# told the authors of GooglePhotosTakeoutHelper, google-photos-exif and google-photos-migrate of them.
_EDITED_IN = {
    "English": "edited", "German": "bearbeitet", "French": "modifié", "Italian": "modificato", "Spanish": "ha editado",
    "Portuguese": "editado", "Catalan": "editat", "Dutch": "bewerkt", "Polish": "edytowane", "Japanese": "編集済み",
    "Chinese": "编辑",
}  # fmt: skip
# Of the same JSON file as the photo that was edited; a number stands before it or after it.
_EDITED = re.compile(rf"-({'|'.join(_EDITED_IN.values())})(?=(\(\d+\))?\.\w+$)")
_NUMBER, _IN_NAME = re.compile(r"\(\d+\)$"), re.compile(r"\(\d+\)(?=\.\w+$)")


class Sidecars(NamedTuple):
    """The names of the files beside a photo that belong to it."""

    xmp: str | None = None
    json: str | None = None


class Beside(NamedTuple):
    """Sidecars in a folder by the names of their photos, and those that are not used, each with the reason."""

    of: dict[str, Sidecars]
    unused: list[tuple[str, str]]  # reason, name


def read_sidecar(file: str | Path) -> bytes:
    """Read the bytes of a sidecar; UnreadableTags if that fails, or it is too large."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableTags(error.strerror or str(error)) from None
    if len(data) > MOST_BYTES:
        raise UnreadableTags(f"larger than {MOST_BYTES // 10**6} MB")
    return data


def read_xmp(file: str | Path) -> Tags:
    """Read a sidecar of XMP; UnreadableTags if it cannot be read."""
    return read_tags(read_sidecar(file))


def beside(folder: str | Path, photos: Sequence[str]) -> Beside:
    """Match the sidecars in a folder with the photos of the collection in it.

    ``photo.jpg.xmp`` belongs to photo.jpg. ``photo.xmp`` belongs to the only photo with this stem, or to that with the
    ending that it names, unless there is a ``photo.jpg.xmp``, too.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return Beside({}, [])
    xmp, json = ([name for name in names if name.lower().endswith(ending)] for ending in (".xmp", ".json"))
    if not (xmp or json):
        return Beside({}, [])
    unused: list[tuple[str, str]] = []
    of_photo = _of_xmp(folder, xmp, photos, unused)
    of_takeout = _of_takeout(folder, json, photos, unused)
    matched = {photo: Sidecars(of_photo.get(photo), of_takeout.get(photo)) for photo in of_photo | of_takeout}
    return Beside(matched, unused)


def _of_xmp(
    folder: str | Path, names: Iterable[str], photos: Iterable[str], unused: list[tuple[str, str]]
) -> dict[str, str]:
    whole = {_same(photo): photo for photo in photos}
    stems = defaultdict(list)
    for photo in photos:
        stems[_same(os.path.splitext(photo)[0])].append(photo)
    exact: dict[str, str] = {}
    loose: dict[str, str] = {}
    for name in names:
        stem = _same(name[:-4])
        if stem in whole:
            exact[whole[stem]] = name
            continue
        candidates = stems.get(stem, [])
        if len(candidates) > 1:
            ending = f".{_extension(os.path.join(folder, name))}"
            candidates = [photo for photo in candidates if _same(os.path.splitext(photo)[1]) == ending]
        if len(candidates) == 1:
            loose[candidates[0]] = name
        else:
            unused.append(("of no image of the run" if stem not in stems else "of several images", name))
    unused += [("beside one with the whole name of its image", loose[photo]) for photo in loose if photo in exact]
    return loose | exact


def _extension(file: str) -> str:
    try:
        return _same(read_xmp(file).extension)
    except UnreadableTags:
        return ""


def _of_takeout(
    folder: str | Path, names: Iterable[str], photos: Iterable[str], unused: list[tuple[str, str]]
) -> dict[str, str]:
    """Match ``photo.jpg.json``, ``photo.jpg.supplemental-metadata.json``, cut ones, and ``...(1).json``."""
    starts = defaultdict(list)  # photos by the first characters of their names
    for photo in photos:
        for start in {_same(name)[:_SHORTEST_CUT] for name in (photo, _IN_NAME.sub("", photo))}:
            starts[start].append(photo)
    matched: dict[str, str] = {}
    for name in names:
        base, number = _parts(name)
        near = [
            photo
            for start in {base[:i] for i in range(1, min(len(base), _SHORTEST_CUT) + 1)}
            for photo in starts.get(start, ())
            if _is_of(base, number, _same(photo))
        ]
        if len(near) > 1:  # names that were cut: the file has the whole one
            near = [photo for photo in near if _same(photo) == _same(_title(os.path.join(folder, name)) or "")]
        if len(near) == 1:
            matched.setdefault(near[0], name)
        elif _title(os.path.join(folder, name)) is not None:
            unused.append(("of no image of the run", name))
    for photo in photos:
        original = _EDITED.sub("", _same(photo))
        if original != _same(photo) and photo not in matched:
            json = next((name for name in names if _is_of(*_parts(name), original)), None)
            if json is not None:
                matched[photo] = json
                unused[:] = [entry for entry in unused if entry[1] != json]
    return matched


def _parts(json: str) -> tuple[str, str]:
    """The name of a JSON file without ending and number, and the number in brackets."""
    base = _same(json[:-5])
    number = _NUMBER.search(base)
    return (base[: number.start()], number[0]) if number else (base, "")


def _is_of(base: str, number: str, photo: str) -> bool:
    """Whether a JSON file is that of a photo, by its name before the number and that ending."""
    if number:
        stem, ending = os.path.splitext(photo)
        if not stem.endswith(number):
            return False
        photo = stem.removesuffix(number) + ending
    if base.startswith(photo):
        return _TAKEOUT.startswith(base.removeprefix(photo))
    return len(base) >= _SHORTEST_CUT and photo.startswith(base)


def _title(file: str) -> str | None:
    """The name of the photo of a file of Takeout; None of another file."""
    try:
        read = read_takeout(read_sidecar(file))
    except UnreadableTags:
        return None
    return None if read is None else read[0]


def _same(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
