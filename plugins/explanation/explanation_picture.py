"""The picture of an explanation: the regions that make half of the score, and heat maps."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from visterm.pipeline.store.files import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .explanation import ExplainedImage, Explanation

_LONGEST = 720  # pixels of the longer side of an image in the picture


def heat_map(side: ExplainedImage, longest: int = _LONGEST) -> np.ndarray:
    """Spread the heat of each block of an image, a side of `explain_pair`, evenly over its pixels.

    Returns float64 (H, W) in units of the score; the longer side is `longest`, or that of a smaller image.
    """
    import numpy as np

    factor = min(1, longest / max(side["width"], side["height"]))
    width, height = (max(1, round(side[name] * factor)) for name in ("width", "height"))
    x, y, w, h = np.array(side["boxes"]).reshape(-1, 4).T
    left, right = _pixels(x, x + w, width / side["width"], width)
    top, bottom = _pixels(y, y + h, height / side["height"], height)
    density = np.array(side["heat"]) / ((right - left) * (bottom - top))
    # Write each box as its four corners; cumulative sums along both axes fill it.
    corners = np.zeros((height + 1, width + 1))
    for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(corners, (rows, columns), sign * density)
    return corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


def _pixels(start: np.ndarray, end: np.ndarray, factor: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last pixel (exclusive) of intervals on a scaled axis, at least one pixel long."""
    import numpy as np

    first = np.minimum(np.rint(start * factor).astype(np.intp), size - 1)
    return first, np.clip(np.rint(end * factor).astype(np.intp), first + 1, size)


def draw_explanation(
    explanation: Explanation, query_pixels: np.ndarray, result_pixels: np.ndarray, file: str | Path | IO[bytes]
) -> None:
    """Draw an explanation as a PNG.

    Above, both images with the outlines of the regions that make half of the score, joined by lines that tell their
    shares. Below, where in each image the score comes from, in one colour scale for both: the score of a hundredth of
    the image's area.
    """
    from visterm.pipeline.report.charts import new_figure
    from visterm.pipeline.report.thumbnail import shrink

    sides = [explanation["query"], explanation["result"]]
    pictures = [shrink(pixels, _LONGEST) for pixels in (query_pixels, result_pixels)]
    shapes = [side["width"] / side["height"] for side in sides]
    # Both images get the same height, unless one is so wide that the other would have no room.
    ratios = [min(max(shape, 0.6), 1.9) for shape in shapes]
    height = 10.6 / sum(ratios)  # inches
    figure = new_figure((12, 2 * height + 2.15), dpi=110, layout=None, facecolor="white")
    total = figure.get_figheight()
    grid = figure.add_gridspec(
        2, 2, width_ratios=ratios, left=0.035, right=0.965, wspace=0.09, hspace=0.1,
        top=1 - 0.95 / total, bottom=0.95 / total,
    )  # fmt: skip
    axes = [[figure.add_subplot(grid[row, column]) for column in (0, 1)] for row in (0, 1)]
    for row in axes:
        for one, side in zip(row, sides, strict=True):
            one.set(xlim=(0, side["width"]), ylim=(side["height"], 0), xticks=[], yticks=[], aspect="equal")
            for spine in one.spines.values():
                spine.set_visible(False)
    for one, side, pixels in zip(axes[0], sides, pictures, strict=True):
        one.imshow(pixels, extent=(0, side["width"], side["height"], 0), interpolation="antialiased")
    _draw_regions(figure, axes[0], sides, explanation["regions"])
    _draw_heat(figure, axes[1], sides, pictures)
    _write_text(figure, axes, explanation)
    png = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a name with letters that the font lacks
        figure.savefig(png, format="png", metadata={"Software": None})
    if not isinstance(file, str | os.PathLike):
        file.write(png.getvalue())
        return
    write_bytes(Path(file), png.getvalue())


_HUES = ("#F0E442", "#56B4E9", "#E69F00")  # differ in brightness, too, for colour-blind readers (Okabe and Ito)
_INK = "#16181d"


