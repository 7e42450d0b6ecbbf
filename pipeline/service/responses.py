"""JSON responses and errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


class Json(Response):
    """JSON in ASCII: file names may hold bytes that are no UTF-8, which only escapes can carry."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode; NaN and infinity are refused, as browsers would."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> Json:
    """Every error has this shape.

    Parameters
    ----------
    status : int
    text : str
        What went wrong and what to do, on one line.
    headers : mapping, optional
    """
    return Json({"ok": False, "error": text, "status": status}, status, headers)
