"""Learners by the name that their folders carry, and loading what they saved."""

from __future__ import annotations

import contextlib
import os
from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import storage
from .similarity import BilinearSimilarity, Similarity

if TYPE_CHECKING:
    from .base import SimilarityLearner

_MODULES = {
    "Cosine": "learners.cosine",
    "OASIS": "learners.oasis",
    "AROMA": "learners.aroma",
    "KNNAnnotator": "plugins.annotators.knn",
    "OneVsRestPA": "plugins.annotators.one_vs_rest",
    "PAMIR": "plugins.annotators.pamir",
    "WSABIE": "learners.wsabie",
    "LinearWARP": "plugins.annotators.warp",
    "HIER": "plugins.annotators.hier",
    "LEGO": "plugins.baselines.lego",
    "MCML": "plugins.baselines.mcml",
    "RCA": "plugins.baselines.rca",
    "LabelRidge": "plugins.baselines.label_ridge",
    "Xing": "plugins.baselines.xing",
    "MuSL": "learners.musl",
}
# Those that rank labels: `ranks_labels` of their classes, without importing them.
ANNOTATORS = frozenset({"HIER", "KNNAnnotator", "LinearWARP", "OneVsRestPA", "PAMIR", "WSABIE"})


class _Learners(UserDict[str, Any]):
    """The classes by name, each imported when it is asked for: a search loads the learner that it uses."""

    def __getitem__(self, name: str) -> type[SimilarityLearner]:
        kind = super().__getitem__(name)
        return getattr(import_module(f"visterm.{kind}"), name) if isinstance(kind, str) else kind


LEARNERS = _Learners(_MODULES)


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
        kind: Any = LEARNERS[name]
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


def load_similarity(folder: str | os.PathLike[str], *, mmap_mode: str | None = None, verify: bool = True) -> Similarity:
    """Similarity of the learner that `SimilarityLearner.save` wrote to `folder`.

    That of `OASIS` is loaded without scikit-learn; of other learners, and of what is no whole OASIS, `load_learner`
    gives the learner itself, or says what is wrong.

    Parameters
    ----------
    folder, mmap_mode, verify
        As of `load_learner`.

    Raises
    ------
    ValueError
        As `load_learner`.
    """
    name, params, state = storage.load(folder, mmap_mode=mmap_mode, verify=verify, tables=False)
    kind = BilinearSimilarity
    if (
        name == "OASIS"
        and params.get("variant") is None
        and params.keys() <= kind.settings
        and state.keys() <= kind.state
    ):
        similarity = kind()
        vars(similarity).update(state)
        with contextlib.suppress(Exception):  # load_learner says what is wrong
            similarity._check_state()
            return similarity
    return load_learner(folder, mmap_mode=mmap_mode, verify=verify)
