"""What evaluate measures of one learner, and what it lets the learner see."""

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.evaluation.measure import EvalTask, measure
from visterm.pipeline.store.images import Image
from visterm.plugins.figures.is_a import siblings_of
from visterm.retrieval import relevance_from_labels


class Spy:
    """Ranks by the inner product, and notes which labels it was shown."""

    learned_weight_ = 1.0
    by_category = ranks_labels = False

    def __init__(self):
        self.seen = []
        self.learned_weight_ = 1.0

    def transform(self, X, y=None):
        self.seen.append(None if y is None else list(y))
        return X

    def transform_query(self, Q):
        return Q


class Annotator(Spy):
    """Gives every image the labels in the order of their numbers."""

    ranks_labels = True

    def annotate(self, X, k):
        return np.tile(np.arange(k, dtype=np.int32), (X.shape[0], 1)), np.zeros((X.shape[0], k), np.float32)


def images_of(labels, split):
    return [Image(i, f"{i}.jpg", "", dict.fromkeys(own, 1.0), split, 0, i) for i, own in enumerate(labels)]


def task_of(tested, trained, *, own, siblings=None):
    """Images whose vectors are the directions of their (first) labels."""
    queries, train = images_of(tested, "test"), images_of(trained, "train")
    names = sorted({label for labels in (*tested, *trained) for label in labels})
    Q, X = (
        np.array([np.eye(len(names))[names.index(labels[0])] for labels in part], np.float32)
        for part in (tested, trained)
    )
    gallery, G = (queries, Q) if own else (train, X)
    one_hot = [
        sparse.csr_matrix([[name in image.labels for name in names] for image in part], dtype=float)
        for part in (queries, gallery)
    ]
    relevance = relevance_from_labels(*one_hot, exclude=np.arange(len(queries)) if own else None)
    classes = None
    if all(len(labels) == 1 for labels in (*tested, *trained)):
        classes = np.array([x for (x,) in tested]), np.array([x for (x,) in trained])
    return EvalTask(queries, gallery, train, Q, G, X, relevance, classes, siblings)


def config_of(*settings):
    return load_config(None, list(settings))


def test_labels_of_training_images_are_shown_unless_an_image_has_several():
    spy = Spy()
    measure(spy, {}, task_of(["a", "a", "b", "b"], ["a", "b"], own=True), config_of())
    assert spy.seen == [None, ["a", "b"]]  # the test images without labels; the training images, which vote, with
    spy = Spy()
    measure(spy, {}, task_of(["a", "b"], ["a", "b", "b"], own=False), config_of())
    assert spy.seen == [["a", "b", "b"]]
    spy = Spy()
    result = measure(spy, {}, task_of(["a", "b"], [("a", "b"), "b"], own=False), config_of())
    assert spy.seen == [None]
    assert result.accuracy is None


def test_figures_by_hand():
    # Images of one label are alike. The class of c is not trained, and ties go to the first training image, an a.
    task = task_of(["a", "a", "b", "b", "c", "c"], ["a", "b", "a"], own=True)
    result = measure(Spy(), {}, task, config_of("evaluate.accuracy_neighbours=1"))
    assert result.evaluation.mean_average_precision == 1
    assert result.accuracy == pytest.approx((1 + 1 + 0) / 3)
    assert result.annotation is None
    # Of three neighbours two are an a for everyone.
    assert measure(Spy(), {}, task, config_of()).accuracy == pytest.approx((1 + 0 + 0) / 3)


def test_annotations_by_hand(tmp_path):
    (tmp_path / "is_a.csv").write_text("label,parent\na,x\nb,x\nd,y\nd,x\n")
    siblings, warning = siblings_of(["a", "b", "c", "d", "d"], tmp_path / "is_a.csv")
    assert siblings[0] == ["a", "b", "c", "d"]
    assert warning == ("is_a.csv gives no parent for 1 of 4 labels, such as c: such a label has no sibling but itself")
    task = task_of(["a", "c", "d"], ["a", "b", "c"], own=False, siblings=siblings)
    annotation = measure(Annotator(), {"labels": ["a", "b", "c"]}, task, config_of()).annotation
    assert annotation.precision_at == {1: pytest.approx(1 / 3)}
    assert annotation.sibling_precision_at == {1: pytest.approx(2 / 3)}  # d was not learned, but has the sibling a
    assert annotation.n_unknown_labels == 1
    assert annotation.as_json() == {
        "precision_at": {"1": pytest.approx(1 / 3)},
        "sibling_precision_at": {"1": pytest.approx(2 / 3)},
        # All three images, of labels a, c and d, are annotated with a.
        "per_label": {
            "labels_per_image": 1,
            "precision": pytest.approx((1 / 3 + 0 + 0) / 3),
            "recall": pytest.approx((1 + 0 + 0) / 3),
            "f1": pytest.approx(1 / 6),
            "n_labels": 3,
            "n_recalled": 1,
        },
        "n_unknown_labels": 1,
    }


def test_annotations_of_several_labels():
    task = task_of([("a", "c"), ("b",), ("e",)], [("a", "b"), ("c", "d", "e")], own=False)
    annotation = measure(Annotator(), {"labels": ["a", "b", "c", "d", "e"]}, task, config_of()).annotation
    assert annotation.precision_at == {1: pytest.approx((1 + 0 + 0) / 3), 5: pytest.approx((2 + 1 + 1) / 15)}
    assert annotation.sibling_precision_at == {}
