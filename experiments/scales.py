"""Row norms: AROMA's r and OASIS's C at the papers' values, on longer and shorter rows.

Crammer, Chechik, ICML 2012, section 5.1: precision at 1 of 0.33 against 0.22, with r = 0.01. The paper does not say how
long its rows are. From zero, rows s times as long with r are unit rows with r / s^4, and with C unit rows with C s^4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.statistics import clearly_above, plus_minus, ratio_text

from .measured.scales import measure
from .pages import Panel, Results, draw, select

__all__ = ["ALONE", "facts", "jobs", "measure"]

ALONE = False
# Row norms by number of visterms, and folds: a W of 10,000 x 10,000 takes many times as long.
SCALES = {10_000: (0.1, 0.3, 1.0), 1000: (0.03, 0.1, 0.3, 1.0, 3.0)}
FOLDS = {10_000: 3, 1000: 10}
AMONG = {"test": "test images", "training": "training images", "all": "all together"}


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        return []
    wanted = [
        {"system": system, "d": d, "scale": scale}
        for d, scales in SCALES.items()
        for system in ("AROMA", "OASIS")
        for scale in scales
    ]
    wanted += [{"system": "Euclidean", "d": d, "scale": 1.0} for d in SCALES]
    return [job | {"fold": fold} for job in wanted for fold in range(FOLDS[job["d"]])]


def facts(results: Results) -> dict[str, Any]:
    results = sorted(results, key=lambda one: one["fold"])
    places = sorted({(one["d"], one["scale"]) for one in results if one["system"] == "AROMA"})
    p1 = {
        (d, scale, among, system): np.array(
            [one[among] for one in select(results, system=system, d=d, scale=scale)], float
        )
        for d, scale in places
        for among in AMONG
        for system in ("AROMA", "OASIS")
    }
    euclidean = {d: [one["test"] for one in select(results, system="Euclidean", d=d)] for d, _ in places}
    pairs = {place: (p1[*place, "test", "AROMA"], p1[*place, "test", "OASIS"]) for place in places}
    best = max(pairs, key=lambda place: pairs[place][0].mean() / pairs[place][1].mean())
    highest = {system: max(p1[*place, "test", system].mean() for place in places) for system in ("AROMA", "OASIS")}
    return {
        "folds": [(d, len(euclidean[d]) or 1) for d in dict(places)],
        "best": best,
        "best_pair": pairs[best],
        "highest": highest,
        "leads": clearly_above(*pairs[best]) and pairs[best][0].mean() >= 1.25 * pairs[best][1].mean(),
        "rows": [
            [
                f"{d:,}",
                f"{scale:g}",
                *(plus_minus(p1[d, scale, "test", system]) for system in ("AROMA", "OASIS")),
                *(ratio_text(p1[d, scale, among, "AROMA"], p1[d, scale, among, "OASIS"]) for among in AMONG),
            ]
            for d, scale in places
        ],
        "euclidean_text": "; ".join(f"{plus_minus(own)} at d = {d:,}" for d, own in euclidean.items() if own),
        "scales_plot": draw(
            "scales",
            [
                Panel(
                    {
                        f"{system}, d = {d:,}": (
                            own := [scale for at, scale in places if at == d],
                            np.transpose([p1[d, scale, "test", system] for scale in own]),
                        )
                        for d in sorted({d for d, _ in places})
                        for system in ("AROMA", "OASIS")
                    },
                    {"xscale": "log", "xlabel": "norm of the rows", "ylabel": "precision at 1, test images"},
                )
            ],
        ),
    }
