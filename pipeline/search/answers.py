"""The answers of a search, which a notebook shows as pictures."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

from visterm.pipeline.console import one_line

QUERIES_SHOWN, RESULTS_SHOWN = 20, 20  # a notebook keeps what it shows


class Answers(list[dict[str, Any]]):
    """A list of answers, as `Searcher.search` describes them. Notebooks show a row of pictures with scores for each."""

    def __init__(self, answers: list[dict[str, Any]], root: Path, max_pixels: int) -> None:
        super().__init__(answers)
        self._root, self._max_pixels = root, max_pixels

    def _repr_html_(self) -> str:
        from visterm.features import read_image
        from visterm.pipeline.report.page import InlineThumbnails

        thumbnails = InlineThumbnails(lambda file: read_image(file, max_pixels=self._max_pixels))
        rows = []
        for answer in self[:QUERIES_SHOWN]:
            rows.append(f"<p><b>{_text(answer['query'])}</b> {_text(answer.get('error', ''))}</p>")
            figures = "".join(self._figure(result, thumbnails) for result in answer["results"][:RESULTS_SHOWN])
            rows.append(f'<div style="display: flex; flex-wrap: wrap; gap: 8px">{figures}</div>')
        if len(self) > QUERIES_SHOWN:
            rows.append(f"<p>and {len(self) - QUERIES_SHOWN:,} more queries</p>")
        return "".join(rows)

    def _figure(self, result: dict[str, Any], thumbnails: Any) -> str:
        picture = thumbnails[os.path.join(self._root, result["path"])]
        path = _text(result["path"])
        image = "file gone" if picture is None else f'<img src="{picture["uri"]}" alt="{path}" style="height: 96px">'
        caption = " · ".join([f"{result['score']:.3f}", *map(_text, result["labels"])])
        return f'<figure style="margin: 0" title="{path}">{image}<figcaption>{caption}</figcaption></figure>'


def _text(text: str) -> str:
    return html.escape(one_line(text))
