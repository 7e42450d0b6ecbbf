"""The learners that commands know: a row each, from which options, help and the configuration follow.

Nothing of the learners is imported here, which would take seconds (scikit-learn, Numba): what a learner can is said by
attributes of its class, `SimilarityLearner`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple


class Setting(NamedTuple):
    """A setting whose values have bounds or a check, or whose default differs from the constructor's."""

    default: Any
    bounds: dict[str, Any] = {}  # as pydantic names them: gt, ge, lt
    check: Callable[[Any], Any] | None = None  # returns the value, or raises ValueError
    why: str | None = None  # the default differs; docs/configuration.md shows both and the reason


def _within(default: Any, **bounds: Any) -> Any:
    return Setting(default, bounds)


def _checked(default: Any, check: Callable[[Any], Any], why: str | None = None) -> Any:
    return Setting(default, check=check, why=why)


def _differs(default: Any, why: str, **bounds: Any) -> Any:
    return Setting(default, bounds, why=why)


# Why a default of the command differs from that of the class.
_STOPS_EARLY = "an upper bound: the command stops early on held-out images"
_BY_IMAGES = "an upper bound by the number of images: the command stops early on held-out images"
_STOPS_EARLY_AFTER = "validation checks without improvement; a call of fit has none unless asked"
_FEWER_CHECKS = "longer trainings need fewer validation checks per step"
_HELD_OUT = "the command holds out a fifth of the training images; fit learns from all that it is given"
_REFIT = "once the best number of steps is known, learn from all training images"
_CLICKS = "how strongly clicked images must be related; without clicks the command passes None"
_WHITEN = "the papers learn in the vectors as they are; whitened dense vectors are a better start"
_FOREST_STUDY = "the class has the paper's figure; this did best in the study of docs/learners.md"


def _check_cutoff(cutoff: float | str) -> float | str:
    share = re.fullmatch(r"top (\d+(?:\.\d+)?) ?%", cutoff) if isinstance(cutoff, str) else None
    if not (0 < float(share[1]) <= 100 if share else isinstance(cutoff, float | int) and cutoff >= 0):
        raise ValueError(f"click_cutoff is a number of at least 0, or a share such as top 1 %, not {cutoff}")
    return cutoff


def _check_precision(r: float) -> float:
    if not 1e-30 <= r <= 1e30:
        raise ValueError(f"r must be positive, from 1e-30 to 1e30, not {r:g}")
    return r


def _check_decay(decay_steps: int | str | None) -> int | str | None:
    if isinstance(decay_steps, int) and decay_steps < 1:
        raise ValueError(f"decay_steps is a positive number, auto or null, not {decay_steps}")
    return decay_steps


def _check_sizes(n_components: int | list[int]) -> int | list[int]:
    sizes = n_components if isinstance(n_components, list) else [n_components]
    if not sizes or min(sizes) < 1:
        raise ValueError(f"n_components is a positive number, or a list of some, not {n_components}")
    return n_components


