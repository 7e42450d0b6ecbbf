"""What the OASIS paper says in a sentence, without a figure of its own.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010: LEGO is not sensitive to eta (section 5.3.2), LMNN overfits (5.3.3),
OASIS is twice as fast as Dissim-OASIS (6.1), and its mistakes are bounded (theorem 1).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .measured.details import ETAS, measure
from .measured.protocol import N_FOLDS
from .pages import Results, select
from .retrieval import has_peers
from .statistics import plus_minus

__all__ = ["facts", "jobs", "measure", "runs_alone"]

PEER_FOLDS = 10


def runs_alone(job: dict[str, Any]) -> bool:
    """Whether it measures time, so that no other job runs beside it."""
    return job["part"] == "dissim"


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        return []
    wanted: list[dict[str, Any]] = [{"part": "dissim", "variant": variant} for variant in (None, "dissim")]
    wanted += [{"part": "eta", "eta": eta} for eta in ETAS]
    wanted += [{"part": "theorem"}]
    of_folds = [job | {"fold": fold} for job in wanted for fold in range(N_FOLDS)]
    systems = ("Euclidean", "OASIS", "LMNN") if has_peers() else ()
    return of_folds + [{"part": "fit", "system": name, "fold": fold} for name in systems for fold in range(PEER_FOLDS)]


def facts(results: Results) -> dict[str, Any]:
    results = sorted(results, key=lambda one: one["fold"])
    of_eta = {eta: select(results, part="eta", eta=eta) for eta in ETAS}
    maps = np.array([[one["map"] for one in own] for own in of_eta.values()])  # (etas, folds)
    times = {v: [one["step_us"] for one in select(results, part="dissim", variant=v)] for v in (None, "dissim")}
    failed = [one for one in select(results, part="fit") if "failed" in one]
    fits = {} if failed else fits_of(results)
    return {
        "eta": {
            "over_etas": float(maps.std(axis=0, ddof=1).mean()),
            "over_folds": float(maps.std(axis=1, ddof=1).mean()),
            "rows": [
                [eta, plus_minus([one["map"] for one in own], 4), ", ".join(f"{one['map']:.3f}" for one in own)]
                for eta, own in of_eta.items()
            ],
        },
        "times": times,
        "twice": [2 * us for us in times[None]],
        "ratios": np.divide(times["dissim"], times[None]),
        "ratio": float(np.mean(times["dissim"]) / np.mean(times[None])),
        "violating": {v: [one["violating"] for one in select(results, part="dissim", variant=v)] for v in times},
        "failed": failed,
        "fits": fits,
        "fit_rows": [[name, plus_minus(own["train"]), plus_minus(own["test"])] for name, own in fits.items()],
        "mistakes": (mistakes := select(results, part="theorem")),
        "bounded": all(one["mistakes"] <= min(one["identity"], one["learned"]) for one in mistakes),
    }


def fits_of(results: Results) -> dict[str, dict[str, np.ndarray]]:
    """mAP among training and among test images, fold by fold, by system and weight of its push term."""
    fits: dict[str, dict[str, list[float]]] = {}
    for one in select(results, part="fit"):
        for push, figures in one["fits"].items():
            own = fits.setdefault(f"{one['system']}{', push ' * bool(push)}{push}", {"train": [], "test": []})
            for key, figure in figures.items():
                own[key].append(figure)
    return {name: {key: np.array(some) for key, some in own.items()} for name, own in fits.items()}
