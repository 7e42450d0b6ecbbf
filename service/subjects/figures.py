"""Figures of evaluations, of trainings and of relevance feedback, and the files of evaluations."""

from __future__ import annotations

import contextlib
import csv
import io
import math
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from fastapi import Query
from pydantic import Field, with_config
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from visterm.learners.blend import effective
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.opened import opened
from visterm.pipeline.store.records import is_up_to_date, read_metrics
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.versions import LearnerVersions
from visterm.retrieval import ExactIndex
from visterm.service.figures import read_figures
from visterm.service.schemas import Name
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, get
from visterm.service.summaries import ImageSummary
from visterm.teaching.feedback import UpdatedModel

from .marks import MarkSubject

CURVE_FILE = "precision_curve.svg"
# The SVG is embedded as an image; opened on its own it may use its own styles, but no script and no other file.
_SVG_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}

# The report names no other file; its scripts and styles are its own, and it may not reach the service.
_REPORT_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; sandbox allow-scripts"
}
_EFFECT_QUERIES, _EFFECT_RESULTS = 6, 8


@with_config(extra="allow")
class SystemMetrics(TypedDict):
    """Figures of one ranking."""

    map: Annotated[float, Field(description="Mean average precision")]
    precision_at: NotRequired[Annotated[dict[str, float | None], Field(default={}, description="By k")]]


@with_config(extra="allow")
class Metrics(TypedDict):
    """The metrics.json of an evaluation."""

    protocol: str
    n_queries: int
    n_gallery: NotRequired[int | None]
    systems: Annotated[dict[str, SystemMetrics], Field(description="The evaluated learners, then cosine and chance")]


class PrecisionCurves(TypedDict):
    """Precision at k of each system."""

    k: list[int]
    systems: dict[str, list[float]]


class LabelFiguresAnswer(TypedDict):
    """The mean of the measure over the queries of a label."""

    label: str
    queries: int
    learner: float | None
    baseline: float | None


class EvaluatedResult(TypedDict):
    """A result of an evaluated query."""

    path: str
    labels: list[str]
    relevant: bool
    image: Annotated[ImageSummary | None, Field(description="null: no longer in the collection")]


class EvaluatedQuery(TypedDict):
    """A query of an evaluation and its first results."""

    query: str
    labels: list[str]
    value: float
    baseline: float | None
    first_relevant: int | None
    image: Annotated[ImageSummary | None, Field(description="null: no longer in the collection")]
    results: list[EvaluatedResult]


class Confusion(TypedDict):
    """Two labels that searches confuse."""

    label: str
    taken_for: str
    share: Annotated[float, Field(description="Of the first results of the label's queries")]
    queries: int


class EvaluationFigures(TypedDict):
    """Figures of an evaluation by label and by query."""

    learner: str
    baseline: str | None
    measure: Literal["mAP"]
    n_queries: int
    stale: Annotated[bool, Field(description="Labels, images, learners or settings have changed since")]
    labels: Annotated[list[LabelFiguresAnswer], Field(description="The best first")]
    best: list[EvaluatedQuery]
    worst: list[EvaluatedQuery]
    confusions: Annotated[list[Confusion], Field(description="The largest share first")]


class TrainingPoint(TypedDict):
    """One validation check."""

    step: int
    value: float


class TrainingCurve(TypedDict):
    """The validation checks of one learner."""

    measure: str
    best_step: int | None
    baseline: Annotated[float | None, Field(description="mAP of the cosine")]
    points: list[TrainingPoint]


class TrainingCurves(TypedDict):
    """The validation checks of each learner."""

    learners: dict[str, TrainingCurve]


class MarkedImage(ImageSummary):
    """A result and its mark."""

    mark: Literal[1, -1, 0]


class MarkedQuery(TypedDict):
    """The first results of a marked query, by the trained learner and by its version in force."""

    image: ImageSummary
    before: list[MarkedImage]
    after: list[MarkedImage]


class FeedbackEffect(TypedDict):
    """What relevance marks changed."""

    learner: str
    model: Annotated[UpdatedModel | None, Field(description="null: the learner does not learn from marks")]
    marks: int
    queries: list[MarkedQuery]


