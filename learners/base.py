"""The contract of every learner: a similarity is an inner product of a query side and a gallery side."""

from __future__ import annotations

import inspect
import itertools
import os
import warnings
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import ClassifierTags, assert_all_finite, check_array
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from . import storage, validation
from .checks import check_share, plain_supervision
from .given_triplets import GivenTriplets
from .metric import Metric, positive_part
from .options import Callback, Distribute, FitOptions
from .rows import blocks, canonical, is_dense, is_mapped, writable
from .sides import VECTORS
from .similarity import Similarity
from .triplets import related_images


def _annotated(kind: type) -> list[str]:
    """Names of the state that a class declares."""
    return [name for name in inspect.get_annotations(kind) if name.endswith("_")]


class SimilarityLearner(Similarity, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of all learners.

    A learner brings `_fit`, and `_sides` where a side is not the vectors themselves, or overrides `transform` or
    `transform_query`. The constructor only stores its keywords, as that of a dataclass does; what is learned ends in an
    underscore, and is annotated in the class: by this it is saved.

    The fitted learner is a `Similarity`.
    """

    # Fitted attributes that `save` writes and `load_learner` accepts: arrays, numbers, text, lists and dictionaries.
    # Those of a subclass are its annotated names that end in an underscore, unless it has a `_state` of its own.
    _state: tuple[str, ...] = ("n_features_in_", "learned_weight_", "scale_")

    # State that is the model. A search keeps the best of each under the name with "best_" in front.
    _learned: tuple[str, ...] = ()

    # What a learner can. Callers read these, and look for no methods.
    learns_triplets: bool = False  # has `fit_triplets`, also as `fit` of GivenTriplets
    one_label: bool = False  # learns from one label per image, not from several, nor from clicks
    validates: bool = False  # holds images out of a fit, stops early, and chooses the weight of the learner
    resumes: bool = False  # reports progress while it learns, and resumes from a checkpoint
    distributes: bool = False  # has parts of a fit done elsewhere
    reads_rows: bool = False  # `fit` reads dense images that lie in files some rows at a time: see `rows.is_mapped`
    needs_labels: bool = True  # `fit` takes y

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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_state" not in vars(cls):
            bases = [vars(base).get("_state", _annotated(base)) for base in reversed(cls.__bases__)]
            best = [f"best_{name}" for name in cls._learned]
            cls._state = tuple(dict.fromkeys(itertools.chain(*bases, _annotated(cls), best)))

    def _overrides(self, method: str) -> bool:
        """Whether the class replaces a method that `_sides` would otherwise serve."""
        return getattr(type(self), method) is not getattr(SimilarityLearner, method)

    @property
    def has_teachers(self) -> bool:
        """Whether the fitted learner has recorded which images taught it, in `teachers_`."""
        return "teachers_" in vars(self)

    def _check_fitted(self) -> None:
        check_is_fitted(self)

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
            for name in ("learned_weight_", "scale_"):
                self.__dict__.pop(name, None)
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
        return super().transform(X, y)

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
        X = canonical(X) if sp.issparse(X) else X
        if self.one_label and sp.issparse(y):
            name = type(self).__name__
            raise ValueError(f"{name} takes one label per image, as an array of shape (n,), not several")
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
        """Images as CSR or dense float32; ValueError for NaN, infinity or another number of columns.

        Names of columns are compared where X has some: the arrays that methods hand to each other have none.
        """
        if not reset and self._fit_as_they_are(X):
            return X
        if not reset and "feature_names_in_" in vars(self) and (sp.issparse(X) or isinstance(X, np.ndarray)):
            X = check_array(X, accept_sparse="csr", dtype=np.float32, estimator=self, input_name="X")
            if X.shape[1] == self.n_features_in_:
                return canonical(X) if sp.issparse(X) else X
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=reset)
        return canonical(X) if sp.issparse(X) else X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.target_tags.required = self.needs_labels
        if self.ranks_labels:
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_label=True)
        return tags
