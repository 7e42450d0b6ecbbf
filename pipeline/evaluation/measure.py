"""Measures of one learner: its rankings, its k-nearest-neighbour accuracy, the labels that it predicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from visterm.learners import SimilarityLearner
from visterm.learners.blend import effective
from visterm.pipeline.store.images import Image
from visterm.retrieval import (
    Evaluation,
    ExactIndex,
    Ranking,
    evaluate_index,
    knn_accuracy,
    label_precision_at,
    mean_recall,
    precision_recall_per_label,
    sibling_precision_at,
)

from .held_out import ranking_index

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

LABEL_KS = (1, 5, 10)  # k of the precision of the first k labels
LABELS_PER_IMAGE = 5  # labels that an image that may have several is annotated with, for precision and recall per label
_BLOCK = 4096  # images that are annotated at a time


class LabelFigures(NamedTuple):
    """How well one label is predicted."""

    label: str
    n_images: int  # test images that have it
    precision: float
    recall: float


class Annotation(NamedTuple):
    """Precision of the labels ranked for the test images; means over the images."""

    precision_at: dict[int, float]
    sibling_precision_at: dict[int, float]  # empty without an is-a table
    n_unknown_labels: int  # labels of test images that no training image has: never predicted
    per_label: tuple[LabelFigures, ...] = ()  # of the labels that test images have
    labels_per_image: int = 0  # with which each image was annotated for that

    def as_json(self) -> dict[str, Any]:
        """Return the figures as in metrics.json."""
        figures: dict[str, Any] = {"precision_at": {str(k): value for k, value in self.precision_at.items()}}
        if self.sibling_precision_at:
            figures["sibling_precision_at"] = {str(k): value for k, value in self.sibling_precision_at.items()}
        if self.per_label:
            precision, recall = (float(np.mean([label[i] for label in self.per_label])) for i in (2, 3))
            f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
            n_recalled = sum(label.recall > 0 for label in self.per_label)
            means = {"labels_per_image": self.labels_per_image, "precision": precision, "recall": recall, "f1": f1}
            figures["per_label"] = means | {"n_labels": len(self.per_label), "n_recalled": n_recalled}
        return figures | {"n_unknown_labels": self.n_unknown_labels}


class SystemResult(NamedTuple):
    """Measures of one system, and its first results for every query."""

    learner: SimilarityLearner
    trained: Mapping[str, Any]  # its record; empty for cosine
    evaluation: Evaluation
    ranking: Ranking
    alone: Evaluation | None = None  # without neighbours, where results are ranked by them
    accuracy: float | None = None
    annotation: Annotation | None = None


class EvalTask(NamedTuple):
    """The images that systems are measured on."""

    queries: Sequence[Image]
    gallery: Sequence[Image]
    train: Sequence[Image]  # the voters of k-nearest-neighbour accuracy
    Q: Any  # vectors: CSR, an array, or `StoredVectors`
    X: Any
    X_train: Any | None
    relevance: sparse.csr_matrix
    classes: tuple[np.ndarray, np.ndarray] | None  # of queries and training images, if each has just one label
    siblings: tuple[list[str], sparse.csr_array] | None  # labels, and the matrix of sibling pairs

    @property
    def groups(self) -> np.ndarray:
        """Class of each query, for intervals: of several labels the rarest; those without any are one."""
        return self._groups_of(self.queries)

    @property
    def numbered(self) -> tuple[np.ndarray, np.ndarray]:
        """Number of the class of each query and of each gallery image; -1 for classes without queries."""
        names, of_queries = np.unique(self.groups, return_inverse=True)
        numbers = {name: i for i, name in enumerate(names)}
        return of_queries, np.array([numbers.get(name, -1) for name in self._groups_of(self.gallery)])

    def _groups_of(self, images: Sequence[Image]) -> np.ndarray:
        n_queries = Counter(label for image in self.queries for label in image.labels)
        return np.array(
            [min(image.labels, key=lambda label: (n_queries[label], label), default="") for image in images]
        )

    @property
    def own(self) -> bool:
        """Whether the queries are the gallery; each query is excluded from its own ranking."""
        return self.queries is self.gallery


def measure(learner: SimilarityLearner, trained: Mapping[str, Any], task: EvalTask, config: Config) -> SystemResult:
    """Measure one learner; ``trained`` is its record."""
    n_jobs = config.compute.n_jobs
    k = min(config.evaluate.neighbours, len(task.gallery) - task.own)
    exclude = np.arange(len(task.queries)) if task.own else np.full(len(task.queries), -1)
    # Learners may read the labels of training images, but not those of test images, which are what is measured.
    labels = None if task.own or task.classes is None else task.classes[1]
    similarity = effective(learner)
    exact = ExactIndex(similarity, task.X, labels, n_jobs=n_jobs)
    index, max_k = ranking_index(exact, task.X, config), config.evaluate.max_k
    evaluation = evaluate_index(index, task.Q, task.relevance, exclude=exclude, max_k=max_k, classes=task.numbered)
    alone = None
    if index is not exact:
        alone = evaluate_index(exact, task.Q, task.relevance, exclude=exclude, max_k=max_k)
    ranking = index.search(task.Q, k=k, exclude=exclude)
    accuracy = None
    if task.classes is not None:
        if task.own:
            exact = ExactIndex(similarity, task.X_train, task.classes[1], n_jobs=n_jobs)
        n_votes = min(config.evaluate.accuracy_neighbours, exact.n_gallery)
        if learner.by_category:  # MuSL's distances are integers: many tie, and share the votes
            predicted = learner.categorize(task.Q, task.X_train, task.classes[1], n_neighbors=n_votes)
            accuracy = mean_recall(task.classes[0], predicted)
        else:
            accuracy = knn_accuracy(exact.search(task.Q, k=n_votes), *task.classes, n_votes)
    return SystemResult(learner, trained, evaluation, ranking, alone, accuracy, _annotation(learner, trained, task))


def _annotation(learner: Any, trained: Mapping[str, Any], task: EvalTask) -> Annotation | None:
    """Return the precision of the labels that an annotator ranks for the test images; None for other learners."""
    if not learner.ranks_labels:
        return None
    known = trained["labels"]
    of_queries = {label for image in task.queries for label in image.labels}
    if of_queries.isdisjoint(known):  # whole classes are tested
        return None
    names = task.siblings[0] if task.siblings is not None else sorted({*known, *of_queries})
    number = {name: i for i, name in enumerate(names)}
    ks = [k for k in LABEL_KS if k <= len(known)]
    parts = (task.Q[start : start + _BLOCK] for start in range(0, len(task.queries), _BLOCK))
    ranked = np.array([number[name] for name in known])[
        np.concatenate([learner.annotate(part, ks[-1])[0] for part in parts])
    ]
    rows = [row for row, image in enumerate(task.queries) for _ in image.labels]
    columns = [number[label] for image in task.queries for label in image.labels]
    truth = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(task.queries), len(names)))
    siblings = {}
    if task.siblings is not None:
        S = task.siblings[1]
        siblings = {k: float(sibling_precision_at(ranked, truth, S, k).mean()) for k in ks}
    precision = {k: float(label_precision_at(ranked, truth, k).mean()) for k in ks}
    one_each = all(len(image.labels) == 1 for image in task.queries)
    n_per_image = 1 if one_each else min(LABELS_PER_IMAGE, ks[-1])
    n_images = np.asarray(truth.sum(axis=0)).ravel().astype(int)
    figures = zip(names, n_images.tolist(), *precision_recall_per_label(ranked, truth, n_per_image), strict=True)
    per_label = tuple(LabelFigures(label, n, float(p), float(r)) for label, n, p, r in figures if n)
    return Annotation(precision, siblings, len(of_queries - set(known)), per_label, n_per_image)
