import logging

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from scipy.special import expit

from visterm.learners import HIER, load_learner
from visterm.plugins.annotators.hier import calibrate, class_similarity

# thing (height 3): animal (2): mammal (1): dog, cat; animal: sea animal (1): crab, dolphin; dolphin is a mammal, too.
IS_A = {
    "dog": ["mammal"],
    "cat": ["mammal"],
    "dolphin": ["mammal", "sea animal"],
    "crab": ["sea animal"],
    "mammal": ["animal"],
    "sea animal": ["animal"],
    "animal": ["thing"],
    "lamp": ["thing"],
}
NAMES = ["cat", "crab", "dog", "dolphin", "lamp"]


class TestClassSimilarity:
    def test_hand_worked(self):
        """1 - height of the lowest shared ancestor / 3; of the dolphin's two ancestors with the crab the lower one."""
        S = class_similarity(NAMES, IS_A)
        expected = {
            ("cat", "dog"): 2 / 3,
            ("cat", "crab"): 1 / 3,
            ("crab", "dolphin"): 2 / 3,
            ("dog", "dolphin"): 2 / 3,
        }
        for (one, other), value in expected.items():
            i, j = NAMES.index(one), NAMES.index(other)
            assert S[i, j] == S[j, i] == pytest.approx(value)
        assert (S[:4, 4] == 0).all()
        assert (S.diagonal() == 1).all()
        np.testing.assert_array_equal(class_similarity(NAMES, None), np.eye(5))
        S = class_similarity(["ant", "bee", "lamp"], {"ant": ["insect"], "bee": ["insect"], "lamp": ["device"]})
        np.testing.assert_allclose(S, [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])  # heights: insect 1, the root above both 2
        S = class_similarity(["animal", "dog", "lamp"], {"dog": ["animal"], "animal": ["thing"], "lamp": ["thing"]})
        np.testing.assert_allclose(S, [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])

    def test_unknown_labels_are_like_themselves_only_and_bad_tables_refused(self, caplog):
        with caplog.at_level(logging.WARNING):
            S = class_similarity(["ant", "bee", "yeti"], {"ant": ["insect"], "bee": ["insect"]})
        np.testing.assert_allclose(S, [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
        assert "1 of 3 labels not, such as yeti" in caplog.text
        with pytest.raises(ValueError, match="loop: ant is a bee is a ant|loop: bee is a ant is a bee"):
            class_similarity(["ant"], {"ant": ["bee"], "bee": ["ant"]})
        with pytest.raises(ValueError, match="names none of the 2 labels, such as 'ant'"):
            class_similarity(["ant", "bee"], {"cat": ["mammal"]})
        with pytest.raises(ValueError, match="is_a must name the parents"):
            HIER(is_a="table.csv").fit(np.eye(4), [0, 0, 1, 1])
        with pytest.raises(ValueError, match="as a dictionary of lists"):
            HIER(is_a={"0": "even", "1": "odd"}).fit(np.eye(4), [0, 0, 1, 1])


def test_calibration_equals_a_plain_minimiser():
    """Platt's targets and likelihood, label by label, by SciPy."""
    rng = np.random.default_rng(0)
    labels = rng.random((80, 4)) < [0.1, 0.5, 0.9, 0.03]
    labels[0], labels[1] = True, False
    scores = rng.normal(size=(80, 4)) + 1.5 * labels
    scores[:, 3] = 50 * labels[:, 3]  # told apart without error
    slopes, intercepts = calibrate(scores, labels)
    for i in range(4):
        n = labels[:, i].sum()
        target = np.where(labels[:, i], (n + 1) / (n + 2), 1 / (80 - n + 2))

        def loss(ab, f=scores[:, i], t=target):
            z = ab[0] * f + ab[1]
            return (np.logaddexp(0, z) - t * z).sum()

        best = scipy.optimize.minimize(loss, [0, 0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12})
        assert loss((slopes[i], intercepts[i])) <= best.fun + 1e-6


class TestLearner:
    def test_similarity_is_the_paper_s_and_the_hierarchy_is_saved(self, X, y, tmp_path):
        names = np.array(["cat", "crab", "dog", "lamp"])
        learner = HIER(is_a=IS_A, n_steps=2000, random_state=0).fit(X, names[y])
        p = expit(learner.slopes_ * (X @ learner.W_) + learner.intercepts_)
        p /= p.sum(axis=1, keepdims=True)
        expected = p @ class_similarity(sorted(names), IS_A) @ p.T
        np.testing.assert_allclose(learner.similarity(X, X), expected, rtol=1e-4)
        np.testing.assert_allclose(learner.label_scores(X).sum(axis=1), 1, rtol=1e-5)
        with pytest.raises(NotImplementedError, match="not the sum"):
            learner.transform_parts(X[:2], X[:1])
        names = np.array(["cat", "crab", "dog", "lamp"])[y]
        HIER(is_a=IS_A, n_steps=100, random_state=0).fit(X, names).save(tmp_path / "a")
        assert load_learner(tmp_path / "a").is_a == IS_A

    def test_calibrated_by_images_that_a_model_left_out(self, synonyms):
        X, y = synonyms[0], np.random.default_rng(0).permutation(synonyms[1])  # nothing can be learned
        learner = HIER(C=1.0, n_steps=2000, random_state=0).fit(X, y)
        dense, scores = X.toarray(), np.empty((60, 4))
        for i in range(60):
            scores[i] = dense[i] @ learner.fold_weights_[i % 3]
        slopes, intercepts = calibrate(scores, np.eye(4, dtype=bool)[y])
        np.testing.assert_allclose(learner.slopes_, slopes, rtol=1e-3)
        np.testing.assert_allclose(learner.intercepts_, intercepts, rtol=1e-3, atol=1e-3)
        # Scores of the images learned from would say that the classifiers know much.
        assert (calibrate(X @ learner.W_, np.eye(4, dtype=bool)[y])[0] > 1).all()
        assert (slopes < 0.5).all()

    def test_several_labels_a_label_in_no_image_and_one_in_all(self, X, y):
        labels = np.zeros((60, 6))
        labels[np.arange(60), y] = 1
        labels[:, 5] = 1
        learner = HIER(n_steps=1000, random_state=0).fit(X, sp.csr_array(labels))
        probabilities = learner.label_scores(X)
        assert np.isfinite(probabilities).all()
        assert learner.slopes_[4:].tolist() == [1, 1]
        assert probabilities[:, 5].min() > 0.5 > probabilities[:, 4].max()


def test_little_counts_where_images_may_be_of_other_classes():
    """Unless a share is asked for, or only known classes count."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 12)
    X = (np.eye(8)[y] + 0.3 * rng.standard_normal((len(y), 8))).astype(np.float32)
    learner = HIER(n_steps=400, pass_steps=200, validation_fraction=0.3, random_state=0)
    assert learner.fit(X, y, world="open", learned_weight=None).learned_weight_ <= HIER.most_open
    assert learner.fit(X, y, world="open", learned_weight=0.4).learned_weight_ == 0.4
    assert learner.fit(X, y, world="seen").learned_weight_ == 1
