"""JSON responses and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


class JsonResponse(Response):
    """JSON in ASCII: file names may hold bytes that are not UTF-8, which only escapes can represent."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode; NaN and infinity raise, because browsers reject them."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """Make the response for an error, on one line: the problem and how to fix it."""
    return JsonResponse({"ok": False, "error": text, "status": status}, status, headers)
