"""Copies across training and test: test images whose picture is among the training ones, re-encoded, resized, mirrored.

Figures of such images say how well copies are recognized. Candidates are the nearest training images by cosine, which
agree by two small versions, one of 8 x 8 coloured cells and a grey one. So do different things on one ground;
`same_at_all_sizes` decides, as for the duplicates of the page.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from visterm.features import ImageError, read_picture
from visterm.features.decoding import Picture
from visterm.learners import Cosine
from visterm.pipeline.console import count
from visterm.pipeline.report.text import number_text
from visterm.pipeline.store.images import Image
from visterm.retrieval import Evaluation, ExactIndex

from .same_picture import same_at_all_sizes

MOST_QUERIES = 1_000  # that are compared, as images must be read: 4 seconds of small photos, a minute of 12 megapixels
_NEAREST = 3  # training images by cosine
_LEAST_COSINE = 0.2
_SIDE, _CELLS, _FINE = 64, 8, 32  # pixels that are read; of the coloured version and the grey one, per side
_TOLERANCE = 4.0  # levels: largest root mean square difference of the cells
_CORRELATION, _FLAT = 0.9, 2.0  # smallest one of the grey versions; levels of deviation below which it says nothing
_RATIO = 0.03  # of width by height, by which two copies differ at most
_Small = tuple[np.ndarray, np.ndarray, float]  # cells, grey version, and width by height of a picture


class Copies(NamedTuple):
    """Test images that have a copy among the training ones."""

    pairs: dict[int, int]  # row of the test image -> row of the training image
    n_compared: int  # test images that were looked at
    n_queries: int

    def as_json(self, systems: dict[str, Evaluation]) -> dict[str, Any]:
        """Return the numbers, and mAP without these queries, as in metrics.json."""
        without = {name: self.map_without(evaluation) for name, evaluation in systems.items()}
        return {"n": len(self.pairs), "n_compared": self.n_compared, "map_without": without}

    def map_without(self, evaluation: Evaluation) -> float | None:
        """Return the mAP of the other queries; None if there are none."""
        kept = np.delete(evaluation.average_precision, list(self.pairs))
        kept = kept[~np.isnan(kept)]
        return float(kept.mean()) if len(kept) else None

    def in_words(self, systems: dict[str, Evaluation], queries: Sequence[Image], train: Sequence[Image]) -> str:
        """Return the warning for readers of the report."""
        row, original = next(iter(self.pairs.items()))
        changes = [
            f"{without}, not {whole} ({name})"
            for name, evaluation in systems.items()
            if (without := number_text(self.map_without(evaluation)))
            != (whole := number_text(evaluation.mean_average_precision))
        ]
        is_left = any(self.map_without(evaluation) is not None for evaluation in systems.values())
        has = "has" if len(self.pairs) == 1 else "have"
        return (
            f"{count(len(self.pairs), 'test image')} of {self.n_compared:,}"
            + (" looked at" if self.n_compared < self.n_queries else "")
            + f" {has} a copy among the training images, such as {queries[row].path} and {train[original].path}: "
            + (
                f"without them mAP is {'; '.join(changes) or 'the same'}"
                if is_left
                else "without them no query is left"
            )
        )


def find_copies(
    root: Path, queries: Sequence[Image], train: Sequence[Image], Q: Any, X: Any, max_pixels: int
) -> Copies:
    """Find the test images that have a copy among the training ones; Q and X are their vectors.

    Equal files always count. Of many test images, `MOST_QUERIES` are compared with others: images that cannot be read
    have no copy.
    """
    known = {image.sha256: row for row, image in reversed(list(enumerate(train)))}
    pairs = {row: known[image.sha256] for row, image in enumerate(queries) if image.sha256 in known}
    rows = np.arange(len(queries))
    if len(rows) > MOST_QUERIES:
        rows = np.unique(np.linspace(0, len(rows) - 1, MOST_QUERIES).astype(np.intp))
        pairs = {row: pairs[row] for row in rows.tolist() if row in pairs}
    rest = [row for row in rows.tolist() if row not in pairs]
    if not rest or not len(train):
        return Copies(pairs, len(rows), len(queries))
    ranking = ExactIndex(Cosine().fit(X[:1]), X).search(Q[np.array(rest)], k=min(_NEAREST, len(train)))

    def read(path: str, side: int) -> Picture:
        return read_picture(root / path, max_side=side, max_pixels=max_pixels)

    @cache
    def small(path: str) -> _Small | None:
        with contextlib.suppress(ImageError):
            pixels, height, width = read(path, _SIDE)
            fine = cv2.resize(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (_FINE, _FINE), interpolation=cv2.INTER_AREA)
            cells = cv2.resize(pixels, (_CELLS, _CELLS), interpolation=cv2.INTER_AREA)
            return cells.astype(np.float32), fine.astype(np.float32), width / height
        return None

    def both(query: str, trained: str, turned: bool, side: int) -> tuple[np.ndarray, np.ndarray]:
        one, other = (read(path, side).pixels for path in (query, trained))
        return np.ascontiguousarray(one[:, ::-1]) if turned else one, other

    def copy_of(place: int) -> int | None:
        one = small(queries[rest[place]].path)
        for row, score in zip(ranking.indices[place].tolist(), ranking.scores[place].tolist(), strict=True):
            other = small(train[row].path) if one is not None and score >= _LEAST_COSINE else None
            if one is None or other is None:
                continue
            for turned in (False, True):
                pictures = partial(both, queries[rest[place]].path, train[row].path, turned)
                if _same(_mirrored(one) if turned else one, other) and same_at_all_sizes(pictures):
                    return row
        return None

    with ThreadPoolExecutor(4) as pool:
        for row, original in zip(rest, pool.map(copy_of, range(len(rest))), strict=True):
            if original is not None:
                pairs[row] = original
    return Copies(dict(sorted(pairs.items())), len(rows), len(queries))


def _mirrored(one: _Small) -> _Small:
    return one[0][:, ::-1], one[1][:, ::-1], one[2]


def _same(one: _Small, other: _Small) -> bool:
    """Whether two pictures, by their cells, grey versions and ratios, show the same."""
    if abs(np.log(one[2] / other[2])) >= _RATIO or ((one[0] - other[0]) ** 2).mean() > _TOLERANCE**2:
        return False
    a, b = one[1] - one[1].mean(), other[1] - other[1].mean()
    deviations = np.sqrt((a**2).mean() * (b**2).mean())
    return bool(min(a.std(), b.std()) >= _FLAT and (a * b).mean() >= _CORRELATION * deviations)
