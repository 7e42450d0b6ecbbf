import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import mutual_info_classif
from sklearn.model_selection import train_test_split

pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")

from experiments import newsgroups


def test_information_gain_is_the_mutual_information_of_term_and_class():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 200)
    has = (rng.random((200, 6)) < 0.1 + 0.2 * np.outer(y, np.arange(6)) / 5) * 1
    has[:, 5] = 0  # a term of no post says nothing
    gain = newsgroups.information_gain(sp.csr_array(has) > 0, y)
    np.testing.assert_allclose(gain * np.log(2), mutual_info_classif(has, y, discrete_features=True), atol=1e-12)
    assert gain[4] > 0.05
    assert gain[5] == 0


def test_headers_that_tell_the_group_are_removed():
    headers = "Path: a!b\nNewsgroups: sci.space\nSubject: Path: to Mars\nfollowup-to: sci.space\nXref: x sci.space:1\n"
    assert newsgroups.NAMES_GROUP.sub("", headers) == "Subject: Path: to Mars\n"


@pytest.fixture
def posts(monkeypatch):
    """Counts of 1,200 terms in 240 posts of four groups; a group prefers a quarter of the terms."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    rate = np.where(np.arange(1200) % 4 == y[:, None], 0.06, 0.01)
    counts = sp.csr_array(rng.poisson(rate).astype(np.int32))
    monkeypatch.setattr(newsgroups, "count_terms", lambda: (counts, y))
    return counts, y


def test_terms_and_idf_come_from_training_posts_alone(posts, monkeypatch):
    counts, y = posts
    X, _, Q, y_query = newsgroups.load_split(0)
    assert X.shape == (156, newsgroups.N_TERMS)
    assert Q.shape == (84, newsgroups.N_TERMS)
    np.testing.assert_allclose(sp.linalg.norm(X, axis=1), 1, rtol=1e-5)
    _, asked = train_test_split(np.arange(240), test_size=newsgroups.TEST_SHARE, stratify=y, random_state=0)
    other = counts.toarray()
    other[asked] = 1 + (y[asked] == 0)[:, None]
    monkeypatch.setattr(newsgroups, "count_terms", lambda: (sp.csr_array(other), y))
    again, _, other_Q, _ = newsgroups.load_split(0)
    assert (again != X).nnz == 0
    assert (other_Q != Q).nnz > 0


def test_measure_of_a_system_a_trace_and_a_regulariser(posts, monkeypatch):
    figures = newsgroups.figures
    monkeypatch.setattr(newsgroups, "figures", lambda system, X, y, n_queries=40: figures(system, X, y, 40))
    monkeypatch.setattr(newsgroups, "PASS_STEPS", 500)
    cosine = newsgroups.measure("system", "cosine", 0)
    oasis = newsgroups.measure("system", "OASIS", 0, small=True)
    assert oasis["map"] > cosine["map"] + 0.05
    assert oasis["settings"]["n_steps"] in (500, 1000)
    monkeypatch.setattr(newsgroups, "TRACED", (500, 1000))
    assert len(newsgroups.measure("trace", "AROMA diagonal", 0, value=0.01)["trace"]) == 2


def results(diagonal=0.70, oasis=0.60):
    """As jobs(quick=True) would have them, with the last precision of the two traces."""
    found = []
    for job in newsgroups.jobs(True):
        if job["part"] == "trace":
            last = diagonal if job["system"] == "AROMA diagonal" else oasis
            found.append(job | {"trace": np.linspace(0.3, last, len(newsgroups.TRACED)).tolist()})
        else:
            figure = {"cosine": 0.2, "OASIS": 0.5, "AROMA diagonal": 0.6}[job["system"]] + 0.001 * job["repeat"]
            found.append(job | {"map": figure, "precision": [figure] * newsgroups.CURVE, "settings": {}})
    return found


def test_findings_are_computed():
    good = {finding.paper: finding.agrees for finding in newsgroups.page(results()).findings}
    assert all(good.values())
    broken = newsgroups.page(results(diagonal=0.59)).findings
    assert [finding.paper for finding in broken if finding.must and not finding.agrees] == [
        "With C = 0.1 and r = 0.01 the precision at 10 of AROMA lies above that of OASIS for most of the steps."
    ]


def test_steps_to_reach_are_read_between_looks():
    trace = np.linspace(0, 0.9, len(newsgroups.TRACED))
    assert newsgroups.page_steps_to_reach(trace[3], trace) == pytest.approx(newsgroups.TRACED[3])
    assert newsgroups.TRACED[3] < newsgroups.page_steps_to_reach(trace[3] + 0.01, trace) < newsgroups.TRACED[4]
    assert newsgroups.page_steps_to_reach(2.0, trace) == np.inf
