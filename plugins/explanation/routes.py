"""Why a result matches, for the service."""

from __future__ import annotations

import io
import threading
from typing import Annotated, Any, Literal, NotRequired

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from visterm.pipeline.errors import UserError
from visterm.service.parts import ServiceParts
from visterm.service.schemas import ImageId, ImageRequest, Learned, Name, Sha256
from visterm.service.subject import Subject, Subjects, get
from visterm.service.subjects.search import check_one_query
from visterm.teaching.teachers import TeachersAnswer, explain_teachers

from .explanation import Explanation, NoPlaces, explain_with_pixels, explain_without_pixels
from .explanation_picture import draw_explanation


class ExplanationAnswer(Explanation):
    """Why a query and a result match."""

    teachers: NotRequired[Annotated[TeachersAnswer | None, Field(description="If asked for")]]
    no_teachers: NotRequired[Annotated[str | None, Field(description="Why there are none")]]
    version: str


class ExplanationSubject(Subject):
    """Explanations of results."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self._drawing = threading.Lock()  # Matplotlib is not thread-safe

    @get("/explain", "search")
    def explain(
        self,
        result: Annotated[ImageId, Query()],
        id: Annotated[ImageId | None, Query()] = None,
        path: Annotated[Name | None, Query(description="The query by its path")] = None,
        upload: Annotated[Sha256 | None, Query()] = None,
        learner: Annotated[Name | None, Query()] = None,
        learned_weight: Annotated[Learned | None, Query()] = None,
        teachers: Annotated[int, Query(ge=0, le=50)] = 0,
        format: Annotated[Literal["json", "png"], Query()] = "json",
    ) -> ExplanationAnswer:
        """Explain the score of a result for exactly one of: id, path, upload.

        A score is exactly the sum of the contributions of pairs of blocks. With `teachers` also of pairs of training
        images: so many of those that raise the score are listed, and as many of those that lower it.
        """
        check_one_query(ImageRequest(id=id, path=path, upload=upload), "id, path, upload")
        service, snapshot = self.service, self.service.snapshot
        id = id if path is None else service.id_of(snapshot, path)
        name = service.learner(snapshot, learner)
        for image_id in (id, result):
            if image_id is not None:
                service.image(snapshot, image_id)
        query = id if upload is None else service.upload_pixels(upload)
        answer: Any
        searcher = snapshot.searcher
        try:
            explanation = explain_with_pixels(searcher, query, result, name, learned_weight=learned_weight)
        except NoPlaces as error:
            if format == "png":
                raise
            reason = service.public(str(error))
            answer = explain_without_pixels(searcher, query, result, name, reason=reason, learned_weight=learned_weight)
        else:
            answer = explanation.data
        if format == "png":
            file = io.BytesIO()
            with self._drawing:
                draw_explanation(*explanation, file)
            answer = Response(file.getvalue(), media_type="image/png")
            return answer
        for photo in answer.get("neighbours", {}).get("photos", ()):
            photo["thumbnail"] = service.image_summary(snapshot, snapshot.searcher.place[photo["id"]])["thumbnail"]
        if teachers:
            try:
                answer["teachers"] = explain_teachers(
                    snapshot.searcher, query, result, name, learned_weight=learned_weight, n_teachers=teachers
                )
            except UserError as error:  # the learner has no table of them
                answer |= {"teachers": None, "no_teachers": str(error)}
            else:
                for image in (pair[side] for pair in answer["teachers"]["pairs"] for side in ("query", "result")):
                    row = None if image["id"] is None else snapshot.searcher.place.get(image["id"])  # None: removed
                    image["thumbnail"] = None if row is None else service.image_summary(snapshot, row)["thumbnail"]
        if upload is not None:
            answer["query"]["name"] = "upload"
        answer["version"] = snapshot.searcher.version
        return answer
