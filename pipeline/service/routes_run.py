"""Routes: facts about the run and its evaluations."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.records import read_metrics
from visterm.pipeline.store.run import Run

from . import schemas as api
from .handlers import UPLOAD_BYTES, RequestHandlers
from .responses import Json


def add_facts(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of facts about the run."""

    @app.get("/health", response_model=api.Health, tags=["run"])
    async def health() -> Response:
        """Whether it works, and from which version of the run it answers."""
        snapshot, problem = handlers.snapshot, handlers.current.problem
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
        snapshot = handlers.snapshot
        models = await handlers.others.run(handlers.models)
        return Json(
            {
                "run": handlers.run.name,
                "images": len(snapshot.searcher.images),
                "labels": dict(sorted(snapshot.labels.items())),
                "learners": snapshot.searcher.learners,
                "default_learner": snapshot.default_learner,
                "annotators": snapshot.searcher.annotators,
                "version": snapshot.searcher.version,
                "models": models,
                "evaluations": _evaluations(handlers.run),
                "limits": {
                    "k": api.MAX_K,
                    "offset": api.MAX_OFFSET,
                    "upload_bytes": UPLOAD_BYTES,
                    "upload_pixels": handlers.max_pixels(snapshot),
                    "upload_seconds": int(handlers.uploads.seconds),
                },
            }
        )

    @app.get("/api/evaluations/{name}/metrics", response_model=api.Anything, tags=["run"])
    async def metrics(name: str) -> Response:
        """Figures of an evaluation, as in its metrics.json."""
        return Json(read_metrics(handlers.run.evaluation(_known(handlers.run, name))))

    @app.get("/api/evaluations/{name}/curves", response_model=api.Curves, tags=["run"])
    async def curves(name: str) -> Response:
        """Precision at every k of each system of an evaluation."""
        return Json(_read_curves(handlers.run.evaluation(_known(handlers.run, name)) / "curves.csv"))


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
