"""Background jobs: work that a child process of low priority does, one process per job at a time."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import threading
from typing import Any

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, explain_system_error
from visterm.pipeline.store.run import Run

from .snapshot import Snapshot

_log = logging.getLogger(__name__)


class Job:
    """A command that runs as a child process.

    It prints lines of JSON: its progress, then ``{"result": ...}``, or ``{"error": text}``. SIGTERM ends it.
    """

    command: tuple[str, ...]  # the folder of the run is its last argument
    work: str  # what the process does, as the subject of a sentence
    end_seconds = 10.0  # to end by itself when the service stops

    def __init__(self, run: Run):
        self.run = run
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None
        self.progress: Any = {}  # as last printed
        self.cancelled = self._stopping = False
        self.result: Any = None
        self.problem: str | None = None

    def launch(self, progress: Any) -> None:
        """Start the process; call it with the lock, while no process runs."""
        self.progress, self.result, self.problem = progress, None, None
        self.cancelled = self._stopping = False
        self.process = process = subprocess.Popen(
            [*self.command, str(self.run.folder.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        name = f"visterm-{type(self).__name__}"
        threading.Thread(target=self._follow, args=(process,), name=name, daemon=True).start()

    def cancel(self) -> bool:
        """End the process; return whether one was running."""
        with self.lock:
            if self.process is None:
                return False
            self.cancelled = True
            self.process.terminate()
            return True

    def stop(self) -> None:
        """End the process as the service stops, and wait for it; unlike `cancel`, this deletes nothing."""
        with self.lock:
            self._stopping, process = True, self.process
        if process is not None:
            process.terminate()
            try:
                process.wait(self.end_seconds)
            except subprocess.TimeoutExpired:  # the starter of the service may have told it to ignore SIGTERM
                process.kill()

    def images_changed(self, snapshot: Snapshot) -> None:
        """Called in the background when the images of the collection have changed, and once an hour."""

    def is_urgent(self) -> bool:
        """Whether other work in the background waits for this one."""
        return False

    def finish(self, result: Any) -> Any:
        """Make the result to keep of the printed one (None without); until it returns, the job counts as running."""
        return result

    def ended(self, succeeded: bool) -> None:
        """Called when the job no longer counts as running."""

    def _follow(self, process: subprocess.Popen[str]) -> None:
        result: Any = None
        problem: str | None = None
        try:
            printed, problem = self._read(process)
            result = self.finish(printed)
        except Exception as error:  # of any kind: the job must end, or no other can begin
            problem = str(error) if isinstance(error, UserError) else explain_system_error(error)
            if problem is None:
                problem = f"{self.work} ended with an error"
                _log.exception("%s", problem)
            else:
                _log.warning("%s", problem)
        finally:
            process.kill()  # without effect on one that has ended
            process.wait()
        with self.lock:
            self.process, self.result, self.problem = None, result, problem
        self.ended(process.returncode == 0 and problem is None)

    def _read(self, process: subprocess.Popen[str]) -> tuple[Any, str | None]:
        """Read the lines of the process until it ends; return its result, and what is wrong."""
        result: Any = None
        problem: str | None = None
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    printed = json.loads(line)
                except ValueError:  # cut off by a kill
                    continue
                if not isinstance(printed, dict):  # no line of these processes; before anyone reads it as progress
                    raise TypeError(f"{self.work} printed {one_line(line)}")
                if "error" in printed:
                    problem = one_line(printed["error"])
                elif "result" in printed:
                    result = printed["result"]
                else:
                    with self.lock:
                        self.progress = printed
        process.wait()
        if process.returncode and not self.cancelled and not self._stopping:
            if process.returncode == -signal.SIGKILL:
                problem = f"{self.work} was killed, probably for want of memory"
            problem = problem or f"{self.work} ended with an error"
            _log.warning("%s", problem)
        return result, problem
