"""The run that is served, and the limits of the service."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from fastapi import Request
from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.models import TITLES, trained_record
from visterm.pipeline.store.recommendation import recommend
from visterm.pipeline.store.vectors import has_model
from visterm.service.parts import UPLOAD_BYTES
from visterm.service.schemas import BEHIND, MAX_K, MAX_LISTED_LABELS, MAX_OFFSET
from visterm.service.subject import Subject, get

from .adding import AddingSubject
from .figures import evaluation_names
from .marks import FeedbackModel, MarkSubject
from .training import TrainingSubject, TrainState


class HealthResponse(TypedDict):
    """State of the service."""

    status: Annotated[
        Literal["ok", "behind"],
        Field(description="behind: the run on disk cannot be searched now, so searches use an earlier version"),
    ]
    version: NotRequired[str]
    images: NotRequired[int]
    problem: NotRequired[str | None]


class HeldOutFigures(TypedDict):
    """How well the learners of a run rank images held out of the training ones, by name; cosine, too."""

    map: Annotated[dict[str, float], Field(description="Mean average precision")]
    first: Annotated[dict[str, float], Field(description="Share of the queries whose first result is right")]


class RunInfo(TypedDict):
    """The run and the limits of the service."""

    run: str
    images: int
    labels: Annotated[dict[str, int], Field(description=f"Images per label; the {MAX_LISTED_LABELS:,} largest")]
    n_labels: int
    learners: list[str]
    titles: Annotated[dict[str, str], Field(description="What people read in place of a learner's name")]
    default_learner: str
    held_out: Annotated[
        HeldOutFigures | None, Field(description="Which recommend the default learner; null: nothing was measured")
    ]
    annotators: list[str]
    fields: Annotated[list[str], Field(description="Fields that conditions of `where` may name")]
    version: str
    problem: Annotated[str | None, Field(description=BEHIND)]
    watching: Annotated[bool, Field(description="Images that appear in the image directory are added")]
    watch_problem: Annotated[str | None, Field(description="Why that does not work at the moment")]
    models: dict[str, FeedbackModel]
    training: TrainState
    evaluations: list[str]
    can_add: Annotated[bool, Field(description="Photos can be added with POST /api/add; not to imported vectors")]
    can_upload: Annotated[
        bool, Field(description="Other photos can be queries; not of imported vectors without their model")
    ]
    judging: Annotated[bool, Field(description="Whether `visterm judge` has drawn results to judge")]
    limits: dict[str, int]


class RunSubject(Subject):
    """State of the run."""

    @get("/health", "run")
    async def health(self, http: Request) -> HealthResponse:
        """Return the state of the service, and the version of the run that it searches; without a token its status."""
        snapshot, problem = self.service.snapshot, self.service.problem
        status: Literal["ok", "behind"] = "ok" if problem is None else "behind"
        if getattr(http.state, "anonymous", False):
            return {"status": status}
        return {
            "status": status,
            "version": snapshot.searcher.version,
            "images": len(snapshot.searcher.images),
            "problem": problem,
        }

    @get("/api/run", "run")
    def run_info(self) -> RunInfo:
        """Describe the run and the limits of the service."""
        service, snapshot = self.service, self.service.snapshot
        searcher = snapshot.searcher
        return {
            "run": service.run.name,
            "images": len(searcher.images),
            "labels": dict(sorted(snapshot.labels.most_common(MAX_LISTED_LABELS))),
            "n_labels": len(snapshot.labels),
            "learners": searcher.learners,
            "titles": TITLES,
            "default_learner": snapshot.default_learner,
            "held_out": self._held_out(),
            "annotators": searcher.annotators,
            "fields": searcher.gallery.fields.names,
            "version": searcher.version,
            "problem": service.problem,
            "watching": self.service.settings.watch,
            "watch_problem": self.subjects.of(AddingSubject).watcher.watch_problem(),
            "models": self.subjects.of(MarkSubject).models(),
            "training": self.subjects.of(TrainingSubject).job.state(),
            "evaluations": evaluation_names(service.run),
            "can_add": not snapshot.is_imported,
            "can_upload": has_model(service.run),
            "judging": service.run.judgements.exists(),
            "limits": {
                "k": MAX_K,
                "offset": MAX_OFFSET,
                "upload_bytes": UPLOAD_BYTES,
                "upload_pixels": service.max_pixels(snapshot),
                "fetch_urls": int(service.settings.fetch),
                "upload_seconds": int(service.uploads.seconds),
            },
        }

    def _held_out(self) -> HeldOutFigures | None:
        searcher = self.service.snapshot.searcher
        try:
            results = {name: trained_record(searcher.run, name)["result"] for name in searcher.learners[:-1]}
        except UserError:  # a damaged record: a search with it says so
            return None
        chosen = recommend(results, searcher.config.train.world)
        return None if chosen is None else {"map": chosen["validation_map"], "first": chosen["validation_p1"]}