class _OASIS:
    """The online similarity learner; see OASIS."""

    C: float = _within(0.1, gt=0)
    n_steps: int | None = _differs(None, _BY_IMAGES, gt=0)  # null: 4,000,000, or 1,000 per image if that is more
    init: Literal["identity", "zero"] = "identity"
    whiten: bool | Literal["auto"] = _differs("auto", _WHITEN)
    variant: Literal["symmetric", "online-symmetric", "dissim", "psd"] | None = None
    psd_every: int | None = _within(None, gt=0)
    pairs_per_query: int = _within(256, gt=0)
    n_rankers: int = _within(1, gt=0)
    mix_every: int | None = _within(None, gt=0)
    lock_free: bool = False
    pass_steps: int = _within(250_000, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(5, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)
    click_cutoff: float | str = _checked(0.0, _check_cutoff, _CLICKS)
    check_negatives: bool = True
    balance: Literal["image", "class"] = "image"


class _AROMA:
    """The online similarity learner with a covariance; see AROMA."""

    covariance: Literal["diagonal", "factored"] = "diagonal"
    r: float = _checked(1.0, _check_precision)
    n_steps: int = _differs(300_000, _STOPS_EARLY, gt=0)
    init: Literal["zero", "identity"] | None = _differs(None, "identity where vectors are whitened, else zero")
    whiten: bool | Literal["auto"] = _differs("auto", _WHITEN)
    pairs_per_query: int | None = _within(None, gt=0)
    pass_steps: int = _differs(10_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(5, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)
    click_cutoff: float | str = _checked(0.0, _check_cutoff, _CLICKS)
    check_negatives: bool = True
    balance: Literal["image", "class"] = "image"


class _WSABIE:
    """Images and labels in one space; see WSABIE."""

    n_components: int | list[int] = _checked(100, _check_sizes)
    max_norm: float = _within(1.0, gt=0)
    learning_rate: float = _within(0.02, gt=0)
    decay_steps: int | Literal["auto"] | None = _checked("auto", _check_decay)
    loss: Literal["warp", "auc", "owpc"] = "warp"
    whiten: bool | Literal["auto"] = _differs("auto", _WHITEN)
    n_steps: int | None = _differs(None, _BY_IMAGES, gt=0)  # null: 500,000, or 200 per image if that is more
    pass_steps: int = _differs(10_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class _LinearWARP:
    """Labels ranked by one vector of weights each, learned by WSABIE's loss; see LinearWARP."""

    max_norm: float = _within(10.0, gt=0)
    learning_rate: float = _within(0.1, gt=0)
    decay_steps: int | Literal["auto"] | None = _checked("auto", _check_decay)
    n_steps: int | None = _differs(None, _BY_IMAGES, gt=0)  # null: 500,000, or 200 per image if that is more
    pass_steps: int = _differs(10_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class _PAMIR:
    """Labels ranked by one vector of weights each, learned by comparisons; see PAMIR."""

    C: float | None = _within(None, gt=0)  # null: 0.01 for visterms, 0.1 for dense vectors
    n_steps: int = _differs(1_000_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(20_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class _OneVsRest:
    """Labels ranked by a classifier each; see OneVsRestPA."""

    C: float = _within(0.03, gt=0)
    n_steps: int = _differs(200_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(2_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class _HIER:
    """Images compared by class probabilities and a hierarchy of the classes; see HIER."""

    is_a: str | None = None  # CSV file with the columns label,parent; null: classes are like themselves only
    C: float = _within(0.03, gt=0)
    n_steps: int = _differs(200_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(2_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(10, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)


class _KNN:
    """Labels of the most similar training images; see KNNAnnotator."""

    n_neighbors: int = _within(30, gt=0)
    weights: Literal["similarity", "uniform"] = "similarity"
    algorithm: Literal["exact", "tree"] = "exact"
    leaf_size: int = _within(1_000, gt=0)


class _LEGO:
    """The online metric learner; see LEGO."""

    loss: Literal["triplet", "pairs"] = "triplet"
    eta: float = _within(0.02, gt=0)
    margin: float = _within(1.0, gt=0)  # in squared distances, as near and far
    near: float = _within(1.0, gt=0)
    far: float = _within(2.0, gt=0)
    n_steps: int = _differs(50_000, _STOPS_EARLY, gt=0)
    pass_steps: int = _differs(5_000, _FEWER_CHECKS, gt=0)
    validation_fraction: float | None = _differs(0.2, _HELD_OUT, gt=0, lt=1)
    patience: int | None = _differs(3, _STOPS_EARLY_AFTER, gt=0)
    refit: bool = _differs(True, _REFIT)
    click_cutoff: float | str = _checked(0.0, _check_cutoff, _CLICKS)
    check_negatives: bool = True

    def check(self) -> Any:
        if self.near >= self.far:
            raise ValueError(f"near must be smaller than far, not {self.near:g} and {self.far:g}")
        return self


class _MCML:
    """The metric that collapses classes; see MCML."""

    trace_penalty: float = _differs(0.003, "0 is the paper's problem, which overfits; chosen on training images", ge=0)
    n_steps: int = _differs(60, "enough on Caltech-101; an iteration takes seconds", gt=0)
    tol: float = _within(1e-6, ge=0)
    pass_steps: int = _differs(10, "a check every ten iterations", gt=0)
    validation_fraction: float | None = _within(None, gt=0, lt=1)
    patience: int | None = _within(None, gt=0)
    refit: bool = _differs(True, _REFIT)


class _MuSL:
    """A few metrics, each for a group of categories; see MuSL."""

    n_metrics: int = _within(5, gt=0)
    n_bits: int = _within(32, gt=0)
    alpha: float = _differs(0.5, _FOREST_STUDY, gt=0)
    midpoint: Literal["final", "running"] = _differs("running", _FOREST_STUDY)
    balanced: bool = _differs(True, _FOREST_STUDY)
    r: float = _within(500.0, gt=0)
    negatives_per_example: int = _within(1_000, gt=0)
    grouping: Literal["joint", "kmeans", "random"] = "joint"
    retrain: bool = True
    n_starts: int = _within(1, gt=0)
    max_images: int | None = _within(5_000, gt=1)  # a random sample of this many if there are more


class Row(NamedTuple):
    """A learner, under the name that its section, its folder and the option --learner have."""

    class_name: str  # in visterm.learners
    settings: type  # the constructor's keywords, with the values that commands take; `check` looks at several
    tried: dict[str, list[Any]]  # by `visterm tune`: values that a person would write, see search_spaces.py
    steps: tuple[int, int] | None = None  # where n_steps is null: at least, and per image, to learn from each as often


TABLE = {
    "oasis": Row(
        "OASIS",
        _OASIS,
        {"C": [0.01, 0.03, 0.1, 0.3, 1.0], "init": ["identity", "zero"], "pairs_per_query": [32, 256]},
        (4_000_000, 1_000),
    ),
    "aroma": Row(
        "AROMA",
        _AROMA,
        {"r": [0.01, 0.1, 1.0, 10.0, 100.0], "init": ["zero", "identity"], "pairs_per_query": [1, 32]},
    ),
    "wsabie": Row(
        "WSABIE",
        _WSABIE,
        {
            "n_components": [50, 100, 200],
            "learning_rate": [0.005, 0.01, 0.02, 0.05, 0.1],
            "max_norm": [1.0, 3.0],
            "decay_steps": [10_000, 100_000, None],
        },
        (500_000, 200),
    ),
    "musl": Row("MuSL", _MuSL, {"n_metrics": [1, 3, 5, 8], "alpha": [0.1, 0.5, 1.0], "r": [50.0, 500.0, 5000.0]}),
    "lego": Row(
        "LEGO",
        _LEGO,
        {"eta": [0.002, 0.005, 0.02, 0.08, 0.32], "margin": [0.3, 1.0, 3.0], "loss": ["triplet", "pairs"]},
    ),
    "mcml": Row("MCML", _MCML, {"trace_penalty": [0.0, 0.001, 0.003, 0.01, 0.03]}),
    "pamir": Row("PAMIR", _PAMIR, {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}),
    "warp": Row(
        "LinearWARP",
        _LinearWARP,
        {"learning_rate": [0.01, 0.03, 0.1, 0.3, 1.0], "max_norm": [3.0, 10.0, 30.0]},
        (500_000, 200),
    ),
    "ovr": Row("OneVsRestPA", _OneVsRest, {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}),
    "hier": Row("HIER", _HIER, {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}),
    "knn": Row("KNNAnnotator", _KNN, {"n_neighbors": [3, 10, 30, 100], "weights": ["similarity", "uniform"]}),
}
