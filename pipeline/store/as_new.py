"""Counts of visterms of held-out images that the codebook was learned from, as if they were new photos.

See `visterm.features.VistermExtractor`, ``held_out_counts_``. Learners measure these images by them: early stopping,
and the learner that is recommended.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from visterm.pipeline.errors import UserError

from .images import Image
from .records import repair_hint
from .run import Run
from .vectors import weights_of

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse
else:
    from visterm import numpy as np
    from visterm import sparse

_FOLDER = "as_new"  # beside the files of the extractor
_ARRAYS = ("ids", "indptr", "indices", "counts")


def save_counts_as_new(
    folder: Path, ids: Sequence[int], groups: Sequence[Sequence[int]], counts: Sequence[sparse.csr_matrix]
) -> None:
    """Write the counts of groups of images beside the files of an extractor; an image is counted in its first group.

    `ids` are the numbers of all images in the catalogue, `groups` places in them.
    """
    _, first = np.unique(np.concatenate(groups), return_index=True)
    kept = sparse.vstack(counts, format="csr")[first]
    arrays = np.array(ids)[np.concatenate(groups)[first]], kept.indptr, kept.indices, kept.data
    (folder / _FOLDER).mkdir()
    for name, array in zip(_ARRAYS, arrays, strict=True):
        np.save(folder / _FOLDER / f"{name}.npy", array, allow_pickle=False)


def keep_counts_as_new(run: Run, folder: Path) -> None:
    """Copy them into a folder that takes the place of the extractor of a run."""
    if (run.extractor / _FOLDER).is_dir():
        shutil.copytree(run.extractor / _FOLDER, folder / _FOLDER)


def counts_as_new(run: Run, images: Sequence[Image], n_visterms: int) -> tuple[np.ndarray, sparse.csr_matrix]:
    """Read the places of such images among others, and their counts; both may be empty."""
    folder = run.extractor / _FOLDER
    if not folder.is_dir():
        return np.empty(0, np.int64), sparse.csr_matrix((0, n_visterms), dtype=np.int32)
    try:
        ids, indptr, indices, data = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in _ARRAYS)
        counts = sparse.csr_matrix((data, indices, indptr), shape=(len(ids), n_visterms))
        counts.check_format(full_check=True)
        row_of = {id_: row for row, id_ in enumerate(ids.tolist())}
    except (OSError, ValueError, TypeError, EOFError, TokenError) as error:
        raise UserError(f"{folder}: damaged ({error}); {repair_hint(run.extractor)}") from None
    places = [place for place, image in enumerate(images) if image.id in row_of]
    rows = np.array([row_of[images[place].id] for place in places], np.int64)
    return np.array(places, np.int64), counts[rows]


def measure_as_new(run: Run, learner: Any, images: Sequence[Image]) -> None:
    """Let a learner measure those of its images that it holds out as new ones; nothing where they are so anyway."""
    weighting = weights_of(run)
    if weighting is None or not learner.validates:
        return
    places, counts = counts_as_new(run, images, len(weighting.idf_))
    if len(places):
        learner.measure_as_new(places, weighting.transform(counts))
