"""A similarity as it is used: two sides, of arrays, without what learned them.

To use a similarity needs NumPy and SciPy's sparse arrays; to learn one needs scikit-learn, which takes longer to import
than a search takes. So a search loads a `Similarity`, and `SimilarityLearner` is one that learns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from visterm import sparse as sp

from .maps import Map
from .rows import canonical
from .sides import UNIT_ROWS, VECTORS, Side, Sides, Whitening, bilinear, dense, scores_of
from .sums import product

# Queries whose dense side is held at a time by `similarity`: 40 MB at d = 10,000.
_QUERY_ROWS = 1024
_FEW_IMAGES = 64  # checked here in a twentieth of the time that scikit-learn takes


def inner_products(query_side: Callable[[Any], Any], Q: Any, gallery: Any) -> np.ndarray:
    """Inner product of every query's side with every gallery side: float32 (n_queries, n_images)."""
    out = np.empty((Q.shape[0], gallery.shape[0]), np.float32)
    for start in range(0, Q.shape[0], _QUERY_ROWS):
        out[start : start + _QUERY_ROWS] = scores_of(query_side(Q[start : start + _QUERY_ROWS]), gallery)
    return out


def ratio_of_spreads(cosine: np.ndarray, learned: np.ndarray) -> float:
    """How many times more the first similarities vary than the second; 1 if that is not finite."""
    spread = float(np.std(learned)) if learned.size else 0.0
    ratio = float(np.std(cosine)) / spread if spread > 0 else 1.0
    return ratio if 0 < ratio < np.inf else 1.0


