"""The page of the speed experiment, its synthetic images, and one small job."""

import numpy as np
import pytest

from experiments import speed
from experiments.measured import speed as measured
from experiments.pages import render

SECONDS = {"OASIS": 0.1, "MCML": 10.0, "LEGO": 1.0, "LMNN": 1.2}


def made_up(seconds=None, power=1.0):
    settings = {"n_steps": 1000}
    results = [
        {"system": system, "classes": c, "fold": fold, "settings": settings, "times": [duration], "violating": 0.1}
        for system, duration in (seconds or SECONDS).items()
        for c in (10, 20)
        for fold in range(2)
    ]
    for n in (1000, 3000, 10_000):
        result = {"system": "OASIS", "images": n, "d": 1000, "settings": {"n_steps": 100 * n}, "violating": 0.1}
        results.append(result | {"times": [0.9e-4 * n**power, 1e-4 * n**power, 1.3e-4 * n**power]})
        for seed in range(2):
            times = {
                "times": [(1 + 2 * seed) * 1e-4 * n] * (3 - 2 * seed),
                "stops": True,
                "best": 10 * n,
                "ended": (11 + seed) * n,
            }
            results.append(result | times)
    return results


def verdicts(results):
    return [finding.agrees for finding in render(speed, results).findings]


def test_times_as_in_the_paper_agree_with_it(unflagged, not_holding):
    assert verdicts(made_up()) == [True] * 5
    assert verdicts(made_up({"OASIS": 0.1, "WSABIE": 0.1})) == [True] * 2  # of a quick run
    results = made_up()
    next(result for result in results if result["system"] == "LMNN")["times"] = []
    page = render(speed, results)
    assert not any("LMNN" in finding.paper for finding in page.findings)
    assert "LMNN is absent: it did not finish." in page.text
    results = made_up()
    for result in results:
        if result["system"] == "MCML" and result.get("classes") == 10:
            result["edges"] = ["trace_penalty"]
    edges_by_finding = [finding.edges for finding in render(speed, results).findings]
    assert [bool(edges) for edges in edges_by_finding] == [True, True, False, False, False]
    assert "MCML, 10 classes: trace_penalty" in edges_by_finding[1]
    lmnn = {"system": "LMNN", "stops": True, "d": 1000, "settings": {}}
    results = made_up() + [lmnn | {"images": n, "times": [n / 100]} for n in (1000, 2000)]
    (plot,) = (plot for plot in render(speed, results).plots if plot.stem == "speed-stopping")
    assert {row["series"] for row in plot.data} == {"OASIS, to early stopping", "LMNN"}
    assert [row["seconds"] for row in plot.data if row["series"] == "LMNN"] == [10, 20]
    results = [one | {"edges": []} for one in made_up()]
    for one in results:
        if one.get("stops"):
            one["settings"] = {"n_steps": 10**9}
    assert not_holding(speed, results) == dict.fromkeys(("mcml-time", "lmnn-time"), "not comparable")
    for one in results:
        if one.get("stops"):
            one["settings"] = {"n_steps": one["ended"]}
    assert unflagged(speed, results) == {"mcml-time", "lmnn-time"}


@pytest.mark.parametrize(
    ("results", "broken"),
    [
        (made_up(SECONDS | {"LEGO": 0.05}), 0),
        (made_up(SECONDS | {"MCML": 1.0}), 1),
        (made_up(SECONDS | {"MCML": 100.0}), 1),
        (made_up(SECONDS | {"LMNN": 0.2}), 2),
        (made_up(power=1.5), 3),
    ],
)
def test_other_times_do_not(results, broken):
    assert verdicts(results) == [i != broken for i in range(5)]


def test_each_system_is_timed_for_the_steps_that_were_chosen(monkeypatch):
    default = measured.LEGO().n_steps  # not among the settings, which hold what differs
    own = {"system": "LEGO", "classes": 10, "fold": 0}
    settings = ({"eta": 0.08}, {"n_steps": 4000})
    chosen = [own | {"settings": one, "edges": []} for one in settings] + [own | {"failed": "no network"}]
    monkeypatch.setattr(speed.retrieval, "jobs", lambda quick: [])
    monkeypatch.setattr(speed, "run_jobs", lambda measure, jobs: chosen)
    step_counts = [job["settings"]["n_steps"] for job in speed.jobs(quick=True) if "classes" in job]
    assert step_counts == [default, 4000]


def test_synthetic_images_are_sparse_unit_rows_of_classes():
    X, y = measured.synthetic_images(400, 1000)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert 20 < X.nnz / 400 < 29
    assert (np.bincount(y) == 40).all()
    near = (X @ X.T).toarray()
    same = y[:, None] == y
    assert near[same].mean() > 2 * near[~same].mean()
    timing = speed.measure(system="OASIS", settings={"n_steps": 2000, "pass_steps": 1000}, images=400, d=200)
    assert all(seconds > 0 for seconds in timing["times"])
    assert 0 < timing["violating"] <= 1
    stopping = speed.STOPPING | {"random_state": 0, "n_steps": 6000, "pass_steps": 1000}
    timing = speed.measure(system="OASIS", settings=stopping, images=400, d=200, stops=True)
    assert 0 <= timing["best"] <= timing["ended"] <= 6000


def test_a_time_to_early_stopping_is_of_all_seeds_and_open_where_the_cap_ended_training():
    results = made_up()
    findings = {finding.name: finding for finding in render(speed, results).findings}
    assert "from 0.2 to 2 s" in findings["time-linear"].here  # of both seeds, one of which was timed thrice
    assert findings["time-linear"].verdict == "holds"
    capped = next(one for one in results if one.get("stops") and one["images"] == 10_000)
    capped["ended"] = capped["settings"]["n_steps"] * 10
    (finding,) = (one for one in render(speed, results).findings if one.name == "time-linear")
    assert finding.verdict == "open"
    assert "ended 1 of 2 seeds with 10,000 images." in finding.edges
