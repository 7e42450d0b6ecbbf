"""What one file says of its photo: keywords, names of people, rating, title and description; read by Exiv2."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from visterm.extras import how_to_install
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.label_edits import check_label
from visterm.pipeline.store.tables import readable

MOST_KEYWORDS = 1_000  # per photo
_LONGEST_TEXT = 1_000  # characters of a title or a description
SUBJECT, HIERARCHY, TAGS_LIST = "Xmp.dc.subject", "Xmp.lr.hierarchicalSubject", "Xmp.digiKam.TagsList"
SEPARATORS = {HIERARCHY: "|", TAGS_LIST: "/"}
_DARKTABLE = re.compile(r"darktable[|/]")  # notes for itself that its users never see: darktable|format|jpg
_NAME = re.compile(
    r"Xmp\.(mwg-rs\.Regions/mwg-rs:RegionList\[\d+\]/mwg-rs:(Name|Type)"
    r"|MP\.RegionInfo/MPRI:Regions\[\d+\]/MPReg:PersonDisplayName)"
)
_PEOPLE = "Xmp.iptcExt.PersonInImage"
_TEXTS = {"title": "Xmp.dc.title", "description": "Xmp.dc.description"}
_RATINGS = ("Xmp.xmp.Rating", "Exif.Image.Rating")
_EXTENSION = "Xmp.photoshop.SidecarForExtension"
# ISO 2022 escapes of IPTC's CodedCharacterSet for other sets than UTF-8; of the last byte the part of ISO 8859.
_PARTS = {b"A": 1, b"B": 2, b"C": 3, b"D": 4, b"F": 7, b"G": 6, b"H": 8, b"L": 5, b"M": 9}

BAD = "that cannot be a label: empty, of more than 200 characters, or with control characters"
MANY = f"beyond the first {MOST_KEYWORDS:,} of an image"
DIFFERENT = "whose keywords of IPTC are others than those of XMP, which are used"


class UnreadableTags(ValueError):
    """A file that Exiv2 cannot read."""


class Tags(NamedTuple):
    """What a file says of its photo."""

    keywords: list[list[str]] | None = None  # each from the top of its hierarchy down; None: no word of keywords
    people: list[str] = []
    fields: dict[str, str] = {}  # rating, title, description
    problems: list[tuple[str, str, int]] = []  # noun, what, number
    extension: str = ""  # of a sidecar: of the file that it belongs to


@functools.cache
def exiv2() -> Any:
    """Import Exiv2, silent; UserError where it is not installed."""
    try:
        import exiv2 as library
    except ImportError:
        raise UserError(f"keywords need Exiv2: {how_to_install('keywords')}") from None
    library.LogMsg.setLevel(library.LogMsg.Level.mute)  # of each broken tag a line
    return library


def opened(source: str | bytes) -> Any:
    """Open a photo, or the bytes of a sidecar, with its metadata; UnreadableTags where Exiv2 cannot."""
    library, is_sidecar = exiv2(), isinstance(source, bytes)
    try:
        if isinstance(source, str) and source != source.encode("utf-8", "replace").decode():
            source = Path(source).read_bytes()  # a name that Exiv2 cannot be given
        image = library.ImageFactory.open(source)
        image.readMetadata()
    except (library.Exiv2Error, OSError, ValueError, TypeError) as error:
        reason = error.args[-1] if error.args else error  # of Exiv2 the words, without a code
        raise UnreadableTags(" ".join(str(reason).split())) from None
    if is_sidecar and not image.xmpData().count():  # Exiv2 says no more of broken XMP
        raise UnreadableTags("no XMP can be read in it")
    return image


def values_of(datum: Any) -> list[str]:
    """Return the values of a list in XMP."""
    value = datum.value()
    return [value.toString(i) for i in range(datum.count())]


def parts_for_itself(values: Iterable[str]) -> set[str]:
    """Return keywords that a program wrote for itself, and the levels of their paths, which stand beside them."""
    own = [value for value in values if _DARKTABLE.match(value)]
    return {*own, *(part for value in own for part in re.split(r"[|/]", value))}


def read_tags(source: str | bytes) -> Tags:
    """Read what a photo, or the bytes of a sidecar, says of it; UnreadableTags where Exiv2 cannot.

    Keywords of XMP count before those of IPTC, and these before those of Windows (XPKeywords), which programs write
    beside the former; a hierarchy of Lightroom before one of digiKam.
    """
    image = opened(source)
    lists: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    regions: dict[str, dict[str, str]] = {}
    for datum in image.xmpData():
        key = datum.key()
        if key in (SUBJECT, HIERARCHY, TAGS_LIST, _PEOPLE):
            lists[key] = values_of(datum)
        elif key in (*_RATINGS, *_TEXTS.values(), _EXTENSION):
            texts[key] = datum.value().toString(0)
        elif _NAME.fullmatch(key):
            place, _, what = key.rpartition(":")
            regions.setdefault(place, {})[what] = datum.value().toString()
    iptc, windows = _of_iptc(image.iptcData()), []
    for datum in image.exifData():
        if datum.key() == "Exif.Image.XPKeywords":
            windows = bytes(datum.value().data()).decode("utf-16-le", "replace").split(";")
        elif datum.key() in _RATINGS:
            texts.setdefault(datum.key(), datum.value().toString())
    problems: list[tuple[str, str, int]] = []
    people = [*lists.get(_PEOPLE, ())]
    for region in regions.values():  # of a pet or a bar code: another type
        if region.get("Type", "Face") == "Face":
            people += [region[name] for name in ("Name", "PersonDisplayName") if name in region]
    hierarchy = next((key for key in SEPARATORS if lists.get(key)), None)
    paths = [value.split(SEPARATORS[hierarchy]) for value in lists[hierarchy]] if hierarchy else []
    itself = parts_for_itself(sum((lists.get(key, []) for key in (SUBJECT, *SEPARATORS)), []))
    is_xmp = hierarchy is not None or SUBJECT in lists
    flat = lists.get(SUBJECT, []) if is_xmp else iptc or windows
    keywords = None
    if is_xmp or flat:
        if is_xmp and iptc and not set(map(_clean, iptc)) <= {*map(_clean, flat), *_cleaned(sum(paths, []))}:
            problems.append(("image", DIFFERENT, 1))
        paths = [path for path in paths if path[0] != "darktable"]
        keywords = _merged(paths, [keyword for keyword in flat if keyword not in itself], problems)
    fields = {name: text for name, key in _TEXTS.items() if (text := _text(texts.get(key, "")))}
    if rating := _rating(next((texts[key] for key in _RATINGS if key in texts), "")):
        fields["rating"] = rating
    return Tags(keywords, _cleaned(people), fields, problems, texts.get(_EXTENSION, ""))


def read_takeout(data: bytes) -> tuple[str, Tags] | None:
    """Read a JSON file of Google Takeout: the name of its photo, and its tags; None if it is another JSON file."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not {"title", "photoTakenTime"} <= content.keys():
        return None
    people = content.get("people")
    names = [one.get("name") for one in people if isinstance(one, dict)] if isinstance(people, list) else []
    description = content.get("description")
    fields = {"description": _text(description)} if isinstance(description, str) and description.strip() else {}
    title = content["title"] if isinstance(content["title"], str) else ""
    return title, Tags(None, _cleaned(name for name in names if isinstance(name, str)), fields)


