"""Why a query and a result match: what each block adds to the score, as data and as a picture.

`explain_pair` gives numbers, `draw` a PNG: both images with their strongest pairs of blocks, and where in them the
score comes from.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from .errors import UserError
from .store.files import write_bytes

if TYPE_CHECKING:
    import numpy as np

    from visterm.retrieval import Pair

    from .searcher import Searcher

PAIRS = 30  # listed, unless asked for more or fewer
DRAWN = 8
_CANDIDATES = 1000  # strongest pairs among which those that show the same are passed over
_SAME = 0.5  # boxes show the same from this share of their union on
_CHANGED = 1e-4  # largest difference of vectors that rounding can make
_LONGEST = 720  # pixels of an image as it is drawn


class Explained(NamedTuple):
    """What `explain_pair` returns, and the pixels of both images, uint8 (H, W, 3)."""

    data: dict[str, Any]
    query_pixels: np.ndarray
    result_pixels: np.ndarray


class _Picture(NamedTuple):
    name: str  # as given, or as search prints it
    id: int | None  # of an image of the collection
    row: int  # of the collection, -1 for none
    pixels: np.ndarray  # (H, W, 3) uint8
    vector: np.ndarray | None  # (n_visterms,) of an image of the collection


# --- numbers ------------------------------------------------------------------------------------------------------


def explain_pair(
    searcher: Searcher, query: Any, result: Any, learner: str | None = None, *, n_pairs: int = PAIRS
) -> dict[str, Any]:
    """Tell what each block of a query and of a result adds to their score.

    Parameters
    ----------
    searcher : Searcher
    query, result : int, str, path or ndarray
        One image each: an id (``12`` or ``"id:12"``), a path as search prints it, a file from anywhere, or RGB uint8
        pixels (H, W, 3).
    learner : str, optional
        One of ``searcher.learners``; unless named `Searcher.default_learner`.
    n_pairs : int
        Pairs of blocks listed at most.

    Returns
    -------
    dict
        Ready for JSON:

        - ``learner``, and ``score`` as search shows it;
        - ``positive`` and ``negative``: sums over all pairs of blocks that raise and that lower the score;
        - ``query`` and ``result``: ``name``, ``id`` and ``path`` (None for an image that is not in the collection),
          ``width``, ``height``, ``boxes`` (x, y, width and height of each block, in pixels) and ``heat`` (what each
          block adds to the score);
        - ``pairs``, the strongest first: ``query_block`` and ``result_block`` (one block of each side to show),
          ``n_query_blocks`` and ``n_result_blocks`` (how many are alike: blocks of one visterm), ``contribution`` (of
          all of them together) and ``share`` (of ``positive - negative``, which is the score where nothing lowers it);
        - with MuSL ``bits``: ``n_query_blocks`` and ``n_result_blocks`` with each visterm that its metric looks at, and
          the ``contribution``. A block's heat lacks the bits whose visterm its image does not have.

    Raises
    ------
    UserError
        An image cannot be found or read, has changed since it was extracted, or has nothing to compare; or the learner
        cannot answer.
    """
    return explained(searcher, query, result, learner, n_pairs=n_pairs).data


def explained(
    searcher: Searcher, query: Any, result: Any, learner: str | None = None, *, n_pairs: int = PAIRS
) -> Explained:
    """Return `explain_pair` with the pixels that it is of, for `draw`."""
    from visterm.retrieval import explain

    name = learner or searcher.default_learner()
    if not hasattr(searcher.extractor, "block_vectors"):
        raise UserError(f"run {searcher.run.name}: its vectors are not made of blocks, so there is nothing to point at")
    model = searcher.learner(name)
    pictures = [_picture(searcher, query), _picture(searcher, result)]
    sides = [_blocks(searcher, picture) for picture in pictures]
    labels = searcher.labels_for(name)
    row = pictures[1].row
    label = None if labels is None or row < 0 else labels[row : row + 1]
    try:
        found = explain(model, sides[0][1], sides[1][1], label, n_pairs=_CANDIDATES)
    except ValueError as error:
        raise UserError(f"{pictures[0].name} and {pictures[1].name}, by {name}: {error}") from None
    boxes = sides[0][0], sides[1][0]
    whole = found.positive - found.negative  # not the score: a small one may be left of large parts
    explanation: dict[str, Any] = {
        "learner": name,
        "score": round(found.score, 6),
        "positive": _rounded(found.positive),
        "negative": _rounded(found.negative),
        "pairs": [
            {
                "query_block": i,
                "result_block": j,
                "contribution": _rounded(pair.contribution),
                "share": _rounded(pair.contribution / whole) if whole else 0.0,
                "n_query_blocks": len(pair.query_parts),
                "n_result_blocks": len(pair.result_parts),
            }
            for i, j, pair in _shown(found.pairs, *boxes, n_pairs)
        ],
    }
    for side, picture, box, heat in zip(("query", "result"), pictures, boxes, (found.query, found.result), strict=True):
        explanation[side] = {
            "name": picture.name,
            "id": picture.id,
            "path": picture.name if picture.id is not None else None,
            "width": picture.pixels.shape[1],
            "height": picture.pixels.shape[0],
            "boxes": box.round(2).tolist(),
            "heat": [_rounded(value) for value in heat],
        }
    if not model.linear:
        explanation["bits"] = [
            {
                "n_query_blocks": len(pair.query_parts),
                "n_result_blocks": len(pair.result_parts),
                "contribution": _rounded(pair.contribution),
            }
            for pair in found.pairs
        ]
    return Explained(explanation, pictures[0].pixels, pictures[1].pixels)


def _picture(searcher: Searcher, given: Any) -> _Picture:
    """Find one image, in the collection or outside."""
    import numpy as np

    from visterm.features import ImageError, read_image
    from visterm.features.descriptors import as_rgb

    if isinstance(given, np.ndarray):
        try:
            return _Picture("image", None, -1, as_rgb(given), None)
        except ValueError as error:
            raise UserError(str(error)) from None
    name = f"id:{given}" if isinstance(given, int | np.integer) else os.fsdecode(given)
    if os.path.isdir(name):
        raise UserError(f"{name}: a folder; one image is explained at a time")
    asked = searcher.queries(name)
    if asked.errors:
        raise UserError(f"{name}: {asked.errors[0]}")
    row = asked.own[0]
    image = searcher.images[row] if row >= 0 else None
    try:
        pixels = read_image(
            searcher.root / image.path if image else name, max_pixels=searcher.config.collection.max_pixels
        )
    except ImageError as error:
        raise UserError(f"{image.path if image else name}: {error.reason}") from None
    if image is None:
        return _Picture(name, None, -1, pixels, None)
    return _Picture(image.path, image.id, row, pixels, searcher.X[row].toarray().ravel())


def _blocks(searcher: Searcher, picture: _Picture) -> tuple[np.ndarray, Any]:
    """Boxes and vectors of the blocks of an image, which sum to the vector that is searched with."""
    import numpy as np

    try:
        boxes, vectors = searcher.extractor.block_vectors(picture.pixels)
    except ValueError as error:  # no pixels
        raise UserError(f"{picture.name}: {error}") from None
    whole = np.asarray(vectors.astype(np.float64).sum(axis=0)).ravel()  # in single precision, long sums would drift
    if picture.vector is not None and np.abs(whole - picture.vector).max() > _CHANGED:
        raise UserError(
            f"{picture.name} has changed since it was extracted; run 'visterm features --run {searcher.run.name}' first"
        )
    return boxes, vectors


def _shown(
    pairs: Sequence[Pair], query_boxes: np.ndarray, result_boxes: np.ndarray, n_pairs: int
) -> Iterator[tuple[int, int, Pair]]:
    """Yield the strongest pairs with a block to show on each side, but none that shows the same as a stronger one.

    The block to show is the one nearest to the middle of all of the pair's. Two pairs show the same if the blocks shown
    overlap by half of their union or more, in both images.
    """
    import numpy as np

    chosen: list[tuple[int, int]] = []
    for pair in pairs:
        if len(chosen) == n_pairs:
            return
        if not len(pair.query_parts) or not len(pair.result_parts):
            continue
        i, j = _middle(query_boxes, pair.query_parts), _middle(result_boxes, pair.result_parts)
        if chosen:
            before = np.array(chosen)
            same = np.minimum(
                _overlaps(query_boxes[i], query_boxes[before[:, 0]]),
                _overlaps(result_boxes[j], result_boxes[before[:, 1]]),
            )
            if same.max() >= _SAME:
                continue
        chosen.append((i, j))
        yield i, j, pair


def _middle(boxes: np.ndarray, some: np.ndarray) -> int:
    """Which of some boxes is nearest to the middle of all of them."""
    centres = boxes[some, :2] + boxes[some, 2:] / 2
    return int(some[((centres - centres.mean(axis=0)) ** 2).sum(axis=1).argmin()])


def _overlaps(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Intersection of a box with others, as a share of their union: (n_boxes,)."""
    import numpy as np

    corner = np.minimum(box[:2] + box[2:], boxes[:, :2] + boxes[:, 2:])
    shared = np.maximum(corner - np.maximum(box[:2], boxes[:, :2]), 0).prod(axis=1)
    return shared / np.maximum(box[2:].prod() + boxes[:, 2:].prod(axis=1) - shared, 1e-9)


