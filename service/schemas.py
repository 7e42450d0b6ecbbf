"""Requests and responses of the service; the API documentation at /docs is made from these models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import File, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from visterm.pipeline.search.examples import MAX_WEIGHT

MAX_K = 1000
MAX_OFFSET = 100_000
MAX_COLUMNS = 100_000
MAX_SELECTED = 5_000  # images of one request
MAX_LABELS, MAX_EXAMPLES = 50, 20
MAX_SUREST = 60  # images of a concept that are described
MAX_LISTED_LABELS = 1000  # of a run; GET /api/albums lists all
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of an image's bytes, hexadecimal")]
ImageId = Annotated[int, Field(ge=0, le=2**53 - 1, description="Id of an image of the collection")]  # exact in JSON
Ids = Annotated[str, Field(pattern="^[0-9]+(,[0-9]+)*$")]
JudgeName = Annotated[str, Field(min_length=1, max_length=60, description="Name of the judge")]
Name = Annotated[str, Field(max_length=4096)]
Folder = Annotated[str, Field(max_length=4096)]
Example = Annotated[str, Field(pattern=r"^(id:[0-9]{1,16}|upload:[0-9a-f]{64})(@-?[0-9]{1,2}(\.[0-9]{1,3})?)?$")]
Region = Annotated[str, Field(pattern=r"^[01](\.[0-9]{1,4})?(,[01](\.[0-9]{1,4})?){3}$")]
JsonObject = dict[str, Any]
_BEHIND = "Why searches still use the previous version; null: they use this one"


class FilterRequest(BaseModel):
    """Which images; all by default."""

    label: list[Name] = Field(default=[], max_length=MAX_LABELS, description="Only images with one of these labels")
    not_label: list[Name] = Field(default=[], max_length=MAX_LABELS, description="No images with one of these labels")
    folder: Folder | None = Field(default=None, description="Only images in this folder or below it; .: in no folder")
    after: Name | None = Field(default=None, description="Only images from this date on: 2024, 2024-05 or 2024-05-31")
    before: Name | None = Field(default=None, description="Only images before this date")
    where: list[Name] = Field(
        default=[],
        max_length=MAX_LABELS,
        description="Only images of which these conditions on fields hold: camera=X100; with = != < <= > or >=",
    )

    def filter_options(self) -> dict[str, Any]:
        """Return what `Filter.of` and `Searcher.filter` take."""
        return {name: getattr(self, name) for name in ("label", "not_label", "folder", "after", "before", "where")}


class ImageRequest(BaseModel):
    """A query (exactly one of id and upload, or a file in a POST) and options."""

    id: ImageId | None = Field(default=None, description="An image of the collection, by id")
    upload: Sha256 | None = Field(default=None, description="An earlier upload, by its hash")
    k: int = Field(default=10, ge=1, le=MAX_K, description="Number of results")
    learner: Name | None = Field(default=None, description="A learner of the run: oasis, cosine, ...")


Learned = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="How much of what was learned counts, from 0, how images look, to 1; default: what training chose",
    ),
]


class SearchRequest(ImageRequest, FilterRequest):
    """A query (exactly one of id, upload and query_label, or a file in a POST), examples, and options."""

    query_label: Name | None = Field(
        default=None, description="Find the images that fit this label best; needs a learner that ranks labels"
    )
    offset: int = Field(default=0, ge=0, le=MAX_OFFSET, description="Number of results to skip, for paging")
    example: list[Example] = Field(
        default=[],
        max_length=MAX_EXAMPLES,
        description="Another image to add to the query with a weight, a negative one to subtract it: "
        "id:12, id:12@-0.5, upload:HASH@1",
    )
    weight: float = Field(default=1, ge=-MAX_WEIGHT, le=MAX_WEIGHT, description="Weight of the first image")
    learned: Learned | None = None
    region: Region | None = Field(
        default=None, description="Search with a part of the first image: x,y,width,height, shares of its size"
    )
    exclude_duplicates: bool = Field(
        default=False, description="Skip images whose bytes equal those of the query or of an earlier result"
    )

    min_probability: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Only images that share a label with the query with at least this probability",
    )


class ColumnsRequest(SearchRequest):
    """A search request for all results, in columns."""

    k: int = Field(default=MAX_COLUMNS, ge=1, le=MAX_COLUMNS, description="Number of results")


class ListRequest(FilterRequest):
    """A request for images of the collection, in columns."""

    order: Literal["path", "recent", "date"] = Field(
        default="path", description="recent: the last added ones first; date: the last taken ones first"
    )


class ImagesRequest(ListRequest):
    """A request for images of the collection: a page of the list, some random ones, or those with given ids."""

    sample: int | None = Field(default=None, ge=1, le=200, description="Number of random images")
    seed: int = Field(default=0, description="The same seed gives the same random images")
    ids: Ids | None = Field(default=None, max_length=4000, description="Ids of images, such as 1,2,3")
    offset: int = Field(default=0, ge=0, lt=2**31)
    limit: int = Field(default=48, ge=1, le=200)


class UploadSearchRequest(SearchRequest):
    """A search request that may carry an image file."""

    file: Annotated[UploadFile | None, File(description="JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP or TIFF")] = None


class UploadImageRequest(ImageRequest):
    """A request for labels that may carry an image file."""

    file: Annotated[UploadFile | None, File(description="JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP or TIFF")] = None


class ImageSummary(BaseModel):
    """An image of the collection."""

    id: int
    path: str = Field(description="Path relative to the image directory")
    labels: list[str]
    width: int | None
    height: int | None
    color: str | None = Field(description="Mean colour as #rrggbb; null until the image has been read")
    group: int | None = Field(description="Equal for copies of one image: re-encoded, resized, mirrored; null: no copy")
    thumbnail: str = Field(description="URL of a small WebP; add &size= for up to 2048 pixels")


class ImageDetails(ImageSummary):
    """An image of the collection and its file."""

    bytes: int | None = Field(description="File size; null if the file is gone")
    modified: str | None = Field(description="When the file was last changed, ISO 8601")
    sha256: str
    split: str | None


class SearchResult(ImageSummary):
    """One result of a search."""

    rank: int
    score: float = Field(description="Similarity; comparable only within one query and learner")
    probability: float | None = Field(
        default=None, description="That it shares a label with the query, measured on held-out images; null: unknown"
    )
    metric: int | None = Field(
        default=None, description="The metric that ranks this image, for a learner with several metrics"
    )


class SearchResponse(BaseModel):
    """The results of one query."""

    query: str
    key: str | None = Field(
        description="Key of the query for relevance marks; null for a label, several examples and a region"
    )
    upload: str | None = Field(default=None, description="Hash to search with the uploaded image again")
    upload_expires: str | None = Field(default=None, description="When the upload expires unless it is used again")
    learner: str
    learned: float = Field(description="How much of what the learner has learned counts, from 0, how images look, to 1")
    version: str = Field(description="Version of the run that was searched, as in GET /health")
    seconds: float
    n_searched: int
    unlike: bool = Field(description="Whether the best score is lower than images of the collection usually get")
    base_rate: float | None = Field(description="Probability of two images drawn at random; null: none is known")
    no_probability: str | None = Field(description="Why no probability is known")
    results: list[SearchResult]


class Columns(BaseModel):
    """Images in columns: little per image, so that a page can lay out all of them."""

    version: str
    ids: list[int]
    ratios: list[float] = Field(description="Width by height; 0: unknown")
    colors: list[int] = Field(description="Mean colours, 0xRRGGBB; -1: unknown")
    keys: list[str] = Field(description="Start of each SHA-256: parameter v of the thumbnail")
    groups: list[int] = Field(description="Equal for copies of one image; -1: no copy")
    scores: list[float] | None = Field(default=None, description="Of a search")
    probabilities: list[float] | None = Field(default=None, description="Of a search, where they are known")
    metrics: list[int] | None = Field(default=None, description="Of a search with a learner of several metrics")


class SelectionRequest(BaseModel):
    """Some images of the collection."""

    model_config = ConfigDict(extra="forbid")
    ids: list[ImageId] = Field(min_length=1, max_length=MAX_SELECTED)


class RemovalResult(BaseModel):
    """Images removed from the collection or restored."""

    n_images: int = Field(description="Images in the collection now")
    changed: int = Field(description="Images removed or restored")
    undo: str | None = Field(description="Token that restores the removed images; null after a restoration")
    version: str
    behind: str | None = Field(description=_BEHIND)


class KeptPhoto(BaseModel):
    """A photo that was sent, to be added to the collection."""

    name: str
    copy_of: str | None = Field(description="The image of the collection with the same bytes; then it is not kept")


class RefusedPhoto(BaseModel):
    """A photo that could not be added."""

    name: str
    reason: str


class AddResult(BaseModel):
    """What came of adding photos."""

    added: int
    refused: list[RefusedPhoto]
    cancelled: int = Field(description="Photos that were deleted because adding was cancelled")


class AddState(BaseModel):
    """How far adding photos is."""

    running: bool
    done: int
    total: int
    result: AddResult | None = Field(description="Of the last time since the service started")
    problem: str | None = Field(description="Why the last time failed; its photos are added with the next ones")


class RestoreRequest(BaseModel):
    """The removal to undo."""

    model_config = ConfigDict(extra="forbid")
    undo: Name


class LabelChange(BaseModel):
    """A label to add to an image, or to remove."""

    model_config = ConfigDict(extra="forbid")
    id: ImageId
    label: Name
    change: Literal["add", "remove"]


class LabelEditRequest(BaseModel):
    """Changes of labels, kept and undone together."""

    model_config = ConfigDict(extra="forbid")
    edits: list[LabelChange] = Field(min_length=1, max_length=MAX_SELECTED)
    source: Literal["page", "queue", "concept"] = Field(
        default="page",
        description="queue and concept: answers, kept where they change nothing, and not asked about again",
    )


class LabelStep(BaseModel):
    """A step of label edits."""

    step: int
    time: str
    added: list[str]
    removed: list[str]
    images: int


class LastLabelEdit(BaseModel):
    """The step that undoing undoes; null: none."""

    last: LabelStep | None


class LabelEditResult(LastLabelEdit):
    """What changed, with the images as they are now."""

    changed: int = Field(description="Number of images")
    images: list[ImageSummary]
    version: str
    behind: str | None = Field(description=_BEHIND)


class ConceptState(BaseModel):
    """What is known of a label that is learned from answers."""

    label: str
    yes: int = Field(description="Number of images with the label")
    no: int = Field(description="Number of images that people said do not have it")
    ask: ImageSummary | None = Field(description="The image to ask about next; null: none is left")
    n_sure: int = Field(description="Images without the label that surely fit it")
    sure: list[ImageId] = Field(description=f"Their ids, the surest first, at most {MAX_SELECTED:,}")
    surest: list[ImageSummary] = Field(description=f"The first {MAX_SUREST} of them")
    version: str


class FetchRequest(BaseModel):
    """The web address of an image."""

    model_config = ConfigDict(extra="forbid")
    url: Annotated[str, Field(max_length=4096)]


class FetchedImage(BaseModel):
    """An image that was fetched and stored as an upload."""

    upload: Sha256
    name: str


class LabelResult(BaseModel):
    """A label for an image."""

    rank: int
    label: str
    score: float


class AnnotationResponse(BaseModel):
    """Labels for an image, best first."""

    query: str
    version: str
    labels: list[LabelResult]


class TrainResult(BaseModel):
    """The outcome of the training of a learner."""

    learner: str
    taken: bool
    reason: str | None = Field(description="Why the old model stays in use")
    before: float | None = Field(description="Mean average precision on held-out images, of the old model")
    after: float | None = Field(description="That of the new model, on the same images")
    measured_on: str | None
    created: str


class TrainState(BaseModel):
    """Whether there are labels to learn, how far a training is, and what the last one did."""

    stale: list[str] = Field(description="Learners that have not learned the labels of now")
    running: bool
    phase: str | None
    share: float = Field(description="Share of the work on one learner that is done")
    seconds_left: float | None
    cancelled: bool
    problem: str | None = Field(description="Why the last training ended early")
    results: list[TrainResult] = Field(description="Of the last training, of this service")
    undo: list[TrainResult] = Field(description="Trainings whose old models can be brought back")


class HealthResponse(BaseModel):
    """State of the service."""

    status: Literal["ok", "behind"] = Field(
        description="behind: the run on disk cannot be searched now, so searches use an earlier version"
    )
    version: str
    images: int
    problem: str | None = None


class FeedbackModel(BaseModel):
    """The feedback that a learner was updated with."""

    version: int
    marks: int


class RunInfo(BaseModel):
    """The run and the limits of the service."""

    run: str
    images: int
    labels: dict[str, int] = Field(description=f"Images per label; the {MAX_LISTED_LABELS:,} largest")
    n_labels: int
    learners: list[str]
    titles: dict[str, str] = Field(description="What people read in place of a learner's name")
    default_learner: str
    annotators: list[str]
    fields: list[str] = Field(description="Fields that conditions of `where` may name")
    version: str
    problem: str | None = Field(description=_BEHIND)
    models: dict[str, FeedbackModel]
    training: TrainState
    evaluations: list[str]
    can_add: bool = Field(description="Photos can be added with POST /api/add; not to imported vectors")
    judging: bool = Field(description="Whether `visterm judge` has drawn results to judge")
    limits: dict[str, int]


class NamedAlbum(BaseModel):
    """A label or a folder."""

    name: str
    images: int


class Suggestions(BaseModel):
    """Names that contain a text, best first."""

    labels: list[NamedAlbum]
    folders: list[NamedAlbum]
    images: list[ImageSummary]


class Album(NamedAlbum):
    """A label or a folder and some of its images."""

    covers: list[ImageSummary]


class Albums(BaseModel):
    """Labels or folders."""

    total: int
    same_as_labels: bool = Field(description="Each folder holds exactly the images of one label")
    albums: list[Album]


class Month(BaseModel):
    """Photos of a month."""

    month: str = Field(description="Such as 2024-05")
    images: int


class Dates(BaseModel):
    """When photos were taken."""

    months: list[Month] = Field(description="Those with photos, the last one first")
    undated: int
    from_files: int = Field(description="Photos that do not say when they were taken: of these, when the file changed")


class MapState(BaseModel):
    """Whether the map of the collection is drawn."""

    ready: bool
    current: bool = Field(description="false: images or the learner have changed since it was drawn")
    making: bool = Field(description="A new map is being drawn in the background")
    phase: str | None
    share: float = Field(description="Share of the work that is done")
    problem: str | None = Field(description="Why the last map could not be drawn")
    version: str | None
    images: int
    labels: list[str] = Field(description="Names of labels by number, the largest first")
    n_alike: int
    n_check: int


class AlikeGroup(BaseModel):
    """Images of the same picture, pictures of the same scene, or pictures that look alike."""

    degree: Literal["picture", "scene", "alike"] = Field(
        description="picture: equal files, or copies re-encoded, resized, mirrored, cropped; scene: many details of "
        "one picture lie in another as a shift, turn and zoom would put them; alike: their vectors are nearly equal"
    )
    same: bool = Field(description="Whether the degree is picture")
    similarity: float = Field(
        description="Smallest one of the pairs that make the group: a correlation of pixels for pictures, else a "
        "cosine of vectors"
    )
    n_images: int
    images: list[ImageSummary]


class DifferentStep(BaseModel):
    """Images that somebody said show different pictures."""

    step: int
    time: str = Field(description="UTC, ISO 8601")
    images: int


class DifferentResult(BaseModel):
    """What undoing would undo."""

    last: DifferentStep | None


class DifferentRequest(BaseModel):
    """Images of different parts show different pictures."""

    model_config = ConfigDict(extra="forbid")
    parts: list[Annotated[list[ImageId], Field(min_length=1, max_length=MAX_SELECTED)]] = Field(
        min_length=2, max_length=MAX_SELECTED, description="Of ids; nothing is said of the images of one part"
    )


class AlikeGroups(BaseModel):
    """Groups of images that look alike."""

    total: int
    last: DifferentStep | None = Field(description="What POST /api/alike/undo would undo")
    groups: list[AlikeGroup]


class LabelToCheck(BaseModel):
    """An image that fits its label badly."""

    label: str
    probability: float | None = Field(
        None, description="Of the label, as all other images say; null of very many images"
    )
    share: float = Field(description="Share of the nearest images with this label")
    suggested: str
    suggested_probability: float | None = None
    suggested_share: float
    image: ImageSummary


class LabelsToCheck(BaseModel):
    """Images that fit their labels badly, the worst first."""

    total: int
    entries: list[LabelToCheck]


class Home(BaseModel):
    """What the first page shows, each part as its own route gives it; alike and check are null without a map."""

    labels: Albums
    folders: Albums
    recent: list[ImageSummary]
    map: MapState
    alike: AlikeGroups | None
    check: LabelsToCheck | None


class PrecisionCurves(BaseModel):
    """Precision at k of each system."""

    k: list[int]
    systems: dict[str, list[float]]


class MarkRequest(BaseModel):
    """A relevance mark for a result of a query."""

    model_config = ConfigDict(extra="forbid")
    query: Sha256
    image: ImageId
    mark: Literal[1, -1, 0] = Field(description="1: relevant; -1: not relevant; 0: remove the mark")
    learner: Name | None = None


class Mark(BaseModel):
    """A relevance mark in force."""

    number: int
    time: str
    image: int
    path: str
    mark: Literal[1, -1]
    learner: str
    version: int


class QueryMarks(BaseModel):
    """The marks in force of one query, oldest first."""

    query: str
    marks: list[Mark]
    learned: dict[str, list[int]] = Field(description="Per learner, the images whose marks it has learned or set aside")


class UndoMarkRequest(BaseModel):
    """The query whose last mark to undo."""

    model_config = ConfigDict(extra="forbid")
    query: Sha256


class UpdateRequest(BaseModel):
    """The learner to update, and a query whose top results to compare before and after."""

    model_config = ConfigDict(extra="forbid")
    learner: Name = "oasis"
    query: Sha256 | None = None


class RevertRequest(BaseModel):
    """The learner to revert."""

    model_config = ConfigDict(extra="forbid")
    learner: Name = "oasis"


class UpdateResult(BaseModel):
    """The outcome of an update."""

    model_config = ConfigDict(extra="allow")
    learner: str
    accepted: bool
    reason: str | None = Field(description="Why the update was rejected")
    from_version: int
    to_version: int
    n_relevant: int = Field(description="New marks of relevant images used by this update")
    n_not: int = Field(description="New marks of images that are not relevant used by this update")
    map_before: float | None = Field(description="Mean average precision on held-out images without marks")
    map_after: float | None
    milliseconds: float
    changed_in_top: int | None = Field(default=None, description="Positions among the first 20 whose image changed")
    version: str
    behind: str | None = Field(description=_BEHIND)


class RevertResult(BaseModel):
    """The outcome of an undo or a reset."""

    learner: str
    from_version: int
    to_version: int
    version: str
    behind: str | None = Field(description=_BEHIND)


class JudgeRequest(BaseModel):
    """A judge."""

    model_config = ConfigDict(extra="forbid")
    judge: JudgeName


class DecisionRequest(JudgeRequest):
    """A judge's decision on an image."""

    task: int = Field(ge=0, le=2**53 - 1)
    image: ImageId
    decision: Literal["relevant", "not", "unsure"]
    seconds: float | None = Field(default=None, description="Time that the judge took")


class JudgingTask(BaseModel):
    """An image to judge and its query, without rank, learner and path (which often names the class)."""

    task: int
    query: int
    image: int
    position: int


class NextTask(BaseModel):
    """A judge's progress and next image."""

    judge: str
    study: int
    done: int
    total: int
    query_index: int
    n_queries: int
    seconds_left: float | None = Field(description="Time for the rest at this judge's pace; null: not known yet")
    task: JudgingTask | None = Field(description="null: all images are judged")
    instructions: str


class ErrorResponse(BaseModel):
    """Every error."""

    ok: Literal[False]
    error: str
    status: int
