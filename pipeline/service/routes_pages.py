"""Routes: the pages and the API documentation."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

WEB = Path(__file__).parent / "web"


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
