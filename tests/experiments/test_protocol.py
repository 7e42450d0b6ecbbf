"""The protocol that experiments on photos share."""

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.measured.grids import Grid
from experiments.measured.protocol import choose, figures, load_fold, settings_of
from visterm.learners import OASIS, Cosine, KNNAnnotator


@pytest.fixture(scope="module")
def classes():
    """Images of three classes, told apart by one coordinate each among noise that is louder."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    X = np.abs(rng.normal(size=(60, 12))).astype(np.float32)
    X[np.arange(60), y] += 1
    return sp.csr_array(X / np.linalg.norm(X, axis=1, keepdims=True)), y


def test_the_better_setting_is_chosen_and_how_long_to_learn(classes):
    learner = OASIS(n_steps=3000, pass_steps=1000, pairs_per_query=1, random_state=0)
    chosen, edges = choose(Grid(learner, {"C": (1e-9, 0.1)}), *classes, n_folds=2, grows=False)
    assert chosen.C == 0.1
    assert edges[:1] == ["C"]
    assert chosen.n_steps in (1000, 2000, 3000)
    assert not hasattr(chosen, "W_")
    assert learner.n_steps == 3000
    chosen, edges = choose(Grid(KNNAnnotator(), {"n_neighbors": (1, 3)}, {"n_neighbors": (1, 3)}), *classes, n_folds=2)
    assert chosen.n_neighbors in (1, 3)
    assert edges == []


def test_only_the_images_given_take_part_in_the_choice(classes, monkeypatch):
    X, y = classes
    seen = []
    fit = OASIS.fit

    def watched(self, X, y, **options):
        seen.append((X.shape[0], len(options["validation_rows"])))
        return fit(self, X, y, **options)

    monkeypatch.setattr(OASIS, "fit", watched)
    choose(Grid(OASIS(n_steps=100, pass_steps=100), {}), X[::2], y[::2], n_folds=3, grows=False)
    assert seen == [(30, 10)] * 3
    choose(Grid(OASIS(n_steps=100, pass_steps=100), {}), X, y, splits=[(np.arange(40), np.arange(40, 60))], grows=False)
    assert seen[3:] == [(60, 20)]


def test_settings_far_behind_on_the_first_inner_folds_are_not_tried_on_the_others(classes, monkeypatch):
    """The fourth leads in the end; the second and the third, better on the last folds, are out of the race.

    They are 20 % behind the first on the first fold, and 3 % in the mean of two.
    """
    X, y = classes
    seen = []
    scores = {1: (0.5, 0.5, 0.3), 3: (0.4, 0.9, 0.9), 5: (0.48, 0.49, 0.9), 10: (0.49, 0.5, 0.4)}

    def score(self, X, y):
        seen.append(self.n_neighbors)
        return scores[self.n_neighbors][seen.count(self.n_neighbors) - 1]

    monkeypatch.setattr(KNNAnnotator, "score", score)
    grid = Grid(KNNAnnotator(), {"n_neighbors": (1, 3, 5, 10)}, {"n_neighbors": (1, 10)})
    assert choose(grid, X, y, n_folds=3)[0].n_neighbors == 10
    assert seen == [1, 3, 5, 10, 1, 5, 10, 1, 10]


def test_images_of_the_same_score_come_in_random_order():
    """All are equal, and rows are sorted by class: precision at 1 is the share of the others with the class."""
    y = np.repeat(np.arange(20), 10)
    X = sp.csr_array(np.ones((200, 1), np.float32))
    assert figures(Cosine().fit(X), X, y)["precision"][0] == pytest.approx(9 / 199, abs=0.001)
    assert figures(Cosine().fit(X), X, y)["map"] < 0.1
    assert settings_of(OASIS(C=0.3, n_steps=7)) == {"C": 0.3, "n_steps": 7}
    assert settings_of(OASIS()) == {}


def test_figures_are_those_of_the_test_images(classes):
    X, y = classes
    cosine_figures = figures(Cosine().fit(X), X, y)
    assert cosine_figures["map"] > 1 / 3
    assert len(cosine_figures["precision"]) == 50
    # By hand: the image nearest to each other one.
    scores = (X @ X.T).toarray()
    np.fill_diagonal(scores, -1)
    assert cosine_figures["precision"][0] == pytest.approx((y[scores.argmax(axis=1)] == y).mean())


def test_folds_share_no_image(data):
    X, y, test, test_y = load_fold(10, 1000, 0)
    assert X.shape == (400, 1000)
    assert test.shape == (250, 1000)
    assert sorted(set(y)) == sorted(set(test_y))
    rows = {part[i].toarray().tobytes() for part in (X,) for i in range(X.shape[0])}
    shared = sum(test[i].toarray().tobytes() in rows for i in range(test.shape[0]))
    assert shared < 5  # Caltech-101 has a few exact duplicates
