"""What the service answers: questions to a snapshot of the run, with what was uploaded and what pictures look like."""

from __future__ import annotations

import datetime
import hashlib
import io
import logging
import threading
import time
from collections import defaultdict
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy import sparse
from starlette.exceptions import HTTPException

from visterm.features import ImageError, decode_image, printable
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.feedback.update import FeedbackTrainer
from visterm.pipeline.search.explanation import PairExplanation, explain_with_pixels
from visterm.pipeline.search.explanation_picture import draw_explanation
from visterm.pipeline.search.labels import UnknownLabel
from visterm.pipeline.search.queries import Queries
from visterm.pipeline.store.models import RANKERS
from visterm.pipeline.store.run import Run

from . import schemas as api
from .batching import MicroBatcher, Pool, cores
from .reloader import SnapshotReloader
from .snapshot import QueryVector, Snapshot
from .thumbnails import Thumbnails
from .uploads import Uploads

_log = logging.getLogger(__name__)
UPLOAD_BYTES = 32 * 2**20
UPLOAD_PIXELS = 50_000_000
SEARCHES_WAITING, PICTURES_WAITING, LESSONS_WAITING, OTHERS_WAITING = 256, 256, 8, 64
AT_ONCE = 32  # queries that one pass over the gallery serves
SHALLOW = 200  # results, up to which searches are answered together
TOP = 20  # results that are compared before and after an update