def _draw_regions(figure: Figure, axes: list[Axes], sides: list[Any], pairs: list[Any]) -> None:
    """Outlines of the regions in both images, and a line between the two of each pair, with its share of the score."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import ConnectionPatch
    from matplotlib.patheffects import withStroke

    names = ("query_region", "result_region")
    for one, side, name in zip(axes, sides, names, strict=True):
        one.apply_aspect()  # which moves it: lines have their labels in the middle
        for number, region in enumerate(side["regions"]):
            # A region has the colour of its strongest pair.
            hue = next(_HUES[i % len(_HUES)] for i, pair in enumerate(pairs) if pair[name] == number)
            lines = [((x1, y1), (x2, y2)) for x1, y1, x2, y2 in region["outline"]]
            for width, color in ((5, _INK), (2.4, hue)):
                one.add_collection(
                    LineCollection(lines, colors=color, linewidths=width, capstyle="projecting", clip_on=False)
                )
    for i, pair in enumerate(pairs):
        hue = _HUES[i % len(_HUES)]
        ends = [_hottest(side, pair[name]) for side, name in zip(sides, names, strict=True)]
        figure.add_artist(
            ConnectionPatch(
                ends[0], ends[1], "data", "data", axesA=axes[0], axesB=axes[1], arrowstyle="-", color=hue,
                linewidth=1.6, path_effects=[withStroke(linewidth=3.6, foreground=_INK)],
            )
        )  # fmt: skip
        for one, end in zip(axes, ends, strict=True):
            one.plot(*end, "o", color=hue, markeredgecolor=_INK, markersize=8)
        places = [one.transData.transform(end) for one, end in zip(axes, ends, strict=True)]
        middle = figure.transFigure.inverted().transform((places[0] + places[1]) / 2)
        figure.text(
            middle[0], middle[1], f"{100 * pair['share']:.0f} %", ha="center", va="center", fontsize=11, color=_INK,
            bbox={"boxstyle": "round,pad=0.25", "facecolor": hue, "edgecolor": _INK},
        )  # fmt: skip


def _hottest(side: Mapping[str, Any], region: int) -> tuple[float, float]:
    """The centre of the cell of a region that adds most."""
    cell = max(side["regions"][region]["cells"], key=lambda i: abs(side["cell_heat"][i]))
    x, y, w, h = side["cells"][cell]
    return x + w / 2, y + h / 2


def _draw_heat(figure: Figure, axes: list[Axes], sides: list[Any], pictures: list[np.ndarray]) -> None:
    """Heat maps over the grey images, in one colour scale with a legend."""
    import cv2
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    maps = [heat_map(side) for side in sides]
    maps = [heat * heat.size / 100 for heat in maps]  # score of a hundredth of the area
    low, high = min(heat.min() for heat in maps), max(heat.max() for heat in maps)
    most = max(-low, high, 1e-12)
    signed = low < -0.01 * most  # less is rounding
    warm = ["#f7f7f7", "#fdd0a2", "#fd8d3c", "#d94801", "#7f2704"]
    cold = ["#08306b", "#2171b5", "#6baed6", "#c6dbef"]
    colors = LinearSegmentedColormap.from_list("heat", [*cold, *warm] if signed else warm)
    norm = Normalize(-most if signed else 0, most)
    for one, side, pixels, heat in zip(axes, sides, pictures, maps, strict=True):
        grey = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
        height, width = grey.shape
        heat = cv2.resize(heat, (width, height), interpolation=cv2.INTER_NEAREST)
        # The image shows through by its brightness alone, and faintly: all colour is heat.
        shade = 0.6 + 0.4 * grey[..., None] / 255
        extent = (0, side["width"], side["height"], 0)
        one.imshow(colors(norm(heat))[..., :3] * shade, extent=extent, interpolation="antialiased")
    total = figure.get_figheight()
    bar = figure.colorbar(
        ScalarMappable(norm, colors),
        cax=figure.add_axes((0.3, 0.58 / total, 0.4, 0.14 / total)),
        orientation="horizontal",
    )
    bar.outline.set_visible(False)
    bar.ax.set_xlim(low if signed else 0, max(high, 0) or most)  # the range that occurs
    bar.ax.tick_params(labelsize=9, length=2)
    bar.set_label("score from 1 % of the image's area", fontsize=9)


def _write_text(figure: Figure, axes: list[list[Axes]], explanation: Mapping[str, Any]) -> None:
    """Score, the sentence, and names."""
    from visterm.features import printable

    total = figure.get_figheight()
    title = f"score {explanation['score']:.4g} by {explanation['learner']}"
    figure.text(0.5, 1 - 0.32 / total, title, ha="center", fontsize=14, fontweight="bold")
    figure.text(0.5, 1 - 0.58 / total, explanation["sentence"], ha="center", va="center", fontsize=10, wrap=True)
    for one, side, title in zip(axes[0], ("query", "result"), ("Query", "Result"), strict=True):
        name = printable(explanation[side]["name"])
        name = name if len(name) <= 60 else f"...{name[-57:]}"
        one.set_title(f"{title}: {name}", fontsize=10, parse_math=False)
