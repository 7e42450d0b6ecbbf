"""Results of a search, as rows for people; a notebook shows answers and images of a run as pictures."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from visterm.pipeline.console import one_line

QUERIES_SHOWN, RESULTS_SHOWN = 20, 20  # a notebook keeps what it shows
IMAGES_SHOWN = 100


class ImageRow(TypedDict):
    """An image of the run; `labels` in alphabetical order."""

    id: int
    path: str
    labels: list[str]


class ResultRow(ImageRow):
    """A result of a search: `probability` where it is known, `fields` where the filter is about fields."""

    rank: int
    score: float
    probability: NotRequired[float]
    fields: NotRequired[dict[str, str]]


class LabelResult(TypedDict):
    """A label for an image."""

    rank: int
    label: str
    score: float


class Answer(TypedDict):
    """The results of a query, best first; none, and `error`, where the query could not be read."""

    query: str
    results: list[ResultRow]
    error: NotRequired[str]


class LabelAnswer(TypedDict):
    """The labels of a query, best first; none, and `error`, where the query could not be read."""

    query: str
    labels: list[LabelResult]
    error: NotRequired[str]


class Answers(list[Answer]):
    """A list of answers, as `Searcher.search` describes them. Notebooks show a row of pictures with scores for each."""

    def __init__(self, answers: Iterable[Answer], root: Path, max_pixels: int) -> None:
        super().__init__(answers)
        self._root, self._max_pixels = root, max_pixels

    def _repr_html_(self) -> str:
        thumbnails = _thumbnails(self._max_pixels)
        rows = []
        for answer in self[:QUERIES_SHOWN]:
            rows.append(f"<p><b>{_text(answer['query'])}</b> {_text(answer.get('error', ''))}</p>")
            rows.append(_row(_figure(self._root, result, thumbnails) for result in answer["results"][:RESULTS_SHOWN]))
        if len(self) > QUERIES_SHOWN:
            rows.append(f"<p>and {len(self) - QUERIES_SHOWN:,} more queries</p>")
        return "".join(rows)


class Pictures(list[ImageRow]):
    """A list of images, as `Searcher.show` describes them. Notebooks show their pictures."""

    def __init__(self, images: Iterable[ImageRow], root: Path, max_pixels: int) -> None:
        super().__init__(images)
        self._root, self._max_pixels = root, max_pixels

    def _repr_html_(self) -> str:
        thumbnails = _thumbnails(self._max_pixels)
        more = f"<p>and {len(self) - IMAGES_SHOWN:,} more images</p>" if len(self) > IMAGES_SHOWN else ""
        return _row(_figure(self._root, image, thumbnails) for image in self[:IMAGES_SHOWN]) + more


def _thumbnails(max_pixels: int) -> Any:
    from visterm.features import read_image
    from visterm.pipeline.report.page import InlineThumbnails

    return InlineThumbnails(lambda file: read_image(file, max_pixels=max_pixels))


def _row(figures: Iterable[str]) -> str:
    return f'<div style="display: flex; flex-wrap: wrap; gap: 8px">{"".join(figures)}</div>'


def _figure(root: Path, shown: Mapping[str, Any], thumbnails: Any) -> str:
    """A picture of an image or of a result, which has a score, over its caption."""
    picture = thumbnails[os.path.join(root, shown["path"])]
    path = _text(shown["path"])
    image = "file gone" if picture is None else f'<img src="{picture["uri"]}" alt="{path}" style="height: 96px">'
    first = f"{shown['score']:.3f}" if "score" in shown else f"id:{shown['id']}"
    caption = " · ".join([first, *map(_text, shown["labels"])])
    return f'<figure style="margin: 0" title="{path}">{image}<figcaption>{caption}</figcaption></figure>'


def _text(text: str) -> str:
    return html.escape(one_line(text))
