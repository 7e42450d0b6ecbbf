"""Reading CSV tables that users write."""

from __future__ import annotations

import csv
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, system_errors_explained

from .notes import Notes

_SEPARATORS = ",;\t"  # between cells; the one that makes the most columns, the first of several


def read_rows(
    file: Path,
    columns: Sequence[str],
    *,
    check: Callable[[list[str]], object] | None = None,
    notes: Notes | None = None,
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells of each row of a CSV table.

    Cells are separated by commas, semicolons or tabs. The text is UTF-8, with or without a byte order mark, or UTF-16
    with one; other bytes come as surrogate escapes, as those of file names (see `readable`). Rows without any text are
    no rows.

    UserError if the file cannot be read, is not CSV, lacks one of the columns in its first line, or has an empty cell
    in them. ``check`` is called with all columns before the first row; ``notes`` counts rows with too few cells, and
    those with too many or empty ones if it skips them.
    """
    try:
        with (
            system_errors_explained(file, "cannot be read", "give the path of a table that can be read"),
            open(file, newline="", encoding=_encoding(file), errors="surrogateescape") as stream,
        ):
            first = next((line for line in stream if line.strip()), "")
            separator = ""
            if first.lower().startswith("sep="):  # as spreadsheets write it
                separator, first = first.strip()[4:5], next(stream, "")
            separator = separator or max(_SEPARATORS, key=lambda one: len(next(csv.reader([first], delimiter=one), [])))
            n_quotes = [0]

            def counted(lines: Iterable[str]) -> Iterator[str]:
                for line in lines:
                    n_quotes[0] += line.count('"')
                    yield line

            reader = csv.reader(counted(itertools.chain([first], stream)), delimiter=separator)
            names = [readable(name).strip() for name in next(reader, [])]
            twice = [name for name, n in Counter(names).items() if n > 1 and name]
            if twice:
                raise UserError(f"{file}: two columns {one_line(twice[0])[:100]}; rename one of them")
            if check is not None:
                check(names)
            missing = [name for name in columns if name not in names]
            if missing:
                raise UserError(f"{file}: no column {missing[0]}; the first line must be {','.join(columns)}")
            last, before = reader.line_num, n_quotes[0]
            for cells in reader:
                start, last, is_open = last + 1, reader.line_num, (n_quotes[0] - before) % 2 == 1
                before = n_quotes[0]
                if not any(map(str.strip, cells)):
                    continue
                where = f"line {reader.line_num}"
                if is_open and last > start or any(cells[len(names) :]):
                    problem = f"{where}: more cells than the first line has columns"
                    if is_open and last > start:
                        problem = f"line {start}: a quote that is not closed, so that the rows up to {where} are one"
                    if notes is None:
                        raise UserError(f"{file}, {problem}")
                    notes.bad(problem)
                    continue
                if len(cells) < len(names) and notes is not None:
                    notes.add("row", "with fewer cells than the first line has columns", where, "")
                row = dict(itertools.zip_longest(names, cells[: len(names)], fillvalue=""))
                if empty := [name for name in columns if not row[name]]:
                    problem = f"{where}: an empty {empty[0]}"
                    if notes is None:
                        raise UserError(f"{file}, {problem}")
                    notes.bad(problem)
                    continue
                yield reader.line_num, row
    except (csv.Error, ValueError) as error:  # ValueError: the name of a file that holds a NUL
        raise UserError(f"{file}: not a CSV table ({error})") from None


def _encoding(file: Path) -> str:
    with open(file, "rb") as stream:
        start = stream.read(2)
    if start in (b"\x1f\x8b", b"PK", b"BZ"):
        raise UserError(f"{file}: compressed tables are not read; unpack it, or save it as CSV")
    return "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def readable(text: str, notes: Notes | None = None) -> str:
    """Return a text in the Unicode form NFC; bytes that are not UTF-8 are read as Windows-1252, and counted.

    So that a label can be typed, and has one form, whatever system wrote it.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "surrogateescape") if _is_escaped(text) else text.encode("utf-8", "surrogatepass")
        try:
            text = raw.decode("cp1252")
        except UnicodeDecodeError:
            text = raw.decode("utf-8", "backslashreplace")
        if notes is not None:
            notes.add("cell", "not in UTF-8", text, "read as Windows-1252; save the table as UTF-8")
    return unicodedata.normalize("NFC", text)


def _is_escaped(text: str) -> bool:
    """Whether all lone surrogates of a text stand for bytes."""
    return not any("\ud800" <= character <= "\udc7f" or "\udd00" <= character <= "\udfff" for character in text)
