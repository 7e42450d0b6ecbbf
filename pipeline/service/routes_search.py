"""Routes: search, annotation and explanation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from . import schemas
from .handlers import RequestHandlers
from .middleware import client_address
from .responses import JsonResponse

UPLOAD_PATHS = ("/search", "/annotate")
_UPLOAD = Form(media_type="multipart/form-data")


def add_search_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of search, annotation and explanation."""
    pool = handlers.general_pool

    @app.get("/search", response_model=list[schemas.SearchResponse], tags=["search"])
    async def search(request: Annotated[schemas.SearchRequest, Query()]) -> Response:
        """Search with an image of the collection, an earlier upload or a label. The URL can be shared."""
        _check_one_query(request)
        return JsonResponse([await handlers.search(handlers.snapshot, request)])

    @app.post("/search", response_model=list[schemas.SearchResponse], tags=["search"])
    async def search_upload(http: Request, form: Annotated[schemas.UploadSearchRequest, _UPLOAD]) -> Response:
        """Search with an uploaded image (multipart field file), or as GET /search; in form fields or the URL."""
        request = _with_query_string(form, http)
        _check_one_query(request, form.file)
        snapshot = handlers.snapshot
        if form.file is None:
            return JsonResponse([await handlers.search(snapshot, request)])
        name, data = form.file.filename or "", await form.file.read()

        def respond() -> dict[str, Any]:
            query, stored = handlers.read_upload(snapshot, name, data)
            response = handlers.search_query(snapshot, request, query)
            return response | handlers.upload_fields(query.key if stored else None)

        return JsonResponse([await handlers.upload_pool.run(respond, client=client_address(http.scope))])

    @app.post("/annotate", response_model=schemas.AnnotationResponse, tags=["search"])
    async def annotate(http: Request, form: Annotated[schemas.UploadSearchRequest, _UPLOAD]) -> Response:
        """Find labels for an uploaded image, an earlier upload or an image of the collection, best first."""
        request = _with_query_string(form, http)
        _check_one_query(request, form.file)
        if request.query_label is not None:
            raise HTTPException(422, "query_label: only images can be annotated; give id, upload or file")
        snapshot = handlers.snapshot
        upload = None if form.file is None else (form.file.filename or "", await form.file.read())

        def respond() -> dict[str, Any]:
            if upload is not None:
                query, _ = handlers.read_upload(snapshot, *upload)
            else:
                query = handlers.query(snapshot, request.id, request.upload)
            return handlers.annotate(snapshot, request, query)

        if upload is not None:
            return JsonResponse(await handlers.upload_pool.run(respond, client=client_address(http.scope)))
        return JsonResponse(await pool.run(respond))

    @app.get("/explain", response_model=schemas.JsonObject, tags=["search"])
    async def explain(
        result: Annotated[schemas.ImageId, Query()],
        id: Annotated[schemas.ImageId | None, Query()] = None,
        upload: Annotated[schemas.Sha256 | None, Query()] = None,
        learner: Annotated[schemas.Name | None, Query()] = None,
        format: Annotated[str, Query(pattern="^(json|png)$")] = "json",
    ) -> Response:
        """Explain a score: it is exactly the sum of the contributions of pairs of blocks."""
        _check_one_query(schemas.SearchRequest(id=id, upload=upload))
        snapshot = handlers.snapshot
        explanation = await pool.run(handlers.explain, snapshot, id, upload, result, learner)
        if format == "json":
            return JsonResponse(explanation.data)
        return Response(await pool.run(handlers.draw, explanation), media_type="image/png")


def _check_one_query(request: schemas.SearchRequest, *others: Any) -> None:
    """Check that a request has exactly one query."""
    queries = (request.id, request.upload, request.query_label, *others)
    if sum(query is not None for query in queries) != 1:
        raise HTTPException(422, "give exactly one of: id, upload, query_label, or a file in a POST")


def _with_query_string(form: schemas.UploadSearchRequest, http: Request) -> schemas.SearchRequest:
    """Fill fields that are missing in the form from the query string."""
    fields = form.model_dump(include=form.model_fields_set - {"file"})
    parameters = {
        name: value for name, value in http.query_params.items() if name in schemas.SearchRequest.model_fields
    }
    try:
        return schemas.SearchRequest.model_validate(parameters | fields)
    except ValidationError as error:
        raise RequestValidationError([e | {"loc": ("query", *e["loc"])} for e in error.errors()]) from None
