"""Numbers, durations and file names as a report prints them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any


# Words and numbers
def printable_text(text: Any) -> str:
    """Text that can be shown and written as UTF-8: odd bytes and control characters become escapes."""
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # Python's stand-in for a byte of a file name that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def file_parts_of(path: str) -> tuple[str, ...]:
    """Return the last two parts of a path: folder and file tell an image apart, and fit under a thumbnail."""
    return Path(path).parts[-2:]


def number_text(value: float | None, digits: int = 3) -> str:
    """Write a number with some digits; a dash for a missing one."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}"


def short(value: float) -> str:
    """20000 -> 20k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (value >= size and value % (size / 10) == 0):
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def seconds_text(value: float | None) -> str:
    """93.4 -> 1 min 33 s."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def counted(n: int, noun: str) -> str:
    """Return "1 query", "2 queries", "1 image", "2 images"."""
    if n == 1:
        return f"1 {noun}"
    return f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"


def p_value_text(value: float) -> str:
    """Two digits; < 0.001 of what is smaller."""
    return f"{value:.2g}" if value >= 0.001 else "< 0.001"