def _rounded(value: float) -> float:
    """Six digits, which is what float32 sums are worth."""
    return float(f"{value:.6g}")


# --- the picture --------------------------------------------------------------------------------------------------


def heat_map(side: dict[str, Any], longest: int = _LONGEST) -> np.ndarray:
    """Spread what the blocks of an image add to the score over the image.

    A block's heat is spread evenly over its pixels, and what the blocks of all scales leave on a pixel adds up: the map
    sums to the heat of all blocks.

    Parameters
    ----------
    side : dict
        ``query`` or ``result`` of `explain_pair`.
    longest : int
        Longer side of the map; that of a smaller image is as long as the image's.

    Returns
    -------
    ndarray of float64, (H, W)
        In units of the score.
    """
    import numpy as np

    factor = min(1, longest / max(side["width"], side["height"]))
    width, height = (max(1, round(side[name] * factor)) for name in ("width", "height"))
    x, y, w, h = np.array(side["boxes"]).reshape(-1, 4).T
    left, right = _pixels(x, x + w, width / side["width"], width)
    top, bottom = _pixels(y, y + h, height / side["height"], height)
    density = np.array(side["heat"]) / ((right - left) * (bottom - top))
    # Each box as the four corners of which it is a sum: running sums along both axes fill it.
    corners = np.zeros((height + 1, width + 1))
    for rows, columns, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(corners, (rows, columns), sign * density)
    return corners.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


