"""WSABIE: images and labels embedded in one space, learned by the WARP loss.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010.

    f_i(x) = W_i' V x,    |V_j| <= C,    |W_i| <= C                                                  (section 2)

V is (D, d), a column for each visterm; W_i is the vector of label i. For an image x and one of its labels y, labels i
that are not of the image are drawn with replacement until one violates the margin, 1 + f_i(x) > f_y(x). If the N-th
draw is the first that does, one gradient step lowers                                               (section 3)

    L(floor((Y - 1) / N)) |1 - f_y(x) + f_i(x)|_+,    L(k) = 1 + 1/2 + ... + 1/k

and columns of V and vectors W_i that have become longer than C are scaled back to C. With a learning rate g and the
values before the step on all right-hand sides,

    W_y <- W_y + g L V x,    W_i <- W_i - g L V x,    V_j <- V_j + g L x_j (W_y - W_i)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from numba import njit

from .annotation import OnlineAnnotator, combine_rows
from .checks import check_choice, check_integer, check_positive
from .draws import draw_below, stream
from .loop import StepCost, Training
from .maps import Affine
from .rows import FASTMATH, Float, Int, Rows, mean_entries
from .samplers import Labels
from .sides import Side, Sides, cosine_of, space_of
from .sums import product
from .warp_loss import (
    check_decay_steps,
    draw_other,
    draw_pairs,
    draws_one_by_one,
    draws_until,
    harmonic_numbers,
    learning_rates,
    steps_to_half,
    violating_labels,
    warp_weights,
)
from .whitening import WhiteningMixin, check_whiten

_INIT = 2**32 - 1  # sets the random numbers of the first vectors apart from those of the steps
_N_SCORES = 1 << 20  # held at a time while weights are chosen
_WEIGHTS = (1.0, 0.5, 0.0, 2.0)  # of the members of an ensemble, tried on the held-out images
_MOST_MEMBERS = 6  # all combinations of weights are tried: 4,095 for six


# Kernels read the vectors of all visterms, or labels, as one flat array: row j begins at j * width. Views of rows would
# count references and take longer than the arithmetic. Places are unsigned, since signed ones are checked for counting
# from the end; all of them, since Numba makes a double of a signed plus an unsigned number.
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _flat(vectors: np.ndarray, first: Int) -> tuple[np.ndarray, Int]:
    """All numbers in one dimension from component `first` of the first vector on, and how far vectors are apart."""
    return vectors.reshape(vectors.size)[first:], np.uint64(vectors.shape[1])


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _score(W: np.ndarray, row: Int, z: np.ndarray, size: Int) -> Float:
    """f_i(x) = W_i' z."""
    dot = np.float32(0.0)
    for k in range(size):
        dot += W[row + k] * z[k]
    return dot


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _shorten(vectors: np.ndarray, row: Int, size: Int, squared: Float, max_norm: Float) -> None:
    """Scale a vector back if it has become longer than `max_norm`; `squared` is its squared length."""
    if squared > max_norm * max_norm:
        scale = max_norm / np.sqrt(squared)
        for k in range(size):
            vectors[row + k] *= scale


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _move(vectors: np.ndarray, row: Int, step: Float, direction: np.ndarray, size: Int, max_norm: Float) -> None:
    """Add to a vector, and scale it back where it has become longer than `max_norm`."""
    squared = np.float32(0.0)
    for k in range(size):
        vectors[row + k] += step * direction[k]
    for k in range(size):  # nothing is stored here: blocks.py says why
        squared += vectors[row + k] * vectors[row + k]
    _shorten(vectors, row, size, squared, max_norm)


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _move_visterms(
    indices: np.ndarray,
    data: np.ndarray,
    start: Int,
    end: Int,
    V: np.ndarray,
    width: Int,
    amount: Float,
    g: np.ndarray,
    size: Int,
    max_norm: Float,
) -> None:
    """Add amount x_j g to each V_j of an image, and scale back the longer ones; two at a time share the reads of g."""
    i = start
    while i + _ONE < end:
        a, b = np.uint64(indices[i]) * width, np.uint64(indices[i + _ONE]) * width
        a_step, b_step = amount * data[i], amount * data[i + _ONE]
        a_squared, b_squared = np.float32(0.0), np.float32(0.0)
        for k in range(size):
            V[a + k] += a_step * g[k]
            V[b + k] += b_step * g[k]
        for k in range(size):
            a_squared += V[a + k] * V[a + k]
            b_squared += V[b + k] * V[b + k]
        _shorten(V, a, size, a_squared, max_norm)
        _shorten(V, b, size, b_squared, max_norm)
        i += _TWO
    if i < end:
        _move(V, np.uint64(indices[i]) * width, amount * data[i], g, size, max_norm)


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _score_all(W: np.ndarray, width: Int, z: np.ndarray, size: Int, scores: np.ndarray) -> None:
    """Write f_i(x) of all labels; four at a time share the reads of z."""
    n_labels = len(scores)
    for label in range(0, n_labels - 3, 4):
        a = np.uint64(label) * width
        b, c, d = a + width, a + _TWO * width, a + _THREE * width
        f_a, f_b, f_c, f_d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for k in range(size):
            f_a += W[a + k] * z[k]
            f_b += W[b + k] * z[k]
            f_c += W[c + k] * z[k]
            f_d += W[d + k] * z[k]
        scores[label], scores[label + 1], scores[label + 2], scores[label + 3] = f_a, f_b, f_c, f_d
    for label in range(n_labels - n_labels % 4, n_labels):
        scores[label] = _score(W, np.uint64(label) * width, z, size)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def warp_pass(
    rows: Rows,
    labels: tuple[np.ndarray, ...],
    pairs: np.ndarray,
    state: np.ndarray,
    weights: np.ndarray,
    rates: np.ndarray,
    max_norm: Float,
    model: tuple[Int, Int, np.ndarray, np.ndarray],
) -> tuple[float, int]:
    """Learn from the pairs in turn; sum of the losses and number of violating pairs.

    `weights[N]` is L where the N-th draw is the first to violate, and its length bounds the draws. `model`: `first`,
    `last`, V and W. Row j of V is the vector of visterm j, row i of W that of label i; of both the components `first`
    to `last` are a model of their own.

    Where the first few draws do not violate, all labels are scored; then N and the label that violates are drawn from
    the distribution that they have if drawing goes on.
    """
    indptr, indices, data, _ = rows
    label_start, label_numbers, _ = labels
    first, last, V, W = model
    n_labels, size = len(W), np.uint64(last - first)
    (V, width), (W, _) = _flat(V, first), _flat(W, first)
    z, g = np.empty(last - first, np.float32), np.empty(last - first, np.float32)
    scores, all_wrong = np.empty(n_labels, np.float32), np.empty(n_labels, np.int64)
    most = len(weights) - 1
    few = draws_one_by_one(n_labels, most)
    losses, violating = 0.0, 0
    for step in range(len(pairs)):
        image, label = pairs[step]
        start, end = np.uint64(indptr[image]), np.uint64(indptr[image + 1])
        own = label_numbers[label_start[image] : label_start[image + 1]]
        right = np.uint64(label) * width
        combine_rows(indices, data, start, end, V, width, size, z)
        threshold = _score(W, right, z, size) - np.float32(1.0)
        n, wrong, score = 0, right, threshold
        while score <= threshold and n < few:
            n += 1
            wrong = np.uint64(draw_other(own, n_labels, state)) * width
            score = _score(W, wrong, z, size)  # type: ignore[assignment]  # mypy: of other precision; Numba infers one type
        if score <= threshold and few < most:
            _score_all(W, width, z, size, scores)
            n_wrong = violating_labels(own, scores, threshold, all_wrong)
            if n_wrong:
                n += draws_until(n_wrong, n_labels - len(own), state)
                label = all_wrong[draw_below(n_wrong, state)]
                wrong, score = np.uint64(label) * width, scores[label]
        if score <= threshold or n > most:
            continue
        losses += float(weights[n] * (score - threshold))
        violating += 1
        # All right-hand sides hold the values before the step: g is taken before the label vectors move.
        amount = rates[step] * weights[n]
        for k in range(size):
            g[k] = W[right + k] - W[wrong + k]
        _move(W, right, amount, z, size, max_norm)
        _move(W, wrong, -amount, z, size, max_norm)
        _move_visterms(indices, data, start, end, V, width, amount, g, size, max_norm)
    return losses, violating


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def owpc_pass(
    rows: Rows,
    labels: tuple[np.ndarray, ...],
    pairs: np.ndarray,
    harmonic: np.ndarray,
    rates: np.ndarray,
    max_norm: Float,
    model: tuple[Int, Int, np.ndarray, np.ndarray],
) -> tuple[float, int]:
    """Learn from the pairs in turn, each with all labels that violate it (OWPC-SGD, section 6.4).

    With k violating labels each of them has the weight L(k) / k of equation 6; `harmonic[k]` is L(k).
    """
    indptr, indices, data, _ = rows
    label_start, label_numbers, _ = labels
    first, last, V, W = model
    n_labels, size = len(W), np.uint64(last - first)
    (V, width), (W, _) = _flat(V, first), _flat(W, first)
    z, g = np.empty(last - first, np.float32), np.empty(last - first, np.float32)
    scores, wrong = np.empty(n_labels, np.float32), np.empty(n_labels, np.int64)
    losses, violating = 0.0, 0
    for step in range(len(pairs)):
        image, label = pairs[step]
        start, end = np.uint64(indptr[image]), np.uint64(indptr[image + 1])
        right = np.uint64(label) * width
        combine_rows(indices, data, start, end, V, width, size, z)
        threshold = _score(W, right, z, size) - np.float32(1.0)
        own = label_numbers[label_start[image] : label_start[image + 1]]
        _score_all(W, width, z, size, scores)
        rank = violating_labels(own, scores, threshold, wrong)
        if rank == 0:
            continue
        total = np.float32(0.0)
        g[:] = 0.0
        for r in range(rank):
            row = np.uint64(wrong[r]) * width
            total += scores[wrong[r]] - threshold
            for k in range(size):
                g[k] += W[right + k] - W[row + k]
        weight = harmonic[rank] / np.float32(rank)
        losses += float(weight * total)
        violating += 1
        amount = rates[step] * weight
        _move(W, right, amount * np.float32(rank), z, size, max_norm)
        for r in range(rank):
            _move(W, np.uint64(wrong[r]) * width, -amount, z, size, max_norm)
        _move_visterms(indices, data, start, end, V, width, amount, g, size, max_norm)
    return losses, violating


