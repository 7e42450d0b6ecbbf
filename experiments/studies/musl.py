"""Quality of MuSL for docs/benchmarks.md.

Accuracy and groups of the first ten trials of experiments/musl.py, with the settings that it chooses for each system on
images that no trial tests with. Jobs that the experiment has already run are not run again; ``--quick`` takes one trial
and fewer settings. ``python -m benchmarks musl`` measures time and memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.records import compared, record
from experiments.jobs import run_jobs
from experiments.measured.musl import STARTS
from experiments.musl import choose, collect, grown_grid, measure


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Records: five metrics against other groupings, and whether three groups are the three sources."""
    grid = run_jobs(measure, grown_grid(quick))
    settings, voters = choose(grid)
    asked = [("one metric", 1), *((system, k) for k in (5, 3) for system in ("joint", "k-means")), ("random", 5)]
    n_trials = 1 if quick else 10
    trials = [
        {"trial": trial, "system": system, "n_metrics": k, "settings": settings[system]}
        for system, k in [*asked, (STARTS, 3)]
        for trial in range(n_trials)
    ]
    figures = collect(run_jobs(measure, trials), settings, voters)

    def against(name: str, what: str, ours: float, peer: float, peer_name: str, unit: str, limit: str, **more: Any):
        values = compared(ours, peer, unit, n_trials, ratio=float(ours / max(peer, 1)))
        return record(name, what, peer_name, limit, values, measured=f"{n_trials} trials", **more)

    ours = float(np.mean(figures["joint", 5]["accuracy"]))
    records = []
    for name, system, k in (("k1", "one metric", 1), ("kmeans", "k-means", 5), ("random", "random", 5)):
        peer = float(np.mean(figures[system, k]["accuracy"]))
        what = "accuracy of 5 metrics with joint grouping, merged-20"
        title = "one metric" if k == 1 else f"{system} grouping, 5 metrics"
        unit = f"% right, {voters}-NN"
        records.append(against(f"musl-k5-{name}", what, ours, peer, title, unit, "100", points=ours - peer))
    best, one, means = (np.array(figures[system, 3]["sourced"]) for system in (STARTS, "joint", "k-means"))
    what = "trials whose 3 groups are the 3 sources but for at most 2 of 20 categories, best of 5 starts"
    right, of_means = int((best >= 18).sum()), int((means >= 18).sum())
    more = {"exactly": int((best == 20).sum()), "one_start": int((one >= 18).sum())}
    limit = f"all {n_trials} trials"
    return [
        *records,
        against("musl-k3-sources", what, right, of_means, "k-means grouping", "trials", limit, **more),
    ]
