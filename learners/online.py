"""Learners that learn step by step: what they bring, what they save, and the calls that start or continue a training.

The training itself is `loop.TrainingLoop`; held-out images are measured by `early_stopping`, and drawn by `validation`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from . import validation
from .base import SimilarityLearner
from .checks import check_integer
from .draws import draw_seed
from .early_stopping import is_saturated
from .given_triplets import GivenTriplets, steps_through
from .loop import StepCost, Training, TrainingLoop, cautious_share
from .options import Callback, FitOptions
from .rows import Rows
from .samplers import SAMPLERS
from .teachers import with_images
from .whitening import WHITENING_STATE

_log = logging.getLogger(__name__)

_FEW_HELD_OUT = 20  # below it the best of many passes is mostly chance


class OnlineLearner(SimilarityLearner):
    """Base of learners of triplets; `fit` runs passes of `pass_steps` triplets, long ones in equal chunks.

    A subclass has the parameters `n_steps`, `pass_steps`, `validation_fraction`, `patience`, `refit` and
    `random_state`, and brings `_start`, `_pass` and, with `_sides`, its similarity. With `validation_fraction` the mean
    average precision of the held-out images among each other is measured before the first pass, after each of 16
    passes, then after every second, fourth ... as the number of passes doubles, and after the last. The best state is
    kept, of a learner that starts at zero or at random one after a pass; with `refit` all images are then learned from
    scratch for the best number of steps.

    Parameters
    ----------
    validation_fraction : float, optional
        Share of each class held out for early stopping: the state with the best `validation_measure` is kept.
    patience : int or None
        With early stopping, stop after this many validations without a better one; None runs all steps.
    refit : bool
        After early stopping, train again on all images for the best number of steps.
    pass_steps : int
        Steps per pass: the interval of history and callback, and of validation at first. A step is a triplet, a draw
        of an image and one of its labels, or whatever `n_steps` counts.
    random_state : int, RandomState or None
        The same int gives the same model. For learners that draw nothing it decides which images are held out.

    Attributes
    ----------
    n_steps_ : int
        Triplets that the model has seen.
    held_out_ : int array or None
        Rows that validate, sorted; None without validation.
    history_ : list of dict
        One entry per pass: `phase` ("search" with validation, "train" without, "refit"), `step`, `validation` (the
        `validation_measure`, None without validation), and of this pass the mean `loss` and the fraction of `violating`
        triplets.
    best_step_, best_validation_ : int, float
        Step with the best `validation_measure` and its value; only with `validation_fraction`.
    validation_map_, cosine_map_ : float
        Mean average precision of the held-out images among each other, at that step and by cosine: the same measure
        for all learners, whatever their `validation_measure` is; only with `validation_fraction`. In the open world
        with the share `learned_weight_`.
    validation_p1_, cosine_p1_ : float
        Precision at 1 of the same.
    unseen_ : int array or None
        Rows of the classes that are held out, sorted; None in a closed world.
    worlds_ : dict or None
        `shares`, the `curve` of mAP by share (seen, unseen, both), that of the `learner` with its share, of `cosine`
        and of `chance`, and `n_images` of the three; which are `clearly_below` cosine, by the test that chooses; and
        the `gain` over cosine of the world that chose, with its standard error, both over classes; of precision at 1
        the same, as `p1_gain`. None where no share was chosen. See `validation.Worlds`.
    steps_done_, steps_total_ : int
        Of this `fit`, all phases together; the total falls when early stopping ends a phase.
    phase_ : str
        "search", "train", "refit" or "done".
    seed_ : int
        `random_state`, or the seed drawn when that is None.
    """

    validates = True
    resumes = True
    _noted_from_input = frozenset({"n_features_in_"})  # state that checking images and labels sets

    # Steps where `n_steps` is None: at least, and per image, to learn from each as often. None: it must be a number.
    _steps: tuple[int, int] | None = None

    # The largest weight of the learner where images may be of other classes, unless one is asked for;
    # and whether sparse vectors have the larger cautious one, though learning did not begin at them.
    most_open: float = 1.0
    cautious_on_sparse: bool = False

    # Parameters that the loop reads; a subclass stores those that it has.
    n_steps: int | None
    pass_steps: int
    validation_fraction: float | None
    patience: int | None
    refit: bool
    random_state: Any
    check_negatives: bool = True
    balance: str = "image"

    # What a pass draws: "triplets", "labels" (images and their labels), or "classes" (all images at once).
    draws: str = "triplets"

    n_steps_: int
    history_: list[dict[str, Any]]
    best_step_: int = 0
    best_validation_: float = -1.0
    validation_map_: float | None
    cosine_map_: float
    validation_p1_: float | None
    cosine_p1_: float | None
    steps_done_: int
    steps_total_: int
    target_step_: int
    phase_: str
    seed_: int
    n_images_: int
    held_out_: np.ndarray | None
    pass_sums_: dict[str, Any] | None = None  # of the pass under way
    world_: str = "seen"
    shares_: Sequence[float] = (1.0,)  # weights of the learner, among which one is chosen
    unseen_: np.ndarray | None = None
    worlds_: dict[str, Any] | None
    _as_new: tuple[np.ndarray, sp.csr_array] | None = None  # of `measure_as_new`

    # -- what a subclass brings ----------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self) -> None:
        """Set the state to what it is before the first step, for `n_features_in_` columns."""

    @abstractmethod
    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        """Learn from `n_steps` draws of `training.sampler`; the sum of their losses and how many violated.

        A chunk of a pass, or all of it. A function of state, seed_ and n_steps_ alone.
        """

    def _check_params(self, *, fitted: bool) -> None:
        """Refuse parameters with a ValueError; with `fitted` those also that do not go with the fitted state."""

    def _step_cost(self, rows: Rows) -> StepCost:
        """Largest cost of a step; by default a pass is not split."""
        return StepCost()

    def _settle(self, moment: str, training: Training | None) -> None:
        """Complete the state: at the end of a "pass", before a "validation" check, and at the "end" of learning.

        `training` is None at the end of `start`. Nothing by default.
        """

    def _validator(self, X: Any, y: Any, held_out: np.ndarray) -> Callable[[], float] | None:
        """Function that measures the present state on images held out; None: mean average precision stops early.

        X are the vectors that are learned from, whitened where the learner whitens.
        """
        return None

    # -- a training ----------------------------------------------------------------------------------------------------

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        X, y = self._check_supervised(X, y, reset=not options.resuming)
        if options.resuming:
            if self._check_checkpoint(X):
                self._check_params(fitted=True)
                self._learn(X, y, options)
            return self
        self._check_loop_params()
        self._check_params(fitted=False)
        for name in set(self._state) - self._noted_from_input:
            self.__dict__.pop(name, None)
        self._begin(X.shape[0])
        shares = validation.SHARES if options.learned_weight is None else (float(options.learned_weight),)
        if (options.world, shares) != ("seen", (1.0,)):  # the papers' protocol has nothing to save
            self.world_, self.shares_ = options.world, list(shares)
            self.learned_weight_ = 1.0 if options.learned_weight is None else shares[0]
        self._hold_out(X, y, options)
        n_steps = self._steps_of(X, y)
        self._begin_phase("train" if self.held_out_ is None else "search", n_steps)
        self.steps_done_, self.steps_total_ = 0, n_steps * (2 if self._refits() else 1)
        return self._learn(X, y, options)

    def _hold_out(self, X: Any, y: Any, options: FitOptions) -> None:
        rows, fraction, seed = options.validation_rows, self.validation_fraction, self.seed_
        try:
            self.held_out_, unseen = validation.hold_out(y, rows, fraction, seed, whole_classes=options.world != "seen")
        except validation.TooFewImages as error:
            _log.warning("%s: all images are learned from, and nothing is validated", error)
            if options.learned_weight is None:
                # One image of each class teaches which class, and nothing of what is similar.
                alone = not sp.issparse(y) and len(np.unique(y)) == len(y)
                self.learned_weight_ = 0.0 if alone else 1.0 if options.world == "seen" else cautious_share(self, X)
            return
        if unseen is not None:
            self.unseen_ = unseen
        if self.held_out_ is not None and len(self.held_out_) < _FEW_HELD_OUT:
            _log.warning("early stopping uses only %d images: its choice is uncertain", len(self.held_out_))

    def _begin(self, n_images: int) -> None:
        self.seed_, self.history_ = draw_seed(self.random_state), []
        self.held_out_, self.n_images_ = None, n_images

    def _zeros(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Zeros, float32, for a piece of state: in a refit the array of the search, which is not needed any more.

        Two at once would take twice the memory; and new pages take six times as long as zeros in old ones.
        """
        array = vars(self).get(name) if self.phase_ == "refit" else None
        if type(array) is np.ndarray and array.shape == shape and array.flags.writeable and array.flags.owndata:
            array.fill(0)
            return array
        self.__dict__.pop(name, None)
        return np.zeros(shape, np.float32)

    def _begin_phase(self, phase: str, n_steps: int) -> None:
        """Set the counters; the loop sets the state, by `_start`, when it knows the vectors."""
        for name in (*WHITENING_STATE, "_whitening_learned"):
            self.__dict__.pop(name, None)
        self.phase_, self.n_steps_, self.target_step_ = phase, 0, n_steps

    def _learn(self, X: Any, y: Any, options: FitOptions) -> Self:
        try:
            TrainingLoop(self, X, y, options).run()
        finally:
            self._as_new = None  # of this fit alone
        return self

    def partial_fit(
        self, X: Any, y: Any, *, callback: Callback | None = None, progress: Callback | None = None
    ) -> Self:
        """Learn from `n_steps` more triplets, of these images, starting at the fitted state.

        Never starts again, except on a learner that was never fitted. Nothing is held out: what the model has already
        seen cannot validate it. `fit` of n steps and `partial_fit` of n more on the same images is `fit` of 2n where
        n is a multiple of `pass_steps` and nothing is projected after learning, nor rankers averaged. See `fit` for
        `callback` and `progress`.
        """
        new = "phase_" not in vars(self)
        X, y = self._check_supervised(X, y, reset=new)
        self._check_loop_params()
        self._check_params(fitted=not new)
        n_steps = self._steps_of(X, y)
        if new:
            self._begin(X.shape[0])
            self._begin_phase("train", n_steps)
        else:
            if self.phase_ != "done":
                raise ValueError(f"{type(self).__name__} is a checkpoint of an unfinished fit; call resume first")
            self._make_writable()
            if self.has_teachers:
                self.teachers_ = with_images(self.teachers_, X.shape[0])
            self.phase_, self.target_step_ = "train", self.n_steps_ + n_steps
            self.n_images_ = X.shape[0]
        self.steps_done_, self.steps_total_ = 0, n_steps
        return self._learn(X, y, FitOptions(callback=callback, progress=progress))

    def start(self, n_features: int) -> Self:
        """Set the fitted state to what it is before the first step; `partial_fit` continues from there."""
        self._check_loop_params()
        self._check_params(fitted=False)
        self.n_features_in_ = n_features
        self._begin(0)
        self._begin_phase("train", 0)
        self._start()
        self._settle("end", None)
        self.phase_, self.steps_done_, self.steps_total_ = "done", 0, 0
        return self

    def steps_for(self, n_images: int) -> int:
        """`n_steps`, or where that is None the number of steps for so many images."""
        if self.n_steps is not None:
            return self.n_steps
        assert self._steps is not None
        least, per_image = self._steps
        return max(least, per_image * n_images)

    def _steps_of(self, X: Any, y: Any) -> int:
        if isinstance(y, GivenTriplets) and self.n_steps is None:
            return steps_through(y)
        return self.steps_for(X.shape[0])

    def end_after(self, n_steps: int) -> None:
        """Cap the total steps of the current fit or checkpoint, which may have more already, before early stopping.

        A refit is not shortened, as it repeats what was validated. For use by `callback` and `progress`, and before
        `resume`.
        """
        if self.phase_ in ("search", "train"):
            self.target_step_ = max(n_steps, self.n_steps_)
            self.steps_total_ = self.target_step_ * (2 if self._refits() else 1)

    def is_improving(self) -> bool:
        """Whether validation was still improving when the steps ended: by 0.5 % and more in their second half."""
        checks = [e for e in self.history_ if e["phase"] == "search" and e["validation"] is not None]
        if not checks or is_saturated(self.history_, self.best_step_, self.patience):
            return False
        last = checks[-1]["step"]
        first_half = max((e["validation"] for e in checks if 2 * e["step"] <= last), default=0.0)
        return self.best_step_ > 0.8 * last and self.best_validation_ > 1.005 * first_half

    def measure_as_new(self, rows: Any, vectors: Any) -> Self:
        """Measure images that the next `fit` or `resume` holds out by other vectors than those learned from.

        Use this when the vectors were fitted on the training images, as those of a codebook are, so that early stopping
        sees realistic held-out vectors.

        Parameters
        ----------
        rows : array of int, (n,)
            Rows of X, of any images; those that are not held out are learned from as they are in X.
        vectors : CSR of shape (n, d)
            Their vectors as those of new images.
        """
        self._as_new = np.asarray(rows), sp.csr_array(vectors)
        return self

    def _with_held_out_as_new(self, X: Any) -> Any:
        """X with the vectors of `measure_as_new` for images that are held out."""
        if self._as_new is None:
            return X
        rows, vectors = self._as_new
        used = np.isin(rows, np.asarray(self.held_out_))
        if not used.any():
            return X
        place = np.arange(X.shape[0])
        place[rows[used]] = X.shape[0] + np.arange(used.sum())
        return sp.csr_array(sp.vstack([X, vectors[used]], format="csr")[place])

    def _held_out_of_known(self) -> np.ndarray:
        """Rows that validate, of classes that are trained on: labels of others cannot be ranked."""
        rows = np.asarray(self.held_out_)
        return rows if self.unseen_ is None else np.setdiff1d(rows, self.unseen_)

    def _refits(self) -> bool:
        return bool(self.refit and self.held_out_ is not None)

    def _chooses(self) -> bool:
        """Whether the weight of the learner is to be chosen, or validation is that of the open world."""
        return self.world_ != "seen" or tuple(self.shares_) != (1.0,)

    # -- input ---------------------------------------------------------------------------------------------------------

    def _sampler(self, y: Any, subset: np.ndarray | None) -> Any:
        """Sampler that `_pass` draws from, over all images or those named."""
        return y if isinstance(y, GivenTriplets) else SAMPLERS[self.draws](self, y, subset)

    def _check_loop_params(self) -> None:
        if self.n_steps is not None or self._steps is None:
            check_integer("n_steps", self.n_steps, minimum=1)
        check_integer("pass_steps", self.pass_steps, minimum=1)
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=1)
        fraction = self.validation_fraction
        if fraction is not None and not (isinstance(fraction, Real) and 0 < float(fraction) < 1):
            raise ValueError(f"validation_fraction must lie between 0 and 1, or be None, got {fraction!r}")