@dataclass(kw_only=True, repr=False, eq=False)
class WSABIE(WhiteningMixin, OnlineAnnotator):
    """Web Scale Annotation by Image Embedding: images and labels in one space.

    Its four uses: `annotate` ranks labels for an image, `label_scores(gallery)[:, i]` ranks images for a label,
    `similar_labels` finds labels near a label, `similarity` images near an image, by the inner product of their
    embeddings.

    Parameters
    ----------
    n_components : int or list of int, default=100
        Size of the space. A list makes an ensemble (section 6.4): models of these sizes, each trained on a random
        stream of its own, whose scores are added up. With validation their weights are chosen on the held-out images,
        otherwise they are equal.
    max_norm : float, default=1.0
        C: how long the vector of a visterm or a label may become. Smaller is smoother; images of few visterms need
        longer vectors. On Caltech-101 1.0 was best at d = 1,000 and 0.6 at d = 10,000.
    learning_rate : float, default=0.02
        Length of the first gradient step.
    decay_steps : int, "auto" or None, default="auto"
        The step at which the learning rate has fallen to a half: at step t it is
        `learning_rate / (1 + t / decay_steps)`. "auto" is six steps per pair of an image and one of its labels, 10,000
        at least: steps that shrink sooner end before rare labels are learned. None keeps the rate fixed, as in the
        paper.
    loss : {"warp", "auc", "owpc"}, default="warp"
        "warp" estimates the rank of the right label by drawing until a label violates; "auc" draws one label and gives
        it the weight 1 if it violates, which optimises the mean rank; "owpc" computes the scores of all labels, the
        exact rank, and learns from all violating labels at once.
    whiten : bool or "auto", default="auto"
        Learn in vectors whitened by the scatter within classes; see `OASIS`.
    n_steps : int or None, default=None
        Draws of an image and one of its labels. None: 500,000, or 200 per image if that is more.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.
    n_jobs : int, optional
        Threads among which the members of an ensemble are shared out. The model does not depend on it.

    Attributes
    ----------
    visterm_vectors_ : float32 array of shape (d, n_components)
        Row j is the column V_j of the paper; of an ensemble, the members side by side.
    label_vectors_ : float32 array of shape (n_labels, n_components)
        Row i is W_i.
    V_ : float32 array of shape (n_components, d)
        `visterm_vectors_` as the paper writes it.
    member_sizes_ : list of int
        `n_components` of the fit.
    member_weights_ : float64 array of shape (n_members,)
    classes_ : array of shape (n_labels,)

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range or data that cannot be learned from; from `partial_fit`, for labels
        that were not in the first fit.

    Notes
    -----
    A step costs nnz(x) n_components operations to embed the image, n_components a label drawn, and where one violates
    as much again as the embedding, whatever d is; and n_labels n_components for all scores, with "owpc" and where a
    sixteenth of all labels is drawn in vain. How many draws the paper's loop would then still need, and which label it
    would end at, is drawn from the distribution that they have: late in a training most loops draw all labels in vain.

    Peak memory, in units of the 4 (d + n_labels) n_components bytes of the vectors: 1; 2 with `validation_fraction`
    unless `refit`. The embeddings of up to 5,000 held-out images and their scores come on top.

    Departures from the paper:

    - `whiten` is ours.
    - The learning rate falls with the steps, unless `decay_steps` is None (the paper names a schedule as possible).
    - An image may have several labels: one of them is drawn for each step, and none of them as a violator. The rank is
      estimated by floor((Y - 1) / N) all the same.
    - "owpc" learns from all violating labels at once, as the paper notes is possible.
    - Early stopping measures the ensemble with equal weights. The weights are those of 0, 1/2, 1 and 2 with the best
      precision at 1, of equally good ones the most even; the paper searches a grid too and does not give it.
    - One thread per member; the vectors are float32.

    References
    ----------
    J. Weston, S. Bengio, N. Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings.
    European Conference on Machine Learning, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import WSABIE
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = WSABIE(n_components=10, n_steps=5000, random_state=0).fit(X, ["sea", "sea", "sky", "sky"])
    >>> labels, scores = learner.annotate(X, 1)
    >>> learner.classes_[labels[:, 0]].tolist()
    ['sea', 'sea', 'sky', 'sky']
    """

    labels_have_vectors = True
    linear = True
    keeps_columns = False
    _learned = ("visterm_vectors_", "label_vectors_")
    _steps = (500_000, 200)
    visterm_vectors_: np.ndarray = field(init=False)  # (d, n_components)
    label_vectors_: np.ndarray = field(init=False)  # (n_labels, n_components)
    member_sizes_: list[int] = field(init=False)
    member_weights_: np.ndarray = field(init=False)  # (n_members,)

    n_components: int | Sequence[int] = 100
    max_norm: float = 1.0
    learning_rate: float = 0.02
    decay_steps: int | str | None = "auto"
    loss: str = "warp"
    whiten: bool | str = "auto"
    n_steps: int | None = None
    validation_fraction: float | None = None
    patience: int | None = 10
    refit: bool = True
    pass_steps: int = 10_000
    random_state: Any = None
    n_jobs: int | None = None

    # -- images and labels in the space --------------------------------------------------------------------------------

    @property
    def V_(self) -> np.ndarray:
        """V of the paper: a view of `visterm_vectors_`."""
        return np.asarray(self.visterm_vectors_).T

    def _sides(self) -> Sides:
        """Embeddings V x, both sides alike: float32 of shape (n, n_components).

        Those of an ensemble times the roots of the weights.
        """
        whitening, V = self._whitening, self.visterm_vectors_
        space = space_of(whitening)
        embedding = Side(
            lambda X: self._weigh(product(space.of(X), V)),
            lambda: (*space.steps(), Affine(self._weigh(np.array(V)))),
            lambda parts, whole: self._weigh(product(space.parts(parts, whole), V)),
        )
        return Sides(
            gallery=embedding, cosine=cosine_of(whitening), labels=lambda: self._weigh(np.array(self.label_vectors_))
        )

    def label_scores(self, X: Any) -> np.ndarray:
        """Score f_i(x) of every label for every image: float32 of shape (n, n_labels)."""
        return product(self._gallery_side(X), self.label_vectors().T)

    def _weigh(self, vectors: np.ndarray) -> np.ndarray:
        """Scale the members in place, so that the inner product of two vectors is the weighted sum of theirs."""
        for weight, (first, last) in zip(self.member_weights_, self._members(), strict=True):
            if weight != 1:
                vectors[:, first:last] *= np.float32(np.sqrt(weight))
        return vectors

    def _members(self) -> list[tuple[int, int]]:
        """First and last component, exclusive, of each member."""
        ends = np.cumsum(self.member_sizes_).tolist()
        return list(zip([0, *ends], ends, strict=False))

    def _sizes(self) -> list[int]:
        """`n_components` as a list."""
        return np.atleast_1d(self.n_components).tolist()

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self, *, fitted: bool) -> None:
        if isinstance(self.n_components, Integral):
            check_integer("n_components", self.n_components, minimum=1)
        elif isinstance(self.n_components, str) or not isinstance(self.n_components, Sequence) or not self.n_components:
            raise ValueError(f"n_components must be an integer or a list of integers, got {self.n_components!r}")
        else:
            for size in self.n_components:
                check_integer("each of n_components", size, minimum=1)
            if len(self.n_components) > _MOST_MEMBERS:
                raise ValueError(
                    f"n_components names {len(self.n_components)} models; at most {_MOST_MEMBERS} can be weighted"
                )
        for name in ("max_norm", "learning_rate"):
            check_positive(name, getattr(self, name))
        check_decay_steps(self.decay_steps)
        check_whiten(self.whiten)
        check_choice("loss", self.loss, ("warp", "auc", "owpc"))
        if fitted and self._sizes() != self.member_sizes_:
            raise ValueError(
                f"fitted with n_components={self.member_sizes_}, not {self._sizes()}; use fit to learn from scratch"
            )

    def _start(self) -> None:
        for name in ("visterm_vectors_", "label_vectors_"):  # of the search before a refit: two at once are not needed
            self.__dict__.pop(name, None)
        self.member_sizes_ = self._sizes()
        members = self._members()
        shape = (self.n_features_in_ + len(self.classes_), members[-1][1])
        vectors = np.empty(shape, np.float32)
        deviation, max_norm = np.float32(1 / np.sqrt(self.n_features_in_)), np.float32(self.max_norm)
        for member, (first, last) in enumerate(members):
            rng = np.random.default_rng([self.seed_, _INIT, member])
            for start in range(0, len(vectors), 1024):
                block = vectors[start : start + 1024, first:last]
                block[:] = deviation * rng.standard_normal(block.shape, dtype=np.float32)
                block *= np.minimum(1, max_norm / np.linalg.norm(block, axis=1, keepdims=True))
        self.visterm_vectors_, self.label_vectors_ = np.split(vectors, [self.n_features_in_])
        if "member_weights_" not in vars(self):
            self.member_weights_ = np.ones(len(members))

    def _step_cost(self, rows: Rows) -> StepCost:
        # To embed the image and to move its vectors; at worst all labels are scored.
        return StepCost(0.15 * sum(self.member_sizes_) * (2 * mean_entries(rows) + len(self.classes_)))

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        rows, sampler, half = training.rows, training.sampler, steps_to_half(self.decay_steps, training.y)
        rates = learning_rates(self.learning_rate, half, self.n_steps_, n_steps)
        figures = joblib.Parallel(n_jobs=self.n_jobs, require="sharedmem")(
            joblib.delayed(self._member_pass)(rows, sampler, rates, member, first, last)
            for member, (first, last) in enumerate(self._members())
        )
        losses, violating = np.mean(figures, axis=0)
        return losses, violating

    def _member_pass(self, rows: Rows, labels: Labels, rates: np.ndarray, member: int, first: int, last: int) -> Any:
        state = stream(self.seed_, member, self.n_steps_)
        pairs = np.empty((len(rates), 2), np.int32)
        draw_pairs(*labels, state, pairs)
        n_others = len(self.classes_) - 1
        max_norm, model = np.float32(self.max_norm), (first, last, self.visterm_vectors_, self.label_vectors_)
        if self.loss == "owpc":
            return owpc_pass(rows, labels, pairs, harmonic_numbers(n_others), rates, max_norm, model)
        weights = np.ones(2, np.float32) if self.loss == "auc" else warp_weights(n_others)
        return warp_pass(rows, labels, pairs, state, weights, rates, max_norm, model)

    # -- the weights of an ensemble ------------------------------------------------------------------------------------

    def _validator(self, X: sp.csr_array, y: Any, held_out: np.ndarray) -> Callable[[], float]:
        precision_at_1 = super()._validator(X, y, held_out)
        if len(self._members()) == 1:
            return precision_at_1
        images, labels = X[held_out], self._labels(y)[held_out]

        def watch() -> float:
            chosen, self.member_weights_ = self.member_weights_, np.ones(len(self._members()))
            precision = precision_at_1()
            # The weights go with the best state: those of a better one replace them.
            better = precision > self.best_validation_
            self.member_weights_ = self._choose_weights(images, labels) if better else chosen
            return precision

        return watch

    def _choose_weights(self, images: sp.csr_array, labels: sp.csr_array) -> np.ndarray:
        """Weights with the most images whose best label is one of theirs; of equally good ones the most even."""
        members = self._members()
        tried = [np.array(weights) for weights in itertools.product(_WEIGHTS, repeat=len(members)) if any(weights)]
        tried.sort(key=lambda weights: np.std(weights) / np.mean(weights))
        hits = np.zeros(len(tried))
        n = max(1, _N_SCORES // (len(members) * len(self.classes_)))
        for start in range(0, images.shape[0], n):
            embedded = product(images[start : start + n], self.visterm_vectors_)
            scores = [product(embedded[:, a:b], self.label_vectors_[:, a:b].T) for a, b in members]
            relevant = labels[start : start + n]
            for k, weights in enumerate(tried):
                best = np.tensordot(weights, scores, axes=1).argmax(axis=1)
                hits[k] += relevant[np.arange(len(best)), best].sum()
        return tried[int(hits.argmax())]
