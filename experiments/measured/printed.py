"""What papers print, taken literally: how long W is projected, the leaf of approximate k-NN, MuSL as printed."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from visterm.learners import OASIS
from visterm.learners.metric import positive_part

from . import musl, words
from .protocol import ONE_PAIR, figures, load_fold

C = 0.1
AXIS = 250_000  # steps of the paper's figure
LOOK = 10_000
STEPS = range(LOOK, AXIS + 1, LOOK)
N_INNER = 3


class ProjectedOASIS(OASIS):
    """OASIS that is measured by the positive semi-definite part of W, and learns on from W as it is."""

    _projected: tuple[int, np.ndarray] | None = None  # the number of steps, and W then

    def _matrix(self) -> np.ndarray:
        if self._projected is None or self._projected[0] != self.n_steps_:
            root = positive_part((self.W_ + self.W_.T) / 2)
            self._projected = self.n_steps_, np.ascontiguousarray(root @ root.T)
        return self._projected[1]


def measure(part: str, **parameters: Any) -> dict[str, Any]:
    if part == "psd":
        return measure_psd(**parameters)
    return words.measure_on_words("k-NN, exact", None, False) if part == "leaf" else musl.measure(**parameters)


def measure_psd(schedule: str, fold: int) -> dict[str, Any]:
    """Test mAP along the steps of a schedule of projections, and where cross-validation stops it.

    What is validated is what is measured: of "after" the projected W. The best step of the mean validation curve is
    taken, not the fewest steps of about the same figure, since schedules differ by less than that rule allows.
    """
    X, y, test_X, test_y = load_fold(20, 1000, fold)
    settings: dict[str, Any] = {"C": C, "n_steps": AXIS, "pass_steps": LOOK, "random_state": fold} | ONE_PAIR
    if schedule.startswith("every"):
        every = int(schedule.split()[1])
        learner = OASIS(variant="psd", psd_every=every, **settings | {"pass_steps": min(every, LOOK)})
    else:
        learner = (ProjectedOASIS if schedule == "after" else OASIS)(**settings)
    curve: list[float] = []

    def look(learned: OASIS) -> None:
        if learned.n_steps_ in STEPS:
            curve.append(figures(learned, test_X, test_y)["map"])

    checks: dict[int, list[float]] = {}
    for _, held_out in StratifiedKFold(N_INNER, shuffle=True, random_state=0).split(X, y):
        searching = clone(learner).set_params(patience=None, refit=False)
        for check in searching.fit(X, y, validation_rows=held_out).history_:
            if check["validation"] is not None and check["step"] in STEPS:
                checks.setdefault(check["step"], []).append(check["validation"])
    clone(learner).fit(X, y, callback=look)
    best = max(checks, key=lambda step: np.mean(checks[step]))
    return {"curve": curve, "n_steps": best, "stopped": curve[STEPS.index(best)]}
