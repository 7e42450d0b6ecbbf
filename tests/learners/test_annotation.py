import logging

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.metrics import label_ranking_average_precision_score
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import MultiLabelBinarizer

from visterm.learners import OASIS, PAMIR, WSABIE, KNNAnnotator, OneVsRestPA, load_learner
from visterm.learners.annotation import AnnotatorMixin
from visterm.learners.base import SimilarityLearner

SMALL = {"n_components": 16, "max_norm": 1.1, "n_steps": 1000, "random_state": 0}


class Fixed(AnnotatorMixin, SimilarityLearner):
    """The scores are the images, one column a label."""

    def fit(self, X, y):
        self._check_images(X, reset=True)
        self._note_labels(y, reset=True)
        return self

    def label_scores(self, X):
        X = self._check_images(X)
        return X.toarray() if sp.issparse(X) else X


@pytest.fixture
def fixed():
    return Fixed().fit(np.zeros((3, 3)), ["ant", "bee", "cow"])


class TestAnnotate:
    def test_best_labels_first_and_of_equal_ones_the_smaller_place(self, fixed):
        labels, scores = fixed.annotate(np.array([[0.1, 0.9, 0.5], [3, 2, 1]]), 2)
        assert labels.tolist() == [[1, 2], [0, 1]]
        np.testing.assert_allclose(scores, [[0.9, 0.5], [3, 2]], rtol=1e-6)
        assert labels.dtype == np.int32
        assert scores.dtype == np.float32
        images = np.array([[1.0, 2, 2], [0, 0, 0], [-3, -1, -1]])
        assert fixed.annotate(images, 3)[0].tolist() == [[1, 2, 0], [0, 1, 2], [1, 2, 0]]
        labels, scores = fixed.annotate(images, 1)
        assert labels.tolist() == [[1], [0], [1]]
        assert scores.tolist() == [[2], [0], [-1]]

    @pytest.mark.parametrize("k", [2, 10, 64, 65, 100])
    def test_few_are_the_first_of_all(self, k):
        many = Fixed().fit(np.zeros((200, 100)), np.arange(200) // 2)
        images = np.random.default_rng(0).integers(0, 12, (30, 100)).astype(np.float32)  # many equal scores
        labels, scores = many.annotate(images, k)
        np.testing.assert_array_equal(labels, np.argsort(-images, axis=1, kind="stable")[:, :k])
        np.testing.assert_array_equal(scores, np.take_along_axis(images, labels, axis=1))

    def test_piece_by_piece_is_the_same(self, X, y, monkeypatch):
        learner = PAMIR(n_steps=500, random_state=0).fit(X, y)
        whole = learner.annotate(X, 4)
        monkeypatch.setattr("visterm.learners.annotation._N_SCORES", 20)
        for piecewise, expected in zip(learner.annotate(X, 4), whole, strict=True):
            np.testing.assert_allclose(piecewise, expected, rtol=1e-5, atol=1e-6)

    def test_no_k_is_ten_or_all(self, fixed):
        images = np.random.default_rng(0).random((2, 12))
        assert fixed.annotate(images[:, :3])[0].shape == (2, 3)
        many = Fixed().fit(np.zeros((12, 12)), np.arange(12))
        for default, expected in zip(many.annotate(images), many.annotate(images, 10), strict=True):
            np.testing.assert_array_equal(default, expected)

    @pytest.mark.parametrize("k", [0, 4, -1, 1.5])
    def test_bad_k(self, fixed, k):
        with pytest.raises(ValueError, match="k must lie between 1 and the number of labels to rank, 3, got"):
            fixed.annotate(np.zeros((1, 3)), k)

    def test_images_that_cannot_be_annotated(self, fixed):
        with pytest.raises(ValueError, match="features"):
            fixed.annotate(np.zeros((1, 2)), 1)
        with pytest.raises(ValueError, match="NaN"):
            fixed.annotate(np.full((1, 3), np.nan), 1)
        with pytest.raises(ValueError, match="not fitted"):
            WSABIE().annotate(np.zeros((1, 3)))


class TestScore:
    def test_precision_at_1(self, fixed):
        images = np.array([[3.0, 1, 2], [1, 2, 3], [0, 1, 0], [5, 6, 7]])
        # The last image's label was not in the fit: an error.
        assert fixed.score(images, ["ant", "bee", "bee", "dog"]) == 0.5
        assert fixed.score(images, np.array(["ant", "bee", "bee", "dog"], object)) == 0.5
        images = np.array([[3.0, 1, 2], [1, 2, 3], [0, 1, 0]])
        labels = sp.csr_array(np.array([[0.5, 2, 0], [1, 1, 0], [0, 0, 0]]))
        assert fixed.score(images, labels) == 0.5  # of the two images that have labels
        assert fixed.score(images, sp.csr_array((3, 3))) == 0.0
        with pytest.raises(ValueError, match="y must have 3 columns as in the fit, got 2"):
            fixed.score(images, labels[:, :2])
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            fixed.score(np.zeros((2, 3)), ["ant"])


class TestSimilarLabels:
    @pytest.fixture
    def learner(self, X, y):
        learner = WSABIE(**SMALL).fit(X, y)
        learner.label_vectors_ = np.zeros((4, 16), np.float32)
        # Cosines would put label 2 nearest to 0; the inner product does not.
        learner.label_vectors_[:, :2] = [[1, 0], [2, 2], [1, 0.1], [-1, 0]]
        return learner

    def test_nearest_first_without_itself_ten_or_all_by_default(self, learner):
        labels, scores = learner.similar_labels([0, 3], 3)
        assert labels.tolist() == [[1, 2, 3], [0, 2, 1]]
        np.testing.assert_allclose(scores, [[2, 1, -1], [-1, -1, -2]])
        labels, scores = learner.similar_labels([0, 3])
        assert labels.shape == scores.shape == (2, 3)
        with pytest.raises(ValueError, match="number of labels to rank, 3, got 4"):
            learner.similar_labels([0], 4)

    @pytest.mark.parametrize("places", [[4], [-1], [0.5], 1, ["0"], [[0]]])
    def test_bad_places(self, learner, places):
        with pytest.raises(ValueError, match="labels must be places in classes_, integers of 0 to 3"):
            learner.similar_labels(places, 1)
        with pytest.raises(ValueError, match="labels must be places in classes_, integers of 0 to 3"):
            learner.similar_labels(places, 10)  # what is asked about comes first

    def test_labels_without_vectors(self, fixed):
        with pytest.raises(NotImplementedError, match="Fixed has no vectors of labels"):
            fixed.similar_labels([0], 1)


class TestLabels:
    def test_one_label_an_image(self, X, y, tmp_path):
        words = np.array(["dog", "ant", "cow", "bee"])
        assert WSABIE(**SMALL).fit(X, words[y]).classes_.tolist() == ["ant", "bee", "cow", "dog"]
        learner = WSABIE(**SMALL).fit(X, np.char.add(words, "ö")[y].astype(object))
        assert learner.classes_.dtype.kind == "U"
        learner.save(tmp_path / "a")
        assert load_learner(tmp_path / "a").classes_.tolist() == learner.classes_.tolist()
        assert WSABIE(**SMALL).fit(X, y * 10).classes_.tolist() == [0, 10, 20, 30]

    def test_columns_are_labels(self, X, y):
        """The same labels, whether they are named or marked in a column of any array: the same model."""
        expected = WSABIE(**SMALL).fit(X, y).label_vectors_
        several = sp.csr_array(np.eye(4)[y])
        frozen = several.copy()
        frozen.indices, frozen.indptr = several.indices.astype(np.int64), several.indptr.astype(np.int64)
        for array in (frozen.data, frozen.indices, frozen.indptr):
            array.flags.writeable = False
        zeros = sp.csr_array((np.eye(4)[y].ravel(), np.tile(np.arange(4), 60), np.arange(0, 241, 4)), (60, 4))
        for labels in (several, sp.csr_matrix(several), several.tocsc(), several.tocoo(), frozen, zeros):
            n_stored = labels.nnz
            learner = WSABIE(**SMALL).fit(X, labels)
            assert learner.classes_.tolist() == [0, 1, 2, 3]
            np.testing.assert_array_equal(learner.label_vectors_, expected)
            assert labels.nnz == n_stored  # the caller's array is as it was

    def test_columns_without_images_are_counted(self, X, y, caplog):
        with caplog.at_level(logging.WARNING):
            learner = WSABIE(**SMALL).fit(X, sp.csr_array(np.eye(7)[y]))
        assert "3 of 7 labels have no image" in caplog.text
        assert learner.label_vectors_.shape == (7, 16)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (sp.csr_array(np.ones((60, 1))), "at least two classes, got 1 class"),
            (sp.csr_array((60, 3)), "no pair of labels can be ranked"),
            (sp.csr_array(np.ones((60, 3))), "no pair of labels can be ranked"),
            (sp.csr_array(-np.eye(60)), "negative, infinite or missing"),
        ],
    )
    def test_nothing_to_learn_from(self, synonyms, y, message):
        for learner in (WSABIE(**SMALL), PAMIR(), OneVsRestPA()):
            with pytest.raises(ValueError, match=message):
                learner.fit(synonyms[0], y)


