"""What a report shows, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from visterm.retrieval import Comparison

FILES_BESIDE = {
    "metrics.json": "the figures of the summary, for programs",
    "curves.csv": "precision at every k",
    "neighbours.csv": "the ranked neighbours of every query under every learner",
    "precision_curve.png": "the precision curve as a picture",
    "precision_curve.svg": "the same as a drawing",
}
PROTOCOLS = {
    "test-test": "Each test image is a query; all other test images are ranked.",
    "query-gallery": "Each query image ranks a gallery that does not contain it.",
}


# What the caller gives
@dataclass(frozen=True)
class System:
    """One way of ranking, and its mean figures.

    Parameters
    ----------
    name : str
        As in metrics.json: "oasis", "cosine", "chance".
    map : float
        Mean average precision.
    interval : (float, float) or None
        95 % bootstrap interval of mAP; None where there is no chance in it.
    precision_at : mapping of int to float
        The columns of the summary table, P@1, P@10, ...
    precision_curve : sequence of float
        Precision at k = 1, 2, ...
    steps, train_seconds : optional
        Of a trained system.
    comparison : Comparison or None
        This system (a) against the baseline (b) on average precision.
    p_of_best : float or None
        Of the same test against the learner with the highest mAP, where this is another learner.
    knn_accuracy : float or None
        Mean per-class recall of the votes of the nearest training images, where each image has one label.
    label_precision_at, sibling_precision_at : mapping of int to float
        Of a system that ranks labels for an image; the second where an is-a table was given.
    """

    name: str
    map: float
    interval: tuple[float, float] | None = None
    precision_at: Mapping[int, float] = field(default_factory=dict)
    precision_curve: Sequence[float] = ()
    steps: int | None = None
    train_seconds: float | None = None
    comparison: Comparison | None = None
    p_of_best: float | None = None
    knn_accuracy: float | None = None
    label_precision_at: Mapping[int, float] = field(default_factory=dict)
    sibling_precision_at: Mapping[int, float] = field(default_factory=dict)


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


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows.

    Parameters
    ----------
    title : str
    systems : tuple of System
        Learners, baseline, chance. Pictures, labels and queries are shown of the first.
    baseline : str or None
        Name of the system that it is measured against.
    queries : tuple of Query
        All queries; the report chooses which to show.
    protocol : str
        A key of PROTOCOLS, or words.
    n_queries, n_gallery, n_without_relevant : int
        Queries in the means, gallery images, and queries left out as nothing is relevant to them.
    accuracy_neighbours : int or None
        Training images that voted for k-NN accuracy.
    histories : tuple of History
        Of the learners that have one.
    side_by_side : tuple of (Query, mapping of str to tuple of Result)
        Some queries with the first results of every system but chance.
    groups : mapping of str to list of lists of str
        Of a learner with several metrics: the categories of each.
    warnings : tuple of str
        What the reader should know before believing the figures; the report adds its own.
    facts : mapping of str to str
        Date, command, version, run, data fingerprint, seed, cores: whatever was true, in this order.
    durations : mapping of str to float
        Seconds of each stage.
    environment : mapping of str to str
        Versions and machine.
    config : str
        YAML.
    links : mapping of str to str
        Files beside the report, and what is in them.
    """

    title: str
    systems: tuple[System, ...]
    queries: tuple[Query, ...]
    n_queries: int
    n_gallery: int
    baseline: str | None = "cosine"
    protocol: str = "test-test"
    n_without_relevant: int = 0
    accuracy_neighbours: int | None = None
    histories: tuple[History, ...] = ()
    side_by_side: tuple[tuple[Query, Mapping[str, tuple[Result, ...]]], ...] = ()
    groups: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    durations: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    links: Mapping[str, str] = field(default_factory=lambda: FILES_BESIDE)

    def system(self, name: str | None) -> System | None:
        """The system of that name, or None."""
        return next((system for system in self.systems if system.name == name), None)

    @property
    def learners(self) -> tuple[System, ...]:
        """The systems but baseline and chance; the first system is one in any case."""
        return tuple(s for i, s in enumerate(self.systems) if i == 0 or s.name not in (self.baseline, "chance"))
