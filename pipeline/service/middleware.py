"""Access control, request limits and security headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .batching import too_busy
from .responses import error_response

_log = logging.getLogger(__name__)
JSON_BYTES = 64 * 1024  # limit of a request body without upload
MAX_CONCURRENT_UPLOADS = 8  # held in memory
SECONDS_BETWEEN_BYTES = 10.0
SECONDS_FOR_BODY = 60.0
_MAX_DISCARDED = 64 * 2**20  # bytes read after a refusal: a browser shows the response only once its body is read
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    # Scripts and styles only from the service and never inline, so markup in a file name stays text.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AccessMiddleware:
    """ASGI middleware that checks host, token, origin and body before the application sees a request.

    The token comes as ``Authorization: Bearer``, or as ``?token=`` once, which sets a cookie. With `local`, the Host
    header must be a loopback name: another site could point its own name at 127.0.0.1 (DNS rebinding) and pass for the
    same origin.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, local: bool, upload_paths: tuple[str, ...], upload_bytes: int
    ):
        self.app = app
        self._local, self._upload_paths, self._upload_bytes = local, upload_paths, upload_bytes
        self._token = token.encode() if token else None
        self._uploads = 0
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
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._handle(scope, receive, send_with_headers)
        except HTTPException as error:  # raised here; the application handles its own
            response = error_response(error.status_code, error.detail, error.headers)
            await response(scope, receive, send_with_headers)
        except _Disconnected:
            pass
        except Exception as error:
            _log.exception("%s %s", scope["method"], scope["path"])
            if not started:
                text = f"internal error: {type(error).__name__}; the output of the service has the details"
                await error_response(500, text)(scope, receive, send_with_headers)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._local and not is_loopback(_host_name(headers.get("host", ""))):
            raise HTTPException(421, "this service accepts requests only for localhost and 127.0.0.1")
        if self._token is not None and (redirect := self._check_token(scope, headers)) is not None:
            await redirect(scope, receive, send)
            return
        if scope["method"] in _SAFE_METHODS:
            await self.app(scope, receive, send)
            return
        _check_origin(headers)
        is_upload = scope["path"] in self._upload_paths
        if is_upload and self._uploads >= MAX_CONCURRENT_UPLOADS:
            raise too_busy()
        self._uploads += is_upload
        try:
            body = await _read_body(receive, headers, self._upload_bytes if is_upload else JSON_BYTES)
            await self.app(scope, _replay(body, receive), send)
        finally:
            self._uploads -= is_upload

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse a request without the token; turn one in the URL into a cookie, and redirect."""
        assert self._token is not None
        given = headers.get("authorization", "")
        if given[:7].lower() == "bearer " and hmac.compare_digest(given[7:].strip().encode(), self._token):
            return None
        query = QueryParams(scope["query_string"])
        if "token" in query and scope["method"] == "GET":
            if not hmac.compare_digest(query["token"].encode(), self._token):
                raise self._unauthorized()
            rest = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
            path = "/" + scope["path"].lstrip("/")  # two slashes would redirect to another host
            response = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            # Lax, so that a link in a mail opens; requests that change anything are checked for their origin.
            response.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="lax", path="/")
            return response
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie_name, "")
        if hmac.compare_digest(cookie.encode(), self._cookie.encode()):
            return None
        raise self._unauthorized()

    @staticmethod
    def _unauthorized() -> HTTPException:
        text = "a token is needed: send the header 'Authorization: Bearer TOKEN', or open the page with ?token=TOKEN"
        return HTTPException(401, text, {"WWW-Authenticate": "Bearer"})


class _Disconnected(Exception):
    """The client disconnected before its request was complete."""


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


async def _read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """Read a body up to a limit; its Content-Length may be wrong or missing."""
    too_large = HTTPException(413, f"too large: the limit of this request is {limit:,} bytes", {"Connection": "close"})
    claimed = headers.get("content-length", "0")
    length = int(claimed) if claimed.isdecimal() else 0
    parts: list[bytes] = []
    size, refused = 0, length > limit
    if length > limit + _MAX_DISCARDED or (
        refused and headers.get("expect")
    ):  # the client waits for permission to send
        raise too_large
    try:
        async with asyncio.timeout(SECONDS_FOR_BODY):
            while True:
                async with asyncio.timeout(SECONDS_BETWEEN_BYTES):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Disconnected
                part = message.get("body", b"")
                size += len(part)
                refused = refused or size > limit
                if refused:
                    parts.clear()
                    if size > limit + _MAX_DISCARDED:
                        raise too_large
                else:
                    parts.append(part)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        text = (
            f"too slow: the limits are {SECONDS_BETWEEN_BYTES:.0f} s without data and {SECONDS_FOR_BODY:.0f} s in all"
        )
        raise (too_large if refused else HTTPException(408, text, {"Connection": "close"})) from None
    if refused:
        raise too_large
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Make a `receive` that returns a body which was already read."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()  # only a disconnect can follow
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
