"""Subjects of the API: a class each, whose methods are its routes, and make their answers.

An answer is a `TypedDict` beside the method that makes it: the JSON that is sent, as it is made. FastAPI describes it
from the return annotation, and does not check or copy it.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from fastapi import Depends, FastAPI, Request, params
from pydantic import BaseModel
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import RunChanged
from visterm.pipeline.search.request import OPTIONS

from .parts import ServiceParts
from .responses import JsonResponse

_LISTS = {name for name, option in OPTIONS.items() if option.several}
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

    def add_routes(self, app: FastAPI, *, described: bool = False) -> None:
        """Add the routes to the application; `described` with what they answer, which takes as long as all else."""
        for name, method in vars(type(self)).items():
            if (route := getattr(method, "route", None)) is not None:
                self._add(app, getattr(self, name), route, described)

    def _add(self, app: FastAPI, method: Callable[..., Any], route: _Route, described: bool) -> None:
        def work(parameters: dict[str, Any]) -> Any:
            if route.writes:
                self.service.run_folder.check()
            return method(**parameters)

        async def answered(parameters: dict[str, Any]) -> Any:
            if inspect.iscoroutinefunction(method):
                return await method(**parameters)
            return await getattr(self.service, route.pool).run(work, parameters)

        @functools.wraps(method)  # FastAPI reads the signature and the annotations of the method
        async def respond(**parameters: Any) -> Response:
            try:
                answer = await answered(parameters)
            except RunChanged:  # before a learner was loaded, as in the first second
                if route.writes:
                    raise
                await self.service.general_pool.run(self.service.reloader.refresh)
                for form in parameters.values():
                    if (file := getattr(form, "file", None)) is not None:
                        await file.seek(0)
                answer = await answered(parameters)
            return answer if isinstance(answer, Response) else JsonResponse(answer)

        names, is_form = _parameters(method)
        names -= set(re.findall(r"{(\w+)}", route.path))
        respond.__dict__["known"] = known = names | _fields_of_body(method)

        async def check(http: Request) -> None:
            for name in http.query_params:
                if name not in names:
                    raise HTTPException(422, unknown_name(name, names))
                if len(http.query_params.getlist(name)) > 1 and name not in _LISTS:
                    raise HTTPException(422, f"{name}: given more than once")
            is_json = http.headers.get("content-type", "").startswith("application/json")
            form = await http.form() if is_form and not is_json else FormData()  # read already
            unknown = min(set(form) - known, default="")
            if is_form and (is_json or unknown.startswith("{")):  # JSON without its header is one name
                raise HTTPException(
                    422, f"{route.method} {route.path} takes a form, not JSON: curl -F file=@photo.jpg, or -F id=12"
                )
            if unknown:
                raise HTTPException(422, unknown_name(unknown, known))
            for name in set(form) - _LISTS:
                if len(form.getlist(name)) + len(http.query_params.getlist(name)) > 1:
                    raise HTTPException(422, f"{name}: given more than once")

        returns_file = method.__annotations__["return"] == "Response"
        answer: dict[str, Any] = {} if described else {"response_model": None}
        app.add_api_route(
            route.path,
            respond,
            methods=[route.method],
            tags=[route.tag] if route.tag else None,
            dependencies=[Depends(check)],
            include_in_schema=route.tag is not None,
            response_class=Response if returns_file else JsonResponse,
            **answer,
        )


def unknown_name(name: str, known: Iterable[str]) -> str:
    """Return the error of a name of no parameter or field, with the one that was probably meant."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
    hint = "it belongs to another part of the body" if name in near else hint
    return one_line(f"unknown parameter {name[:100]}; {hint}")


def _parameters(method: Callable[..., Any]) -> tuple[set[str], bool]:
    """Return the names that may stand in a URL after the question mark, and whether the body is a form."""
    names: set[str] = set()
    is_form = False
    for name, kind in get_type_hints(method, include_extras=True).items():
        marks = getattr(kind, "__metadata__", ())
        is_form |= any(isinstance(mark, params.Form) for mark in marks)
        model = get_origin(kind) is Annotated and kind.__origin__
        if isinstance(model, type) and issubclass(model, BaseModel):
            names |= model.model_fields.keys() - {"file"}
        elif not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            names.add(name)
    return names - {"return", "http"}, is_form


def _fields_of_body(method: Callable[..., Any]) -> set[str]:
    """Return the names of all fields that a body may have."""
    models = [
        kind for kind in get_type_hints(method).values() if isinstance(kind, type) and issubclass(kind, BaseModel)
    ]
    names: set[str] = set()
    while models:
        for field, info in models.pop().model_fields.items():
            names.add(field)
            parts = get_args(info.annotation)
            models += [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
    return names
