"""Routes: the pages and the API documentation."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

WEB = Path(__file__).parent / "web"


def is_page_request(request: Request) -> bool:
    """Whether a browser asks for a page, not a program for data or a page for a file."""
    return request.method == "GET" and request.headers.get("sec-fetch-dest", "") == "document"


def missing_page() -> Response:
    """Return the page for an address that does not exist."""
    return FileResponse(WEB / "missing.html", status_code=404)


def add_page_routes(app: FastAPI) -> None:
    """Add the pages, their files and the API documentation."""

    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(WEB / "index.html")

    @app.get("/judge", include_in_schema=False)
    def judge() -> FileResponse:
        return FileResponse(WEB / "judge.html")

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        import jinja2

        template = (Path(__file__).parent / "templates" / "api.html.jinja").read_text(encoding="utf-8")
        page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
        return Response(page.render(api=app.openapi()), media_type="text/html")

    app.mount("/static", StaticFiles(directory=WEB))
