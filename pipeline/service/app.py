"""The HTTP service: search, annotation, explanation, pictures, marks and judging over one run, and the page."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.middleware import Middleware
from starlette.responses import Response

from visterm.features import silence_decoders
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, is_disk_full, system_reason
from visterm.pipeline.store.run import Run

from . import schemas as api
from .handlers import UPLOAD_BYTES, RequestHandlers
from .middleware import AccessMiddleware
from .responses import error_answer
from .routes_feedback import add_marks
from .routes_human_eval import add_judging
from .routes_images import add_pictures
from .routes_pages import add_pages
from .routes_run import add_facts
from .routes_search import UPLOAD_PATHS, add_search
from .thumbnails import PictureGone


def create_app(run: Run, *, token: str | None = None, local: bool = True) -> FastAPI:
    """Make the application that serves a run.

    Parameters
    ----------
    run : Run
    token : str, optional
        What every request must show; None: nothing.
    local : bool, default=True
        Answer only where it is asked for as localhost or 127.0.0.1, for where no token tells friend from foe.

    Returns
    -------
    FastAPI
        Its lifespan looks for newer states of the run and closes what is open.

    Raises
    ------
    UserError
        The run cannot be searched yet.
    """
    silence_decoders()
    MultiPartParser.spool_max_size = UPLOAD_BYTES  # the body is in memory already; no copy to the disk
    handlers = RequestHandlers(run)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        handlers.current.start(handlers.tidy)
        yield
        handlers.close()

    guard = Middleware(AccessMiddleware, token=token, local=local, upload_paths=UPLOAD_PATHS, upload_bytes=UPLOAD_BYTES)
    app = FastAPI(
        title="visterm",
        summary=f"Image search over the run {run.name}",
        description=_DESCRIPTION,
        lifespan=lifespan,
        middleware=[guard],
        responses={"default": {"model": api.Problem, "description": "What is wrong"}},
        docs_url=None,
        redoc_url=None,
    )
    _handle_errors(app)
    add_search(app, handlers)
    add_pictures(app, handlers)
    add_facts(app, handlers)
    add_marks(app, handlers)
    add_judging(app, handlers)
    add_pages(app)
    app.state.handlers = handlers
    return app


_DESCRIPTION = """\
Every answer names the version of the run that it was made from; GET /health names the one in force. Errors are JSON:
{"ok": false, "error": "...", "status": 404}; 429 comes with Retry-After. Where a token is needed, send the header
Authorization: Bearer TOKEN."""


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return error_answer(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return error_answer(422, _in_words(error.errors()))

    @app.exception_handler(UserError)
    async def user_error(request: Request, error: UserError) -> Response:
        cause = error.__context__  # of the system: a mark that could not be written, say
        status = _status(cause) if isinstance(cause, OSError | sqlite3.Error) else 409
        return error_answer(status, one_line(str(error)))

    @app.exception_handler(PictureGone)
    async def gone(request: Request, error: PictureGone) -> Response:
        return error_answer(410, str(error))

    @app.exception_handler(sqlite3.Error)
    @app.exception_handler(OSError)
    async def system(request: Request, error: Exception) -> Response:
        reason = one_line(system_reason(error) or str(error))
        logging.getLogger(__name__).warning("%s: %s", request.url.path, reason)
        return error_answer(_status(error), f"{reason}; nothing was changed, try again")


def _status(error: BaseException) -> int:
    """507 Insufficient Storage for a full disk, else 503 Service Unavailable, as it may pass."""
    return 507 if is_disk_full(error) else 503


def _in_words(errors: Any) -> str:
    """The first mistakes in a request, on one line."""
    found = []
    for error in errors[:3]:
        where = ".".join(str(part) for part in error["loc"][1:])  # the first says in which part of the request
        found.append(f"{where}: {error['msg']}" if where else error["msg"])
    return one_line("; ".join(found))
