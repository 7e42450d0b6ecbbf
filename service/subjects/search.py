"""Search, and labels of images."""

from __future__ import annotations

import datetime
import os
import time
from collections import defaultdict
from dataclasses import replace
from typing import Annotated, Any, NotRequired, TypeVar

from fastapi import Form, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.answers import LabelResult
from visterm.pipeline.search.filters import NO_FILTER
from visterm.pipeline.search.label_search import SearchOutcome
from visterm.pipeline.search.queries import Queries
from visterm.pipeline.search.request import OPTIONS, SearchRequest
from visterm.service.batching import MicroBatcher, available_cores
from visterm.service.parts import ServiceParts, listed
from visterm.service.responses import next_offset
from visterm.service.schemas import (
    ColumnsRequest,
    ImageRequest,
    SearchParameters,
    UploadImageRequest,
    UploadSearchRequest,
)
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, Subjects, get, post
from visterm.service.summaries import Columns, ImageSummary

R = TypeVar("R", bound=ImageRequest)
SEARCH_SECONDS = 1.0  # waiting for a thread
BATCH_SIZE = 32  # searches per pass over the gallery
MAX_BATCHED_DEPTH = 200  # searches for more results are not batched
_LISTS = tuple(name for name, option in OPTIONS.items() if option.several)
_UPLOAD = Form(media_type="multipart/form-data")


class SearchResult(ImageSummary):
    """One result of a search."""

    rank: int
    score: Annotated[float, Field(description="Similarity; comparable only within one query and learner")]
    probability: NotRequired[
        Annotated[
            float | None,
            Field(description="That it shares a label with the query, measured on held-out images; null: unknown"),
        ]
    ]
    metric: NotRequired[
        Annotated[int | None, Field(description="The metric that ranks this image, for a learner with several metrics")]
    ]


class SearchResponse(TypedDict):
    """The results of one query."""

    query: str
    key: Annotated[
        str | None,
        Field(description="Key of the query for relevance marks; null for a label, several examples and a region"),
    ]
    upload: NotRequired[Annotated[str | None, Field(description="Hash to search with the uploaded image again")]]
    upload_expires: NotRequired[
        Annotated[str | None, Field(description="When the upload expires unless it is used again")]
    ]
    learner: str
    learned_weight: Annotated[
        float, Field(description="Weight of the learned similarity: 0 is how images look, 1 the learner alone")
    ]
    version: Annotated[str, Field(description="Version of the run that was searched, as in GET /health")]
    seconds: float
    n_searched: int
    next: Annotated[int | None, Field(description="Offset of the results after these; null: these are the last")]
    unlike: Annotated[
        bool, Field(description="Whether the best score is lower than images of the collection usually get")
    ]
    base_rate: Annotated[
        float | None, Field(description="Probability of two images drawn at random; null: none is known")
    ]
    no_probability: Annotated[str | None, Field(description="Why no probability is known")]
    answered_by: NotRequired[
        Annotated[str | None, Field(description="Of a text: the labels that its words name, or the text model")]
    ]
    results: list[SearchResult]


class UploadFields(TypedDict, total=False):
    """Fields of an answer that has an upload."""

    upload: str
    upload_expires: str


class AnnotationResponse(TypedDict):
    """Labels for an image, best first."""

    query: str
    version: str
    labels: list[LabelResult]


