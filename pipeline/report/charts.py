"""The charts of a report: precision at k, training history, classes.

Matplotlib draws curves once: as PNG, and as SVG that the report and the page embed. The SVG has attributes in place of
styles, so that a strict content policy allows it and the style sheet around it recolours it for dark screens.
"""

from __future__ import annotations

import functools
import io
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from visterm.features import printable

from .data import History, ReportData, System

CLASSES_SHOWN = 60
MANY = 4  # lines; a chart with more of them is larger
SMALL = 4.8, 3.3  # inches

# Of the learners after the first: legible on white, and told apart by dash and marker as well. The style sheets of
# report and page have the same colours, with their counterparts for dark screens.
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
LOOKS = {  # name in style sheets: colour, dash, marker
    "learner": ("#0b5cad", "", "o"),
    "baseline": ("#a84300", "7 4", "s"),
    "chance": ("#5c6066", "2 4", ""),
    **{f"other{i}": look for i, look in enumerate(OTHERS)},
}


def look_of(system: System, data: ReportData) -> dict[str, Any]:
    """How a system is drawn everywhere: by dash and marker as well as by colour."""
    if system.name == data.baseline:
        css = "baseline"
    elif system.name == "chance":
        css = "chance"
    elif system is data.systems[0]:
        css = "learner"
    else:
        css = f"other{(data.learners.index(system) - 1) % len(OTHERS)}"
    color, dash, marker = LOOKS[css]
    return {
        "css": css,
        "color": color,
        "dash": dash,
        "linestyle": (0, [float(part) / 2 for part in dash.split()]) if dash else "-",
        "marker": marker,
        "matplotlib_marker": marker or None,
    }


def write_precision_curve(folder: Path, data: ReportData) -> None:
    """Draw precision at k of every system that has it to ``precision_curve.png`` and ``precision_curve.svg``."""
    _precision_figure(data, (9, 4.5)).savefig(folder / "precision_curve.png", metadata={"Software": None})
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    drawing = precision_svg(data).replace("<svg ", f"<svg {names} ", 1)
    (folder / "precision_curve.svg").write_text(drawing, encoding="utf-8", errors="backslashreplace")


@functools.lru_cache(maxsize=1)  # drawn once for the file and for the page
def precision_svg(data: ReportData) -> str:
    """Return the curves of precision at k as SVG to embed in a page; "" without curves."""
    lengths = [len(system.precision_curve) for system in data.systems if np.isfinite(system.precision_curve).any()]
    if not lengths:
        return ""
    figure = _precision_figure(data, (8, 4.4) if len(lengths) > MANY else SMALL)
    axes = figure.axes[0]
    axes.set_title("")  # the page around it has one
    if len(lengths) <= MANY:
        axes.legend(frameon=False)
    return _svg(figure, f"Precision at k from 1 to {max(lengths)}; the figures are in the summary table")


def _precision_figure(data: ReportData, size: tuple[float, float]) -> Any:
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(size)
    axes = figure.add_subplot()
    longest = 1
    for system in data.systems:
        ks = range(1, len(system.precision_curve) + 1)
        longest = max(longest, len(ks))
        _plot(axes, ks, system.precision_curve, look_of(system, data), f"{system.name} (mAP {system.map:.3f})")
    axes.set(xlabel="k", ylabel="precision at k", title=printable(data.title))
    _finish(axes, 1, max(longest, 2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if data.systems:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def history_chart_of(history: History, data: ReportData) -> dict[str, Any] | None:
    """Validation figures along training, with the chosen step and the baseline's level."""
    learner = data.system(history.name)
    if learner is None or not any(math.isfinite(value) for value in history.values):
        return None
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = new_figure(SMALL)
    axes = figure.add_subplot()
    _plot(axes, history.steps, history.values, look_of(learner, data), learner.name)
    baseline = data.system(data.baseline)
    if history.baseline is not None and baseline is not None:
        look = look_of(baseline, data) | {"matplotlib_marker": None}
        _plot(axes, (0, max(history.steps)), [history.baseline] * 2, look, baseline.name)
    if history.chosen_step is not None:
        axes.axvline(history.chosen_step, color="black", linestyle=":", linewidth=1)
    axes.set(xlabel="training steps", ylabel=f"validation {history.measure}")
    _finish(axes, 0, max(1, *history.steps))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k
    axes.legend(frameon=False)
    return {
        "svg": _svg(figure, f"{history.measure} on validation images along training"),
        "chosen_step": history.chosen_step,
        "name": history.name,
        "measure": history.measure,
        "points": list(zip(history.steps, history.values, strict=True)),
    }


def new_figure(size: tuple[float, float], **options: Any) -> Any:
    """Make an empty figure of a size in inches, without a screen."""
    # Imported here: it costs more than the rest of a report, and every command imports this module.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    options = {"dpi": 150, "layout": "constrained", **options}
    figure = Figure(figsize=size, **options)
    FigureCanvasAgg(figure)
    return figure


def _plot(axes: Any, xs: Sequence[float], ys: Sequence[float], look: dict[str, Any], name: str) -> None:
    axes.plot(
        xs,
        ys,
        color=look["color"],
        linestyle=look["linestyle"],
        marker=look["matplotlib_marker"],
        markevery=max(1, len(xs) // 10),
        label=_legend_name(name),
    )


def _legend_name(name: str) -> str:
    """Shorten a name that would leave no room for the curves, and take no dollar sign for a formula."""
    return printable(name if len(name) <= 40 else f"{name[:25]}...{name[-12:]}").replace("$", r"\$")


def _finish(axes: Any, low: float, high: float) -> None:
    """Set what all line charts share."""
    axes.set_ylim(bottom=0)
    axes.set_xlim(low, high)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _svg(figure: Any, description: str) -> str:
    """Return a figure as SVG for the inside of a page: text as text, no styles, no names but those it refers to."""
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": description}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawing = stream.getvalue()
    view_box = re.search(r'viewBox="[^"]*"', drawing)
    assert view_box is not None
    drawing = drawing[drawing.index(">", drawing.index("<svg")) + 1 :].strip()
    for unwanted in (
        r"<metadata>.*?</metadata>\s*",
        r"<style.*?</style>",
        r"<clipPath.*?</clipPath>\s*",  # nothing is drawn outside of the axes
        r' clip-path="[^"]*"',
        r"<defs>\s*</defs>\s*",
        r"<!--.*?-->\s*",
    ):
        drawing = re.sub(unwanted, "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' style="([^"]*)"', _attributes, drawing)
    used = set(re.findall(r'href="#([^"]*)"', drawing))
    drawing = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", drawing)
    return (
        f'<svg {view_box[0]} class="chart" role="img" aria-label="{escape(description)}" '
        f'font-family="system-ui, sans-serif" stroke-linejoin="round">\n{drawing}'
    )


def _attributes(style: re.Match[str]) -> str:
    """Turn a style of matplotlib's into attributes; the typeface is that of the page."""
    attributes = []
    for declaration in filter(None, (part.strip() for part in style[1].split(";"))):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (size := re.search(r"[\d.]+px", value)):
            name, value = "font-size", size[0]
        if name not in ("font", "font-family"):
            attributes.append(f' {name}="{value}"')
    return "".join(attributes)


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
