"""The OpenAPI description of the service, of which /docs is made."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI

_ADDRESS = "http://127.0.0.1:8000"  # of the examples
_EXAMPLES = {"ids": "1,2", "file": "@photo.jpg", "upload": "HASH", "query_label": "dog", "label": "dog"}


def describe_when_asked(app: FastAPI, twin: Callable[[], FastAPI]) -> None:
    """Make the description of the API when somebody first asks for it: the start would wait for it.

    `twin` makes an application of the same routes, which knows what they answer.
    """
    lock = threading.Lock()

    def openapi() -> dict[str, Any]:
        with lock:
            if app.openapi_schema is None:
                # Some answers are called Answer only to differ from classes of other rooms.
                described = json.loads(re.sub(r"(?<=[\w/])Answer(?=\")", "", json.dumps(twin().openapi())))
                described["components"]["schemas"] = dict(sorted(described["components"]["schemas"].items()))
                _describe_absence(described)
                _describe_use(described)
                app.openapi_schema = described
            return app.openapi_schema

    # FastAPI's documentation replaces this method so; mypy allows no assignment to one.
    app.openapi = openapi  # type: ignore[method-assign]


def _describe_absence(description: dict[str, Any]) -> None:
    """Remove null from the description of parameters and form fields: they are left out instead."""
    fields = [
        parameter["schema"]
        for operations in description["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", [])
    ]
    for name in ("UploadSearchRequest", "UploadImageRequest"):
        fields += description["components"]["schemas"][name]["properties"].values()
    for field in fields:
        kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            del field["anyOf"]
            field |= kinds[0] | {key: field[key] for key in ("description", "title") if key in field}


def _describe_use(description: dict[str, Any]) -> None:
    """Add the token, and an example of each request."""
    components = description["components"]
    text = "Of a service that was started with --token."
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "description": text}}
    description["security"] = [{}, {"token": []}]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            source = _example(path, method, operation, components["schemas"])
            operation["x-codeSamples"] = [{"lang": "Shell", "label": "curl", "source": source}]


def _example(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return a command that makes a request."""
    values = []
    for parameter in operation.get("parameters", []):
        name, value = parameter["name"], _value(parameter["name"], parameter["schema"], schemas)
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(str(value)))
        elif parameter["required"] or name == "id":  # the simplest query
            values.append(f"{name}={quote(str(value), safe=',')}")
    address = f"{_ADDRESS}{path}" + (f"?{'&'.join(values)}" if values else "")
    words = ["curl"] if method == "get" else ["curl", "-X", method.upper()]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(body["schema"], schemas)
        if kind == "application/json":
            words += ["--json", json.dumps(_value("", schema, schemas), ensure_ascii=False)]
        elif kind == "application/octet-stream":
            words += ["--data-binary", "@photo.jpg"]
        else:
            names = schema.get("required") or ["file"]
            words += [word for name in names for word in ("-F", f"{name}={_EXAMPLES.get(name, 'TEXT')}")]
    return shlex.join([*words, address])


def _resolved(schema: Any, schemas: Any) -> Any:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _value(name: str, schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return a value that a schema allows."""
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        return _value(name, schema["anyOf"][0], schemas)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object":
        fields, example = schema.get("properties", {}), schema.get("examples", [{}])[0]
        values = {field: _value(field, fields[field], schemas) for field in schema.get("required", [])} | example
        return {field: values[field] for field in fields if field in values}
    if schema.get("type") == "array":
        return [_value(name, schema["items"], schemas)] * max(1, schema.get("minItems", 1))
    if schema.get("type") in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    return _EXAMPLES.get(name, name.upper() or "TEXT") if schema.get("type") == "string" else True
