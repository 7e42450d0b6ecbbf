"""Responses of the service that hold figures: of explanations, evaluations, trainings, marks and judges."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .schemas import ImageSummary


class Region(BaseModel):
    """Cells of an image that touch, and that carry much of the score."""

    cells: list[int] = Field(description="Indexes of cells of the image")
    place: str = Field(description='In words, such as "upper left"')
    outline: list[list[float]] = Field(description="Its lines, as x1, y1, x2 and y2, in pixels")


class RegionPair(BaseModel):
    """A region of the query and one of the result, and what they add to the score."""

    query_region: int = Field(description="Index of a region of the query")
    result_region: int
    contribution: float
    share: float = Field(description="Of the score")


class ExplainedImage(BaseModel):
    """One of the two images of an explanation."""

    name: str
    id: int | None = Field(description="null: not in the collection")
    path: str | None
    width: int
    height: int
    boxes: list[list[float]] = Field(description="x, y, width and height of each block, in pixels")
    heat: list[float] = Field(description="What each block adds to the score")
    cells: list[list[float]] = Field(
        description="As boxes, of cells that do not overlap: a network's, or a grid that the blocks are spread over"
    )
    cell_heat: list[float] = Field(description="What each cell adds to the score")
    regions: list[Region] = Field(description="Those of the pairs of regions")


class ExplainedBit(BaseModel):
    """A visterm that the metric of a result compares."""

    n_query_blocks: int = Field(description="Blocks of the query with this visterm")
    n_result_blocks: int
    contribution: float


class ExplainedPair(ExplainedBit):
    """Two blocks and what they add to the score, together with those of the same visterms."""

    query_block: int = Field(description="Index of a block of the query")
    result_block: int
    share: float = Field(description="Of positive - negative")
    words: str = Field(description="Colours and texture that both blocks show")


class TeacherImage(BaseModel):
    """A training image."""

    id: int | None = Field(description="null: no longer in the collection")
    path: str | None
    labels: list[str]
    thumbnail: str | None = Field(description="Address, relative to the service's root")


class TeacherMark(BaseModel):
    """The relevance mark that a teacher comes from."""

    number: int
    time: str


class Teacher(BaseModel):
    """Two training images that learning put together or kept apart."""

    query: TeacherImage = Field(description="Like the query")
    result: TeacherImage = Field(description="Like the result")
    together: bool = Field(description="Put together; false: kept apart")
    like_query: float = Field(description="Cosine of its first image and the query")
    like_result: float
    contribution: float = Field(description="To the score")
    label: str | None = Field(description="That both have")
    mark: TeacherMark | None


class Teachers(BaseModel):
    """Which training images made a query and a result similar; unlearned + common + learned is the score."""

    learner: str
    query: str
    result: str
    score: float
    unlearned: float = Field(description="Score without learning")
    common: float = Field(description="Learned, for every result of the query alike")
    learned: float = Field(description="Learned about this pair: the sum of all teachers")
    pairs: list[Teacher] = Field(
        description="Those that raise the score, then those that lower it, the strongest first"
    )
    rest: float = Field(description="Sum of the contributions that are not listed")
    n_rest: int


class Explanation(BaseModel):
    """Why a query and a result match."""

    learner: str
    score: float
    sentence: str = Field(description="Where the score comes from, in words")
    parts: Literal["block", "cell"] = Field(description="cell: of a neural network, in place of blocks")
    positive: float = Field(description="Sum over all pairs that raise the score")
    negative: float = Field(description="Sum over all pairs that lower the score")
    query: ExplainedImage
    result: ExplainedImage
    regions: list[RegionPair] = Field(
        description="Pairs of regions that carry half of the score together, the strongest first; none if it is 0, or "
        "of a learner that compares bits"
    )
    rest: float = Field(description="Of the score, what all other pairs of cells add")
    pairs: list[ExplainedPair] = Field(description="Pairs of blocks, the strongest first")
    bits: list[ExplainedBit] | None = Field(default=None, description="Of a learner that compares bits, such as MuSL")
    teachers: Teachers | None = Field(default=None, description="If asked for")
    no_teachers: str | None = Field(default=None, description="Why there are none")
    version: str


class SystemMetrics(BaseModel):
    """Figures of one ranking."""

    model_config = ConfigDict(extra="allow")
    map: float = Field(description="Mean average precision")
    precision_at: dict[str, float | None] = Field(default={}, description="By k")


class Metrics(BaseModel):
    """The metrics.json of an evaluation."""

    model_config = ConfigDict(extra="allow")
    protocol: str
    n_queries: int
    n_gallery: int | None = None
    systems: dict[str, SystemMetrics] = Field(description="The evaluated learners, then cosine and chance")


class LabelFigures(BaseModel):
    """The mean of the measure over the queries of a label."""

    label: str
    queries: int
    learner: float | None
    baseline: float | None


class EvaluatedResult(BaseModel):
    """A result of an evaluated query."""

    path: str
    labels: list[str]
    relevant: bool
    image: ImageSummary | None = Field(description="null: no longer in the collection")


class EvaluatedQuery(BaseModel):
    """A query of an evaluation and its first results."""

    query: str
    labels: list[str]
    value: float
    baseline: float | None
    first_relevant: int | None
    image: ImageSummary | None = Field(description="null: no longer in the collection")
    results: list[EvaluatedResult]


class Confusion(BaseModel):
    """Two labels of which one is taken for the other."""

    label: str
    taken_for: str
    share: float = Field(description="Of the first results of the label's queries")
    queries: int


class EvaluationFigures(BaseModel):
    """Figures of an evaluation by label and by query."""

    learner: str
    baseline: str | None
    measure: Literal["mAP", "precision at 10"]
    n_queries: int
    labels: list[LabelFigures] = Field(description="The best first")
    best: list[EvaluatedQuery]
    worst: list[EvaluatedQuery]
    confusions: list[Confusion] = Field(description="The largest share first")


class TrainingPoint(BaseModel):
    """One validation check."""

    step: int
    value: float


class TrainingCurve(BaseModel):
    """The validation checks of one learner."""

    measure: str
    best_step: int | None
    baseline: float | None = Field(description="mAP of the cosine")
    points: list[TrainingPoint]


class TrainingCurves(BaseModel):
    """The validation checks of each learner."""

    learners: dict[str, TrainingCurve]


class MarkedImage(ImageSummary):
    """A result and its mark."""

    mark: Literal[1, -1, 0]


class MarkedQuery(BaseModel):
    """The first results of a marked query, by the trained learner and by its version in force."""

    image: ImageSummary
    before: list[MarkedImage]
    after: list[MarkedImage]


class UpdatedModel(BaseModel):
    """The version in force of a learner, and the marks that it learned."""

    version: int
    marks: int
    waiting: int = Field(description="Marks that the next update learns")
    set_aside: int
    void: bool = Field(description="Its versions were of a learner that was retrained since")
    map_base: float | None = Field(description="Mean average precision on held-out images, of the trained learner")
    map_after: float | None
    undo: list[int] = Field(description="Versions to go back to")


class FeedbackEffect(BaseModel):
    """What relevance marks changed."""

    learner: str
    model: UpdatedModel | None = Field(description="null: the learner does not learn from marks")
    marks: int
    queries: list[MarkedQuery]


class JudgeFigures(BaseModel):
    """A judge's progress and figures."""

    judge: str
    done: int
    total: int
    tasks_done: int
    unsure: int
    seconds: float | None = Field(description="Median per decision")
    precision_at: dict[str, float | None]
    coherence: float | None


class JudgedQuery(BaseModel):
    """The figures of one judged query."""

    query: int
    path: str
    judges: int
    precision_at: dict[str, float | None]
    deviation: float | None
    coherence: float | None
    judge_coherence: float | None


class JudgingResults(BaseModel):
    """The figures of a human evaluation; null without decisions."""

    study: int
    learner: str
    version: str
    time: str
    k: int
    precision_at: dict[str, float | None]
    standard_error_at: dict[str, float | None]
    random_relevant: float | None = Field(description="Share of random images that judges found relevant")
    deviation_over_queries: float | None
    deviation_over_judges: float | None
    judges: list[JudgeFigures]
    queries: list[JudgedQuery]