def _pixels(start: np.ndarray, end: np.ndarray, factor: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last pixel, exclusive, of intervals on a scaled axis; one at least."""
    import numpy as np

    first = np.minimum(np.rint(start * factor).astype(np.intp), size - 1)
    return first, np.clip(np.rint(end * factor).astype(np.intp), first + 1, size)


def draw(
    explanation: dict[str, Any],
    query_pixels: np.ndarray,
    result_pixels: np.ndarray,
    file: str | Path | IO[bytes],
    *,
    n_pairs: int = DRAWN,
) -> None:
    """Draw an explanation into a PNG file.

    Above, both images with the blocks of the strongest pairs, numbered and joined by lines: a solid line for a pair
    that raises the score, a dashed one for a pair that lowers it. Below, where in each image the score comes from
    (`heat_map`), in one colour scale for both: the score that comes from a hundredth of the image's area.

    Parameters
    ----------
    explanation : dict
        Of `explain_pair`.
    query_pixels, result_pixels : ndarray of uint8, (H, W, 3)
        Of `explained`.
    file : path or binary file
        A file at the path is replaced in one step.
    n_pairs : int
        Pairs drawn at most; fewer if the explanation has fewer.
    """
    # Imported here: it costs more than the explanation itself.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sides = [explanation["query"], explanation["result"]]
    pictures = [_shrunk(pixels) for pixels in (query_pixels, result_pixels)]
    shapes = [side["width"] / side["height"] for side in sides]
    # Both images get the same height, unless one is so long that it would leave the other no room.
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
    _write_words(figure, axes, explanation, pairs)
    drawn = io.BytesIO()
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a name in letters that the font lacks
        figure.savefig(drawn, format="png", metadata={"Software": None})
    if not isinstance(file, str | os.PathLike):
        file.write(drawn.getvalue())
        return
    write_bytes(Path(file), drawn.getvalue())


def _shrunk(pixels: np.ndarray) -> np.ndarray:
    """The image at the size that it is drawn in."""
    import cv2

    factor = _LONGEST / max(pixels.shape[:2])
    if factor >= 1:
        return pixels
    size = [max(1, round(length * factor)) for length in pixels.shape[1::-1]]
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)


# Hues that differ in brightness, too, for eyes that see few colours (Okabe and Ito).
_HUES = ("#F0E442", "#56B4E9", "#E69F00", "#CC79A7", "#009E73", "#FFFFFF", "#D55E00", "#9FA8FF")
_INK = "#16181d"


def _draw_pairs(figure, axes, sides, pictures, pairs) -> None:
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
            x, y, w, h = x + inset, y + inset, w - 2 * inset, h - 2 * inset  # so that no outline hides another one
            axes[which].add_patch(
                Rectangle(
                    (x, y), w, h, fill=False, edgecolor=hue, linewidth=1.8, linestyle=style,
                    path_effects=[withStroke(linewidth=3.8, foreground=_INK)],
                )
            )  # fmt: skip
            ends.append(_place_for_badge((x, y, w, h), which == 0, taken[which], sides[which]))
            taken[which].append(ends[-1])
        figure.add_artist(
            ConnectionPatch(
                ends[0], ends[1], "data", "data", axesA=axes[0], axesB=axes[1], color=hue, linewidth=1.3,
                linestyle=style, path_effects=[withStroke(linewidth=3, foreground=_INK)],
            )
        )  # fmt: skip
        for one, end in zip(axes, ends, strict=True):
            figure.text(  # of the figure, as the lines are: it lies above them
                *end, str(number), transform=one.transData, ha="center", va="center", fontsize=10, color=_INK,
                zorder=10, bbox={"boxstyle": "circle,pad=0.2", "facecolor": hue, "edgecolor": _INK, "linewidth": 1},
            )  # fmt: skip


def _place_for_badge(box, right: bool, taken, side) -> tuple[float, float]:
    """A point on the outline of a box, on the side of the other image if there is room between the numbers."""
    x, y, w, h = box
    edge = x + w if right else x
    candidates = [(edge, y + h * at) for at in (0.5, 0.25, 0.75, 0.0, 1.0)]
    candidates += [(x + w * at, y + h * up) for at in (0.5, 0.0 if right else 1.0) for up in (0.0, 1.0, 0.5)]
    apart = 0.07 * max(side["width"], side["height"])

    def nearest(point):
        return min((abs(point[0] - a) ** 2 + abs(point[1] - b) ** 2) ** 0.5 for a, b in taken) if taken else apart

    return next((point for point in candidates if nearest(point) >= apart), max(candidates, key=nearest))


def _draw_heat(figure, axes, sides, pictures) -> None:
    """Heat maps of both images over their grey pictures, in one colour scale, with its legend."""
    import cv2
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    maps = [heat_map(side) for side in sides]
    maps = [found * found.size / 100 for found in maps]  # score of a hundredth of the area
    low, high = min(found.min() for found in maps), max(found.max() for found in maps)
    most = max(-low, high, 1e-12)
    signed = low < -0.01 * most  # less than that is rounding
    warm = ["#f7f7f7", "#fdd0a2", "#fd8d3c", "#d94801", "#7f2704"]
    cold = ["#08306b", "#2171b5", "#6baed6", "#c6dbef"]
    colors = LinearSegmentedColormap.from_list("heat", [*cold, *warm] if signed else warm)
    norm = Normalize(-most if signed else 0, most)
    for one, side, pixels, found in zip(axes, sides, pictures, maps, strict=True):
        grey = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
        height, width = grey.shape
        found = cv2.resize(found, (width, height), interpolation=cv2.INTER_NEAREST)
        # The picture shows through by its brightness only, and faintly: colour is all heat.
        shade = 0.6 + 0.4 * grey[..., None] / 255
        extent = (0, side["width"], side["height"], 0)
        one.imshow(colors(norm(found))[..., :3] * shade, extent=extent, interpolation="antialiased")
    total = figure.get_figheight()
    bar = figure.colorbar(
        ScalarMappable(norm, colors),
        cax=figure.add_axes((0.3, 0.58 / total, 0.4, 0.14 / total)),
        orientation="horizontal",
    )
    bar.outline.set_visible(False)
    bar.ax.set_xlim(low if signed else 0, max(high, 0) or most)  # only what there is
    bar.ax.tick_params(labelsize=9, length=2)
    bar.set_label("score from 1 % of the image's area", fontsize=9)


def _write_words(figure, axes, explanation, pairs) -> None:
    """Title, names and what the pairs make of the score."""
    from visterm.features import printable

    total = figure.get_figheight()
    listed, whole = sum(pair["contribution"] for pair in pairs), explanation["positive"] - explanation["negative"]
    title = f"score {explanation['score']:.4g} by {explanation['learner']}"
    figure.text(0.5, 1 - 0.32 / total, title, ha="center", fontsize=14, fontweight="bold")
    parts = [f"the {len(pairs)} numbered pairs of blocks add {listed:.3g}"]
    if whole and not explanation["negative"]:
        parts[0] += f", {100 * listed / whole:.0f} % of it"
    if explanation["negative"]:
        parts.insert(0, f"raised by {explanation['positive']:.3g}, lowered by {-explanation['negative']:.3g}")
    figure.text(0.5, 1 - 0.58 / total, "; ".join(parts), ha="center", fontsize=10)
    for one, side, title in zip(axes[0], ("query", "result"), ("Query", "Result"), strict=True):
        name = printable(explanation[side]["name"])
        name = name if len(name) <= 60 else f"...{name[-57:]}"
        one.set_title(f"{title}: {name}", fontsize=10, parse_math=False)
