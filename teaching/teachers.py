"""Which training images made a query and a result similar: the teachers of a pair, for people."""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.console import in_columns, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import again, check_table, taught_images
from visterm.pipeline.store.versions import LearnerVersions

if TYPE_CHECKING:
    from visterm.learners import Teachers
    from visterm.pipeline.search.searcher import Searcher


TEACHERS = 5  # listed by default that raise the score, and as many that lower it


class TeacherImage(TypedDict):
    """A training image."""

    id: Annotated[int | None, Field(description="null: no longer in the collection")]
    path: str | None
    labels: list[str]
    # Added by the service.
    thumbnail: Annotated[str | None, Field(description="Address, relative to the service's root")]


class TeacherMark(TypedDict):
    """The relevance mark that a teacher comes from."""

    number: int
    time: str


class Teacher(TypedDict):
    """Two training images that learning put together or kept apart."""

    query: Annotated[TeacherImage, Field(description="Like the query")]
    result: Annotated[TeacherImage, Field(description="Like the result")]
    together: Annotated[bool, Field(description="Put together; false: kept apart")]
    like_query: Annotated[float, Field(description="Cosine of its first image and the query")]
    like_result: float
    contribution: Annotated[float, Field(description="To the score")]
    label: Annotated[str | None, Field(description="That both have")]
    mark: TeacherMark | None


class TeachersAnswer(TypedDict):
    """Which training images made a query and a result similar; unlearned + common + learned is the score."""

    learner: str
    query: str
    result: str
    score: float
    unlearned: Annotated[float, Field(description="Score without learning")]
    common: Annotated[float, Field(description="Learned, for every result of the query alike")]
    learned: Annotated[float, Field(description="Learned about this pair: the sum of all teachers")]
    pairs: Annotated[
        list[Teacher], Field(description="Those that raise the score, then those that lower it, the strongest first")
    ]
    rest: Annotated[float, Field(description="Sum of the contributions that are not listed")]
    n_rest: int


def open_teachers(searcher: Searcher, name: str) -> tuple[Teachers, list[dict[str, Any]]]:
    """Open the table of a learner, once, and what is known of each of its rows.

    UserError if the learner has none, with the command that makes one; or if it is damaged.
    """

    def load() -> tuple[Teachers, list[dict[str, Any]]]:
        from visterm.learners import Teachers

        with searcher.unchanged(name):
            learner: Any = LearnerVersions(searcher.run).load_in_force(name)
            table = check_table(searcher.run, name, learner)
            taught = LearnerVersions(searcher.run).load_teachers(name, table)
        learner = copy.copy(learner)
        learner.teachers_ = taught.table
        try:
            return Teachers(learner, taught.X), taught.rows
        except ValueError as error:
            raise UserError(f"{name}: {error}; run {again(searcher.run, name)} to make the table again") from None

    return searcher._once(("teachers", name), load)


def explain_teachers(
    searcher: Searcher,
    query: Any,
    result: Any,
    learner: str | None = None,
    *,
    learned_weight: float | None = None,
    n_teachers: int = TEACHERS,
) -> TeachersAnswer:
    """Compute which training images made a query and a result similar; arguments are those of `explain_pair`.

    At most `n_teachers` are listed that raise the score, and as many that lower it. ``common`` is 0 where vectors are
    not whitened. UserError if an image cannot be read, or the learner has no table of teachers.
    """
    name = learner or searcher.default_learner()
    teachers, rows = open_teachers(searcher, name)
    model = searcher.blend(name, learned_weight)
    names, vectors = zip(*(_vector(searcher, given) for given in (query, result)), strict=True)
    pair = teachers.with_share(model).of_pair(vectors[0], vectors[1], n=n_teachers)
    listed: list[Any] = []
    for a, b, weight, like_query, like_result, contribution in zip(
        pair.queries, pair.images, pair.weights, pair.like_query, pair.like_result, pair.contributions, strict=True
    ):
        sides = [shown(searcher, rows[row]) for row in (a, b)]
        shared = sorted(set(sides[0]["labels"]).intersection(sides[1]["labels"]))
        mark = rows[b].get("mark") or rows[a].get("mark")
        listed.append(
            {
                "query": sides[0],
                "result": sides[1],
                "together": bool(weight > 0),
                "like_query": round(float(like_query), 3),
                "like_result": round(float(like_result), 3),
                "contribution": float(f"{contribution:.6g}"),
                "label": shared[0] if shared else None,
                "mark": mark,
            }
        )
    return {
        "learner": name,
        "query": names[0],
        "result": names[1],
        "score": round(pair.score, 6),
        "unlearned": float(f"{pair.unlearned:.6g}"),
        "common": float(f"{pair.common:.6g}"),
        "learned": float(f"{pair.learned:.6g}"),
        "pairs": listed,
        "rest": float(f"{pair.rest:.6g}"),
        "n_rest": pair.n_rest,
    }