class FigureSubject(Subject):
    """Evaluations, trainings and the effect of relevance feedback."""

    @get("/api/evaluations/{name}/metrics", "run")
    def metrics(self, name: str) -> Metrics:
        """Return the metrics.json of an evaluation."""
        metrics: Any = read_metrics(_evaluation_folder(self.service.run, name))
        return metrics

    @get("/api/evaluations/{name}/curves", "run")
    def curves(self, name: str) -> PrecisionCurves:
        """Return the precision at every k of each system of an evaluation."""
        file = _evaluation_folder(self.service.run, name) / "curves.csv"
        try:
            header, *rows = csv.reader(io.StringIO(file.read_text()))
            ks, *columns = zip(*rows, strict=True)
            systems = {name: [float(x) for x in column] for name, column in zip(header[1:], columns, strict=True)}
            return {"k": [int(k) for k in ks], "systems": systems}
        except (OSError, ValueError) as error:
            reason = str(error)
        raise UserError(f"{file}: damaged figures ({reason}); run 'visterm evaluate --force' to rebuild them")

    @get("/api/evaluations/{name}/precision-curve.svg", "run")
    def precision_curve(self, name: str) -> Response:
        """Return the precision curve of an evaluation as SVG."""
        svg = self._file(name, CURVE_FILE, f"{CURVE_FILE}; run 'visterm evaluate --force' to draw it")
        return Response(svg, media_type="image/svg+xml", headers=_SVG_HEADERS)

    @get("/api/evaluations/{name}/report", "run")
    def report(self, name: str) -> Response:
        """Return the report of an evaluation, one HTML file."""
        html = self._file(name, "report.html", "report; run 'visterm evaluate --force' to write it")
        return Response(html, media_type="text/html; charset=utf-8", headers=_REPORT_HEADERS)

    def _file(self, name: str, file: str, missing: str) -> bytes:
        try:
            return (_evaluation_folder(self.service.run, name) / file).read_bytes()
        except FileNotFoundError:
            raise HTTPException(404, f"evaluation {one_line(name)} has no {missing}") from None

    @get("/api/evaluations/{name}/figures", "run")
    def figures(
        self,
        name: str,
        queries: Annotated[int, Query(ge=1, le=50, description="Best and worst queries to list")] = 8,
        confusions: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> EvaluationFigures:
        """Return the figures of each label, the best and the worst queries, and the labels that are confused."""
        snapshot = self.service.snapshot
        folder = _evaluation_folder(self.service.run, name)
        figures: Any = read_figures(folder, n_queries=queries, n_confusions=confusions)
        figures["stale"] = _is_stale(self.service.run, snapshot, folder)
        for query in (*figures["best"], *figures["worst"]):
            for shown in (query, *query["results"]):
                row = snapshot.searcher.images.row_of_path(shown["path"] if "path" in shown else shown["query"])
                shown["image"] = None if row is None else self.service.image_summary(snapshot, row)
        return figures

    @get("/api/training", "run")
    def training(self) -> TrainingCurves:
        """Return the validation figures of each learner along its training."""
        searcher = self.service.snapshot.searcher
        learners: dict[str, TrainingCurve] = {}
        for name in searcher.learners:
            try:
                learner: Any = searcher.learner(name)
            except UserError:  # searches with it say why
                continue
            points: list[TrainingPoint] = [
                {"step": int(entry["step"]), "value": float(entry["validation"])}
                for entry in getattr(learner, "history_", None) or []
                if entry.get("validation") is not None and math.isfinite(entry["validation"])
            ]
            if len(points) > 1:
                learners[name] = {
                    "measure": getattr(learner, "validation_measure", "mAP"),
                    "best_step": getattr(learner, "best_step_", None),
                    "baseline": getattr(learner, "cosine_map_", None),
                    "points": points,
                }
        return {"learners": learners}

    @get("/api/feedback/effect", "feedback")
    def effect(self, learner: Annotated[Name, Query()] = "oasis") -> FeedbackEffect:
        """Compare the first results of marked queries by the trained learner and by its version in force."""
        snapshot = self.service.snapshot
        learner = self.service.learner(snapshot, learner)
        trainer = self.subjects.of(MarkSubject).trainer
        status = trainer.status()
        model = status["learners"].get(learner)
        queries: list[MarkedQuery] = []
        searcher = snapshot.searcher
        k = min(_EFFECT_RESULTS, len(searcher.images) - 1)
        if model is not None and model["version"] and k > 0:
            trained = effective(LearnerVersions(self.service.run).load(learner, 0))
            base = ExactIndex(trained, searcher.X, n_jobs=searcher.config.compute.n_jobs)
            for key, marks in trainer.marks.standing().items():
                row = searcher.gallery.rows_by_sha256.get(key)
                if row is None or len(queries) == _EFFECT_QUERIES:
                    continue  # an upload, whose picture may have expired
                relevant = {mark.image: mark.mark for mark in marks}
                before, after = (
                    index.search(searcher.X[row : row + 1], k=k, exclude=[row])
                    for index in (base, searcher.index(learner))
                )
                queries.append(
                    {
                        "image": self.service.image_summary(snapshot, row),
                        "before": self._marked(snapshot, before.indices[0], relevant),
                        "after": self._marked(snapshot, after.indices[0], relevant),
                    }
                )
        return {"learner": learner, "model": model, "marks": status["relevant"] + status["not"], "queries": queries}

    def _marked(self, snapshot: Snapshot, rows: np.ndarray, marks: dict[int, Any]) -> list[MarkedImage]:
        shown = [self.service.image_summary(snapshot, int(row)) for row in rows if row >= 0]
        return [{**image, "mark": marks.get(image["id"], 0)} for image in shown]


def _is_stale(run: Run, snapshot: Snapshot, folder: Path) -> bool:
    """Whether an evaluation would be another one today, as `visterm info` says."""
    from visterm.pipeline.stages.evaluate import evaluation_record

    with contextlib.suppress(UserError), opened(run, snapshot.searcher.config, lock=False) as it:
        return not is_up_to_date(folder, evaluation_record(it, folder.name.split("+")), large=False)
    return True  # a learner is damaged


def evaluation_names(run: Run) -> list[str]:
    """Return the names of the evaluations of a run."""
    names = (file.parent.name for file in run.folder.glob("evaluations/*/metrics.json"))
    return sorted(name for name in names if "." not in name)


def _evaluation_folder(run: Run, name: str) -> Path:
    """Return the folder of an evaluation; only known names, so that none leads out of the run."""
    names = evaluation_names(run)
    if name not in names:
        raise HTTPException(404, f"no evaluation {one_line(name)}; this run has {', '.join(names) or 'none'}")
    return run.evaluation(name)
