"""Read the filters and the further examples of a search request."""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

import numpy as np
from starlette.exceptions import HTTPException

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.examples import Region, combine
from visterm.pipeline.search.filters import Filter

from . import schemas
from .snapshot import QueryVector, Snapshot


class Images(Protocol):
    """What gives the query of an image and the pixels of an upload."""

    def query(self, snapshot: Snapshot, number: int | None, upload: str | None) -> QueryVector:
        """Return the query for an image id or the hash of an upload."""

    def upload_pixels(self, key: str) -> np.ndarray:
        """Return the RGB pixels of an upload."""


class Example(NamedTuple):
    """An image that is added to a query: its id or the hash of an upload, and its weight."""

    id: int | None
    upload: str | None
    weight: float


def parse_example(text: str) -> Example:
    """Read ``id:12@-0.5`` or ``upload:HASH``, which the schema has checked."""
    image, _, weight = text.partition("@")
    kind, _, name = image.partition(":")
    value = max(-float(schemas.MAX_WEIGHT), min(float(weight or 1), float(schemas.MAX_WEIGHT)))
    return Example(int(name), None, value) if kind == "id" else Example(None, name, value)


def filter_of(request: schemas.SearchRequest) -> Filter:
    """Return the filter of a request."""
    return Filter(tuple(request.label), tuple(request.not_label), request.folder or None)


def check_filter(snapshot: Snapshot, request: schemas.SearchRequest) -> None:
    """Refuse labels that no image has."""
    for label in (*request.label, *request.not_label):
        if label not in snapshot.labels:
            raise HTTPException(404, f"no image has the label {one_line(label)[:200]!r}")


def with_examples(
    images: Images, snapshot: Snapshot, query: QueryVector, request: schemas.SearchRequest
) -> QueryVector:
    """Return the query of a request: a region of its first image, if it names one, and the sum with its examples."""
    if request.region is not None:
        query = _region(images, snapshot, query, request)
    if not request.example and request.weight == 1:
        return query
    vectors, weights, names, rows = [query.Q], [request.weight], [query.name], set()
    for example in map(parse_example, request.example):
        other = images.query(snapshot, example.id, example.upload)
        vectors.append(other.Q)
        weights.append(example.weight)
        names.append(f"{'−' if example.weight < 0 else '+'} {os.path.basename(other.name)}")
        rows.add(other.row)
    try:
        Q = combine(vectors, weights)
    except UserError as error:
        raise HTTPException(422, str(error)) from None
    return QueryVector(" ".join(names), "", Q, query.row, frozenset(rows - {-1}))


def _region(images: Images, snapshot: Snapshot, query: QueryVector, request: schemas.SearchRequest) -> QueryVector:
    assert request.region is not None
    searcher, upload = snapshot.searcher, request.upload
    try:
        region = Region.of([float(part) for part in request.region.split(",")])
        if upload is not None:
            return snapshot.region_query(query, region, lambda: images.upload_pixels(upload))
        file = os.path.join(searcher.root, searcher.images[query.row].path)
        return snapshot.region_query(query, region, lambda: file)
    except UserError as error:
        raise HTTPException(422, str(error)) from None
