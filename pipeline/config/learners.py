"""The learners that commands know: a row each, from which options, help and the configuration follow.

Nothing of the learners is imported here, which would take seconds (scikit-learn, Numba): what a learner can is said by
attributes of its class, `SimilarityLearner`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_type_hints


class Setting(NamedTuple):
    """A setting whose values have bounds or a check, or whose default differs from the constructor's."""

    default: Any
    bounds: dict[str, Any] = {}  # as pydantic names them: gt, ge, lt
    check: Callable[[Any], Any] | None = None  # returns the value, or raises ValueError
    why: str | None = None  # the default differs; docs/configuration.md shows both and the reason


def _within(default: Any, *, why: str | None = None, **bounds: Any) -> Any:
    return Setting(default, bounds, why=why)


def _checked(default: Any, check: Callable[[Any], Any], why: str | None = None) -> Any:
    return Setting(default, check=check, why=why)


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


class _StopsEarly:
    """Settings of learners that choose their number of steps on held-out images; `patience` has its own default."""

    validation_fraction: float | None = _within(
        0.2,
        gt=0,
        lt=1,
        why="the command holds out a fifth of the training images; fit learns from all that it is given",
    )
    patience: int | None
    refit: bool = True


class _LearnsFromClicks:
    """Settings of learners of triplets."""

    click_cutoff: float | str = _checked(
        0.0, _check_cutoff, "how strongly clicked images must be related; without clicks the command passes None"
    )
    check_negatives: bool = True


class _Balances:
    """Setting of learners whose queries may be drawn class by class."""

    balance: Literal["image", "class"] = "image"


class _OASIS(_StopsEarly, _LearnsFromClicks, _Balances):
    """The online similarity learner; see OASIS."""

    C: float = _within(0.1, gt=0)
    n_steps: int | None = _within(None, gt=0)
    init: Literal["identity", "zero"] = "identity"
    whiten: bool | Literal["auto"] = "auto"
    variant: Literal["symmetric", "online-symmetric", "dissim", "psd"] | None = None
    psd_every: int | None = _within(None, gt=0)
    pairs_per_query: int = _within(256, gt=0)
    n_rankers: int = _within(1, gt=0)
    mix_every: int | None = _within(None, gt=0)
    lock_free: bool = False
    pass_steps: int = _within(250_000, gt=0)
    patience = _within(5, gt=0)


class _AROMA(_StopsEarly, _LearnsFromClicks, _Balances):
    """The online similarity learner with a covariance; see AROMA."""

    covariance: Literal["diagonal", "factored"] = "diagonal"
    r: float = _checked(1.0, _check_precision)
    n_steps: int = _within(300_000, gt=0)
    init: Literal["zero", "identity"] | None = None
    whiten: bool | Literal["auto"] = "auto"
    pairs_per_query: int | None = _within(None, gt=0)
    pass_steps: int = _within(10_000, gt=0)
    patience = _within(5, gt=0)


class _WSABIE(_StopsEarly):
    """Images and labels in one space; see WSABIE."""

    n_components: int | list[int] = _checked(100, _check_sizes)
    max_norm: float = _within(1.0, gt=0)
    learning_rate: float = _within(0.02, gt=0)
    decay_steps: int | Literal["auto"] | None = _checked("auto", _check_decay)
    loss: Literal["warp", "auc", "owpc"] = "warp"
    whiten: bool | Literal["auto"] = "auto"
    n_steps: int | None = _within(None, gt=0)
    pass_steps: int = _within(10_000, gt=0)
    patience = _within(10, gt=0)


class _LinearWARP(_StopsEarly):
    """Labels ranked by one vector of weights each, learned by WSABIE's loss; see LinearWARP."""

    max_norm: float = _within(10.0, gt=0)
    learning_rate: float = _within(0.1, gt=0)
    decay_steps: int | Literal["auto"] | None = _checked("auto", _check_decay)
    n_steps: int | None = _within(None, gt=0)
    pass_steps: int = _within(10_000, gt=0)
    patience = _within(10, gt=0)


class _PAMIR(_StopsEarly):
    """Labels ranked by one vector of weights each, learned by comparisons; see PAMIR."""

    C: float | None = _within(None, gt=0)  # null: 0.01 for visterms, 0.1 for dense vectors
    n_steps: int = _within(1_000_000, gt=0)
    pass_steps: int = _within(20_000, gt=0)
    patience = _within(10, gt=0)


class _OneVsRest(_StopsEarly):
    """Labels ranked by a classifier each; see OneVsRestPA."""

    C: float = _within(0.03, gt=0)
    n_steps: int = _within(200_000, gt=0)
    pass_steps: int = _within(2_000, gt=0)
    patience = _within(10, gt=0)


class _HIER(_OneVsRest):
    """Images compared by class probabilities and a hierarchy of the classes; see HIER."""

    is_a: str | None = None  # CSV file with the columns label,parent; null: classes are like themselves only


class _KNN:
    """Labels of the most similar training images; see KNNAnnotator."""

    n_neighbors: int = _within(30, gt=0)
    weights: Literal["similarity", "uniform"] = "similarity"
    algorithm: Literal["exact", "tree"] = "exact"
    leaf_size: int = _within(1_000, gt=0)


