"""Jobs: kept, resumed, and done again when the code changes."""

import importlib
import sys
import types
import zlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.vectors import keep
from experiments import jobs


@pytest.fixture
def doubling(tmp_path, monkeypatch):
    """A measure that doubles numbers, with the calls it got."""

    def doubled(number):
        doubled.calls.append(number)
        if number < 0:
            raise RuntimeError("stopped")
        return {"double": 2 * number}

    doubled.calls = []
    monkeypatch.setattr(jobs, "KEPT", tmp_path)
    monkeypatch.setattr(jobs, "code_of", lambda measure: "code")
    return doubled


def test_results_carry_their_parameters_and_are_kept_until_the_code_changes(doubling, monkeypatch):
    wanted = [{"number": 1}, {"number": 2}]
    results = jobs.run_jobs(doubling, wanted, alone=True)
    assert [(one["number"], one["double"]) for one in results] == [(1, 2), (2, 4)]
    assert all(one["seconds"] >= 0 for one in results)
    assert jobs.run_jobs(doubling, wanted, alone=True) == results
    assert doubling.calls == [1, 2]
    monkeypatch.setattr(jobs, "code_of", lambda measure: "other code")
    jobs.run_jobs(doubling, wanted[:1], alone=True)
    assert doubling.calls == [1, 2, 1]


def test_goes_on_where_it_stopped(doubling, tmp_path):
    with pytest.raises(RuntimeError, match="stopped"):
        jobs.run_jobs(doubling, [{"number": 1}, {"number": -1}, {"number": 2}], alone=True)
    jobs.run_jobs(doubling, [{"number": 1}, {"number": 2}], alone=True)
    assert doubling.calls == [1, -1, 2]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"]


def test_experiments_are_finished_together_and_told_in_their_order(doubling):
    wanted = {name: (doubling, [{"number": n} for n in own]) for name, own in (("a", (3, 1)), ("b", ()), ("c", (1, 2)))}
    jobs.run_jobs(doubling, [{"number": 3}], alone=True)
    told = [(name, list(doubling.calls)) for name in jobs.finish(wanted, alone=True)]
    assert told == [("a", [3, 1]), ("b", [3, 1]), ("c", [3, 1, 2])]  # each once, and told when it is done
    assert list(jobs.finish(wanted, alone=True)) == ["a", "b", "c"]
    assert doubling.calls == [3, 1, 2]


def test_a_result_half_written_is_not_taken(doubling, monkeypatch):
    def stopped(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            jobs.run_jobs(doubling, [{"number": 1}], alone=True)
    assert jobs.run_jobs(doubling, [{"number": 1}], alone=True)[0]["double"] == 2
    assert doubling.calls == [1, 1]


SOURCE = '''
"""A module."""
STEPS = 10
def measure(number):
    """Double."""
    return STEPS * number  # why
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Double."""', '"""Twice."""', True),
        ("# why", "# how", True),
        ("STEPS = 10", "STEPS = 11", False),
        ("STEPS * number", "STEPS + number", False),
    ],
)
def test_only_statements_behind_a_result_count(old, new, same, tmp_path):
    assert old in SOURCE
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SOURCE)
    after.write_text(SOURCE.replace(old, new))
    assert (jobs.read(before) == jobs.read(after)) is same


def test_a_result_comes_from_what_its_module_imports_at_any_depth_and_the_tables_it_names(tmp_path, monkeypatch):
    texts = {
        "experiments/measured/small.py": "from visterm.room import thing\nfrom .helper import a\ndef measure(): ...",
        "experiments/measured/helper.py": "def a():\n    from visterm.other.part import b",
        "experiments/measured/neighbour.py": "a = 1",
        "experiments/small.py": "from .measured.small import measure",
        "room/__init__.py": "def __getattr__(name): ...",
        "room/lazy.py": "import numpy",
        "other/part.py": "import deep.down",
        "other/neighbour.py": "a = 1",
        "deep/down.py": "a = 1",
        "table.csv": "label",
        "constraints.txt": "numpy==2",
    }
    counted = {"experiments/measured/small.py", "experiments/measured/helper.py", "room/__init__.py", "room/lazy.py"}
    counted |= {"other/part.py", "deep/down.py", "table.csv", "constraints.txt"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    module = types.ModuleType("small")
    module.__file__, module.FILES = str(tmp_path / "experiments/measured/small.py"), (tmp_path / "table.csv",)
    monkeypatch.setitem(sys.modules, "small", module)
    monkeypatch.setattr(jobs, "ROOT", tmp_path)

    def code():
        def measure(): ...

        measure.__module__ = "small"
        jobs.read.cache_clear()
        return jobs.code_of(measure)

    before = code()
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\nb = 2")
        assert (code() != before) is (name in counted), name
        (tmp_path / name).write_text(text)


def test_no_experiments_results_come_from_its_page():
    for name in pytest.importorskip("experiments.__main__").NAMES:
        measured = sys.modules[importlib.import_module(f"experiments.{name}").measure.__module__]
        own = Path(measured.__file__)
        files = {str(path.relative_to(jobs.ROOT)) for path in jobs.sources(own)}
        assert files > {f"experiments/measured/{own.name}", "learners/oasis.py", "features/extractor.py"}
        assert not [file for file in files if file.startswith("experiments/") and "measured" not in file]


def test_results_carry_checksums_of_the_vectors_that_they_come_from(doubling, tmp_path):
    def loading(number):
        name = f"flowers-{number:08x}.npy"
        keep(tmp_path / name, lambda path: np.save(path, np.full(3, 7.0)))
        return {"double": 0}

    results = jobs.run_jobs(loading, [{"number": 1}, {"number": 2}], alone=True)
    expected = {"flowers": [f"{zlib.crc32(np.full(3, 7.0).tobytes()):08x}"]}
    assert [one["checksums"] for one in results] == [expected, expected]
