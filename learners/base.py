"""The contract of every learner: a similarity is an inner product of a query side and a gallery side."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from . import storage, validation
from .checks import check_share, plain_supervision
from .maps import Map
from .metric import Metric, positive_part
from .sums import product
from .triplets import related_images

Callback = Callable[[Any], None]
Distribute = Callable[[Callable, Iterable[tuple]], Iterable[Any]]

# Queries whose dense side is held at a time by `similarity`: 40 MB at d = 10,000.
_QUERY_ROWS = 1024
_FEW_IMAGES = 64  # checked here in a twentieth of the time that scikit-learn takes


def inner_products(query_side: Callable[[Any], Any], Q: Any, gallery: Any) -> np.ndarray:
    """Inner product of every query's side with every gallery side: float32 (n_queries, n_images)."""
    out = np.empty((Q.shape[0], gallery.shape[0]), np.float32)
    for start in range(0, Q.shape[0], _QUERY_ROWS):
        out[start : start + _QUERY_ROWS] = scores_of(query_side(Q[start : start + _QUERY_ROWS]), gallery)
    return out


def scores_of(queries: Any, gallery: Any) -> np.ndarray:
    """Inner products of query sides and gallery sides: dense float32 (n_queries, n_images)."""
    scores = product(queries, gallery.T)
    return scores.toarray() if sp.issparse(scores) else scores


def ratio_of_spreads(look: np.ndarray, learned: np.ndarray) -> float:
    """How many times more the first similarities vary than the second; 1 if that is not finite."""
    spread = float(np.std(learned)) if learned.size else 0.0
    ratio = float(np.std(look)) / spread if spread > 0 else 1.0
    return ratio if 0 < ratio < np.inf else 1.0


