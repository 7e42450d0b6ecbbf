"""Access control, request limits and security headers."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import math
import re
import time
from urllib.parse import quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visterm.pipeline.console import one_line

from .batching import RequestPlaces, too_busy
from .bodies import (
    JSON_BYTES,
    MAX_CONCURRENT_UPLOADS,
    UPLOAD_TURN_SECONDS,
    Disconnected,
    claimed_length,
    read_body,
    replay,
)
from .responses import SECURITY_HEADERS, error_response

_log = logging.getLogger(__name__)
START_SECONDS = 1.0  # from receiving a request to the start of its work; after that it is refused
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_CORS_HEADERS = {
    "Access-Control-Expose-Headers": "ETag, Link, Retry-After, X-Total-Count",
    "Cross-Origin-Resource-Policy": "cross-origin",
}
_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE",
    "Access-Control-Max-Age": "600",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_origin(origin: str) -> str:
    """Return an origin as browsers send it, ``https://app.example``; ValueError if it is none."""
    text = origin.strip().lower()
    with contextlib.suppress(ValueError):  # of a port that is none
        parts = urlsplit(text)
        standard = {"http": 80, "https": 443}.get(parts.scheme)
        plain = text == f"{parts.scheme}://{parts.netloc}" and re.fullmatch(r"[a-z0-9.\-\[\]:]*[^:]", parts.netloc)
        if standard is not None and parts.hostname and plain and parts.port != 0:
            return text if parts.port != standard else text.rpartition(":")[0]
    raise ValueError(f"{origin!r} is no origin: give scheme and host alone, such as https://app.example")


class AccessMiddleware:
    """ASGI middleware that checks host, token, origin and body before the application sees a request.

    The token comes as ``Authorization: Bearer``, or as ``?token=`` once, which sets a cookie. With `local`, the Host
    header must be a loopback name: another site could point its own name at 127.0.0.1 (DNS rebinding) and pass for the
    same origin.

    Pages of the sites in `origins` may use the API, with the header Authorization if there is a token: cookies of this
    service are not sent with their requests.

    A request that the event loop could not start within `START_SECONDS` is refused, except ``GET /health``. HEAD is
    answered as GET; the server drops the body.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        local: bool,
        upload_paths: tuple[str, ...],
        upload_bytes: int,
        origins: tuple[str, ...] = (),
    ):
        self.app, self._origins = app, origins
        self._local, self._upload_paths, self._upload_bytes = local, upload_paths, upload_bytes
        self._token = token.encode() if token else None
        self._upload_places = RequestPlaces(MAX_CONCURRENT_UPLOADS, UPLOAD_TURN_SECONDS)
        if token:
            digest = hmac.new(token.encode(), b"visterm cookie", hashlib.sha256).hexdigest()
            # Cookies are per host, not per port: two services on one machine need different names.
            self._cookie_name, self._cookie = f"visterm_{digest[:8]}", digest[8:]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                if self._origins:
                    headers.add_vary_header("Origin")
                    if (origin := Headers(scope=scope).get("origin")) in self._origins:
                        headers.update(_CORS_HEADERS | {"Access-Control-Allow-Origin": origin})
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._handle(scope, receive, send_with_headers)
        except HTTPException as error:  # raised here; the application handles its own
            response = error_response(error.status_code, error.detail, error.headers)
            await response(scope, receive, send_with_headers)
        except Disconnected:
            pass
        except Exception as error:
            _log.exception("%s %s", scope["method"], one_line(scope["path"]))
            if started:
                raise  # closes the connection: what was sent is not the whole response
            text = f"internal error: {type(error).__name__}; the output of the service has the details"
            await error_response(500, text)(scope, receive, send_with_headers)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        received_at = scope.get("state", {}).get("received_at", math.inf)
        if scope["path"] != "/health" and time.monotonic() > received_at + START_SECONDS:
            raise too_busy()
        headers = Headers(scope=scope)
        if self._local and not is_loopback(_host_name(headers.get("host", ""))):
            raise HTTPException(
                421,
                "this service accepts requests only for localhost and 127.0.0.1; behind a proxy, start it with --token "
                "TEXT, or let the proxy send the header 'Host: localhost'",
            )
        allowed = headers.get("origin") in self._origins
        if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await Response(status_code=204, headers=_PREFLIGHT_HEADERS)(scope, receive, send)  # browsers send no token
            return
        if self._token is not None:
            try:
                redirect = self._check_token(scope, headers)
            except HTTPException:
                if scope["path"] != "/health" or scope["method"] not in _SAFE_METHODS:
                    raise
                redirect = None
                scope.setdefault("state", {})["anonymous"] = True  # it is told nothing but the status
            if redirect is not None:
                await redirect(scope, receive, send)
                return
        if scope["method"] in _SAFE_METHODS:
            # Ranges are ignored, as a server may: nothing here is large, and starlette's errors of them are no JSON.
            whole = [header for header in scope["headers"] if header[0] != b"range"]
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            await self.app({**scope, "headers": whole, "method": method}, receive, send)
            return
        if not allowed:
            _check_origin(headers)
        length = claimed_length(headers)
        is_upload = scope["path"] in self._upload_paths
        limit = self._upload_bytes if is_upload else JSON_BYTES
        large = is_upload and (length is None or length > JSON_BYTES)  # others are too small to matter
        async with self._upload_places.place() if large else contextlib.nullcontext():
            body = await read_body(receive, headers, limit)
            await self.app(scope, replay(body, receive), send)

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request without the token; turn one in the URL into a cookie, and redirect."""
        assert self._token is not None
        query = QueryParams(scope["query_string"])
        in_url = scope["method"] == "GET" and "token" in query
        authorization = headers.get("authorization", "")
        if in_url:
            self._compare(query["token"])
            rest = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
            # Relative: a proxy may serve this below a path of its own.
            path = f"./{quote(scope['path'].rpartition('/')[2])}"
            response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            # Lax, so that a link in a mail opens; requests that change anything are checked for their origin.
            response.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="lax", path="/")
            return response
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie_name, "")
        if hmac.compare_digest(cookie.encode(), self._cookie.encode()):
            return None
        if authorization[:7].lower() != "bearer ":
            raise self._unauthorized()
        self._compare(authorization[7:].strip())
        return None

    def _compare(self, token: str) -> None:
        """Refuse a wrong token. Guessing needs no limit: `serve` takes none of less than 128 bits."""
        assert self._token is not None
        if not hmac.compare_digest(token.encode(), self._token):
            raise self._unauthorized()

    @staticmethod
    def _unauthorized() -> HTTPException:
        text = "a token is needed: send the header 'Authorization: Bearer TOKEN', or open the page with ?token=TOKEN"
        return HTTPException(401, text, {"WWW-Authenticate": "Bearer"})


def _host_name(host: str) -> str:
    """Return a Host header without the port; empty if it is invalid."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _check_origin(headers: Headers) -> None:
    """Refuse requests that pages of other sites make browsers send; other programs send neither header."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        same = site in ("same-origin", "none")
    else:
        try:
            same = origin is None or urlsplit(origin).netloc == headers.get("host")
        except ValueError:  # "http://[x"
            same = False
    if not same:
        raise HTTPException(403, "this request comes from the page of another site; open the page of this service")
