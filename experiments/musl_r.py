"""MuSL: how sharp the grouping is. r of equation 9, from today's to a thousand times that.

Babenko, Branson, Belongie, ICCV 2009, section 2.3: r is 500 divided by the number of training examples; here it is
divided by the (weighted) number of pairs, which are 600 to 1,100 times as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.statistics import plus_minus

from .measured.musl import NEIGHBORS, match, measure
from .pages import Panel, Results, draw, select

__all__ = ["ALONE", "facts", "jobs", "measure"]

ALONE = False
FACTORS = (1, 3, 10, 30, 100, 1000)
R = 500.0
TRIALS = 4
VOTERS = NEIGHBORS.index(10)
JOINT = {"midpoint": "running", "alpha": 0.5, "balanced": True}  # what validation chooses for joint grouping
ONE = {"midpoint": "running", "alpha": 2.0, "balanced": True}  # and for one metric


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        return []
    three = [{"system": "joint", "n_metrics": 3, "settings": JOINT | {"r": R * factor}} for factor in FACTORS]
    wanted = [job | {"trial": 0, "part": "evolution"} for job in three]
    some = [
        *three,
        *(job | {"n_metrics": 5} for job in three),
        {"system": "one metric", "n_metrics": 1, "settings": ONE},
    ]
    return wanted + [job | {"trial": trial} for job in some for trial in range(TRIALS)]


def facts(results: Results) -> dict[str, Any]:
    results = sorted(results, key=lambda one: one["trial"])
    trials = [one for one in results if "accuracy" in one]
    factors = sorted({round(one["settings"]["r"] / R) for one in trials if "r" in one["settings"]})
    of = {
        (k, factor): [one for one in trials if one["n_metrics"] == k and one["settings"].get("r") == R * factor]
        for k in (3, 5)
        for factor in factors
    }
    single = select(trials, system="one metric")
    figures = {
        key: {name: np.array([one[name][VOTERS] for one in own]) for name in ("accuracy", "novel", "all")}
        for key, own in of.items()
    }
    base = {name: np.array([one[name][VOTERS] for one in single]) for name in ("accuracy", "novel", "all")}
    sourced = {factor: [match(one["grouping"], one["sources"]) for one in of[3, factor]] for factor in factors}
    others = {
        factor: other_weight(one["pairs"])
        for factor in factors
        for one in select(results, part="evolution")
        if one["settings"]["r"] == R * factor
    }
    nearest = max(factors, key=lambda factor: np.mean(sourced[factor]))
    return {
        "n_trials": len(single),
        "n_categories": len(of[3, factors[0]][0]["sources"]),
        "factors": factors,
        "sourced": sourced,
        "nearest": nearest,
        "found": {
            factor: sum(n >= len(of[3, factor][0]["sources"]) - 2 for n in own) for factor, own in sourced.items()
        },
        "others": others,
        "sharp": [factor for factor, weight in others.items() if weight < 0.05],
        "five": figures[5, nearest]["accuracy"],
        "three_novel": figures[3, nearest]["novel"],
        "base": base,
        "rows": [
            [
                f"{factor:,}",
                f"{np.mean(sourced[factor]):.1f}",
                f"{others[factor]:.3f}",
                *(plus_minus(figures[3, factor][name], 1) for name in ("accuracy", "novel")),
                *(plus_minus(figures[5, factor][name] - base[name], 1) for name in ("accuracy",)),
                plus_minus(figures[3, factor]["novel"] - base["novel"], 1),
                plus_minus(figures[5, factor]["all"] - base["all"], 1),
            ]
            for factor in factors
        ],
        "sources_plot": draw(
            "musl_r",
            [
                Panel(
                    {"K = 3": (factors, np.transpose([sourced[factor] for factor in factors]))},
                    {"xscale": "log", "xlabel": "r, times today's", "ylabel": "categories with their source"},
                ),
                Panel(
                    {
                        f"K = {k}": (factors, np.transpose([figures[k, factor]["accuracy"] for factor in factors]))
                        for k in (3, 5)
                    },
                    {"xscale": "log", "xlabel": "r, times today's", "ylabel": "accuracy in %"},
                ),
            ],
        ),
    }


def other_weight(pairs: dict[str, dict[str, Any]]) -> float:
    """Largest weight in the last round that a pair has under another metric than that which it weighs most in."""
    return float(max(np.sort(pair["weights"][-1])[-2] for pair in pairs.values()))
