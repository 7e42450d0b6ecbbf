"""Learning curves: the rules of the page on made-up curves, and the jobs on synthetic vectors."""

import numpy as np
import pytest
import scipy.sparse as sp

learning = pytest.importorskip("experiments.learning", reason="experiments are not in the wheel")


def curve_of(job, *, saturation=20_000, falls=0.02, cosine=0.1):
    """A curve that rises from 0.1 to 0.2 and then falls a little, as a job gives it."""
    steps = [step for step in learning.POINTS if step <= job["n_steps"]]
    heights = [
        0.2 - 0.1 * np.exp(-5 * step / saturation) - falls * max(0, step - 2 * saturation) / 500_000 for step in steps
    ]
    heights = [height + 0.001 * job["fold"] for height in heights]
    points = [
        {"step": step, "map": h, "p1": h, "p10": h, "training_map": h} for step, h in zip(steps, heights, strict=True)
    ]
    return {"curve": points, "cosine": {"map": cosine, "p1": cosine}}


def claim_of(job, p1):
    setting = job["setting"]
    learned = learning.BOTH if job.get("quick") else {learning.UNIT: learning.ALL}.get(setting, learning.WIDE)
    names = ["Euclidean", *(name for name, _, _ in learned), *learning.CHOICES]
    measures = ("p1", "p10", "map", "turned", "kept", "in_training", "among_training")
    return {"found": {name: dict.fromkeys(measures, p1(name) + 0.01 * job["fold"]) for name in names}}


def made_up(quick=False, p1=lambda name: 0.2, **shape):
    results = []
    for job in learning.jobs(quick):
        given = shape.get(job.get("learner"), {})
        found = curve_of(job, **given) if job["kind"] == "curve" else claim_of(job, p1)
        results.append(job | found | {"seconds": 1.0})
    return results


def finding(page, words):
    (found,) = [one for one in page.findings if words in one.paper]
    return found


@pytest.mark.parametrize("quick", [True, False])
def test_page_of_all_jobs(quick):
    page = learning.page(made_up(quick))
    assert {"learning-oasis", "learning-steps", "learning-top", "learning-sensitivity"} <= {
        getattr(part, "stem", "") for part in page.parts
    }
    assert all(row for part in page.parts for row in getattr(part, "rows", [True]))


@pytest.mark.parametrize(("saturation", "agrees"), [(5_000, False), (35_000, True), (200_000, False)])
def test_saturation_near_35_thousand_steps(saturation, agrees):
    page = learning.page(made_up(OASIS={"saturation": saturation}))
    assert finding(page, "figure 5").agrees is agrees


def test_a_curve_that_never_falls_does_not_agree():
    page = learning.page(made_up(OASIS={"falls": 0.0}))
    assert not finding(page, "figure 5").agrees


def test_a_learner_no_better_than_euclidean_breaks_what_must_hold():
    page = learning.page(made_up(AROMA={"cosine": 0.19}))
    broken = [one.paper for one in page.findings if one.must and not one.agrees]
    assert len(broken) == 2
    assert all(paper.startswith("AROMA") for paper in broken)
    assert not [one for one in learning.page(made_up()).findings if one.must and not one.agrees]


@pytest.mark.parametrize(("aroma", "agrees"), [(0.33, True), (0.23, False), (0.2, False)])
def test_lead_at_the_top(aroma, agrees):
    page = learning.page(made_up(p1=lambda name: aroma if name == "AROMA" else 0.22))
    assert finding(page, "0.33").agrees is agrees


def test_fewer_steps_than_oasis():
    fewer = learning.page(made_up(OASIS={"saturation": 100_000}))
    more = learning.page(made_up(AROMA={"saturation": 100_000}))
    assert finding(fewer, "fewer steps").agrees
    assert not finding(more, "fewer steps").agrees


def test_change_over_decades():
    found = [np.array([a, a]) for a in (0.10, 0.20, 0.199, 0.198, 0.197)]
    assert learning.page_change([0.001, 0.01, 0.1, 1, 10], found, 0.01, 10) == pytest.approx(1 - 0.197 / 0.2)
    assert learning.page_change([0.001, 0.01, 0.1, 1, 10], found, 0, np.inf) == pytest.approx(0.5)


def test_precision_at_1():
    scores = np.array([[0.1, 0.9], [0.2, 0.3]])
    assert learning.precision_at_1(scores, np.array(["a", "b"]), np.array(["a", "b"])) == 0.5


def synthetic_fold(classes, d, fold):
    """Four classes of 26 + 25 rows; counts times idf at unit length, as `load_fold` gives them."""
    rng = np.random.default_rng(fold)
    y = np.repeat(list("abcd"), 51)
    counts = rng.poisson(0.3, (len(y), 40)) + 3 * (rng.random((len(y), 40)) < 0.4) * (
        np.arange(40) // 10 == np.repeat(range(4), 51)[:, None]
    )
    counts[:, 0] = 1 - counts[:, 1].clip(0, 1)
    train = np.tile(np.arange(51) < 26, 4)
    idf = -np.log(np.maximum((counts[train] > 0).sum(axis=0), 1) / train.sum())
    X = counts * idf
    X = sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))
    return X[train], y[train], X[~train], y[~train]


@pytest.fixture
def synthetic(monkeypatch):
    monkeypatch.setattr(learning, "load_fold", synthetic_fold)


def test_curve(synthetic):
    job = {"kind": "curve", "classes": 38, "learner": "AROMA", "parameters": {"r": 1.0}, "training": True}
    found = learning.measure(**job, n_steps=7_500, fold=0)
    assert [point["step"] for point in found["curve"]] == [2_500, 5_000, 7_500]
    assert found["curve"][-1]["map"] > found["cosine"]["map"] > 0.25


def test_claim(synthetic, monkeypatch):
    monkeypatch.setattr(learning, "AROMA_STEPS", 2_000)
    found = learning.measure(kind="claim", setting="tf, unit length", fold=0)["found"]
    assert list(found) == ["Euclidean", *(name for name, _, _ in learning.BOTH)]
    assert found["Euclidean"]["kept"] == 1.0
    assert found["OASIS"]["p1"] > 0.5


def test_reweighted_undoes_and_redoes_the_weights():
    X, _, _, _ = synthetic_fold(38, 1000, 0)
    idf = -np.log(np.maximum((X != 0).sum(axis=0), 1) / X.shape[0])
    np.testing.assert_allclose(learning.reweighted(X, idf, "unit length").toarray(), X.toarray(), atol=1e-6)
    sums = learning.reweighted(X, idf, "sum 1").sum(axis=1)
    np.testing.assert_allclose(sums, 1, rtol=1e-6)
    presence = learning.reweighted(X, idf, "presence").toarray()
    np.testing.assert_allclose(presence, (X.toarray() != 0) * idf, rtol=1e-6)


@pytest.mark.parametrize(
    ("setting", "n_train", "n_test"), [("20 training images", 20, 25), ("52 training images", 38, 13)]
)
def test_other_splits(synthetic, setting, n_train, n_test):
    X, y, test_X, test_y = learning.other_vectors(setting, 0)
    assert X.shape[0] == len(y) == 4 * n_train
    assert test_X.shape[0] == len(test_y) == 4 * n_test
