"""The picture of an explanation: matched blocks and heat maps."""

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


PAIRS_DRAWN = 8
_LONGEST = 720  # pixels of the longer side of an image in the picture


def heat_map(side: dict[str, Any], longest: int = _LONGEST) -> np.ndarray:
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
    explanation: dict[str, Any],
    query_pixels: np.ndarray,
    result_pixels: np.ndarray,
    file: str | Path | IO[bytes],
    *,
    n_pairs: int = PAIRS_DRAWN,
) -> None:
    """Draw an explanation as a PNG.

    Above, both images with the blocks of the strongest pairs, numbered and joined by lines: solid for a pair that
    raises the score, dashed for one that lowers it. Below, where in each image the score comes from, in one colour
    scale for both: the score of a hundredth of the image's area.
    """
    # Imported here: slow.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from visterm.pipeline.report.thumbnail import shrink

    sides = [explanation["query"], explanation["result"]]
    pictures = [shrink(pixels, _LONGEST) for pixels in (query_pixels, result_pixels)]
    shapes = [side["width"] / side["height"] for side in sides]
    # Both images get the same height, unless one is so wide that the other would have no room.
    ratios = [min(max(shape, 0.6), 1.9) for shape in shapes]
    height = 10.6 / sum(ratios)  # inches
    figure = Figure(figsize=(12, 2 * height + 2.15), dpi=110, facecolor="white")
    FigureCanvasAgg(figure)
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
    pairs = explanation["pairs"][:n_pairs]
    _draw_pairs(figure, axes[0], sides, pictures, pairs)
    _draw_heat(figure, axes[1], sides, pictures)
    _write_text(figure, axes, explanation, pairs)
    png = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a name with letters that the font lacks
        figure.savefig(png, format="png", metadata={"Software": None})
    if not isinstance(file, str | os.PathLike):
        file.write(png.getvalue())
        return
    write_bytes(Path(file), png.getvalue())


# Colours that differ in brightness, too, for colour-blind readers (Okabe and Ito).
_HUES = ("#F0E442", "#56B4E9", "#E69F00", "#CC79A7", "#009E73", "#FFFFFF", "#D55E00", "#9FA8FF")
_INK = "#16181d"


def _draw_pairs(
    figure: Figure, axes: list[Axes], sides: list[Any], pictures: list[np.ndarray], pairs: list[Any]
) -> None:
    """Numbered blocks in both images, the same colour and number on both sides, and lines between them."""
    from matplotlib.patches import ConnectionPatch, Rectangle
    from matplotlib.patheffects import withStroke

    for one, side, pixels in zip(axes, sides, pictures, strict=True):
        one.imshow(pixels, extent=(0, side["width"], side["height"], 0), interpolation="antialiased")
    taken: list[list[tuple[float, float]]] = [[], []]
    for number, pair in reversed([*enumerate(pairs, start=1)]):  # the strongest on top
        hue = _HUES[(number - 1) % len(_HUES)]
        style = "-" if pair["contribution"] > 0 else (0, (4, 2))
        ends = []
        for which, name in enumerate(("query_block", "result_block")):
            x, y, w, h = sides[which]["boxes"][pair[name]]
            inset = min(0.003 * (number - 1) * max(sides[which]["width"], sides[which]["height"]), 0.2 * min(w, h))
            x, y, w, h = x + inset, y + inset, w - 2 * inset, h - 2 * inset  # no outline hides another one
            axes[which].add_patch(
                Rectangle(
                    (x, y), w, h, fill=False, edgecolor=hue, linewidth=1.8, linestyle=style,
                    path_effects=[withStroke(linewidth=3.8, foreground=_INK)],
                )
            )  # fmt: skip
            ends.append(_badge_position((x, y, w, h), which == 0, taken[which], sides[which]))
            taken[which].append(ends[-1])
        figure.add_artist(
            ConnectionPatch(
                ends[0], ends[1], "data", "data", axesA=axes[0], axesB=axes[1], color=hue, linewidth=1.3,
                linestyle=style, path_effects=[withStroke(linewidth=3, foreground=_INK)],
            )
        )  # fmt: skip
        for one, end in zip(axes, ends, strict=True):
            figure.text(  # artists of the figure, as the lines are, to lie above them
                *end, str(number), transform=one.transData, ha="center", va="center", fontsize=10, color=_INK,
                zorder=10, bbox={"boxstyle": "circle,pad=0.2", "facecolor": hue, "edgecolor": _INK, "linewidth": 1},
            )  # fmt: skip


def _badge_position(
    box: tuple[float, ...], right: bool, taken: list[tuple[float, float]], side: Mapping[str, Any]
) -> tuple[float, float]:
    """A point on the outline of a box, on the side of the other image if there is room between the badges."""
    x, y, w, h = box
    edge = x + w if right else x
    candidates = [(edge, y + h * at) for at in (0.5, 0.25, 0.75, 0.0, 1.0)]
    candidates += [(x + w * at, y + h * up) for at in (0.5, 0.0 if right else 1.0) for up in (0.0, 1.0, 0.5)]
    apart = 0.07 * max(side["width"], side["height"])

    def nearest(point: tuple[float, float]) -> float:
        return min((abs(point[0] - a) ** 2 + abs(point[1] - b) ** 2) ** 0.5 for a, b in taken) if taken else apart

    return next((point for point in candidates if nearest(point) >= apart), max(candidates, key=nearest))


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


def _write_text(figure: Figure, axes: list[list[Axes]], explanation: Mapping[str, Any], pairs: list[Any]) -> None:
    """Title, names, and how much of the score the drawn pairs add."""
    from visterm.features import printable

    total = figure.get_figheight()
    listed, whole = sum(pair["contribution"] for pair in pairs), explanation["positive"] - explanation["negative"]
    title = f"score {explanation['score']:.4g} by {explanation['learner']}"
    figure.text(0.5, 1 - 0.32 / total, title, ha="center", fontsize=14, fontweight="bold")
    parts = [f"the {len(pairs)} numbered pairs of {explanation['parts']}s add {listed:.3g}"]
    if whole and not explanation["negative"]:
        parts[0] += f", {100 * listed / whole:.0f} % of it"
    if explanation["negative"]:
        parts.insert(0, f"raised by {explanation['positive']:.3g}, lowered by {-explanation['negative']:.3g}")
    figure.text(0.5, 1 - 0.58 / total, "; ".join(parts), ha="center", fontsize=10)
    for one, side, title in zip(axes[0], ("query", "result"), ("Query", "Result"), strict=True):
        name = printable(explanation[side]["name"])
        name = name if len(name) <= 60 else f"...{name[-57:]}"
        one.set_title(f"{title}: {name}", fontsize=10, parse_math=False)