def _of_iptc(data: Any) -> list[str]:
    """The keywords of IPTC: in UTF-8 or the declared set, else in Windows-1252."""
    raw, encoding = [], None
    for datum in data:
        if datum.key() == "Iptc.Application2.Keywords":
            raw.append(bytes(datum.value().data()))
        elif datum.key() == "Iptc.Envelope.CharacterSet":
            part = _PARTS.get(bytes(datum.value().data())[-1:])
            encoding = f"iso8859-{part}" if part else None
    keywords = []
    for one in raw:
        try:
            keywords.append(one.decode(encoding or "utf-8"))
        except UnicodeDecodeError:
            keywords.append(readable(one.decode("utf-8", "surrogateescape")))
    return keywords


def _merged(paths: list[list[str]], flat: Iterable[str], problems: list[tuple[str, str, int]]) -> list[list[str]]:
    """Clean keywords: the longest paths, and flat ones that are in no path, as programs write those of it beside it."""
    whole: set[tuple[str, ...]] = {tuple(parts) for path in paths if all(parts := [_clean(part) for part in path])}
    whole -= {path[:i] for path in whole for i in range(1, len(path))}
    inside = {part for path in whole for part in path}
    cleaned = [_clean(keyword) for keyword in flat]
    n_bad = cleaned.count("") + sum(not all(map(_clean, path)) for path in paths)
    keywords = sorted({*whole, *((keyword,) for keyword in cleaned if keyword and keyword not in inside)})
    if n_bad:
        problems.append(("keyword", BAD, n_bad))
    if len(keywords) > MOST_KEYWORDS:
        problems.append(("keyword", MANY, len(keywords) - MOST_KEYWORDS))
    return [list(path) for path in keywords[:MOST_KEYWORDS]]


@functools.lru_cache(100_000)
def _clean(text: str) -> str:
    """Return a keyword as a label; empty if it cannot be one."""
    try:
        return check_label(readable(text).strip("\0 \t\r\n"))
    except UserError:
        return ""


def _cleaned(texts: Iterable[str]) -> list[str]:
    return sorted({name for text in texts if (name := _clean(text))})


def _text(text: str) -> str:
    """Return a title or a description on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in readable(text)).split())[:_LONGEST_TEXT]


def _rating(text: str) -> str:
    """Return 1 to 5, or -1 for a rejected photo; empty for none."""
    try:
        number = float(text)
    except ValueError:
        return ""
    return f"{number:g}" if number == -1 or 0 < number <= 5 else ""
