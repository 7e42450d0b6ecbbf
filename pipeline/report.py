"""The report of an evaluation: one self-contained HTML page, and the precision curve as a picture.

The page loads nothing from anywhere, reads without scripts, and names no image by colour alone. The caller turns
evaluations into the plain numbers and strings of `ReportData`; this module knows no index, learner or collection.
"""

import base64
import io
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from PIL import Image

from visterm.retrieval import Comparison

THUMBNAIL_SIDE = 160  # pixels; some 3.5 KiB each as WebP of quality 70
SIZE_WANTED = 5_000_000  # bytes: galleries are shortened to stay below
SIZE_REFUSED = 15_000_000
ROWS_SHOWN = 500
CLASSES_SHOWN = 60
FEW_QUERIES = 100  # fewer, and the report warns of wide intervals
CLEAR = 0.05  # p-value below which the verdict calls a difference clear

FILES_BESIDE = {
    "metrics.json": "the figures of the summary, for programs",
    "curves.csv": "precision at every k",
    "neighbours.csv": "the ranked neighbours of every query under every learner",
    "precision_curve.png": "the precision curve as a picture",
}
PROTOCOLS = {
    "test-test": "Each test image is a query; all other test images are ranked.",
    "query-gallery": "Each query image ranks a gallery that does not contain it.",
}


# --------------------------------------------------------------------------------------------------------------
# What the caller gives


@dataclass(frozen=True)
class System:
    """One way of ranking, and its mean figures.

    Parameters
    ----------
    name : str
        As in metrics.json: "oasis", "cosine", "chance".
    map : float
        Mean average precision.
    interval : (float, float) or None
        95 % bootstrap interval of mAP; None where there is no chance in it.
    precision_at : mapping of int to float
        The columns of the summary table, P@1, P@10, ...
    precision_curve : sequence of float
        Precision at k = 1, 2, ...
    steps, train_seconds : optional
        Of a trained system.
    comparison : Comparison or None
        This system (a) against the baseline (b) on average precision.
    p_of_best : float or None
        Of the same test against the learner with the highest mAP, where this is another learner.
    knn_accuracy : float or None
        Mean per-class recall of the votes of the nearest training images, where each image has one label.
    label_precision_at, sibling_precision_at : mapping of int to float
        Of a system that ranks labels for an image; the second where an is-a table was given.
    """

    name: str
    map: float
    interval: tuple[float, float] | None = None
    precision_at: Mapping[int, float] = field(default_factory=dict)
    precision_curve: Sequence[float] = ()
    steps: int | None = None
    train_seconds: float | None = None
    comparison: Comparison | None = None
    p_of_best: float | None = None
    knn_accuracy: float | None = None
    label_precision_at: Mapping[int, float] = field(default_factory=dict)
    sibling_precision_at: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """One ranked image. ``score`` is shown only on demand: it compares results of one query, nothing else."""

    path: str
    labels: tuple[str, ...]
    relevant: bool
    score: float


@dataclass(frozen=True)
class Hits:
    """One query under one system. ``average_precision`` is NaN without relevant images; a first rank 0 is none."""

    average_precision: float
    first_relevant: int
    precision_at_10: float | None = None


