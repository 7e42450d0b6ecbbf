"""Time of ``visterm --help``, beside an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from .processes import VISTERM
from .records import ELAPSED, compared, in_turns, record


def run(quick: bool = False) -> list[dict]:
    n = 5 if quick else 20
    commands = [VISTERM, "--help"], [sys.executable, "-c", "import sklearn"], [sys.executable, "-c", "pass"]
    runs = [lambda _, call=call: subprocess.run(call, check=True, stdout=subprocess.DEVNULL) for call in commands]
    ours, peer, bare = np.median(in_turns(*runs, rounds=n, clock=ELAPSED), axis=0)
    return [
        record(
            "startup",
            "visterm --help",
            "python -c 'import sklearn'",
            f"an interpreter that does nothing takes {bare:.3f} s",
            compared(ours, peer, "s", n),
            measured=f"median of {n}, elapsed time",
        )
    ]
