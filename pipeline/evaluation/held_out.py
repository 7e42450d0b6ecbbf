"""The held-out check: how well an updated learner ranks images that it did not learn from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import supervision, vectors

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.pipeline.config.models import Config
else:
    from visterm import numpy as np
    from visterm import sparse


MAX_HELD_OUT = 2000  # images that are ranked
MAX_QUERIES = 250  # of them are queries: half of an update's time at 10,000 visterms goes into these
TEST_IMAGES = "test images"
DECIDING = "test images, the third part that decides"  # so that the others say what a model is worth
FEWEST_DECIDING = 100  # where the third part has fewer, all test images decide
MIN_QUERIES = 20  # among images without marks; with fewer these are not measured on their own


class NoHeldOutSet(UserError):
    """A run without labelled images to measure a learner on."""


class HeldOutSet(NamedTuple):
    """Labelled images that a version is measured on: some of them are queries, and all are ranked for each."""

    X: sparse.csr_matrix
    own: np.ndarray  # (n_queries,) rows that are queries
    relevant: np.ndarray  # bool (n_queries, n), each to itself, too
    unmarked: np.ndarray  # bool (n,), images that no mark names
    what: str  # name of these images, for messages

    def queries(self, among: np.ndarray) -> np.ndarray:
        """Queries that are among some of the images, bool (n,), and have another relevant one among these."""
        return np.flatnonzero(among[self.own] & (self.relevant[:, among].sum(axis=1) > 1))

    def precisions(self, scores: np.ndarray, among: np.ndarray) -> np.ndarray:
        """Average precision per query among some of the images, given float32 (n_queries, n) scores."""
        from visterm.learners.validation import mean_average_precision

        columns = np.flatnonzero(among)
        precisions = []
        for row in self.queries(among):
            here, place = np.ix_([row], columns), np.searchsorted(columns, self.own[[row]])
            precisions.append(mean_average_precision(scores[here], self.relevant[here], place))
        return np.array(precisions)

    def scores(self, model: Any) -> np.ndarray:
        """Scores of all images for each query, float32 (n_queries, n)."""
        from visterm.learners.blend import effective

        return effective(model).similarity(self.X[self.own], self.X)

    def digest(self) -> str:
        """Fingerprint of the images' vectors."""
        digest = hashlib.sha256()
        for array in (self.X.indptr, self.X.indices, self.X.data):
            digest.update(array.tobytes())
        return digest.hexdigest()


class Fall(NamedTuple):
    """How far mean average precision is below that of the base."""

    mean: float
    error: float  # standard error of the mean
    measured_on: str


class FallFigures(TypedDict, total=False):
    """Mean average precisions of an update on held-out images; None where nothing could be measured."""

    map_base: float | None
    map_before: float | None
    map_after: float | None
    map_error: float | None  # standard error of the difference of base and after
    measured_on: str | None  # these images in words: those that no mark names, or all, where these are few


def ranking_index(index: Any, X: Any, config: Config) -> Any:
    """Return the index that a search of a gallery X would rank by: with its neighbours, where they count."""
    from visterm.retrieval import with_neighbours

    learner = getattr(index.learner, "learner", index.learner)  # of a `Blend`
    if config.search.neighbours == "none" or learner.by_category:
        return index
    return with_neighbours(index, X)


def largest_fall(held_out: HeldOutSet, scores: Mapping[str, np.ndarray]) -> tuple[Fall, FallFigures]:
    """Return the larger fall of precision from "base" to "after", and figures for the result of an update.

    Measured among all images and among those without marks. The figures are of the latter if there are enough queries,
    since marks flatter the others. `scores` has `HeldOutSet.scores` of "base", "before" and "after".
    """
    falls: list[Fall] = []
    figures: FallFigures = {}
    for among, which in ((np.ones_like(held_out.unmarked), ""), (held_out.unmarked, " that no mark names")):
        if which and len(held_out.queries(among)) < MIN_QUERIES:
            continue
        precisions = {when: held_out.precisions(made, among) for when, made in scores.items()}
        fall = precisions["base"] - precisions["after"]
        error = float(fall.std() / np.sqrt(len(fall)))
        falls.append(Fall(float(fall.mean()), error, f"{len(fall)} {held_out.what}{which}"))
        means = {when: round(float(values.mean()), 4) for when, values in precisions.items()}
        figures = {
            "map_base": means["base"],
            "map_before": means["before"],
            "map_after": means["after"],
            "map_error": round(error, 4),
            "measured_on": falls[-1].measured_on,
        }
    return max(falls), figures


def sparse_vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix:
    """Return vectors as `store.vectors.vectors` does, and dense ones as sparse, too."""
    return sparse.csr_matrix(vectors(run, collection, images))


def third_part(test: Sequence[Image]) -> list[Image]:
    """Test images that decide whether a model is taken: a third of them, by a hash of the path; none where few are."""
    third = [image for image in test if hashlib.sha256(os.fsencode(image.path)).digest()[0] % 3 == 0]
    return third if len(third) >= FEWEST_DECIDING else []


def cutoff_of(config: Config, learner: str) -> float | str | None:
    """Clicks that two images must share to be relevant to each other for a learner; None for labels."""
    return None if config.collection.clicks is None else getattr(config, learner).model_dump().get("click_cutoff")


def draw_held_out(
    run: Run, learner: str, collection: Collection, images: Sequence[Image], marked: set[str]
) -> HeldOutSet:
    """Choose labelled test images; if no two of these are relevant to each other, labelled images of any split.

    Of test images the third part where it is large enough: these decide whether a model is taken.

    NoHeldOutSet if no two labelled images are relevant to each other.
    """
    from visterm.learners.triplets import related_images

    config = run.configure(None, [])
    labelled = [image for image in images if image.labels]
    test = [image for image in labelled if image.split == "test"]
    third = third_part(test)
    of_any = "labelled images, most of them trained on"
    for chosen, what in ((third, DECIDING), (test, TEST_IMAGES), (labelled, of_any)):
        if not chosen:
            continue
        rng = np.random.default_rng(0)
        chosen = [chosen[row] for row in np.sort(rng.permutation(len(chosen))[:MAX_HELD_OUT])]
        queries = np.sort(rng.permutation(len(chosen))[:MAX_QUERIES])
        y, _ = supervision(chosen, clicks=config.collection.clicks is not None)
        relevant = related_images(y, queries, np.arange(len(chosen)), cutoff=cutoff_of(config, learner))
        if relevant.sum() > len(queries):  # each is related to itself
            unmarked = np.array([image.sha256 not in marked for image in chosen])
            return HeldOutSet(sparse_vectors(run, collection, chosen), queries, relevant, unmarked, what)
    raise NoHeldOutSet(f"run {run.name}: no two labelled images are relevant to each other, to measure {learner} on")
