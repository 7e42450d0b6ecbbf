"""Jobs: kept, resumed, and done again when the code changes."""

import sys
import types
from pathlib import Path

import pytest

jobs = pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")


@pytest.fixture
def doubling(tmp_path, monkeypatch):
    """An experiment that doubles numbers, with the calls it got."""
    calls = []
    module = types.ModuleType("experiments.doubling")

    def measure(number):
        calls.append(number)
        if number < 0:
            raise RuntimeError("stopped")
        return {"double": 2 * number}

    module.measure = measure
    monkeypatch.setitem(sys.modules, "experiments.doubling", module)
    monkeypatch.setattr(jobs, "KEPT", tmp_path)
    monkeypatch.setattr(jobs, "code_of", lambda name: "code")
    return calls


def test_results_carry_their_parameters_and_are_kept_until_the_code_changes(doubling, monkeypatch):
    wanted = [{"number": 1}, {"number": 2}]
    found = jobs.run_jobs("doubling", wanted, alone=True)
    assert [(one["number"], one["double"]) for one in found] == [(1, 2), (2, 4)]
    assert all(one["seconds"] >= 0 for one in found)
    assert jobs.run_jobs("doubling", wanted, alone=True) == found
    assert doubling == [1, 2]
    monkeypatch.setattr(jobs, "code_of", lambda name: "other code")
    jobs.run_jobs("doubling", wanted[:1], alone=True)
    assert doubling == [1, 2, 1]


def test_goes_on_where_it_stopped(doubling, tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        jobs.run_jobs("doubling", [{"number": 1}, {"number": -1}, {"number": 2}], alone=True)
    jobs.run_jobs("doubling", [{"number": 1}, {"number": 2}], alone=True)
    assert doubling == [1, -1, 2]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_a_result_half_written_is_not_taken(doubling, monkeypatch):
    def stopped(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            jobs.run_jobs("doubling", [{"number": 1}], alone=True)
    assert jobs.run_jobs("doubling", [{"number": 1}], alone=True)[0]["double"] == 2
    assert doubling == [1, 1]


SOURCE = '''
"""A module."""
STEPS = 10
def measure(number):
    """Double."""
    return STEPS * number  # why
def jobs(quick):
    return [1]
def page(results):
    return "old"
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Double."""', '"""Twice."""', True),
        ("# why", "# how", True),
        ('"old"', '"new"', True),
        ("[1]", "[1, 2]", True),
        ("STEPS = 10", "STEPS = 11", False),
        ("STEPS * number", "STEPS + number", False),
    ],
)
def test_only_statements_behind_a_result_count(old, new, same):
    assert old in SOURCE
    assert (jobs.statements(SOURCE) == jobs.statements(SOURCE.replace(old, new))) is same


def test_what_a_result_comes_from(tmp_path, monkeypatch):
    module = types.ModuleType("experiments.small")
    module.SOURCES = ("table.csv",)
    monkeypatch.setitem(sys.modules, "experiments.small", module)
    monkeypatch.setattr(jobs, "ROOT", tmp_path)
    monkeypatch.setattr(jobs, "SHARED", ("room",))
    files = {name: tmp_path / name for name in ("experiments/small.py", "room/a.py", "table.csv", "elsewhere.py")}
    for path in files.values():
        path.parent.mkdir(exist_ok=True)
        path.write_text("a = 1")
    before = jobs.code_of("small")
    for name, path in files.items():
        path.write_text("a = 2")
        assert (jobs.code_of("small") != before) is (name != "elsewhere.py"), name
        path.write_text("a = 1")


@pytest.mark.slow
def test_every_experiment_names_sources_that_are_there():
    names = pytest.importorskip("experiments.__main__").NAMES
    assert len({jobs.code_of(name) for name in names}) == len(names)
