"""Samplers that passes draw from: of a learner's kind, with its parameters, over all images or some."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from .rows import readonly
from .triplets import TripletSampler

_log = logging.getLogger(__name__)

# Labels as kernels take them, read-only: label_start (n + 1,) int64, labels (nnz,) int32, sorted for each image, and
# usable (m,) int32, the images that have a label and lack another. A plain tuple: triplets.py says why.
Labels = tuple[np.ndarray, np.ndarray, np.ndarray]


def triplets_of(learner: Any, y: Any, subset: np.ndarray | None) -> TripletSampler:
    """Sampler for a learner, with its parameters."""
    settings = {"cutoff": learner.click_cutoff, "check_negatives": learner.check_negatives, "balance": learner.balance}
    sampler = TripletSampler(y, subset=subset, **settings)
    if sampler.n_skipped_:
        why = "they have no other image of their class" if y.ndim == 1 else "no related or no unrelated image"
        _log.warning("%d of %d images are never a query: %s", sampler.n_skipped_, y.shape[0], why)
    return sampler


def classes_of(learner: Any, y: Any, subset: np.ndarray | None) -> np.ndarray:
    """Number of each image's class, for a learner that learns from all images at once."""
    triplets_of(learner, y, subset)  # refuses labels without two classes, and says how many images are alone
    return np.unique(y if subset is None else y[subset], return_inverse=True)[1]


def labels_of(annotator: Any, y: Any, subset: np.ndarray | None) -> Labels:
    """Labels of the images that can be learned from, as kernels take them."""
    labels = annotator._labels(y) if subset is None else annotator._labels(y)[subset]
    n_labels = np.diff(labels.indptr)
    usable = np.flatnonzero((n_labels > 0) & (n_labels < labels.shape[1]))
    if not len(usable):
        raise ValueError("no image has a label and lacks another, so no pair of labels can be ranked")
    if len(usable) < len(n_labels):
        n_skipped = len(n_labels) - len(usable)
        _log.warning("skipped %d of %d images: they have no label or all labels", n_skipped, len(n_labels))
    return (
        readonly(labels.indptr.astype(np.int64)),
        readonly(labels.indices.astype(np.int32)),
        readonly(usable.astype(np.int32)),
    )


SAMPLERS: dict[str, Callable[[Any, Any, np.ndarray | None], Any]] = {
    "triplets": triplets_of,
    "labels": labels_of,
    "classes": classes_of,
}
