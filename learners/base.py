"""The contract of every learner: a similarity is an inner product of a query side and a gallery side."""

from __future__ import annotations

import inspect
import itertools
import os
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import ClassifierTags, assert_all_finite
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from . import storage, validation
from .checks import check_share, plain_supervision
from .given_triplets import GivenTriplets
from .maps import Map
from .metric import Metric, positive_part
from .options import Callback, Distribute, FitOptions
from .rows import blocks, is_dense, is_mapped, writable
from .sides import VECTORS, Side, Sides, dense, scores_of, space_of
from .triplets import related_images
from .whitening import Whitening

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


def _annotated(kind: type) -> list[str]:
    """Names of the state that a class declares."""
    return [name for name in inspect.get_annotations(kind) if name.endswith("_")]


class SimilarityLearner(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of all learners.

    A learner brings `_fit`, and `_sides` where a side is not the vectors themselves, or overrides `transform` or
    `transform_query`. The constructor only stores its keywords, as that of a dataclass does; what is learned ends in an
    underscore, and is annotated in the class: by this it is saved.

    Images are rows: CSR or dense, float32 or float64; they come out as float32. What a method returns for an image does
    not depend on the other images of the batch, to the last bit: products come from `sums`, not from BLAS.
    """

    # Fitted attributes that `save` writes and `load_learner` accepts: arrays, numbers, text, lists and dictionaries.
    # Those of a subclass are its annotated names that end in an underscore, unless it has a `_state` of its own.
    _state: tuple[str, ...] = ("n_features_in_", "learned_weight_", "scale_")

    # State that is the model. A search keeps the best of each under the name with "best_" in front.
    _learned: tuple[str, ...] = ()

    # State whose numbers are places in other state: an array, or so many.
    _points_into: dict[str, str] = {}  # nobody writes to it

    # What a learner can. Callers read these, and look for no methods.
    learns_triplets: bool = False  # has `fit_triplets`, also as `fit` of GivenTriplets
    one_label: bool = False  # learns from one label per image, not from several, nor from clicks
    ranks_labels: bool = False  # has what `AnnotatorMixin` has
    labels_have_vectors: bool = False  # has `similar_labels`
    validates: bool = False  # holds images out of a fit, stops early, and chooses the weight of the learner
    resumes: bool = False  # reports progress while it learns, and resumes from a checkpoint
    distributes: bool = False  # has parts of a fit done elsewhere
    reads_rows: bool = False  # `fit` reads dense images that lie in files some rows at a time: see `rows.is_mapped`
    by_category: bool = False  # the gallery side depends on an image's category; has what `MuSL` has
    needs_labels: bool = True  # `fit` takes y

    # What learning begins at: "vectors", their similarity, so that its scale is that of the learner; "model", another
    # similarity; or "nothing", as weights of zero and random vectors are no model.
    begins_at: str = "model"

    # Whether each side of an image is the sum of what its parts add to it; then `transform_parts` gives those.
    linear: bool = False

    # Whether the gallery side begins with the columns of the vectors.
    keeps_columns: bool = True

    # Weight of the learner against cosine, and the factor that gives both the same spread; set by learners that choose
    # them on held-out images. See `Blend`.
    learned_weight_: float = 1.0
    scale_: float | None = None

    # What a fit says of itself, of learners that have it; see `OnlineLearner`.
    validation_measure: str = "mAP"
    n_steps_: int = 0
    held_out_: np.ndarray | None = None
    validation_map_: float | None = None
    validation_p1_: float | None = None
    cosine_p1_: float | None = None
    worlds_: dict[str, Any] | None = None
    n_images_: int
    phase_: str
    teachers_: Any  # see `Teachers`

    # Parameters that not all learners have.
    whiten: bool | str = False
    whitens: bool = False  # may learn in whitened vectors, where `whiten` says so
    click_cutoff: float | str | None = None
    n_jobs: int | None = None

    _is_prepared = False  # while a fit measures its state: vectors come whitened

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_state" not in vars(cls):
            bases = [vars(base).get("_state", _annotated(base)) for base in reversed(cls.__bases__)]
            best = [f"best_{name}" for name in cls._learned]
            cls._state = tuple(dict.fromkeys(itertools.chain(*bases, _annotated(cls), best)))

    def _sides(self) -> Sides:
        """The two sides of the similarity, by default the vectors themselves."""
        return Sides()

    @property
    def gallery_is_vectors(self) -> bool:
        """Whether the gallery side is the vectors as they are, so that one index serves all such learners."""
        return not self._overrides("transform") and self._sides().gallery is VECTORS

    def _overrides(self, method: str) -> bool:
        """Whether the class replaces a method that `_sides` would otherwise serve."""
        return getattr(type(self), method) is not getattr(SimilarityLearner, method)

    @property
    def has_teachers(self) -> bool:
        """Whether the fitted learner has recorded which images taught it, in `teachers_`."""
        return "teachers_" in vars(self)

    def is_whitened(self) -> bool:
        """Whether the fitted learner has learned in whitened vectors."""
        return "whitening_" in vars(self)

    @cached_property
    def _whitening_learned(self) -> Whitening:
        return Whitening(vars(self)["mean_"], vars(self)["whitening_"])

    @property
    def _whitening(self) -> Whitening | None:
        """The whitening that images are still to pass through, if any."""
        return self._whitening_learned if self.is_whitened() and not self._is_prepared else None

    def whitened(self, X: Any) -> Any:
        """Whitened vectors of images, of unit length: dense float32 (n, d); X itself where nothing is whitened."""
        X = self._check_images(X)
        return X if self._whitening is None else self._whitening.of(X)

    def whitened_parts(self, parts: Any, whole: Any) -> Any:
        """Contributions of parts of an image to its whitened vector; arguments as of `transform_parts`."""
        return space_of(self._whitening).parts(self._check_images(parts), self._check_images(whole))

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

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        validation_rows: Any = None,
        world: str = "seen",
        learned_weight: float | None = 1.0,
        callback: Callback | None = None,
        progress: Callback | None = None,
        distribute: Distribute | None = None,
    ) -> Self:
        """Learn from scratch.

        Parameters
        ----------
        X : CSR or dense of shape (n, d)
        y : array of shape (n,), or CSR of shape (n, n_labels)
            See `TripletSampler`. Cosine ignores it.
        validation_rows : array of int, optional
            Rows of X that validate, in place of a share `validation_fraction` drawn at random. A learner that does not
            validate refuses them, holds nothing out for any `world`, and takes `learned_weight` as it is, None as 1.
        world : {"seen", "open", "unseen"}, default="seen"
            What the similarity is for: classes that it is trained on, any classes, or others. But for "seen", a fifth
            of the classes is held out, too, where there are five or more; see `validation.Worlds`.
        learned_weight : float, optional
            Weight of the learned similarity: 0 is how images look (cosine, or that of whitened vectors), 1 the learner
            alone; it becomes `learned_weight_`, for `Blend`. None: the best one on held-out images, for `world`; 1
            without validation. Where no class has images enough to hold some out, a cautious one, or 1 for "seen".
        callback : callable, optional
            Called with the learner after every pass, by a learner that resumes; others end within seconds and call
            neither this nor `progress`. The state is then complete: `save` writes a checkpoint, and
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
            Parameters or arguments out of range; NaN or infinity; labels from which no triplet can be drawn.
        """
        validation.check_world(world)
        share = 1.0 if learned_weight is None else check_share(learned_weight)
        if not self.validates:
            if validation_rows is not None:
                name = type(self).__name__
                raise ValueError(f"{name} does not validate: leave validation_rows away, and these images")
            self.__dict__.pop("learned_weight_", None)
            if share != 1:
                self.learned_weight_ = share
        return self._fit(X, y, FitOptions(validation_rows, world, learned_weight, callback, progress, distribute))

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        """Learn from scratch, or with `options.resuming` from a checkpoint on."""
        raise NotImplementedError

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

        Only for a learner that resumes. See `fit` for the other arguments.

        Raises
        ------
        ValueError
            Another number of images or columns than in the interrupted call.
        """
        check_is_fitted(self)
        if not self.resumes:
            raise NotImplementedError(f"{type(self).__name__} makes no checkpoints; use fit")
        options = FitOptions(callback=callback, progress=progress, distribute=distribute, resuming=True)
        return self._fit(X, y, options)

    def _check_checkpoint(self, X: Any) -> bool:
        """Make a loaded state writable, and say whether there is more to learn of X; refuse other images."""
        if X.shape[0] != self.n_images_:
            raise ValueError(f"the checkpoint was made with {self.n_images_} images, got {X.shape[0]}")
        self._make_writable()
        return self.phase_ != "done"

    def _keep_best(self) -> None:
        """Keep a copy of the present model as the best one."""
        for name in self._learned:
            if name in vars(self):
                present, kept = getattr(self, name), vars(self).get(f"best_{name}")
                if sp.issparse(present):  # no copy: steps make a new table
                    setattr(self, f"best_{name}", present)
                elif kept is None:
                    setattr(self, f"best_{name}", present.copy())
                else:
                    np.copyto(kept, present)

    def _restore_best(self) -> None:
        """Return to the model kept last, and drop the copy."""
        for name in self._learned:
            if f"best_{name}" in vars(self):
                setattr(self, name, self.__dict__.pop(f"best_{name}"))

    def _make_writable(self) -> None:
        for name in self._state:
            if isinstance(vars(self).get(name), np.ndarray):
                setattr(self, name, writable(getattr(self, name)))

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
        X, side = self._check_images(X), self._sides().gallery
        return side.of(X, y) if self.by_category else side.of(X)

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """`fit`, and the gallery side of the same images; options as of `fit`.

        Warns
        -----
        UserWarning
            The gallery side, which a pipeline hands on to its next step, is not what was learned: use `Embedding` or
            `SimilarityNeighbors`.
        """
        side = super().fit_transform(X, y, **options)
        sides = self._sides()
        alike = sides.query is None and sides.gallery is not VECTORS
        if self.keeps_columns and not alike and not self._overrides("transform"):
            name = type(self).__name__
            warnings.warn(
                f"{name}.transform gives the gallery side: without the query side, the next step of a pipeline sees "
                f"next to nothing of what was learned; use Embedding({name}(...)) or SimilarityNeighbors({name}(...))",
                stacklevel=2,
            )
        return side

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
        matrix = self._sides().matrix
        if matrix is None:
            return Metric(self._compared, None)
        W = np.array(matrix(), np.float32)
        return Metric(self._compared, positive_part((W + W.T) / np.float32(2)))

    def _compared(self, X: Any) -> Any:
        """Images as `metric` compares them."""
        space = self._sides().space
        return self._gallery_side(X) if space is None else space(self._check_images(X))

    def transform_query(self, Q: Any) -> Any:
        """Query side of the images, by default the same as the gallery side; CSR or dense float32."""
        side = self._sides().query
        if side is None:
            return self._gallery_side(Q)
        check_is_fitted(self)
        return side.of(self._check_images(Q))

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
        names = super().get_feature_names_out(input_features)
        width = self._gallery_side(sp.csr_array((1, self.n_features_in_), dtype=np.float32)).shape[1]
        names = names if self.keeps_columns else names[:0]
        new = [f"{type(self).__name__.lower()}{i}" for i in range(width - len(names))]
        return np.concatenate([names, np.array(new, dtype=object)])

    def _gallery_side(self, X: Any, y: Any = None) -> Any:
        """`transform` without the DataFrame that `set_output` may ask for."""
        transform = type(self).transform
        return getattr(transform, "__wrapped__", transform)(self, X, y)

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
        check_is_fitted(self)
        return inner_products(self.transform_query, self._check_images(Q), self._gallery_side(X, y))

    def score(self, X: Any, y: Any) -> float:
        """Mean average precision of the images, each as a query among the others, for model selection.

        Parameters
        ----------
        X : CSR or dense of shape (n, n_features_in_)
        y : array of shape (n,), or CSR of shape (n, n_labels)
            See `TripletSampler`. At most 500 images, drawn by a fixed seed, are queries.
        """
        check_is_fitted(self)
        check_consistent_length(X, y)
        X, y = self._check_images(X), plain_supervision(y)
        queries = validation.choose_queries(X.shape[0], 0)
        relevant = related_images(y, queries, np.arange(X.shape[0]), cutoff=self.click_cutoff)
        return validation.mean_average_precision(self.similarity(X[queries], X), relevant, queries)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write parameters and fitted state to a folder, replacing a learner saved there before.

        A process killed on the way leaves the folder as it was. See `visterm.learners.load_learner`.
        """
        check_is_fitted(self)
        # A generator cannot be written as text; the seed drawn from it does the same.
        params = self.get_params(deep=False)
        if not isinstance(params.get("random_state"), int | None):
            params["random_state"] = int(vars(self).get("seed_", params["random_state"]))
        state = {name: vars(self)[name] for name in self._state if name in vars(self)}
        storage.save(folder, type(self).__name__, params, state)

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

    def _check_supervised(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Images, CSR, or dense if the learner reads them by rows; and labels, checked."""
        y = y if y is None or isinstance(y, GivenTriplets) else plain_supervision(y)
        if self.reads_rows and is_mapped(X):
            X = self._check_mapped(X, reset=reset)
            if not isinstance(y, GivenTriplets):
                y = validate_data(self, y=y, multi_output=True, reset=reset)
                check_consistent_length(X, y)
            return X, y
        if isinstance(y, GivenTriplets):
            X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset)
        else:  # without y, it says so
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, multi_output=True, reset=reset)
        if self.one_label and sp.issparse(y):
            name = type(self).__name__
            raise ValueError(f"{name} takes one label per image, as an array of shape (n,), not a sparse y")
        if self.ranks_labels:
            annotator: Any = self
            annotator._note_labels(y, reset=reset)
        if not self.reads_rows:
            return sp.csr_array(X), y
        if sp.issparse(X):
            return (X.toarray() if is_dense(X) else sp.csr_array(X)), y
        return (X if 4 * np.count_nonzero(X) >= X.size else sp.csr_array(X)), y

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
            and X.shape[1] == vars(self).get("n_features_in_")
            and "feature_names_in_" not in vars(self)
            and bool(np.isfinite(X.data if sp.issparse(X) else X).all())
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.required = self.needs_labels
        if self.ranks_labels:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_label=True)
        return tags
