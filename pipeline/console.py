"""Messages and progress bars of a command, on standard error."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from time import perf_counter
from typing import Any

from visterm.compiled import when_loaded

_COMPILING = "compiling kernels, up to half a minute, once after an installation or an update ..."
_LINE_EVERY = 30.0  # seconds, of a phase without a bar


class Console:
    """Progress for people; when quiet, only warnings.

    ``progress`` draws bars; None: in a notebook, and where standard error is a terminal. Without bars each phase is one
    plain line, and a long one says every half minute how far it is.
    """

    _bar: Any = None

    def __init__(self, *, quiet: bool = False, progress: bool | None = None):
        self.quiet = quiet
        self._in_notebook = "ipykernel" in sys.modules  # the process is a notebook's kernel
        self.bars = not quiet and ((self._in_notebook or sys.stderr.isatty()) if progress is None else progress)
        logging.getLogger("visterm").handlers = [_Warnings(self)]  # what the library has to say

    def say(self, text: str) -> None:
        """Print a line."""
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        """Print a line that is shown even when quiet."""
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()  # it is drawn again with the next progress
        print(one_line(text), file=sys.stderr, flush=True)

    @contextmanager
    def phase(self, title: str, total: int | None = None, unit: str = "it") -> Iterator[_Phase]:
        """Show a bar with rate and time left; without bars the title, and the seconds when it ended."""
        started = perf_counter()
        outer, bar = self._bar, None
        if self.bars:
            # tqdm.auto draws widgets, where there are any; it is slow to import.
            library = import_module("tqdm.auto" if self._in_notebook else "tqdm")
            bar = self._bar = library.tqdm(
                total=total,
                desc=title,
                unit=f" {unit}",
                unit_scale=total is None or total > 99_999,
                leave=False,
                ncols=_columns(),
            )
        else:
            self.say(f"{title} ...")
        try:
            yield _Phase(bar, lambda text: self.say(f"{title}: {text}"), total, unit)
        finally:
            self._bar = outer
            if bar is not None:
                bar.close()
        self.say(f"{title}: {duration(perf_counter() - started)}")


@contextmanager
def told_of_compiling(console: Console, *, lazily: bool = False) -> Iterator[None]:
    """Say so once if kernels must be compiled, which makes the first command after an installation slow.

    Of kernels of this process: others have what it has compiled. With ``lazily``, Numba is imported by the first of
    them that needs it: see `visterm.compiled`.
    """
    with ExitStack() as stack:

        def listen() -> None:
            from numba.core import event

            class _First(event.Listener):
                told = False

                def on_start(self, _: Any) -> None:
                    if not self.told:
                        self.told = True
                        console.say(
                            "compiling kernels, up to half a minute, once after an installation or an update ..."
                        )

                def on_end(self, _: Any) -> None: ...

            stack.enter_context(event.install_listener("numba:compile", _First()))

        if lazily:
            stack.enter_context(when_loaded(listen))
        else:
            listen()
        yield


def _columns() -> int | None:
    """Return the width of progress bars: 80 on a terminal that reports none, else None, for the terminal's own."""
    try:
        return None if os.get_terminal_size(sys.stderr.fileno()).columns else 80
    except (OSError, ValueError):  # no terminal
        return None


class _Warnings(logging.Handler):
    """Show what the library logs, each message once."""

    def __init__(self, console: Console):
        super().__init__(logging.WARNING)
        self._console = console
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info and record.exc_info[1]
        text = f"{record.getMessage()}: {error!r}" if error else record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            self._console.warn(text)
            if error:  # one that nobody foresaw: where it came from
                traceback.print_exception(error)


class _Phase:
    """One piece of work under way."""

    def __init__(self, bar: Any, say: Callable[[str], None], total: int | None, unit: str):
        self._bar, self._say, self._total, self._unit = bar, say, total, unit
        self._started = self._said = perf_counter()
        self._first = 0
        self._waits = True  # for the first piece, which may compile kernels, open files, start processes

    def start_at(self, done: int) -> None:
        """Say how much an interrupted command has done: it does not count for the time left."""
        self._first = done
        if self._bar is not None:
            self._bar.initial = self._bar.n = self._bar.last_print_n = done

    def advance_to(self, done: int, total: int | None = None, note: str = "") -> None:
        """Say how much is done."""
        if total is not None:
            self._total = total
        if self._waits and done > self._first:
            self._waits = False
            self.start_at(done)
            self._started = perf_counter()
            if self._bar is not None:
                self._bar.unpause()
        if self._bar is not None:
            self._bar.total = self._total
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._bar.n)
        elif perf_counter() - self._said >= _LINE_EVERY:
            self._said = perf_counter()
            amount = f"{100 * done // self._total} %" if self._total else f"{done:,} {self._unit}"
            self._say(", ".join(filter(None, [amount, self._time_left(done), note])))

    def _time_left(self, done: int) -> str:
        """Return the time left, or nothing while it is unknown."""
        if not self._total or done <= self._first:
            return ""
        left = (perf_counter() - self._started) * (self._total - done) / (done - self._first)
        return f"{duration(left)} left"


def one_line(text: str) -> str:
    """Escape what a file name may bring into a message: control characters and undecodable bytes."""
    if text.isprintable():
        return text
    from visterm.features import printable  # rarely needed, and not quickly loaded

    return printable(text)


def csv_cells(row: Iterable[Any]) -> list[Any]:
    """Return the cells of a CSV row, safe to open in a spreadsheet, and valid UTF-8.

    A text that a spreadsheet would take for a formula (``= + - @``) gets an apostrophe before it; bytes of a file name
    that are not UTF-8 are escaped.
    """
    return [_csv_cell(cell) if isinstance(cell, str) else cell for cell in row]


def csv_text(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a CSV table, whose rows are safe as of `csv_cells`."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(csv_cells, rows))
    return text.getvalue()


def in_columns(rows: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust) -> list[str]:
    """Return rows of texts as lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(justify, row, widths)).rstrip() for row in rows]


def _csv_cell(cell: str) -> str:
    if not cell.isascii():
        cell = re.sub("[\ud800-\udfff]", lambda byte: f"\\x{ord(byte[0]) & 0xFF:02x}", cell)
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(cell):
        return f"'{cell}"
    return cell


_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?")


def duration(seconds: float) -> str:
    """Return ``4.2 s``, ``1 min 33 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def reads_below(value: float, other: float, digits: int = 3) -> bool:
    """Whether a number is smaller than another one as both are written with some digits."""
    return round(float(value), digits) < round(float(other), digits)


def numbers_apart(value: float, other: float, digits: int = 3) -> tuple[str, str]:
    """Write two numbers of which a sentence calls one better: with more digits, up to six, where they read the same."""
    while digits < 6 and f"{value:.{digits}f}" == f"{other:.{digits}f}":
        digits += 1
    return f"{value:.{digits}f}", f"{other:.{digits}f}"


def count(n: int, noun: str) -> str:
    """Return ``1 image``, ``1,300 images``, ``2 classes``, ``3 queries``."""
    if n == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("ss") else "s"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}{ending}"
    return f"{n:,} {plural}"


def without_password(text: str) -> str:
    """Return an address, or a setting with one, without name and password."""
    return re.sub("(?s)://.*@", "://", text)  # up to the last @, as a wrong one may have any of :/@ in its password
