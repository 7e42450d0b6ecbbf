"""The page of the retrieval experiment, and one small job."""

import numpy as np
import pytest

from experiments import retrieval
from experiments.measured import retrieval as measured
from experiments.pages import FEWEST, render
from visterm.retrieval import evaluate_test_test


def made_up(levels, *, classes=(10, 20, 38), folds=3, quick=False, variance=0.5):
    """Results whose mean average precision, and precision at 1, is the level of the system."""
    rng = np.random.default_rng(0)
    results = []
    for system, level in levels.items():
        for c in classes[-1:] if system == "AROMA factored" else classes:
            for fold in range(folds):
                mean_ap = level + rng.normal(0, 1e-4)
                settings = {} if system == "Euclidean" else {"n_steps": 1000}
                result = {"system": system, "classes": c, "fold": fold, "quick": quick, "seconds": 1.0}
                result["edges"] = []
                precision = (mean_ap / np.sqrt(np.arange(1, 51))).tolist()
                results.append(
                    result | {"map": mean_ap, "metric_map": mean_ap, "precision": precision, "settings": settings}
                )
                results[-1]["least_variance"] = variance
    return results


AS_IN_THE_PAPERS = {"OASIS": 0.21, "AROMA diagonal": 0.31, "AROMA factored": 0.32, "WSABIE": 0.2, "MCML": 0.18}
AS_IN_THE_PAPERS |= {"LEGO": 0.165, "LMNN": 0.14, "Euclidean": 0.14}


def verdicts(levels, **options):
    return {finding.paper: finding.agrees for finding in render(retrieval, made_up(levels, **options)).findings}


def test_the_papers_ordering_agrees_with_the_papers():
    assert all(verdicts(AS_IN_THE_PAPERS).values())
    (broken,) = [paper for paper, agrees in verdicts(AS_IN_THE_PAPERS, variance=1.0).items() if not agrees]
    assert broken.startswith("AROMA grows surer")
    systems = {job["system"] for job in retrieval.jobs(quick=True)}
    assert "LEGO" not in systems  # a third of the time
    levels = {system: AS_IN_THE_PAPERS[system] for system in ("OASIS", "AROMA diagonal", "WSABIE", "Euclidean")}
    assert systems >= {*levels}
    page = render(retrieval, made_up(levels, classes=(20,), folds=1, quick=True), quick=True)
    assert [finding.agrees for finding in page.findings if finding.must] == [True] * 4
    assert "MCML" not in "".join(finding.paper for finding in page.findings)
    results = made_up(AS_IN_THE_PAPERS)
    lost = next(result for result in results if result["system"] == "LMNN")
    results[results.index(lost)] = {key: lost[key] for key in ("system", "classes", "fold", "quick")} | {
        "failed": "peer metric-learn:\nno answer within 300 s"
    }
    page = render(retrieval, results)
    assert not any("LMNN" in finding.paper.replace("OASIS is best", "") for finding in page.findings)
    assert "LMNN is absent: it did not finish (10 classes, fold 0: no answer within 300 s)." in page.text


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"OASIS": 0.15}, "OASIS is well above"),
        ({"AROMA diagonal": 0.15}, "AROMA is well above"),
        ({"MCML": 0.22}, "OASIS is best at every k"),
        ({"MCML": 0.22}, "OASIS is above MCML"),
        ({"MCML": 0.22}, "OASIS, made a metric"),
        ({"LMNN": 0.32}, "AROMA is above LMNN"),
        ({"LEGO": 0.19}, "MCML is above LEGO"),
        ({"LMNN": 0.16}, "LMNN is about as good"),
        ({"LEGO": 0.15}, "LEGO is above the Euclidean"),
        ({"WSABIE": 0.15}, "WSABIE"),
        ({"AROMA diagonal": 0.2, "AROMA factored": 0.2}, "AROMA is above all other methods"),
        ({"AROMA factored": 0.3}, "Factored AROMA"),
    ],
)
def test_a_broken_ordering_does_not(broken, words):
    agreement = verdicts(AS_IN_THE_PAPERS | broken)
    assert [agrees for paper, agrees in agreement.items() if paper.startswith(words)] == [False]


def test_without_the_peers_package_its_jobs_are_left_out(monkeypatch):
    def no_network(*arguments):
        raise retrieval.PeerError("no network")

    assert retrieval.jobs(quick=True)  # asks for no peer
    monkeypatch.setattr(retrieval, "environment", no_network)
    systems = {job["system"] for job in retrieval.jobs(quick=False)}
    assert not systems & set(retrieval.PEERS)
    assert "MCML" in systems


