"""Checkpoints of a training, which show its progress and end it in time or on a signal."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

from visterm.pipeline.console import Console
from visterm.pipeline.errors import explain_system_error
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import publish


class CheckpointCallback:
    """Callback that shows a learner's progress and saves a checkpoint every so many seconds.

    As a context, it ends the training on Ctrl-C or SIGTERM: when the learner calls next, which is within a second, a
    checkpoint is saved, and only then is the signal let through. A second signal is let through at once, and so is the
    first before the learner has called, when there is nothing to save.
    """

    def __init__(
        self,
        phase: Any,
        console: Console,
        checkpoint: Path,
        record: Record,
        started: float,
        every: float,
        time_limit: float | None = None,
    ):
        self._phase, self._console = phase, console
        self._checkpoint, self._record = checkpoint, record
        self._started, self._every = started, every
        self._time_limit = time_limit
        self.timed_out = False
        self._saved = time.perf_counter()
        self._handlers: dict[int, Any] = {}  # that were there before, by signal
        self._called = False
        self._signal: int | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # no other can set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # jobs in the background ignore Ctrl-C
                    self._handlers[number] = signal.signal(number, self._hold)

    def __exit__(self, *error: object) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _hold(self, number: int, frame: Any) -> None:
        self.__exit__()
        if self._called:
            self._signal = number
        else:
            signal.raise_signal(number)

    def start_at(self, steps: int) -> None:
        """Note the steps before an interruption."""
        self._phase.start_at(steps)

    def __call__(self, learner: Any) -> None:
        """Show progress; end the training or save a checkpoint where it is time."""
        self._called = True
        checks = (entry["validation"] for entry in reversed(learner.history_) if learner.phase_ == "search")
        last = next((figure for figure in checks if figure is not None), None)
        note = "" if last is None else f"validation {learner.validation_measure} {last:.3f}"
        self._end_in_time(learner)
        self._phase.advance_to(learner.steps_done_, learner.steps_total_, note)
        self.end_if_told(learner)
        if time.perf_counter() - self._saved > self._every:
            self._save(learner, "training continues")

    def _end_in_time(self, learner: Any) -> None:
        """End the search where a refit for the best number of steps still keeps within the time limit."""
        if self._time_limit is None or self.timed_out or not learner.validates:
            return
        if learner.phase_ not in ("search", "train"):
            return
        share = getattr(learner, "best_step_", 0) / max(learner.n_steps_, 1) if learner.refit else 0
        if (time.perf_counter() - self._started) * (1 + share) >= self._time_limit:
            learner.end_after(0)
            self.timed_out = True

    def end_if_told(self, learner: Any) -> None:
        """Save a checkpoint and let the signal through, if there was one."""
        if self._signal is None:
            return
        self._console.say("saving the checkpoint ...")
        saved = self._save(learner, "the one before is kept")
        number, self._signal = self._signal, None
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as interrupt:
            if saved:
                interrupt.args = (f"checkpoint saved at {learner.steps_done_:,} of {learner.steps_total_:,} steps",)
            raise

    def _save(self, learner: Any, advice: str) -> bool:
        seconds = {"seconds": round(time.perf_counter() - self._started, 3)}
        try:
            with publish(self._checkpoint, self._record | seconds) as folder:
                learner.save(folder / "files")
        except OSError as error:  # the previous one stays; hours of training are not lost to a full disk
            problem = "the checkpoint could not be written"
            self._console.warn(explain_system_error(error, self._checkpoint, problem, advice) or str(error))
            return False
        finally:
            self._saved = time.perf_counter()
        return True
