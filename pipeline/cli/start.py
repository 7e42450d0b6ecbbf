"""The entry point of the command ``visterm``: it handles signals before anything large is imported."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # see visterm.pipeline
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell lets background jobs ignore Ctrl-C
        signal.signal(signal.SIGINT, _end)
    from .app import main as run
    from .errors import END_SECONDS, end_within

    try:
        run()
    except SystemExit as ended:
        end_within(END_SECONDS, int(ended.code or 0))
        raise


def _end(number: int, frame: Any) -> None:
    """End at once: nothing was begun, and an exception could leave an import half done."""
    os.write(2, b"visterm: interrupted; nothing was done yet\n")
    sys.stdout.flush()
    os._exit(128 + number)
