"""The learners of a run opened for searching: loaded once, weighed against cosine, and indexed."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.errors import RunChanged, UserError
from visterm.pipeline.evaluation.calibration import Calibration, calibration_in_force
from visterm.pipeline.store.models import (
    TRAINED,
    check_learners,
    check_uncut,
    mapped_arrays,
    trained_record,
    warn_if_stale,
)
from visterm.pipeline.store.recommendation import best_annotator, default_learner
from visterm.pipeline.store.supervision import with_refused
from visterm.pipeline.store.versions import LearnerVersions

from .indexes import forget_index, make_index
from .neighbours import SILENT, graph_of
from .opened import SearchableRun
from .request import SearchRequest
from .state import learner_inputs

if TYPE_CHECKING:
    import numpy as np

    from visterm.learners import Blend, Similarity
    from visterm.retrieval import ExactIndex, NeighbourIndex, Neighbours

FEW = 5_000  # photos whose graph takes a second: it is made for any weight of a learner


class LoadedLearner(NamedTuple):
    """A learner, the names of its labels by number, its calibration or why there is none, and its mapped arrays."""

    learner: Similarity
    labels: list[str]
    calibration: Calibration | str
    mapped: list[Any]


class RunLearners(SearchableRun):
    """The learners of a run; see `Searcher`."""

    def has_index(self, name: str) -> bool:
        """Whether the index of a learner is made, so that a search need not wait for it."""
        return ("index", name) in self._once

    def default_learner(self, *, of_labels: bool = False) -> str:
        """Name of the learner used by default: the one that held-out images recommend.

        Cosine if nothing is trained. For labels still "wsabie", so that using it raises an error that says how to train
        it.
        """

        def choose() -> str:
            if of_labels:
                return best_annotator(self.run, self.annotators, self._console.say)
            # If none can be used, take one of other features: using it raises the error that says what to do.
            usable, world = self.learners[:-1], self.config.train.world
            known = usable or [name for name in TRAINED if name in self.run.learners()]
            return default_learner(self.run, known, self._console.say, world, cosine=bool(usable))

        return self._once(("default", "of labels" if of_labels else "of images"), choose)

    def learner(self, name: str) -> Similarity:
        """Load a learner of the run, as it is used, with its relevance feedback, once; its arrays are memory-mapped.

        Of most learners the estimator itself; of cosine and oasis their `Similarity`, which loads faster and does not
        learn.

        Raises
        ------
        UserError
            It is unknown, not trained, trained on other features, or changed after the run was opened.
        """
        return self._loaded(name).learner

    def _loaded(self, name: str) -> LoadedLearner:
        def load() -> LoadedLearner:
            check_learners([name])
            with self.unchanged(name):
                learner = LearnerVersions(self.run).load_in_force(name, learns=False)
                labels = trained_record(self.run, name).get("labels", [])
                loaded = LoadedLearner(learner, labels, calibration_in_force(self.run, name), mapped_arrays(learner))
            if name in TRAINED:
                images = with_refused(self.run, self.gallery.training_images, lambda: self.gallery.images)
                warn_if_stale(self.run, name, images, self._console)
            return loaded

        loaded = self._once(("learner", name), load)
        check_uncut(self.run, name, loaded.mapped)
        return loaded

    @contextlib.contextmanager
    def unchanged(self, name: str) -> Iterator[None]:
        """Read files of a learner; raise RunChanged if they have changed since the run was opened.

        The check comes after everything is read: another model, perhaps of other visterms, must not pass for this one.
        """
        try:
            yield
        finally:
            if name in TRAINED and learner_inputs(self.run, name, self.gallery.content) != self._trained.get(name):
                raise RunChanged(
                    f"{name} was retrained or updated after run {self.run.name} was opened; reopen the run"
                )

    def share(self, name: str, learned_weight: float | None = None) -> float:
        """Weight of a learner against cosine: `learned_weight`, or by default the one chosen in training."""
        return self.learner(name).learned_weight_ if learned_weight is None else learned_weight

    def blend(self, name: str, learned_weight: float | None = None) -> Similarity | Blend:
        """Combine a learner with cosine, weighted as `share` says; see `visterm.learners.Blend`.

        A weight of 1 gives the learner itself.

        Raises
        ------
        UserError
            As `learner`; also for a weight that does not lie between 0 and 1.
        """
        from visterm.learners.blend import effective, scale_of

        learner, share = self.learner(name), self.share(name, learned_weight)
        scale = learner.scale_
        if scale is None and share != 1:  # the weight was not chosen in training
            scale = self._once(("scale", name), lambda: scale_of(learner, self.X, self.labels_for(name)))
        try:
            return effective(learner, share, scale)
        except ValueError as error:
            raise UserError(str(error)) from None

    def index(self, name: str, learned_weight: float | None = None) -> ExactIndex:
        """Make the index of a learner, once; its ``search(Q, k, exclude=)`` gives rows of `images`.

        `learned_weight` is as for `share`: one index serves every weight. A learner whose gallery side is not the
        vectors themselves, and whose default weight is 1, has a second index for all other weights.

        Raises
        ------
        UserError
            As `blend`.
        """
        self.learner(name)
        if learned_weight is None:
            return self._once(("index", name), lambda: self._index(name, None))
        return self._index(name, learned_weight)

    def _index(self, name: str, learned_weight: float | None) -> ExactIndex:
        from visterm.learners import Blend

        learner, similarity = self.learner(name), self.blend(name, learned_weight)
        sides: Any = learner  # makes the gallery side
        key, kind = name, "sides"  # of the index
        if not learner.gallery_is_vectors and (learner.learned_weight_ != 1 or similarity is not learner):
            if similarity is learner:
                similarity = Blend(learner, 1, scale=1.0)  # the scores of the learner
            sides = similarity
            if learner.learned_weight_ == 1:
                key, kind = f"{name}_look", "sides with look"

        def make() -> ExactIndex:
            from visterm.retrieval import ExactIndex

            inputs = self._trained.get(name) or []
            index = make_index(
                key,
                sides,
                self.labels_for(name),
                gallery=self.gallery,
                config=self.config,
                trained_from=inputs[:2],  # without the feedback version: the index notices changed vectors
                console=self._console,
                is_current=self.is_as_on_disk,
            )
            if self.config.index.kind == "milvus" and type(index) is ExactIndex:
                self._exact_since[name] = time.monotonic()
            return index

        index = copy.copy(self._once((kind, name), make))
        index.learner = similarity
        return index

    def neighbours(self, name: str, learned_weight: float | None = None) -> Neighbours | None:
        """Graph of the neighbours of all images under a similarity, once; None where results are ranked without.

        Parameters
        ----------
        name : str
        learned_weight : float, optional
            As for `share`. The graph of another weight than the default is made for up to `FEW` images.
        """
        from visterm.retrieval import Neighbours
        from visterm.retrieval.neighbours import FEWEST

        n = len(self.images)
        if self.config.search.neighbours == "none" or n < FEWEST or self.learner(name).by_category:
            return None
        if learned_weight is None or learned_weight == self.share(name):
            inputs = self._trained.get(name) or []
            if n >= SILENT:  # a graph that takes minutes stays that of the learner before marks
                inputs = inputs[:2]

            def make() -> Neighbours:
                return graph_of(name, self.index(name), inputs, gallery=self.gallery, console=self._console)

            return self._once(("neighbours", name), make)
        if n > FEW:
            return None
        key = "neighbours", name, learned_weight
        size = 1 + n // 300  # of a graph, beside a vector: a slider asks for many
        return self.recent(key, lambda: Neighbours.of(self.index(name, learned_weight), self.X), size)

    def by_neighbours(self, name: str, learned_weight: float | None = None) -> NeighbourIndex | None:
        """`index` with its `neighbours`; None where results are ranked without."""
        from visterm.retrieval import NeighbourIndex

        graph = self.neighbours(name, learned_weight)
        return None if graph is None else NeighbourIndex(self.index(name, learned_weight), graph, self.X)

    def ranking_index(self, name: str, learned_weight: float | None = None) -> ExactIndex | NeighbourIndex:
        """Return what a search ranks by: `by_neighbours`, or else `index`."""
        return self.by_neighbours(name, learned_weight) or self.index(name, learned_weight)

    def forget_index(self, name: str) -> None:
        """Delete the index of a learner from the run and from Milvus; a new searcher rebuilds it."""
        self.learner(name)
        for index in (name, f"{name}_look"):
            forget_index(self.run, self.config, index)

    def labels_for(self, name: str) -> np.ndarray | None:
        """Labels of the gallery for a learner whose metrics depend on them (MuSL), if each image has just one."""
        warn = self._console.warn
        return self._once(("labels", name), lambda: self.gallery.labels_for(self.learner(name), name, warn))

    def calibration(
        self, name: str, learned_weight: float | None = None, *, is_plain: bool = True
    ) -> Calibration | str:
        """Return the calibration that turns scores into probabilities of a shared label, or why there is none.

        Parameters
        ----------
        name : str
        learned_weight : float, optional
            As for `share`.
        is_plain : bool
            Whether the query is one whole image.
        """
        if not is_plain:
            return "it is known for one whole image as a query"
        if learned_weight is not None and learned_weight != self.share(name):
            return "it is known for the weight of the learned similarity that training chose"
        from visterm.retrieval.neighbours import FORMAT

        calibration = self._loaded(name).calibration
        if not isinstance(calibration, str):
            by = FORMAT if self.neighbours(name) is not None else 0
            if calibration.neighbours != by:
                how = f"with{'' if calibration.neighbours else 'out'} neighbours"
                how += " of an older version" if by and calibration.neighbours else ""
                return f"it is known for results that are ranked {how}; train again"
        return calibration

    def _calibration_for(self, request: SearchRequest, name: str, *, is_plain: bool) -> Calibration | str:
        """The calibration of a search; UserError where there is none, and the request filters by probability."""
        calibration = self.calibration(name, request.learned_weight, is_plain=is_plain)
        if request.min_probability is not None and isinstance(calibration, str):
            raise UserError(f"min_probability: {name} has no probability: {calibration}")
        return calibration
