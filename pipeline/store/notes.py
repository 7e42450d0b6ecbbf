"""Counts of what a user's table holds and a run does not use, or uses otherwise than it is written."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError

# Words of tables, and of folders that wait for somebody to sort them.
_MAY_BE_NONE = (
    *("none", "na", "-", "?", "unknown", "unlabeled", "unlabelled", "undefined", "todo", "tbd", "unsorted"),
    *("unclassified", "new folder", "untitled folder", "misc", "various", "other", "others", "default", "inbox"),
)
# Encodings that a tool may have read UTF-8 in; Latin letters begin with a sign of the latter three that no word has.
_MISREAD = {"cp1252": None, "latin-1": None, "cp1251": None, "mac_roman": "ſ", "cp437": "ſ", "cp850": "ſ"}
_ESCAPED = re.compile(r"&#?\w+;|%[\da-fA-F]{2}|\\u[\da-fA-F]{4}")
_NUMBER = re.compile(r"\d{1,15}(\.\d*)?")
_UNSEEN, _AS_SPACE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]"), re.compile(r"[\s_-]+")
_SKIPS_BAD = "--set collection.skip_bad_rows=true skips such rows"


class Notes:
    """Counts by kind, each with its first example: a line per kind, however many rows a table has.

    Rows that make no sense count with `skip_bad_rows`; else the first one is a UserError.
    """

    def __init__(self, file: Path, *, skip_bad_rows: bool) -> None:
        self._file, self._skips = file, skip_bad_rows
        self._counts: dict[tuple[str, str, str], tuple[int, str]] = {}

    def add(self, noun: str, what: str, example: str, outcome: str = "skipped", *, n: int = 1) -> None:
        """Count things of a kind: ``add("row", "without a label", "line 7")``."""
        before, first = self._counts.get((noun, what, outcome), (0, example))
        self._counts[noun, what, outcome] = before + n, first

    def bad(self, problem: str) -> None:
        """Refuse a row, ``"line 7: an empty path"``, or count it where such rows are skipped."""
        if not self._skips:
            raise UserError(f"{self._file}, {one_line(problem)[:500]}; {_SKIPS_BAD}")
        self.add("row", "that cannot be used", problem)

    def doubtful(self, labels: Iterable[str], hint: str = "") -> None:
        """Count labels that are probably one, as they are written in different ways, or none."""
        alike = defaultdict(list)
        for label in sorted(labels):
            key = _AS_SPACE.sub(" ", _UNSEEN.sub("", label.casefold())).strip() or label
            alike[f"{float(key):.15g}" if _NUMBER.fullmatch(key) else key].append(label)
        if pairs := [several for several in alike.values() if len(several) > 1]:
            what = "in different capitals, spaces, hyphens or digits"
            self.add("label", what, " and ".join(map(one_line, pairs[0])), "different labels", n=len(pairs))
        self.garbled("label", itertools.chain.from_iterable(alike.values()))
        if nothing := [alike[word][0] for word in _MAY_BE_NONE if word in alike]:
            self.add("label", "that may say that there is none", nothing[0], f"kept{hint}", n=len(nothing))

    def garbled(self, noun: str, texts: Iterable[str]) -> None:
        """Count texts that an earlier tool has read in another encoding than they were written in, or has escaped."""
        if meant := [(text, as_meant) for text in texts if (as_meant := _as_meant(text)) is not None]:
            what, (text, as_meant) = "that an earlier tool probably garbled", meant[0]
            self.add(noun, what, f"{one_line(text)} ({one_line(as_meant)}?)", "kept as written", n=len(meant))

    def lines(self) -> list[str]:
        """Return a line per kind, in the order of their first examples."""
        return [
            f"{count(n, noun)} {what}"
            + (f", such as {one_line(example)[:200]}" if example else "")
            + (f"; {outcome}" if outcome else "")
            for (noun, what, outcome), (n, example) in self._counts.items()
        ]


def has_entity(text: str) -> bool:
    """Whether a text has characters as HTML escapes them."""
    if "&" not in text or ";" not in text:
        return False
    from html import unescape

    return unescape(text) != text


def _as_meant(text: str) -> str | None:
    """Return what a text says whose UTF-8 was read in another encoding, or which was escaped; None for others."""
    if "\ufffd" in text:
        return "lost characters"
    if text.isascii():
        if "://" in text or not _ESCAPED.search(text):
            return None
        from html import unescape
        from urllib.parse import unquote

        meant = re.sub(r"\\u([\da-fA-F]{4})", lambda match: chr(int(match[1], 16)), unescape(text))
        with contextlib.suppress(UnicodeDecodeError):
            meant = unquote(meant, errors="strict")
        return meant if meant != text else None
    for encoding, last in _MISREAD.items():
        with contextlib.suppress(UnicodeError):
            meant = text.encode(encoding).decode()
            if last is None or max(meant) <= last:
                return meant
    return None
