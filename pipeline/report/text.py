"""Words, numbers and file names as a report prints them."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

from visterm.pipeline.console import duration

WORLDS = {  # of images, by what their classes are to a learner
    "seen": "classes that were trained on",
    "unseen": "other classes",
    "both": "both in one gallery",
}


def file_parts_of(path: str) -> tuple[str, ...]:
    """Return folder and file name: they tell an image apart and fit under a thumbnail."""
    return Path(path).parts[-2:]


def without_folders(text: str) -> str:
    """Shorten absolute paths in a text to the file's name: a report is passed on, and they name people and machines."""
    return _ABSOLUTE.sub(lambda path: path[1] + os.path.basename(path[2].rstrip("/")), text)


_ABSOLUTE = re.compile(r"""(^|[\s='"(,;\[])(/(?:[^\s'",;)\]]|(?<=\S)[ ](?=[^\s/]*/))+)""", re.MULTILINE)


def number_text(value: float | None, digits: int = 3) -> str:
    """Write a number with some digits; a dash for a missing one."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}"


def seconds_text(value: float | None) -> str:
    """Write a duration as `console.duration` does; a dash for a missing one."""
    return "–" if value is None else duration(value)


def p_value_text(value: float) -> str:
    """Write two digits, or < 0.001."""
    return f"{value:.2g}" if value >= 0.001 else "< 0.001"
