"""The plot of a tuning: what was tried, and how each setting matters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visterm.features import printable
from visterm.pipeline.report.charts import new_figure

_COLORS = {"complete": "#0b5cad", "stopped": "#9aa0a6", "unfinished": "#9aa0a6"}
_COLUMNS = 4


def write_tuning_plot(file: Path, learner: str, result: Mapping[str, Any]) -> None:
    """Draw every trial in the order of trying, and its figure against the values of each setting that varies.

    ``result`` is that of the record of a tuning. Trials that halving stopped, measured on fewer folds, are grey.
    """
    from matplotlib.ticker import MaxNLocator

    trials = [trial for trial in result["trials"] if trial["score"] is not None]
    keys = [key for key in trials[0]["settings"] if len({json.dumps(t["settings"][key]) for t in trials}) > 1]
    n_rows = 1 + -(-len(keys) // _COLUMNS)
    figure = new_figure((11, 3 + 2.4 * (n_rows - 1)))
    grid = figure.add_gridspec(n_rows, _COLUMNS)
    top = figure.add_subplot(grid[0, :])
    best = next(trial for trial in trials if trial["number"] == result["best_trial"])
    measure, n_folds = result["measure"], result["n_folds"]

    for state, label in (("complete", f"all {n_folds} folds"), ("stopped", "stopped after fewer")):
        some = [trial for trial in trials if (trial["state"] == "complete") == (state == "complete")]
        if some:
            xs, ys = [trial["number"] for trial in some], [trial["score"] for trial in some]
            top.plot(xs, ys, "o", color=_COLORS[state], markersize=5, label=label)
    top.axhline(result["own_score"], color="#a84300", linestyle="--", linewidth=1, label="settings at the start")
    top.plot(best["number"], best["score"], "*", color="#c2185b", markersize=14, label="chosen")
    top.set(xlabel="trial", ylabel=measure)
    top.set_title(printable(f"{learner}: {measure} on held-out training images"), loc="left")
    top.xaxis.set_major_locator(MaxNLocator(integer=True))
    top.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

    low, high = top.get_ylim()
    for place, key in enumerate(keys):
        axes = figure.add_subplot(grid[1 + place // _COLUMNS, place % _COLUMNS])
        values = _in_order([trial["settings"][key] for trial in trials])
        for trial in trials:
            # Trials of one value side by side, in order, so that none hides another.
            shift = 0.5 * (trial["number"] / max(1, trials[-1]["number"]) - 0.5)
            x = values.index(_text(trial["settings"][key])) + shift
            axes.plot(x, trial["score"], "o", color=_COLORS[trial["state"]], markersize=4)
            if trial is best:
                axes.plot(x, trial["score"], "*", color="#c2185b", markersize=12)
        axes.axhline(result["own_score"], color="#a84300", linestyle="--", linewidth=1)
        axes.set_xticks(range(len(values)), values)
        axes.set(title=key.rpartition(".")[2], xlim=(-0.5, len(values) - 0.5), ylim=(low, high))
        axes.title.set_fontsize(10)
    for axes in figure.axes:
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Software": None})


def _in_order(values: list[Any]) -> list[str]:
    """Return the texts of distinct values: numbers by size, then the others."""
    distinct = {_text(value): value for value in values}
    number = {text: isinstance(v, int | float) and not isinstance(v, bool) for text, v in distinct.items()}
    return sorted(distinct, key=lambda text: (not number[text], distinct[text] if number[text] else 0, text))


def _text(value: Any) -> str:
    """Return a value as in a configuration file."""
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)
