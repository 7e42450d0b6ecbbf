"""Routes: search and annotation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from . import schemas as api
from .handlers import RequestHandlers
from .responses import Json

UPLOAD_PATHS = ("/search", "/annotate")
_UPLOAD = Form(media_type="multipart/form-data")


def add_search(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of search and annotation."""

    @app.get("/search", response_model=list[api.Answer], tags=["search"])
    async def search(question: Annotated[api.Question, Query()]) -> Response:
        """Images similar to one of the collection or to an earlier upload, or fitting a label. It can be shared."""
        _only_one(question)
        return Json([await handlers.answer(handlers.snapshot, question)])

    @app.post("/search", response_model=list[api.Answer], tags=["search"])
    async def search_with_picture(request: Request, form: Annotated[api.UploadedQuestion, _UPLOAD]) -> Response:
        """Images similar to a picture (multipart field file), or as GET /search; by fields or query parameters."""
        question = _with_parameters(form, request)
        _only_one(question, form.file)
        snapshot = handlers.snapshot
        if form.file is None:
            return Json([await handlers.answer(snapshot, question)])
        name, data = form.file.filename or "", await form.file.read()

        def answer() -> dict[str, Any]:
            asked, kept = handlers.take(snapshot, name, data)
            return handlers.search(snapshot, question, asked) | handlers.kept(asked.key if kept else None)

        return Json([await handlers.others.run(answer)])

    @app.post("/annotate", response_model=api.Labels, tags=["search"])
    async def annotate(request: Request, form: Annotated[api.UploadedQuestion, _UPLOAD]) -> Response:
        """Labels for a picture, an earlier upload or an image of the collection, best first."""
        question = _with_parameters(form, request)
        _only_one(question, form.file)
        if question.query_label is not None:
            raise HTTPException(422, "query_label: labels are found for images; give id, upload or file")
        snapshot = handlers.snapshot
        data = None if form.file is None else (form.file.filename or "", await form.file.read())

        def answer() -> dict[str, Any]:
            if data is not None:
                asked, _ = handlers.take(snapshot, *data)
            else:
                asked = handlers.ask(snapshot, question.id, question.upload)
            return handlers.annotate(snapshot, question, asked)

        return Json(await handlers.others.run(answer))

    @app.get("/explain", response_model=api.Anything, tags=["search"])
    async def explain(
        result: Annotated[api.Id, Query()],
        id: Annotated[api.Id | None, Query()] = None,
        upload: Annotated[api.Key | None, Query()] = None,
        learner: Annotated[api.Name | None, Query()] = None,
        format: Annotated[str, Query(pattern="^(json|png)$")] = "json",
    ) -> Response:
        """Which blocks of a query and of a result make the score: it is exactly the sum over their pairs."""
        _only_one(api.Question(id=id, upload=upload))
        snapshot = handlers.snapshot
        if format == "png":
            png = await handlers.others.run(handlers.explain_png, snapshot, id, upload, result, learner)
            return Response(png, media_type="image/png")
        return Json(await handlers.others.run(handlers.explain, snapshot, id, upload, result, learner))


def _only_one(question: api.Question, *others: Any) -> None:
    """Exactly one thing must be asked."""
    if sum(given is not None for given in (question.id, question.upload, question.query_label, *others)) != 1:
        raise HTTPException(422, "ask with exactly one of: id, upload, query_label, or a file in a POST")


def _with_parameters(form: api.UploadedQuestion, request: Request) -> api.Question:
    """Take from the query string what the form does not say."""
    given = form.model_dump(include=form.model_fields_set - {"file"})
    missing = {name: value for name, value in request.query_params.items() if name in api.Question.model_fields}
    try:
        return api.Question.model_validate(missing | given)
    except ValidationError as error:
        raise RequestValidationError([e | {"loc": ("query", *e["loc"])} for e in error.errors()]) from None