class SimilarityLearner(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of all learners.

    A learner overrides `fit`, and `transform` or `transform_query` where that side is not the vectors themselves. The
    constructor only stores its keywords; what is learned ends in an underscore, and the names in `_state` are saved.

    Images are rows: CSR or dense, float32 or float64; they come out as float32. What a method returns for an image does
    not depend on the other images of the batch, to the last bit: products come from `sums`, not from BLAS.
    """

    # Fitted attributes that `save` writes and `load_learner` accepts: arrays, numbers, text, lists and dictionaries.
    _state: tuple[str, ...] = ("n_features_in_", "learned_", "scale_")

    # What a learner can. Callers read these, and look for no methods.
    learns_triplets: bool = False  # has `fit_triplets`, also as `fit` of GivenTriplets
    one_label: bool = False  # learns from one label per image, not from several, nor from clicks
    ranks_labels: bool = False  # has what `AnnotatorMixin` has
    labels_have_vectors: bool = False  # has `similar_labels`
    validates: bool = False  # holds images out of a fit, stops early, and chooses the share of what was learned
    resumes: bool = False  # is a `ResumingLearner`
    distributes: bool = False  # has parts of a fit done elsewhere
    reads_rows: bool = False  # `fit` reads dense images that lie in files some rows at a time: see `rows.is_mapped`
    by_category: bool = False  # the gallery side depends on an image's category; has what `MuSL` has

    # Whether each side of an image is the sum of what its parts add to it; then `transform_parts` gives those.
    linear: bool = False

    # Whether the gallery side begins with the columns of the vectors.
    keeps_columns: bool = True

    # The share of what was learned that is to count, beside how images look, and what makes both vary alike: of a
    # learner that chose them on held-out images. See `Blend`.
    learned_: float = 1.0
    scale_: float | None = None

    # What a fit says of itself, of learners that have it; see `OnlineLearner`.
    validation_measure: str = "mAP"
    n_steps_: int = 0
    held_out_: np.ndarray | None = None
    validation_map_: float | None = None
    validation_p1_: float | None = None
    cosine_p1_: float | None = None
    worlds_: dict[str, Any] | None = None

    @property
    def gallery_is_vectors(self) -> bool:
        """Whether the gallery side is the vectors as they are, so that one index serves all such learners."""
        return type(self).transform is SimilarityLearner.transform

    @property
    def has_teachers(self) -> bool:
        """Whether the fitted learner has recorded which images taught it, in `teachers_`."""
        return "teachers_" in vars(self)

    def _look_side(self, Q: Any) -> Any:
        """Query side, for images as they are, of the similarity before anything was learned: the vectors themselves.

        Of a learner that whitens vectors, that of the whitened ones.
        """
        return self._check_images(Q)

    def _look_parts(self, parts: Any, whole: Any) -> Any:
        """What parts of an image add to `_look_side`; arguments as of `transform_parts`."""
        return self._check_images(parts)

    def _mixed_side(self, Q: Any, look: np.float32, learned: np.float32, *, differences: bool = False) -> np.ndarray:
        """Weighted sum of `_look_side` and `transform_query`, dense; of learners whose gallery side is the vectors.

        With `differences`, of differences of vectors; see `linear_query`.
        """
        sides = (
            side.toarray() if sp.issparse(side) else side for side in (self._look_side(Q), self.transform_query(Q))
        )
        return look * next(sides) + learned * next(sides)

    def linear_query(self, P: Any) -> np.ndarray:
        """Query sides of differences of vectors, such as directions; for learners that are `linear`.

        That of a difference is the difference of the images' own before they are scaled to unit length.
        """
        return self._mixed_side(P, np.float32(0), np.float32(1), differences=True)

    def center(self) -> np.ndarray | None:
        """Vector (n_features_in_,) that a whitening learner subtracts from images; None where nothing is subtracted."""
        return None

    def _scorer(self, queries: Any, gallery: Any) -> Callable[[], np.ndarray]:
        """Function that gives the similarity of the present state: (n_queries, n_images), to measure it many times."""
        return lambda: scores_of(self.transform_query(queries), self._gallery_side(gallery))

    def _starts_at_vectors(self) -> bool:
        """Whether learning began at that similarity, so that its scale is that of the learner."""
        return False

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
        validation_rows, world, learned
            See `OnlineLearner.fit`. A learner that does not validate refuses `validation_rows`, holds nothing out for
            any `world`, and takes `learned` as it is, None as 1.
        callback, progress : callable, optional
            Called while it learns, by a learner that resumes; others end within seconds and call neither.
        distribute : callable, optional
            See `OASIS`; others learn here.

        Raises
        ------
        ValueError
            Parameters or arguments out of range; data that cannot be learned from.
        """
        if validation_rows is not None:
            raise ValueError(f"{type(self).__name__} does not validate: leave validation_rows away, and these images")
        validation.check_world(world)
        share = 1.0 if learned is None else check_share(learned)
        self.__dict__.pop("learned_", None)
        if share != 1:
            self.learned_ = share
        return self._fit(X, y, callback, progress)

    def _fit(self, X: Any, y: Any, callback: Callback | None, progress: Callback | None) -> Self:
        """`fit` of a learner that does not validate."""
        raise NotImplementedError

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn more, starting at the fitted state; only for online learners."""
        raise NotImplementedError(f"{type(self).__name__} cannot resume from a fitted state; use fit")

    def check(self, X: Any, y: Any, *, vectors: str | None = None) -> None:
        """Refuse images from which `fit` would learn nothing of use; by default none are.

        For callers that want to say so before a training. `fit` learns from such images all the same.

        Parameters
        ----------
        X, y
            As for `fit`.
        vectors : {"kmeans", "forest", "deep"}, optional
            What the vectors are, where the caller knows: visterms of one of the codebooks, or outputs of a network.

        Raises
        ------
        ValueError
            Says what is wrong, and which vectors or parameters to use.
        """

    def estimate(self, n_images: int, n_features: int, n_entries: int) -> tuple[float, float]:
        """Bytes and seconds that `fit` of so many images and non-zero entries takes at most; 0 where d does not matter.

        Estimated from sizes and parameters, as on one slow core, so that callers can refuse infeasible training.
        """
        return 0.0, 0.0

    def transform(self, X: Any, y: Any = None) -> Any:
        """Gallery side of the images, by default the images themselves.

        Parameters
        ----------
        X : CSR or dense of shape (n, n_features_in_)
        y : array of shape (n,), optional
            Labels of the gallery images, where they are known. Only a learner whose similarity depends on the gallery
            image's category reads them: MuSL.

        Returns
        -------
        CSR or dense float32 of shape (n, size of a side)
        """
        check_is_fitted(self)
        return self._check_images(X)

    @property
    def _hands_on_what_was_learned(self) -> bool:
        """Whether `transform` alone gives vectors by which images compare, as the next step of a pipeline expects."""
        return not self.gallery_is_vectors

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """`fit`, and the gallery side of the same images; options as of `fit`.

        Warns
        -----
        UserWarning
            The gallery side, which a pipeline hands on to its next step, is not what was learned: use `Embedding` or
            `SimilarityNeighbors`.
        """
        if not self._hands_on_what_was_learned:
            name = type(self).__name__
            warnings.warn(
                f"{name}.transform gives the gallery side: without the query side, the next step of a pipeline sees "
                f"next to nothing of what was learned; use Embedding({name}(...)) or SimilarityNeighbors({name}(...))",
                stacklevel=2,
            )
        return super().fit_transform(X, y, **options)

    def metric(self) -> Metric:
        """Distance of images by what was learned, such as ``KNeighborsClassifier(metric=learner.metric())`` takes.

        The Euclidean one of the gallery side, where both sides are alike. For OASIS, AROMA and the learners of a
        Mahalanobis distance the symmetric positive semi-definite part of their matrix, in O(d^3) time, so that
        ``distance(a, b)`` is a metric: it ranks nearly, not exactly as the similarity does. All of what was learned
        counts.

        Returns
        -------
        Metric
            A function of two vectors; its method `embed` maps many.
        """
        check_is_fitted(self)
        side, matrix = self._metric_parts()
        if matrix is None:
            return Metric(side, None)
        W = np.array(matrix, np.float32)
        return Metric(side, positive_part((W + W.T) / np.float32(2)))

    def _metric_parts(self) -> tuple[Callable[[Any], Any], np.ndarray | None]:
        """Function that gives the sides that are compared, and the matrix W of a' W b; None for their inner product."""
        return self._gallery_side, None

    def transform_query(self, Q: Any) -> Any:
        """Query side of the images, by default the same as the gallery side."""
        return self._gallery_side(Q)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`: those of the vectors where it leaves these as they are, else numbered.

        With them `set_output(transform="pandas")` works for learners whose gallery side is dense.

        Parameters
        ----------
        input_features : array of str of shape (n_features_in_,), optional
            Names of the columns of the vectors; by default those of the DataFrame of the fit, or x0, x1, ...

        Returns
        -------
        array of str
        """
        own = super().get_feature_names_out(input_features)
        width = self._gallery_side(sp.csr_array((1, self.n_features_in_), dtype=np.float32)).shape[1]
        own = own if self.keeps_columns else own[:0]
        new = [f"{type(self).__name__.lower()}{i}" for i in range(width - len(own))]
        return np.concatenate([own, np.array(new, dtype=object)])

    def _gallery_side(self, X: Any, y: Any = None) -> Any:
        """`transform` without the DataFrame that `set_output` may ask for."""
        transform = type(self).transform
        return getattr(transform, "__wrapped__", transform)(self, X, y)

    def transform_parts(self, parts: Any, whole: Any) -> Any:
        """What each part of an image, such as a block, adds to the image's gallery side.

        With it the similarity of two images is a sum over pairs of their parts. Only for learners that are `linear`.
        By default the parts' own sides; a learner whose side is not a linear map of the vector, because it scales
        images to unit length or adds a square, overrides this with the map that is linear once the image is known.

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
        return self._gallery_side(parts)

    def transform_query_parts(self, parts: Any, whole: Any) -> Any:
        """What each part of an image adds to its query side, by default the same as on the gallery side."""
        return self.transform_parts(parts, whole)

    def query_map(self) -> Map:
        """`transform_query` as a few steps, for programs that do not have visterm: see `visterm.learners.maps`.

        By default those of the gallery side, for learners that treat both sides alike.

        Raises
        ------
        NotImplementedError
            The similarity is not the inner product of such maps.
        """
        if type(self).transform_query is SimilarityLearner.transform_query:
            return self.gallery_map()
        raise NotImplementedError(f"{type(self).__name__} has no map that can be exported")

    def gallery_map(self) -> Map:
        """`transform` as a few steps; none where the gallery side is the vectors."""
        if self.gallery_is_vectors:
            return ()
        raise NotImplementedError(f"{type(self).__name__} has no map that can be exported")

    def _look_map(self) -> Map:
        """`_look_side` as a few steps."""
        return ()

    def _mixed_map(self, look: float, learned: float) -> Map:
        """`_mixed_side` as a few steps."""
        raise NotImplementedError(f"{type(self).__name__} has no map that can be exported")

    def similarity(self, Q: Any, X: Any, y: Any = None) -> np.ndarray:
        """Similarity of every query to every gallery image, y as in `transform`: float32 (n_queries, n_images)."""
        check_is_fitted(self)
        return inner_products(self.transform_query, self._check_images(Q), self._gallery_side(X, y))

    def score(self, X: Any, y: Any) -> float:
        """Mean average precision of the images, each as a query among the others, for model selection.

        Parameters
        ----------
        X : CSR or dense of shape (n, n_features_in_)
        y : array of shape (n,), or CSR of shape (n, n_labels)
            See `TripletSampler`. Of more than 500 images, 500 drawn by a fixed seed are queries.
        """
        check_is_fitted(self)
        check_consistent_length(X, y)
        X, y = self._check_images(X), plain_supervision(y)
        own = validation.choose_queries(X.shape[0], 0)
        relevant = related_images(y, own, np.arange(X.shape[0]), cutoff=getattr(self, "click_cutoff", None))
        return validation.mean_average_precision(self.similarity(X[own], X), relevant, own)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write parameters and fitted state to a folder, replacing a learner saved there before.

        A process killed on the way leaves the folder as it was. See `visterm.learners.load_learner`.
        """
        check_is_fitted(self)
        # A generator cannot be written as text; the seed drawn from it does the same.
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | None):
            params["random_state"] = int(getattr(self, "seed_", params["random_state"]))
        state = {name: vars(self)[name] for name in self._state if name in vars(self)}
        storage.save(folder, type(self).__name__, params, state)

    def _check_state(self) -> None:
        """Fail, with whatever exception, where pieces of a loaded state are missing or do not fit together."""
        nothing = sp.csr_array((1, self.n_features_in_), dtype=np.float32)
        self.similarity(nothing, nothing)

    def _check_images(self, X: Any, *, reset: bool = False) -> Any:
        """Images as CSR or dense float32; ValueError for NaN, infinity or another number of columns."""
        if not reset and self._fit_as_they_are(X):
            return X
        return validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset)

    def _fit_as_they_are(self, X: Any) -> bool:
        """Whether images need no more checks: of one query, those of scikit-learn take as long as a product with W."""
        if type(X) not in (np.ndarray, sp.csr_array, sp.csr_matrix) or X.ndim != 2:
            return False
        return (
            X.dtype == np.float32
            and 0 < X.shape[0] <= _FEW_IMAGES
            and X.shape[1] == getattr(self, "n_features_in_", None)
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X.data if sp.issparse(X) else X).all())
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class ResumingLearner(SimilarityLearner):
    """Base of learners that report progress while they learn, and resume from a checkpoint."""

    resumes = True
    n_images_: int
    phase_: str

    def resume(
        self,
        X: Any,
        y: Any,
        *,
        callback: Callback | None = None,
        progress: Callback | None = None,
        distribute: Distribute | None = None,
    ) -> Self:
        """Resume from a checkpoint, with the images it was made with; a finished learner is returned unchanged.

        See `fit` for the other arguments.

        Raises
        ------
        ValueError
            Another number of images or columns than in the interrupted call.
        """
        check_is_fitted(self)
        X, y = self._check_supervised(X, y, reset=False)
        if X.shape[0] != self.n_images_:
            raise ValueError(f"the checkpoint was made with {self.n_images_} images, got {X.shape[0]}")
        if self.phase_ == "done":
            return self
        self._continue()
        return self._run(X, y, callback, progress, distribute)

    @abstractmethod
    def _check_supervised(self, X: Any, y: Any, *, reset: bool) -> tuple[sp.csr_array, Any]:
        """Images as CSR, and labels, checked."""

    @abstractmethod
    def _continue(self) -> None:
        """Make a loaded state ready for more learning: writable."""

    @abstractmethod
    def _run(
        self,
        X: sp.csr_array,
        y: Any,
        callback: Callback | None,
        progress: Callback | None,
        distribute: Distribute | None = None,
    ) -> Self:
        """Learn until `phase_` is "done"."""
