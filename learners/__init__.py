"""Vectors and supervision in, a similarity out. Each learner is a scikit-learn estimator; see `SimilarityLearner`."""

from __future__ import annotations

import os

from . import storage
from .aroma import AROMA
from .base import SimilarityLearner
from .baselines import LEGO, MCML, RCA, Xing
from .blend import Blend
from .cosine import Cosine
from .hier import HIER
from .knn import KNNAnnotator
from .musl import MuSL
from .neighbors import Embedding, SimilarityNeighbors
from .oasis import OASIS
from .one_vs_rest import OneVsRestPA
from .onnx_maps import to_onnx
from .pamir import PAMIR
from .teachers import TeacherTable
from .triplets import TripletSampler
from .warp import LinearWARP
from .wsabie import WSABIE

__all__ = [
    "AROMA",
    "HIER",
    "LEGO",
    "MCML",
    "LEARNERS",
    "OASIS",
    "PAMIR",
    "RCA",
    "WSABIE",
    "Blend",
    "Cosine",
    "Embedding",
    "KNNAnnotator",
    "LinearWARP",
    "MuSL",
    "OneVsRestPA",
    "SimilarityLearner",
    "SimilarityNeighbors",
    "Teachers",
    "TripletSampler",
    "Xing",
    "load_learner",
    "to_onnx",
]

Teachers = TeacherTable

# Learners by the name that their folders carry.
_KINDS = (
    *(Cosine, OASIS, AROMA, KNNAnnotator, OneVsRestPA, PAMIR, WSABIE),
    *(LinearWARP, HIER, LEGO, MCML, RCA, Xing, MuSL),
)
LEARNERS: dict[str, type[SimilarityLearner]] = {kind.__name__: kind for kind in _KINDS}


def load_learner(
    folder: str | os.PathLike[str], *, mmap_mode: str | None = None, verify: bool = True
) -> SimilarityLearner:
    """Learner that `SimilarityLearner.save` wrote to `folder`.

    Parameters
    ----------
    folder : path
    mmap_mode : {None, "r"}, default=None
        "r" maps the arrays instead of reading them: a search reads only the rows of W that its queries touch. A learner
        copies them before it learns more.
    verify : bool, default=True
        Compare the arrays' checksums, which reads them once; False only compares shapes, types and file sizes.

    Raises
    ------
    ValueError
        No learner there, one of an unknown class or another format version, or a missing or damaged file.
    """
    name, params, state = storage.load(folder, mmap_mode=mmap_mode, verify=verify)
    try:
        kind = LEARNERS[name]
        if "whiten" not in params and "whiten" in kind().get_params():
            params["whiten"] = False  # saved before learners whitened
        learner = kind(**params)
    except KeyError:
        known = ", ".join(sorted(LEARNERS))
        raise ValueError(f"{folder}: unknown learner {name!r}; this version knows {known}") from None
    except TypeError as error:
        raise ValueError(f"{folder}: learner.json does not match {name} ({error}); train again") from None
    foreign = sorted(set(state) - set(learner._state))
    if foreign:
        raise ValueError(f"{folder}: learner.json does not match {name} (unknown state {foreign[0]!r}); train again")
    for key, value in state.items():
        setattr(learner, key, value)
    try:
        learner._check_state()
    except Exception as error:  # of any kind: any part may be missing or wrong
        raise ValueError(f"{folder}: the saved parts do not fit together ({error}); train again") from None
    return learner