class Similarity:
    """What a fitted learner compares images by; `visterm.learners.load_similarity` reads one.

    Its arrays are attributes, named as those of the learner. Images are rows: CSR or dense, float32 or float64; they
    come out as float32. What a method returns for an image does not depend on the other images of the batch, to the
    last bit: products come from `sums`, not from BLAS.
    """

    n_features_in_: int

    # Whether each side of an image is the sum of what its parts add to it; then `transform_parts` gives those.
    linear: bool = False

    # Whether the gallery side begins with the columns of the vectors.
    keeps_columns: bool = True

    # Weight of the learner against cosine, and the factor that gives both the same spread; set by learners that choose
    # them on held-out images. See `Blend`.
    learned_weight_: float = 1.0
    scale_: float | None = None

    # What learning begins at: "vectors", their similarity, so that its scale is that of the learner; "model", another
    # similarity; or "nothing", as weights of zero and random vectors are no model.
    begins_at: str = "model"

    ranks_labels: bool = False  # has what `AnnotatorMixin` has
    labels_have_vectors: bool = False  # has `similar_labels`
    by_category: bool = False  # the gallery side depends on an image's category; has what `MuSL` has

    # State whose numbers are places in other state: an array, or so many.
    _points_into: dict[str, str] = {}  # nobody writes to it

    _is_prepared = False  # while a fit measures its state: vectors come whitened

    def _sides(self) -> Sides:
        """The two sides of the similarity, by default the vectors themselves."""
        return Sides()

    @property
    def gallery_is_vectors(self) -> bool:
        """Whether the gallery side is the vectors as they are, so that one index serves all such learners."""
        return not self._overrides("transform") and self._sides().gallery is VECTORS

    def _overrides(self, method: str) -> bool:
        """Whether the class replaces a method that `_sides` would otherwise serve."""
        return False

    def _check_fitted(self) -> None:
        """Refuse a learner that has not learned."""

    def is_whitened(self) -> bool:
        """Whether the fitted learner has learned in whitened vectors."""
        return "whitening_" in vars(self)

    @cached_property
    def _whitening_learned(self) -> Whitening:
        learner: Any = self
        return Whitening(learner.mean_, learner.whitening_)  # else AttributeError, which dir() of scikit-learn expects

    @property
    def _whitening(self) -> Whitening | None:
        """The whitening that images are still to pass through, if any."""
        return self._whitening_learned if self.is_whitened() and not self._is_prepared else None

    def whitened(self, X: Any) -> Any:
        """Whitened vectors of images, of unit length: dense float32 (n, d); X itself where nothing is whitened."""
        X = self._check_images(X)
        return X if self._whitening is None else self._whitening.of(X)

    def _cosine_side(self, Q: Any) -> Any:
        """Query side, for images as they are, of the similarity before anything was learned.

        The vectors themselves, or the whitened ones where the learner whitens.
        """
        return self._sides().cosine.of(self._check_images(Q))

    def _cosine_parts(self, parts: Any, whole: Any) -> Any:
        """Contributions of parts of an image to `_cosine_side`; arguments as of `transform_parts`."""
        return self._sides().cosine.parts(self._check_images(parts), self._check_images(whole))

    def _mixed(self, cosine: Any, learned: Any, *, differences: bool = False) -> Side:
        """Weighted sum of `_cosine_side` and `transform_query`, dense; of learners whose gallery side is the vectors.

        With `differences`, of differences of vectors; see `linear_query`.
        """
        mixed = self._sides().mixed
        weights = np.float32(cosine), np.float32(learned)
        if mixed is not None:
            side = mixed(*weights, differences=differences)
            return side._replace(of=lambda Q: side.of(self._check_images(Q)))

        def of(Q: Any) -> np.ndarray:
            return weights[0] * dense(self._cosine_side(Q)) + weights[1] * dense(self.transform_query(Q))

        return Side(of, self._no_map)

    def linear_query(self, P: Any) -> np.ndarray:
        """Query sides of differences of vectors, such as directions; for learners that are `linear`.

        That of a difference is the difference of the images' own before they are scaled to unit length.
        """
        return self._mixed(0, 1, differences=True).of(P)

    def center(self) -> np.ndarray | None:
        """Vector (n_features_in_,) that a whitening learner subtracts from images; None where nothing is subtracted."""
        return np.asarray(vars(self)["mean_"]) if self.is_whitened() else None

    def _scorer(self, queries: Any, gallery: Any) -> Callable[[], np.ndarray]:
        """Function that gives the similarity of the present state: (n_queries, n_images), to measure it many times."""
        scorer = self._sides().scorer
        if scorer is not None:
            return scorer(queries, gallery)
        return lambda: scores_of(self.transform_query(queries), self._gallery_side(gallery))

    def transform(self, X: Any, y: Any = None) -> Any:
        """Gallery side of the images, by default the images themselves; labels y are for `MuSL`."""
        X, side = self._check_images(X), self._sides().gallery
        return side.of(X, y) if self.by_category else side.of(X)

    def _gallery_side(self, X: Any, y: Any = None) -> Any:
        """`transform` without the DataFrame that `set_output` may ask for."""
        transform = type(self).transform
        return getattr(transform, "__wrapped__", transform)(self, X, y)

    def transform_query(self, Q: Any) -> Any:
        """Query side of the images, by default the same as the gallery side; CSR or dense float32."""
        side = self._sides().query
        if side is None:
            return self._gallery_side(Q)
        self._check_fitted()
        return side.of(self._check_images(Q))

    def transform_parts(self, parts: Any, whole: Any) -> Any:
        """Contribution of each part of an image, such as a block, to its gallery side.

        With it the similarity of two images is a sum over pairs of their parts. Only for learners that are `linear`.
        The parts' sides; of a learner whose side is not a linear map of the vector, because it scales images to unit
        length or adds a square, those by the map that is linear once the image is known.

        Parameters
        ----------
        parts : CSR or dense of shape (n_parts, n_features_in_)
            Some or all of the parts; all of them sum to the image's vector.
        whole : CSR or dense of shape (1, n_features_in_)
            The image's vector, not zero.

        Returns
        -------
        CSR or dense float32 of shape (n_parts, size of a side)

        Raises
        ------
        NotImplementedError
            The learner is not linear.
        """
        if not self.linear:
            raise NotImplementedError(f"a side of {type(self).__name__} is not the sum of what parts of the image add")
        if self._overrides("transform"):
            return self._gallery_side(parts)
        return self._sides().gallery.parts(self._check_images(parts), self._check_images(whole))

    def transform_query_parts(self, parts: Any, whole: Any) -> Any:
        """Contribution of each part of an image to its query side, by default as on the gallery side."""
        side = self._sides().query
        if side is None or not self.linear:
            return self.transform_parts(parts, whole)
        return side.parts(self._check_images(parts), self._check_images(whole))

    def query_map(self) -> Map:
        """`transform_query` as a few steps, for programs that do not have visterm: see `visterm.learners.maps`.

        By default those of the gallery side, for learners that treat both sides alike.

        Raises
        ------
        NotImplementedError
            The similarity is not the inner product of such maps.
        """
        self._check_fitted()
        side = self._sides().query
        if self._overrides("transform_query"):
            self._no_map()
        return self.gallery_map() if side is None else side.steps()

    def gallery_map(self) -> Map:
        """`transform` as a few steps; none where the gallery side is the vectors."""
        if self._overrides("transform"):
            self._no_map()
        return self._sides().gallery.steps()

    def _no_map(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no map that can be exported")

    def similarity(self, Q: Any, X: Any, y: Any = None) -> np.ndarray:
        """Similarity of every query to every gallery image, y as in `transform`: float32 (n_queries, n_images)."""
        self._check_fitted()
        return inner_products(self.transform_query, self._check_images(Q), self._gallery_side(X, y))

    def _check_state(self) -> None:
        """Fail, with whatever exception, where pieces of a loaded state are missing or do not fit together."""
        for name, held in self._points_into.items():
            numbers, end = getattr(self, name), getattr(self, held)
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < (end if np.isscalar(end) else len(end)):
                raise ValueError("it names images or labels that it does not hold")
        nothing = sp.csr_array((1, self.n_features_in_), dtype=np.float32)
        self.similarity(nothing, nothing)
        annotator: Any = self
        if self.ranks_labels and annotator.label_scores(nothing).shape != (1, len(annotator.classes_)):
            raise ValueError("labels and vectors do not fit together")

    def _check_images(self, X: Any) -> Any:
        """Images as CSR or dense float32; ValueError for NaN, infinity or another number of columns."""
        if self._fit_as_they_are(X):
            return X
        X = canonical(X.tocsr().astype(np.float32, copy=False)) if sp.issparse(X) else np.asarray(X, np.float32)
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise ValueError(f"images must have {self.n_features_in_} features, got an array of shape {X.shape}")
        if not np.isfinite(X.data if sp.issparse(X) else X).all():
            raise ValueError("images hold NaN or infinity")
        return X

    def _fit_as_they_are(self, X: Any) -> bool:
        """Whether images need no more checks: of one query, those of scikit-learn take as long as a product with W."""
        plain = (sp.csr_array, sp.csr_matrix) if sp.issparse(X) else (np.ndarray,)
        if type(X) not in plain or X.ndim != 2:
            return False
        return (
            X.dtype == np.float32
            and 0 < X.shape[0] <= _FEW_IMAGES
            and X.shape[1] == vars(self).get("n_features_in_")
            and bool(np.isfinite(X.data if sp.issparse(X) else X).all())
            and (not sp.issparse(X) or X.has_canonical_format)
        )


class CosineSimilarity(Similarity):
    """That of `Cosine`."""

    linear = True

    def __init__(self, n_features: int) -> None:
        self.n_features_in_ = n_features

    def _sides(self) -> Sides:
        return Sides(gallery=UNIT_ROWS)


class BilinearSimilarity(Similarity):
    """That of `OASIS`, but for the variant "dissim"."""

    linear = True
    begins_at = "vectors"
    W_: np.ndarray

    # What the files of a learner may hold. Others are of another version, or of a learner that is still learning.
    settings = frozenset([
        "C", "balance", "check_negatives", "click_cutoff", "init", "lock_free", "mix_every", "n_jobs", "n_rankers",
        "n_steps", "pairs_per_query", "pass_steps", "patience", "psd_every", "random_state", "record_teachers", "refit",
        "validation_fraction", "variant", "whiten",
    ])  # fmt: skip
    state = frozenset([
        "n_features_in_", "learned_weight_", "scale_", "n_steps_", "history_", "best_step_", "best_validation_",
        "validation_map_", "cosine_map_", "validation_p1_", "cosine_p1_", "steps_done_", "steps_total_", "target_step_",
        "phase_", "seed_", "n_images_", "held_out_", "pass_sums_", "world_", "shares_", "unseen_", "worlds_", "mean_",
        "whitening_", "W_", "teachers_",
    ])  # fmt: skip

    def _sides(self) -> Sides:
        return bilinear(lambda Z: product(Z, self._matrix()), self._matrix, self._whitening)

    def _matrix(self) -> np.ndarray:
        return np.asarray(self.W_)

    def _check_state(self) -> None:
        d, whitening = self.n_features_in_, self._whitening
        shapes = [self.W_.shape] if whitening is None else [self.W_.shape, whitening.matrix.shape]
        if any(shape != (d, d) for shape in shapes) or (whitening and whitening.shift.shape != (d,)):
            raise ValueError("its matrices do not fit its vectors")