class _LEGO(_StopsEarly, _LearnsFromClicks):
    """The online metric learner; see LEGO."""

    loss: Literal["triplet", "pairs"] = "triplet"
    eta: float = _within(0.02, gt=0)
    margin: float = _within(1.0, gt=0)  # in squared distances, as near and far
    near: float = _within(1.0, gt=0)
    far: float = _within(2.0, gt=0)
    n_steps: int = _within(50_000, gt=0)
    pass_steps: int = _within(5_000, gt=0)
    patience = _within(3, gt=0)

    def check(self) -> Any:
        if self.near >= self.far:
            raise ValueError(f"near must be smaller than far, not {self.near:g} and {self.far:g}")
        return self


class _MCML(_StopsEarly):
    """The metric that collapses classes; see MCML."""

    trace_penalty: float = _within(0.003, ge=0)
    n_steps: int = _within(60, gt=0)
    tol: float = _within(1e-6, ge=0)
    pass_steps: int = _within(10, gt=0)
    validation_fraction = _within(None, gt=0, lt=1)
    patience = _within(None, gt=0)


class _MuSL:
    """A few metrics, each for a group of categories; see MuSL."""

    n_metrics: int = _within(5, gt=0)
    n_bits: int = _within(32, gt=0)
    alpha: float = _within(0.5, gt=0)
    midpoint: Literal["final", "running"] = "running"
    balanced: bool = True
    r: float = _within(500.0, gt=0)
    negatives_per_example: int = _within(1_000, gt=0)
    grouping: Literal["joint", "kmeans", "random"] = "joint"
    retrain: bool = True
    n_starts: int = _within(1, gt=0)
    max_images: int | None = _within(5_000, gt=1)  # a random sample of this many if there are more


class Row(NamedTuple):
    """A learner, under the name that its section, its folder and the option --learner have."""

    class_name: str  # in visterm.learners
    title: str  # on the page, for people who have not read about learners
    settings: type  # the constructor's keywords, with the values that commands take; `check` looks at several
    tried: dict[str, list[Any]]  # by `visterm tune`: values that a person would write, see search_spaces.py


def settings_of(row: Row) -> dict[str, tuple[Any, Setting]]:
    """Return type and value of each setting of a learner: its own, then those that it shares with others."""
    kinds = get_type_hints(row.settings)
    names = [name for declared in row.settings.__mro__ for name in inspect.get_annotations(declared)]
    values = {name: getattr(row.settings, name) for name in names}
    return {name: (kinds[name], v if isinstance(v, Setting) else Setting(v)) for name, v in values.items()}


TABLE = {
    "oasis": Row(
        "OASIS",
        "Learned similarity (OASIS)",
        _OASIS,
        {"C": [0.01, 0.03, 0.1, 0.3, 1.0], "init": ["identity", "zero"], "pairs_per_query": [32, 256]},
    ),
    "aroma": Row(
        "AROMA",
        "Learned similarity (AROMA)",
        _AROMA,
        {"r": [0.01, 0.1, 1.0, 10.0, 100.0], "init": ["zero", "identity"], "pairs_per_query": [1, 32]},
    ),
    "wsabie": Row(
        "WSABIE",
        "Learned labels (WSABIE)",
        _WSABIE,
        {
            "n_components": [50, 100, 200],
            "learning_rate": [0.005, 0.01, 0.02, 0.05, 0.1],
            "max_norm": [1.0, 3.0],
            "decay_steps": [10_000, 100_000, None],
        },
    ),
    "musl": Row(
        "MuSL",
        "Learned similarity per label (MuSL)",
        _MuSL,
        {"n_metrics": [1, 3, 5, 8], "alpha": [0.1, 0.5, 1.0], "r": [50.0, 500.0, 5000.0]},
    ),
    "lego": Row(
        "LEGO",
        "Learned similarity (LEGO)",
        _LEGO,
        {"eta": [0.002, 0.005, 0.02, 0.08, 0.32], "margin": [0.3, 1.0, 3.0], "loss": ["triplet", "pairs"]},
    ),
    "mcml": Row("MCML", "Learned similarity (MCML)", _MCML, {"trace_penalty": [0.0, 0.001, 0.003, 0.01, 0.03]}),
    "pamir": Row("PAMIR", "Learned labels (PAMIR)", _PAMIR, {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}),
    "warp": Row(
        "LinearWARP",
        "Learned similarity (WARP)",
        _LinearWARP,
        {"learning_rate": [0.01, 0.03, 0.1, 0.3, 1.0], "max_norm": [3.0, 10.0, 30.0]},
    ),
    "ovr": Row(
        "OneVsRestPA", "Learned labels (one vs rest)", _OneVsRest, {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}
    ),
    "hier": Row("HIER", "Learned similarity (HIER)", _HIER, {"C": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]}),
    "knn": Row(
        "KNNAnnotator",
        "Labels of neighbours (k-NN)",
        _KNN,
        {"n_neighbors": [3, 10, 30, 100], "weights": ["similarity", "uniform"]},
    ),
}
