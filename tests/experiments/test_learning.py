"""Learning curves: the rules of the page on made-up curves, and the jobs on synthetic vectors."""

import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from made_up import broken, finding, unit_rows
from sklearn.preprocessing import normalize

from experiments import learning
from experiments.measured import learning as measured
from experiments.pages import FEWEST, render


def height(job, step, *, saturation=20_000, falls=0.02, offset=0.0):
    """A curve that rises from 0.1 to 0.2 and then falls a little; folds and steps differ by a little noise."""
    level = 0.2 - 0.1 * np.exp(-5 * step / saturation) - falls * max(0, step - 2 * saturation) / 500_000
    return level + 0.001 * job["fold"] + 1e-4 * np.sin(step * (job["fold"] + 1)) + offset


def system_of(job):
    system = job["learner"], job["parameters"]
    return learning.name_of(system), learning.start_of(system)


def made_up(quick=False, p1=lambda *system: 0.2, among_training=None, variance=0.9, **shape):
    """Results of all jobs: curves by learner, precision at 1 by name and start."""
    among_training = among_training or (lambda *system: 0.9 if system[0].startswith("AROMA") else 0.8)
    results = []
    for job in learning.jobs(quick):
        given = shape.get(job["learner"], {})
        steps = [step for step in measured.POINTS if job["along"] and step <= job["n_steps"]] or [job["n_steps"]]
        curve = []
        for step in steps:
            point = dict.fromkeys(("map", "p10", "training_map"), height(job, step, **given))
            if job["learner"] == "Euclidean":
                point = dict.fromkeys(point, 0.1)
            elif job["parameters"].get("C") == 100:
                point["map"] *= 0.9
            top, fit = p1(*system_of(job)), among_training(*system_of(job))
            noise = 0.001 * np.sin((1 + job["fold"]) * zlib.crc32(repr(system_of(job)).encode()))
            point["variance"] = variance
            point |= {"p1": top + noise, "kept": top + noise, "in_training": top + noise, "among_training": fit + noise}
            curve.append({"step": step} | point)
        results.append(job | {"curve": curve, "seconds": 1.0})
    return results


@pytest.mark.parametrize("quick", [True, False])
def test_page_of_all_jobs(quick):
    page = render(learning, made_up(quick), quick)
    stems = [plot.stem for plot in page.plots]
    assert stems == ["learning-oasis", "learning-steps", "learning-top", "learning-sensitivity"]
    assert "\n|  |" not in page.text.replace("\n|  | W starts at", "")
    assert not broken(page)
    assert "AROMA leads,** 1.1" in page.notes["lead"]
    jobs = [repr(sorted(job.items())) for job in learning.jobs(quick)]
    assert len(set(jobs)) == len(jobs)


@pytest.mark.parametrize(
    ("shape", "words", "agrees"),
    [
        *(({"saturation": n}, "saturates early", n == 35_000) for n in (5_000, 35_000, 200_000)),
        ({}, "decreases very slowly", True),
        ({"falls": 0.0}, "decreases very slowly", False),
    ],
)
def test_saturation_near_35_thousand_steps(shape, words, agrees):
    assert finding(render(learning, made_up(OASIS=shape)), words).agrees is agrees


def test_a_learner_no_better_than_euclidean_breaks_what_must_hold_and_no_edge_decides(unflagged):
    papers = broken(render(learning, made_up(AROMA={"offset": -0.09})))
    assert len(papers) == 2
    assert all(paper.startswith("AROMA") for paper in papers)
    assert not unflagged(learning, made_up())
    assert min(learning.N_FOLDS, learning.FEW_FOLDS) >= FEWEST


@pytest.mark.parametrize("factor", [1 / 0.9, 0.9])
def test_a_limit_without_effect_or_steps_too_long_break_what_must_hold(factor):
    results = made_up()
    for job in results:
        if job["parameters"].get("C") == 100:
            for point in job["curve"]:
                point["map"] *= factor
    assert broken(render(learning, results), 5) == ["OASIS"]


@pytest.mark.parametrize("given", [{"among_training": lambda *system: 0.8}, {"variance": 1.0}])
def test_a_covariance_that_stays_breaks_what_must_hold(given):
    (paper,) = broken(render(learning, made_up(**given)), None)
    assert "covariance shrinks" in paper


@pytest.mark.parametrize(("aroma", "agrees"), [(0.33, True), (0.23, False), (0.2, False)])
def test_lead_at_the_top(aroma, agrees):
    page = render(learning, made_up(p1=lambda name, start: aroma if name.startswith("AROMA") else 0.22))
    assert finding(page, "0.33").agrees is agrees


