"""Compute the responses of the service from a snapshot of the run."""

from __future__ import annotations

import datetime
import functools
import hashlib
import io
import os
import threading
import time
from collections import defaultdict
from typing import Annotated, Any, NotRequired, TypeVar

import numpy as np
from pydantic import Field
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from visterm.features import ImageError, decode_image, printable
from visterm.features.decoding import decode_picture
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import Calibration
from visterm.pipeline.search.examples import Region, combine, parse_example
from visterm.pipeline.search.explanation import Explanation, PairExplanation, explain_with_pixels
from visterm.pipeline.search.explanation_picture import draw_explanation
from visterm.pipeline.search.filters import NO_FILTER, Filter
from visterm.pipeline.search.queries import Queries
from visterm.pipeline.search.rank import rank
from visterm.pipeline.search.searcher import check_probability
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import LEARNER_NAMES
from visterm.pipeline.store.run import Run
from visterm.teaching.teachers import explain_teachers

from . import schemas
from .batching import MicroBatcher, NicePool, Pool, available_cores
from .jobs import Job
from .looks import Looks
from .metadata import without_metadata
from .reloader import SnapshotReloader
from .responses import hide_folders
from .run_folder import RunFolder
from .snapshot import QueryVector, Snapshot
from .summaries import Columns, ImageSummary, Summaries
from .thumbnails import Thumbnails, read_original
from .uploads import Uploads

UPLOAD_BYTES = 32 * 2**20
UPLOAD_PIXELS = 25_000_000  # by default; a photo of 24 megapixels
UPLOAD_SIDE = 1024  # longer side of a decoded upload, unless images of the run are described at a larger size
MAX_UPLOAD_WORKERS = 4  # each may hold an image of UPLOAD_PIXELS
# Waiting for a thread
SEARCH_SECONDS, UPLOAD_SECONDS, UPDATE_SECONDS, OTHER_SECONDS = 1.0, 10.0, 30.0, 10.0
BATCH_SIZE = 32  # searches per pass over the gallery
MAX_BATCHED_DEPTH = 200  # searches for more results are not batched
_BATCHED = {"id", "k", "offset", "learner"}  # parameters of searches that are batched; others are not


J = TypeVar("J", bound=Job)


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
    learned: Annotated[
        float,
        Field(description="How much of what the learner has learned counts, from 0, how images look, to 1"),
    ]
    version: Annotated[str, Field(description="Version of the run that was searched, as in GET /health")]
    seconds: float
    n_searched: int
    unlike: Annotated[
        bool, Field(description="Whether the best score is lower than images of the collection usually get")
    ]
    base_rate: Annotated[
        float | None, Field(description="Probability of two images drawn at random; null: none is known")
    ]
    no_probability: Annotated[str | None, Field(description="Why no probability is known")]
    results: list[SearchResult]


SearchAnswer = SearchResponse | Columns


class UploadFields(TypedDict, total=False):
    """Fields of an answer that has an upload."""

    upload: str
    upload_expires: str


class LabelResult(TypedDict):
    """A label for an image."""

    rank: int
    label: str
    score: float


class AnnotationResponse(TypedDict):
    """Labels for an image, best first."""

    query: str
    version: str
    labels: list[LabelResult]


class TeacherImage(TypedDict):
    """A training image."""

    id: Annotated[int | None, Field(description="null: no longer in the collection")]
    path: str | None
    labels: list[str]
    thumbnail: Annotated[str | None, Field(description="Address, relative to the service's root")]


class TeacherMark(TypedDict):
    """The relevance mark that a teacher comes from."""

    number: int
    time: str


class Teacher(TypedDict):
    """Two training images that learning put together or kept apart."""

    query: Annotated[TeacherImage, Field(description="Like the query")]
    result: Annotated[TeacherImage, Field(description="Like the result")]
    together: Annotated[bool, Field(description="Put together; false: kept apart")]
    like_query: Annotated[float, Field(description="Cosine of its first image and the query")]
    like_result: float
    contribution: Annotated[float, Field(description="To the score")]
    label: Annotated[str | None, Field(description="That both have")]
    mark: TeacherMark | None