class TestPartialFit:
    def test_other_labels_than_those_of_the_fit_are_refused(self, X, y):
        learner = WSABIE(**SMALL).fit(X, y)
        before = learner.label_vectors_.copy()
        with pytest.raises(ValueError, match="2 labels were not in the first fit, such as 7; use fit"):
            learner.partial_fit(X, np.where(y == 0, 7, np.where(y == 1, 8, y)))
        np.testing.assert_array_equal(learner.label_vectors_, before)
        learner = WSABIE(**SMALL).fit(X, sp.csr_array(np.eye(4)[y]))
        with pytest.raises(ValueError, match="y must have 4 columns as in the first fit, got 5"):
            learner.partial_fit(X, sp.csr_array(np.eye(5)[y]))

    def test_labels_keep_their_numbers(self, X, y):
        """Images that come with the last label only teach that one, not the first."""
        learner = WSABIE(**SMALL).fit(X, y)
        before = learner.label_scores(X[y == 2])
        learner.set_params(n_steps=200).partial_fit(X[y == 2], np.full(15, 3))
        change = (learner.label_scores(X[y == 2]) - before).mean(axis=0)
        assert change.argmax() == 3
        assert change[3] > 0.1
        assert learner.classes_.tolist() == [0, 1, 2, 3]


class TestValidation:
    def test_watches_precision_at_1(self, X, y):
        held_out = np.arange(0, 60, 3)
        precisions = []

        def look(learner):
            if learner.phase_ == "search":
                labels, _ = learner.annotate(X[held_out], 1)
                precisions.append((learner.classes_[labels[:, 0]] == y[held_out]).mean())

        learner = WSABIE(**SMALL, pass_steps=100, refit=False).fit(X, y, validation_rows=held_out, callback=look)
        np.testing.assert_allclose([entry["validation"] for entry in learner.history_[1:-1]], precisions)
        assert learner.validation_measure == "p@1"

    def test_several_labels_are_ranked_as_a_whole(self, X, y):
        both = sp.csr_array(np.eye(4)[y] + np.eye(4)[(y + 1) % 4])
        learner = WSABIE(**SMALL, pass_steps=100, refit=False).fit(X, both, validation_rows=np.arange(0, 60, 3))
        assert learner.validation_measure == "label mAP"
        expected = label_ranking_average_precision_score(both.toarray()[::3] > 0, learner.label_scores(X[::3]))
        assert learner.best_validation_ == pytest.approx(expected)
        assert expected > 0.8

    def test_images_without_labels_do_not_validate(self, X, y):
        labels = sp.lil_array(np.eye(4)[y])
        labels[[0, 3]] = 0
        learner = WSABIE(**SMALL, pass_steps=100, refit=False).fit(X, labels.tocsr(), validation_rows=[0, 3, 20])
        assert {entry["validation"] for entry in learner.history_} <= {0.0, 1.0}
        with pytest.raises(ValueError, match="no image held out for validation has a label"):
            WSABIE(**SMALL).fit(X, labels.tocsr(), validation_rows=[0, 3])


