"""The entry point of the command ``visterm``: it handles signals before anything large is imported."""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False  # see visterm.pipeline
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """Run the command line as a process of its own; a program calls `visterm.pipeline.cli.app.main`.

    An error outside of a command, such as of an import, is one line, too.
    """
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell lets background jobs ignore Ctrl-C
        signal.signal(signal.SIGINT, _end)
    gc.set_threshold(100_000)  # libraries make many objects, which stay: looking for garbage among them takes time
    # Idle threads of OpenBLAS, of which NumPy, SciPy and OpenCV bring a copy each, spin 2**26 ticks, 30 ms, by default.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
    _open_streams()
    try:
        try:
            from .memory import START, check_memory

            check_memory(START)
            from .quick import answer

            if not answer(sys.argv[1:]):
                from .app import main as run

                run(ends_process=True)
        finally:
            try:
                sys.stdout.flush()
            except OSError as error:  # which the interpreter would ignore at its end
                raise OSError(error.errno, error.strerror, "standard output") from None
    except SystemExit as ended:
        from .errors import END_SECONDS, end_within

        end_within(END_SECONDS, int(ended.code or 0))
        raise
    except BrokenPipeError:  # the reader has closed the pipe
        os._exit(0)
    except Exception as error:
        if "--debug" in sys.argv or (line := _explained(error)) is None:
            raise
        try:
            os.write(2, f"visterm: {line}\n".encode(errors="backslashreplace"))
        finally:
            os._exit(2)  # the end of the interpreter needs memory, too


def _open_streams() -> None:
    """Let closed streams lead nowhere: files would be opened under their numbers, and get what libraries print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # as long as the process
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115  # as long as the process


def _explained(error: Exception) -> str | None:
    try:
        from visterm.pipeline.console import one_line
        from visterm.pipeline.errors import explain_system_error

        if (line := explain_system_error(error)) is None and isinstance(error, ImportError):
            line = f"the installation is damaged ({error}); install visterm again, with all that it needs"
        return line and one_line(line)
    except Exception:  # without memory an import raises errors of any kind, SyntaxError among them
        return "out of memory; free some memory or raise the limit (ulimit -v), then re-run the same command to resume"


def _end(number: int, frame: Any) -> None:
    """End at once: nothing was begun, and an exception could leave an import half done."""
    os.write(2, b"visterm: interrupted; nothing was done yet\n")
    sys.stdout.flush()
    os._exit(128 + number)
