"""The figure of a study."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .measures import deviation_known, judge_coherence, mean_known, precision_curves, ranking_coherence
from .studies import Study


def draw_figure(study: Study, judges: Sequence[str], decisions: np.ndarray) -> Any:
    """Draw precision at k of each judge and their mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    curves = precision_curves(decisions[:, :, : study.k])
    by_query = mean_known(curves, axis=0)
    ks = np.arange(1, study.k + 1)
    figure = Figure(figsize=(15, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)

    n = (~np.isnan(by_query)).sum(axis=0)
    error = deviation_known(by_query, axis=0) / np.sqrt(np.maximum(n, 1))
    left.errorbar(
        ks, mean_known(by_query, axis=0), yerr=np.nan_to_num(error), marker="o", capsize=3, label=study.learner
    )
    chance = float(mean_known(decisions[:, :, study.k :].ravel(), axis=0))
    if not np.isnan(chance):
        left.axhline(chance, color="0.4", linestyle="--", label="random images")
    left.set(title="Precision, mean over judges and queries", xlabel="k", ylabel="precision at k", ylim=(0, 1.02))
    left.legend(loc="lower left")

    figures = mean_known(by_query, axis=1)
    judged = np.flatnonzero(~np.isnan(figures))
    order = judged[np.argsort(-figures[judged], kind="stable")]
    for i in range(min(5, len(order))):  # of 25 those at position 1, 6, 11, 16, 21
        query = order[i * len(order) // min(5, len(order))]
        several = (~np.isnan(curves[:, query])).sum(axis=0)
        error = deviation_known(curves[:, query], axis=0) / np.sqrt(np.maximum(several, 1))
        name = os.path.basename(study.tasks[query].query.path).encode("utf-8", "replace").decode()
        middle.errorbar(
            ks, by_query[query], yerr=np.nan_to_num(error), marker="osv^D"[i], capsize=3, label=_plain(name)
        )
    middle.set(title="Some queries, mean over judges", xlabel="k", ylabel="precision at k", ylim=(0, 1.02))
    middle.legend(loc="lower left", fontsize="small")

    of_learner, of_judges = ranking_coherence(decisions[:, :, : study.k]), judge_coherence(decisions)
    judged = np.flatnonzero(~np.isnan(of_learner))
    order = judged[np.argsort(of_learner[judged], kind="stable")]
    places = np.arange(1, len(order) + 1)
    for row in range(len(judges)):
        label = "each judge" if row == 0 else None
        right.plot(places, of_judges[row, order], ".", color="0.7", label=label)
    right.plot(places, mean_known(of_judges[:, order], axis=0), "s-", color="C1", label="judges, mean")
    right.plot(places, of_learner[order], "o-", color="C0", label=study.learner)
    right.set(title="Coherence with the other judges", xlabel="query, by precision", ylabel="precision", ylim=(0, 1.02))
    right.legend(loc="lower right")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _plain(name: str) -> str:
    """A file name that matplotlib shows as it is: no mathematics, no leading underscore, which hides a label."""
    short = name if len(name) <= 28 else f"{name[:25]}..."
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")
