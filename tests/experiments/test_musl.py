import itertools

import numpy as np
import pytest

pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")

from experiments import musl
from experiments.musl import SETTINGS, jobs, match, measure, metrics_of_sources, page, stability

SOURCES = [0] * 7 + [1] * 7 + [2] * 6


def made_up(accuracy, *, quick=False):
    """Results as a learner would give whose accuracy is that of (system, K), a little different in each trial."""
    results = []
    for parameters in jobs(quick):
        system, k, trial = (parameters[name] for name in ("system", "n_metrics", "trial"))
        value = accuracy(system, k) + 0.1 * (trial % 3)
        right = [value - 2, value - 1, value]
        result = {"accuracy": right, "seconds": 1.0}
        if not parameters.get("validate"):
            novel = [figure - k for figure in right]
            grouping = SOURCES if "joint" in system else np.random.default_rng(trial).permutation(SOURCES).tolist()
            result |= {"novel": novel, "all": novel, "own": novel, "within": novel, "astray": 1, "loss": 0.5}
            result |= {"grouping": [g % k for g in grouping], "sources": SOURCES}
        results.append(parameters | result)
    return results


def as_in_the_paper(system, k):
    bonus = {"random": 0, "k-means": 1, "joint, not re-trained": 4}.get(system, 6) if 1 < k < 20 else 0
    return 40 + 5 * np.log2(k) + bonus


def finding(page, words):
    (found,) = (finding for finding in page.findings if words in finding.paper)
    return found


class TestPage:
    @pytest.mark.parametrize("quick", [False, True])
    def test_orderings_that_hold(self, quick):
        results = made_up(as_in_the_paper, quick=quick)
        found = page(results)
        assert all(finding.agrees for finding in found.findings if finding.must)
        assert sum(finding.must for finding in found.findings) >= 3
        joint = finding(found, "better than random grouping")
        assert joint.must
        assert joint.here == "+6.0 ± 0.0 points."
        assert finding(found, "by their source").agrees

    def test_joint_no_better_than_random(self):
        found = page(made_up(lambda system, k: 40 + 5 * np.log2(k)))
        assert not finding(found, "better than random grouping").agrees
        assert not finding(found, "k-means grouping (K = 5)").agrees
        assert not finding(found, "Re-training").agrees

    def test_more_metrics_are_worse(self):
        found = page(made_up(lambda system, k: 60 - k))
        assert not finding(found, "Accuracy rises").agrees
        assert not finding(found, "One metric a category").agrees

    def test_many_metrics_do_not_hurt(self):
        found = page(made_up(lambda system, k: 40 + 5 * k))
        assert not finding(found, "Too many metrics hurt").agrees

    def test_figures_of_the_table(self):
        results = made_up(as_in_the_paper)
        (table, *_) = (part for part in page(results).parts if isinstance(part, musl.Table))
        row = next(row for row in table.rows if row[:2] == ["joint", 1])
        assert row[4:7] == ["40.1 ± 0.0", "39.1 ± 0.0", "39.1 ± 0.0"]
        assert row[-1] == musl.N_TRIALS

    def test_chosen_settings_are_marked(self):
        table = page(made_up(as_in_the_paper)).parts[-1]
        assert len(table.rows) == len(musl.GRID)
        assert [row[0].startswith("**") for row in table.rows].count(True) == 1


def test_match():
    assert match([0, 0, 1, 2], [2, 2, 0, 1]) == 4
    assert match([0, 0, 1, 1], [0, 0, 0, 1]) == 3
    assert stability([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]]) == pytest.approx(100 * (1 + 0.75 + 0.75) / 3)


def test_metrics_of_sources():
    metrics, sources = np.array([2, 2, 0, 1, 1]), np.array(["a", "a", "a", "b", "b"])
    assert metrics_of_sources(metrics, sources) == {"a": 2, "b": 1}


def test_settings_are_one_of_those_tried():
    assert SETTINGS in musl.GRID
    assert all(sum(one == other for other in musl.GRID) == 1 for one in musl.GRID)


def test_jobs_are_told_apart():
    for quick in (False, True):
        assert not any(one == other for one, other in itertools.combinations(jobs(quick), 2))


@pytest.fixture
def small(monkeypatch):
    """Made-up categories, few of their images and features."""

    def load(trial):
        whole = musl.synthetic_trial(trial)
        rows = np.arange(len(whole["y"])) % 50 % 30 < 10  # ten of those to learn from, ten to test
        return {name: values[rows] for name, values in whole.items()} | {"X": whole["X"][rows][:, ::5]}

    monkeypatch.setattr(musl, "load_trial", load)


def test_measure(small):
    options = {"trial": 0, "system": "joint", "settings": {"midpoint": "running", "alpha": 1.0, "balanced": True}}
    several, one = measure(n_metrics=3, **options), measure(n_metrics=1, **options)
    assert several["accuracy"][2] > one["accuracy"][2] > 20
    assert len(several["grouping"]) == len(several["sources"]) == 20
    assert one["astray"] == 0
    assert one["novel"] == one["own"]
    assert len(several["novel"]) == len(several["within"]) == 3
    held_out = measure(n_metrics=3, validate=True, **options)
    assert held_out.keys() == {"accuracy"}
    assert held_out == measure(n_metrics=3, validate=True, **options)