class SearchSubject(Subject):
    """Searches; those by id without further options are computed in batches."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        # One core stays free for the event loop.
        self.batcher = MicroBatcher(self.search_batch, max(1, available_cores() - 1), SEARCH_SECONDS, BATCH_SIZE)

    @get("/search", "search")
    async def search(self, request: Annotated[SearchParameters, Query()]) -> list[SearchResponse]:
        """Search with exactly one of: id, path, upload, query_label, text. The URL can be shared."""
        check_one_query(request, "id, path, upload, query_label, text", request.query_label, request.text)
        return [await self._search(request)]

    async def _search(self, parameters: SearchParameters) -> SearchResponse:
        """Search without a file."""
        snapshot, request = self.service.snapshot, parameters.request
        parameters = self._by_id(snapshot, parameters)
        # The first search with a learner makes its index, which may take minutes; searches with others must not wait.
        has_index = snapshot.searcher.has_index(parameters.learner or snapshot.default_learner)
        is_plain = request == SearchRequest(request.k, request.learner, offset=request.offset)
        if parameters.id is not None and has_index and is_plain and request.offset + request.k <= MAX_BATCHED_DEPTH:
            return await self.batcher.run((snapshot, parameters.id, request))
        return await self.service.general_pool.run(self.search_one, snapshot, parameters)

    @get("/search/columns", "search")
    def search_columns(self, request: Annotated[ColumnsRequest, Query()]) -> Columns:
        """Return all results of a search in columns: enough to lay them out. GET /api/images?ids= has the rest."""
        check_one_query(request, "id, path, upload, query_label, text", request.query_label, request.text)
        snapshot = self.service.snapshot
        outcome = self._find(snapshot, self._by_id(snapshot, request), request.request)
        columns: Any = self.service.columns(snapshot, outcome.ranked[0], outcome.request.learner)
        if outcome.answered_by:
            columns["answered_by"] = outcome.answered_by
        if 0 in outcome.probabilities:
            columns["probabilities"] = outcome.probabilities[0]
        return columns | self._upload_fields(request.upload)

    @post("/search", "search", writes=False)
    async def search_upload(self, http: Request, form: Annotated[UploadSearchRequest, _UPLOAD]) -> list[SearchResponse]:
        """Search with exactly one of: an uploaded image (form field file), id, path, upload, query_label, text.

        All but the file may be in form fields or in the URL.
        """
        request = _with_query_string(form, http, SearchParameters)
        names = "id, path, upload, query_label, text, or a file in a POST"
        check_one_query(request, names, request.query_label, request.text, form.file)
        if form.file is None:
            return [await self._search(request)]
        snapshot, name, data = self.service.snapshot, form.file.filename or "", await form.file.read()

        def respond() -> SearchResponse:
            query, stored = self.service.read_upload(snapshot, name, data)
            if request.request.region is not None:
                raise HTTPException(422, "region: upload the picture first, then search with upload=HASH and region=")
            return {**self.search_one(snapshot, request, query), **self._upload_fields(stored)}

        return [await self.service.upload_pool.run(respond)]

    @post("/annotate", "search", writes=False)
    async def annotate(self, http: Request, form: Annotated[UploadImageRequest, _UPLOAD]) -> AnnotationResponse:
        """Find labels, best first, for exactly one of: an uploaded image (multipart field file), id, path, upload.

        All but the file may be in form fields or in the URL.
        """
        request = _with_query_string(form, http, ImageRequest)
        check_one_query(request, "id, path, upload, file", form.file)
        service, snapshot = self.service, self.service.snapshot
        request = self._by_id(snapshot, request)

        def labels(query: Queries) -> AnnotationResponse:
            learner = request.learner
            if learner is not None:
                learner = _annotator(snapshot, learner, "knn")  # which needs no training
            (answer,) = snapshot.searcher.annotate(query, request.k, learner)
            return {"query": answer["query"], "version": snapshot.searcher.version, "labels": answer["labels"]}

        if form.file is None:
            return await service.general_pool.run(lambda: labels(service.query(snapshot, request.id, request.upload)))
        name, data = form.file.filename or "", await form.file.read()
        return await service.upload_pool.run(lambda: labels(service.read_upload(snapshot, name, data)[0]))

    def _by_id(self, snapshot: Snapshot, request: R) -> R:
        """Name the query of a request by its id where it is named by its path."""
        if request.path is None:
            return request
        return request.model_copy(update={"id": self.service.id_of(snapshot, request.path), "path": None})

    def search_one(
        self, snapshot: Snapshot, parameters: SearchParameters, query: Queries | None = None
    ) -> SearchResponse:
        """Search with an uploaded image, or with the query that the parameters name."""
        started = time.perf_counter()
        request = parameters.request
        if _is_open_ended(request):
            request = replace(request, k=request.k + 1)
        (response,) = self._responses(snapshot, self._find(snapshot, parameters, request, query), started)
        return {**response, **self._upload_fields(parameters.upload)}

    def search_batch(self, requests: list[tuple[Snapshot, int, SearchRequest]]) -> list[SearchResponse | Exception]:
        """Search with several ids without filters; errors are returned, not raised."""
        responses: list[Any] = [None] * len(requests)
        groups: dict[tuple[Snapshot, SearchRequest], list[tuple[int, int]]] = defaultdict(list)
        for i, (snapshot, number, request) in enumerate(requests):
            try:
                request = replace(request, learner=self.service.learner(snapshot, request.learner))
                self.service.image(snapshot, number)
            except HTTPException as error:
                responses[i] = error
            else:
                groups[snapshot, request].append((i, snapshot.searcher.place[number]))
        for (snapshot, request), members in groups.items():
            started = time.perf_counter()
            try:
                outcome = snapshot.searcher.find(snapshot.image_queries([row for _, row in members]), request)
            except UserError as error:
                made: list[Any] = [error] * len(members)
            else:
                made = self._responses(snapshot, outcome, started)
            for (i, _), response in zip(members, made, strict=True):
                responses[i] = response
        return responses

    def _find(
        self, snapshot: Snapshot, parameters: SearchParameters, request: SearchRequest, query: Queries | None = None
    ) -> SearchOutcome:
        """Search for the query of a request, or for one that was uploaded."""
        searcher = snapshot.searcher
        if parameters.text is not None:
            if request.learner is not None:
                self.service.learner(snapshot, request.learner)
            return searcher.find_text(parameters.text, request)
        if parameters.query_label is not None:
            if searcher.annotators:  # otherwise by the photos with the label
                request = replace(request, learner=_annotator(snapshot, request.learner))
            return searcher.find_labels([parameters.query_label], request)
        query = query or self.service.query(snapshot, parameters.id, parameters.upload)
        (name,), examples = query.names, []
        for image, weight in request.example:
            kind, _, key = image.partition(":")
            of_collection = kind == "id"
            example = self.service.query(snapshot, int(key) if of_collection else None, None if of_collection else key)
            name += f" {'−' if weight < 0 else '+'} {os.path.basename(example.names[0])}"
            examples.append((example, weight))
        request = replace(request, learner=self.service.learner(snapshot, request.learner), example=tuple(examples))
        return searcher.find(replace(query, names=[name]), request, strict=True)

    def _responses(self, snapshot: Snapshot, outcome: SearchOutcome, started: float) -> list[SearchResponse]:
        """Make the response to each query."""
        request, queries, calibration = outcome.request, outcome.queries, outcome.calibration
        searcher, condition = snapshot.searcher, request.filter
        learner, k = request.learner or snapshot.default_learner, request.k - _is_open_ended(request)
        seconds = round(time.perf_counter() - started, 6)
        rows = range(len(searcher.images)) if condition == NO_FILTER else searcher.gallery.rows_of(condition)
        examples = {row for example, _ in request.example for row in example.rows}
        own = dict(zip(queries.place, queries.rows, strict=True))
        responses: list[SearchResponse] = []
        for i, ranked in outcome.ranked.items():
            known: list[Any] = outcome.probabilities.get(i) or [None] * len(ranked)
            image = queries.images[i] if request.of_whole_images else None
            n_results = len(rows) - sum(row in rows for row in examples | {own.get(i, -1)})  # none is its own result
            if _is_open_ended(request):
                n_results = request.offset + len(ranked)
            plain = image is not None and request.offset == 0 and request.learned_weight is None
            responses.append(
                {
                    "query": queries.names[i],
                    "key": image and image.sha256,
                    "learner": learner,
                    "learned_weight": searcher.share(learner, request.learned_weight),
                    "version": searcher.version,
                    "seconds": seconds,
                    "n_searched": len(rows),
                    "next": None if len(ranked) < k else next_offset(request.offset, k, n_results),
                    "unlike": plain and snapshot.is_unlike(learner, ranked),
                    "base_rate": None if isinstance(calibration, str) else calibration.base_rate,
                    "no_probability": calibration if isinstance(calibration, str) else None,
                    "results": [
                        {
                            "rank": rank,
                            "score": round(score, 6),
                            "probability": probability,
                            **self.service.image_summary(snapshot, row),
                            **snapshot.metric(learner, row),
                        }
                        for rank, ((row, score), probability) in enumerate(
                            zip(ranked[:k], known[:k], strict=True), start=request.offset + 1
                        )
                    ],
                }
            )
            if outcome.answered_by:
                responses[-1]["answered_by"] = outcome.answered_by
        return responses

    def _upload_fields(self, upload: str | None) -> UploadFields:
        """Describe the upload of an answer; without one, there are no fields."""
        if upload is None:
            return {}
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.service.uploads.seconds)
        return {"upload": upload, "upload_expires": expires.isoformat(timespec="seconds")}


def _is_open_ended(request: SearchRequest) -> bool:
    """Whether only one result more than asked for tells if another page follows."""
    return request.exclude_duplicates or request.min_probability is not None


def _annotator(snapshot: Snapshot, name: str | None, *untrained: str) -> str:
    """Return the learner of this name, or else the default one, among those that rank labels."""
    known = list(dict.fromkeys([*snapshot.searcher.annotators, *untrained]))
    if name is not None and name not in known:
        raise HTTPException(
            409, f"{one_line(name)} does not rank labels; learners of this run that do: {listed(known)}"
        )
    return name or snapshot.searcher.default_learner(of_labels=True)


def check_one_query(request: ImageRequest, names: str, *others: Any) -> None:
    """Check that a request has exactly one query."""
    if sum(query is not None for query in (request.id, request.path, request.upload, *others)) != 1:
        raise HTTPException(422, f"give exactly one of: {names}")


def _with_query_string(form: ImageRequest, http: Request, model: type[R]) -> R:
    """Fill fields that are missing in the form from the query string."""
    fields = form.model_dump(include=form.model_fields_set - {"file"})
    parameters: dict[str, Any] = {
        name: value for name, value in http.query_params.items() if name in model.model_fields
    }
    parameters |= {
        name: http.query_params.getlist(name)
        for name in _LISTS
        if name in http.query_params and name in model.model_fields
    }
    try:
        return model.model_validate(parameters | fields)
    except ValidationError as error:
        raise RequestValidationError([e | {"loc": ("query", *e["loc"])} for e in error.errors()]) from None
