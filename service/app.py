"""The web application of a run: the API and the pages."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Match

from visterm import sparse
from visterm.features import ImageError, silence_decoders
from visterm.pipeline import plugins
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, is_disk_full, system_reason
from visterm.pipeline.search.filters import InvalidFilter
from visterm.pipeline.search.labels import UnknownLabel
from visterm.pipeline.search.request import InvalidQuery
from visterm.pipeline.store.records import repair_hint, version
from visterm.pipeline.store.run import Run

from . import schemas
from .description import describe_when_asked
from .middleware import AccessMiddleware
from .parts import UPLOAD_BYTES, ServiceParts
from .responses import error_response
from .routes_pages import Compressed, add_page_routes, is_page_request, missing_page
from .settings import ServiceSettings
from .subject import Subjects, unknown_name
from .subjects import SUBJECTS
from .thumbnails import ImageFileGone


def create_app(
    run: Run, settings: ServiceSettings | None = None, *, token: str | None = None, local: bool = True
) -> FastAPI:
    """Create the web application of a run; UserError if the run cannot be searched yet.

    With `token` every request needs it. Without one, `local` accepts only requests for localhost or a loopback address.
    The lifespan reloads the run when it changes, and closes all files at the end.
    """
    silence_decoders()
    sparse.csr_array  # noqa: B018  # imports SciPy's before threads ask for it at once
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # anybody can cause its warnings
    MultiPartParser.spool_max_size = UPLOAD_BYTES  # the body is in memory already; write no copy to disk
    parts = ServiceParts(run, settings or ServiceSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parts.start()
        yield
        parts.close()

    access = Middleware(
        AccessMiddleware,
        token=token,
        local=local,
        origins=parts.settings.cors_origins,
        upload_paths=_UPLOAD_PATHS,
        upload_bytes=UPLOAD_BYTES,
    )
    described_by: dict[str, Any] = {
        "title": "visterm",
        "version": version("visterm"),
        "generate_unique_id_function": lambda route: route.name,
        "summary": f"Image search over the run {run.name}",
        "description": _DESCRIPTION,
    }
    app = FastAPI(
        lifespan=lifespan,
        middleware=[access, Middleware(Compressed, minimum_size=1000, compresslevel=_COMPRESSION)],
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    _handle_errors(app, parts)
    subjects = Subjects(parts)
    places = (*SUBJECTS, *plugins.SUBJECTS)
    kinds = [kind for place in places if (kind := plugins.find(place)) is not None]  # of rooms that are installed
    for kind in kinds:
        subjects.of(kind).add_routes(app)
    add_page_routes(app)

    def twin() -> FastAPI:
        of_errors: dict[int | str, dict[str, Any]] = {
            "default": {"model": schemas.ErrorResponse, "description": "Error"}
        }
        app = FastAPI(**described_by, responses=of_errors)
        for kind in kinds:
            subjects.of(kind).add_routes(app, described=True)
        return app

    describe_when_asked(app, twin)
    app.state.parts, app.state.subjects = parts, subjects
    return app


_UPLOAD_PATHS = ("/search", "/annotate", "/api/add/photo")
_COMPRESSION = 4  # 0.2 ms for 100 results; above it, places on the map take a hundred times as long

_DESCRIPTION = """\
Every response names the version of the run that it was computed from; GET /health names the current one. Errors are
JSON: {"ok": false, "error": "...", "status": 404}; 429 comes with Retry-After. If the service has a token, send the
header Authorization: Bearer TOKEN."""


def _handle_errors(app: FastAPI, parts: ServiceParts) -> None:
    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404 and is_page_request(request):
            return missing_page()
        if error.status_code == 404 and error.detail == "Not Found":  # of no route
            return error_response(404, one_line(f"there is no {request.url.path[:200]}; GET /docs lists what there is"))
        if error.status_code != 405:
            return error_response(error.status_code, str(error.detail), error.headers)
        allowed = ", ".join(_allowed_methods(app, request.url.path))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        return error_response(405, f"wrong method; {request.url.path} takes {allowed}", {"Allow": allowed})

    @app.exception_handler(RequestValidationError)
    async def validation_error(request: Request, error: RequestValidationError) -> Response:
        return error_response(422, _validation_text(error.errors(), getattr(request["endpoint"], "known", ())))

    @app.exception_handler(UnknownLabel)
    async def unknown_label(request: Request, error: UnknownLabel) -> Response:
        return await http_error(request, HTTPException(404, one_line(str(error))))

    @app.exception_handler(InvalidFilter)
    @app.exception_handler(InvalidQuery)
    async def invalid_query(request: Request, error: UserError) -> Response:
        return error_response(422, one_line(str(error)))

    @app.exception_handler(UserError)
    async def user_error(request: Request, error: UserError) -> Response:
        cause = error.__context__  # an error of the OS or SQLite, such as a mark that cannot be written
        status = _status(cause) if isinstance(cause, OSError | sqlite3.Error) else 409
        return error_response(status, parts.public(str(error)))

    @app.exception_handler(ImageFileGone)
    async def image_file_gone(request: Request, error: ImageFileGone) -> Response:
        return error_response(410, str(error))

    @app.exception_handler(ImageError)
    async def image_error(request: Request, error: ImageError) -> Response:
        return error_response(415, f"the image cannot be decoded: {error.reason}")

    @app.exception_handler(sqlite3.Error)
    @app.exception_handler(OSError)
    async def system_error(request: Request, error: Exception) -> Response:
        reason = one_line(system_reason(error) or str(error))
        logging.getLogger(__name__).warning("%s: %s", one_line(request.url.path), reason)
        file = Path(str(getattr(error, "filename", None) or ""))
        if file.parent.parent.name == "segments":  # of mapped vectors, cut short since
            return error_response(_status(error), parts.public(f"{file}: {reason}; {repair_hint(file.parent)}"))
        return error_response(_status(error), f"{parts.public(reason)}; nothing was changed, try again")


def _allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods of a path: starlette's own list is that of the first route only."""
    methods: set[str] = set()
    for route in app.routes:
        match, _ = route.matches({"type": "http", "path": path, "root_path": "", "method": "OPTIONS"})
        if match is not Match.NONE:
            methods |= getattr(route, "methods", None) or {"GET"}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


def _status(error: BaseException) -> int:
    """507 Insufficient Storage for a full disk, else 503 Service Unavailable, as it may pass."""
    return 507 if is_disk_full(error) else 503


_NO_JSON = ("model_attributes_type", "dict_type", "model_type")  # what a body without the header looks like


def _validation_text(errors: Any, known: Iterable[str]) -> str:
    """Describe the first errors in a request on one line; `known` are its parameters and fields."""
    texts = []
    for error in errors[:3]:
        field = ".".join(str(part) for part in error["loc"][1:])  # after the part of the request, such as query
        text = "no file; send it with a file name" if "UploadFile" in error["msg"] else error["msg"]
        if error["type"] == "extra_forbidden":
            text = unknown_name(str(error["loc"][-1]), known)
            field = ".".join(str(part) for part in error["loc"][1:-1])
        elif error["type"] in _NO_JSON and error["loc"] == ("body",):
            text = "send the body as JSON, with the header Content-Type: application/json"
        texts.append(f"{field}: {text}" if field else text)
    return one_line("; ".join(texts))
