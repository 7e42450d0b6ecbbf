"""Start the service."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import webbrowser
from urllib.parse import quote

import uvicorn

from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError, system_reason
from visterm.pipeline.store.run import Run

from .app import create_app
from .middleware import is_loopback

MIN_TOKEN = 8
CONNECTIONS = 800  # including idle ones; below the usual limit of 1,024 open files
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
    """Serve a run until Ctrl-C, and print the URL on standard output.

    Parameters
    ----------
    run : Run
    console : Console
    host : str
        Address to listen on. An address that other machines can reach requires a token.
    port : int
        0 picks a free port.
    token : str or None
        Access token required on every request.
    browse : bool
        Open the page in a browser.

    Raises
    ------
    UserError
        The token is missing or too short, the service cannot listen on the address, or the run cannot be searched.
    """
    _check_token(host, token)
    with _listen(host, port) as listening:
        app = create_app(run, token=token, local=is_loopback(host) and token is None)
        port = listening.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/"
        print(address, flush=True)
        console.say("press Ctrl-C to stop")
        if browse:
            webbrowser.open(address + (f"?token={quote(token)}" if token else ""))
        sys.setswitchinterval(0.001)  # keeps the event loop responsive while the run is reloaded
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # URLs may contain the token
            ws="none",
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=5,
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host}: a token is needed where other machines can connect; give --token TEXT or set "
                f"VISTERM_TOKEN, or use --host 127.0.0.1"
            )
    elif len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"--token: give at least {MIN_TOKEN} ASCII letters, digits or signs, without blanks")


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
