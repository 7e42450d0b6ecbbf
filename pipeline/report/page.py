"""The HTML page of an evaluation, one self-contained file."""

from __future__ import annotations

import base64
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np

from visterm.features import printable
from visterm.pipeline.console import count, numbers_apart, reads_below

from .charts import LOOKS, MANY, class_chart_of, history_chart_of, look_of, precision_svg
from .data import PROTOCOLS, Query, ReportData, Result, each_label_first
from .text import WORLDS, file_parts_of, number_text, p_value_text, seconds_text, without_folders
from .thumbnail import make_thumbnail

THUMBNAIL_SIDE = 160  # pixels; some 3.5 KiB each as WebP of quality 70
SIZE_WANTED = 5_000_000  # bytes: galleries are shortened to stay below
SIZE_REFUSED = 15_000_000
ROWS_SHOWN = 500
FEW_QUERIES = 100  # fewer, and the report warns of wide intervals
FEW_CLASSES = 6  # with fewer no sign-flip test over classes has a p-value below CLEAR
CLEAR = 0.05  # p-value below which the verdict calls a difference clear


def render_report(data: ReportData, read_image: Callable[[str], np.ndarray], *, gallery_size: int = 10) -> bytes:
    """Render the report as one HTML file.

    ``read_image`` turns a path of `Query` or `Result` into RGB uint8 (H, W, 3); an image that it cannot read becomes a
    labelled placeholder. ``gallery_size``, the number of queries in each gallery, is halved while the page is larger
    than 5 MB. ValueError if there is no system, or if the page is larger than 15 MB even with one query in each
    gallery.
    """
    if not data.systems:
        raise ValueError("a report needs at least one system")
    thumbnails = InlineThumbnails(read_image)
    histories = [chart for history in data.histories if (chart := history_chart_of(history, data))]
    html = _render(data, histories, thumbnails, gallery_size)
    while len(html) > SIZE_WANTED and gallery_size > 1:
        gallery_size //= 2
        html = _render(data, histories, thumbnails, gallery_size, shortened=True)
    if len(html) > SIZE_REFUSED:
        raise ValueError(
            f"the report would have {len(html) / 1e6:.0f} MB even with one query in each gallery, more than "
            "browsers open with ease: shorten labels, paths or configuration"
        )
    return html


def verdict(data: ReportData) -> str:
    """Say the result: of the best learner if there are several, and which others may be as good."""
    learner = max(data.learners, key=lambda system: _sort_key(system.map, -math.inf))
    baseline, chance = data.system(data.baseline), data.system("chance")
    if data.n_queries == 0:
        return "No query has a relevant image in the gallery: there is nothing to measure."
    interval = ""
    if learner.interval:
        others = " for other classes" if data.n_classes > 1 else ""
        interval = f" (95 % interval{others} {learner.interval[0]:.3f} to {learner.interval[1]:.3f})"
    at_random = f" A random order would reach {chance.map:.3f}." if chance else ""
    name = printable(learner.name)
    if len(data.learners) > 1:
        alike = [
            printable(other.name)
            for other in sorted(data.learners, key=lambda system: -system.map)
            if other is not learner and other.p_of_best is not None and other.p_of_best >= CLEAR
        ]
        also = f"; {', '.join(alike)} {'is' if len(alike) == 1 else 'are'} not distinguishable from it" if alike else ""
        test = f" (paired test, p >= {CLEAR})" if alike else ""
        name = f"Of {len(data.learners)} learners {name} has the highest mAP ({learner.map:.3f}){also}{test}. {name}"
    if baseline is None or baseline is learner:
        return f"{name} reaches mAP {learner.map:.3f}{interval} on {count(data.n_queries, 'query')}.{at_random}"
    other = printable(baseline.name)
    comparison = learner.comparison
    own, theirs = number_text(learner.map), number_text(baseline.map)
    if comparison is not None and comparison.p_value >= CLEAR:
        start = f"{name} is not clearly different from {other}"
    elif learner.map == baseline.map:
        start = f"{name} ranks as well as {other}"
    else:
        start = f"{name} ranks {'better' if learner.map > baseline.map else 'worse'} than {other}"
        own, theirs = numbers_apart(learner.map, baseline.map)
    ratio = f"{learner.map / baseline.map:.2f}" if baseline.map > 0 else "1.00"
    times = "" if ratio == "1.00" else f", {ratio} times as much"
    sentence = f"{start}: mAP {own}{interval} against {theirs}{times}"
    if comparison is not None:
        sentence += (
            f"; better on {comparison.wins} of {count(data.n_queries, 'query')}, worse on {comparison.losses}, "
            f"equal on {comparison.ties}"
        )
    return f"{sentence}.{at_random}"


