"""The papers taken literally: the rules of the page on made-up results, and schedules on synthetic vectors."""

import numpy as np
import pytest
from made_up import finding, synthetic_fold

from experiments import printed
from experiments.measured import printed as measured
from experiments.measured.retrieval import Projected
from experiments.measured.words import PAPER_LEAF
from experiments.pages import render


def result_of(job, *, stopped=0.01, end=0.01, rare=0.005, kept=0.34, five=10.0):
    """Folds differ, and so do the differences between two systems from fold to fold."""
    if job["part"] == "leaf":
        exact = [0.6, 0.61, 0.62, 0.6, 0.63]
        one = {"settings": {"n_neighbors": 3}, "edges": []}
        of = {"k-NN, exact": exact, PAPER_LEAF: [kept * p * (1 + i / 100) for i, p in enumerate(exact)]}
        return {"systems": {name: [one | {"precision": [p]} for p in own] for name, own in of.items()}}
    if job["part"] == "musl":
        lead = five * (job["n_metrics"] > 1) * (1 + job["trial"] / 20)
        return {"accuracy": [50 + job["trial"] + lead] * 4, "grouping": [0, 1, 0]}
    height, vary = 0.2 + 0.01 * job["fold"], 1 + job["fold"] / 10
    leads = {"after": stopped, "every 50000": rare, "every 5000": 0.0}
    curve = [height] * 24 + [height + vary * end * (job["schedule"] == "after")]
    return {"curve": curve, "n_steps": 50_000, "stopped": height + vary * leads.get(job["schedule"], 0)}


def page_of(**given):
    return render(printed, [job | result_of(job, **given) | {"seconds": 1.0} for job in printed.jobs(False)])


def test_page_of_all_jobs():
    page = page_of()
    assert all(one.verdict == "holds" for one in page.findings)
    assert {one.name: one.size for one in page.findings if one.size} == dict.fromkeys(
        ("tree-loses", "metrics-printed"), "inside"
    )
    assert [plot.stem for plot in page.plots] == ["printed-psd"]
    assert printed.jobs(quick=True) == []


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("Section 6.2", {"stopped": 0.0}),
        ("where the curves end", {"end": 0.0}),
        ("every 50,000 steps", {"rare": 0.0}),
        ("Approximate k-NN", {"kept": 0.6}),
        ("MuSL", {"five": 0.0}),
    ],
)
def test_a_broken_finding_does_not_agree(words, broken):
    assert finding(page_of(**broken), words).agrees is False


def test_a_projected_model_is_measured_by_the_positive_part_and_learns_on_from_the_whole():
    X, y, _, _ = synthetic_fold(4, 40, 0)
    settings = {"n_steps": 500, "whiten": False, "random_state": 0}
    learned, projected = measured.OASIS(**settings).fit(X, y), measured.ProjectedOASIS(**settings).fit(X, y)
    np.testing.assert_array_equal(learned.W_, projected.W_)
    values, vectors = np.linalg.eigh((learned.W_ + learned.W_.T).astype(float) / 2)
    expected = X @ ((vectors * values.clip(0)) @ vectors.T) @ X.T
    np.testing.assert_allclose(projected.similarity(X, X), expected, atol=1e-5)
    other = Projected(learned)
    np.testing.assert_allclose(other.transform_query(X) @ other.transform(X).T, expected, atol=1e-5)


@pytest.mark.parametrize("schedule", printed.SCHEDULES)
def test_schedules(monkeypatch, schedule):
    monkeypatch.setattr(measured, "load_fold", synthetic_fold)
    monkeypatch.setattr(measured, "AXIS", 100_000)
    monkeypatch.setattr(measured, "LOOK", 50_000)
    monkeypatch.setattr(measured, "STEPS", range(50_000, 100_001, 50_000))
    result = printed.measure("psd", schedule=schedule, fold=0)
    assert len(result["curve"]) == 2
    assert result["n_steps"] in (50_000, 100_000)
    assert result["stopped"] in result["curve"]
    assert result["stopped"] > 0.3
