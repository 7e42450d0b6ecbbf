"""The loop around learners that see one triplet at a time: passes, early stopping, refitting, checkpoints.

A learner brings its state and a kernel that does a pass, or where a pass takes long a chunk of it: training can end,
and a checkpoint be saved, after every chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from . import validation
from .early_stopping import HeldOutImages, Measure, Measured, is_saturated, validates_now
from .options import Distribute, FitOptions
from .rows import Rows, as_rows, is_dense
from .triplets import NoTriplets
from .whitening import asks_for_whitening, whitened_images, whitening_of

Learner = Any  # an `OnlineLearner`, whose module imports this one

_CHUNK_COST = 2e8  # nanoseconds of a slow core, as `_step_cost` estimates them


class StepCost(NamedTuple):
    """Cost of a step, estimated from sizes and parameters alone.

    Never measured: the chunks of a pass, and with them the model, must not depend on the machine.
    """

    nanoseconds: float = 0.0  # at most, on a slow core; 0: a pass is not split
    together: int = 1  # steps that stay in one chunk, as the pairs of a query


def chunk_steps(pass_steps: int, cost: StepCost) -> int:
    """Steps of a chunk: of equal ones, as many as keep within `_CHUNK_COST`, all pairs of a query in one."""
    n_chunks = max(1, math.ceil(pass_steps * cost.nanoseconds / _CHUNK_COST))
    return cost.together * math.ceil(pass_steps / n_chunks / cost.together)


@dataclass(frozen=True)
class Training:
    """Training data of a phase."""

    rows: Rows
    sampler: Any  # see `OnlineLearner._sampler`
    y: Any = None  # labels of all images
    images: Any = None  # the numbers of the images in `rows`
    # Calls `progress`, which may end the training: to be called where a checkpoint can be resumed. Work of seconds that
    # leaves the state as it was calls this between its parts.
    report: Callable[[], None] = lambda: None
    distribute: Distribute | None = None


class HistoryRecorder:
    """Writes the history of a learner, and keeps the best state of a search.

    `by_labels` is the learner's own measure of early stopping, if it has one; `by_images` and `by_cosine` measure the
    learner's similarity and the vectors' on held-out images, None without validation.
    """

    def __init__(
        self,
        learner: Learner,
        training: Training,
        by_labels: Callable[[], float] | None = None,
        by_images: Measure | None = None,
        by_cosine: Measure | None = None,
    ) -> None:
        self._learner, self._training = learner, training
        self._by_labels, self._by_images, self._by_cosine = by_labels, by_images, by_cosine

    def begin(self) -> None:
        """Measure the vectors and the start, before the first pass of a search."""
        if self._by_cosine is not None and not self._learner.history_:
            self._learner.cosine_map_, self._learner.cosine_p1_ = self._by_cosine().quality
            self.record({"steps": 0, "loss": 0.0, "violating": 0.0})

    def record(self, sums: dict[str, Any]) -> None:
        """Add a pass to the history, and keep the state if it is the best so far."""
        learner = self._learner
        figure: float | None = None
        measured: Measured | None = None
        if self._by_images is not None and validates_now(learner.n_steps_, learner.target_step_, learner.pass_steps):
            learner._settle("validation", self._training)
            if self._by_labels is not None:
                figure = self._by_labels()
            else:
                measured = self._by_images()
                figure = measured.quality.map
        steps = sums["steps"]
        learner.history_.append(
            {
                "phase": learner.phase_,
                "step": learner.n_steps_,
                "validation": figure,
                "loss": sums["loss"] / steps if steps else None,
                "violating": sums["violating"] / steps if steps else None,
            }
        )
        # The untrained state needs no entry in the open world: a share of 0 stands for it.
        eligible = learner.n_steps_ > 0 or (learner.begins_at != "nothing" and not learner._chooses())
        if figure is not None and eligible and figure > learner.best_validation_:
            self._keep(figure, measured)

    def _keep(self, figure: float, measured: Measured | None) -> None:
        learner = self._learner
        learner.best_validation_, learner.best_step_ = figure, learner.n_steps_
        if measured is None:
            assert self._by_images is not None
            measured = self._by_images()
        learner.validation_map_, learner.validation_p1_ = measured.quality
        if measured.choice is not None and learner._chooses():
            learner.learned_weight_, learner.scale_ = measured.choice.learned_weight, measured.scale
            learner.worlds_ = measured.choice.figures
            learner.cosine_map_, learner.cosine_p1_ = measured.choice.cosine
        if not learner._refits():
            learner._keep_best()


class TrainingLoop:
    """Runs a learner's phases until it is done: a search with early stopping and its refit, or a plain training.

    All that a checkpoint needs is state of the learner; each call makes a new loop. X and y are checked images, CSR or
    dense, and labels.
    """

    def __init__(self, learner: Learner, X: Any, y: Any, options: FitOptions) -> None:
        self._learner, self._X, self._y, self._options = learner, X, y, options

    def run(self) -> None:
        """Learn until `phase_` is "done"."""
        while self._learner.phase_ != "done":
            self._run_phase()

    def _run_phase(self) -> None:
        learner, phase = self._learner, self._learner.phase_
        searches = phase == "search"
        vectors = learner._with_held_out_as_new(self._X) if searches else self._X
        images = training_images(learner, vectors.shape[0])
        if learner.n_steps_ == 0 and (phase == "refit" or not learner.history_):  # not where more is learned
            if learner.whitens and not learner.is_whitened() and asks_for_whitening(learner.whiten, vectors):
                learner.mean_, learner.whitening_ = whitening_of(vectors, self._y, images)
            learner._start()
        X = vectors if learner._whitening is None else whitened_images(vectors, learner._whitening)
        subset = images if searches else None
        try:
            sampler = learner._sampler(self._y, subset)
        except NoTriplets:
            if not (sp.issparse(self._y) and learner.is_whitened() and learner.begins_at == "vectors"):
                raise
            self._end_phase(None)  # with the start: the whitening
            return
        distribute = self._options.distribute if learner.distributes else None
        training = Training(as_rows(X, subset), sampler, self._y, images, self._report, distribute)
        recorder = self._recorder(training, vectors, X) if searches else HistoryRecorder(learner, training)
        recorder.begin()
        chunk = chunk_steps(learner.pass_steps, learner._step_cost(training.rows))
        while learner.phase_ == phase:
            if learner.n_steps_ < learner.target_step_ or learner.pass_sums_ is not None:
                recorder.record(self._learn_to_the_end_of_the_pass(training, chunk))
                del learner.pass_sums_
            saturated = searches and is_saturated(learner.history_, learner.best_step_, learner.patience)
            if saturated or learner.n_steps_ >= learner.target_step_:
                self._end_phase(training)
            if self._options.callback is not None:
                self._options.callback(learner)

    def _end_phase(self, training: Training | None) -> None:
        learner = self._learner
        if learner.phase_ == "search" and learner._refits():
            learner._begin_phase("refit", learner.best_step_)
            learner.steps_total_ = learner.steps_done_ + learner.best_step_
            return
        if learner.phase_ == "search":
            learner._restore_best()
            learner.n_steps_ = learner.best_step_
        learner._settle("end", training)
        learner.phase_, learner.steps_total_ = "done", learner.steps_done_

    def _learn_to_the_end_of_the_pass(self, training: Training, chunk: int) -> dict[str, float]:
        learner = self._learner
        if learner.pass_sums_ is None:
            learner.pass_sums_ = {"steps": 0, "loss": 0.0, "violating": 0.0}
        sums = learner.pass_sums_
        while (missing := min(learner.pass_steps - sums["steps"], learner.target_step_ - learner.n_steps_)) > 0:
            n_steps = min(chunk, missing)
            loss, violating = learner._pass(training, n_steps)
            for name, more in (("steps", n_steps), ("loss", float(loss)), ("violating", float(violating))):
                sums[name] += more
            learner.n_steps_ += n_steps
            learner.steps_done_ += n_steps
            self._report()
        learner._settle("pass", training)
        return sums

    def _report(self) -> None:
        if self._options.progress is not None:
            self._options.progress(self._learner)

    # -- validation ----------------------------------------------------------------------------------------------------

    def _recorder(self, training: Training, vectors: Any, X: Any) -> HistoryRecorder:
        """Recorder of a search: `vectors` are the images as they are, X those that are learned from."""
        learner, y = self._learner, self._y
        rows, seed = np.asarray(learner.held_out_), learner.seed_
        rankable = learner._held_out_of_known()
        by_labels = learner._validator(X, y, rankable) if len(rankable) else None
        images = HeldOutImages(learner, vectors, y, rows, seed)
        if learner._chooses() or (learner.is_whitened() and learner.gallery_is_vectors):
            by_images = images.by_share(learner.unseen_, learner.world_, *shares_to_try(learner, vectors, y))
        else:
            prepared = images if X is vectors else HeldOutImages(learner, X, y, rows, seed)
            by_images = self._of_prepared(prepared.by_learner())
        if by_labels is not None:
            by_labels = self._of_prepared(by_labels)
        return HistoryRecorder(learner, training, by_labels, by_images, images.by_cosine())

    def _of_prepared(self, measure: Callable[[], Any]) -> Callable[[], Any]:
        """`measure`, a function of images that are whitened already where the learner whitens them."""

        def of_prepared() -> Any:
            self._learner._is_prepared = True
            try:
                return measure()
            finally:
                del self._learner._is_prepared

        return of_prepared


def training_images(learner: Learner, n: int) -> np.ndarray:
    """Numbers of the images that are learned from in the present phase, of n."""
    if learner.phase_ != "search":
        return np.arange(n)
    hidden = np.asarray(learner.held_out_)
    return np.setdiff1d(np.arange(n), hidden if learner.unseen_ is None else np.union1d(hidden, learner.unseen_))


def cautious_share(learner: Learner, X: Any) -> float:
    """Weight of the learner without evidence for another."""
    sparse = not is_dense(X) and (learner.cautious_on_sparse or learner.begins_at == "vectors")
    return min(learner.most_open, validation.CAUTIOUS_SPARSE if sparse else validation.CAUTIOUS)


def shares_to_try(learner: Learner, X: Any, y: Any) -> tuple[list[float], float]:
    """Shares among which one is chosen, and the cautious one."""
    shares, cautious = list(learner.shares_), cautious_share(learner, X)
    if learner.world_ != "seen" and len(shares) > 1:
        # Images of labels that are held out have others that are not: they would have a larger share than images of
        # which nothing was trained on.
        most = cautious if sp.issparse(y) else learner.most_open
        shares = [share for share in shares if share <= most]
    return shares, cautious
