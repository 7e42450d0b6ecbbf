"""MuSL: how sharp the grouping is. r of equation 9, from a third of today's to a thousand times that.

Babenko, Branson, Belongie, ICCV 2009, section 2.3: r is 500 divided by the number of training examples; here it is
divided by the (weighted) number of pairs, which are 600 to 1,100 times as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .measured.musl import NEIGHBORS, match, measure
from .pages import Panel, Results, draw, select
from .statistics import plus_minus

__all__ = ["facts", "jobs", "measure"]

R = 500.0
TRIALS = 20
# By K. Figures 3 and 4 have K = 3, for which a smaller r is tried, too, so that today's is not the smallest.
FACTORS = {3: (0.3, 1, 3, 10, 30, 100, 1000), 5: (1, 3, 10, 30, 100, 1000)}
VOTERS = NEIGHBORS.index(10)
JOINT = {"midpoint": "running", "alpha": 0.5, "balanced": True}  # what validation chooses for joint grouping
ONE = {"midpoint": "running", "alpha": 2.0, "balanced": True}  # and for one metric


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        return []
    joint = {
        k: [{"system": "joint", "n_metrics": k, "settings": settings_with(factor)} for factor in factors]
        for k, factors in FACTORS.items()
    }
    wanted = [job | {"trial": 0, "part": "evolution"} for job in joint[3]]
    wanted += [job | {"trial": trial} for own in joint.values() for job in own for trial in range(TRIALS)]
    single = {"system": "one metric", "n_metrics": 1, "settings": ONE}
    return wanted + [single | {"trial": trial} for trial in range(TRIALS)]


def settings_with(factor: float) -> dict[str, Any]:
    """Today's settings with so many times the r. Those with today's r are jobs of `musl`, too."""
    return JOINT if factor == 1 else JOINT | {"r": R * factor}


def facts(results: Results) -> dict[str, Any]:
    results = sorted(results, key=lambda one: one["trial"])
    trials = [one for one in results if "accuracy" in one]
    of = {
        (k, factor): [one for one in trials if one["n_metrics"] == k and one["settings"] == settings_with(factor)]
        for k, factors in FACTORS.items()
        for factor in factors
    }
    single = select(trials, system="one metric")
    figures = {
        key: {name: np.array([one[name][VOTERS] for one in own]) for name in ("accuracy", "novel", "all")}
        for key, own in of.items()
    }
    base = {name: np.array([one[name][VOTERS] for one in single]) for name in ("accuracy", "novel", "all")}
    factors = FACTORS[3]
    sourced = {factor: [match(one["grouping"], one["sources"]) for one in of[3, factor]] for factor in factors}
    others = {
        factor: other_weight(one["pairs"])
        for factor in factors
        for one in select(results, part="evolution")
        if one["settings"] == settings_with(factor)
    }
    nearest = max(factors, key=lambda factor: np.mean(sourced[factor]))
    edges = f"At the edge of the r tried: {nearest:,} times today's." if nearest in (factors[0], factors[-1]) else ""
    sharp = [factor for factor, weight in others.items() if weight < 0.05]

    def over_one(k: int, factor: float, name: str) -> np.ndarray:
        """Points above one metric, trial by trial."""
        return figures[k, factor][name] - base[name]

    five = max(nearest, FACTORS[5][0])

    return {
        "edges": edges,
        "n_categories": len(of[3, factors[0]][0]["sources"]),
        "sourced": sourced,
        "nearest": nearest,
        "found": {
            factor: sum(n >= len(of[3, factor][0]["sources"]) - 2 for n in own) for factor, own in sourced.items()
        },
        "others": others,
        "sharp": sharp,
        "five": over_one(5, five, "accuracy"),
        "five_at": five,
        "three_novel": over_one(3, nearest, "novel"),
        "rows": [
            [
                f"{factor:,}",
                f"{np.mean(sourced[factor]):.1f}",
                f"{others[factor]:.3f}",
                *(plus_minus(figures[3, factor][name], 1) for name in ("accuracy", "novel")),
                *(
                    plus_minus(over_one(*what), 1) if what[1] in FACTORS[what[0]] else "–"
                    for what in ((5, factor, "accuracy"), (3, factor, "novel"), (5, factor, "all"))
                ),
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
                        f"K = {k}": (own, np.transpose([figures[k, factor]["accuracy"] for factor in own]))
                        for k, own in FACTORS.items()
                    },
                    {"xscale": "log", "xlabel": "r, times today's", "ylabel": "accuracy in %"},
                ),
            ],
        ),
    }


def other_weight(pairs: dict[str, dict[str, Any]]) -> float:
    """Largest weight in the last round that a pair has under another metric than that which it weighs most in."""
    return float(max(np.sort(pair["weights"][-1])[-2] for pair in pairs.values()))
