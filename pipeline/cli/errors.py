"""Turning an error of a command, or a signal, into one line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import NothingToSearch, UserError, explain_system_error
from visterm.pipeline.plugins import load

from .caches import prepare_caches
from .memory import COMMAND, check_memory
from .runs import Globals

if TYPE_CHECKING:
    from visterm.pipeline.store.run import Run

INTERNAL = 70  # the exit code of an internal error; 1 says that some images were done
END_SECONDS = 10  # between a signal, or the last line of a command, and the end of the process
_RESUMES = ("features", "add", "compact", "train", "tune", "evaluate", "demo", "index", "repair")


def command(function: Callable) -> Callable:
    """Turn an exception into one line on standard error and an exit code."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        signals.raise_them()
        Globals.run = None
        try:
            check_memory(COMMAND)
            if (line := prepare_caches()) is not None and not Globals.quiet:
                print(one_line(line), file=sys.stderr)
            return function(*args, **kwargs)
        except getattr(sys.modules.get("typer"), "Exit", ()):  # some commands are called without Typer
            raise
        except BrokenPipeError:  # the reader has closed the pipe, of messages perhaps as well
            for stream in (sys.stdout, sys.stderr):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise SystemExit(0) from None
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt) or signals.received is not None:  # or a library made it another
                _say_interrupted(error, function.__name__, kwargs)
                number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
                raise SystemExit(128 + (signals.received or number)) from None
            if Globals.debug:
                raise
            line = str(error) if isinstance(error, UserError) else explain_system_error(error)
            line = _damage(Globals.run) if line is None else line
            if line is not None:
                print(f"visterm: {one_line(line)}", file=sys.stderr)
                raise SystemExit(2) from None
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            print(f"visterm: internal error: {problem}; 'visterm --debug ...' shows where", file=sys.stderr)
            raise SystemExit(INTERNAL) from None
        finally:
            signals.over = True  # at once: a call would let a signal in before its first line
            signals.ignore_them()

    return wrapped


def _say_interrupted(error: BaseException, name: str, options: dict[str, Any]) -> None:
    again = "re-run the same command"
    if options.get("force") and name == "train":  # --force ignores checkpoints
        again += " without --force"
    saved = [str(error)] if isinstance(error, KeyboardInterrupt) and error.args else []  # of a training's checkpoint
    resume = [f"{again} to resume"] if name in _RESUMES else []
    print(f"visterm: {'; '.join(['interrupted', *saved, *resume])}", file=sys.stderr)


def _damage(run: Run | None) -> str | None:
    """Look for the cause of an unforeseen error in the files of the run; name the damage and its repair.

    None if nothing is damaged, or the command has no run: then the first error is the one to tell.
    """
    if run is None:
        return None
    try:
        return load("repair").first_damage(run)
    except NothingToSearch:
        return None
    except UserError as error:
        return f"{error}; then run 'visterm repair {run.option}'"
    except Exception:
        return None


def end_within(seconds: float, code: int, line: str = "") -> threading.Timer:
    """Limit the time until this process ends: one that hangs in the kernel cannot be killed, and may be waited for."""

    def end() -> None:
        with contextlib.suppress(Exception):  # nobody reads it
            print(line, end="", file=sys.stderr, flush=True)
            sys.stdout.flush()
        os._exit(code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no memory for a thread
        timer.start()
    return timer


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C."""


class _Signals:
    """Handle SIGINT and SIGTERM: interrupt a running command; ignore both once its results are written.

    Only `visterm.pipeline.cli.app.main` takes them over: a test, or a program that calls a command, has its own.
    """

    owned: tuple[int, ...] = ()
    received: int | None = None
    over = False  # the command has ended: a signal comes too late
    _ends_process = False
    _limit: threading.Timer | None = None
    _is_dropped = False  # whether an exception of a signal is to be raised again

    @contextlib.contextmanager
    def taken_over(self, *, ends_process: bool) -> Iterator[None]:
        """Take SIGTERM over, and SIGINT, unless the shell lets a background job ignore it; give them back at the end.

        They stay ignored in a process that ends with the command, and a signal limits the time that it may still take.
        """
        handlers: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # no other can set handlers
            handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
            if handlers[signal.SIGINT] in (signal.SIG_IGN, None):  # None: not of Python, and cannot be given back
                del handlers[signal.SIGINT]
        self.owned, self.received, self._ends_process = tuple(handlers), None, ends_process
        hook, sys.unraisablehook = sys.unraisablehook, self._send_again
        try:
            yield
        finally:
            self.owned, sys.unraisablehook = (), hook
            if not ends_process:
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def raise_them(self) -> None:
        """Raise a signal as an exception from now on."""
        self.over = False
        for number in self.owned:
            signal.signal(number, self._raise)

    def ignore_them(self) -> None:
        """Ignore signals from now on."""
        if self._limit is not None:
            self._limit.cancel()
        for number in self.owned:
            signal.signal(number, signal.SIG_IGN)

    def _send_again(self, lost: Any) -> None:
        """Send a signal again whose exception Python has dropped: it fell into a destructor."""
        if self.received is None or not isinstance(lost.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
            return
        self._is_dropped = True
        threading.Thread(target=self._send_until_raised, args=(self.received,), daemon=True).start()

    def _send_until_raised(self, number: int) -> None:
        """Send a signal from outside: an exception in the hook of a dropped one would be dropped, too."""
        time.sleep(0.01)
        while self._is_dropped and not self.over:
            os.kill(os.getpid(), number)
            time.sleep(0.01)

    def _raise(self, number: int, frame: Any) -> None:
        if self.over:
            return
        self.received = number
        if self._ends_process and self._limit is None:
            if images := sys.modules.get("visterm.features.images"):
                images.stop_reading()  # or threads of this process would keep it until their files are read
            line = "visterm: interrupted; a worker did not end, which may read a file of a server that is away\n"
            self._limit = end_within(END_SECONDS, 128 + number, line)
        while frame is not None:
            if frame.f_code is _Signals._send_again.__code__:  # on a busy machine it is still in the hook
                return
            frame = frame.f_back
        self._is_dropped = False
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


signals = _Signals()


def run(call: Callable[[], Any], *, ends_process: bool) -> NoReturn:
    """Call a command line; raise SystemExit with the exit code that it returns.

    The handlers of SIGINT and SIGTERM are given back, unless the process ends with the command: then it ignores signals
    that come after the work is done.
    """
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a label that a terminal of cp1252 cannot show
    with signals.taken_over(ends_process=ends_process):
        code = call()
        if ends_process:
            gc.freeze()  # or the interpreter looks for garbage among all that was imported, half a second at the end
    sys.exit(code)