class InlineThumbnails:
    """Images as data URIs, each made and stored once however often it is shown."""

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
            made = make_thumbnail(self._read_image(path), THUMBNAIL_SIDE)
        except Exception:  # whatever is wrong with one picture, the report is about all of them
            return None
        uri = "data:image/webp;base64," + base64.b64encode(made.webp).decode()
        return {"id": f"t{len(self._made)}", "width": made.width, "height": made.height, "uri": uri}


@functools.cache
def template(name: str, package: str = "visterm.pipeline.report") -> jinja2.Template:
    """Read a template of a package, which may use those of this room, with the filters that all of them know."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda part: (files(package if part == name else __package__) / "templates" / part).read_text("utf-8")
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        printable=printable,
        number=number_text,
        seconds=seconds_text,
        p_value=p_value_text,
        file_parts=file_parts_of,
        without_folders=without_folders,
    )
    return environment.get_template(name)


def _render(
    data: ReportData,
    histories: list[dict[str, Any]],
    thumbnails: InlineThumbnails,
    gallery_size: int,
    shortened: bool = False,
) -> bytes:
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
        labellers=[system for system in data.learners if system.label_table],
        worlds=WORLDS,
        by_neighbours=any(system.map_alone is not None for system in data.systems),
        validated=[system for system in data.learners if system.held_out],
        reads_below=reads_below,
        label_ks=_ends(_columns(data, "label_precision_at")),
        sibling_ks=_ends(_columns(data, "sibling_precision_at")),
        warnings=_warnings(data),
        looks={system.name: look_of(system, data) for system in data.systems},
        precision_svg=precision_svg(data),
        colors={css: color for css, (color, *_) in LOOKS.items()},
        many_lines=len(data.systems) > MANY,
        history_charts=histories,
        class_chart=class_chart_of(data, baseline),
        queries=ranked[:ROWS_SHOWN],
        galleries=galleries,
        side_by_side=side_by_side,
        gallery_size=gallery_size,
        shortened=shortened,
        thumbnails=shown,
        count=count,
        clear=CLEAR,
    )
    # A name that is no UTF-8 was made printable; whatever else slipped through must not stop the report.
    return html.encode("utf-8", "backslashreplace")


def _warnings(data: ReportData) -> list[str]:
    warnings = list(data.warnings)
    if data.n_without_relevant:
        warnings.append(
            f"{count(data.n_without_relevant, 'query')} without any relevant image in the gallery: left out of all "
            "means"
        )
    if 0 < data.n_queries < FEW_QUERIES:
        warnings.append(
            f"only {count(data.n_queries, 'query')}: a difference must be large to be more than luck (see the interval)"
        )
    if 1 < data.n_classes < FEW_CLASSES:
        warnings.append(
            f"only {data.n_classes} classes: others may rank quite differently (see the interval), and no paired test "
            "can be clear"
        )
    return warnings


def _galleries(queries: Sequence[Query], size: int) -> list[dict[str, Any]]:
    """Choose the queries that are shown with their results; a gallery without queries is left out."""
    measured = [query for query in queries if not math.isnan(query.learner.average_precision)]
    by_ap = sorted(measured, key=lambda query: query.learner.average_precision, reverse=True)
    varied = each_label_first(by_ap, lambda query: query.labels)
    start = max(0, (len(by_ap) - size) // 2)
    compared = sorted((query for query in measured if query.baseline), key=_gain, reverse=True)
    galleries = [
        ("best", "Best", "the highest average precision, one query per label first", varied[:size]),
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
    for query, by_learner in side_by_side:
        paths[query.path] = None
        paths.update((result.path, None) for results in by_learner.values() for result in results[:10])
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
