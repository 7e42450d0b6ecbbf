"""What papers print, taken literally, where other pages choose: projections, a leaf of k-NN, MuSL.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 6.2 and figure 9; Weston, Bengio, Usunier, ECML 2010, section
6.4; Babenko, Branson, Belongie, ICCV 2009, sections 2 and 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .measured.musl import NEIGHBORS
from .measured.printed import STEPS, measure
from .measured.words import PAPER_LEAF
from .pages import Panel, Results, draw, select
from .statistics import clearly_above, plus_minus

__all__ = ["facts", "jobs", "measure"]

FOLDS = 10
SCHEDULES = {
    "never": "never",
    "after": "after",
    "every 50000": "every 50,000 steps",
    "every 5000": "every 5,000 steps",
}
TRIALS = 3
PRINTED = {"midpoint": "final", "alpha": 0.1, "balanced": False}  # T / 2, and alpha of section 3.1
PER_EXAMPLE = 29 + 570  # pairs per training example of merged-20
# r is 500 divided by "the number of examples": of pairs, as the default has it, or of images.
SHARPNESS = {"pairs": 500.0, "images": 500.0 * PER_EXAMPLE}
METRICS = (3, 5, 20)
VOTERS = NEIGHBORS.index(10)
PER_TRIAL, PER_POST = 20 / 30, 20 / 80  # test images per training image, of MuSL; test posts per post


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        return []
    wanted = [{"part": "psd", "schedule": s, "fold": fold} for s in reversed(SCHEDULES) for fold in range(FOLDS)]
    of_musl = [("joint", k, PRINTED | {"r": r}) for r in SHARPNESS.values() for k in METRICS]
    of_musl.append(("one metric", 1, PRINTED))
    wanted += [
        {"part": "musl", "system": system, "n_metrics": k, "settings": settings, "trial": trial}
        for system, k, settings in of_musl
        for trial in range(TRIALS)
    ]
    return [{"part": "leaf"}, *wanted]


def facts(results: Results) -> dict[str, Any]:
    of_psd = {name: select(results, part="psd", schedule=schedule) for schedule, name in SCHEDULES.items()}
    curves = {name: np.array([one["curve"] for one in own]) for name, own in of_psd.items()}
    stopped = {name: np.array([one["stopped"] for one in own]) for name, own in of_psd.items()}
    last = {name: own[:, -1] for name, own in curves.items()}
    meanwhile = [name for name in curves if name.startswith("every")]
    (leaf,) = (one["systems"] for one in select(results, part="leaf"))
    exact, tree = (np.array([one["precision"][0] for one in leaf[name]]) for name in ("k-NN, exact", PAPER_LEAF))
    metrics = {(k, of): select_musl(results, k, PRINTED | {"r": r}) for of, r in SHARPNESS.items() for k in METRICS}
    metrics |= {(1, of): select_musl(results, 1, PRINTED) for of in SHARPNESS}
    accuracies = {key: np.array([one["accuracy"][VOTERS] for one in own]) for key, own in metrics.items()}
    return {
        "n_folds": len(stopped["after"]),
        "n_trials": len(accuracies[1, "images"]),
        "stopped": stopped,
        "last": last,
        "meanwhile": meanwhile,
        "after_pairs": [(stopped["after"], stopped[name]) for name in meanwhile],
        "last_pairs": [(last["after"], last[name]) for name in meanwhile],
        "exact": exact,
        "tree": tree,
        "settings": leaf[PAPER_LEAF][0]["settings"],
        "musl_pairs": [(accuracies[5, of], accuracies[1, of]) for of in SHARPNESS],
        "psd_rows": [
            [
                name,
                plus_minus(stopped[name], 4),
                ", ".join(f"{one['n_steps'] // 1000}" for one in of_psd[name]),
                f"{own.mean(axis=0).max():.4f} after {STEPS[own.mean(axis=0).argmax()]:,}",
                plus_minus(last[name], 4),
            ]
            for name, own in curves.items()
        ],
        "musl_rows": [
            [
                "" if k == 1 else of,
                k,
                plus_minus(accuracies[k, of], 1),
                ", ".join(str(len(set(one["grouping"]))) for one in metrics[k, of]),
            ]
            for of in SHARPNESS
            for k in (1, *METRICS)
            if k > 1 or of == "images"
        ],
        "psd_plot": draw(
            "printed-psd",
            [
                Panel(
                    {name: (np.array(STEPS) / 1000, own) for name, own in curves.items()},
                    {"xlabel": "steps (thousands)", "ylabel": "mAP, test images"},
                )
            ],
            title="projected",
        ),
        "all_clear": lambda pairs: all(clearly_above(*pair) for pair in pairs),
    }


def select_musl(results: Results, k: int, settings: dict[str, Any]) -> Results:
    own = [one for one in select(results, part="musl", n_metrics=k) if one["settings"] == settings]
    return sorted(own, key=lambda one: one["trial"])
