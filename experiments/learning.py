"""mAP against steps, sensitivity to C and r, and AROMA's lead at the top of the list.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, figure 5; Crammer, Chechik, ICML 2012, figure 3.

    make reproduce ONLY=learning
"""

from __future__ import annotations

from typing import Any

from .learning_page import page
from .learning_systems import (
    BOTH_STARTS,
    C_TRIED,
    DRAWN,
    EUCLIDEAN,
    EVIDENCE,
    FEW_FOLDS,
    LARGE_C,
    LARGE_C_FROM_ZERO,
    LARGE_R_FACTORED,
    MORE_STEPS,
    PAPER_AROMA,
    PAPER_OASIS,
    SETTINGS,
    STEPS,
    UNIT,
    UNLIMITED,
    WIDE,
    measure,
    tried_of,
)
from .protocol import N_FOLDS

__all__ = ["ALONE", "SOURCES", "jobs", "measure", "page"]

ALONE = False
SOURCES: tuple[str, ...] = ("experiments/learning_systems.py",)


def jobs(quick: bool) -> list[dict[str, Any]]:
    n_folds, most = (1, STEPS) if quick else (N_FOLDS, 500_000)
    found: list[dict[str, Any]] = []

    def job(systems: list, n_steps: int, *, classes: int = 38, setting: str = UNIT, along: bool = False) -> None:
        for learner, parameters in systems:
            what = {"learner": learner, "parameters": parameters, "n_steps": n_steps, "classes": classes}
            what |= {"setting": setting, "along": along}
            # Other vectors, more steps, and values of C and r that are tried for their effect alone, stand beside the
            # papers' own.
            own = along or (learner, parameters) in [EUCLIDEAN, *DRAWN, *EVIDENCE, LARGE_R_FACTORED]
            few = setting != UNIT or n_steps == MORE_STEPS or not own
            found.extend(what | {"fold": fold} for fold in range(min(n_folds, FEW_FOLDS) if few else n_folds))

    job(DRAWN, most, along=True)
    for classes in (10,) if quick else (20, 10):
        job([PAPER_OASIS], most, classes=classes, along=True)
        job([EUCLIDEAN], STEPS, classes=classes)
    tried = [system for name in ("OASIS", "AROMA diagonal", "AROMA factored") for system in tried_of(name)]
    if quick:  # the values of r are those of other systems here
        tried = [("OASIS", {"C": C}) for C in (C_TRIED[2], C_TRIED[-1])]
    job([EUCLIDEAN, *(system for system in [*tried, *EVIDENCE] if system not in DRAWN)], STEPS)
    if not quick:
        job([PAPER_OASIS, PAPER_AROMA, UNLIMITED], MORE_STEPS)
        job([EUCLIDEAN, *BOTH_STARTS, LARGE_C, LARGE_C_FROM_ZERO], STEPS, setting=WIDE)
        job([PAPER_OASIS], MORE_STEPS, setting=WIDE)
        for setting in SETTINGS:
            if setting != UNIT:
                job([EUCLIDEAN, *BOTH_STARTS], STEPS, setting=setting)
    return found
