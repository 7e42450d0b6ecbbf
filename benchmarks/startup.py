"""Time of ``visterm --help``, beside an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median


def _seconds(command: list[str], n: int) -> float:
    times = []
    for _ in range(n + 1):  # the first one fills the caches of the file system
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return median(times[1:])


def run(quick: bool = False) -> list[dict]:
    n = 5 if quick else 20
    ours = _seconds([str(Path(sys.executable).with_name("visterm")), "--help"], n)
    peer = _seconds([sys.executable, "-c", "import sklearn"], n)
    bare = _seconds([sys.executable, "-c", "pass"], n)
    return [
        {
            "name": "startup",
            "what": "visterm --help",
            "ours": ours,
            "peer": peer,
            "peer_name": "python -c 'import sklearn'",
            "ratio": peer / ours,
            "limit": f"an interpreter that does nothing takes {bare:.3f} s",
            "unit": "s",
            "n": n,
            "measured": f"median of {n}, elapsed time",
            "command": "python -m benchmarks startup",
        }
    ]
