"""MuSL: a few metrics and the groups of categories that share them.

Babenko, Branson, Belongie: Similarity Metrics for Categorization: from Monolithic to Category Specific, ICCV 2009,
sections 3.2 to 3.4 and figures 3 to 8. ``python -m experiments musl``, or ``make reproduce ONLY=musl``.

Data: benchmarks/musl_data.py.
"""

from __future__ import annotations

from typing import Any

from .grids import ROUNDS
from .jobs import run_jobs
from .musl_page import page
from .musl_trials import (
    CALTECH,
    FEW_TRIALS,
    GRID,
    GRID_TRIALS,
    N_TRIALS,
    OTHERS,
    STARTS,
    TUNED,
    jobs_beyond,
    jobs_chosen,
    measure,
)

__all__ = ["ALONE", "SOURCES", "jobs", "measure", "page"]

ALONE = False
SOURCES: tuple[str, ...] = ("benchmarks/musl_data.py", "experiments/musl_trials.py")


def jobs_grid(quick: bool) -> list[dict[str, Any]]:
    """The grid that is tried first."""
    tried = GRID[5:6] if quick else GRID
    return [job for settings in tried for system in TUNED for job in jobs_tried(system, settings, quick)]


def jobs_tried(system: str, settings: dict[str, Any], quick: bool = False) -> list[dict[str, Any]]:
    common = {"system": system, "n_metrics": TUNED[system], "settings": settings, "validate": True}
    return [{"trial": t} | common for t in range(1 if quick else GRID_TRIALS)]


def jobs_grown(quick: bool) -> list[dict[str, Any]]:
    """The grid, and what is tried where the best alpha of a system lies at the edge."""
    grid = jobs_grid(quick)
    for _ in range(0 if quick else ROUNDS):
        results = run_jobs("musl", grid)
        more = [
            job
            for system, settings in jobs_chosen(results)[0].items()
            if system in TUNED and (alpha := jobs_beyond(results, system, settings)) is not None
            for job in jobs_tried(system, settings | {"alpha": alpha})
        ]
        if not more:
            break
        grid += more
    return grid


def jobs(quick: bool) -> list[dict[str, Any]]:
    grid = jobs_grown(quick)
    chosen, _ = jobs_chosen(run_jobs("musl", grid))
    if quick:  # trials by system and K: more of them for the groups of K = 3, which differ much and are soon learned
        n_trials = {("one metric", 1): 1, ("joint", 3): 2, ("joint", 5): 1}
        n_trials |= {("k-means", 3): 2, ("k-means", 5): 1, ("random", 5): 1}
    else:
        many = {"one metric": (1,), "joint": (3, 5), "k-means": (3, 5), "random": (5,)}
        few = {
            "joint": (2, 7, 10, 20),
            "joint, not re-trained": (5,),
            "k-means": (10,),
            "random": (3, 10),
            STARTS: (3,),
        }
        n_trials = {(system, k): N_TRIALS for system, metrics in many.items() for k in metrics}
        n_trials |= {(system, k): FEW_TRIALS for system, metrics in few.items() for k in metrics}
    runs = [(system, k, chosen[system], n) for (system, k), n in n_trials.items()]
    if not quick:
        runs += [
            (system, k, chosen["joint"], FEW_TRIALS) for system, k in TUNED.items() if chosen[system] != chosen["joint"]
        ]
        runs += [("joint", 3, settings, FEW_TRIALS) for settings in OTHERS if settings != chosen["joint"]]
    extra = [{"trial": 0, "system": "joint", "n_metrics": 3, "settings": chosen["joint"], "part": "evolution"}]
    caltech = {} if quick else CALTECH
    extra += [
        {"trial": t, "system": system, "n_metrics": k, "settings": chosen[system], "part": "caltech"}
        for system, metrics in caltech.items()
        for k in metrics
        for t in range(FEW_TRIALS)
    ]
    return (
        grid
        + extra
        + [
            {"trial": t, "system": system, "n_metrics": k, "settings": settings}
            for system, k, settings, n_trials in runs
            for t in range(n_trials)
        ]
    )
