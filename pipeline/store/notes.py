"""Counts of what a user's table holds and a run does not use, or uses otherwise than it is written."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError

# Words of tables, and of folders that wait for somebody to sort them.
_MAY_BE_NONE = (
    *("none", "na", "-", "?", "unknown", "unlabeled", "unlabelled", "undefined", "todo", "tbd", "unsorted"),
    *("unclassified", "new folder", "untitled folder", "misc", "various"),
)
_UNSEEN, _AS_SPACE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]"), re.compile(r"[\s_-]+")
_SKIPS_BAD = "--set collection.skip_bad_rows=true skips such rows"


class Notes:
    """Counts by kind, each with its first example: a line per kind, however many rows a table has.

    Parameters
    ----------
    file : Path
        The table.
    skip_bad_rows : bool
        Count rows that make no sense; else the first one is a UserError.
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
            alike[_AS_SPACE.sub(" ", _UNSEEN.sub("", label.casefold())).strip() or label].append(label)
        if pairs := [several for several in alike.values() if len(several) > 1]:
            what = "in different capitals, spaces or hyphens"
            self.add("label", what, " and ".join(map(one_line, pairs[0])), "different labels", n=len(pairs))
        if nothing := [alike[word][0] for word in _MAY_BE_NONE if word in alike]:
            self.add("label", "that may say that there is none", nothing[0], f"kept{hint}", n=len(nothing))

    def lines(self) -> list[str]:
        """Return a line per kind, in the order of their first examples."""
        return [
            f"{count(n, noun)} {what}"
            + (f", such as {one_line(example)[:200]}" if example else "")
            + (f"; {outcome}" if outcome else "")
            for (noun, what, outcome), (n, example) in self._counts.items()
        ]
