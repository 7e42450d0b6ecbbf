"""Drift: how far the images have changed since visterms and idf were learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.opened import OpenedRun

REFIT_COSINE = 0.995  # idf changes little even if the content of the images changes much
_SAMPLE = 20_000  # images that the cosine is measured on; more would not change it visibly


def measure_drift(run: OpenedRun) -> dict[str, Any] | None:
    """Measure the change since visterms and idf were learned, and whether to learn them again; None without idf.

    ``images`` is the number of new or changed ones. ``mean_cosine`` compares the vectors under the idf in use with
    those under the idf of the images that would be learned from now; None if nothing is new. ``refit`` is true if it is
    below REFIT_COSINE, or if more than half of the images are new: the visterms may not tell them apart, which the
    cosine does not show.
    """
    record, collection = run.record(run.extractor), run.catalogue
    file = run.extractor / "files" / "idf.npy"
    if record is None or not file.exists():
        return None
    n_images = collection.counts_by("status")["ok"]
    n_new = collection.n_since(record["last_image"])
    cosine = _mean_cosine(collection, file) if n_new else None
    refit = n_new > n_images - n_new or (cosine is not None and cosine < REFIT_COSINE)
    return {"images": n_new, "mean_cosine": cosine, "refit": refit}


def _mean_cosine(collection: Collection, idf_file: Path) -> float | None:
    """Return the mean cosine of the images' vectors under the idf of a file with those under the images' own idf."""
    import numpy as np

    from visterm.features import VistermWeighting

    images = collection.images()
    if len(images) > _SAMPLE:
        chosen = np.random.default_rng(0).choice(len(images), _SAMPLE, replace=False)
        images = [images[i] for i in np.sort(chosen)]
    if not images:
        return None
    counts = collection.counts(images)
    training = np.array([image.split == "train" for image in images])
    current = VistermWeighting().fit(counts[training] if training.any() else counts)
    in_use = VistermWeighting()
    in_use.idf_ = np.load(idf_file, allow_pickle=False)
    new, old = current.transform(counts), in_use.transform(counts)
    not_empty = (np.diff(new.indptr) > 0) | (np.diff(old.indptr) > 0)
    cosines = np.asarray(new.multiply(old).sum(axis=1)).ravel()[not_empty]
    return round(float(cosines.mean()), 4) if len(cosines) else None
