import numpy as np
import pytest
import scipy.sparse as sp
from made_up import broken, finding, noise
from sklearn.feature_selection import mutual_info_classif
from sklearn.model_selection import train_test_split

from experiments import newsgroups
from experiments.measured import newsgroups as measured
from experiments.measured import posts as read
from experiments.measured.protocol import chosen_settings
from experiments.pages import FEWEST, render, settings_by_fold


def test_information_gain_headers_and_starts_of_aroma():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 200)
    has = (rng.random((200, 6)) < 0.1 + 0.2 * np.outer(y, np.arange(6)) / 5) * 1
    has[:, 5] = 0  # a term of no post says nothing
    gain = read.information_gain(sp.csr_array(has) > 0, y)
    np.testing.assert_allclose(gain * np.log(2), mutual_info_classif(has, y, discrete_features=True), atol=1e-12)
    assert gain[4] > 0.05
    assert gain[5] == 0
    headers = "Path: a!b\nNewsgroups: sci.space\nSubject: Path: to Mars\nfollowup-to: sci.space\nXref: x sci.space:1\n"
    assert read.NAMES_GROUP.sub("", headers) == "Subject: Path: to Mars\n"
    learner = measured.make("OASIS from zero", newsgroups.NO_LIMIT)
    assert (learner.init, learner.C) == ("zero", 1e9)
    assert measured.make("OASIS", 0.1).init == "identity"
    assert measured.make("AROMA factored", 0.1).covariance == "factored"


