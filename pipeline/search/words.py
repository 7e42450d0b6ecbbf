"""The labels that a text names: several at once, in any order, with near spellings.

>>> labels_of_text("Sunsets at the beech", ["beach", "sunset", "palm tree"])
TextLabels(labels=['sunset', 'beach'], unknown=['at', 'the'])
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .names import fold

if TYPE_CHECKING:
    import numpy as np

MAX_TEXT = 300  # characters
MAX_MODEL_TEXT = 10_000  # of a text for a text model, which reads the first tokens
_WORD = re.compile(r"[^\W_]+")
_SHORTEST = 5  # letters of a word that may be misspelt
_CUTOFF = 0.8  # similarity of near spellings, of difflib
_NEWTON, _SMALL_STEP = 50, 1e-6  # steps at most; the last one


class TextLabels(NamedTuple):
    """Labels that a text names, in its order, and its words that name none."""

    labels: list[str]
    unknown: list[str]


def labels_of_text(text: str, names: Iterable[str]) -> TextLabels:
    """Find the labels of a run that the words of a text name; at most `MAX_TEXT` characters are read.

    The longest names are looked for first, so that "palm tree" is one label. Case, accents, punctuation and a plural do
    not matter; a word of five letters or more may be misspelt.
    """
    words = [match[0] for match in _WORD.finditer(fold(text[:MAX_TEXT]))]
    known: dict[str, str] = {}
    for label in names:
        known.setdefault(" ".join(_WORD.findall(fold(label))), label)
    known.pop("", None)
    longest = max((written.count(" ") + 1 for written in known), default=0)
    labels: dict[str, None] = {}
    unknown: list[str] = []
    at = 0
    while at < len(words):
        size, name = _at(words[at : at + longest], known)
        if name is None:
            unknown.append(words[at])
        else:
            labels[known[name]] = None
        at += size
    return TextLabels(list(labels), unknown)


def _at(words: Sequence[str], known: dict[str, str]) -> tuple[int, str | None]:
    """Return how many of the first words name a label, and which; 1 and None if none does."""
    sizes = range(len(words), 0, -1)
    for size in sizes:
        part = " ".join(words[:size])
        for written in (part, f"{part}s", part.removesuffix("s"), part.removesuffix("es")):
            if written in known:
                return size, written
    for size in sizes:
        part = " ".join(words[:size])
        if len(part) >= _SHORTEST and (near := difflib.get_close_matches(part, known, n=1, cutoff=_CUTOFF)):
            return size, near[0]
    return 1, None


def logistic(scores: np.ndarray, labelled: np.ndarray) -> tuple[float, float]:
    """Fit the probability of a label by the score for it: slope and intercept of a logistic function.

    As Platt (Probabilistic outputs for support vector machines, 1999) does, whose targets keep a label that its scores
    part from all others from being certain. The slope is no less than 0; `labelled` are the images with the label.
    """
    import numpy as np

    mean, spread = float(scores.mean()), float(scores.std()) or 1.0
    A = np.column_stack([(scores.astype(np.float64) - mean) / spread, np.ones(len(scores))])
    n_labelled = int(labelled.sum())
    n_others = len(labelled) - n_labelled
    targets = np.where(labelled, (n_labelled + 1) / (n_labelled + 2), 1 / (n_others + 2))

    def loss(of: np.ndarray) -> float:
        return float(np.logaddexp(0, A @ of).sum() - targets @ A @ of)

    weights = np.array([1.0, np.log((n_labelled + 0.5) / (n_others + 0.5))])
    for _ in range(_NEWTON):
        likely = np.exp(-np.logaddexp(0, -(A @ weights)))
        curvature = (A * (likely * (1 - likely))[:, None]).T @ A + 1e-9 * np.eye(2)
        step = np.linalg.solve(curvature, A.T @ (likely - targets))
        while abs(step).max() > _SMALL_STEP and loss(weights - step) > loss(weights):
            step /= 2
        weights = weights - step
        if abs(step).max() <= _SMALL_STEP:
            break
    slope = max(float(weights[0]), 0.0) / spread
    return slope, float(weights[1]) - slope * mean
