"""What the service takes and gives: the models behind its documentation at /docs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import File, UploadFile
from pydantic import BaseModel, ConfigDict, Field

MAX_K = 1000
MAX_OFFSET = 100_000
Key = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of an image's bytes, hexadecimal")]
Id = Annotated[int, Field(ge=0, lt=2**63, description="An image of the collection, by its number")]
Name = Annotated[str, Field(max_length=1000)]


class Question(BaseModel):
    """What to search with: exactly one of id, upload and query_label; and how."""

    id: Id | None = Field(default=None, description="An image of the collection, by its number")
    upload: Key | None = Field(default=None, description="A picture uploaded before, by the hash in its answer")
    query_label: Name | None = Field(
        default=None, description="Images that a label fits best, by a learner that ranks labels"
    )
    k: int = Field(default=10, ge=1, le=MAX_K, description="How many results")
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET, description="How many results to pass over: the next page")
    learner: Name | None = Field(default=None, description="oasis, cosine, ...: one that the run has")
    label: Name | None = Field(default=None, description="Only images of this label")
    exclude_duplicates: bool = Field(
        default=False, description="Leave out copies, byte for byte, of the query or each other"
    )


class UploadedQuestion(Question):
    """The same, or a picture."""

    file: Annotated[UploadFile | None, File(description="JPEG, PNG, WebP, BMP or TIFF")] = None


class Shown(BaseModel):
    """An image of the collection."""

    id: int
    path: str = Field(description="Relative to the directory of the images")
    labels: list[str]
    width: int | None
    height: int | None
    color: str | None = Field(description="Mean colour as #rrggbb, known once its thumbnail was shown")
    thumbnail: str = Field(description="Address of a small WebP; &size= up to 1024")


class ShownWithFile(Shown):
    """An image, and its file."""

    bytes: int | None = Field(description="null: the file is gone")
    modified: str | None = Field(description="When the file was last changed, ISO 8601")
    sha256: str
    split: str | None


class Row(Shown):
    """One result."""

    rank: int
    score: float = Field(description="Compares results of one query under one learner, and nothing else")
    metric: int | None = Field(
        default=None, description="Which of its metrics ranks this image, of a learner that has several"
    )


class Answer(BaseModel):
    """The results of one query."""

    query: str
    key: str | None = Field(description="What marks belong to; null for a label")
    upload: str | None = Field(default=None, description="Hash that asks again for the uploaded picture")
    upload_expires: str | None = Field(default=None, description="Until when, if it is not used again")
    learner: str
    version: str = Field(description="State of the run that answered, as GET /health names it")
    seconds: float
    n_searched: int
    results: list[Row]


class LabelRow(BaseModel):
    """A label for an image."""

    rank: int
    label: str
    score: float


class Labels(BaseModel):
    """Labels for an image, best first."""

    query: str
    version: str
    labels: list[LabelRow]


class Health(BaseModel):
    """Whether the service works."""

    status: Literal["ok", "behind"] = Field(description="behind: the run on disk cannot be searched just now")
    version: str
    images: int
    problem: str | None = None


class Model(BaseModel):
    """What feedback has done to a learner."""

    version: int
    marks: int


class RunFacts(BaseModel):
    """What the page must know."""

    run: str
    images: int
    labels: dict[str, int]
    learners: list[str]
    default_learner: str
    annotators: list[str]
    version: str
    models: dict[str, Model]
    evaluations: list[str]
    limits: dict[str, int]


class Curves(BaseModel):
    """Precision at k of each system."""

    k: list[int]
    systems: dict[str, list[float]]


class MarkAsked(BaseModel):
    """A mark: whether a result is relevant for a query."""

    model_config = ConfigDict(extra="forbid")
    query: Key
    image: Id
    mark: Literal[1, -1, 0] = Field(description="relevant, not relevant, neither")
    learner: Name | None = None


class Marked(BaseModel):
    """A mark that stands."""

    number: int
    time: str
    image: int
    path: str
    mark: Literal[1, -1]
    learner: str
    version: int


class MarksOfQuery(BaseModel):
    """Marks of one query that stand, the oldest first."""

    query: str
    marks: list[Marked]


class QueryAsked(BaseModel):
    """A query, by its key."""

    model_config = ConfigDict(extra="forbid")
    query: Key


class UpdateAsked(BaseModel):
    """Which learner to teach, and the query to look at before and after."""

    model_config = ConfigDict(extra="forbid")
    learner: Name = "oasis"
    query: Key | None = None


class LearnerAsked(BaseModel):
    """A learner."""

    model_config = ConfigDict(extra="forbid")
    learner: Name = "oasis"


class Taught(BaseModel):
    """What an update did."""

    model_config = ConfigDict(extra="allow")
    learner: str
    accepted: bool
    reason: str | None = Field(description="Why the model stays as it was")
    from_version: int
    to_version: int
    n_relevant: int = Field(description="New marks that it learned from")
    n_not: int
    map_before: float | None = Field(description="Mean average precision of held-out images that no mark names")
    map_after: float | None
    milliseconds: float
    changed_in_top: int | None = Field(default=None, description="Places of the first 20 that another image has now")
    version: str
    behind: str | None = Field(description="Why the version that answers is still the one before")


class TakenBack(BaseModel):
    """What an undo or a reset did."""

    learner: str
    from_version: int
    to_version: int
    version: str
    behind: str | None = Field(description="Why the version that answers is still the one before")


Judge = Annotated[str, Field(min_length=1, max_length=60, description="Name of who judges")]


class JudgeAsked(BaseModel):
    """A judge."""

    model_config = ConfigDict(extra="forbid")
    judge: Judge


class DecisionAsked(JudgeAsked):
    """What a judge says of an image."""

    task: int
    image: Id
    decision: Literal["relevant", "not", "unsure"]
    seconds: float | None = Field(default=None, description="That the judge took")


class TaskShown(BaseModel):
    """An image to be judged, and its query. Nothing tells rank or learner, nor a path, which often names the class."""

    task: int
    query: int
    image: int
    position: int


class NextTask(BaseModel):
    """What a judge is to look at next."""

    judge: str
    study: int
    done: int
    total: int
    query_index: int
    n_queries: int
    task: TaskShown | None = Field(description="null: all is decided")
    instructions: str


class Problem(BaseModel):
    """Every error."""

    ok: Literal[False]
    error: str
    status: int


Anything = dict[str, Any]
