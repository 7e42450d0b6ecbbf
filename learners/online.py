"""The loop around learners that see one triplet at a time: passes, early stopping, refitting, checkpoints.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.2.1: "a small subset of the training set to trace the mean
average precision of the model at regular intervals". A learner brings its state and a kernel that does a pass, or where
a pass takes long a chunk of it: training can end, and a checkpoint be saved, after every chunk.
"""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any, Self

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite, check_consistent_length
from sklearn.utils.validation import validate_data

from . import validation
from .base import Callback, Distribute, ResumingLearner, ratio_of_spreads, scores_of
from .checks import check_integer, check_share, plain_supervision
from .draws import draw_seed
from .given_triplets import GivenTriplets, steps_through
from .rows import Rows, as_rows, blocks, is_dense, is_mapped, take_rows, writable
from .sums import product, unit_rows
from .triplets import TripletSampler, related_images

_log = logging.getLogger(__name__)


_QUERIES_AT_ONCE = 64  # of a validation, for a thread
_NO_STEPS = {"steps": 0, "loss": 0.0, "violating": 0.0}
_CHUNK_COST = 2e8  # nanoseconds of a slow core, as `_step_cost` estimates them
_FEW_HELD_OUT = 20  # below it the best of many passes is mostly chance


class OnlineLearner(ResumingLearner):
    """Base of learners of triplets; `fit` runs passes of `pass_steps` triplets, long ones in equal chunks.

    A subclass has the parameters `n_steps`, `pass_steps`, `validation_fraction`, `patience`, `refit`, `click_cutoff`,
    `check_negatives` and `random_state`, and the methods marked abstract below. With `validation_fraction` the mean
    average precision of the held-out images among each other is measured before the first pass, after each of 16
    passes, then after every second, fourth ... as the number of passes doubles, and after the last. The best state is
    kept, of a learner that starts at zero or at random one after a pass; with `refit` all images are then learned from
    scratch for the best number of steps.

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
        with the share `learned_`.
    validation_p1_, cosine_p1_ : float
        Precision at 1 of the same.
    unseen_ : int array or None
        Rows of the classes that are held out, sorted; None in a closed world.
    worlds_ : dict or None
        `shares`, the `curve` of mAP by share (seen, unseen, both), that of the `learner` with its share, of `cosine`
        and of `chance`, and `n_images` of the three; None where no share was chosen. See `validation.Worlds`.
    steps_done_, steps_total_ : int
        Of this `fit`, all phases together; the total falls when early stopping ends a phase.
    phase_ : str
        "search", "train", "refit" or "done".
    seed_ : int
        `random_state`, or the seed drawn when that is None.
    """

    _state = (
        *ResumingLearner._state,
        "n_steps_",
        "history_",
        "best_step_",
        "best_validation_",
        "validation_map_",
        "cosine_map_",
        "validation_p1_",
        "cosine_p1_",
        "steps_done_",
        "steps_total_",
        "target_step_",
        "phase_",
        "seed_",
        "n_images_",
        "held_out_",
        "pass_sums_",
        "world_",
        "shares_",
        "unseen_",
        "worlds_",
    )

    validates = True
    _noted_from_input = frozenset({"n_features_in_"})  # state that `_check_supervised` sets

    # Steps where `n_steps` is None: at least, and per image, to learn from each as often. None: it must be a number.
    _steps: tuple[int, int] | None = None

    # Arrays that are the model. Early stopping keeps the best of each under the name with "best_" in front; a subclass
    # has both names in `_state`.
    _learned: tuple[str, ...] = ()

    # The largest share of what was learned that counts where images may be of other classes, unless one is asked for.
    _most_open: float = 1.0

    # Parameters that the loop reads; a subclass stores them.
    n_steps: int | None
    pass_steps: int
    validation_fraction: float | None
    patience: int | None
    refit: bool
    click_cutoff: float | str | None
    check_negatives: bool
    random_state: Any

    n_steps_: int
    target_step_: int
    history_: list[dict[str, Any]]
    world_: str = "seen"
    shares_: Sequence[float] = (1.0,)  # of what was learned, among which one is chosen
    unseen_: np.ndarray | None = None
    _choice: tuple[validation.Choice, float] | None = None  # of the present state, and its scale
    pass_sums_: dict[str, Any]  # of the pass under way; not there between passes
    cosine_map_: float
    _quality: validation.Quality | None = None  # measured last
    _as_new: tuple[np.ndarray, sp.csr_array] | None = None  # of `measure_as_new`
    _progress: Callback | None = None  # during `fit`, `partial_fit` and `resume`
    _distribute: Distribute | None = None  # during `fit` and `resume`, of a learner that distributes

    # -- what a subclass brings ----------------------------------------------------------------------------------------

    @abstractmethod
    def _check_params(self) -> None:
        """Refuse parameters of the subclass with a ValueError."""

    @abstractmethod
    def _start(self) -> None:
        """Set the state to what it is before the first triplet, for `n_features_in_` columns."""

    @abstractmethod
    def _pass(self, rows: Rows, sampler: Any, n_steps: int) -> tuple[float, float]:
        """Learn from `n_steps` draws of what `_sampler` made; the sum of their losses and how many violated.

        A chunk of a pass, or all of it. A function of state, seed_ and n_steps_ alone.
        """

    # -- what a subclass may extend ------------------------------------------------------------------------------------

    def _step_cost(self, rows: Rows) -> float:
        """Nanoseconds that a step takes at most on a slow core, estimated from sizes and parameters alone.

        Never measured: the chunks of a pass, and with them the model, must not depend on the machine. 0: a pass is not
        split.
        """
        return 0.0

    def _end_pass(self) -> None:
        """Last step of a pass, before validation; nothing by default."""

    def _report_progress(self) -> None:
        """Call `progress`, which may end the training: called where a checkpoint can be resumed.

        Work of seconds that leaves the state as it was calls this between its parts.
        """
        if self._progress is not None:
            self._progress(self)

    def _continue(self) -> None:
        """Make a fitted or loaded state ready for more learning: writable, with the arrays that `_finish` removed."""
        for name in self._learned:
            for kept in (name, f"best_{name}"):
                if hasattr(self, kept):
                    setattr(self, kept, writable(getattr(self, kept)))

    def _grow(self, n_images: int) -> None:
        """Prepare the state for images that `partial_fit` adds; nothing by default."""

    def _keep_best(self) -> None:
        """Keep a copy of the present model as the best one."""
        for name in self._learned:
            if hasattr(self, f"best_{name}"):
                np.copyto(getattr(self, f"best_{name}"), getattr(self, name))
            else:
                setattr(self, f"best_{name}", getattr(self, name).copy())

    def _restore_best(self) -> None:
        """Return to the model kept last, and drop the copy."""
        for name in self._learned:
            setattr(self, name, getattr(self, f"best_{name}"))
            delattr(self, f"best_{name}")

    def _finish(self) -> None:
        """Last step of learning; nothing by default."""

    def _prepare(self, X: Any, y: Any, training: np.ndarray) -> Any:
        """Vectors as the learner has them in this phase, learned from the rows `training`; X itself by default."""
        return X

    def _forget_preparation(self) -> None:
        """Forget what `_prepare` learned, at the beginning of a phase; nothing by default."""

    def _measuring(self, measure: Callable[[], float]) -> Callable[[], float]:
        """`measure`, a function of vectors that `_prepare` gave; by default as it is."""
        return measure

    def _measures_on_vectors(self) -> bool:
        """Whether validation compares images as they are, as a search does, not what `_prepare` made of them."""
        return False

    def _starts_informed(self) -> bool:
        """Whether the state before the first triplet is a model: zero weights and random vectors are none."""
        return getattr(self, "init", None) != "zero"

    # -- the loop ------------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        validation_rows: Any = None,
        world: str = "seen",
        learned: float | None = 1.0,
        callback: Callback | None = None,
        progress: Callback | None = None,
        distribute: Distribute | None = None,
    ) -> Self:
        """Learn from scratch.

        Parameters
        ----------
        X : CSR or dense of shape (n, d)
        y : array of shape (n,), or CSR of shape (n, n_labels)
            See `TripletSampler`.
        validation_rows : array of int, optional
            Rows of X that validate, in place of a share `validation_fraction` drawn at random.
        world : {"seen", "open", "unseen"}, default="seen"
            What the similarity is for: classes that it is trained on, any classes, or others. But for "seen", a fifth
            of the classes is held out, too, where there are five or more; see `validation.Worlds`.
        learned : float, optional
            The share of what is learned that counts; it becomes `learned_`, for `Blend`. None: the best one on held-out
            images, for `world`; 1 without validation. Where no class has images enough to hold some out, a cautious
            one, or 1 for "seen".
        callback : callable, optional
            Called with the learner after every pass. The state is then complete: `save` writes a checkpoint, and
            `load_learner(folder).resume(X, y)` resumes from it and gives the same model, bit for bit.
        progress : callable, optional
            As `callback`, but called several times a second, also within a pass. An exception that it raises ends the
            training.
        distribute : callable, optional
            Called as ``distribute(function, tasks)``, gives ``function(*task)`` of each task, in order, wherever it has
            them done. Only OASIS has parts of a fit to give away; others learn here.

        Raises
        ------
        ValueError
            Parameters out of range; NaN or infinity; labels from which no triplet can be drawn.
        """
        X, y = self._check_supervised(X, y, reset=True)
        self._check_loop_params()
        self._check_params()
        for name in set(self._state) - self._noted_from_input:
            self.__dict__.pop(name, None)
        self.seed_ = draw_seed(self.random_state)
        self.history_ = []
        self.n_images_ = X.shape[0]
        self._set_world(world, learned)
        try:
            self.held_out_ = self._hold_out(y, validation_rows)
        except validation.NothingHeldOut as error:
            _log.warning("%s: all images are learned from, and nothing is validated", error)
            self.held_out_ = None
            if self._is_open() and learned is None:
                self.learned_ = 1.0 if world == "seen" else self._cautious_share(X)
        if self.held_out_ is not None and len(self.held_out_) < _FEW_HELD_OUT:
            _log.warning("early stopping uses only %d images: its choice is uncertain", len(self.held_out_))
        n_steps = self._steps_of(X, y)
        self._begin_phase("train" if self.held_out_ is None else "search", n_steps)
        self.steps_done_, self.steps_total_ = 0, n_steps * (2 if self._refits() else 1)
        return self._run(X, y, callback, progress, distribute)

    def partial_fit(
        self, X: Any, y: Any, *, callback: Callback | None = None, progress: Callback | None = None
    ) -> Self:
        """Learn from `n_steps` more triplets, of these images, starting at the fitted state.

        Never starts again, except on a learner that was never fitted. Nothing is held out: what the model has already
        seen cannot validate it. `fit` of n steps and `partial_fit` of n more on the same images is `fit` of 2n where
        n is a multiple of `pass_steps` and nothing is projected after learning. See `fit` for `callback` and
        `progress`.
        """
        new = not hasattr(self, "phase_")
        X, y = self._check_supervised(X, y, reset=new)
        self._check_loop_params()
        self._check_params()
        n_steps = self._steps_of(X, y)
        if new:
            self.seed_ = draw_seed(self.random_state)
            self.history_ = []
            self.held_out_ = None
            self.n_images_ = X.shape[0]
            self._begin_phase("train", n_steps)
        else:
            if self.phase_ != "done":
                raise ValueError(f"{type(self).__name__} is a checkpoint of an unfinished fit; call resume first")
            self._continue()
            self._grow(X.shape[0])
            self.phase_, self.target_step_ = "train", self.n_steps_ + n_steps
            self.n_images_ = X.shape[0]
        self.steps_done_, self.steps_total_ = 0, n_steps
        return self._run(X, y, callback, progress)

    def start(self, n_features: int) -> Self:
        """Set the fitted state to what it is before the first step; `partial_fit` continues from there."""
        self._check_loop_params()
        self._check_params()
        self.n_features_in_ = n_features
        self.seed_, self.history_ = draw_seed(self.random_state), []
        self.held_out_, self.n_images_ = None, 0
        self._begin_phase("train", 0)
        self.steps_done_ = 0
        self._end_phase()
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
        if not checks or self._is_saturated():
            return False
        last = checks[-1]["step"]
        first_half = max((e["validation"] for e in checks if 2 * e["step"] <= last), default=0.0)
        return self.best_step_ > 0.8 * last and self.best_validation_ > 1.005 * first_half

    def _run(
        self,
        X: Any,
        y: Any,
        callback: Callback | None,
        progress: Callback | None,
        distribute: Distribute | None = None,
    ) -> Self:
        self._progress = progress
        self._distribute = distribute if self.distributes else None
        try:
            while self.phase_ != "done":
                self._run_phase(X, y, callback)
        finally:
            del self._progress, self._distribute
            self._choice = self._quality = self._as_new = None  # of this fit alone
        return self

    def measure_as_new(self, rows: Any, vectors: Any) -> Self:
        """Measure images that the next `fit` or `resume` holds out by other vectors than those learned from.

        For vectors that know their training images, as those of a codebook do: early stopping is to see what new images
        look like.

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

    def _run_phase(self, X: Any, y: Any, callback: Callback | None) -> None:
        watch = measure_images = None
        if self.phase_ == "search":
            X = self._with_held_out_as_new(X)
        vectors, training = X, self._training_rows(X.shape[0])
        X = self._prepare(X, y, training)
        if self.phase_ == "search":
            held_out = np.asarray(self.held_out_)
            sampler, rows = self._sampler(y, training), as_rows(X, training)
            by_cosine = self._image_validator(vectors, y, held_out, sides=(unit_rows, unit_rows))
            on_vectors = self._is_open() or self._measures_on_vectors()
            if on_vectors:
                measure_images = self._chooser(vectors, y, held_out)
            else:
                measure_images = self._measuring(self._image_validator(X, y, held_out))
            if on_vectors and self.validation_measure == "mAP":
                watch = measure_images
            else:  # labels of classes that are not trained on cannot be ranked
                seen = np.setdiff1d(held_out, () if self.unseen_ is None else self.unseen_)
                watch = self._measuring(self._validator(X, y, seen))
            if not self.history_:
                self.cosine_map_ = by_cosine()
                self.cosine_p1_ = self._p1()
                self._record(dict(_NO_STEPS), watch, measure_images)
        else:
            sampler, rows = self._sampler(y, None), as_rows(X)
        phase, chunk = self.phase_, self._chunk_steps(rows)
        while self.phase_ == phase:
            if self.n_steps_ < self.target_step_ or hasattr(self, "pass_sums_"):
                self._learn_to_the_end_of_the_pass(rows, sampler, chunk)
                self._end_pass()
                self._record(self.pass_sums_, watch, measure_images)
                del self.pass_sums_
            if self.n_steps_ >= self.target_step_ or (watch is not None and self._is_saturated()):
                self._end_phase()
            if callback is not None:
                callback(self)

    def _chunk_steps(self, rows: Rows) -> int:
        """Steps of a chunk: of equal ones, as many as keep within `_CHUNK_COST`, all pairs of a query in one."""
        n_chunks = max(1, math.ceil(self.pass_steps * self._step_cost(rows) / _CHUNK_COST))
        pairs = self._pairs(rows)
        return pairs * math.ceil(self.pass_steps / n_chunks / pairs)

    def _pairs(self, rows: Rows) -> int:
        """Pairs drawn per query drawn."""
        return getattr(self, "pairs_per_query", 1)

    def _learn_to_the_end_of_the_pass(self, rows: Rows, sampler: Any, chunk: int) -> None:
        if not hasattr(self, "pass_sums_"):
            self.pass_sums_ = dict(_NO_STEPS)
        while (left := min(self.pass_steps - self.pass_sums_["steps"], self.target_step_ - self.n_steps_)) > 0:
            n_steps = min(chunk, left)
            loss, violating = self._pass(rows, sampler, n_steps)
            for name, more in (("steps", n_steps), ("loss", float(loss)), ("violating", float(violating))):
                self.pass_sums_[name] += more
            self.n_steps_ += n_steps
            self.steps_done_ += n_steps
            self._report_progress()

    def _begin_phase(self, phase: str, n_steps: int) -> None:
        self._forget_preparation()
        self.phase_, self.n_steps_, self.target_step_ = phase, 0, n_steps
        self._start()

    def _end_phase(self) -> None:
        if self.phase_ == "search" and self._refits():
            self._begin_phase("refit", self.best_step_)
            self.steps_total_ = self.steps_done_ + self.best_step_
            return
        if self.phase_ == "search":
            self._restore_best()
            self.n_steps_ = self.best_step_
        self._finish()
        self.phase_, self.steps_total_ = "done", self.steps_done_

    def _refits(self) -> bool:
        return bool(self.refit and self.held_out_ is not None)

    def _record(
        self, sums: dict[str, Any], watch: Callable[[], float] | None, measure_images: Callable[[], float] | None
    ) -> None:
        """Add a pass to the history, and keep the state if it is the best so far."""
        validation = None if watch is None or not self._validates_now() else watch()
        self.history_.append(
            {
                "phase": self.phase_,
                "step": self.n_steps_,
                "validation": validation,
                "loss": sums["loss"] / sums["steps"] if sums["steps"] else None,
                "violating": sums["violating"] / sums["steps"] if sums["steps"] else None,
            }
        )
        # In the open world the start is there all the same, as a share of 0.
        eligible = self.n_steps_ > 0 or (self._starts_informed() and not self._is_open())
        if validation is not None and eligible and validation > getattr(self, "best_validation_", -1.0):
            self.best_validation_, self.best_step_ = validation, self.n_steps_
            assert measure_images is not None
            self.validation_map_ = validation if self.validation_measure == "mAP" else measure_images()
            self.validation_p1_ = self._p1()
            if self._choice is not None:
                choice, self.scale_ = self._choice
                self.learned_, self.worlds_ = choice.learned, choice.figures
                self.cosine_map_, self.cosine_p1_ = choice.cosine
            if not self._refits():
                self._keep_best()

    def _p1(self) -> float | None:
        """Precision at 1 of the mAP measured last."""
        return None if self._quality is None else self._quality.p1

    def _validates_now(self) -> bool:
        """Whether to validate now: after each of 16 passes, then eight times while the steps double, and at the end.

        The curve flattens: between two looks lies a small part of what was learned, and most time goes into learning.
        """
        passes = -(-self.n_steps_ // self.pass_steps)
        return self.n_steps_ >= self.target_step_ or passes % (1 << max(0, passes.bit_length() - 4)) == 0

    def _is_saturated(self) -> bool:
        """No better validation figure in the last `patience` looks."""
        since = sum(entry["validation"] is not None and entry["step"] > self.best_step_ for entry in self.history_)
        return self.patience is not None and since >= self.patience

    # -- input ---------------------------------------------------------------------------------------------------------

    def _sampler(self, y: Any, subset: np.ndarray | None) -> Any:
        """What `_pass` draws from: triplets, unless a subclass learns from something else."""
        if isinstance(y, GivenTriplets):
            return y
        cutoff = self.click_cutoff
        check = self.check_negatives
        balance = getattr(self, "balance", "image")
        sampler = TripletSampler(y, cutoff=cutoff, check_negatives=check, subset=subset, balance=balance)
        if sampler.n_skipped_:
            why = "they have no other image of their class" if y.ndim == 1 else "no related or no unrelated image"
            _log.warning("%d of %d images are never a query: %s", sampler.n_skipped_, y.shape[0], why)
        return sampler

    def _validator(self, X: Any, y: Any, held_out: np.ndarray) -> Callable[[], float]:
        """Function that gives the `validation_measure` of the present state on the images held out."""
        return self._image_validator(X, y, held_out)

    def _image_validator(
        self, X: Any, y: Any, held_out: np.ndarray, sides: tuple[Callable, Callable] | None = None
    ) -> Callable[[], float]:
        """Function that measures the present state on the images held out, each against all others.

        `sides`, of queries and of the gallery, take the place of the learner's own.
        """
        own = validation.choose_queries(len(held_out), self.seed_)
        relevant = related_images(y, held_out[own], held_out, cutoff=getattr(self, "click_cutoff", None))
        query_side, gallery_side = sides or (self.transform_query, self._gallery_side)
        gallery = self._held_out_images(X, held_out)
        parts = [slice(start, start + _QUERIES_AT_ONCE) for start in range(0, len(own), _QUERIES_AT_ONCE)]
        queries = [gallery[own[part]] for part in parts]

        def mean_average_precision() -> float:
            others = gallery_side(gallery).T

            def measure(images: Any, part: slice) -> np.ndarray:
                scores = product(query_side(images), others)
                scores = scores.toarray() if sp.issparse(scores) else scores
                return validation.precisions(scores, relevant[part], own[part])

            with ThreadPoolExecutor(joblib.effective_n_jobs(getattr(self, "n_jobs", None))) as pool:
                self._quality = validation.Quality.of(np.concatenate(list(pool.map(measure, queries, parts))))
            return self._quality.map

        return mean_average_precision

    def _chooser(self, X: Any, y: Any, held_out: np.ndarray) -> Callable[[], float]:
        """Function that chooses the share of what was learned for the present state, and gives the mAP with it."""
        own = validation.choose_queries(len(held_out), self.seed_)
        relevant = related_images(y, held_out[own], held_out, cutoff=getattr(self, "click_cutoff", None))
        unseen = np.isin(held_out, () if self.unseen_ is None else self.unseen_)
        groups = validation.groups_of(y)[held_out[own]]
        gallery = self._held_out_images(X, held_out)
        cautious = self._cautious_share(X)
        queries = gallery[own]
        worlds = validation.Worlds(relevant, own, unseen, groups, scores_of(unit_rows(queries), unit_rows(gallery)))
        look, score = scores_of(self._look_side(queries), gallery), self._scorer(queries, gallery)
        others = np.arange(len(held_out)) != own[:, None]
        shares = list(self.shares_)
        if self.world_ != "seen" and len(shares) > 1:
            # Images of labels that are held out have others that are not: they would have a larger share than images
            # of which nothing was trained on.
            most = cautious if sp.issparse(y) else self._most_open
            shares = [share for share in shares if share <= most]

        def choose() -> float:
            learned = score()
            scale = 1.0 if self._starts_at_vectors() else ratio_of_spreads(look[others], learned[others])
            choice = worlds.choose(look, np.float32(scale) * learned, self.world_, shares, cautious)
            if self._is_open():  # else there was nothing to choose
                self._choice = choice, scale
            self._quality = choice.quality
            return choice.quality.map

        return choose

    def _held_out_images(self, X: Any, held_out: np.ndarray) -> Any:
        images = take_rows(X, held_out)
        return images.toarray() if sp.issparse(images) and is_dense(images) else images

    def _cautious_share(self, X: Any) -> float:
        """Share of what was learned that counts without evidence for another."""
        sparse = not is_dense(X) and self._starts_at_vectors()
        return min(self._most_open, validation.CAUTIOUS_SPARSE if sparse else validation.CAUTIOUS)

    def _is_open(self) -> bool:
        """Whether a share of what was learned is to be chosen, or validation is that of the open world."""
        return self.world_ != "seen" or tuple(self.shares_) != (1.0,)

    def _set_world(self, world: Any, learned: Any) -> None:
        validation.check_world(world)
        shares = list(validation.SHARES) if learned is None else [check_share(learned)]
        if (world, shares) != ("seen", [1.0]):  # the papers' protocol has nothing to save
            self.world_, self.shares_, self.learned_ = world, shares, 1.0 if learned is None else shares[0]

    def _training_rows(self, n: int) -> np.ndarray:
        """Rows that are learned from in this phase."""
        if self.phase_ != "search":
            return np.arange(n)
        held_out = np.asarray(self.held_out_)
        return np.setdiff1d(np.arange(n), held_out if self.unseen_ is None else np.union1d(held_out, self.unseen_))

    def _hold_out(self, y: Any, validation_rows: Any) -> np.ndarray | None:
        """Rows that validate, sorted; None without validation. In the open world `unseen_` becomes whole classes."""
        if validation_rows is None and self.validation_fraction is None:
            return None
        if self.world_ == "seen":
            return self._images_to_hold_out(y, validation_rows)
        unseen = validation.unseen_rows(y, self.seed_)
        images = self._images_beside(unseen, y, validation_rows)
        if not len(images):  # no image of a class that is trained on would validate
            unseen, images = unseen[:0], self._images_to_hold_out(y, validation_rows)
        self.unseen_ = unseen
        most = validation.MAX_IMAGES // 2
        if len(unseen) > most:
            unseen = np.random.default_rng([self.seed_, 5]).permutation(unseen)[:most]
        return np.union1d(images, unseen)

    def _images_beside(self, unseen: np.ndarray, y: Any, validation_rows: Any) -> np.ndarray:
        """Rows that validate beside those of whole classes; empty where none is left."""
        if validation_rows is not None:
            return np.setdiff1d(self._images_to_hold_out(y, validation_rows), unseen)
        rest = np.setdiff1d(np.arange(y.shape[0]), unseen)
        try:
            return rest[self._images_to_hold_out(y[rest], None)]
        except ValueError:  # only the classes that are held out have four images
            return rest[:0]

    def _images_to_hold_out(self, y: Any, validation_rows: Any) -> np.ndarray:
        if validation_rows is None:
            assert self.validation_fraction is not None
            return validation.split(y, self.validation_fraction, self.seed_)
        rows = np.sort(np.asarray(validation_rows))
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
            raise ValueError("validation_rows must be row numbers of X, at least one")
        if rows[0] < 0 or rows[-1] >= y.shape[0]:
            raise ValueError(f"validation_rows must lie between 0 and {y.shape[0] - 1}, got {rows[0]} to {rows[-1]}")
        return np.unique(rows)

    def _check_supervised(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Images, CSR, or dense if the learner reads them by rows; and labels, checked."""
        y = y if y is None or isinstance(y, GivenTriplets) else plain_supervision(y)
        if self.reads_rows and is_mapped(X):
            return self._check_mapped(X, reset=reset), self._check_y(X, y, reset=reset)
        if isinstance(y, GivenTriplets):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset)
        else:  # without y, it says so
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, multi_output=True, reset=reset)
        if not self.reads_rows:
            return sp.csr_array(X), y
        if sp.issparse(X):
            return (X.toarray() if is_dense(X) else sp.csr_array(X)), y
        return (X if 4 * np.count_nonzero(X) >= X.size else sp.csr_array(X)), y

    def _check_y(self, X: Any, y: Any, *, reset: bool) -> Any:
        if isinstance(y, GivenTriplets):
            return y
        y = validate_data(self, y=y, multi_output=True, reset=reset)
        check_consistent_length(X, y)
        return y

    def _check_mapped(self, X: Any, *, reset: bool) -> Any:
        """Images that lie in files, of which few are read at a time; CSR if most entries are zero."""
        validate_data(self, X[:1], reset=reset)
        n_entries = 0
        for _, block in blocks(X):
            assert_all_finite(block, input_name="X", estimator_name=type(self).__name__)
            n_entries += int(np.count_nonzero(block))
        if 4 * n_entries >= X.shape[0] * X.shape[1]:
            return X
        return sp.vstack([sp.csr_array(block) for _, block in blocks(X)], format="csr")

    def _check_loop_params(self) -> None:
        if self.n_steps is not None or self._steps is None:
            check_integer("n_steps", self.n_steps, minimum=1)
        check_integer("pass_steps", self.pass_steps, minimum=1)
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=1)
        fraction = self.validation_fraction
        if fraction is not None and not (isinstance(fraction, Real) and 0 < float(fraction) < 1):
            raise ValueError(f"validation_fraction must lie between 0 and 1, or be None, got {fraction!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
