"""Requests to the service; those of one subject are in its file. Also bounds and types that several requests share."""

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
MAX_LISTED_LABELS = 1000  # of a run; GET /api/albums lists all
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of an image's bytes, hexadecimal")]
ImageId = Annotated[int, Field(ge=0, le=2**53 - 1, description="Id of an image of the collection")]  # exact in JSON
Ids = Annotated[str, Field(pattern="^[0-9]+(,[0-9]+)*$")]
Name = Annotated[str, Field(max_length=4096)]
Folder = Annotated[str, Field(max_length=4096)]
Example = Annotated[str, Field(pattern=r"^(id:[0-9]{1,16}|upload:[0-9a-f]{64})(@-?[0-9]{1,2}(\.[0-9]{1,3})?)?$")]
Region = Annotated[str, Field(pattern=r"^[01](\.[0-9]{1,4})?(,[01](\.[0-9]{1,4})?){3}$")]
JsonObject = dict[str, Any]
BEHIND = "Why searches still use the previous version; null: they use this one"


class Body(BaseModel):
    """The JSON body of a request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


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


class ErrorResponse(BaseModel):
    """Every error."""

    ok: Literal[False]
    error: str
    status: int