class RequestHandlers:
    """What all requests share.

    A request takes the `snapshot` once and is answered from it. Work of more than a millisecond runs in one of four
    pools whose queues end, so that what is short never waits behind what is long: searches by id, thumbnails, lessons
    (updates of a learner, one after the other), and all the rest.

    Parameters
    ----------
    run : Run
    """

    def __init__(self, run: Run):
        self.run = run
        self.current = SnapshotReloader(run)
        self.teacher = FeedbackTrainer(run)
        folder = run.folder / "service"
        self.uploads = Uploads(folder / "uploads")
        self.thumbnails = Thumbnails(folder / "thumbnails.sqlite")
        # A core is left to the thread that takes requests.
        self.searches = MicroBatcher(self.search_many, max(1, cores() - 1), SEARCHES_WAITING, AT_ONCE)
        self.pictures = Pool(cores(), PICTURES_WAITING)
        self.lessons = Pool(1, LESSONS_WAITING)
        self.others = Pool(cores(), OTHERS_WAITING)
        self._drawing = threading.Lock()  # Matplotlib's fonts are no matter for two threads

    @property
    def snapshot(self) -> Snapshot:
        """The state in force; take it once a request."""
        return self.current.snapshot

    def max_pixels(self, snapshot: Snapshot) -> int:
        """Of an upload."""
        return min(UPLOAD_PIXELS, snapshot.searcher.config.collection.max_pixels)

    # --- queries ----------------------------------------------------------------------------------------------------

    def ask(self, snapshot: Snapshot, number: int | None, upload: str | None) -> QueryVector:
        """Return the query that an id or the hash of an upload stands for."""
        if number is not None:
            try:
                return snapshot.ask_image(number)
            except KeyError:
                raise unknown_image(number) from None
        assert upload is not None
        return snapshot.ask_pixels("upload", upload, lambda: self.upload_pixels(upload))

    def take(self, snapshot: Snapshot, name: str, data: bytes) -> tuple[QueryVector, bool]:
        """Read an uploaded picture and keep it; return the query, and whether it could be kept."""
        key = hashlib.sha256(data).hexdigest()
        try:
            pixels = decode_image(data, name, max_pixels=self.max_pixels(snapshot))
        except ImageError as error:
            status = 413 if error.reason.startswith("too large") else 415
            shown = printable(name) if name else "the upload"
            raise HTTPException(
                status, f"{shown}: {error.reason}; JPEG, PNG, WebP, BMP and TIFF images can be searched with"
            ) from None
        asked = snapshot.ask_pixels(name or "upload", key, lambda: pixels)
        return asked, self.uploads.add(key, pixels)

    def upload_bytes(self, key: str) -> bytes:
        """PNG of an upload."""
        data = self.uploads.read(key)
        if data is None:
            raise HTTPException(404, "this upload has expired or never was; upload the picture again")
        return data

    def upload_pixels(self, key: str) -> np.ndarray:
        """RGB pixels of an upload."""
        return decode_image(self.upload_bytes(key), key, max_pixels=UPLOAD_PIXELS)

    # --- answers ----------------------------------------------------------------------------------------------------

    def shown(self, snapshot: Snapshot, row: int) -> dict[str, Any]:
        """`api.Shown` of an image."""
        image = snapshot.searcher.images[row]
        width, height = snapshot.sizes[row].tolist()
        return {
            "id": image.id,
            "path": image.path,
            "labels": sorted(image.labels),
            "width": width or None,
            "height": height or None,
            "color": self.thumbnails.colors.get(image.sha256),
            "thumbnail": f"images/{image.id}/thumbnail?v={image.sha256[:16]}",
        }

    def learner(self, snapshot: Snapshot, name: str | None) -> str:
        """Return the learner that was named, or else the usual one."""
        if name is None:
            return snapshot.default_learner
        if name not in RANKERS:
            raise HTTPException(404, f"unknown learner {one_line(name)}; {_trained_here(snapshot)}")
        if name not in snapshot.searcher.learners:
            raise HTTPException(409, f"{name} is not trained for the images as they are; {_trained_here(snapshot)}")
        return name

    def search(self, snapshot: Snapshot, question: api.Question, asked: QueryVector) -> dict[str, Any]:
        """`api.Answer` to an image."""
        started = time.perf_counter()
        learner = self.learner(snapshot, question.learner)
        if question.label is not None and question.label not in snapshot.labels:
            raise _unknown_label(question.label)
        ranked = snapshot.rank(
            asked,
            learner,
            question.k,
            question.offset,
            label=question.label,
            exclude_duplicates=question.exclude_duplicates,
        )
        return self._answer(snapshot, question, asked.name, asked.key, learner, ranked, started)

    def search_many(self, asked: list[tuple[Snapshot, api.Question]]) -> list[dict[str, Any] | Exception]:
        """`search` for several ids at once, without filters; an answer may be what would be raised."""
        answers: list[Any] = [None] * len(asked)
        groups: dict[tuple[Snapshot, str, int], list[tuple[int, int]]] = defaultdict(list)
        for i, (snapshot, question) in enumerate(asked):
            try:
                learner = self.learner(snapshot, question.learner)
                row = self.ask(snapshot, question.id, None).row
            except HTTPException as error:
                answers[i] = error
            else:
                groups[snapshot, learner, question.offset + question.k].append((i, row))
        for (snapshot, learner, depth), members in groups.items():
            started = time.perf_counter()
            found: list[Any]
            try:
                found = snapshot.rank_rows([row for _, row in members], learner, depth)
            except UserError as error:
                found = [error] * len(members)
            for (i, row), ranked in zip(members, found, strict=True):
                if isinstance(ranked, Exception):
                    answers[i] = ranked
                    continue
                image, question = snapshot.searcher.images[row], asked[i][1]
                ranked = ranked[question.offset :]
                answers[i] = self._answer(snapshot, question, image.path, image.sha256, learner, ranked, started)
        return answers

    def _answer(
        self,
        snapshot: Snapshot,
        question: api.Question,
        name: str,
        key: str,
        learner: str,
        ranked: list[tuple[int, float]],
        started: float,
    ) -> dict[str, Any]:
        n = len(snapshot.searcher.images) if question.label is None else snapshot.labels[question.label]
        return {
            "query": name,
            "key": key,
            "learner": learner,
            "version": snapshot.searcher.version,
            "seconds": round(time.perf_counter() - started, 6),
            "n_searched": n,
            "results": [
                {"rank": rank, "score": round(score, 6)} | self.shown(snapshot, row) | snapshot.metric(learner, row)
                for rank, (row, score) in enumerate(ranked, start=question.offset + 1)
            ],
        }

    def search_label(self, snapshot: Snapshot, question: api.Question) -> dict[str, Any]:
        """`api.Answer` to a label."""
        started = time.perf_counter()
        assert question.query_label is not None
        learner, label = self.annotator(snapshot, question.learner), question.label
        if label is not None and label not in snapshot.labels:
            raise _unknown_label(label)
        rows = None if label is None else snapshot.rows_of(label)
        try:
            k = question.offset + question.k
            answer = snapshot.searcher.search_label(question.query_label, k, learner, rows=rows)[0]
        except UnknownLabel as error:
            raise HTTPException(404, one_line(str(error))) from None
        kept = answer["results"][question.offset :]
        return {
            "query": question.query_label,
            "key": None,
            "learner": learner,
            "version": snapshot.searcher.version,
            "seconds": round(time.perf_counter() - started, 6),
            "n_searched": len(snapshot.searcher.images) if label is None else snapshot.labels[label],
            "results": [
                {"rank": rank, "score": row["score"]} | self.shown(snapshot, snapshot.searcher.place[row["id"]])
                for rank, row in enumerate(kept, start=question.offset + 1)
            ],
        }

    def annotator(self, snapshot: Snapshot, name: str | None) -> str:
        """Return the learner that was named, if it ranks labels, or else the usual one that does."""
        able = snapshot.searcher.annotators
        if name is not None and name not in able:
            raise HTTPException(409, f"{one_line(name)} does not rank labels; of this run {_listed(able)} do")
        if not able:
            raise HTTPException(
                409,
                "no learner of this run ranks labels; train one: "
                f"visterm train --learner wsabie --run {snapshot.searcher.run.name}",
            )
        return name or snapshot.searcher.default_learner(of_labels=True)

    def annotate(self, snapshot: Snapshot, question: api.Question, asked: QueryVector) -> dict[str, Any]:
        """`api.Labels` of an image."""
        learner = self.annotator(snapshot, question.learner)
        queries = Queries([asked.name], asked.Q, [0], [asked.row], {})
        labels = snapshot.searcher.annotate(queries, question.k, learner)[0]["labels"]
        return {"query": asked.name, "version": snapshot.searcher.version, "labels": labels}

    def explain(
        self, snapshot: Snapshot, number: int | None, upload: str | None, result: int, learner: str | None
    ) -> dict[str, Any]:
        """`explain_pair` of a query, by its id or the hash of an upload, and an image of the collection."""
        return self._explained(snapshot, number, upload, result, learner).data

    def explain_png(
        self, snapshot: Snapshot, number: int | None, upload: str | None, result: int, learner: str | None
    ) -> bytes:
        """The same as a picture."""
        found = self._explained(snapshot, number, upload, result, learner)
        file = io.BytesIO()
        with self._drawing:
            draw_explanation(found.data, found.query_pixels, found.result_pixels, file)
        return file.getvalue()

    def _explained(
        self, snapshot: Snapshot, number: int | None, upload: str | None, result: int, learner: str | None
    ) -> PairExplanation:
        learner = self.learner(snapshot, learner)
        for known in (number, result):
            if known is not None and known not in snapshot.searcher.place:
                raise unknown_image(known)
        query = number if upload is None else self.upload_pixels(upload)
        found = explain_with_pixels(snapshot.searcher, query, result, learner)
        if upload is not None:
            found.data["query"]["name"] = "upload"
        found.data["version"] = snapshot.searcher.version
        return found

    async def answer(self, snapshot: Snapshot, question: api.Question) -> dict[str, Any]:
        """`api.Answer` to a question without a file."""
        # The first search by a learner makes its index, which may take minutes: the searches of others go on.
        known = (question.learner or snapshot.default_learner) in snapshot.used
        plain = known and question.label is None and not question.exclude_duplicates
        if question.id is not None and plain and question.offset + question.k <= SHALLOW:
            return await self.searches.run((snapshot, question))
        return await self.others.run(self._answer_alone, snapshot, question)

    def _answer_alone(self, snapshot: Snapshot, question: api.Question) -> dict[str, Any]:
        if question.query_label is not None:
            return self.search_label(snapshot, question)
        answer = self.search(snapshot, question, self.ask(snapshot, question.id, question.upload))
        return answer | self.kept(question.upload)

    def kept(self, upload: str | None) -> dict[str, Any]:
        """What an answer says about its upload."""
        if upload is None:
            return {}
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.uploads.seconds)
        return {"upload": upload, "upload_expires": until.isoformat(timespec="seconds")}

    # --- marks ------------------------------------------------------------------------------------------------------

    def models(self) -> dict[str, dict[str, int]]:
        """`api.Model` of every learner that marks can move."""
        try:
            found = self.teacher.status()["learners"]
        except UserError as error:  # marks that cannot be read: the page shows everything else
            _log.warning("%s", error)
            return {}
        return {name: {"version": model["version"], "marks": model["marks"]} for name, model in found.items()}

    def ask_key(self, snapshot: Snapshot, key: str) -> QueryVector:
        """Return the query that a key names: of the collection, uploaded, or kept with its marks."""
        if (row := snapshot.rows_by_key.get(key)) is not None:
            return snapshot.ask_image(snapshot.searcher.images[row].id)
        if self.uploads.read(key) is not None:
            return snapshot.ask_pixels("upload", key, lambda: self.upload_pixels(key))
        Q = self.teacher.marks.vector(key, snapshot.extractor)
        if Q is not None and not sparse.issparse(snapshot.searcher.X):
            Q = Q.toarray()
        if Q is None:
            raise HTTPException(404, "this query is not known here; search with it again, then mark")
        return QueryVector("upload", key, Q, -1)

    def mark(self, snapshot: Snapshot, asked: api.MarkAsked) -> int:
        """Keep a mark; it is on disk when this returns."""
        try:
            image = snapshot.image(asked.image)
        except KeyError:
            raise unknown_image(asked.image) from None
        query = self.ask_key(snapshot, asked.query)
        learner = self.learner(snapshot, asked.learner)
        return self.teacher.marks.add(
            asked.query,
            image,
            asked.mark,
            learner=learner,
            version=self.teacher.version(learner),
            vector=sparse.csr_matrix(query.Q) if query.row < 0 else None,
            extractor=snapshot.extractor,
        )

    def update(self, learner: str, key: str | None) -> dict[str, Any]:
        """Teach a learner the marks, and return once it is what answers."""
        old = self.snapshot
        before = [] if key is None else self._top(old, learner, key)
        found = self.teacher.update(learner)
        new = self.current.refresh()
        if key is not None:
            after = self._top(new, learner, key)
            found["changed_in_top"] = sum(a != b for a, b in zip_longest(before, after))
        return found | self._in_force(new)

    def _in_force(self, snapshot: Snapshot) -> dict[str, Any]:
        """The version that answers, and why it is an older one than what is on disk."""
        problem = self.current.problem
        return {"version": snapshot.searcher.version, "behind": problem and one_line(problem)}

    def _top(self, snapshot: Snapshot, learner: str, key: str) -> list[int]:
        """The first TOP results of a query."""
        ranked = snapshot.rank(self.ask_key(snapshot, key), self.learner(snapshot, learner), TOP)
        return [snapshot.searcher.images[row].id for row, _ in ranked]

    def take_back(self, how: str, learner: str) -> dict[str, Any]:
        """Undo an update, or go back to the base, and return once that is what answers."""
        found = self.teacher.undo(learner) if how == "undo" else self.teacher.reset(learner)
        return found | self._in_force(self.current.refresh())

    def tidy(self, snapshot: Snapshot) -> None:
        """Remove uploads that expired, and thumbnails of images that are gone."""
        self.uploads.sweep()
        self.thumbnails.sweep(snapshot.searcher.images)

    def close(self) -> None:
        """End the threads and close the files."""
        self.current.stop()
        self.searches.close()
        self.pictures.close()
        self.lessons.close()
        self.others.close()
        self.thumbnails.close()


def unknown_image(number: int) -> HTTPException:
    """The refusal of an id."""
    return HTTPException(404, f"no image {number} in this collection; it may have been removed")


def _unknown_label(label: str) -> HTTPException:
    return HTTPException(404, f"no image has the label {one_line(label)!r}")


def _trained_here(snapshot: Snapshot) -> str:
    return f"this run has {_listed(snapshot.searcher.learners)}"


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
