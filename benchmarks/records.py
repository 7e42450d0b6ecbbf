"""The declaration of a benchmark: a record, and the race of ours against a peer that fills it.

record("startup", "visterm --help", "python -c 'import sklearn'", "an interpreter that does nothing takes 0.01 s",
       race(ours, peer, 20, ELAPSED, unit="s"))
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .vectors import keep


class Clock(NamedTuple):
    """A function that reads seconds, and its description on the page."""

    read: Callable[[], float]
    title: str


THREAD = Clock(time.thread_time, "1 thread each, processor time")
PROCESS = Clock(time.process_time, "1 core each, processor time")
ELAPSED = Clock(time.perf_counter, "elapsed time")

SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60}  # units of time in a second

ORDER = ("name", "what", "ours", "peer", "peer_name", "ratio", "limit", "bound", "unit", "n", "measured")

# What figures of quality cannot exceed.
FIRST = "1.0: every image of the query's class first"
RIGHT_LABEL = "1.0: every image's best label is its own"


def record(
    name: str,
    what: str,
    peer_name: str,
    limit: str,
    figures: dict[str, Any],
    *,
    measured: str = "",
    bound: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a comparison as benchmarks/results.json holds it; `python -m benchmarks` adds the command.

    The name is never renamed, as pages quote it; `what` is the work that is measured, and `measured` says how:
    repetitions, threads and clock. `limit` is the physical limit; with `bound`, the least seconds that one thing can
    take, what follows that figure. `figures` are those of `race`, which says how it measured, or of `compared`.
    """
    given = {"measured": measured} if measured else {}
    if bound is not None:
        word = figures["unit"].split()[0]
        given |= {"bound": bound * SCALES[word]}
        limit = f"{float(format(given['bound'], '.2g')):g} {word}{limit}"
    values = {"name": name, "what": what, "peer_name": peer_name, "limit": limit, **figures, **given}
    return {key: values[key] for key in (*ORDER, *values) if key in values} | more


def compared(
    ours: float, peer: float, unit: str, n: int, *, higher: bool = False, ratio: float | None = None
) -> dict[str, Any]:
    """Return the figures of a `record`, of n things measured; `higher`: whether larger is better.

    The unit's first word is one of `SCALES` for times. `ratio`, above 1 where ours is better, is given where it is not
    that of the two.
    """
    if ratio is None:
        ratio = ours / peer if higher else peer / ours
    return {"ours": ours, "peer": peer, "ratio": ratio, "unit": unit, "n": n}


def timed(function: Callable[..., Any], *arguments: Any, clock: Clock = THREAD) -> tuple[Any, float]:
    """Call a function; return its result and its seconds."""
    start = clock.read()
    result = function(*arguments)
    return result, clock.read() - start


def seconds(function: Callable[..., Any], *arguments: Any, clock: Clock = THREAD) -> float:
    return timed(function, *arguments, clock=clock)[1]


def fit_seconds(learner: Any, X: Any, y: Any, look: Callable[[Any, float], None], clock: Clock = THREAD) -> float:
    """Return the seconds of a fit without those of `look`, which gets the learner and the seconds so far."""
    start, paused = clock.read(), 0.0

    def callback(fitted: Any) -> None:
        nonlocal paused
        now = clock.read()
        look(fitted, now - start - paused)
        paused += clock.read() - now

    learner.fit(X, y, callback=callback)
    return clock.read() - start - paused


def kept_in(file: Path, measure: Callable[[], Any]) -> Any:
    """Return the JSON value of `measure`, kept in a file, so that an interrupted benchmark resumes."""
    keep(file, lambda path: path.write_text(json.dumps(measure())))
    return json.loads(file.read_text())


def in_turns(*runs: Callable[[int], Any], rounds: int, clock: Clock = THREAD) -> np.ndarray:
    """Return the seconds of each run in each round, (rounds, runs); a run gets the number of the round.

    Runs alternate, so that a busy machine slows all of them. Round 0 compiles, touches all memory and is not counted.
    """
    return np.array([[seconds(run, k, clock=clock) for run in runs] for k in range(rounds + 1)])[1:]


def race(
    ours: Callable[[int], Any],
    peer: Callable[[int], Any],
    rounds: int,
    clock: Clock = THREAD,
    *,
    unit: str,
    things: int = 1,
    of: str = "",
    n: int | None = None,
    paired: bool = False,
) -> dict[str, Any]:
    """Run both in turns, as `in_turns` does; return the figures of a `record`: medians over the rounds.

    `unit` is of a thing, such as us per triplet, `things` is their number in a run, and `of` describes a run. `n` is
    the number of things measured, by default those of all rounds. The ratio is that of the medians, or with `paired`
    the median of those of the rounds.
    """
    times = in_turns(ours, peer, rounds=rounds, clock=clock)
    medians = SCALES[unit.split()[0]] * np.median(times, axis=0) / things
    measured = ", ".join(filter(None, (of, f"median of {rounds} in turns", clock.title)))
    ratio = float(np.median(times[:, 1] / times[:, 0])) if paired else None
    figures = compared(*medians.tolist(), unit, things * rounds if n is None else n, ratio=ratio)
    return figures | {"measured": measured}
