"""Variants of OASIS: the rules of the page on made-up results, and the jobs on synthetic vectors."""

import numpy as np
import pytest
from made_up import finding, synthetic_fold

from experiments import variants
from experiments.measured import variants as measured
from experiments.pages import render


def result_of(job, *, averaged=0.01, rho=0.94, proj=0.0, dissim=-0.005):
    """Folds differ, and so do the differences between two systems from fold to fold."""
    fold, vary = 0.01 * job["fold"], 1 + job["fold"] / 10
    if job["kind"] == "rankers":
        height = 0.2 + fold + averaged * (job["n_rankers"] > 1) * vary
        steps = [step for step in measured.POINTS if step <= job["n_steps"]]
        return {"curve": [{"step": n, "map": height, "p1": 0.3, "rho": rho, "rho_added": 0.8} for n in steps]}
    lead = {None: 0, "symmetric": proj, "online-symmetric": -0.001, "dissim": dissim}[job["variant"]]
    figures = {"map": 0.2 + fold + lead * vary, "precision": [0.3] * 50, "C": 0.1, "n_steps": 50_000, "edges": []}
    return figures | {"rho": rho, "rho_added": 0.9}


def page_of(quick=False, **given):
    results = [job | result_of(job, **given) | {"seconds": 1.0} for job in variants.jobs(quick)]
    return render(variants, results, quick=quick)


@pytest.mark.parametrize("quick", [True, False])
def test_page_of_all_jobs(quick):
    page = page_of(quick, averaged=0.02)
    tested = ("Figure 7",) if quick else ()  # two folds do not pass a t test
    assert all(one.agrees for one in page.findings if not one.paper.startswith(tested or "none"))
    stems = {plot.stem for plot in page.plots}
    assert {"variants-rankers", "variants-symmetric", "variants-symmetry"} <= stems


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("Figure 7", {"averaged": 0.0}),
        ("Proj-OASIS (symmetric after learning)", {"proj": -0.05}),
        ("all symmetric variants", {"dissim": 0.05}),
        ("all symmetric variants", {"dissim": -0.02}),  # a tenth is not slightly
        ("almost symmetric", {"rho": 0.6}),
    ],
)
def test_a_broken_finding_does_not_agree(words, broken):
    assert finding(page_of(**broken), words).agrees is False


@pytest.fixture(autouse=True)
def synthetic(monkeypatch):
    monkeypatch.setattr(measured, "load_fold", synthetic_fold)
    monkeypatch.setattr(measured, "PASS", 500)
    monkeypatch.setattr(measured, "POINTS", [500, 1_000])


def test_a_job_and_its_symmetry():
    result = variants.measure(kind="rankers", n_rankers=3, n_steps=1_000, fold=0)
    assert [point["step"] for point in result["curve"]] == [500, 1_000]
    assert result["curve"][-1]["map"] > result["cosine"]
    assert all(0 < point["rho_added"] < point["rho"] < 1 for point in result["curve"])
    learned = measured.OASIS(n_steps=1).fit(*synthetic_fold(4, 40, 0)[:2])
    learned.W_ = np.eye(40, dtype=np.float32)
    learned.W_[0, 1], learned.W_[1, 0] = 1, -1
    assert measured.symmetry(learned) == {"rho": pytest.approx(40 / 42), "rho_added": 0.0}


def test_no_claim_is_decided_at_the_edge_and_each_can_hold(unflagged, not_holding):
    results = [job | result_of(job, averaged=0.02) | {"seconds": 1.0} for job in variants.jobs(False)]
    assert not unflagged(variants, results)
    assert not not_holding(variants, results)
