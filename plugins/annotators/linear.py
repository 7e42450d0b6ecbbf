"""Base of PAMIR-IA and one-vs-rest: one vector of weights per label, learned by passive-aggressive steps.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6.3: f_i(x) = w_i' x, trained with a loss for each label on its own, "or the same models trained with a ranking
loss instead".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from visterm.learners.annotation import OnlineAnnotator
from visterm.learners.maps import Affine, Map, Unit
from visterm.learners.sides import Side, Sides
from visterm.learners.sums import product, row_lengths, row_means, unit_rows


class LinearAnnotator(OnlineAnnotator):
    """Base of annotators with the score f_i(x) = w_i' x; a subclass has `_pass`.

    The similarity of two images is that of what they are annotated with: the correlation of their label scores. A
    constant added to all scores of an image changes no ranking of its labels, and so no similarity. The similarity of
    two labels is the cosine of their weights less the mean over labels, for the same reason. Both sides are the label
    scores less their mean, scaled to unit norm; with two labels, where unit rows would be one of two vectors and all
    similarities 1 or -1, they are not scaled. All-zero rows stay zero. Labels of the gallery are not read.

    Attributes
    ----------
    W_ : float32 array of shape (d, n_labels)
        Column i is w_i. The weights of one visterm for all labels lie together, so that the scores of an image read as
        many pieces of memory as it has visterms.

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range, fewer than two labels, or images of which none can be learned from.
    """

    labels_have_vectors = True
    linear = True
    keeps_columns = False
    _learned: tuple[str, ...] = ("W_",)
    W_: np.ndarray  # (d, n_labels)

    def label_scores(self, X: Any) -> np.ndarray:
        """Score w_i' x of every label for every image: float32 of shape (n, n_labels)."""
        check_is_fitted(self)
        return product(self._check_images(X), self.W_)

    def _label_vectors(self) -> np.ndarray:
        """Weights of the labels less their mean over labels, scaled to unit norm: float32 of shape (n_labels, d).

        What all labels have in common changes no ranking of labels, yet would dominate the inner products. The vectors
        are a copy: as much memory as W.
        """
        W = np.asarray(self.W_)
        return normalize((W - W.mean(axis=1, keepdims=True)).T, copy=False)

    def _sides(self) -> Sides:
        """Label scores less their mean, both sides alike: float32 of shape (n, n_labels)."""
        is_scaled = len(self.classes_) > 2

        def parts(parts: Any, whole: Any) -> np.ndarray:
            length = row_lengths(self._centred_scores(whole))[0] if is_scaled else 1
            return self._centred_scores(parts) / (length or np.float32(1))

        def steps() -> Map:
            W = np.asarray(self.W_)
            product_with_W = Affine(W - W.mean(axis=1, keepdims=True))
            return (product_with_W, Unit()) if is_scaled else (product_with_W,)

        def of(X: Any) -> np.ndarray:
            scores = self._centred_scores(X)
            return unit_rows(scores) if is_scaled else scores

        return Sides(gallery=Side(of, steps, parts), labels=self._label_vectors)

    def _centred_scores(self, X: Any) -> np.ndarray:
        scores = self.label_scores(X)
        return scores - row_means(scores)[:, None]

    def _start(self) -> None:
        self.W_ = np.zeros((self.n_features_in_, len(self.classes_)), np.float32)
