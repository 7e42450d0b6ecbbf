"""The answers to a search as one self-contained HTML page: each query at the left, its results in rank order.

The page loads nothing. Pictures are small copies, each stored once; links lead to the files themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote

from visterm.pipeline.console import count
from visterm.pipeline.store.files import write_bytes

if TYPE_CHECKING:
    from visterm.pipeline.report.page import InlineThumbnails
    from visterm.pipeline.search.searcher import Searcher


PICTURES = 900  # on one page: some 4 MB
RESULTS_SHOWN = 100  # of one query


def write_results_page(
    file: Path, searcher: Searcher, answers: Sequence[Mapping[str, Any]], *, learner: str, of_labels: bool = False
) -> None:
    """Write the answers of `Searcher.search` or `Searcher.search_label` as a page.

    It shows at most some 900 different pictures and 5 MB, and says how many queries it skips.
    """
    from visterm.features import read_image
    from visterm.pipeline.report.page import SIZE_WANTED, InlineThumbnails

    thumbnails = InlineThumbnails(lambda path: read_image(path, max_pixels=searcher.config.collection.max_pixels))
    queries = [_query(searcher, answer, file, of_labels) for answer in answers if "error" not in answer]
    shown = _as_many_as_fit(queries)
    page = _render(searcher, answers, queries[:shown], thumbnails, learner)
    while len(page) > SIZE_WANTED and shown > 1:
        shown //= 2
        page = _render(searcher, answers, queries[:shown], thumbnails, learner)
    write_bytes(file, page)


class _QueryOnPage(TypedDict):
    name: str
    file: str | None
    link: str | None
    results: list[dict[str, Any]]  # as of the answer, with file and link
    n_results: int


def _query(searcher: Searcher, answer: Mapping[str, Any], page: Path, of_labels: bool) -> _QueryOnPage:
    name = answer["query"]
    file = None
    if not of_labels:
        row = searcher.row_named(name)
        file = os.path.abspath(name if row is None else searcher.root / searcher.images[row].path)
    results = []
    for result in answer["results"][:RESULTS_SHOWN]:
        original = os.path.join(searcher.root, result["path"])
        results.append({**result, "file": original, "link": _link(original, page)})
    return {
        "name": name,
        "file": file,
        "link": file and _link(file, page),
        "results": results,
        "n_results": len(answer["results"]),
    }


def _link(file: str, page: Path) -> str:
    """Address of a file as seen from the page: relative, so that no name of a file is taken for another scheme."""
    return quote(os.fsencode(os.path.relpath(file, page.absolute().parent)))


def _as_many_as_fit(queries: Sequence[_QueryOnPage]) -> int:
    """How many queries have no more than PICTURES different pictures; at least one."""
    pictures: set[str] = set()
    for n, query in enumerate(queries):
        pictures.update(_files(query))
        if len(pictures) > PICTURES:
            return max(1, n)
    return len(queries)


def _files(query: _QueryOnPage) -> list[str]:
    return [file for file in (query["file"], *(result["file"] for result in query["results"])) if file]


def _render(
    searcher: Searcher,
    answers: Sequence[Mapping[str, Any]],
    queries: list[_QueryOnPage],
    thumbnails: InlineThumbnails,
    learner: str,
) -> bytes:
    from visterm.pipeline.report.page import template

    names = [answer["query"] for answer in answers]
    html = template("results_page.html.jinja", __package__).render(
        title=f"Nearest to {names[0] if len(names) == 1 else count(len(names), 'query')}",
        run=searcher.run.name,
        learner=learner,
        n_images=len(searcher.images),
        queries=queries,
        n_left_out=sum("error" not in answer for answer in answers) - len(queries),
        errors=[answer for answer in answers if "error" in answer],
        thumbnails={file: thumbnails[file] for query in queries for file in _files(query)},
        count=count,
    )
    # A name that is no UTF-8 was made printable; whatever else slipped through must not stop the page.
    return html.encode("utf-8", "backslashreplace")
