"""Contents of a report, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from visterm.retrieval import Comparison

T = TypeVar("T")
FILES_BESIDE = {
    "metrics.json": "the figures of the summary, for programs",
    "curves.csv": "precision at every k",
    "neighbours.csv": "the ranked neighbours of every query under every learner",
    "queries.csv": "average precision of every query under every system",
    "precision_curve.png": "the precision curve as a picture",
    "precision_curve.svg": "the same as a drawing",
}
PROTOCOLS = {
    "test-test": "Each test image is a query; all other test images are ranked.",
    "query-gallery": "Each query image ranks a gallery that does not contain it.",
    "open": "Each test image is a query; all other test images are ranked. The same is then done by learners that are "
    "trained on half of the classes.",
}


def each_label_first(items: Sequence[T], label_of: Callable[[T], Hashable]) -> list[T]:
    """The first item of each label, then the second ones: else one easy label takes all places."""
    seen: Counter[Hashable] = Counter()
    order = []
    for place, label in enumerate(map(label_of, items)):
        order.append((seen[label], place))
        seen[label] += 1
    return [items[place] for _, place in sorted(order)]


@dataclass(frozen=True)
class HeldOut:
    """mAP on held-out images of one of `WORLDS`, and that of the baselines on the same images."""

    map: float
    cosine: float
    chance: float
    n_images: int
    below_cosine: bool = False  # clearly


@dataclass(frozen=True)
class OpenFigures:
    """Means over class splits, of one of `WORLDS`; no standard deviation of a single split."""

    map: float
    p1: float
    map_sd: float | None = None
    map_alone: float | None = None  # without neighbours


@dataclass(frozen=True)
class System:
    """One way of ranking, and its mean figures."""

    name: str  # as in metrics.json: "oasis", "cosine", "chance"
    map: float  # mean average precision
    interval: tuple[float, float] | None = None  # 95 %, of the mAP of as many other classes
    precision_at: Mapping[int, float] = field(default_factory=dict)
    precision_curve: Sequence[float] = ()  # precision at k = 1, 2, ...
    steps: int | None = None  # of a trained system
    train_seconds: float | None = None
    comparison: Comparison | None = None  # with the baseline, on average precision
    p_of_best: float | None = None  # of the same test with the learner with the highest mAP, if it is another one
    knn_accuracy: float | None = None  # mean per-class recall, if each image has one label
    label_precision_at: Mapping[int, float] = field(default_factory=dict)  # of a system that ranks labels for an image
    sibling_precision_at: Mapping[int, float] = field(default_factory=dict)  # of the same, with an is-a table
    label_table: LabelTable | None = None  # of the same
    learned_weight: float = 1.0  # of the learner beside cosine
    held_out: Mapping[str, HeldOut] = field(default_factory=dict)  # by name of WORLDS, those that were validated
    more_measures: Mapping[str, float] = field(default_factory=dict)  # by title, in the order of the table
    query_interval: tuple[float, float] | None = None  # 95 %, of the mAP of other queries of these classes
    map_alone: float | None = None  # without neighbours, where results are ranked by them


@dataclass(frozen=True)
class LabelTable:
    """How well a system labels the test images: of each image annotated with so many labels."""

    n_labels: int
    rows: tuple[tuple[str, int, float, float], ...]  # label, test images that have it, precision, recall

    @property
    def precision(self) -> float:
        """Mean over the labels."""
        return sum(row[2] for row in self.rows) / len(self.rows)

    @property
    def recall(self) -> float:
        """Mean over the labels."""
        return sum(row[3] for row in self.rows) / len(self.rows)

    @property
    def n_recalled(self) -> int:
        """Labels with a recall above zero."""
        return sum(row[3] > 0 for row in self.rows)


@dataclass(frozen=True)
class Result:
    """One ranked image. ``score`` is shown only on demand: it compares results of one query, nothing else."""

    path: str
    labels: tuple[str, ...]
    relevant: bool
    score: float


@dataclass(frozen=True)
class Hits:
    """One query under one system. ``average_precision`` is NaN without relevant images; a first rank 0 is none."""

    average_precision: float
    first_relevant: int
    precision_at_10: float | None = None


@dataclass(frozen=True)
class Query:
    """One query: its figures under the learner and the baseline, and the learner's first results (10 suffice)."""

    path: str
    labels: tuple[str, ...]
    learner: Hits
    baseline: Hits | None = None
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class History:
    """One learner's validation figures along training, the step that was kept, and the baseline's on the same images.

    ``measure`` says what the figures are, mAP or another one.
    """

    steps: Sequence[int]
    values: Sequence[float]
    chosen_step: int | None = None
    baseline: float | None = None
    name: str = "oasis"
    measure: str = "mAP"


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, so that what was drawn of it can be kept
class ReportData:
    """Everything that the report shows."""

    title: str
    systems: tuple[System, ...]  # learners, baseline, chance; pictures, labels and queries are shown of the first
    queries: tuple[Query, ...]  # all of them; the report chooses which to show
    n_queries: int  # in the means
    n_gallery: int
    baseline: str | None = "cosine"  # name of the system that learners are compared with
    protocol: str = "test-test"  # a key of PROTOCOLS, or words
    n_without_relevant: int = 0  # queries without a relevant image, which are not in the means
    n_classes: int = 0  # of the queries in the means
    accuracy_neighbours: int | None = None  # training images that voted for k-NN accuracy
    histories: tuple[History, ...] = ()
    side_by_side: tuple[tuple[Query, Mapping[str, tuple[Result, ...]]], ...] = ()  # first results of each system
    class_splits: int = 0  # of the protocol open
    open_systems: Mapping[str, Mapping[str, OpenFigures]] = field(default_factory=dict)  # its figures, by WORLDS
    groups: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)  # of MuSL: categories of each metric
    warnings: tuple[str, ...] = ()  # shown before those that the report adds
    facts: Mapping[str, str] = field(default_factory=dict)  # date, command, version, seed, ... in this order
    durations: Mapping[str, float] = field(default_factory=dict)  # seconds of each stage
    environment: Mapping[str, str] = field(default_factory=dict)  # versions and machine
    config: str = ""  # YAML
    links: Mapping[str, str] = field(default_factory=lambda: FILES_BESIDE)  # files beside the report, and their content
    closing: str = ""  # the last sentence: what else to try

    def system(self, name: str | None) -> System | None:
        """The system of that name, or None."""
        return next((system for system in self.systems if system.name == name), None)

    @property
    def learners(self) -> tuple[System, ...]:
        """The systems but baseline and chance; the first system is one in any case."""
        return tuple(s for i, s in enumerate(self.systems) if i == 0 or s.name not in (self.baseline, "chance"))