def test_settings_at_the_edge_are_marked_and_leave_verdicts_open(unflagged, not_holding):
    own = {"system": "OASIS", "classes": 10, "fold": 0}
    taken = ((0.003, 40_000, ["C"]), (0.01, 200_000, ["n_steps"]), (0.01, 60_000, []))
    results = [own | {"settings": {"C": C, "n_steps": n}, "edges": edges} for C, n, edges in taken]
    assert retrieval.settings("OASIS", results) == "C 0.003* (1), 0.01 (2); 60,000 steps (1*)"
    results = made_up(AS_IN_THE_PAPERS)
    for result in results:
        if result["system"] == "LEGO" and result["classes"] == 10 and result["fold"] > 0:
            result["edges"] = ["eta"]
    findings = {finding.paper: finding for finding in render(retrieval, results).findings}
    open_ = [paper for paper, finding in findings.items() if finding.verdict == "open"]
    assert [paper for paper in findings if "LEGO" in paper] == open_
    assert "LEGO, 10 classes: eta" in findings["OASIS is above LEGO in mAP (JMLR, section 5.3.3)."].edges
    assert not unflagged(retrieval, made_up(AS_IN_THE_PAPERS))
    assert not not_holding(retrieval, made_up(AS_IN_THE_PAPERS))
    assert min(n_folds for _, n_folds in retrieval.DATA.values()) >= FEWEST


def test_limits_of_a_peer_are_chosen_within_the_training_images(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    X, seen = rng.random((80, 6)), []

    def learn(method, X, y, **options):
        seen.append((len(y), options["max_iter"]))
        return np.diag([1.0, 1, 1, 0, 0, 0]) * (options["max_iter"] == 10), 0.0

    X[np.arange(80), y % 3] += 1
    monkeypatch.setattr(measured, "learn_metric", learn)
    result = measured.measure_peer("NCA", X, y, X, y)
    assert result["settings"]["max_iter"] == 10
    assert seen == [(64, 5), (64, 10), (64, 20), (80, 10)]


@pytest.mark.parametrize("best", [0.02, 0.2, 5.0])
def test_lmnns_length_has_an_interior_and_the_papers_weights_have_no_edge(monkeypatch, best):
    X, y = np.ones((80, 4)), np.repeat(np.arange(4), 20)

    def learn(method, X, y, *, scale, regularization, **options):
        return np.full((1, 4), abs(np.log(scale / best)) + 0.5 - regularization), 0.0

    monkeypatch.setattr(measured, "learn_metric", learn)
    monkeypatch.setattr(measured, "figures", lambda system, X, y: {"map": -system.components[0, 0]})
    result = measured.measure_peer("LMNN", X, y, X, y)
    assert (result["settings"]["scale"], result["settings"]["regularization"]) == (best, 0.5)
    assert not result["edges"]


def test_chance_is_what_random_rankings_have():
    classes = 3
    y = np.repeat(np.arange(classes), retrieval.N_TEST)

    class Random:
        def transform(self, X, y=None):
            return X

        def transform_query(self, Q):
            return rng.normal(size=Q.shape)

    rng = np.random.default_rng(0)
    evaluations = [evaluate_test_test(Random(), rng.normal(size=(len(y), 40)), y) for _ in range(60)]
    means = [[f.mean_average_precision, f.precision_at(1), f.precision_at(10), f.precision_at(50)] for f in evaluations]
    expected, precision = retrieval.chance(classes)
    np.testing.assert_allclose(np.mean(means, axis=0), [expected, *[precision] * 3], atol=0.012)


def test_distances_under_a_matrix():
    rng = np.random.default_rng(0)
    X, L = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    system = measured.Linear(L)
    distances = ((X[:, None] @ L.T - X @ L.T) ** 2).sum(axis=2)
    shift = ((X @ L.T) ** 2).sum(axis=1)
    np.testing.assert_allclose(system.transform_query(X) @ system.transform(X).T, shift[:, None] - distances, rtol=1e-4)


def test_a_job_chooses_by_images_that_query_images(data, monkeypatch):
    monkeypatch.setitem(
        measured.CANDIDATES,
        "WSABIE",
        measured.Grid(measured.EmbeddingWSABIE(n_steps=2000, pass_steps=1000, random_state=0), {}),
    )
    result = retrieval.measure(system="WSABIE", classes=10, fold=0, quick=True)
    assert retrieval.chance(10)[0] < result["map"] < 1
    assert len(result["precision"]) == 50
    assert result["settings"]["n_steps"] in (1000, 2000)


def test_legos_distances_stay_apart_however_the_grid_grows():
    grid, tried = measured.CANDIDATES["LEGO"], []

    def measure(points):
        tried.extend(points)
        return [[(4000, point["near"] - point["far"]), (8000, point["near"] - point["far"])] for point in points]

    chosen = measured.search(grid.points(), measure, limits=grid.limits)
    assert chosen.point["near"] == 1.9
    assert chosen.point["far"] == 2.0
    assert all(point["near"] < point["far"] for point in tried)