def _vector(searcher: Searcher, given: Any) -> tuple[str, Any]:
    """Name and vector of one image, as search has them: (1, n_features)."""
    read = searcher.queries(f"id:{given}" if isinstance(given, int) else given)
    if read.errors:
        place, reason = next(iter(read.errors.items()))
        raise UserError(f"{read.names[place]}: {reason}")
    if len(read.place) != 1:
        raise UserError(f"{given} is {len(read.place)} images; give one image")
    row = read.rows[0]
    return (read.names[0] if row < 0 else searcher.images[row].path), read.Q


def shown(searcher: Searcher, row: dict[str, Any]) -> dict[str, Any]:
    """Id, path and labels of the image that a row of the table is of; None, None and none if it is gone."""
    place = searcher.place.get(row["id"]) if "id" in row else searcher.gallery.rows_by_sha256.get(row["sha256"])
    if place is None:
        return {"id": None, "path": None, "labels": []}
    image = searcher.images[place]
    return {"id": image.id, "path": image.path, "labels": sorted(image.labels)}


def in_words(pair: dict[str, Any]) -> list[str]:
    """Return the teachers of a pair as lines of a table."""
    names = [one_line(pair[side]) for side in ("query", "result")]
    parts = [f"without learning {pair['unlearned']:.4f}"]
    if pair["common"]:
        parts.append(f"learned for every result of this query {pair['common']:.4f}")
    parts.append(f"learned about this pair {pair['learned']:.4f}, mostly from:")
    lines = [f"{names[0]} and {names[1]}: {pair['score']:.4f} by {pair['learner']}", ", ".join(parts)]
    rows = [
        (
            f"{one['contribution']:8.4f}",
            name_of(one["query"]),
            "put with" if one["together"] else "kept apart from",
            name_of(one["result"]),
            because(one),
        )
        for one in pair["pairs"]
    ]
    heads = ("    adds", "like the query", "", "like the result", "because")
    lines += in_columns([heads, *rows])
    if pair["n_rest"]:
        lines.append(f"{pair['rest']:8.4f}  the other {pair['n_rest']:,}")
    return lines


def name_of(image: Mapping[str, Any]) -> str:
    """Path of an image that `shown` describes."""
    return one_line(image["path"] or "(not in the run)")


def because(teacher: dict[str, Any]) -> str:
    """Say what stands behind a teacher: the mark it comes from, or the labels of its two images."""
    if teacher["mark"] is not None:
        return f"mark {teacher['mark']['number']}, {teacher['mark']['time'][:10]}"
    if teacher["label"] is not None:
        return f"both {teacher['label']}"
    labels = [", ".join(teacher[side]["labels"]) for side in ("query", "result")]
    return " and ".join(label or "no label" for label in labels)


def teaching_ids(run: Run, name: str, learner: Any) -> set[int]:
    """Ids of the images that a base learned anything from."""
    import numpy as np

    table = check_table(run, name, learner)
    rows = taught_images(run, name).rows
    if table.shape[0] != len(rows):
        raise UserError(f"{name}: its table of teachers is of other images; run {again(run, name)} to make it again")
    has_entries = np.union1d(np.flatnonzero(np.diff(table.indptr)), table.indices)
    return {rows[row]["id"] for row in has_entries if "id" in rows[row]}


def without_taught(run: Run, name: str, learner: Any, ids: Container[int]) -> Any:
    """Return the base without all that some images took part in: see `Teachers.without`."""
    from visterm.learners import Teachers

    check_table(run, name, learner)
    taught = taught_images(run, name)
    rows = [place for place, row in enumerate(taught.rows) if row.get("id") in ids]
    try:
        return Teachers(learner, taught.X).without(rows)
    except ValueError as error:
        raise UserError(f"{name}: {error}; run {again(run, name)} to make the table again") from None
