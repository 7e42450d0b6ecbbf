"""Labels that are likely wrong, by what all other images say."""

import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from running import copy_run, json_of, refused, visterm
from sklearn.linear_model import LogisticRegression

from visterm.pipeline import LabelEditor, Searcher, find_wrong_labels, judge_labels
from visterm.pipeline.store.run import Run
from visterm.teaching import wrong_labels as module
from visterm.teaching.wrong_labels import _folds, cross_validated, labels_to_check


def of_classes(n=90, n_classes=3, d=30, seed=0):
    """Unit rows near one of some centres."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.random((n, d)) * 0.5
    X[np.arange(n)[:, None], 5 * y[:, None] + np.arange(5)] += rng.random((n, 5))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_wrong_labels_have_the_highest_scores_and_the_right_label_is_suggested(sparse):
    X, y = of_classes()
    given, wrong = y.copy(), [4, 20, 51]
    given[wrong] = (y[wrong] + 1) % 3
    judged = judge_labels(sp.csr_matrix(X) if sparse else X, np.array(["a", "b", "c"])[given])
    worst = np.argsort(-judged.score)[:3]
    assert sorted(judged.images[worst]) == wrong
    np.testing.assert_array_equal(judged.suggested[worst], y[judged.images[worst]])
    np.testing.assert_array_equal(judged.labels, given[judged.images])
    assert judged.names.tolist() == ["a", "b", "c"]
    assert (judged.suggested_probability > judged.probability)[worst].all()
    assert ((judged.score > 0) & (judged.score < 1)).all()


def test_each_of_several_labels_is_judged():
    X, y = of_classes()
    has = np.zeros((90, 5), bool)
    has[np.arange(90), y] = True
    has[:45, 3] = True  # a label that says nothing, and one of a single image
    has[7, 4] = True
    has[30, 1] = True  # beside its own, y[30] == 0
    has[31, :] = False
    judged = judge_labels(X, sp.csr_matrix(has.astype(np.float32)), list("abcde"))
    pairs = set(zip(judged.images.tolist(), judged.labels.tolist(), strict=True))
    assert pairs == {(i, j) for i, j in zip(*has.nonzero(), strict=True) if j != 4}
    assert not has[judged.images, judged.suggested].any()


def test_a_wrong_label_beside_right_ones_has_the_highest_score():
    """An image with two labels that fit is not worse than one with one that fits."""
    rng = np.random.default_rng(0)
    has = np.zeros((120, 4), bool)
    has[np.arange(120), np.arange(120) % 4] = True
    has[np.arange(0, 120, 3), (np.arange(0, 120, 3) + 1) % 4] = True  # two labels, and the vectors of both
    X = has @ np.repeat(np.eye(4), 5, axis=1) + 0.3 * rng.random((120, 20))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    given = has.copy()
    given[[7, 30], [1, 0]] = True  # 7 has one label that fits, 30 two
    judged = judge_labels(X, sp.csr_matrix(given.astype(np.float32)), list("abcd"))
    worst = np.argsort(-judged.score)[:2]
    assert set(zip(judged.images[worst].tolist(), judged.labels[worst].tolist(), strict=True)) == {(7, 1), (30, 0)}


def test_what_cannot_be_judged_is_left_out_and_folds_share_the_images_of_a_label():
    X, y = of_classes(12)
    assert not len(judge_labels(X, np.zeros(12, int)).images)
    assert not len(judge_labels(X, np.arange(12)).images)
    alone = y.copy()
    alone[5] = 7
    assert 5 not in judge_labels(X, alone).images
    two = judge_labels(X[:4], np.array(["a", "a", "b", "b"]))
    assert sorted(two.images) == [0, 1, 2, 3]
    rng = np.random.default_rng(0)
    own = np.zeros((200, 4), bool)
    own[np.arange(200), rng.integers(0, 3, 200)] = True
    own[[3, 90], 3] = True
    folds = _folds(own)
    for label in range(3):
        assert np.ptp(np.bincount(folds[own[:, label]], minlength=5)) <= 2
    assert folds[3] != folds[90]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_probabilities_are_those_of_a_regression_with_a_row_for_each_label(sparse, monkeypatch):
    """Labels of very different frequency, some images with several: the optimum in few steps."""
    X, y = of_classes(n=300, d=40)
    rng = np.random.default_rng(1)
    own = np.zeros((300, 6), bool)
    own[np.arange(300), y] = True
    own[rng.random(300) < 0.3, 3] = True
    own[[*range(0, 20, 3)], 4] = True
    own[y == 2, 5] = rng.random((y == 2).sum()) < 0.5
    products = []
    start = np.vdot
    monkeypatch.setattr(np, "vdot", lambda *both: products.append(1) or start(*both))
    probabilities = cross_validated(sp.csr_matrix(X) if sparse else X, own)
    assert 0 < len(products) <= 3 * 5 * 30  # three of each step
    folds, expected = _folds(own), np.zeros(own.shape)
    for fold in range(5):
        rows, labels = own[folds != fold].nonzero()
        regression = LogisticRegression(C=module._INVERSE_REGULARIZATION, tol=1e-8, max_iter=10_000)
        regression.fit(X[folds != fold][rows].astype(float), labels)
        expected[folds == fold] = regression.predict_proba(X[folds == fold])
    np.testing.assert_allclose(probabilities, expected, atol=0.05)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.fixture(scope="module")
def odd(finished, tmp_path_factory):
    """A copy of the run, with a plum among the pears."""
    folder = copy_run(finished, tmp_path_factory.mktemp("doctor"))
    (folder / "fruit/plum/2.jpg").rename(folder / "fruit/pear/plum.jpg")
    visterm("features", "fruit", cwd=folder)
    return folder


def test_a_plum_among_pears_is_listed_until_it_is_confirmed(odd, tmp_path):
    folder = copy_run(odd, tmp_path)
    visterm("features", "fruit", cwd=folder)
    run = folder / "runs/fruit"
    [first, *_] = find_wrong_labels(Searcher(run))
    assert (first["path"], first["label"], first["suggested"]) == ("pear/plum.jpg", "pear", "plum")
    assert first["suggested_probability"] > first["probability"]
    LabelEditor(run).edit([(first["id"], "pear", 1)], confirm=True)
    assert first["id"] not in [entry["id"] for entry in find_wrong_labels(Searcher(run))]


def test_the_page_lists_what_the_command_finds_with_the_nearest_images_as_evidence(odd, monkeypatch):
    searcher = Searcher(odd / "runs/fruit")
    names = [image.path.split("/")[0] for image in searcher.images]
    plums = [row for row, name in enumerate(names) if name == "plum"][:4]
    near = np.array([[*plums, row] for row in range(len(names))])  # four plums and itself
    entries = labels_to_check(searcher, near, 50)
    assert entries
    [first, *_] = find_wrong_labels(searcher)
    known = {key: first[key] for key in ("id", "label", "probability", "suggested", "suggested_probability")}
    assert entries[0] == known | {"share": 0.2, "suggested_share": 0.8}
    assert labels_to_check(searcher, near, 0) == []
    with monkeypatch.context() as patched:
        patched.setattr(module, "BETTER", 1000.0)  # no other label fits so much better
        assert labels_to_check(searcher, near, 50) == []
    monkeypatch.setattr(module, "MAX_WORK", 0)  # so many images that the nearest ones judge
    assert first["id"] not in [entry["id"] for entry in labels_to_check(searcher, near, 50)]  # itself is one in five
    near[:, 4] = plums[0]
    [entry] = [entry for entry in labels_to_check(searcher, near, 50) if entry["id"] == first["id"]]
    none = {"probability": None, "suggested_probability": None}
    assert entry == known | none | {"share": 0.0, "suggested_share": 1.0}


def test_a_label_of_which_neighbours_have_more_fits_better():
    """Of two images that the regression cannot tell apart, the one among images with its label fits better."""
    X, y = of_classes()
    judged = judge_labels(X, y)
    votes = module._shares_of_nearest(X, np.eye(3, dtype=bool)[y])
    np.testing.assert_allclose(votes.sum(axis=1), 1, atol=1e-5)
    expected = judged.probability * (1 + votes[judged.images, judged.labels])
    np.testing.assert_allclose(judged.fit, expected, rtol=1e-6)
    scores = X @ X.T
    np.fill_diagonal(scores, -1)
    near = np.argsort(-scores[0])[:15]
    weights = scores[0, near] - scores[0, near[-1]]
    assert votes[0, 1] == pytest.approx(weights[y[near] == 1].sum() / weights.sum(), abs=1e-3)
    np.testing.assert_array_equal(np.argsort(judged.score), np.argsort(-judged.fit))


def test_the_command_lists_labels_and_names_the_commands_that_correct_them(odd):
    done = visterm("doctor", "-k", "1", cwd=odd)
    said = json_of("doctor", "-k", "1", cwd=odd)
    [entry] = said["labels"]
    lines = done.stdout.splitlines()
    assert lines[0] == "Labels that are likely wrong"
    assert "pear/plum.jpg" in lines[2]
    assert f"visterm label remove pear id:{entry['id']} --run fruit" in done.stderr
    assert f"visterm label add plum id:{entry['id']} --run fruit" in done.stderr
    assert said["harmful"]["learner"] == "oasis"
    assert "wsabie has no table of teachers" in refused("doctor", "--learner", "wsabie", cwd=odd)


def test_a_run_without_a_table_or_without_labels_says_so(odd, tmp_path):
    folder = copy_run(odd, tmp_path)
    shutil.rmtree(folder / "runs/fruit/learners/oasis/teachers")
    said = json_of("doctor", cwd=folder)
    assert said["labels"]
    assert said["harmful"] is None
    assert "--force' to make one" in said["no_harmful"]
    assert "--force' to make one" in refused("doctor", "--learner", "oasis", cwd=folder)


def test_a_run_without_two_labels_is_refused(tmp_path, write_images):
    write_images(tmp_path / "flat", [f"{i}.jpg" for i in range(8)])
    settings = ("--set", "features.n_visterms=10")
    visterm("features", "flat", *settings, cwd=tmp_path)
    assert "run flat has no labels" in refused("doctor", "--run", "flat", cwd=tmp_path)
    LabelEditor(Run(tmp_path / "runs/flat")).add("apple", [f"id:{i}" for i in range(1, 9)])
    assert "needs two labels" in refused("doctor", "--run", "flat", cwd=tmp_path)
