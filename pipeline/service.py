"""The HTTP service: search, annotation, explanation, pictures, marks and judging over one run, and the page."""

from __future__ import annotations

import contextlib
import csv
import datetime
import errno
import io
import logging
import os
import random
import socket
import sqlite3
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Form, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.middleware import Middleware
from starlette.responses import Response

from visterm.features import silence_decoders

from . import api
from .answers import UPLOAD_BYTES, Answers, unknown_image
from .console import Console, one_line
from .current import Snapshot
from .errors import UserError
from .guard import Guard, Json, error_answer, is_loopback
from .pictures import PictureGone, make_thumbnail, media_type, read_original
from .store.catalogue import Image
from .store.records import read_metrics
from .store.run import Run
from .teaching import add_judging, add_marks

WEB = Path(__file__).parent / "web"
MIN_TOKEN = 8
CONNECTIONS = 800  # idle ones too: below the 1,024 files that a process may have open
IDLE_SECONDS = 10
_FOREVER = "private, max-age=31536000, immutable"
_PICTURE_POLICY = {"Content-Security-Policy": "default-src 'none'; sandbox"}  # for a file that is a picture and a page
_UPLOAD_PATHS = ("/search", "/annotate")
_UPLOAD = Form(media_type="multipart/form-data")


def create_app(run: Run, *, token: str | None = None, local: bool = True) -> FastAPI:
    """Make the application that serves a run.

    Parameters
    ----------
    run : Run
    token : str, optional
        What every request must show; None: nothing.
    local : bool, default=True
        Answer only where it is asked for as localhost or 127.0.0.1, for where no token tells friend from foe.

    Returns
    -------
    FastAPI
        Its lifespan looks for newer states of the run and closes what is open.

    Raises
    ------
    UserError
        The run cannot be searched yet.
    """
    silence_decoders()
    MultiPartParser.spool_max_size = UPLOAD_BYTES  # the body is in memory already; no copy to the disk
    answers = Answers(run)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        answers.current.start(answers.tidy)
        yield
        answers.close()

    guard = Middleware(Guard, token=token, local=local, upload_paths=_UPLOAD_PATHS, upload_bytes=UPLOAD_BYTES)
    app = FastAPI(
        title="visterm",
        summary=f"Image search over the run {run.name}",
        description=_DESCRIPTION,
        lifespan=lifespan,
        middleware=[guard],
        responses={"default": {"model": api.Problem, "description": "What is wrong"}},
        docs_url=None,
        redoc_url=None,
    )
    _handle_errors(app)
    _add_search(app, answers)
    _add_pictures(app, answers)
    _add_facts(app, answers)
    add_marks(app, answers)
    add_judging(app, answers)
    _add_pages(app)
    app.state.answers = answers
    return app


_DESCRIPTION = """\
Every answer names the version of the run that it was made from; GET /health names the one in force. Errors are JSON:
{"ok": false, "error": "...", "status": 404}; 429 comes with Retry-After. Where a token is needed, send the header
Authorization: Bearer TOKEN."""


