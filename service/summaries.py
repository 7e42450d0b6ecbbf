"""Images of the collection as answers show them: a summary of each, or columns of many."""

from __future__ import annotations

from typing import Annotated, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from .looks import Looks
from .snapshot import Snapshot
from .thumbnails import Thumbnails


class ImageSummary(TypedDict):
    """An image of the collection."""

    id: int
    path: Annotated[str, Field(description="Path relative to the image directory")]
    labels: list[str]
    width: int | None
    height: int | None
    color: Annotated[str | None, Field(description="Mean colour as #rrggbb; null until the image has been read")]
    group: Annotated[
        int | None, Field(description="Equal for copies of one image: re-encoded, resized, mirrored; null: no copy")
    ]
    thumbnail: Annotated[str, Field(description="URL of a small WebP; add &size= for up to 2048 pixels")]


class Columns(TypedDict):
    """Images in columns: little per image, so that a page can lay out all of them."""

    version: str
    ids: list[int]
    ratios: Annotated[list[float], Field(description="Width by height; 0: unknown")]
    colors: Annotated[list[int], Field(description="Mean colours, 0xRRGGBB; -1: unknown")]
    keys: Annotated[list[str], Field(description="Start of each SHA-256: parameter v of the thumbnail")]
    groups: Annotated[list[int], Field(description="Equal for copies of one image; -1: no copy")]
    scores: NotRequired[Annotated[list[float] | None, Field(description="Of a search")]]
    probabilities: NotRequired[Annotated[list[float] | None, Field(description="Of a search, where they are known")]]
    answered_by: NotRequired[
        Annotated[str | None, Field(description="Of a text: the labels that its words name, or the text model")]
    ]
    metrics: NotRequired[
        Annotated[list[int] | None, Field(description="Of a search with a learner of several metrics")]
    ]


class Summaries:
    """Facts about each image, by its row and by its bytes."""

    def __init__(self, looks: Looks, thumbnails: Thumbnails):
        self._looks, self._thumbnails = looks, thumbnails

    def summary(self, snapshot: Snapshot, row: int) -> ImageSummary:
        """Summarise an image."""
        image = snapshot.searcher.images[row]
        width, height = snapshot.sizes[row].tolist()
        return {
            "id": image.id,
            "path": image.path,
            "labels": sorted(image.labels),
            "width": width or None,
            "height": height or None,
            "color": self._looks.colors.get(image.sha256) or self._thumbnails.colors.get(image.sha256),
            "group": self._looks.groups.get(image.id),
            "thumbnail": f"images/{image.id}/thumbnail?v={image.sha256[:16]}",
        }

    def columns(self, snapshot: Snapshot, ranked: list[tuple[int, float]], learner: str | None = None) -> Columns:
        """Make the columns of images, (row, score) each; the scores are those of a learner."""
        images, looks = snapshot.searcher.images, self._looks
        rows = [row for row, _ in ranked]
        sizes = snapshot.sizes[rows].astype(np.float64)
        ratios = np.divide(sizes[:, 0], sizes[:, 1], out=np.zeros(len(rows)), where=sizes[:, 1] > 0)
        colors = (looks.colors.get(images[row].sha256) for row in rows)
        columns: Columns = {
            "version": snapshot.searcher.version,
            "ids": [images[row].id for row in rows],
            "ratios": ratios.round(3).tolist(),
            "colors": [-1 if color is None else int(color[1:], 16) for color in colors],
            "keys": [images[row].sha256[:8] for row in rows],
            "groups": [looks.groups.get(images[row].id, -1) for row in rows],
        }
        if learner is not None:
            columns["scores"] = [round(score, 6) for _, score in ranked]
            if snapshot.has_metrics(learner):
                columns["metrics"] = [snapshot.metric(learner, row).get("metric", -1) for row in rows]
        return columns