@dataclass(frozen=True)
class Query:
    """One query: its figures under the learner and the baseline, and the learner's first results (10 suffice)."""

    path: str
    labels: tuple[str, ...]
    learner: Hits
    baseline: Hits | None = None
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class History:
    """One learner's validation figures along training, the step that was kept, and the baseline's on the same images.

    ``measure`` says what the figures are, mAP or another one.
    """

    steps: Sequence[int]
    values: Sequence[float]
    chosen_step: int | None = None
    baseline: float | None = None
    name: str = "oasis"
    measure: str = "mAP"


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows.

    Parameters
    ----------
    title : str
    systems : tuple of System
        Learners, baseline, chance. Pictures, labels and queries are shown of the first.
    baseline : str or None
        Name of the system that it is measured against.
    queries : tuple of Query
        All queries; the report chooses which to show.
    protocol : str
        A key of PROTOCOLS, or words.
    n_queries, n_gallery, n_without_relevant : int
        Queries in the means, gallery images, and queries left out as nothing is relevant to them.
    accuracy_neighbours : int or None
        Training images that voted for k-NN accuracy.
    histories : tuple of History
        Of the learners that have one.
    side_by_side : tuple of (Query, mapping of str to tuple of Result)
        Some queries with the first results of every system but chance.
    groups : mapping of str to list of lists of str
        Of a learner with several metrics: the categories of each.
    warnings : tuple of str
        What the reader should know before believing the figures; the report adds its own.
    facts : mapping of str to str
        Date, command, version, run, data fingerprint, seed, cores: whatever was true, in this order.
    durations : mapping of str to float
        Seconds of each stage.
    environment : mapping of str to str
        Versions and machine.
    config : str
        YAML.
    links : mapping of str to str
        Files beside the report, and what is in them.
    """

    title: str
    systems: tuple[System, ...]
    queries: tuple[Query, ...]
    n_queries: int
    n_gallery: int
    baseline: str | None = "cosine"
    protocol: str = "test-test"
    n_without_relevant: int = 0
    accuracy_neighbours: int | None = None
    histories: tuple[History, ...] = ()
    side_by_side: tuple[tuple[Query, Mapping[str, tuple[Result, ...]]], ...] = ()
    groups: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    links: Mapping[str, str] = field(default_factory=lambda: FILES_BESIDE)

    def system(self, name: str | None) -> System | None:
        """The system of that name, or None."""
        return next((system for system in self.systems if system.name == name), None)

    @property
    def learners(self) -> tuple[System, ...]:
        """The systems but baseline and chance; the first system is one in any case."""
        return tuple(s for i, s in enumerate(self.systems) if i == 0 or s.name not in (self.baseline, "chance"))


# --------------------------------------------------------------------------------------------------------------
# What the caller gets


def write_report(
    path: Path, data: ReportData, read_image: Callable[[str], np.ndarray], *, gallery_size: int = 10
) -> None:
    """Write the report as one HTML file.

    Parameters
    ----------
    path : Path
        Replaced in one step, so that a killed run leaves no half page.
    data : ReportData
    read_image : callable
        From a path of `Query` or `Result` to RGB uint8 (H, W, 3). An image that it cannot read becomes a labelled
        placeholder.
    gallery_size : int, default=10
        Queries in each gallery. Halved while the page is larger than 5 MB.

    Raises
    ------
    ValueError
        If there is no system, or the page is larger than 15 MB even with one query in each gallery.
    """
    if not data.systems:
        raise ValueError("a report needs at least one system")
    thumbnails = InlineThumbnails(read_image)
    html = _render(data, thumbnails, gallery_size)
    while len(html) > SIZE_WANTED and gallery_size > 1:
        gallery_size //= 2
        html = _render(data, thumbnails, gallery_size, shortened=True)
    if len(html) > SIZE_REFUSED:
        raise ValueError(
            f"the report would have {len(html) / 1e6:.0f} MB even with one query in each gallery, more than "
            "browsers open with ease: shorten labels, paths or configuration"
        )
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(html)
    os.replace(partial, path)


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
        look = _look(system, data)
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
    axes.set(xlabel="k", ylabel="precision at k", title=_printable(data.title))
    axes.set_ylim(bottom=0)
    axes.set_xlim(1, max(longest, 2))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if data.systems:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, metadata={"Software": None})


def verdict(data: ReportData) -> str:
    """Say the result: of the best learner if there are several, and which others may be as good."""
    learner = max(data.learners, key=lambda system: _sort_key(system.map, -math.inf))
    baseline, chance = data.system(data.baseline), data.system("chance")
    if data.n_queries == 0:
        return "No query has a relevant image in the gallery: there is nothing to measure."
    interval = ""
    if learner.interval:
        interval = f" (95 % interval {learner.interval[0]:.3f} to {learner.interval[1]:.3f})"
    at_random = f" A random order would reach {chance.map:.3f}." if chance else ""
    name = _printable(learner.name)
    if len(data.learners) > 1:
        alike = [
            _printable(other.name)
            for other in sorted(data.learners, key=lambda system: -system.map)
            if other is not learner and other.p_of_best is not None and other.p_of_best >= CLEAR
        ]
        also = f"; {', '.join(alike)} {'is' if len(alike) == 1 else 'are'} not distinguishable from it" if alike else ""
        test = f" (paired test, p >= {CLEAR})" if alike else ""
        name = f"Of {len(data.learners)} learners {name} has the highest mAP ({learner.map:.3f}){also}{test}. {name}"
    if baseline is None or baseline is learner:
        return f"{name} reaches mAP {learner.map:.3f}{interval} on {_count(data.n_queries, 'query')}.{at_random}"
    other = _printable(baseline.name)
    comparison = learner.comparison
    if comparison is not None and comparison.p_value >= CLEAR:
        start = f"{name} is not clearly different from {other}"
    else:
        start = f"{name} ranks {'better' if learner.map > baseline.map else 'worse'} than {other}"
    ratio = f", {learner.map / baseline.map:.2f} times as much" if baseline.map > 0 else ""
    sentence = f"{start}: mAP {learner.map:.3f}{interval} against {baseline.map:.3f}{ratio}"
    if comparison is not None:
        sentence += (
            f"; better on {comparison.wins} of {_count(data.n_queries, 'query')}, worse on {comparison.losses}, "
            f"equal on {comparison.ties}"
        )
    return f"{sentence}.{at_random}"


# --------------------------------------------------------------------------------------------------------------
# Thumbnails


class InlineThumbnails:
    """Images as data URIs, each made and stored once however often it is shown.

    Parameters
    ----------
    read_image : callable
        As in `write_report`.
    """

    def __init__(self, read_image: Callable[[str], np.ndarray]) -> None:
        self._read_image = read_image
        self._made: dict[str, dict[str, Any] | None] = {}

    def __getitem__(self, path: str) -> dict[str, Any] | None:
        """``{"id", "width", "height", "uri"}``, or None for an image that cannot be read."""
        if path not in self._made:
            self._made[path] = self._make(path)
        return self._made[path]

    def _make(self, path: str) -> dict[str, Any] | None:
        try:
            image = Image.fromarray(self._read_image(path))
            image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
            encoded = io.BytesIO()
            image.save(encoded, "WEBP", quality=70)
        except Exception:  # whatever is wrong with one picture, the report is about all of them
            return None
        uri = "data:image/webp;base64," + base64.b64encode(encoded.getvalue()).decode()
        return {"id": f"t{len(self._made)}", "width": image.width, "height": image.height, "uri": uri}


# --------------------------------------------------------------------------------------------------------------
# The page


def template(name: str) -> jinja2.Template:
    """Read a template of this room, with the filters that all of them know."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (files("visterm.pipeline") / name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        printable=_printable, number=_number, seconds=_seconds, p_value=_p_value, file_parts=_file_parts
    )
    return environment.get_template(name)