# -------------------------------------------------------------------------------------------------------------- errors


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return error_answer(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return error_answer(422, _in_words(error.errors()))

    @app.exception_handler(UserError)
    async def user_error(request: Request, error: UserError) -> Response:
        cause = error.__context__  # of the system: a mark that could not be written, say
        status = _of_the_system(cause) if isinstance(cause, OSError | sqlite3.Error) else 409
        return error_answer(status, one_line(str(error)))

    @app.exception_handler(PictureGone)
    async def gone(request: Request, error: PictureGone) -> Response:
        return error_answer(410, str(error))

    @app.exception_handler(sqlite3.Error)
    @app.exception_handler(OSError)
    async def system(request: Request, error: Exception) -> Response:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        logging.getLogger(__name__).warning("%s: %s", request.url.path, reason)
        return error_answer(_of_the_system(error), f"{reason}; nothing was changed, try again")


def _of_the_system(error: BaseException) -> int:
    """507: the disk is full; 503: something else that may pass."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(error)
    return 507 if full else 503


def _in_words(errors: Any) -> str:
    """The first mistakes in a request, on one line."""
    found = []
    for error in errors[:3]:
        where = ".".join(str(part) for part in error["loc"][1:])  # the first says in which part of the request
        found.append(f"{where}: {error['msg']}" if where else error["msg"])
    return one_line("; ".join(found))


# -------------------------------------------------------------------------------------------------------------- search


def _add_search(app: FastAPI, answers: Answers) -> None:
    @app.get("/search", response_model=list[api.Answer], tags=["search"])
    async def search(question: Annotated[api.Question, Query()]) -> Response:
        """Images similar to one of the collection or to an earlier upload, or fitting a label. It can be shared."""
        _only_one(question)
        return Json([await answers.answer(answers.snapshot, question)])

    @app.post("/search", response_model=list[api.Answer], tags=["search"])
    async def search_with_picture(request: Request, form: Annotated[api.UploadedQuestion, _UPLOAD]) -> Response:
        """Images similar to a picture (multipart field file), or as GET /search; by fields or query parameters."""
        question = _with_parameters(form, request)
        _only_one(question, form.file)
        snapshot = answers.snapshot
        if form.file is None:
            return Json([await answers.answer(snapshot, question)])
        name, data = form.file.filename or "", await form.file.read()

        def answer() -> dict[str, Any]:
            asked, kept = answers.take(snapshot, name, data)
            return answers.search(snapshot, question, asked) | answers.kept(asked.key if kept else None)

        return Json([await answers.others.run(answer)])

    @app.post("/annotate", response_model=api.Labels, tags=["search"])
    async def annotate(request: Request, form: Annotated[api.UploadedQuestion, _UPLOAD]) -> Response:
        """Labels for a picture, an earlier upload or an image of the collection, best first."""
        question = _with_parameters(form, request)
        _only_one(question, form.file)
        if question.query_label is not None:
            raise HTTPException(422, "query_label: labels are found for images; give id, upload or file")
        snapshot = answers.snapshot
        data = None if form.file is None else (form.file.filename or "", await form.file.read())

        def answer() -> dict[str, Any]:
            if data is not None:
                asked, _ = answers.take(snapshot, *data)
            else:
                asked = answers.ask(snapshot, question.id, question.upload)
            return answers.annotate(snapshot, question, asked)

        return Json(await answers.others.run(answer))

    @app.get("/explain", response_model=api.Anything, tags=["search"])
    async def explain(
        result: Annotated[api.Id, Query()],
        id: Annotated[api.Id | None, Query()] = None,
        upload: Annotated[api.Key | None, Query()] = None,
        learner: Annotated[api.Name | None, Query()] = None,
        format: Annotated[str, Query(pattern="^(json|png)$")] = "json",
    ) -> Response:
        """Which blocks of a query and of a result make the score: it is exactly the sum over their pairs."""
        _only_one(api.Question(id=id, upload=upload))
        snapshot = answers.snapshot
        if format == "png":
            png = await answers.others.run(answers.explain_png, snapshot, id, upload, result, learner)
            return Response(png, media_type="image/png")
        return Json(await answers.others.run(answers.explain, snapshot, id, upload, result, learner))


def _only_one(question: api.Question, *others: Any) -> None:
    """Exactly one thing must be asked."""
    if sum(given is not None for given in (question.id, question.upload, question.query_label, *others)) != 1:
        raise HTTPException(422, "ask with exactly one of: id, upload, query_label, or a file in a POST")


def _with_parameters(form: api.UploadedQuestion, request: Request) -> api.Question:
    """Take from the query string what the form does not say."""
    given = form.model_dump(include=form.model_fields_set - {"file"})
    missing = {name: value for name, value in request.query_params.items() if name in api.Question.model_fields}
    try:
        return api.Question.model_validate(missing | given)
    except ValidationError as error:
        raise RequestValidationError([e | {"loc": ("query", *e["loc"])} for e in error.errors()]) from None


# ------------------------------------------------------------------------------------------------------------ pictures


def _add_pictures(app: FastAPI, answers: Answers) -> None:
    @app.get("/api/images", response_model=list[api.Shown], tags=["collection"])
    async def images(
        sample: Annotated[int | None, Query(ge=1, le=200, description="Some at random")] = None,
        seed: Annotated[int, Query(description="The same seed, the same images")] = 0,
        label: Annotated[api.Name | None, Query()] = None,
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 48,
    ) -> Response:
        """Images of the collection, by path, or some at random."""
        snapshot = answers.snapshot

        def listed() -> list[dict[str, Any]]:
            everything = snapshot.searcher.images
            rows: Any = range(len(everything))
            if label is not None:
                rows = [row for row in rows if label in everything[row].labels]
            if sample is not None:
                rows = random.Random(seed).sample(rows, min(sample, len(rows)))
            else:
                rows = rows[offset : offset + limit]
            return [answers.shown(snapshot, row) for row in rows]

        return Json(await answers.others.run(listed))

    @app.get("/api/images/{number}", response_model=api.ShownWithFile, tags=["collection"])
    async def image(number: int) -> Response:
        """One image, with what its file says."""
        snapshot, found = _found(answers, number)

        def described() -> dict[str, Any]:
            facts: dict[str, Any] = {"bytes": None, "modified": None, "sha256": found.sha256, "split": found.split}
            with contextlib.suppress(OSError, ValueError):
                status = os.stat(os.path.join(snapshot.searcher.root, found.path))
                changed = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
                facts |= {"bytes": status.st_size, "modified": changed.isoformat(timespec="seconds")}
            return answers.shown(snapshot, snapshot.searcher.place[number]) | facts

        return Json(await answers.others.run(described))

    @app.get("/images/{number}/thumbnail", response_class=Response, tags=["collection"])
    async def thumbnail(
        request: Request,
        number: int,
        size: Annotated[int, Query(ge=1, le=1024)] = 256,
        v: Annotated[str, Query(description="Start of the image's SHA-256: the answer may be kept for ever")] = "",
    ) -> Response:
        """A small WebP."""
        snapshot, found = _with_picture(answers, number)
        headers = _cached(found.sha256, f"-{size}", v)
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        limit = snapshot.searcher.config.collection.max_pixels
        made = await answers.pictures.run(answers.thumbnails.get, snapshot.searcher.root, found, size, limit)
        return Response(made, media_type="image/webp", headers=headers)

    @app.get("/images/{number}/original", response_class=Response, tags=["collection"])
    async def original(request: Request, number: int, v: str = "") -> Response:
        """The image's file, if it still is the one that the collection knows."""
        snapshot, found = _with_picture(answers, number)
        headers = _cached(found.sha256, "", v)
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        data = await answers.others.run(read_original, snapshot.searcher.root, found)
        name = quote(os.path.basename(os.fsencode(found.path)))
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{name}"
        return Response(data, media_type=media_type(data), headers=headers)

    @app.get("/uploads/{key}", response_class=Response, tags=["collection"])
    async def uploaded(
        key: api.Key, size: Annotated[int | None, Query(ge=1, le=1024, description="Longest side of a WebP")] = None
    ) -> Response:
        """An uploaded picture, as PNG: its pixels, and nothing else of the file."""
        if size is None:
            data, kind = await answers.others.run(answers.upload_bytes, key), "image/png"
        else:
            made = await answers.pictures.run(lambda: make_thumbnail(answers.upload_pixels(key), size))
            data, kind = made.webp, "image/webp"
        return Response(data, media_type=kind, headers={"Cache-Control": _FOREVER} | _PICTURE_POLICY)


def _found(answers: Answers, number: int) -> tuple[Snapshot, Image]:
    """The snapshot, and an image of it."""
    snapshot = answers.snapshot
    try:
        return snapshot, snapshot.image(number)
    except KeyError:
        raise unknown_image(number) from None


def _with_picture(answers: Answers, number: int) -> tuple[Snapshot, Image]:
    """The same, of a run that has pictures."""
    snapshot, found = _found(answers, number)
    if snapshot.searcher.config.collection.vectors.file is not None:
        raise HTTPException(404, "this run was made of vectors: it has no pictures")
    return snapshot, found


def _cached(sha256: str, variant: str, asked: str) -> dict[str, str]:
    """Headers of a picture. Ids start again in another run at the same address: for ever only with the hash."""
    headers = {"ETag": f'"{sha256[:32]}{variant}"', **_PICTURE_POLICY}
    if len(asked) >= 8 and sha256.startswith(asked):
        headers["Cache-Control"] = _FOREVER
    return headers


# --------------------------------------------------------------------------------------------------------------- facts


def _add_facts(app: FastAPI, answers: Answers) -> None:
    @app.get("/health", response_model=api.Health, tags=["run"])
    async def health() -> Response:
        """Whether it works, and from which version of the run it answers."""
        snapshot, problem = answers.snapshot, answers.current.problem
        return Json(
            {
                "status": "ok" if problem is None else "behind",
                "version": snapshot.searcher.version,
                "images": len(snapshot.searcher.images),
                "problem": problem and one_line(problem),
            }
        )

    @app.get("/api/run", response_model=api.RunFacts, tags=["run"])
    async def facts() -> Response:
        """What the run holds, and how much may be asked for."""
        snapshot = answers.snapshot
        models = await answers.others.run(answers.models)
        return Json(
            {
                "run": answers.run.name,
                "images": len(snapshot.searcher.images),
                "labels": dict(sorted(snapshot.labels.items())),
                "learners": snapshot.searcher.learners,
                "default_learner": snapshot.default_learner,
                "annotators": snapshot.searcher.annotators,
                "version": snapshot.searcher.version,
                "models": models,
                "evaluations": _evaluations(answers.run),
                "limits": {
                    "k": api.MAX_K,
                    "offset": api.MAX_OFFSET,
                    "upload_bytes": UPLOAD_BYTES,
                    "upload_pixels": answers.max_pixels(snapshot),
                    "upload_seconds": int(answers.uploads.seconds),
                },
            }
        )

    @app.get("/api/evaluations/{name}/metrics", response_model=api.Anything, tags=["run"])
    async def metrics(name: str) -> Response:
        """Figures of an evaluation, as in its metrics.json."""
        return Json(read_metrics(answers.run.evaluation(_known(answers.run, name))))

    @app.get("/api/evaluations/{name}/curves", response_model=api.Curves, tags=["run"])
    async def curves(name: str) -> Response:
        """Precision at every k of each system of an evaluation."""
        return Json(_read_curves(answers.run.evaluation(_known(answers.run, name)) / "curves.csv"))


def _read_curves(file: Path) -> dict[str, Any]:
    """`api.Curves` of an evaluation."""
    try:
        header, *rows = csv.reader(io.StringIO(file.read_text()))
        ks, *columns = zip(*rows, strict=True)
        systems = {name: [float(x) for x in column] for name, column in zip(header[1:], columns, strict=True)}
        return {"k": [int(k) for k in ks], "systems": systems}
    except (OSError, ValueError) as error:
        reason = str(error)
    raise UserError(f"{file}: damaged figures ({reason}); run 'visterm evaluate --force' to make them again")


def _evaluations(run: Run) -> list[str]:
    """Names of the evaluations that are there."""
    found = (file.parent.name for file in run.folder.glob("evaluations/*/metrics.json"))
    return sorted(name for name in found if "." not in name)


def _known(run: Run, name: str) -> str:
    if name not in _evaluations(run):  # so no name leads out of the folder
        raise HTTPException(404, f"no evaluation {one_line(name)}; there are: {', '.join(_evaluations(run)) or 'none'}")
    return name


# --------------------------------------------------------------------------------------------------------------- pages


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(WEB / "index.html")

    @app.get("/judge", include_in_schema=False)
    def judge() -> FileResponse:
        return FileResponse(WEB / "judge.html")

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        import jinja2

        template = (Path(__file__).parent / "api.html.jinja").read_text(encoding="utf-8")
        page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
        return Response(page.render(api=app.openapi()), media_type="text/html")

    app.mount("/static", StaticFiles(directory=WEB))


# ------------------------------------------------------------------------------------------------------------- serving


def serve(
    run: Run,
    console: Console,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    browse: bool = False,
) -> None:
    """Serve a run until Ctrl-C; print the address on standard output.

    Parameters
    ----------
    run : Run
    console : Console
    host : str
        Address to listen on. One that other machines reach needs a token.
    port : int
        0: any free one.
    token : str or None
    browse : bool
        Open the page in a browser.

    Raises
    ------
    UserError
        No token where one is needed, an address that cannot be listened on, or a run that cannot be searched.
    """
    _check_token(host, token)
    with _listen(host, port) as listening:
        app = create_app(run, token=token, local=is_loopback(host) and token is None)
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{port}/"
        print(address, flush=True)
        console.say("Ctrl-C ends it")
        if browse:
            webbrowser.open(address + (f"?token={quote(token)}" if token else ""))
        sys.setswitchinterval(0.001)  # the thread that takes requests must not wait long for one that opens a newer run
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses may hold the token
            ws="none",
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=5,
        )
        with contextlib.suppress(KeyboardInterrupt):  # the usual end
            uvicorn.Server(config).run(sockets=[listening])


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if not is_loopback(host):
            raise UserError(
                f"--host {host}: other machines could reach it, so a token is needed: --token TEXT, or VISTERM_TOKEN; "
                f"without one, only --host 127.0.0.1"
            )
    elif len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"--token: at least {MIN_TOKEN} letters, digits or signs, without blanks")


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections."""
    where = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    try:
        return socket.create_server((where, port), family=family, backlog=512)
    except (OSError, OverflowError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            reason = "another program listens there; give another --port, or --port 0 for any free one"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot listen on {host} port {port}: {reason}") from None
