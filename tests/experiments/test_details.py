"""What the OASIS paper says in a sentence: the rules of the page on made-up figures, and theorem 1 on small vectors."""

import numpy as np
import pytest
from made_up import unit_rows

from experiments import details
from experiments.measured import details as measured
from experiments.pages import FEWEST, render


@pytest.fixture(autouse=True)
def peers(monkeypatch):
    monkeypatch.setattr(details, "has_peers", lambda: True)


def made_up(*, eta=0.001, dissim=2.5, overfit=0.2, mistakes=100):
    results = []
    for job in details.jobs(quick=False):
        fold = 0.01 * job["fold"]
        if job["part"] == "eta":
            figures = {"map": 0.2 + eta * details.ETAS.index(job["eta"]) + fold}
        elif job["part"] == "dissim":
            figures = {"step_us": (5 * dissim if job["variant"] else 5) * (1 + fold), "violating": 0.1}
        elif job["part"] == "theorem":
            figures = {"mistakes": mistakes, "triplets": 2000, "astray": 1e-6, "identity": 400.0, "learned": 500.0}
        else:
            figures = fit_of(job["system"], fold, overfit)
        results.append(job | figures | {"seconds": 1.0})
    return results


def fit_of(system, fold, overfit):
    gain = {"Euclidean": (0, 0), "OASIS": (0.2, 0.1), "LMNN": (overfit, 0.02)}[system]
    fits = {"train": 0.3 + gain[0] * (1 + fold), "test": 0.3 + gain[1]}
    return {"fits": {f"{push:g}": fits for push in measured.PUSHES} if system == "LMNN" else {"": fits}, "edges": []}


def verdicts(results):
    return {one.name: one.agrees for one in render(details, results).findings}


def test_page_of_all_jobs_and_each_claim_can_hold(not_holding, unflagged):
    assert all(verdicts(made_up()).values())
    assert not not_holding(details, made_up())
    assert not unflagged(details, made_up())
    assert not_holding(details, made_up(dissim=1.9)) == {"dissim-time": "does not hold"}  # twice is the lower bound
    assert min(details.N_FOLDS, details.PEER_FOLDS) >= FEWEST


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        ({"eta": 0.05}, "lego-eta"),
        ({"dissim": 1.5}, "dissim-time"),
        ({"overfit": 0.01}, "lmnn-overfits"),
        ({"mistakes": 450}, "theorem-1"),
    ],
)
def test_a_broken_finding_does_not_agree(broken, name):
    assert [key for key, agrees in verdicts(made_up(**broken)).items() if not agrees] == [name]


def test_a_peer_that_fails_is_left_out():
    results = made_up()
    for one in results:
        if one.get("system") == "LMNN":
            del one["fits"]
            one["failed"] = "peer metric-learn:\nno network"
    page = render(details, results)
    assert "LMNN is absent: it did not finish (no network)." in page.text
    assert "lmnn-overfits" not in {one.name for one in page.findings}


def test_mistakes_are_bounded_and_counted_on_the_triplets_that_were_learned(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    X = rng.random((80, 40)) * (rng.random((80, 40)) < 0.15)
    X[np.arange(80), y] += 0.3
    X = unit_rows(X)
    monkeypatch.setattr(measured, "THEOREM_STEPS", 50)
    monkeypatch.setattr(measured, "THEOREM_PASS", 20)
    replay = measured.replay
    figures = measured.measure_mistakes(X, y, X, y, fold=0)
    assert 0 < figures["mistakes"] <= 50
    assert figures["mistakes"] <= min(figures["identity"], figures["learned"])
    assert figures["astray"] < 1e-5  # the steps taken again end at OASIS's W
    # Of other triplets than those learned, OASIS's W is another.
    monkeypatch.setattr(measured, "replay", lambda images, triplets, C: replay(images, triplets[:-5], C))
    assert measured.measure_mistakes(X, y, X, y, fold=0)["astray"] > 1e-3
    # Where nothing is learned, the losses are those of the identity: its bound is twice their sum.
    losses = []
    learner = measured.OASIS(C=1e-12, n_steps=50, pass_steps=20, random_state=0, **measured.ONE_PAIR)
    learner.fit(X, y, callback=lambda learned: losses.append(learned.history_[-1]["loss"]))
    assert figures["identity"] == pytest.approx(2 * np.dot(losses, [20, 20, 10]), rel=1e-4)
