"""What there is in the collection: the first page, suggestions while somebody types, albums, and dates."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.search.filters import covers
from visterm.pipeline.search.words import labels_of_text
from visterm.service.responses import next_offset
from visterm.service.schemas import FilterRequest, ImagesRequest
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, get
from visterm.service.summaries import ImageSummary

from .images import ImageSubject, passing
from .map import AlikeGroups, LabelsToCheck, MapState, MapSubject

# What the first page shows of each list.
_ALBUMS, _RECENT, _COVERS = 12, 14, 4


class NamedAlbum(TypedDict):
    """A label or a folder."""

    name: str
    images: int


class Suggestions(TypedDict):
    """Names that contain a text, best first."""

    labels: list[NamedAlbum]
    folders: list[NamedAlbum]
    images: list[ImageSummary]
    words: Annotated[
        list[str],
        Field(description="Labels that the words of the text name; none where the text is the name of one label"),
    ]
    text_model: Annotated[bool, Field(description="Whether the run has a text model, which takes any words")]


class Album(NamedAlbum):
    """A label or a folder and some of its images."""

    covers: list[ImageSummary]


class AlbumsAnswer(TypedDict):
    """Labels or folders."""

    total: int
    next: Annotated[int | None, Field(description="Offset of the next page; null: this is the last one")]
    same_as_labels: Annotated[bool, Field(description="Each folder holds exactly the images of one label")]
    albums: list[Album]


class Month(TypedDict):
    """Photos of a month."""

    month: Annotated[str, Field(description="Such as 2024-05")]
    images: int


class Dates(TypedDict):
    """When photos were taken."""

    months: Annotated[list[Month], Field(description="Those with photos, the last one first")]
    undated: int
    from_files: Annotated[
        int, Field(description="Photos that do not say when they were taken: of these, when the file changed")
    ]


class Home(TypedDict):
    """What the first page shows, each part as its own route gives it; alike and check are null until they are known."""

    labels: AlbumsAnswer
    folders: AlbumsAnswer
    recent: list[ImageSummary]
    map: MapState
    alike: AlikeGroups | None
    check: LabelsToCheck | None


class BrowseSubject(Subject):
    """Lists of what there is in the collection."""

    @get("/api/home", "collection")
    def home(self) -> Home:
        """Return what the first page shows, in one response."""
        snapshot, on_map = self.service.snapshot, self.subjects.of(MapSubject)
        state = on_map.state(snapshot)
        return {
            "labels": self._albums(snapshot, "label", "", 0, _ALBUMS),
            "folders": self._albums(snapshot, "folder", "", 0, _ALBUMS),
            "recent": self.subjects.of(ImageSubject).listed(snapshot, ImagesRequest(order="recent", limit=_RECENT)),
            "map": state,
            "alike": None if state["n_alike"] is None else on_map.groups(snapshot, 0, _COVERS),
            "check": None if state["n_check"] is None else on_map.labels_to_check(snapshot, None, 0, _COVERS),
        }

    @get("/api/suggest", "collection")
    def suggest(
        self,
        q: Annotated[str, Query(max_length=300, description="The beginning or any part of a name, or an id")] = "",
        kind: Annotated[Literal["all", "label", "folder", "image"], Query()] = "all",
        limit: Annotated[int, Query(ge=1, le=50)] = 6,
    ) -> Suggestions:
        """Find labels, folders and image files by name, and an image by its id, as somebody types."""
        snapshot = self.service.snapshot
        gallery, place = snapshot.searcher.gallery, snapshot.searcher.place
        albums, text = gallery.albums, q.strip()
        kinds = ("label", "folder", "image") if kind == "all" else (kind,)

        def named(of_kind: str, rows_of: dict[str, list[int]]) -> list[NamedAlbum]:
            names = list(rows_of)
            matching = [names[i] for i in gallery.name_index(of_kind).search(text, limit)]
            return [{"name": name, "images": len(rows_of[name])} for name in matching]

        rows: list[int] = []
        number = text.removeprefix("id:")
        if number.isascii() and number.isdecimal() and len(number) < 19 and int(number) in place:
            rows.append(place[int(number)])
        if text and "image" in kinds:
            rows += [row for row in gallery.name_index("image").search(text, limit) if row not in rows]
        with_folders = "folder" in kinds and not (kind == "all" and albums.are_alike)
        return {
            "labels": named("within", albums.within) if "label" in kinds else [],
            "folders": named("folder", albums.folders) if with_folders else [],
            "images": [self.service.image_summary(snapshot, row) for row in rows[:limit]],
            "words": [] if kind != "all" or text in albums.labels else labels_of_text(text, albums.labels).labels,
            "text_model": kind == "all" and bool(text) and snapshot.searcher.has_text_model,
        }

    @get("/api/albums", "collection")
    def albums(
        self,
        kind: Annotated[Literal["label", "folder"], Query()] = "label",
        q: Annotated[str, Query(max_length=300)] = "",
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=100)] = 24,
    ) -> AlbumsAnswer:
        """List the labels or the folders with their numbers of images, the largest first, with up to four covers."""
        return self._albums(self.service.snapshot, kind, q.strip(), offset, limit)

    def _albums(self, snapshot: Snapshot, kind: str, text: str, offset: int, limit: int) -> AlbumsAnswer:
        """List the albums of a snapshot whose names contain a text."""
        gallery = snapshot.searcher.gallery
        rows_of = gallery.albums.labels if kind == "label" else gallery.albums.folders
        names = list(rows_of)
        if text:
            names = [names[i] for i in gallery.name_index(kind).search(text, len(names))]
        return {
            "total": len(names),
            "next": next_offset(offset, limit, len(names)),
            "same_as_labels": kind == "folder" and gallery.albums.are_alike,
            "albums": [
                {
                    "name": name,
                    "images": len(rows_of[name]),
                    "covers": [self.service.image_summary(snapshot, row) for row in covers(rows_of[name])],
                }
                for name in names[offset : offset + limit]
            ],
        }

    @get("/api/dates", "collection")
    def dates(self, request: Annotated[FilterRequest, Query()]) -> Dates:
        """Count the images by the month in which they were taken."""
        snapshot = self.service.snapshot
        known = [snapshot.searcher.gallery.fields.date(row) for row in passing(snapshot, request)]
        months = Counter(date[:7] for date, _ in known if date)
        return {
            "months": [{"month": month, "images": months[month]} for month in sorted(months, reverse=True)],
            "undated": sum(not date for date, _ in known),
            "from_files": sum(source == "file" for _, source in known),
        }
