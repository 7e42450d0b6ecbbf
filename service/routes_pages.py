"""Routes: the pages and the API documentation."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

WEB = Path(__file__).parent / "web"
BUNDLE = Path(__file__).parent / "bundle"  # in a wheel: scripts and styles in few files; see bundle.js
_ENCODINGS = {"br": ".br", "gzip": ".gz"}  # files that lie compressed beside the bundle, the smallest first
_IMMUTABLE = "public, max-age=31536000, immutable"


class PageFiles(StaticFiles):
    """The files of the pages. Those of the bundle have names of their content and are sent as they lie compressed."""

    def __init__(self, bundle: Path):
        super().__init__(directory=WEB)
        self._bundle = {file.name: file for file in bundle.glob("*-*.*")} if bundle.is_dir() else {}

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, of the bundle or of the pages."""
        if (file := self._bundle.get(path)) is None:
            return await super().get_response(path, scope)
        headers = {"Cache-Control": _IMMUTABLE, "Vary": "Accept-Encoding"}
        accepted = _accepted(Headers(scope=scope).get("accept-encoding", ""))
        for encoding, suffix in _ENCODINGS.items():
            if encoding in accepted and (packed := self._bundle.get(path + suffix)):
                headers["Content-Encoding"] = encoding
                kind = "text/css" if path.endswith(".css") else "text/javascript"
                return FileResponse(packed, media_type=kind, headers=headers)
        return FileResponse(file, headers=headers)


class Compressed(GZipMiddleware):
    """GZipMiddleware for clients that may refuse gzip by a quality of 0."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http" and ";" in (given := Headers(scope=scope).get("accept-encoding", "")):
            MutableHeaders(scope=scope)["accept-encoding"] = ", ".join(_accepted(given))
        await super().__call__(scope, receive, send)


def _accepted(encodings: str) -> list[str]:
    """Names in an Accept-Encoding header, without those that a quality of 0 refuses."""
    parts = [part.replace(" ", "").lower().partition(";q=") for part in encodings.split(",")]
    return [name for name, _, quality in parts if quality.strip("0.") or not quality]


def is_page_request(request: Request) -> bool:
    """Whether a browser asks for a page, not a program for data or a page for a file."""
    return request.method == "GET" and request.headers.get("sec-fetch-dest", "") == "document"


def missing_page() -> Response:
    """Return the page for an address that does not exist."""
    return FileResponse(WEB / "missing.html", status_code=404)


def add_page_routes(app: FastAPI) -> None:
    """Add the pages, their files and the API documentation; without a bundle, the pages load modules."""
    pages = BUNDLE if (BUNDLE / "index.html").is_file() else WEB

    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(pages / "index.html")

    @app.get("/judge", include_in_schema=False)
    def judge() -> FileResponse:
        return FileResponse(pages / "judge.html")

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        import jinja2

        template = (Path(__file__).parent / "templates" / "api.html.jinja").read_text(encoding="utf-8")
        page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
        api = app.openapi()
        contents: dict[str, list[tuple[str, str]]] = {}
        for path, operations in api["paths"].items():
            for method, operation in operations.items():
                contents.setdefault(operation["tags"][0], []).append((method, path))
        return Response(page.render(api=api, contents=contents), media_type="text/html")

    app.mount("/static", PageFiles(BUNDLE))
