"""The page of the retrieval experiment, and one small job."""

import numpy as np
import pytest

pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")
from experiments import retrieval
from visterm.retrieval import evaluate_test_test


def made_up(levels, *, classes=(10, 20, 38), folds=3, quick=False):
    """Results whose mean average precision, and precision at 1, is the level of the system."""
    rng = np.random.default_rng(0)
    results = []
    for system, level in levels.items():
        for c in classes:
            for fold in range(folds):
                found = level + rng.normal(0, 1e-4)
                settings = {} if system == "Euclidean" else {"n_steps": 1000}
                result = {"system": system, "classes": c, "d": 1000, "fold": fold, "quick": quick, "seconds": 1.0}
                precision = (found / np.sqrt(np.arange(1, 51))).tolist()
                results.append(result | {"map": found, "precision": precision, "settings": settings})
    return results


AS_IN_THE_PAPERS = {
    "OASIS": 0.21,
    "AROMA diagonal": 0.31,
    "AROMA factored": 0.32,
    "WSABIE": 0.2,
    "MCML": 0.18,
    "LEGO": 0.16,
    "LMNN": 0.14,
    "Euclidean": 0.14,
}


def verdicts(levels, **options):
    return {finding.paper: finding.agrees for finding in retrieval.page(made_up(levels, **options)).findings}


def test_the_papers_ordering_agrees_with_the_papers():
    assert all(verdicts(AS_IN_THE_PAPERS).values())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"OASIS": 0.15}, "OASIS is well above"),
        ({"AROMA diagonal": 0.15}, "AROMA is well above"),
        ({"MCML": 0.22}, "OASIS is best at every k"),
        ({"MCML": 0.22}, "OASIS is above MCML"),
        ({"LEGO": 0.19}, "MCML is above LEGO"),
        ({"LMNN": 0.16}, "LMNN is about as good"),
        ({"AROMA diagonal": 0.2}, "AROMA diagonal is above OASIS"),
        ({"AROMA factored": 0.3}, "Factored AROMA"),
    ],
)
def test_a_broken_ordering_does_not(broken, words):
    found = verdicts(AS_IN_THE_PAPERS | broken)
    assert [agrees for paper, agrees in found.items() if paper.startswith(words)] == [False]


def test_the_quick_page_has_what_must_hold():
    levels = {system: AS_IN_THE_PAPERS[system] for system in ("OASIS", "AROMA diagonal", "WSABIE", "LEGO", "Euclidean")}
    page = retrieval.page(made_up(levels, classes=(10, 20), folds=2, quick=True))
    assert [finding.agrees for finding in page.findings if finding.must] == [True, True]
    assert "MCML" not in "".join(finding.paper for finding in page.findings)


def test_chance_is_what_random_rankings_have():
    classes = 3
    y = np.repeat(np.arange(classes), retrieval.N_TEST)

    class Random:
        def transform(self, X, y=None):
            return X

        def transform_query(self, Q):
            return rng.normal(size=Q.shape)

    rng = np.random.default_rng(0)
    found = [evaluate_test_test(Random(), rng.normal(size=(len(y), 40)), y) for _ in range(60)]
    means = [[f.mean_average_precision, f.precision_at(1), f.precision_at(10), f.precision_at(50)] for f in found]
    np.testing.assert_allclose(np.mean(means, axis=0), retrieval.page_chance(classes), atol=0.012)


def test_distances_under_a_matrix():
    rng = np.random.default_rng(0)
    X, L = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    system = retrieval.Linear(L)
    distances = ((X[:, None] @ L.T - X @ L.T) ** 2).sum(axis=2)
    shift = ((X @ L.T) ** 2).sum(axis=1)
    np.testing.assert_allclose(system.transform_query(X) @ system.transform(X).T, shift[:, None] - distances, rtol=1e-4)


def test_a_job_chooses_by_images_that_query_images(data, monkeypatch):
    monkeypatch.setattr(retrieval, "INNER_FOLDS_QUICK", 2)
    monkeypatch.setitem(
        retrieval.CANDIDATES, "WSABIE", [retrieval.EmbeddingWSABIE(n_steps=2000, pass_steps=1000, random_state=0)]
    )
    found = retrieval.measure(system="WSABIE", classes=10, d=1000, fold=0, quick=True)
    assert retrieval.page_chance(10)[0] < found["map"] < 1
    assert len(found["precision"]) == 50
    assert found["settings"]["n_steps"] in (1000, 2000)