def by_start_and_steps(name, start):
    """What sets the systems apart is the start and the size of the steps alone."""
    return {"identity": 0.26, "zero": 0.24}.get(start, 0.2) - 0.02 * ("r = 0.01" in name or "unlimited" in name)


def test_conclusion_of_the_causes_convergence_and_change_over_decades():
    def fit(name, start):
        return 0.8 if "r = 0.01" in name or "unlimited" in name else 0.7

    together = "So the start and the size of the steps set the two apart here."
    assert together in render(learning, made_up(p1=by_start_and_steps, among_training=fit)).text
    text = render(learning, made_up(p1=lambda name, start: 0.2, among_training=fit)).text
    assert together not in text
    holding, failing = text.partition("statements about precision@1")[2].split("do not, or not clearly")
    assert "better from the identity" in failing
    assert "from the same start" in holding
    assert "unlimited C are within 5 %" in holding
    rises = {"saturation": 600_000, "falls": 0.0}
    results = made_up(AROMA=rises)
    for job in results:
        if job["parameters"].get("covariance"):
            for point in job["curve"]:
                point["p10"] = height(job, point["step"], saturation=300_000, falls=0.0, offset=-0.003)
    assert finding(render(learning, results), "converges after 200K").agrees
    assert not finding(render(learning, made_up(AROMA=rises)), "converges after 200K").agrees
    assert not finding(render(learning, made_up()), "converges after 200K").agrees
    curves = np.array([[0.10, 0.20, 0.199, 0.198, 0.197]] * 2)
    assert learning.change([0.001, 0.01, 0.1, 1, 10], curves, 0.01, 10) == pytest.approx(1 - 0.197 / 0.2)
    assert learning.change([0.001, 0.01, 0.1, 1, 10], curves) == pytest.approx(0.5)


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
    X = unit_rows(counts * idf)
    return X[train], y[train], X[~train], y[~train]


@pytest.fixture
def synthetic(monkeypatch):
    monkeypatch.setattr(measured, "load_fold", synthetic_fold)


def test_curve(synthetic):
    job = {"learner": "AROMA", "parameters": {"r": 1.0}, "classes": 38, "setting": measured.UNIT, "fold": 0}
    curve = learning.measure(**job, n_steps=7_500, along=True)["curve"]
    assert [point["step"] for point in curve] == [2_500, 5_000, 7_500]
    (last,) = learning.measure(**job, n_steps=7_500, along=False)["curve"]
    assert last == {key: value for key, value in curve[-1].items() if key != "training_map"}
    assert 0 < last["variance"] < 1
    (euclidean,) = learning.measure(**job | {"learner": "Euclidean", "parameters": {}}, n_steps=1, along=False)["curve"]
    assert last["map"] > euclidean["map"] > 0.25
    assert euclidean["kept"] == 1.0


def test_reweighted_undoes_and_redoes_the_weights():
    X, _, _, _ = synthetic_fold(38, 1000, 0)
    idf = -np.log(np.maximum((X != 0).sum(axis=0), 1) / X.shape[0])
    np.testing.assert_allclose(measured.reweighted(X, idf, "unit length").toarray(), X.toarray(), atol=1e-6)
    presence = normalize((X.toarray() != 0) * idf)
    np.testing.assert_allclose(measured.reweighted(X, idf, "presence, unit length").toarray(), presence, rtol=1e-5)
    counts = measured.reweighted(X, idf, "tf,").toarray()
    np.testing.assert_allclose(counts, counts.round(), atol=1e-5)


def test_5_fold_split_learns_visterms_from_its_training_images(monkeypatch):
    paths, y = [f"{i}.jpg" for i in range(204)], np.arange(204) % 4
    learned = []

    def extracted(stem, paths, train, seed, **options):
        learned.append(train)
        return sp.csr_array(np.arange(len(paths))[:, None].astype(np.float32))

    monkeypatch.setattr(measured, "choose_images", lambda name: (paths, y, None))
    monkeypatch.setattr(measured, "extracted", extracted)
    tests = []
    for fold in range(5):
        X, own_y, test_X, test_y = measured.vectors("5-fold split", 38, fold)
        assert len(own_y) in (163, 164)
        assert len(test_y) == 204 - len(own_y)
        np.testing.assert_array_equal(np.flatnonzero(learned[fold]), X.toarray().ravel())
        tests += test_X.toarray().ravel().tolist()
    assert sorted(tests) == list(range(204))
