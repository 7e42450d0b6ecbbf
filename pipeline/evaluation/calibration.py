"""How sure a score is: the probability that two images share a label, by isotonic regression on held-out pairs.

A score has no scale of its own. Test images, which nothing was trained on, are scored against each other, and the share
of pairs with a common label is fitted as a function of the score that never falls (Zadrozny and Elkan, KDD 2002). It
holds for a single query image, and for the weight of the learned similarity that training chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.versions import LearnerVersions

from .held_out import TEST_IMAGES, HeldOutSet, NoHeldOutSet, draw_held_out

if TYPE_CHECKING:
    import numpy as np

_PRIOR_PAIRS = 5  # of the base rate, that each step of the function is averaged with
NO_CALIBRATION = {"reason": "no labelled images were held out"}
FEWEST_QUERIES = 10  # held-out images that have another one of their label


class Calibration(NamedTuple):
    """Probabilities by score: between the scores that are listed, straight lines."""

    scores: list[float]  # ascending
    probabilities: list[float]
    base_rate: float  # share of all held-out pairs that have a common label
    n_pairs: int
    neighbours: bool = False  # whether the scores are of rankings by neighbours

    def of(self, scores: Any) -> np.ndarray:
        """Probabilities of some scores, float64, to four places."""
        import numpy as np

        return np.interp(scores, self.scores, self.probabilities).round(4)


def calibrate(held_out: HeldOutSet, scores: np.ndarray, neighbours: bool = False) -> dict[str, Any]:
    """Fit a calibration to the scores of held-out images, float32 (n_queries, n); see `HeldOutSet.ranking_scores`."""
    import numpy as np
    from sklearn.isotonic import IsotonicRegression

    if held_out.what != TEST_IMAGES:
        return dict(NO_CALIBRATION)
    others = np.arange(held_out.X.shape[0]) != held_out.own[:, None]
    relevant, n_queries = held_out.relevant[others], int(((held_out.relevant & others).any(axis=1)).sum())
    if n_queries < FEWEST_QUERIES:
        return {"reason": f"{n_queries} held-out images have another one of their label; {FEWEST_QUERIES} are needed"}
    # As sure as the pairs at hand allow, and no surer: the least and the largest, and where a step of the function
    # stands on few pairs.
    least, most = 1 / (np.count_nonzero(~relevant) + 2), 1 - 1 / (np.count_nonzero(relevant) + 2)
    isotonic, known = IsotonicRegression(y_min=least, y_max=max(least, most)), scores[others].astype(np.float64)
    _, step, n_of_step = np.unique(isotonic.fit_transform(known, relevant), return_inverse=True, return_counts=True)
    n_relevant = np.bincount(step, relevant)
    shares = (n_relevant + _PRIOR_PAIRS * relevant.mean()) / (n_of_step + _PRIOR_PAIRS)
    fitted = isotonic.fit(known, shares[step])
    return {
        "scores": [float(f"{value:.7g}") for value in fitted.X_thresholds_],
        "probabilities": [float(f"{value:.4g}") for value in fitted.y_thresholds_],
        "base_rate": float(f"{relevant.mean():.4g}"),
        "n_pairs": len(relevant),
        "neighbours": neighbours,
    }


def measure_calibration(run: OpenedRun, learner: str, model: Any) -> Any:
    """Return the calibration of a trained learner for its record: what `Calibration` lists, or the ``reason``."""
    if model.by_category:
        return {"reason": f"{learner} compares images by their labels"}
    try:
        held_out = draw_held_out(run, learner, run.catalogue, run.images(), set(), decides=False)
    except NoHeldOutSet:
        return dict(NO_CALIBRATION)
    return calibrate(held_out, *held_out.ranking_scores(model, run.config))


def calibration_in_force(run: Run, learner: str) -> Calibration | str:
    """Return the calibration of the version of a learner that is in force, or why there is none."""
    if learner == "cosine":
        return "cosine is not trained; use a trained learner"
    return read_calibration(LearnerVersions(run).record_in_force(learner))


def read_calibration(record: Mapping[str, Any]) -> Calibration | str:
    """Return the calibration in the record of a learner or a version, or why there is none."""
    kept = record.get("calibration", NO_CALIBRATION)
    return kept["reason"] if "reason" in kept else Calibration(**kept)
