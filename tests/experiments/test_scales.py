"""Row norms: the page on made-up figures, what is ranked, and that longer rows are other settings."""

import numpy as np
import pytest
from made_up import unit_rows

from experiments import scales
from experiments.measured import scales as measured
from experiments.pages import FEWEST, render


def made_up(*, aroma=0.33, at=(0.1, 0.3), still=0.2):
    """AROMA has `aroma` on rows of the lengths `at` and 0.2 on others; OASIS has 0.22, and `still` on the shortest."""
    results = []
    for job in scales.jobs(quick=False):
        scale, system = job["scale"], job["system"]
        level = {"Euclidean": 0.2, "OASIS": still if scale == scales.SCALES[0] else 0.22}.get(system)
        if level is None:
            level = aroma if scale in at else 0.2
        level += 0.001 * job["fold"] * (1 + system.startswith("AROMA"))
        results.append(job | {"p1": [level + 0.01 * n for n in range(len(measured.LEARNED))], "seconds": 1.0})
    return results


def test_a_lead_as_the_papers_holds_and_other_pages_hear_of_it():
    page = render(scales, made_up())
    assert all(one.agrees and one.verdict == "holds" for one in page.findings)
    assert not any(one.stated for one in page.findings)  # retrieval has the claim
    assert "s = 0.1: AROMA 0.33" in page.findings[0].here
    assert min(scales.FOLDS.values()) >= FEWEST
    assert set(page.notes) == {"lead", "retrieval"}
    assert all("0.33" in note and "(scales.md)" in note for note in page.notes.values())


@pytest.mark.parametrize(("at", "verdict"), [((30.0,), "open"), ((10.0, 30.0), "holds")], ids=["edge", "level"])
def test_a_lead_at_the_edge_of_the_lengths_is_open_unless_figures_stopped_changing(at, verdict):
    assert [one.verdict for one in render(scales, made_up(at=at)).findings] == [verdict] * 3 + ["holds"]


@pytest.mark.parametrize(("broken", "n"), [({"aroma": 0.25}, 3), ({"still": 0.22}, 1)], ids=["lead", "still"])
def test_broken_findings_do_not_agree(broken, n):
    assert sum(not one.agrees for one in render(scales, made_up(**broken)).findings) == n


def test_mixtures_have_as_many_images_of_each_class_and_as_many_of_them_learned_from():
    y, test_y = np.repeat(list("abc"), 40), np.tile(list("cab"), 25)
    labels = np.concatenate([y, test_y])
    for n, rows in zip(measured.LEARNED, measured.mixtures(y, test_y, 3), strict=True):
        assert len(set(rows)) == len(rows) == 75
        assert (rows < len(y)).sum() == 3 * n
        assert {(labels[rows] == label).sum() for label in "abc"} == {25}


@pytest.fixture
def measure(monkeypatch):
    """Function (system, scale, learner) that measures on a few made-up images."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 65)
    X = rng.random((260, 60)) * (rng.random((260, 60)) < 0.15)
    X[np.arange(260), y] += 0.4
    X = unit_rows(X)
    train = np.tile(np.arange(65) < 40, 4)
    monkeypatch.setattr(measured, "load_fold", lambda *given: (X[train], y[train], X[~train], y[~train]))
    short = {"n_steps": 3000, "pass_steps": 3000} | measured.ONE_PAIR

    def run(system, scale, **settings):
        learner = getattr(measured, system.split()[0])(**settings, **short)
        monkeypatch.setitem(measured.OF_PAPER, system, learner)
        return measured.measure(system, 60, scale, 0)["p1"]

    return run


@pytest.mark.parametrize(("system", "setting", "power"), [("AROMA diagonal", "r", -4), ("OASIS", "C", 4)])
def test_longer_rows_are_unit_rows_with_other_settings(measure, system, setting, power):
    longer = measure(system, 0.1, **{setting: 1.0}, init="zero")
    assert longer == pytest.approx(measure(system, 1.0, **{setting: 0.1**power}, init="zero"), abs=0.03)
    assert longer != pytest.approx(measure(system, 1.0, **{setting: 0.1**-power}, init="zero"), abs=0.03)