def _render(data: ReportData, thumbnails: InlineThumbnails, gallery_size: int, shortened: bool = False) -> bytes:
    learner, baseline = data.systems[0], data.system(data.baseline)
    if baseline is learner:
        baseline = None
    galleries = _galleries(data.queries, gallery_size)
    side_by_side = data.side_by_side[:gallery_size]
    shown = {path: thumbnails[path] for path in _paths_shown(galleries, side_by_side)}
    ranked = sorted(data.queries, key=lambda query: _sort_key(query.learner.average_precision))
    html = template("report.html.jinja").render(
        data=data,
        learner=learner,
        baseline=baseline,
        verdict=verdict(data),
        protocol=PROTOCOLS.get(data.protocol, data.protocol),
        ks=_columns(data, "precision_at"),
        label_ks=_ends(_columns(data, "label_precision_at")),
        sibling_ks=_ends(_columns(data, "sibling_precision_at")),
        warnings=_warnings(data),
        looks={system.name: _look(system, data) for system in data.systems},
        precision_chart=_precision_chart(data),
        history_charts=[chart for history in data.histories if (chart := _history_chart(history, data))],
        class_chart=_class_chart(data, baseline),
        queries=ranked[:ROWS_SHOWN],
        galleries=galleries,
        side_by_side=side_by_side,
        gallery_size=gallery_size,
        shortened=shortened,
        thumbnails=shown,
        count=_count,
        clear=CLEAR,
    )
    # A name that is no UTF-8 was made printable; whatever else slipped through must not stop the report.
    return html.encode("utf-8", "backslashreplace")


def _warnings(data: ReportData) -> list[str]:
    warnings = list(data.warnings)
    if data.n_without_relevant:
        warnings.append(
            f"{_count(data.n_without_relevant, 'query')} without any relevant image in the gallery: left out of all "
            "means"
        )
    if 0 < data.n_queries < FEW_QUERIES:
        warnings.append(
            f"only {_count(data.n_queries, 'query')}: a difference must be large to be more than luck (see the "
            "interval)"
        )
    return warnings


