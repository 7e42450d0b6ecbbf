"""Subjects of the API: a class each, whose methods are its routes, and make their answers.

An answer is a `TypedDict` beside the method that makes it: the JSON that is sent, as it is made. FastAPI describes it
from the return annotation, and does not check or copy it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI
from starlette.responses import Response

from .parts import ServiceParts
from .responses import JsonResponse

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Subject")


class _Route(NamedTuple):
    method: str
    path: str
    tag: str | None
    pool: str  # attribute of the service
    writes: bool


def get(path: str, tag: str | None = None) -> Callable[[F], F]:
    """Make a method the handler of GET requests: one that is `async` in the event loop, others in a thread."""
    return _marked(_Route("GET", path, tag, "general_pool", False))


def post(path: str, tag: str, *, pool: str = "general_pool", writes: bool = True) -> Callable[[F], F]:
    """Make a method the handler of POST requests; if it `writes`, it is refused while the run's folder is not there."""
    return _marked(_Route("POST", path, tag, pool, writes))


def delete(path: str, tag: str) -> Callable[[F], F]:
    """Make a method that writes the handler of DELETE requests."""
    return _marked(_Route("DELETE", path, tag, "general_pool", True))


def _marked(route: _Route) -> Callable[[F], F]:
    def mark(method: F) -> F:
        method.__dict__["route"] = route
        return method

    return mark


class Subjects:
    """The subjects of one application, by class; each is made once."""

    def __init__(self, service: ServiceParts):
        self._service = service
        self._made: dict[type, Any] = {}

    def of(self, kind: type[S]) -> S:
        """Return the subject of a class."""
        if kind not in self._made:
            self._made[kind] = kind(self._service, self)
        return self._made[kind]


class Subject:
    """Routes of one part of the API, in the order of their methods."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        self.service, self.subjects = service, subjects

    def add_routes(self, app: FastAPI) -> None:
        """Add the routes to the application."""
        for name, method in vars(type(self)).items():
            if (route := getattr(method, "route", None)) is not None:
                self._add(app, getattr(self, name), route)

    def _add(self, app: FastAPI, method: Callable[..., Any], route: _Route) -> None:
        def work(parameters: dict[str, Any]) -> Any:
            if route.writes:
                self.service.run_folder.check()
            return method(**parameters)

        @functools.wraps(method)  # FastAPI reads the signature and the annotations of the method
        async def respond(**parameters: Any) -> Response:
            if inspect.iscoroutinefunction(method):
                answer = await method(**parameters)
            else:
                answer = await getattr(self.service, route.pool).run(work, parameters)
            return answer if isinstance(answer, Response) else JsonResponse(answer)

        returns_file = method.__annotations__["return"] == "Response"
        app.add_api_route(
            route.path,
            respond,
            methods=[route.method],
            tags=[route.tag] if route.tag else None,
            include_in_schema=route.tag is not None,
            response_class=Response if returns_file else JsonResponse,
        )
