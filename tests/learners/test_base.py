"""What every learner inherits: `score`, by which scikit-learn selects models."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from visterm.learners import OASIS, PAMIR, Cosine

FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


class TestScore:
    def test_worked_by_hand_and_refused_for_other_numbers_of_labels(self, X, y):
        """Image 0 finds its like (image 2) second; image 2 finds its like first; image 1 has none and is left out."""
        X = [[1.0, 0.0], [0.96, 0.28], [0.6, -0.8]]
        assert Cosine().fit(X).score(X, ["a", "b", "a"]) == pytest.approx((1 / 2 + 1) / 2)
        several = sp.csr_array([[1.0, 0], [0, 1], [2, 0]])
        assert Cosine().fit(X).score(X, several) == pytest.approx((1 / 2 + 1) / 2)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            Cosine().fit(X).score(X, y[:-1])

    def test_many_images_are_ranked_for_some_queries(self, X, y, monkeypatch):
        whole = Cosine().fit(X).score(X, y)
        monkeypatch.setattr("visterm.learners.validation.MAX_QUERIES", 20)
        part = Cosine().fit(X).score(X, y)
        assert part != whole
        assert part == pytest.approx(whole, abs=0.1)
        assert Cosine().fit(X).score(X, y) == part


class TestGridSearch:
    def test_grid_search_of_learners_and_of_several_labels(self, X, y, synonyms):
        learner = PAMIR(n_steps=20, random_state=0)
        search = GridSearchCV(learner, {"n_steps": [1, 3000], "C": [0.1]}, cv=FOLDS, error_score="raise").fit(X, y)
        assert search.best_params_ == {"n_steps": 3000, "C": 0.1}
        assert search.best_score_ > 0.8
        several = sp.csr_array(np.eye(4)[y])
        for learner in (OASIS(n_steps=500, random_state=0), PAMIR(n_steps=500, random_state=0)):
            search = GridSearchCV(learner, {"C": [0.01, 0.1]}, cv=3, error_score="raise").fit(X, several)
            assert 0 <= search.best_score_ <= 1
        learner = make_pipeline(Normalizer(), OASIS(n_steps=20_000, random_state=0))
        search = GridSearchCV(learner, {"oasis__C": [1e-6, 0.1]}, cv=FOLDS, error_score="raise").fit(*synonyms)
        assert search.best_params_ == {"oasis__C": 0.1}
        assert search.best_score_ > 0.8
