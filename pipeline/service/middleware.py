"""What stands between the network and the service: who may ask, how much at once, and what browsers may do with it."""

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
from .responses import error_answer

_log = logging.getLogger(__name__)
JSON_BYTES = 64 * 1024  # of a request body that is no upload
UPLOADS_AT_ONCE = 8  # whose bytes are held in memory
SECONDS_BETWEEN_BYTES = 10.0
SECONDS_FOR_A_BODY = 60.0
_DISCARDED = 64 * 2**20  # bytes read on after a refusal: a browser shows the answer only to a body that was taken
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    # Scripts and styles come from the service alone; nothing inline, so markup in a file name stays text.
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
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AccessMiddleware:
    """ASGI middleware: checks host, token, origin and body before the application sees a request.

    Parameters
    ----------
    app : ASGI application
    token : str or None
        What a request must show: ``Authorization: Bearer``, or ``?token=`` once, which sets a cookie.
    local : bool
        Answer only to names of this machine. A page elsewhere could point a name of its own at 127.0.0.1 (DNS
        rebinding), and be taken for the same origin.
    upload_paths : tuple of str
        Where a body may have ``upload_bytes``; elsewhere it may have JSON_BYTES.
    upload_bytes : int
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
            # Browsers keep cookies by host, not by port: two services on one machine must not share a name.
            self._cookie_name, self._cookie = f"visterm_{digest[:8]}", digest[8:]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._answer(scope, receive, send_guarded)
        except HTTPException as error:  # of this class; those of the application are answered there
            answer = error_answer(error.status_code, error.detail, error.headers)
            await answer(scope, receive, send_guarded)
        except _Disconnected:
            pass
        except Exception as error:
            _log.exception("%s %s", scope["method"], scope["path"])
            if not started:
                text = f"internal error: {type(error).__name__}; the service's own output shows where"
                await error_answer(500, text)(scope, receive, send_guarded)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self._local and not is_loopback(_host_name(headers.get("host", ""))):
            raise HTTPException(421, "this service answers to localhost and 127.0.0.1 only")
        if self._token is not None and (entered := self._check_token(scope, headers)) is not None:
            await entered(scope, receive, send)
            return
        if scope["method"] in _SAFE:
            await self.app(scope, receive, send)
            return
        _check_origin(headers)
        uploads = scope["path"] in self._upload_paths
        if uploads and self._uploads >= UPLOADS_AT_ONCE:
            raise too_busy()
        self._uploads += uploads
        try:
            body = await _read_body(receive, headers, self._upload_bytes if uploads else JSON_BYTES)
            await self.app(scope, _replay(body, receive), send)
        finally:
            self._uploads -= uploads

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse who has no token; of who brings it in the address, keep it in a cookie and clean the address."""
        assert self._token is not None
        given = headers.get("authorization", "")
        if given[:7].lower() == "bearer " and hmac.compare_digest(given[7:].strip().encode(), self._token):
            return None
        query = QueryParams(scope["query_string"])
        if "token" in query and scope["method"] == "GET":
            if not hmac.compare_digest(query["token"].encode(), self._token):
                raise self._refused()
            rest = urlencode([(name, value) for name, value in query.multi_items() if name != "token"])
            path = "/" + scope["path"].lstrip("/")  # two slashes would lead to another host
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            # Lax: a link in a mail must open; what changes anything checks the origin.
            answer.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="lax", path="/")
            return answer
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie_name, "")
        if hmac.compare_digest(cookie.encode(), self._cookie.encode()):
            return None
        raise self._refused()

    @staticmethod
    def _refused() -> HTTPException:
        text = "a token is needed: send the header 'Authorization: Bearer TOKEN', or open the page with ?token=TOKEN"
        return HTTPException(401, text, {"WWW-Authenticate": "Bearer"})


class _Disconnected(Exception):
    """The client went away before its request was complete: there is nobody to answer."""


def _host_name(host: str) -> str:
    """``127.0.0.1:8000`` without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _check_origin(headers: Headers) -> None:
    """Refuse what the page of another site makes a browser send; programs send neither header."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        same = site in ("same-origin", "none")
    else:
        try:
            same = origin is None or urlsplit(origin).netloc == headers.get("host")
        except ValueError:  # "http://[x"
            same = False
    if not same:
        raise HTTPException(403, "this request comes from the page of another site; open the service's own page")


async def _read_body(receive: Receive, headers: Headers, limit: int) -> bytes:
    """Read a whole body, counting: a length that is claimed may be wrong, or missing."""
    too_large = HTTPException(
        413, f"too large: a request of this kind may have {limit:,} bytes", {"Connection": "close"}
    )
    claimed = headers.get("content-length", "0")
    length = int(claimed) if claimed.isdecimal() else 0
    parts: list[bytes] = []
    size, refused = 0, length > limit
    if length > limit + _DISCARDED or (refused and headers.get("expect")):  # the client waits before it sends
        raise too_large
    try:
        async with asyncio.timeout(SECONDS_FOR_A_BODY):
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
                    if size > limit + _DISCARDED:
                        raise too_large
                else:
                    parts.append(part)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        text = f"too slow: a body may pause for {SECONDS_BETWEEN_BYTES:.0f} s and take {SECONDS_FOR_A_BODY:.0f} s"
        raise (too_large if refused else HTTPException(408, text, {"Connection": "close"})) from None
    if refused:
        raise too_large
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand on a body that was read already."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()  # only the news that the client is gone can follow
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
