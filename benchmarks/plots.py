"""One style for the project's plots, readable on screen, in print and in grey.

Series differ in colour, brightness, marker and dashes; the legend stands beside the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

# Colours of Okabe and Ito, distinct for any colour vision; dark and light alternate.
LOOKS = [
    {"color": "#000000", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": "-"},
    {"color": "#0072b2", "marker": "^", "linestyle": "--"},
    {"color": "#e69f00", "marker": "D", "linestyle": "-."},
    {"color": "#009e73", "marker": "v", "linestyle": "-"},
    {"color": "#cc79a7", "marker": "P", "linestyle": "--"},
    {"color": "#56b4e9", "marker": "X", "linestyle": "-"},
    {"color": "#7f3f00", "marker": "<", "linestyle": ":"},
    {"color": "#4b0082", "marker": ">", "linestyle": "-."},
    {"color": "#808080", "marker": "", "linestyle": "--"},
    {"color": "#808080", "marker": "", "linestyle": ":"},
]
# A system has the same look on every page; systems that are never in one figure may share it.
PLACES = {
    name: place
    for place, name in enumerate(
        ("OASIS", "AROMA diagonal", "AROMA factored", "WSABIE", "MCML", "LEGO", "NCA", "ITML", "LMNN", "Euclidean")
    )
} | {"RCA": 1, "Xing": 2, "LEGO, triplets": 3, "HIER": 4, "cosine": 9, "chance": 10}


def new_figure(
    n_panels: int = 1, *, n_rows: int = 1, width: float | None = None, height: float = 3.8
) -> tuple[Figure, list[Any]]:
    """A figure and its axes, row by row; width and height in inches."""
    figure = Figure(figsize=(width or 3.4 + 3.8 * n_panels, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(n_rows, n_panels // n_rows, squeeze=False).flat)
    for one in axes:
        one.grid(alpha=0.3, linewidth=0.6)
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def series(
    axes: Any, place: int | str, x: Sequence, y: Sequence, *, error: Sequence | None = None, label: str = ""
) -> None:
    """Draw one curve with error bars in look number `place`, or in that of a system in PLACES.

    At most a dozen markers and bars, so that the curve stays visible.
    """
    place = PLACES[place] if isinstance(place, str) else place
    look = LOOKS[place % len(LOOKS)]
    every = max(1, int(np.ceil(len(x) / 12)))
    axes.errorbar(
        x,
        y,
        yerr=error,
        label=label,
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        linewidth=1.5,
        elinewidth=0.9,
        capsize=2,
        markevery=(place % every, every),
        errorevery=(place % every, every),
        **look,
    )


def legend(figure: Figure, axes: Any, title: str | None = None) -> None:
    """List the axes' series right of the figure, where they cover nothing."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False, title=title)


def save(figure: Figure, path: Path, *, few_colours: bool = False) -> None:
    """Write a PNG; the same figure gives the same bytes. With `few_colours`, a palette of 256."""
    figure.savefig(path, metadata={"Software": None})
    if few_colours:
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(256)
        small.save(path, optimize=True)
