"""Start the service."""

from __future__ import annotations

import contextlib
import errno
import functools
import secrets
import socket
import sys
import webbrowser
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from visterm.pipeline.console import Console
from visterm.pipeline.errors import NothingToSearch, UserError, system_reason
from visterm.pipeline.store.run import Run

from .app import create_app
from .connection import IDLE_SECONDS, LimitedConnection
from .middleware import is_loopback
from .settings import ServiceSettings

MIN_TOKEN = 22  # letters and digits of 128 random bits: guessing them needs no limit


def serve(
    run: Run,
    console: Console,
    settings: ServiceSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    browse: bool = False,
) -> None:
    """Serve a run until Ctrl-C, and print the URL on standard output; `browse` opens the page in a browser.

    By default the map of the collection is kept up to date. An address that other machines can reach requires a token,
    which every request must then have; port 0 picks a free one.

    UserError if the token is missing or too short, the service cannot listen on the address, or the run cannot be
    searched. A run without images is served: its page says how to begin.
    """
    _check_token(host, token)
    with _listen(host, port) as listening:
        local = is_loopback(host) and token is None
        create = functools.partial(
            create_app, run, settings or ServiceSettings(overview=True), token=token, local=local
        )
        try:
            app: ASGIApp = create()
        except NothingToSearch as error:
            from .waiting import WaitingApp  # others start without its templates

            console.say(f"{error}; the page says so until then")
            app = WaitingApp(run, create, token=token, local=local)
        port = listening.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/"
        print(address, flush=True)
        console.say("press Ctrl-C to stop")
        if browse:
            webbrowser.open(address + (f"?token={quote(token)}" if token else ""))
        sys.setswitchinterval(0.001)  # keeps the event loop responsive while the run is reloaded
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(server_config(app)).run(sockets=[listening])


def server_config(app: ASGIApp) -> uvicorn.Config:
    """Return how uvicorn serves the application."""
    return uvicorn.Config(
        app,
        http=LimitedConnection,
        log_level="error",  # anybody can cause warnings
        access_log=False,  # URLs may contain the token
        ws="none",
        proxy_headers=False,  # nothing asks for the client's address
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=5,
    )


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host}: a token is needed where other machines can connect; give --token TEXT or set "
                f"VISTERM_TOKEN, or use --host 127.0.0.1"
            )
    elif len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(
            f"--token: give at least {MIN_TOKEN} ASCII letters, digits or signs without blanks that nobody can guess, "
            f"such as {secrets.token_hex(16)}"
        )


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            reason = "another program listens there; give another --port, or --port 0 to pick a free one"
        else:
            reason = system_reason(error) or str(error)
        raise UserError(f"cannot listen on {host} port {port}: {reason}") from None
