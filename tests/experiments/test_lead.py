"""AROMA's lead: the rules of the page on made-up figures, and what the vectors are made from."""

import numpy as np
import pytest
from made_up import unit_rows
from PIL import Image

from experiments import lead
from experiments.measured import lead as measured
from experiments.pages import FEWEST, render


def made_up(quick=False, *, aroma=0.22, oasis=0.24, euclidean=0.18, entries=(27, 129), edges=(), ahead=""):
    """Results of all jobs; on the vectors named `ahead` AROMA has 0.33."""
    results = []
    for job in lead.jobs(quick):
        level = {"AROMA": aroma, "OASIS": oasis, "Euclidean": euclidean}[job["system"]]
        if job["system"] == "AROMA" and job["condition"] == ahead:
            level = 0.33
        figures = {
            "p1": level * (1 + 0.005 * (job["fold"] - (0 if quick else 1))),
            "entries": [*entries],
            "settings": {},
            "edges": [],
        }
        if job["chosen"]:
            figures |= {"settings": {"n_steps": 1000}, "edges": [*edges]}
        results.append(job | figures | {"p10": 0.1, "map": 0.1, "seconds": 1.0})
    return results


def findings(results):
    return {finding.paper[:20]: finding for finding in render(lead, results).findings}


@pytest.mark.parametrize("quick", [True, False])
def test_page_of_all_jobs(quick):
    page = render(lead, made_up(quick), quick)
    assert [finding.agrees for finding in page.findings] == [False, True] + [True] * (not quick)
    # 0.22 / 1.5 is below the Euclidean distance.
    assert "would have to be at 0.147 in place of 0.240, or AROMA at 0.360 in place of 0.220" in page.text
    n = 1 if quick else len(lead.CONDITIONS)
    assert f"On {n} of {n} kinds" in page.text
    assert "On 0 of" in render(lead, made_up(euclidean=0.1)).text


def test_a_lead_on_any_vectors_agrees_and_the_edge_opens_it(unflagged):
    (name,) = [name for name in lead.CONDITIONS if name.startswith("50") and "l1" in name]
    finding = findings(made_up(ahead=name))["Figure 3: AROMA lead"]
    assert finding.agrees
    assert finding.verdict == "holds"
    finding = findings(made_up(ahead=name, edges=["C"]))["Figure 3: AROMA lead"]
    assert finding.verdict == "open"
    assert f"OASIS, {name}: C" in finding.edges
    assert [f.paper[:12] for f in findings(made_up(oasis=0.1)).values() if f.must and not f.agrees] == ["OASIS starts"]
    assert findings(made_up())["Vectors have as many"].agrees
    assert not findings(made_up(entries=(27, 70)))["Vectors have as many"].agrees
    assert not unflagged(lead, made_up())
    assert lead.FOLDS >= FEWEST


def test_sizes_are_the_same_in_every_fold_and_bounded(write_images, tmp_path):
    write_images(tmp_path, [f"crab/{i}.jpg" for i in range(200)])
    paths = [tmp_path / "crab" / f"{i}.jpg" for i in range(200)]
    with Image.open(paths[0]) as photo:
        own = max(photo.size)
    sizes = [measured.longest_side(path, measured.Size(2.0, 0.5, 5 * own)) for path in paths]
    assert sizes == [measured.longest_side(path, measured.Size(2.0, 0.5, 5 * own)) for path in paths]
    assert np.median(sizes) == pytest.approx(2 * own, rel=0.15)
    assert max(sizes) == 5 * own
    assert set(measured.longest_side(path, measured.Size(1.5, 0.0, 900)) for path in paths) == {round(1.5 * own)}


def test_a_job_chooses_within_the_training_images(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    X = np.abs(rng.normal(size=(80, 30))) * (rng.random((80, 30)) < 0.4)
    X[np.arange(80), y] += 1
    X = unit_rows(X)
    monkeypatch.setattr(measured, "load_fold", lambda *given: (X[::2], y[::2], X[1::2], y[1::2]))
    seen = []
    choose = measured.choose
    monkeypatch.setattr(
        measured, "choose", lambda grid, X, y, **options: seen.append(len(y)) or choose(grid, X, y, **options)
    )
    few = {
        name: measured.Grid(grid.learner.set_params(n_steps=400, pass_steps=200), grid.axes)
        for name, grid in measured.GRIDS.items()
    }
    monkeypatch.setattr(measured, "GRIDS", few)
    name = next(iter(lead.CONDITIONS))
    result = lead.measure(condition=name, system="OASIS", start="zero", chosen=True, fold=0, quick=True)
    assert seen == [40]
    assert set(result["settings"]) == {"C", "n_steps"}
    assert result["entries"][1] == max(np.diff(X.indptr))
    euclidean = lead.measure(condition=name, system="Euclidean", start="", chosen=False, fold=0, quick=True)
    assert euclidean["settings"] == {}
    assert 0.25 < euclidean["p1"] <= 1