def _galleries(queries: Sequence[Query], size: int) -> list[dict[str, Any]]:
    """Choose the queries that are shown with their results; a gallery without queries is left out."""
    measured = [query for query in queries if not math.isnan(query.learner.average_precision)]
    by_ap = sorted(measured, key=lambda query: query.learner.average_precision, reverse=True)
    start = max(0, (len(by_ap) - size) // 2)
    compared = sorted((query for query in measured if query.baseline), key=_gain, reverse=True)
    galleries = [
        ("best", "Best", "the highest average precision", by_ap[:size]),
        ("median", "Median", "the middle of all queries: what to expect", by_ap[start : start + size]),
        ("worst", "Worst", "the lowest average precision", by_ap[::-1][:size]),
        ("improved", "Most improved", "the largest gains", [q for q in compared[:size] if _gain(q) > 0]),
        ("harmed", "Most harmed", "the largest losses", [q for q in compared[::-1][:size] if _gain(q) < 0]),
    ]
    return [
        {"id": id, "name": name, "about": about, "queries": chosen} for id, name, about, chosen in galleries if chosen
    ]


def _columns(data: ReportData, measure: str) -> list[int]:
    return sorted({k for system in data.systems for k in getattr(system, measure)})


def _ends(ks: list[int]) -> list[int]:
    """First and last: the table has room for no more, metrics.json has all."""
    return sorted({ks[0], ks[-1]}) if ks else []


def _paths_shown(
    galleries: list[dict[str, Any]], side_by_side: Sequence[tuple[Query, Mapping[str, tuple[Result, ...]]]]
) -> list[str]:
    paths: dict[str, None] = {}
    for query, found in side_by_side:
        paths[query.path] = None
        paths.update((result.path, None) for results in found.values() for result in results[:10])
    for gallery in galleries:
        for query in gallery["queries"]:
            paths[query.path] = None
            paths.update((result.path, None) for result in query.results)
    return list(paths)


def _gain(query: Query) -> float:
    assert query.baseline is not None
    return query.learner.average_precision - query.baseline.average_precision


def _sort_key(value: float, missing: float = math.inf) -> float:
    return missing if math.isnan(value) else value


# --------------------------------------------------------------------------------------------------------------
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


def _look(system: System, data: ReportData) -> dict[str, Any]:
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
            "x_ticks": [(self.x(tick), _short(tick)) for tick in x_ticks],
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


def _precision_chart(data: ReportData) -> dict[str, Any] | None:
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
        _line(axes, range(1, len(curve) + 1), curve, _look(system, data), system.name)
        for system in data.systems
        if (curve := curves.get(system.name)) is not None
    ]
    _spread_labels(lines, axes)
    return axes.frame(ticks, "k") | {"lines": lines, "longest": longest}


def _history_chart(history: History, data: ReportData) -> dict[str, Any] | None:
    """Validation figures along training, with the chosen step and the baseline's level."""
    learner = data.system(history.name)
    values = [value for value in history.values if math.isfinite(value)]
    if learner is None or not values:
        return None
    if history.baseline is not None:
        values.append(history.baseline)
    axes = _Axes(0, max(history.steps), _round_up(max(values)))
    lines = [_line(axes, history.steps, history.values, _look(learner, data), learner.name)]
    baseline = data.system(data.baseline)
    if history.baseline is not None and baseline is not None:
        level = _line(axes, (axes.x_low, axes.x_high), [history.baseline] * 2, _look(baseline, data), baseline.name)
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


def _class_chart(data: ReportData, baseline: System | None) -> dict[str, Any] | None:
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


# --------------------------------------------------------------------------------------------------------------
# Words and numbers


def _printable(text: Any) -> str:
    """Text that can be shown and written as UTF-8: odd bytes and control characters become escapes."""
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # Python's stand-in for a byte of a file name that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def _file_parts(path: str) -> tuple[str, ...]:
    """Return the last two parts of a path: folder and file tell an image apart, and fit under a thumbnail."""
    return Path(path).parts[-2:]


def _number(value: float | None, digits: int = 3) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}"


def _short(value: float) -> str:
    """20000 -> 20k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (value >= size and value % (size / 10) == 0):
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _seconds(value: float | None) -> str:
    """93.4 -> 1 min 33 s."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"


def _count(n: int, noun: str) -> str:
    """Return "1 query", "2 queries", "1 image", "2 images"."""
    if n == 1:
        return f"1 {noun}"
    return f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"


def _p_value(value: float) -> str:
    """Two digits; < 0.001 of what is smaller."""
    return f"{value:.2g}" if value >= 0.001 else "< 0.001"
