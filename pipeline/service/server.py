"""Starting the service."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import webbrowser
from urllib.parse import quote

import uvicorn

from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run

from .app import create_app
from .middleware import is_loopback

MIN_TOKEN = 8
CONNECTIONS = 800  # idle ones too: below the 1,024 files that a process may have open
IDLE_SECONDS = 10


def serve(
    run: Run,
    console: Console,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    browse: bool = False,
) -> None:
    """Serve a run until Ctrl-C; print the address on standard output.

    Parameters
    ----------
    run : Run
    console : Console
    host : str
        Address to listen on. One that other machines reach needs a token.
    port : int
        0: any free one.
    token : str or None
    browse : bool
        Open the page in a browser.

    Raises
    ------
    UserError
        No token where one is needed, an address that cannot be listened on, or a run that cannot be searched.
    """
    _check_token(host, token)
    with _listen(host, port) as listening:
        app = create_app(run, token=token, local=is_loopback(host) and token is None)
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{port}/"
        print(address, flush=True)
        console.say("Ctrl-C ends it")
        if browse:
            webbrowser.open(address + (f"?token={quote(token)}" if token else ""))
        sys.setswitchinterval(0.001)  # the thread that takes requests must not wait long for one that opens a newer run
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses may hold the token
            ws="none",
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=5,
        )
        with contextlib.suppress(KeyboardInterrupt):  # the usual end
            uvicorn.Server(config).run(sockets=[listening])


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host}: other machines could reach it, so a token is needed: --token TEXT, or VISTERM_TOKEN; "
                f"without one, only --host 127.0.0.1"
            )
    elif len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"--token: at least {MIN_TOKEN} letters, digits or signs, without blanks")


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections."""
    where = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    try:
        return socket.create_server((where, port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            reason = "another program listens there; give another --port, or --port 0 for any free one"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot listen on {host} port {port}: {reason}") from None
