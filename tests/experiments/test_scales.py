"""Row norms: the page on made-up figures, and that scaled rows are scaled settings."""

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")
from experiments import scales
from experiments.measured import scales as measured
from experiments.pages import FEWEST, render

pytestmark = pytest.mark.slow


def made_up(*, aroma=0.22, at=0.1):
    """AROMA has `aroma` on rows of length `at` and 0.2 on others, OASIS 0.22."""
    results = []
    for job in scales.jobs(quick=False):
        level = {"AROMA": aroma if job["scale"] == at else 0.2, "OASIS": 0.22, "Euclidean": 0.18}[job["system"]]
        level += 0.001 * job["fold"] * (1 + (job["system"] == "AROMA"))
        results.append(job | {"test": level, "training": 2 * level, "all": level, "map": 0.1, "seconds": 1.0})
    return results


def test_page_of_all_jobs():
    page = render(scales, made_up())
    (finding,) = page.findings
    assert not finding.agrees
    assert finding.repeat
    assert "rows of length 0.1" in finding.here


def test_a_lead_at_some_length_agrees():
    (finding,) = render(scales, made_up(aroma=0.33)).findings
    assert finding.agrees
    assert finding.verdict == "holds"
    assert min(scales.FOLDS.values()) >= FEWEST


def test_rows_ten_times_as_short_are_r_ten_thousand_times_as_large(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    X = rng.random((80, 60)) * (rng.random((80, 60)) < 0.15)
    X[np.arange(80), y] += 0.5
    X = sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))
    monkeypatch.setattr(measured, "load_fold", lambda *given: (X[::2], y[::2], X[1::2], y[1::2]))
    short = {"n_steps": 3000, "pass_steps": 3000} | measured.ONE_PAIR
    monkeypatch.setitem(measured.OF_PAPER, "AROMA", measured.AROMA(r=0.01, **short))
    scaled = measured.measure("AROMA", 60, 0.1, 0)
    monkeypatch.setitem(measured.OF_PAPER, "AROMA", measured.AROMA(r=100.0, **short))
    whole = measured.measure("AROMA", 60, 1.0, 0)
    for name in ("test", "training", "all", "map"):
        assert scaled[name] == pytest.approx(whole[name], abs=0.03)
    assert scaled["training"] > 0.5