@pytest.mark.parametrize("none", [None, pd.NA])
def test_missing_label_is_refused(none, X, y):
    missing = y.astype(object)
    missing[3] = none
    for learner in (PAMIR(n_steps=10), OASIS(n_steps=10)):
        with pytest.raises(ValueError, match=f"{none} in place of a label"):
            learner.fit(X, missing)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.arange(4).astype(object), "i"),  # a column of pandas that held texts, too
        (np.array([1.5, 2, 3, 4], object), "f"),
        (np.array([True, False, True, False], object), "b"),
        (np.array(["a", 2, 3, 4], object), "U"),
        (np.array(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"], "datetime64[D]"), "M"),
    ],
)
def test_labels_come_back_as_they_were_given(labels, kind, X, y, tmp_path):
    learner = KNNAnnotator().fit(X, labels[y])
    assert learner.classes_.dtype.kind == kind
    assert (learner.predict(X) == (labels[y].astype(str) if kind == "U" else labels[y])).mean() > 0.9
    learner.save(tmp_path / "saved")
    np.testing.assert_array_equal(load_learner(tmp_path / "saved").classes_, learner.classes_)


class TestScikitLearn:
    """What its tools ask of a classifier."""

    @pytest.mark.parametrize("learner", [PAMIR(n_steps=2000, random_state=0), KNNAnnotator()])
    def test_cross_validation_stratifies_and_predicts(self, learner, X, y):
        assert is_classifier(learner)
        order = np.argsort(y)  # without stratification each fold would lack a class
        assert cross_val_score(learner, X[order], np.array(list("abcd"))[y[order]], cv=3).min() > 0.2
        learner = clone(learner).fit(X, np.array(list("abcd"), dtype=object)[y])
        assert learner.score(X, np.array(list("abcd"))[y]) == np.mean(learner.predict(X) == np.array(list("abcd"))[y])

    def test_several_labels_as_multi_label_binarizer_makes_them(self, X, y, tmp_path):
        Y = MultiLabelBinarizer().fit_transform([[c, 4 + c % 2] for c in y])
        learner = OneVsRestPA(n_steps=2000, random_state=0).fit(X, Y)
        assert learner.labels_per_image_ == 2
        predicted = learner.predict(X)
        assert predicted.shape == Y.shape
        assert (predicted.sum(axis=1) == 2).all()
        assert np.mean(predicted == Y) > 0.9
        assert learner.score(X, Y) == learner.score(X, sp.csr_array(Y)) > 0.9
        learner.save(tmp_path / "saved")
        assert (load_learner(tmp_path / "saved").predict(X) == predicted).all()


def test_names_of_columns_and_data_frames(X, y):
    names = [f"v{i}" for i in range(X.shape[1])]
    oasis = OASIS(n_steps=500, pass_steps=100, random_state=0).fit(X.toarray(), y)
    assert oasis.get_feature_names_out(names).tolist() == names
    assert oasis.set_params(variant="dissim").fit(X, y).get_feature_names_out(names).tolist() == [*names, "oasis0"]
    wsabie = WSABIE(n_components=3, n_steps=500, random_state=0).fit(X, y)
    before = wsabie.similarity(X[:3], X), wsabie.annotate(X, 2)[0]
    frame = wsabie.set_output(transform="pandas").transform(X)
    assert frame.columns.tolist() == ["wsabie0", "wsabie1", "wsabie2"]
    assert (wsabie.similarity(X[:3], X) == before[0]).all()  # what works inside stays as it was
    assert (wsabie.annotate(X, 2)[0] == before[1]).all()
