"""Child processes of low priority, which say in lines of JSON on standard output how far they are."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from visterm.pipeline.store.run import Run


def start_child(command: Sequence[str], run: Run) -> subprocess.Popen[str]:
    """Start a command whose last argument is the folder of a run."""
    return subprocess.Popen(
        [*command, str(run.folder.absolute())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def said_by(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what a child says until it ends."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            try:
                yield json.loads(line)
            except ValueError:  # cut off by a kill
                continue
    process.wait()


def problem_of(process: subprocess.Popen[str], work: str, told: str | None) -> str:
    """Say why a child ended with a code other than 0; `told` is the error that it said itself."""
    if process.returncode == -signal.SIGKILL:
        return f"{work} was killed, probably for want of memory"
    return told or f"{work} ended with an error"


def end_child(process: subprocess.Popen[str], seconds: float) -> None:
    """End a child, which has so many seconds to do so itself."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:  # it may be told to ignore SIGTERM by who has started the service
        process.kill()
