"""Routes: search, annotation and explanation."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from . import schemas
from .handlers import AnnotationResponse, ExplanationAnswer, RequestHandlers, SearchAnswer, SearchResponse
from .responses import JsonResponse
from .summaries import Columns

UPLOAD_PATHS = ("/search", "/annotate", "/api/add/photo")
R = TypeVar("R", bound=schemas.ImageRequest)
_LISTS = ("label", "not_label", "where", "example")
_UPLOAD = Form(media_type="multipart/form-data")


def add_search_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of search, annotation and explanation."""
    pool = handlers.general_pool

    @app.get("/search", response_model=list[SearchResponse], tags=["search"])
    async def search(request: Annotated[schemas.SearchRequest, Query()]) -> Response:
        """Search with exactly one of: id, upload, query_label. The URL can be shared."""
        _check_one_query(request, "id, upload, query_label", request.query_label)
        return JsonResponse([await handlers.search(handlers.snapshot, request)])

    @app.get("/search/columns", response_model=Columns, tags=["search"])
    async def search_columns(request: Annotated[schemas.ColumnsRequest, Query()]) -> Response:
        """Return all results of a search in columns: enough to lay them out. GET /api/images?ids= has the rest."""
        _check_one_query(request, "id, upload, query_label", request.query_label)
        return JsonResponse(await pool.run(handlers.search_one, handlers.snapshot, request))

    @app.post("/search", response_model=list[SearchResponse], tags=["search"])
    async def search_upload(http: Request, form: Annotated[schemas.UploadSearchRequest, _UPLOAD]) -> Response:
        """Search with exactly one of: an uploaded image (multipart field file), id, upload, query_label.

        All but the file may be in form fields or in the URL.
        """
        request = _with_query_string(form, http, schemas.SearchRequest)
        _check_one_query(request, "id, upload, query_label, or a file in a POST", request.query_label, form.file)
        snapshot = handlers.snapshot
        if form.file is None:
            return JsonResponse([await handlers.search(snapshot, request)])
        name, data = form.file.filename or "", await form.file.read()

        def respond() -> SearchAnswer:
            query, stored = handlers.read_upload(snapshot, name, data)
            if request.region is not None:
                raise HTTPException(422, "region: upload the picture first, then search with upload=HASH and region=")
            response: Any = handlers.search_query(snapshot, request, query)
            return response | handlers.upload_fields(query.key if stored else None)

        return JsonResponse([await handlers.upload_pool.run(respond)])

    @app.post("/annotate", response_model=AnnotationResponse, tags=["search"])
    async def annotate(http: Request, form: Annotated[schemas.UploadImageRequest, _UPLOAD]) -> Response:
        """Find labels, best first, for exactly one of: an uploaded image (multipart field file), id, upload.

        All but the file may be in form fields or in the URL.
        """
        request = _with_query_string(form, http, schemas.ImageRequest)
        _check_one_query(request, "id, upload, file", form.file)
        snapshot = handlers.snapshot
        upload = None if form.file is None else (form.file.filename or "", await form.file.read())

        def respond() -> AnnotationResponse:
            if upload is not None:
                query, _ = handlers.read_upload(snapshot, *upload)
            else:
                query = handlers.query(snapshot, request.id, request.upload)
            return handlers.annotate(snapshot, request, query)

        if upload is not None:
            return JsonResponse(await handlers.upload_pool.run(respond))
        return JsonResponse(await pool.run(respond))

    @app.get("/explain", response_model=ExplanationAnswer, tags=["search"])
    async def explain(
        result: Annotated[schemas.ImageId, Query()],
        id: Annotated[schemas.ImageId | None, Query()] = None,
        upload: Annotated[schemas.Sha256 | None, Query()] = None,
        learner: Annotated[schemas.Name | None, Query()] = None,
        learned: Annotated[schemas.Learned | None, Query()] = None,
        teachers: Annotated[int, Query(ge=0, le=50)] = 0,
        format: Annotated[Literal["json", "png"], Query()] = "json",
    ) -> Response:
        """Explain the score of a result for exactly one of: id, upload.

        A score is exactly the sum of the contributions of pairs of blocks. With `teachers` also of pairs of training
        images: so many of those that raise the score are listed, and as many of those that lower it.
        """
        _check_one_query(schemas.ImageRequest(id=id, upload=upload), "id, upload")
        snapshot = handlers.snapshot
        explanation = await pool.run(handlers.explain, snapshot, id, upload, result, learner, learned, teachers)
        if format == "json":
            return JsonResponse(explanation.data)
        return Response(await pool.run(handlers.draw, explanation), media_type="image/png")


def _check_one_query(request: schemas.ImageRequest, names: str, *others: Any) -> None:
    """Check that a request has exactly one query."""
    if sum(query is not None for query in (request.id, request.upload, *others)) != 1:
        raise HTTPException(422, f"give exactly one of: {names}")


def _with_query_string(form: schemas.ImageRequest, http: Request, model: type[R]) -> R:
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
