"""The charts of a report: precision at k, training history, classes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .data import History, ReportData, System
from .text import printable_text, short

CLASSES_SHOWN = 60


def write_precision_curve(path: Path, data: ReportData) -> None:
    """Draw precision at k of every system into a PNG file.

    Parameters
    ----------
    path : Path
    data : ReportData
        Systems without ``precision_curve`` are left out.
    """
    # Imported here: it costs more than the rest of a report, and every command imports this module.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    longest = 1
    for system in data.systems:
        look = look_of(system, data)
        ks = range(1, len(system.precision_curve) + 1)
        longest = max(longest, len(ks))
        axes.plot(
            ks,
            system.precision_curve,
            color=look["color"],
            linestyle=look["linestyle"],
            marker=look["matplotlib_marker"],
            markevery=max(1, len(ks) // 10),
            label=f"{system.name} (mAP {system.map:.3f})",
        )
    axes.set(xlabel="k", ylabel="precision at k", title=printable_text(data.title))
    axes.set_ylim(bottom=0)
    axes.set_xlim(1, max(longest, 2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if data.systems:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, metadata={"Software": None})


# Charts: geometry here, drawing in the template. Lengths are in units of the SVG's view box.
WIDTH, HEIGHT = 460, 300
WIDE, HIGH = 760, 400  # of a chart with more than a few lines
LEFT, RIGHT, TOP, BOTTOM = 48, 96, 12, 46  # room for the axes' numbers and, at the right, the lines' names
# Colours of the learners after the first: legible on white, and told apart by dash and marker as well. The page has
# them again, with their counterparts for dark screens.
OTHERS = (
    ("#7a3e9d", "9 3 2 3", "^"),
    ("#0a7a5a", "12 4", "D"),
    ("#c2185b", "5 3", "v"),
    ("#6b6400", "9 3 2 3 2 3", "P"),
    ("#00748a", "3 3", "X"),
    ("#b3261e", "14 3 3 3", ">"),
    ("#4338ca", "7 3 7 3 2 3", "<"),
    ("#7a4a2b", "1 3", "d"),
)


def look_of(system: System, data: ReportData) -> dict[str, Any]:
    """How a system is drawn everywhere: by dash and marker as well as by colour."""
    if system.name == data.baseline:
        css, color, dash, marker = "baseline", "#a84300", "7 4", "s"
    elif system.name == "chance":
        css, color, dash, marker = "chance", "#5c6066", "2 4", ""
    elif system is data.systems[0]:
        css, color, dash, marker = "learner", "#0b5cad", "", "o"
    else:
        place = data.learners.index(system) - 1
        css, (color, dash, marker) = f"other{place % len(OTHERS)}", OTHERS[place % len(OTHERS)]
    return {
        "css": css,
        "color": color,
        "dash": dash,
        "linestyle": (0, [float(part) / 2 for part in dash.split()]) if dash else "-",
        "marker": marker,
        "matplotlib_marker": marker or None,
    }


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from low to high, ``wanted`` of them or a few less."""
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= wanted)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class _Axes:
    """From values to places in the view box."""

    x_low: float
    x_high: float
    y_high: float
    width: int = WIDTH
    height: int = HEIGHT

    def x(self, value: float) -> float:
        span = max(self.x_high - self.x_low, 1e-9)
        return round(LEFT + (self.width - LEFT - RIGHT) * (value - self.x_low) / span, 1)

    def y(self, value: float) -> float:
        return round(self.height - BOTTOM - (self.height - TOP - BOTTOM) * value / self.y_high, 1)

    def frame(self, x_ticks: Sequence[float], x_title: str) -> dict[str, Any]:
        return {
            "width": self.width,
            "height": self.height,
            "left": LEFT,
            "right": self.width - RIGHT,
            "top": TOP,
            "bottom": self.height - BOTTOM,
            "x_ticks": [(self.x(tick), short(tick)) for tick in x_ticks],
            "y_ticks": [(self.y(tick), f"{tick:g}") for tick in _ticks(0, self.y_high)],
            "x_title": x_title,
            "chosen": None,
        }


