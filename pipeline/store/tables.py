"""Reading CSV tables that users write."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from visterm.pipeline.errors import UserError, system_errors_explained


def read_rows(
    file: Path, columns: Sequence[str], *, check: Callable[[list[str]], object] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of each row of a CSV table, UTF-8 with or without a byte order mark.

    UserError if the file cannot be read, is not CSV, lacks one of the columns in its first line, or has an empty cell
    in them. ``check`` is called with all columns before the first row.
    """
    try:
        with (
            system_errors_explained(file, "cannot be read", ""),
            open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream,
        ):
            reader = csv.DictReader(stream)
            twice = [name for name, n in Counter(reader.fieldnames or []).items() if n > 1 and name]
            if twice:
                raise UserError(f"{file}: two columns {twice[0]}; rename one of them")
            if check is not None:
                check(list(reader.fieldnames or []))
            missing = [name for name in columns if name not in (reader.fieldnames or [])]
            if missing:
                raise UserError(f"{file}: no column {missing[0]}; the first line must be {','.join(columns)}")
            for row in reader:
                if empty := [name for name in columns if not row[name]]:
                    raise UserError(f"{file}, line {reader.line_num}: an empty {empty[0]}")
                yield reader.line_num, row
    except (csv.Error, ValueError) as error:  # ValueError: the name of a file that holds a NUL
        raise UserError(f"{file}: not a CSV table ({error})") from None
