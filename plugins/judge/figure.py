"""The figure of a study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm.pipeline.report.charts import new_figure

from .measures import judge_coherence, nan_mean, precision_curves, ranking_coherence, standard_error
from .tasks import Study

_EXAMPLES = 5  # queries in the second chart: of 25 those at position 1, 6, 11, 16, 21 by precision


def draw_figure(study: Study, judges: Sequence[str], decisions: np.ndarray) -> Any:
    """Draw figure 3 of the paper, B to D, from decisions as of `measures`, ranked images first."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure((15, 4.6))
    left, middle, right = figure.subplots(1, 3)
    curves = precision_curves(decisions[:, :, : study.k])
    _draw_precision(left, study, curves, chance=float(nan_mean(decisions[:, :, study.k :])))
    _draw_queries(middle, study, curves)
    _draw_coherence(right, study, len(judges), decisions)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _draw_precision(axes: Any, study: Study, curves: np.ndarray, chance: float) -> None:
    _draw_curve(axes, nan_mean(curves, axis=0), marker="o", label=study.learner)
    if not np.isnan(chance):
        axes.axhline(chance, color="0.4", linestyle="--", label="random images")
    axes.set(title="Precision, mean over judges and queries", xlabel="k", ylabel="precision at k", ylim=(0, 1.02))
    axes.legend(loc="lower left")


def _draw_queries(axes: Any, study: Study, curves: np.ndarray) -> None:
    precisions = nan_mean(nan_mean(curves, axis=0), axis=1)
    judged = np.flatnonzero(~np.isnan(precisions))
    order = judged[np.argsort(-precisions[judged], kind="stable")]
    n = min(_EXAMPLES, len(order))
    for marker, query in zip("osv^D", (order[i * len(order) // n] for i in range(n)), strict=False):
        name = os.path.basename(study.tasks[query].query.path).encode("utf-8", "replace").decode()
        _draw_curve(axes, curves[:, query], marker=marker, label=_label(name))
    axes.set(title="Some queries, mean over judges", xlabel="k", ylabel="precision at k", ylim=(0, 1.02))
    axes.legend(loc="lower left", fontsize="small")


def _draw_curve(axes: Any, curves: np.ndarray, **style: Any) -> None:
    """The mean of some curves, with standard errors."""
    error = np.nan_to_num(standard_error(curves, axis=0))
    axes.errorbar(np.arange(1, curves.shape[1] + 1), nan_mean(curves, axis=0), yerr=error, capsize=3, **style)


def _draw_coherence(axes: Any, study: Study, n_judges: int, decisions: np.ndarray) -> None:
    of_learner, of_judges = ranking_coherence(decisions[:, :, : study.k]), judge_coherence(decisions)
    judged = np.flatnonzero(~np.isnan(of_learner))
    order = judged[np.argsort(of_learner[judged], kind="stable")]
    places = np.arange(1, len(order) + 1)
    for row in range(n_judges):
        label = "each judge" if row == 0 else None
        axes.plot(places, of_judges[row, order], ".", color="0.7", label=label)
    axes.plot(places, nan_mean(of_judges[:, order], axis=0), "s-", color="C1", label="judges, mean")
    axes.plot(places, of_learner[order], "o-", color="C0", label=study.learner)
    axes.set(title="Coherence with the other judges", xlabel="query, by precision", ylabel="precision", ylim=(0, 1.02))
    axes.legend(loc="lower right")


def _label(name: str) -> str:
    """A file name that matplotlib shows as it is: no mathematics, no leading underscore, which hides a label."""
    short = name if len(name) <= 28 else f"{name[:25]}..."
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")
