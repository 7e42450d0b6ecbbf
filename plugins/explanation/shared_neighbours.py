"""Why a result ranks where it does: the photos that a query and the result are both near to."""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.answers import ImageRow

NAMED = 3  # photos of a sentence


class SharedPhoto(ImageRow):
    """A photo that a query and a result are both near to."""

    contribution: Annotated[float, Field(description="What it adds to the score by which results are ranked")]
    thumbnail: NotRequired[str]  # its address, where a service answers


class SharedNeighbours(TypedDict):
    """Why a result ranks where it does: `alone` and the photos' contributions sum to `score`."""

    score: Annotated[float, Field(description="By which results are ranked")]
    alone: Annotated[float, Field(description="What the two add by themselves")]
    sentence: Annotated[str, Field(description="Which photos both are like")]
    photos: Annotated[list[SharedPhoto], Field(description="Photos that both are like, the largest contribution first")]


def explain_neighbours(
    searcher: Any, query: Any, result: Any, learner: str | None = None, *, learned_weight: float | None = None
) -> SharedNeighbours | None:
    """Say which photos a query and a result are both near to; None where results are ranked without neighbours.

    The query is one image, whatever `Searcher.search` takes; the result an image of the collection. UserError if an
    image cannot be found or read, or the learner cannot be used.
    """
    by = searcher.by_neighbours(learner or searcher.default_learner(), learned_weight)
    if by is None:
        return None
    read, of_result = (searcher.queries([f"id:{one}" if isinstance(one, Integral) else one]) for one in (query, result))
    for one in (read, of_result):
        if one.errors:
            raise UserError(f"{one.names[0]}: {one.errors[0]}")
    row = of_result.rows[0]
    if row < 0 or row == read.rows[0]:
        return None  # nothing is ranked: the same photo, or one from elsewhere
    shared = by.explain(read.Q, row, own=read.rows[0])
    images = [searcher.images[i] for i in shared.rows.tolist()]
    photos: list[SharedPhoto] = [
        {"id": image.id, "path": image.path, "labels": sorted(image.labels), "contribution": float(f"{part:.6g}")}
        for image, part in zip(images, shared.parts, strict=True)
    ]
    return {
        "score": round(float(shared.alone + shared.parts.sum()), 6),
        "alone": float(f"{shared.alone:.6g}"),
        "sentence": _sentence([image.path for image in images if image.path != searcher.images[row].path]),
        "photos": photos,
    }


def _sentence(paths: list[str]) -> str:
    if not paths:
        return "No photo is near to both: the result ranks by what the two have in common."
    first = ", ".join(one_line(path) for path in paths[:NAMED])
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"Both are like {count(len(paths), 'photo')} of yours: {first}{more}."


def in_words(shared: SharedNeighbours) -> list[str]:
    """Return an explanation by neighbours as lines for the terminal."""
    lines = [shared["sentence"], f"score {shared['score']:.4f}: {shared['alone']:.4f} of the two alone, and"]
    for photo in shared["photos"]:
        lines.append(f"  {photo['contribution']:8.4f}  {one_line(photo['path'])}")
    return lines if shared["photos"] else lines[:1]
