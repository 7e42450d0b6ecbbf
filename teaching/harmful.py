"""Training images that harm a learned similarity: without them, held-out images would rank each other better.

Candidates are the images whose steps lower the margins of held-out queries most, by the table of teachers: how far the
relevant images of a query score above its others. Of each the scores without it follow exactly from the table, and from
these mean average precision without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from visterm import sparse
from visterm.pipeline.evaluation.held_out import HeldOutSet, draw_held_out
from visterm.pipeline.store.catalogue import Collection

from .teachers import because, name_of, open_teachers, shown

if TYPE_CHECKING:
    import numpy as np

    from visterm.learners import Teachers
    from visterm.pipeline.search.searcher import Searcher
else:
    from visterm import numpy as np

LISTED = 20
LEAST_GAIN = 1e-4  # of mAP; what is less is no harm, and would be shown as 0.0000
_CANDIDATES = 100  # at least; for each, all held-out images are ranked again: some 20 ms
_DRAWN, _SIGNS = 200, 200  # images and signs that tell how many harm, and how many by chance


def find_harmful(searcher: Searcher, learner: str = "oasis", k: int = LISTED) -> dict[str, Any]:
    """Find the training images without which held-out images would be ranked better.

    Parameters
    ----------
    searcher : Searcher
    learner : str
        One with a table of teachers.
    k : int
        List so many images at most.

    Returns
    -------
    dict
        Ready for JSON: ``learner``, ``map`` of the held-out images, ``measured_on`` (these in words),
        ``share_harmful`` of images drawn at random, ``share_by_chance``, how many of these would harm if each change
        of the queries of a class were as likely a gain as a loss, and ``images``, the most harmful first:
        ``id``, ``path`` (None if it is no longer in the run), ``labels``, ``gain`` (how much
        higher the mAP would be without what the image taught, at least `LEAST_GAIN`), and ``did``, the step that
        lowered the margins most: ``image``, the other training image, ``together``, whether learning put the two
        together or kept them apart, and ``why``, their labels.

    Raises
    ------
    UserError
        The learner has no table of teachers, or the run has no labelled images.

    Notes
    -----
    Each image is measured on its own. Several at once, and a training without them, may gain more or less.
    """
    from visterm.learners.validation import average_precisions

    teachers, rows = open_teachers(searcher, learner)
    model = searcher.blend(learner)
    teachers = teachers.with_share(model)
    with Collection(searcher.run.collection) as collection:
        held_out = draw_held_out(searcher.run, learner, collection, searcher.images, set())
    X: Any = held_out.X if sparse.issparse(searcher.X) else held_out.X.toarray()
    terms = margin_terms(teachers, held_out, X)
    harm = -(terms.sum(axis=1) + terms.sum(axis=0))
    in_order = np.argsort(-harm, kind="stable")
    candidates = [row for row in in_order[: max(_CANDIDATES, 5 * k)].tolist() if harm[row] > 0 and "id" in rows[row]]

    scores = model.similarity(X[held_out.own], X)
    precisions = average_precisions(scores, held_out.relevant, held_out.own)
    usable = ~np.isnan(precisions)
    drawn = np.random.default_rng(0).permutation([row for row in range(len(rows)) if "id" in rows[row]])[:_DRAWN]
    measured = list(dict.fromkeys([*candidates, *drawn.tolist()]))
    changes = {}  # of the average precision of each query, without an image
    for row, part in zip(measured, teachers.parts_of(measured, X[held_out.own], X), strict=True):
        changed = average_precisions(scores - part, held_out.relevant, held_out.own)
        changes[row] = (changed - precisions)[usable]
    gains = {row: round(float(changes[row].mean()), 6) for row in candidates}
    of_drawn = np.stack([changes[row] for row in drawn])
    worst = sorted((row for row in candidates if gains[row] >= LEAST_GAIN), key=lambda row: -gains[row])[:k]
    images = []
    for row in worst:
        image = shown(searcher, rows[row]) | {"id": rows[row]["id"]}
        images.append(image | {"gain": gains[row], "did": _did(searcher, teachers, terms, rows, row)})
    return {
        "learner": learner,
        "map": round(float(precisions[usable].mean()), 6),
        "measured_on": held_out.what,
        "share_harmful": round(float((of_drawn.mean(axis=1) >= LEAST_GAIN).mean()), 3),
        "share_by_chance": share_by_chance(of_drawn, held_out.relevant[usable]),
        "images": images,
    }


def share_by_chance(changes: np.ndarray, relevant: np.ndarray) -> float:
    """Return the share of changes, (n_images, n_queries), that would be gains if signs were drawn, one for each class.

    Queries with the same relevant images, (n_queries, n), are of one class, and no independent evidence.
    """
    _, classes = np.unique(relevant, axis=0, return_inverse=True)
    signs = np.random.default_rng(0).choice([-1, 1], (_SIGNS, classes.max() + 1))[:, classes.ravel()]
    return round(float((signs @ changes.T / changes.shape[1] >= LEAST_GAIN).mean()), 3)


def margin_terms(teachers: Teachers, held_out: HeldOutSet, X: Any) -> Any:
    """Contribution of each teacher to margins of held-out queries, CSR (n_images, n_images); X are their vectors."""
    own = np.zeros_like(held_out.relevant)
    own[np.arange(len(own)), held_out.own] = True
    relevant, others = held_out.relevant & ~own, ~held_out.relevant & ~own
    usable = relevant.any(axis=1) & others.any(axis=1)

    def mean(images: np.ndarray) -> Any:
        shares = images[usable] / images[usable].sum(axis=1, keepdims=True)
        means = sparse.csr_array(shares) @ X
        return np.asarray(means.toarray() if sparse.issparse(means) else means, np.float32)

    return teachers.of_margins(X[held_out.own[usable]], mean(relevant), mean(others))


def _did(searcher: Searcher, teachers: Teachers, terms: Any, rows: list[dict[str, Any]], row: int) -> dict[str, Any]:
    """The entry of an image's row and column that lowered the margins most."""
    as_query, as_image = terms[[row]].toarray()[0], terms[:, [row]].toarray()[:, 0]
    other = int(np.minimum(as_query, as_image).argmin())
    place = (row, other) if as_query[other] <= as_image[other] else (other, row)
    sides = [shown(searcher, rows[side]) for side in place]
    shared = sorted(set(sides[0]["labels"]).intersection(sides[1]["labels"]))
    mark = rows[other].get("mark")
    teacher = {"query": sides[0], "result": sides[1], "label": shared[0] if shared else None, "mark": mark}
    together = bool(teachers.table[place] > 0)
    return {"image": sides[place.index(other)], "together": together, "why": because(teacher)}


def in_words(harmful: dict[str, Any]) -> list[str]:
    """Return harmful images as lines of a table."""
    lines = []
    for image in harmful["images"]:
        did = image["did"]
        was = f"was {'put with' if did['together'] else 'kept apart from'} {name_of(did['image'])} ({did['why']})"
        lines.append(f"{image['gain']:+8.4f}  id:{image['id']}  {name_of(image)}  {was}")
    return lines
