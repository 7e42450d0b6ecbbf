"""The command serve."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from visterm.extras import how_to_install
from visterm.pipeline.cli.errors import command
from visterm.pipeline.cli.options import HostOption, PortOption, RunOption, TokenOption, make_console, open_run
from visterm.pipeline.errors import UserError

from .settings import ServiceSettings

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config


@command
def serve(
    run: RunOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: TokenOption = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    upload_pixels: Annotated[
        int, typer.Option("--upload-pixels", min=1, metavar="N", help="Refuse uploads of more pixels.")
    ] = ServiceSettings.upload_pixels,
    keep_metadata: Annotated[
        bool, typer.Option("--keep-metadata", help="Serve original files with metadata such as place and camera.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Add images that appear or change in the image directory.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", metavar="ORIGIN", help="Let pages of this site use the API; may be repeated."),
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch-urls", help="Let the page search with images at public web addresses.")
    ] = False,
) -> None:
    """Serve the search page and HTTP API of a run.

    Prints the address; Ctrl-C stops it; /docs describes the API. Picks up retrained learners and added or removed
    images automatically. Needs the extra serve.

    \b
    Examples:
      visterm serve --run photos --open
      visterm serve --run photos --watch
      visterm serve --host 0.0.0.0 --token "$(openssl rand -hex 16)"
    """
    place, config = open_run(run, None, None)
    if watch:
        _check_watch(config)
    start = start_service()
    settings = ServiceSettings(
        upload_pixels, keep_metadata, overview=True, cors_origins=_origins(cors_origin or []), fetch=fetch, watch=watch
    )
    start(place, make_console(), settings, host=host, port=port, token=token, browse=browse)


def _origins(origins: list[str]) -> tuple[str, ...]:
    from .middleware import checked_origin

    try:
        return tuple(checked_origin(origin) for origin in origins)
    except ValueError as error:
        raise UserError(f"--cors-origin: {error}") from None


def _check_watch(config: Config) -> None:
    """Refuse to watch what cannot be watched."""
    if config.collection.vectors.file is not None:
        raise UserError("--watch: this run has imported vectors, and no model for new images; leave --watch out")
    if find_spec("watchfiles") is None:
        raise UserError(f"--watch needs watchfiles: {how_to_install('watch')}")


def start_service() -> Callable:
    """Return the function that serves a run, or say which package is missing."""
    try:
        import python_multipart  # noqa: F401  # FastAPI raises another error without it, when routes are added

        from .server import serve as start
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "httptools", "uvicorn", "starlette", "multipart", "python_multipart"):
            raise
        raise UserError(f"the service needs {error.name}: {how_to_install('serve')}") from None
    return start
