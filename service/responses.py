"""JSON responses and errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

SECURITY_HEADERS = {
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


class JsonResponse(JSONResponse):
    """JSON in ASCII: file names may hold bytes that are not UTF-8, which only escapes can represent."""

    def render(self, content: Any) -> bytes:
        """Encode; NaN and infinity raise, because browsers reject them."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """Make the response for an error, on one line: the problem and how to fix it."""
    return JsonResponse({"ok": False, "error": text, "status": status}, status, headers)


def next_offset(offset: int, limit: int, total: int) -> int | None:
    """Return the offset of the next page of a list; None after the last one."""
    return offset + limit if offset + limit < total else None


def hide_folders(text: str, *folders: str | os.PathLike[str]) -> str:
    """Remove absolute folders from a text: given ones, and others, of which only the last part of a path stays."""
    for folder in folders:
        for name in {os.fspath(folder), os.path.abspath(folder), os.path.realpath(folder)} - {".", "/", ""}:
            text = text.replace(name + os.sep, "")
    return _ABSOLUTE_PATH.sub("", text)


_ABSOLUTE_PATH = re.compile(r"(?<![^\s'\"(=:])(?:/[^\s/:;,'\"()]+)+/(?=[^\s/])")  # folders of a path
