"""What a command says while it works: words and progress bars, on standard error."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Console:
    """Progress for people; when quiet, only warnings.

    ``progress`` draws bars; None: where standard error is a terminal. Without bars each phase is one plain line.
    """

    def __init__(self, *, quiet: bool = False, progress: bool | None = None):
        self.quiet = quiet
        self.bars = not quiet and (sys.stderr.isatty() if progress is None else progress)
        logging.getLogger("visterm").handlers = [_Warnings(self)]  # what the library has to say

    def say(self, text: str) -> None:
        """Print a line."""
        if not self.quiet:
            print(one_line(text), file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print a line that is shown even when quiet."""
        print(f"warning: {one_line(text)}", file=sys.stderr, flush=True)

    @contextmanager
    def phase(self, title: str, total: int | None = None, unit: str = "it") -> Iterator[_Phase]:
        """Show a bar with rate and time left; without bars the title, and the seconds when it ended."""
        started = time.perf_counter()
        bar = None
        if self.bars:
            from tqdm import tqdm

            bar = tqdm(
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
            yield _Phase(bar)
        finally:
            if bar is not None:
                bar.close()
        self.say(f"{title}: {duration(time.perf_counter() - started)}")


def _columns() -> int | None:
    """80 on a terminal that says it has none, as some do; None: it knows best, and may change."""
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
        text = record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            self._console.warn(text)


class _Phase:
    """One piece of work under way."""

    def __init__(self, bar):
        self._bar = bar

    def advance_to(self, done: int, total: int | None = None, note: str = "") -> None:
        """Say how much is done."""
        if self._bar is None:
            return
        if total is not None:
            self._bar.total = total
        if note:
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(done - self._bar.n)


def one_line(text: str) -> str:
    """Escape what a file name may bring into a message: control characters and undecodable bytes."""
    if text.isprintable():
        return text
    from visterm.features import printable  # rarely needed, and not quickly loaded

    return printable(text)


def duration(seconds: float) -> str:
    """Return ``4.2 s``, ``1 min 33 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(n: int, noun: str) -> str:
    """Return ``1 image``, ``1,300 images``, ``2 classes``, ``3 queries``."""
    if n == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("ss") else "s"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}{ending}"
    return f"{n:,} {plural}"