class TeachersAnswer(TypedDict):
    """Which training images made a query and a result similar; unlearned + common + learned is the score."""

    learner: str
    query: str
    result: str
    score: float
    unlearned: Annotated[float, Field(description="Score without learning")]
    common: Annotated[float, Field(description="Learned, for every result of the query alike")]
    learned: Annotated[float, Field(description="Learned about this pair: the sum of all teachers")]
    pairs: Annotated[
        list[Teacher],
        Field(description="Those that raise the score, then those that lower it, the strongest first"),
    ]
    rest: Annotated[float, Field(description="Sum of the contributions that are not listed")]
    n_rest: int


class ExplanationAnswer(Explanation):
    """Why a query and a result match."""

    teachers: NotRequired[Annotated[TeachersAnswer | None, Field(description="If asked for")]]
    no_teachers: NotRequired[Annotated[str | None, Field(description="Why there are none")]]
    version: str


class RequestHandlers:
    """The parts that requests share, and the functions that compute responses.

    A request takes the `snapshot` once and uses it throughout. Work of more than a millisecond runs in threads with one
    of five queues, so that short work never waits behind long work: searches by id, thumbnails, uploads, updates of
    learners (one after the other) and everything else. A request that waits for too long is refused.

    See `create_app` for `upload_pixels` and `keep_metadata`.
    """

    def __init__(
        self,
        run: Run,
        *,
        upload_pixels: int = UPLOAD_PIXELS,
        keep_metadata: bool = False,
        overview: bool = False,
        fetch_urls: bool = False,
    ):
        self.run, self.most_upload_pixels, self.keep_metadata = run, upload_pixels, keep_metadata
        self.fetch_urls, self.keep_overview = fetch_urls, overview
        self._jobs: list[Job] = []
        self.reloader = SnapshotReloader(run)
        self.run_folder = RunFolder(run)
        folder = run.folder / "service"
        self.uploads = Uploads(folder / "uploads")
        self.thumbnails = Thumbnails(folder / "thumbnails.sqlite")
        self.looks = Looks(folder / "looks.sqlite")
        summaries = Summaries(self.looks, self.thumbnails)
        self.image_summary, self.columns = summaries.summary, summaries.columns
        # One core stays free for the event loop.
        self.search_batcher = MicroBatcher(self.search_batch, max(1, available_cores() - 1), SEARCH_SECONDS, BATCH_SIZE)
        self.thumbnail_pool = NicePool(available_cores(), OTHER_SECONDS)
        self.upload_pool = NicePool(min(MAX_UPLOAD_WORKERS, max(1, available_cores() // 2)), UPLOAD_SECONDS)
        self.update_pool = Pool(1, UPDATE_SECONDS)
        self.general_pool = Pool(available_cores(), OTHER_SECONDS)
        self._drawing = threading.Lock()  # Matplotlib is not thread-safe

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot in use; take it once per request."""
        return self.reloader.snapshot

    def add_job(self, job: J) -> J:
        """Let a job know when images change and when the service ends."""
        self._jobs.append(job)
        return job

    def image(self, snapshot: Snapshot, number: int) -> Image:
        """Return an image of the collection by id."""
        try:
            return snapshot.image(number)
        except KeyError:
            raise HTTPException(404, f"no image {number} in this collection; it may have been removed") from None

    def public(self, text: str) -> str:
        """Return the text of an error on one line, without the folders that paths in it lie in."""
        folders = self.run.folder.parent, self.snapshot.searcher.root
        return hide_folders(one_line(text), *folders)

    def max_pixels(self, snapshot: Snapshot) -> int:
        """Return the limit of an upload in pixels."""
        return min(self.most_upload_pixels, snapshot.searcher.config.collection.max_pixels)

    def query(self, snapshot: Snapshot, number: int | None, upload: str | None) -> QueryVector:
        """Return the query for an image id or the hash of an upload."""
        if number is not None:
            self.image(snapshot, number)
            return snapshot.image_query(number)
        assert upload is not None
        return snapshot.pixels_query("upload", upload, lambda: self.upload_pixels(upload))

    def read_upload(self, snapshot: Snapshot, name: str, data: bytes) -> tuple[QueryVector, bool]:
        """Decode and store an uploaded image; return the query, and whether the image could be stored."""
        key = hashlib.sha256(data).hexdigest()
        side = getattr(snapshot.searcher.extractor, "max_side", UPLOAD_SIDE)  # None: images are not scaled down
        side = None if side is None else max(side, UPLOAD_SIDE)
        try:
            pixels = decode_picture(data, name, max_side=side, max_pixels=self.max_pixels(snapshot)).pixels
        except ImageError as error:
            status = 413 if error.reason.startswith("too large") else 415
            named = printable(name) if name else "the upload"
            raise HTTPException(
                status, f"{named}: {error.reason}; upload a JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP or TIFF image"
            ) from None
        query = snapshot.pixels_query(name or "upload", key, lambda: pixels)
        return query, self.run_folder.is_in_place() and self.uploads.add(key, pixels)

    def original(self, snapshot: Snapshot, image: Image) -> bytes:
        """Return the file of an image, without its metadata unless they are kept."""
        data = read_original(snapshot.searcher.root, image)
        if self.keep_metadata:
            return data
        return without_metadata(data, image.path, snapshot.searcher.config.collection.max_pixels)

    def upload_png(self, key: str) -> bytes:
        """Return the PNG of an upload."""
        data = self.uploads.read(key)
        if data is None:
            raise HTTPException(404, "this upload has expired or does not exist; upload the picture again")
        return data

    def upload_pixels(self, key: str) -> np.ndarray:
        """Return the RGB pixels of an upload."""
        return decode_image(self.upload_png(key), key)

    def learner(self, snapshot: Snapshot, name: str | None) -> str:
        """Return the learner of this name, or else the default one."""
        if name is None:
            return snapshot.default_learner
        available = f"this run has {_listed(snapshot.searcher.learners)}"
        if name not in LEARNER_NAMES:
            raise HTTPException(404, f"unknown learner {one_line(name)}; {available}")
        if name not in snapshot.searcher.learners:
            raise HTTPException(409, f"{name} is not trained for the current images; {available}")
        return name

    def annotator(self, snapshot: Snapshot, name: str | None) -> str:
        """Return the learner of this name, or else the default one, among those that rank labels."""
        annotators = snapshot.searcher.annotators
        if name is not None and name not in annotators:
            raise HTTPException(
                409, f"{one_line(name)} does not rank labels; learners of this run that do: {_listed(annotators)}"
            )
        if not annotators:
            raise HTTPException(
                409,
                "no learner of this run ranks labels; train one: "
                f"visterm train --learner wsabie --run {snapshot.searcher.run.name}",
            )
        return name or snapshot.searcher.default_learner(of_labels=True)

    async def search(self, snapshot: Snapshot, request: schemas.SearchRequest) -> SearchAnswer:
        """Compute the answer for a request without a file."""
        # The first search with a learner makes its index, which may take minutes; searches with others must not wait.
        has_index = snapshot.searcher.has_index(request.learner or snapshot.default_learner)
        is_plain = request.model_dump(exclude_defaults=True).keys() <= _BATCHED
        if request.id is not None and has_index and is_plain and request.offset + request.k <= MAX_BATCHED_DEPTH:
            return await self.search_batcher.run((snapshot, request))
        return await self.general_pool.run(self.search_one, snapshot, request)

    def search_one(self, snapshot: Snapshot, request: schemas.SearchRequest) -> SearchAnswer:
        """Compute the answer for one request without a file."""
        if request.query_label is not None:
            return self.search_label(snapshot, request)
        query = self.query(snapshot, request.id, request.upload)
        answer: Any = self.search_query(snapshot, request, query)
        return answer | self.upload_fields(request.upload)

    def search_query(self, snapshot: Snapshot, request: schemas.SearchRequest, query: QueryVector) -> SearchAnswer:
        """Compute the answer for an image."""
        query = self._refined(snapshot, query, request)
        started = time.perf_counter()
        learner = self.learner(snapshot, request.learner)
        calibration = _calibration(snapshot, request, learner)
        if request.min_probability is not None:
            check_probability(request.min_probability, learner, calibration)
        (ranked,) = rank(
            snapshot.searcher,
            query.Q,
            [query.row],
            request.k,
            learner,
            learned=request.learned,
            offset=request.offset,
            wanted=snapshot.searcher.filter(**request.filter_options()),
            skipped=query.others,
            contents=[query.key] if request.exclude_duplicates else None,
        )
        if request.min_probability is not None and not isinstance(calibration, str):
            likely = calibration.of([score for _, score in ranked]) >= request.min_probability
            ranked = [result for result, kept in zip(ranked, likely, strict=True) if kept]
        return self._search_response(snapshot, request, query.name, query.key or None, learner, ranked, started)

    def _refined(self, snapshot: Snapshot, query: QueryVector, request: schemas.SearchRequest) -> QueryVector:
        """Return the query of a request: the region of its image that it names, and the sum with its examples."""
        if request.region is not None:
            region = Region.of(request.region)
            if request.upload is not None:
                query = snapshot.region_query(query, region, functools.partial(self.upload_pixels, request.upload))
            else:
                file = os.path.join(snapshot.searcher.root, snapshot.searcher.images[query.row].path)
                query = snapshot.region_query(query, region, lambda: file)
        if not request.example and request.weight == 1:
            return query
        vectors, weights, names, rows = [query.Q], [request.weight], [query.name], set()
        for example in request.example:
            image, weight = parse_example(example)
            kind, _, name = image.partition(":")
            other = self.query(snapshot, int(name), None) if kind == "id" else self.query(snapshot, None, name)
            vectors.append(other.Q)
            weights.append(max(-schemas.MAX_WEIGHT, min(weight, schemas.MAX_WEIGHT)))
            names.append(f"{'−' if weight < 0 else '+'} {os.path.basename(other.name)}")
            rows.add(other.row)
        return QueryVector(" ".join(names), "", combine(vectors, weights), query.row, frozenset(rows - {-1}))

    def search_batch(self, requests: list[tuple[Snapshot, schemas.SearchRequest]]) -> list[SearchAnswer | Exception]:
        """Compute `search_query` for several ids without filters; errors are returned, not raised."""
        responses: list[Any] = [None] * len(requests)
        groups: dict[tuple[Snapshot, str, int], list[tuple[int, int]]] = defaultdict(list)
        for i, (snapshot, request) in enumerate(requests):
            try:
                learner = self.learner(snapshot, request.learner)
                row = self.query(snapshot, request.id, None).row
            except HTTPException as error:
                responses[i] = error
            else:
                groups[snapshot, learner, request.offset + request.k].append((i, row))
        for (snapshot, learner, depth), members in groups.items():
            started, rows = time.perf_counter(), [row for _, row in members]
            try:
                rankings = rank(snapshot.searcher, snapshot.searcher.X[rows], rows, depth, learner)
            except UserError as error:
                for i, _ in members:
                    responses[i] = error
                continue
            for (i, row), ranked in zip(members, rankings, strict=True):
                image, request = snapshot.searcher.images[row], requests[i][1]
                responses[i] = self._search_response(
                    snapshot, request, image.path, image.sha256, learner, ranked[request.offset :], started
                )
        return responses

    def search_label(self, snapshot: Snapshot, request: schemas.SearchRequest) -> SearchAnswer:
        """Compute the answer for a label."""
        started = time.perf_counter()
        assert request.query_label is not None
        learner = self.annotator(snapshot, request.learner)
        if request.min_probability is not None:
            check_probability(request.min_probability, learner, _calibration(snapshot, request, learner))
        (answer,) = snapshot.searcher.search_label(
            request.query_label,
            request.k,
            learner,
            offset=request.offset,
            **request.filter_options(),
        )
        ranked = [(snapshot.searcher.place[result["id"]], result["score"]) for result in answer["results"]]
        return self._search_response(snapshot, request, request.query_label, None, learner, ranked, started)

    def _search_response(
        self,
        snapshot: Snapshot,
        request: schemas.SearchRequest,
        name: str,
        key: str | None,
        learner: str,
        ranked: list[tuple[int, float]],
        started: float,
    ) -> SearchAnswer:
        unlike = (
            key is not None and request.offset == 0 and request.learned is None and snapshot.is_unlike(learner, ranked)
        )
        calibration = _calibration(snapshot, request, learner)
        known: list[Any] = [None] * len(ranked)
        if not isinstance(calibration, str):
            known = calibration.of([score for _, score in ranked]).tolist()
        if isinstance(request, schemas.ColumnsRequest):
            columns = self.columns(snapshot, ranked, learner)
            if not isinstance(calibration, str):
                columns["probabilities"] = known
            return columns
        gallery, wanted = snapshot.searcher.gallery, Filter.of(**request.filter_options())
        return {
            "query": name,
            "key": key,
            "learner": learner,
            "learned": snapshot.searcher.share(learner, request.learned),
            "version": snapshot.searcher.version,
            "seconds": round(time.perf_counter() - started, 6),
            "n_searched": len(gallery.images) if wanted == NO_FILTER else len(gallery.rows_of(wanted)),
            "unlike": unlike,
            "base_rate": None if isinstance(calibration, str) else calibration.base_rate,
            "no_probability": calibration if isinstance(calibration, str) else None,
            "results": [
                {
                    "rank": rank,
                    "score": round(score, 6),
                    "probability": probability,
                    **self.image_summary(snapshot, row),
                    **snapshot.metric(learner, row),
                }
                for rank, ((row, score), probability) in enumerate(
                    zip(ranked, known, strict=True), start=request.offset + 1
                )
            ],
        }

    def upload_fields(self, upload: str | None) -> UploadFields:
        """Describe the upload of an answer; without one, there are no fields."""
        if upload is None:
            return {}
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.uploads.seconds)
        return {"upload": upload, "upload_expires": expires.isoformat(timespec="seconds")}

    def annotate(self, snapshot: Snapshot, request: schemas.ImageRequest, query: QueryVector) -> AnnotationResponse:
        """Compute the labels for an image."""
        learner = request.learner
        if learner not in (None, "knn"):  # which needs no training
            learner = self.annotator(snapshot, learner)
        queries = Queries([query.name], query.Q, [0], [query.row], {}, [None])
        labels = snapshot.searcher.annotate(queries, request.k, learner)[0]["labels"]
        return {"query": query.name, "version": snapshot.searcher.version, "labels": labels}

    def explain(
        self,
        snapshot: Snapshot,
        number: int | None,
        upload: str | None,
        result: int,
        learner: str | None,
        learned: float | None = None,
        n_teachers: int = 0,
    ) -> PairExplanation:
        """Explain the score of a result for a query, given by id or by the hash of an upload."""
        learner = self.learner(snapshot, learner)
        for image_id in (number, result):
            if image_id is not None:
                self.image(snapshot, image_id)
        query = number if upload is None else self.upload_pixels(upload)
        explanation = explain_with_pixels(snapshot.searcher, query, result, learner, learned=learned)
        answer: Any = explanation.data
        if n_teachers:
            answer |= self.teachers(snapshot, query, result, learner, learned, n_teachers)
        if upload is not None:
            answer["query"]["name"] = "upload"
        answer["version"] = snapshot.searcher.version
        return explanation

    def teachers(
        self, snapshot: Snapshot, query: Any, result: int, learner: str, learned: float | None, n_teachers: int
    ) -> dict[str, TeachersAnswer | str | None]:
        """Explain a score by training images; with the reason where the learner has no table of them."""
        try:
            made: Any = explain_teachers(
                snapshot.searcher, query, result, learner, learned=learned, n_teachers=n_teachers
            )
        except UserError as error:
            return {"teachers": None, "no_teachers": str(error)}
        for image in (one[side] for one in made["pairs"] for side in ("query", "result")):
            row = snapshot.searcher.place.get(image["id"])
            image["thumbnail"] = None if row is None else self.image_summary(snapshot, row)["thumbnail"]
        return {"teachers": made}

    def draw(self, explanation: PairExplanation) -> bytes:
        """Draw an explanation as PNG."""
        file = io.BytesIO()
        with self._drawing:
            draw_explanation(*explanation, file)
        return file.getvalue()

    def start(self) -> None:
        """Start checking the run for changes."""
        self.reloader.start(self.clean_up)

    def clean_up(self, snapshot: Snapshot) -> None:
        """Remove expired uploads and thumbnails of removed images; read the looks of new ones."""
        self.uploads.sweep()
        self.thumbnails.sweep(snapshot.searcher.images)
        self.looks.follow(snapshot)
        for job in self._jobs:
            job.images_changed(snapshot)

    def close(self) -> None:
        """Stop checking the run and close the files."""
        self.reloader.stop()
        self.upload_pool.close()
        self.thumbnail_pool.close()
        self.looks.close()
        for job in self._jobs:
            job.stop()
        self.thumbnails.close()
        self.run_folder.close()


def _calibration(snapshot: Snapshot, request: schemas.SearchRequest, learner: str) -> Calibration | str:
    """How the scores of a request become probabilities, or why they do not; see `Searcher.calibration`."""
    is_plain = request.query_label is None and request.region is None and not request.example and request.weight == 1
    return snapshot.searcher.calibration(learner, request.learned, is_plain=is_plain)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
