"""Routes: the run, its state and its evaluations."""

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
from visterm.pipeline.store.models import TITLES
from visterm.pipeline.store.records import read_metrics
from visterm.pipeline.store.run import Run

from . import schemas, schemas_figures
from .feedback_handlers import FeedbackHandlers
from .handlers import UPLOAD_BYTES
from .responses import JsonResponse

CURVE_FILE = "precision_curve.svg"
# The SVG is embedded as an image; opened on its own it may use its own styles, but no script and no other file.
_SVG_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}

# The report names no other file; its scripts and styles are its own, and it may not reach the service.
_REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; sandbox allow-scripts"
}


def add_run_routes(app: FastAPI, feedback: FeedbackHandlers) -> None:
    """Add the routes of the run, its state and its evaluations."""
    handlers = feedback.handlers

    @app.get("/health", response_model=schemas.HealthResponse, tags=["run"])
    async def health() -> Response:
        """Return the state of the service, and the version of the run that it searches."""
        snapshot, problem = handlers.snapshot, handlers.reloader.problem
        return JsonResponse(
            {
                "status": "ok" if problem is None else "behind",
                "version": snapshot.searcher.version,
                "images": len(snapshot.searcher.images),
                "problem": problem and handlers.public(problem),
            }
        )

    @app.get("/api/run", response_model=schemas.RunInfo, tags=["run"])
    async def run_info() -> Response:
        """Describe the run and the limits of the service."""
        snapshot, problem = handlers.snapshot, handlers.reloader.problem
        models = await handlers.general_pool.run(feedback.models)
        training = await handlers.general_pool.run(handlers.retraining.state)
        fields = await handlers.general_pool.run(lambda: snapshot.searcher.gallery.fields.names)
        return JsonResponse(
            {
                "run": handlers.run.name,
                "images": len(snapshot.searcher.images),
                "labels": dict(sorted(snapshot.labels.most_common(schemas.MAX_LISTED_LABELS))),
                "n_labels": len(snapshot.labels),
                "learners": snapshot.searcher.learners,
                "titles": TITLES,
                "default_learner": snapshot.default_learner,
                "annotators": snapshot.searcher.annotators,
                "fields": fields,
                "version": snapshot.searcher.version,
                "problem": problem and one_line(problem),
                "models": models,
                "training": training,
                "evaluations": _evaluation_names(handlers.run),
                "can_add": snapshot.searcher.config.collection.vectors.file is None,
                "judging": handlers.run.judgements.exists(),
                "limits": {
                    "k": schemas.MAX_K,
                    "offset": schemas.MAX_OFFSET,
                    "upload_bytes": UPLOAD_BYTES,
                    "upload_pixels": handlers.max_pixels(snapshot),
                    "fetch_urls": int(handlers.fetch_urls),
                    "upload_seconds": int(handlers.uploads.seconds),
                },
            }
        )

    @app.get("/api/evaluations/{name}/metrics", response_model=schemas_figures.Metrics, tags=["run"])
    async def metrics(name: str) -> Response:
        """Return the metrics.json of an evaluation."""
        return JsonResponse(read_metrics(evaluation_folder(handlers.run, name)))

    @app.get("/api/evaluations/{name}/curves", response_model=schemas.PrecisionCurves, tags=["run"])
    async def curves(name: str) -> Response:
        """Return the precision at every k of each system of an evaluation."""
        return JsonResponse(_read_curves(evaluation_folder(handlers.run, name) / "curves.csv"))

    @app.get("/api/evaluations/{name}/precision-curve.svg", response_class=Response, tags=["run"])
    async def precision_curve(name: str) -> Response:
        """Return the precision curve of an evaluation as SVG."""
        try:
            svg = (evaluation_folder(handlers.run, name) / CURVE_FILE).read_bytes()
        except FileNotFoundError:
            raise HTTPException(
                404, f"evaluation {one_line(name)} has no {CURVE_FILE}; run 'visterm evaluate --force' to draw it"
            ) from None
        return Response(svg, media_type="image/svg+xml", headers=_SVG_HEADERS)

    @app.get("/api/evaluations/{name}/report", response_class=Response, tags=["run"])
    async def report(name: str) -> Response:
        """Return the report of an evaluation, one HTML file."""
        file = evaluation_folder(handlers.run, name) / "report.html"

        def read() -> bytes:
            try:
                return file.read_bytes()
            except FileNotFoundError:
                raise HTTPException(
                    404, f"evaluation {one_line(name)} has no report; run 'visterm evaluate --force' to write it"
                ) from None

        html = await handlers.general_pool.run(read)
        return Response(html, media_type="text/html; charset=utf-8", headers=_REPORT_HEADERS)


def _read_curves(file: Path) -> dict[str, Any]:
    """Read `schemas.PrecisionCurves` of an evaluation."""
    try:
        header, *rows = csv.reader(io.StringIO(file.read_text()))
        ks, *columns = zip(*rows, strict=True)
        systems = {name: [float(x) for x in column] for name, column in zip(header[1:], columns, strict=True)}
        return {"k": [int(k) for k in ks], "systems": systems}
    except (OSError, ValueError) as error:
        reason = str(error)
    raise UserError(f"{file}: damaged figures ({reason}); run 'visterm evaluate --force' to rebuild them")


def _evaluation_names(run: Run) -> list[str]:
    names = (file.parent.name for file in run.folder.glob("evaluations/*/metrics.json"))
    return sorted(name for name in names if "." not in name)


def evaluation_folder(run: Run, name: str) -> Path:
    """Return the folder of an evaluation; only known names, so that none leads out of the run."""
    names = _evaluation_names(run)
    if name not in names:
        raise HTTPException(404, f"no evaluation {one_line(name)}; this run has {', '.join(names) or 'none'}")
    return run.evaluation(name)
