"""Which training images made a query and a result similar: the teachers of a pair, for people."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.teachers import again, check_table
from visterm.pipeline.store.versions import LearnerVersions

if TYPE_CHECKING:
    from visterm.learners import Teachers
    from visterm.pipeline.search.searcher import Searcher


TEACHERS = 5  # listed by default that raise the score, and as many that lower it


def open_teachers(searcher: Searcher, name: str) -> tuple[Teachers, list[dict[str, Any]]]:
    """Open the table of a learner, once, and what is known of each of its rows.

    Raises
    ------
    UserError
        The learner has none, with the command that makes one; or it is damaged.
    """

    def load() -> tuple[Teachers, list[dict[str, Any]]]:
        from visterm.learners import Teachers

        learner: Any = searcher.learner(name)
        with searcher.unchanged(name):
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
) -> dict[str, Any]:
    """Compute which training images made a query and a result similar.

    Parameters
    ----------
    searcher : Searcher
    query, result : int, str, path or ndarray
        As for `explain_pair`.
    learner : str, optional
        As for `explain_pair`.
    learned_weight : float, optional
        Weight of the learned similarity, as for `Searcher.search`.
    n_teachers : int
        List so many of the teachers that raise the score, and as many that lower it, at most.

    Returns
    -------
    dict
        Ready for JSON. ``unlearned + common + learned`` is the ``score``:

        - ``learner``, ``query`` and ``result``, as given;
        - ``unlearned``: the score without learning;
        - ``common``: what was learned for every result of this query alike; 0 where vectors are not whitened;
        - ``learned``: what was learned about this pair;
        - ``pairs``: teachers, those that raise the score first, the strongest first: ``query`` and ``result``, training
          images like the query and like the result (``id`` and ``path``, None of one that is no longer in the run, and
          ``labels``); ``together``, whether learning put them together or kept them apart; ``like_query`` and
          ``like_result``, cosines; ``contribution`` to the score; ``label``, which both have, and ``mark``, ``number``
          and ``time`` of the relevance mark that the teacher comes from, None for others;
        - ``rest`` and ``n_rest``: the sum of all other contributions, and their number.

    Raises
    ------
    UserError
        An image cannot be read, or the learner has no table of teachers.
    """
    name = learner or searcher.default_learner()
    teachers, rows = open_teachers(searcher, name)
    model = searcher.blend(name, learned_weight)
    names, vectors = zip(*(_vector(searcher, given) for given in (query, result)), strict=True)
    pair = teachers.with_share(model).of_pair(vectors[0], vectors[1], n=n_teachers)
    listed = []
    for a, b, weight, like_query, like_result, contribution in zip(
        pair.queries,
        pair.images,
        pair.weights,
        pair.like_query,
        pair.like_result,
        pair.contributions,
        strict=True,
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
    image = _image(searcher, row)
    if image is None:
        return {"id": None, "path": None, "labels": []}
    return {"id": image.id, "path": image.path, "labels": sorted(image.labels)}


def _image(searcher: Searcher, row: dict[str, Any]) -> Image | None:
    """Image of the collection that a row of the table is of; None if it is no longer there, or never was."""
    place = searcher.place.get(row["id"]) if "id" in row else searcher.gallery.rows_by_sha256.get(row["sha256"])
    return None if place is None else searcher.images[place]


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
            _name(one["query"]),
            "put with" if one["together"] else "kept apart from",
            _name(one["result"]),
            because(one),
        )
        for one in pair["pairs"]
    ]
    heads = ("    adds", "like the query", "", "like the result", "because")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(5)]
    for row in [heads, *rows]:
        lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if pair["n_rest"]:
        lines.append(f"{pair['rest']:8.4f}  the other {pair['n_rest']:,}")
    return lines


def _name(image: dict[str, Any]) -> str:
    return one_line(image["path"] or "(not in the run)")


def because(teacher: dict[str, Any]) -> str:
    """Say what stands behind a teacher: the mark it comes from, or the labels of its two images."""
    if teacher["mark"] is not None:
        return f"mark {teacher['mark']['number']}, {teacher['mark']['time'][:10]}"
    if teacher["label"] is not None:
        return f"both {teacher['label']}"
    labels = [", ".join(teacher[side]["labels"]) for side in ("query", "result")]
    return " and ".join(label or "no label" for label in labels)
