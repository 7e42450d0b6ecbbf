"""A run without images is served: a page says how to begin, until there are images to search."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import jinja2
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import NothingToSearch, UserError
from visterm.pipeline.store.run import Run

from .middleware import AccessMiddleware
from .responses import error_response, hide_folders
from .routes_pages import BUNDLE, PageFiles

LOOK_SECONDS = 1.0  # between two looks whether there are images
_TEMPLATE = Path(__file__).parent / "templates" / "empty.html.jinja"


class WaitingApp:
    """ASGI application of a run without images, and of the same run once it has some.

    `create` creates the application of the run; NothingToSearch as long as there are no images. Another UserError, as
    of a damaged file, is what requests are told.
    """

    def __init__(self, run: Run, create: Callable[[], FastAPI], *, token: str | None, local: bool):
        self._create = create
        self._app: FastAPI | None = None
        self._run, self._problem = run, ""
        self._looked_at = -LOOK_SECONDS
        self._looking = asyncio.Lock()
        self._running = AsyncExitStack()
        features = f"visterm features IMAGES {run.option}"
        page = jinja2.Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
        html = page.render(run=run.name, command=features)

        def say(request: Request) -> Response:
            return refuse(request) if self._problem else HTMLResponse(html, headers={"Cache-Control": "no-store"})

        def refuse(request: Request) -> Response:
            message = self._problem or f"run {run.name} has no images yet; run '{features}'"
            return error_response(503, message, {"Retry-After": "2"})

        access = Middleware(AccessMiddleware, token=token, local=local, upload_paths=(), upload_bytes=0)
        routes = [Route("/", say), Mount("/static", PageFiles(BUNDLE)), Route("/{path:path}", refuse)]
        self._waiting = Starlette(routes=routes, middleware=[access])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request by the application of the run, if it can be created."""
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            async with self._running:
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await (await self._opened() or self._waiting)(scope, receive, send)

    async def _opened(self) -> FastAPI | None:
        if self._app is not None:
            return self._app
        async with self._looking:
            if self._app is None and time.monotonic() >= self._looked_at + LOOK_SECONDS:
                try:
                    app = await run_in_threadpool(self._create)
                except NothingToSearch:
                    self._problem = ""
                except UserError as error:
                    self._problem = hide_folders(one_line(str(error)), self._run.folder.parent)
                else:
                    await self._running.enter_async_context(app.router.lifespan_context(app))
                    self._app = app
                self._looked_at = time.monotonic()
        return self._app
