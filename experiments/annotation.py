"""Image annotation, the experiments of the WSABIE paper: ``python -m experiments annotation [--quick]``.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6: tables 2 and 4 to 7, figures 1 and 2. Photos of 38 categories, by the protocol of experiments/protocol.py:
settings by cross-validation on the training images, precision at 1 chooses. configs/caltech101-is-a.csv says which
labels are siblings.

38 labels are few, and the WARP loss was made for many. So the losses also learn which of 1,400 words stand in the
subject line of a post of 20 Newsgroups, from the post's text.
"""

from __future__ import annotations

from typing import Any

from .annotation_page import page
from .annotation_systems import FOLDS, N_WORD_REPEATS, measure

__all__ = ["ALONE", "SOURCES", "jobs", "measure", "page"]

ALONE = False
SOURCES: tuple[str, ...] = (
    "experiments/annotation_systems.py",
    "experiments/newsgroups.py",
    "pipeline/evaluation/is_a.py",
    "configs/caltech101-is-a.csv",
)


def jobs(quick: bool) -> list[dict[str, Any]]:
    """Jobs, the long ones first."""
    if quick:
        parts, dimensions, folds = ["auc", "warp", "linear", "neighbors", "same"], (1000,), 1
        found = [{"part": "words", "losses": ["warp", "auc"], "fold": 0, "small": True}]
    else:
        parts, dimensions, folds = ["warp", "auc", "linear", "neighbors"], (10_000, 1000), FOLDS
        found = [
            {"part": "words", "losses": [loss], "fold": repeat}
            for loss in ("owpc", "warp", "auc")
            for repeat in range(N_WORD_REPEATS)
        ]
        found += [{"part": "same", "d": 1000, "fold": fold} for fold in range(folds)]
    found.append({"part": "examples", "d": 1000, "fold": 0})
    return found + [
        {"part": part, "d": d, "fold": fold, "small": quick}
        for d in dimensions
        for part in parts
        for fold in range(folds)
    ]
