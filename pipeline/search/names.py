"""Find names that contain a text, while it is typed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_LONGEST = 300  # characters of a name that are searched; of a longer one the last, where the file name is
_WORD_STARTS = (" ", "_", "-", "/", ".", "(")


class NameIndex:
    """Search names while a text is typed: 100,000 names take some milliseconds.

    Case and accents do not matter. Equally good names come in the order of `names`.

    >>> index = NameIndex(["crab", "scorpion", "Crayfish", "horse crab"])
    >>> index.search("cra", 3)
    [0, 2, 3]
    """

    def __init__(self, names: Sequence[str]) -> None:
        parts, starts, at = [], [], 1
        for name in names:
            part = fold(name)[-_LONGEST:]
            parts.append(part)
            starts.append(at)
            at += len(part) + 1
        self._text = "\n" + "\n".join(parts) + "\n"  # one text, which str.find scans at memory speed
        self._starts = starts

    def search(self, text: str, limit: int) -> list[int]:
        """Return the numbers of the best names: equal ones, then those that begin with it, in a word, and anywhere."""
        text = fold(text).strip()
        if not text:
            return list(range(min(limit, len(self._starts))))
        numbers: dict[int, None] = {}
        for pattern in (f"\n{text}\n", f"\n{text}", *(f"{before}{text}" for before in _WORD_STARTS), text):
            self._collect(pattern, limit, numbers)
            if len(numbers) >= limit:
                break
        return list(numbers)[:limit]

    def _collect(self, pattern: str, limit: int, numbers: dict[int, None]) -> None:
        from bisect import bisect_right

        at = self._text.find(pattern)
        while at >= 0 and len(numbers) < limit:
            number = bisect_right(self._starts, at + (pattern[0] == "\n")) - 1
            numbers[number] = None
            end = self._text.find("\n", at + 1)  # one hit per name is enough
            at = self._text.find(pattern, max(end, at + 1))


def fold(text: str) -> str:
    """Make a text comparable: without case, accents and line breaks."""
    text = text.casefold().replace("\n", " ")
    if text.isascii():
        return text
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))