@pytest.fixture
def posts(monkeypatch):
    """Counts of 1,200 terms in 240 posts of four groups; a group prefers a quarter of the terms."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    rate = np.where(np.arange(1200) % 4 == y[:, None], 0.06, 0.01)
    counts = sp.csr_array(rng.poisson(rate).astype(np.int32))
    monkeypatch.setattr(read, "count_terms", lambda: (counts, y))
    return counts, y


def test_terms_and_idf_come_from_training_posts_alone(posts, monkeypatch):
    counts, y = posts
    X, _, Q, y_query = read.load_split(0)
    assert X.shape == (156, read.N_TERMS)
    assert Q.shape == (84, read.N_TERMS)
    np.testing.assert_allclose(sp.linalg.norm(X, axis=1), 1, rtol=1e-5)
    _, asked = train_test_split(np.arange(240), test_size=read.TEST_SHARE, stratify=y, random_state=0)
    other = counts.toarray()
    other[asked] = 1 + (y[asked] == 0)[:, None]
    monkeypatch.setattr(read, "count_terms", lambda: (sp.csr_array(other), y))
    again, _, other_Q, _ = read.load_split(0)
    assert (again != X).nnz == 0
    assert (other_Q != Q).nnz > 0


def test_measure_of_a_system_a_trace_and_a_regulariser(posts, monkeypatch):
    figures = measured.figures
    monkeypatch.setattr(measured, "figures", lambda system, X, y, n_queries=40: figures(system, X, y, 40))
    monkeypatch.setattr(measured, "PASS_STEPS", 500)
    cosine = measured.measure("system", "cosine", 0)
    oasis = measured.measure("system", "OASIS", 0, small=True)
    assert oasis["map"] > cosine["map"] + 0.05
    assert oasis["settings"]["n_steps"] in (500, 1000)
    assert "C" in oasis["edges"]  # of two
    monkeypatch.setattr(measured, "TRACED", (500, 1000))
    trace = measured.measure("trace", "AROMA diagonal", 0, value=0.01)["trace"]
    assert {name: len(curve) for name, curve in trace.items()} == {"p@1": 2, "p@10": 2, "mAP": 2}


def test_itml_is_chosen_within_the_posts_to_learn_from(posts, monkeypatch):
    seen = []

    def learn(method, X, y, **options):
        seen.append((len(y), options["n_components"], options["max_iter"]))
        return np.eye(X.shape[1]) * (options["max_iter"] == 3), 0.0

    monkeypatch.setattr(measured, "learn_metric", learn)
    monkeypatch.setattr(measured, "ITML_POINTS", [{"n_components": 5, "max_iter": n} for n in (1, 3, 9)])
    figures = measured.figures
    monkeypatch.setattr(measured, "figures", lambda system, X, y, n_queries=20: figures(system, X, y, 20))
    X, y, *_ = read.load_split(0)
    result = measured.measure("system", "ITML", 0)
    assert result["settings"] == {"n_components": 5, "max_iter": 3}
    assert seen == [*((int(0.8 * len(y)), 5, n) for n in (1, 3, 9)), (len(y), 5, 3)]


def test_a_peer_that_fails_is_said_to(posts, monkeypatch):
    def fail(*args, **parameters):
        raise measured.PeerError("no network")

    monkeypatch.setattr(measured, "learn_metric", fail)
    failed = measured.measure("system", "ITML", 0)
    page = render(newsgroups, results(False) + [{"part": "system", "system": "ITML", "repeat": 0} | failed])
    assert "did not finish here (no network)" in page.text
    assert not any("ITML" in finding.paper for finding in page.findings)


def results(quick, *, diagonal=0.70, oasis=0.60, unlimited=0.60, large=0.60):
    """As the jobs would have them but for ITML; with the last figures of traces, of OASIS with C = 1 too."""
    last = {"AROMA diagonal": diagonal, "AROMA factored": diagonal, "OASIS": oasis, "OASIS from zero": unlimited}
    finished = []
    for job in newsgroups.jobs(quick):
        name = job["system"]
        shift = noise(name, job["repeat"])
        if job["part"] == "trace":
            end = large if name == "OASIS" and job["value"] == 1 else last[name]
            curve = np.linspace(0.3, end + shift, len(newsgroups.TRACED)).tolist()
            finished.append(job | {"trace": dict.fromkeys(("p@1", "p@10", "mAP"), curve)})
        elif job["part"] == "sensitivity":
            finished.append(job | {"precision_at_10": diagonal})
        elif name != "ITML":
            figure = {"cosine": 0.2, "OASIS": 0.5}.get(name, 0.6) + shift
            chosen = {"settings": {"n_steps": 10}, "edges": []}
            finished.append(job | {"map": figure, "precision": [figure] * newsgroups.CURVE} | chosen)
    return finished


@pytest.mark.parametrize("quick", [True, False])
def test_findings_that_must_hold_do_and_fail_with_what_they_are_about(quick):
    for levels, papers in (
        ({}, []),
        ({"diagonal": 0.61, "unlimited": 0.5}, ["AROMA (here: diagona"]),
        ({"unlimited": 0.70}, ["AROMA learns a covar"]),
    ):
        assert broken(render(newsgroups, results(quick, **levels), quick)) == papers


def test_verdicts_follow_the_rules_of_the_page(unflagged):
    for start, levels, agrees in (
        ("Both forms of AROMA (r = 1)", {}, True),
        ("Both forms of AROMA (r = 1)", {"diagonal": 0.62}, False),  # clearly, not by large
        ("OASIS was robust", {}, True),
        ("OASIS was robust", {"large": 0.70}, False),
    ):
        assert finding(render(newsgroups, results(False, **levels)), start).agrees is agrees
    grid = measured.grid_of("OASIS")
    chosen = measured.make("OASIS", 1.0, n_steps=50)
    choice = chosen_settings(chosen, grid, ["C"])
    assert choice == {"settings": {"C": 1.0, "n_steps": 50}, "edges": ["C"]}
    assert settings_by_fold([choice]) == "C 1*; n_steps 50"
    trace = np.linspace(0, 0.9, len(newsgroups.TRACED))
    assert newsgroups.steps_to_reach(trace[3], trace) == pytest.approx(newsgroups.TRACED[3])
    assert newsgroups.TRACED[3] < newsgroups.steps_to_reach(trace[3] + 0.01, trace) < newsgroups.TRACED[4]
    assert newsgroups.steps_to_reach(2.0, trace) == np.inf
    assert not unflagged(newsgroups, results(False))
    assert newsgroups.N_REPEATS >= FEWEST
