"""How far a collection has grown away from the visterms and weights that were learned when it was younger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.records import read_record
from visterm.pipeline.store.run import Run

REFIT_COSINE = 0.995  # idf moves little, even where what is in the images changes much
_SAMPLE = 20_000  # images that the cosine is measured on: of more, one cannot tell the difference


def growth(run: Run, collection: Collection) -> dict[str, Any] | None:
    """What came since visterms and idf were learned, and whether to learn them again would pay.

    Parameters
    ----------
    run : Run
    collection : Collection
        Of the run.

    Returns
    -------
    dict or None
        ``images``: how many came or changed since; None: the run is of a version that did not note it. ``mean_cosine``:
        between the vectors of the images under the idf that stands and under one of the images of now; 1: no drift;
        None: nothing came, or there is nothing to measure. ``refit``: learning again would pay. None where no idf was
        learned.

    Notes
    -----
    The idf of now is that of the images that would be learned from now: training images, or all where there are none.
    Images that are not among them move no weight, however many they are. It pays to learn again when the mean cosine is
    below REFIT_COSINE, or when more images came since than were there before: what the new ones look like, the visterms
    may not tell apart, and that the cosine does not show.
    """
    record = read_record(run.extractor)
    file = run.extractor / "files" / "idf.npy"
    if record is None or not file.exists():
        return None
    n_images = collection.counts_by("status")["ok"]
    last = record.get("last_image")
    n_new = None if last is None else collection.n_since(last)
    cosine = None if n_new == 0 else _mean_cosine(collection, file)
    doubled = n_new is not None and n_new > n_images - n_new
    return {"images": n_new, "mean_cosine": cosine, "refit": doubled or (cosine is not None and cosine < REFIT_COSINE)}


def _mean_cosine(collection: Collection, idf_file: Path) -> float | None:
    """Mean over images of the cosine between their vectors under the idf of a file and under that of the images."""
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
    now = VistermWeighting().fit(counts[training] if training.any() else counts)
    standing = VistermWeighting()
    standing.idf_ = np.load(idf_file, allow_pickle=False)
    new, old = now.transform(counts), standing.transform(counts)
    something = (np.diff(new.indptr) > 0) | (np.diff(old.indptr) > 0)
    cosines = np.asarray(new.multiply(old).sum(axis=1)).ravel()[something]
    return round(float(cosines.mean()), 4) if len(cosines) else None