def _line(axes: _Axes, xs: Sequence[float], ys: Sequence[float], look: dict[str, Any], name: str) -> dict[str, Any]:
    points = [(axes.x(x), axes.y(y)) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
    every = max(1, len(points) // 8)
    return {
        "name": name,
        "look": look,
        "points": " ".join(f"{x},{y}" for x, y in points),
        "markers": points[::every] if look["marker"] else [],
        "end": points[-1],
        "label_y": points[-1][1],
    }


def _spread_labels(lines: list[dict[str, Any]], axes: _Axes, gap: float = 17) -> None:
    """Move the names of lines that end close together apart, and keep them inside the frame."""
    lowest = axes.height - BOTTOM
    gap = min(gap, (lowest - TOP) / max(1, len(lines)))
    ordered = sorted(lines, key=lambda line: line["label_y"])
    for above, below in zip(ordered, ordered[1:], strict=False):
        below["label_y"] = max(below["label_y"], above["label_y"] + gap)
    for line in reversed(ordered):
        line["label_y"] = min(line["label_y"], lowest)
        lowest = line["label_y"] - gap


def precision_chart_of(data: ReportData) -> dict[str, Any] | None:
    """Precision at k of all systems."""
    curves = {s.name: s.precision_curve for s in data.systems if np.isfinite(s.precision_curve).any()}
    if not curves:
        return None
    longest = max(len(curve) for curve in curves.values())
    highest = max(max(curve) for curve in curves.values() if len(curve))
    size = (WIDE, HIGH) if len(curves) > 4 else (WIDTH, HEIGHT)
    axes = _Axes(1, max(longest, 2), _round_up(highest), *size)
    ticks = [1, *(tick for tick in _ticks(1, longest) if tick == int(tick) and tick > 1)]
    lines = [
        _line(axes, range(1, len(curve) + 1), curve, look_of(system, data), system.name)
        for system in data.systems
        if (curve := curves.get(system.name)) is not None
    ]
    _spread_labels(lines, axes)
    return axes.frame(ticks, "k") | {"lines": lines, "longest": longest}


def history_chart_of(history: History, data: ReportData) -> dict[str, Any] | None:
    """Validation figures along training, with the chosen step and the baseline's level."""
    learner = data.system(history.name)
    values = [value for value in history.values if math.isfinite(value)]
    if learner is None or not values:
        return None
    if history.baseline is not None:
        values.append(history.baseline)
    axes = _Axes(0, max(history.steps), _round_up(max(values)))
    lines = [_line(axes, history.steps, history.values, look_of(learner, data), learner.name)]
    baseline = data.system(data.baseline)
    if history.baseline is not None and baseline is not None:
        level = _line(axes, (axes.x_low, axes.x_high), [history.baseline] * 2, look_of(baseline, data), baseline.name)
        lines.append(level | {"markers": []})
    _spread_labels(lines, axes)
    chosen = None
    if history.chosen_step is not None:
        chosen = {"x": axes.x(history.chosen_step), "step": history.chosen_step}
    frame = axes.frame(_ticks(0, max(history.steps), 4), "training steps")
    return frame | {
        "lines": lines,
        "chosen": chosen,
        "name": history.name,
        "measure": history.measure,
        "points": list(zip(history.steps, history.values, strict=True)),
    }


def class_chart_of(data: ReportData, baseline: System | None) -> dict[str, Any] | None:
    """Compare the mAP of the queries of each label, best first."""
    learner_values: dict[str, list[float]] = defaultdict(list)
    baseline_values: dict[str, list[float]] = defaultdict(list)
    for query in data.queries:
        if math.isnan(query.learner.average_precision):
            continue
        for label in query.labels:
            learner_values[label].append(query.learner.average_precision)
            if query.baseline:
                baseline_values[label].append(query.baseline.average_precision)
    if not learner_values:
        return None
    rows: list[dict[str, Any]] = [
        {
            "label": label,
            "n": len(values),
            "learner": float(np.mean(values)),
            "baseline": float(np.mean(baseline_values[label])) if baseline and baseline_values[label] else None,
        }
        for label, values in learner_values.items()
    ]
    rows.sort(key=lambda row: (-row["learner"], row["label"]))
    highest = max(max(row["learner"], row["baseline"] or 0) for row in rows)
    for row in rows:
        row["learner_share"] = row["learner"] / highest if highest else 0
        row["baseline_share"] = (row["baseline"] or 0) / highest if highest else 0
    return {"rows": rows[:CLASSES_SHOWN], "n_more": max(0, len(rows) - CLASSES_SHOWN)}


def _round_up(value: float) -> float:
    """Next round number for the end of an axis; at least a little above 0."""
    ticks = _ticks(0, max(value, 0.01))
    step = ticks[1] - ticks[0] if len(ticks) > 1 else max(value, 0.01)
    return min(1.0, math.ceil(max(value, 0.01) / step - 1e-9) * step)
