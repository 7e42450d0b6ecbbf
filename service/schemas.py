"""Requests to the service; those of one subject are in its file. Also bounds and types that several requests share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import File, UploadFile
from pydantic import BaseModel, ConfigDict, Field, create_model

from visterm.pipeline.search.filters import Filter
from visterm.pipeline.search.request import FILTERS, OPTIONS, RESULTS, Option, SearchRequest
from visterm.pipeline.search.words import MAX_MODEL_TEXT

MAX_K, MAX_OFFSET, MAX_LABELS = (OPTIONS[name].served for name in ("k", "offset", "label"))
MAX_COLUMNS = 100_000
MAX_SELECTED = 5_000  # images of one request
MAX_LISTED_LABELS = 1000  # of a run; GET /api/albums lists all
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of an image's bytes, hexadecimal")]
ImageId = Annotated[int, Field(ge=0, le=2**53 - 1, description="Id of an image of the collection")]  # exact in JSON
Ids = Annotated[str, Field(pattern="^[0-9]+(,[0-9]+)*$")]
Name = Annotated[str, Field(max_length=4096)]
Folder = Annotated[str, Field(max_length=4096)]
JsonObject = dict[str, Any]
M = TypeVar("M", bound=BaseModel)
BEHIND = "Why searches still use the previous version; null: they use this one"


class Body(BaseModel):
    """The JSON body of a request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


def _with_options(*names: str) -> Callable[[type[M]], type[M]]:
    """Add fields of the table of searches to a model."""

    def decorate(model: type[M]) -> type[M]:
        made: Any = {name: _field(name, OPTIONS[name]) for name in names}
        return create_model(model.__name__, __base__=model, __doc__=model.__doc__, __module__=__name__, **made)

    return decorate


def _field(name: str, option: Option) -> tuple[Any, Any]:
    """Type and description of a field of the table."""
    kind: Any = option.kind
    if kind is str:
        kind = Name if option.pattern is None else Annotated[str, Field(pattern=option.pattern)]
    if option.several:
        return list[kind], Field(default=[], max_length=option.served, description=option.help)
    bounds: Any = {}
    if option.least is not None:
        bounds = {"ge": option.least, "le": option.served or option.most}
    default = getattr(SearchRequest, name)
    if default is None and kind is float:
        bounds["allow_inf_nan"] = False
    if name == "learned_weight":  # GET /explain takes it, too
        return Learned | None, None
    return kind | None if default is None else kind, Field(default=default, description=option.help, **bounds)


Learned = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description=OPTIONS["learned_weight"].help)]


@_with_options(*FILTERS)
class FilterRequest(BaseModel):
    """Which images; all by default."""

    def filter(self) -> Filter:
        """Return the conditions."""
        conditions: Any = {name: getattr(self, name) for name in FILTERS}
        return SearchRequest.of(**conditions).filter


@_with_options("k", "learner")
class ImageRequest(BaseModel):
    """A query (exactly one of id, path and upload, or a file in a POST) and options."""

    id: ImageId | None = Field(default=None, description="An image of the collection, by id")
    path: Name | None = Field(
        default=None,
        description="An image of the collection, by its path, or by its own id where vectors were imported",
    )
    upload: Sha256 | None = Field(default=None, description="An earlier upload, by its hash")
    if TYPE_CHECKING:
        k: int = RESULTS
        learner: str | None = None


@_with_options(*(name for name in OPTIONS if name not in (*FILTERS, "k", "learner")))
class SearchParameters(ImageRequest, FilterRequest):
    """A query (exactly one of id, path, upload, query_label and text, or a file in a POST), examples, and options."""

    query_label: Name | None = Field(
        default=None, description="Find the images that fit this label best; needs a learner that ranks labels"
    )

    text: Annotated[str, Field(min_length=1, max_length=MAX_MODEL_TEXT)] | None = Field(
        default=None,
        description="Find the images that fit best the labels that these words name, or else the text: beach sunset",
    )

    @cached_property
    def request(self) -> SearchRequest:
        """Return the options of the search, without its queries.

        InvalidQuery if the weight of an example is out of bounds, or the region does not lie within the image.
        """
        options: Any = {name: getattr(self, name) for name in OPTIONS}
        return SearchRequest.of(**options)


class ColumnsRequest(SearchParameters):
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


class UploadSearchRequest(SearchParameters):
    """A search request that may carry an image file."""

    model_config = ConfigDict(extra="forbid")

    file: Annotated[UploadFile | None, File(description="JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP, TIFF or JPEG 2000")] = (
        None
    )


class UploadImageRequest(ImageRequest):
    """A request for labels that may carry an image file."""

    model_config = ConfigDict(extra="forbid")

    file: Annotated[UploadFile | None, File(description="JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP, TIFF or JPEG 2000")] = (
        None
    )


class ErrorResponse(BaseModel):
    """Every error."""

    ok: Literal[False]
    error: str
    status: int
