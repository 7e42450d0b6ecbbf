"""What benchmarks are declared with: records, races, processes and sets of photos."""

import importlib
import itertools
import os
import re
import types
from unittest import mock

import numpy as np
import pytest

reason = "benchmarks lie in the repository, not in the package"
command = pytest.importorskip("benchmarks.__main__", reason=reason)
from benchmarks import metric_learn_peer, page, photos, processes, records  # noqa: E402  # only where the line above found them
from benchmarks.peers import PeerError  # noqa: E402  # as above
from experiments.studies import __main__ as studies  # noqa: E402  # as above


class FakeClock:
    """A clock that stands still until a run advances it."""

    def __init__(self):
        self.now = 0.0
        self.clock = records.Clock(lambda: self.now, "fake time")

    def takes(self, seconds):
        def run(k):
            self.now += seconds[k]

        return run


@pytest.fixture
def fake():
    return FakeClock()


def test_rounds_take_turns_and_the_first_is_not_counted(fake):
    order = []
    runs = [lambda k, name=name: order.append((k, name)) for name in "ab"]
    assert records.in_turns(*runs, rounds=2, clock=fake.clock).shape == (2, 2)
    assert order == list(itertools.product(range(3), "ab"))
    times = records.in_turns(fake.takes([100, 1, 2]), fake.takes([100, 3, 8]), rounds=2, clock=fake.clock)
    assert times.tolist() == [[1, 3], [2, 8]]


def test_a_race_has_medians_of_a_thing_in_its_unit(fake):
    ours, peer = fake.takes([9, 2, 1, 4]), fake.takes([9, 2, 8, 6])
    given = {"unit": "ms per query", "things": 10, "of": "10 queries"}
    figures = records.race(ours, peer, 3, fake.clock, **given)
    assert (figures["ours"], figures["peer"]) == (200, 600)  # of 2 and 6 s for ten queries
    assert figures["ratio"] == 3
    assert figures["n"] == 30
    assert figures["measured"] == "10 queries, median of 3 in turns, fake time"
    paired = records.race(ours, peer, 3, fake.clock, **given, n=5, paired=True)
    assert paired["ratio"] == 1.5  # the median of 1, 8 and 1.5
    assert paired["n"] == 5


def test_a_fit_is_timed_without_what_looks_at_it(fake):
    seen = []

    class Learner:
        def fit(self, X, y, callback):
            for _ in range(3):
                fake.now += 2
                callback(self)

    def look(learner, seconds):
        seen.append(seconds)
        fake.now += 50

    assert records.fit_seconds(Learner(), None, None, look, fake.clock) == 6
    assert seen == [2, 4, 6]


def test_ratios_tables_and_classes():
    assert records.compared(2, 3, "ms", 1)["ratio"] == 1.5
    assert records.compared(3, 2, "mAP", 1, higher=True)["ratio"] == 1.5
    assert records.compared(3, 2, "times", 1, ratio=7)["ratio"] == 7
    y = np.repeat(["a", "b"], [5, 7])
    two, one, rest = photos.of_each_class(y, np.random.default_rng(0), 2, 1, None)
    assert [list(y[part]).count("a") for part in (two, one, rest)] == [2, 1, 2]
    assert sorted(np.concatenate([two, one, rest])) == list(range(12))
    folds = photos.folds_of(y, 2, 0)
    assert [(folds[y == label] == 0).sum() for label in "ab"] == [3, 4]
    assert page.table(("", "b"), [("1", ""), ("2", "3")]) == "| | b |\n|---|---|\n| 1 |  |\n| 2 | 3 |\n"


def test_a_record_has_all_that_the_page_needs():
    figures = records.compared(2, 3, "us per triplet", 4)
    record = records.record("a", "what", "peer", ": why", figures, measured="how", bound=1.234e-4, d=5)
    assert record == {
        **{"name": "a", "what": "what", "ours": 2, "peer": 3, "peer_name": "peer", "ratio": 1.5},
        **{"limit": "120 us: why", "bound": pytest.approx(123.4), "unit": "us per triplet", "n": 4},
        **{"measured": "how", "d": 5},
    }
    assert list(record)[:6] == ["name", "what", "ours", "peer", "peer_name", "ratio"]
    assert records.record("a", "what", "peer", "as above", figures | {"memory": 6, "measured": "how"})["memory"] == 6
    assert page.row(record | {"command": "python -m x"})[4] == "120 us: why; ours takes 0.0 times that"


def test_a_function_has_a_process_of_its_own():
    assert processes.in_own_process(os.getpid) != os.getpid()
    held = np.ones(10**8, np.uint8)
    assert 1e6 < processes.in_own_process(processes.peak_memory) < held.nbytes < processes.peak_memory()


def test_every_benchmark_and_study_can_be_run(repository):
    for name in command.MODULES:
        assert "\ndef run(quick: bool = False) -> list[dict]:\n" in (repository / f"benchmarks/{name}.py").read_text()
    for file in (repository / "experiments/studies").glob("[a-z]*.py"):
        assert re.search(r"\ndef (run\(quick: bool = False\)|main\(\w+: list\[str\]\)) -> ", file.read_text()), file


def test_studies_are_listed_and_run(monkeypatch, tmp_path, capsys):
    assert studies.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(studies.FILES)
    monkeypatch.setattr(studies, "DATA", tmp_path)
    assert studies.main(["balance"]) == 2  # without photos
    (tmp_path / "caltech101").mkdir()
    called = []
    monkeypatch.setattr(studies.importlib, "import_module", lambda _: types.SimpleNamespace(main=called.append))
    assert studies.main(["balance", "2"]) == 0
    assert called == [["2"]]
    monkeypatch.setattr(studies.importlib, "import_module", lambda _: types.SimpleNamespace(run=None))
    monkeypatch.setattr(studies, "run_modules", lambda *given: called.append(given))
    assert studies.main(["open", "--quick"]) == 0
    assert called[1] == (["open"], True, "experiments.studies")
    with pytest.raises(SystemExit):
        studies.main(["open", "--all"])


def test_records_get_the_command_that_repeats_them(monkeypatch, tmp_path):
    assert set(command.PHOTOS) <= set(command.MODULES)
    module = type("Module", (), {"run": staticmethod(lambda quick: [{"name": "a", "quick": quick}])})
    monkeypatch.setattr(command.importlib, "import_module", lambda name: module)
    assert command.measure("startup", True) == [{"name": "a", "quick": True, "command": "python -m benchmarks startup"}]
    monkeypatch.setattr(command, "DATA", tmp_path)
    assert command.measure("deep", True) == []  # without photos


@pytest.mark.parametrize("error", [PeerError("no exiftool"), ModuleNotFoundError("No module named 'exiv2'")])
def test_without_its_peer_a_benchmark_ends_in_a_line(monkeypatch, capsys, error):
    """Without ExifTool, a traceback."""
    module = types.SimpleNamespace(run=mock.Mock(side_effect=error))
    monkeypatch.setattr(command.importlib, "import_module", lambda name: module)
    with pytest.raises(SystemExit, match="^2$"):
        command.run_modules(["keywords"], True)
    assert capsys.readouterr().err == f"    cannot be measured: {error}\n"


def test_keywords_need_exiftool(monkeypatch):
    pytest.importorskip("exiv2")
    keywords = importlib.import_module("benchmarks.keywords")
    monkeypatch.setattr(keywords, "PHOTOS", 0)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PeerError, match="^no exiftool; install "):
        keywords.run()


def test_lmnn_objective_and_gradient_are_sums_over_triplets():
    """Over an image, a target and an impostor, which is nearer than the target's distance and 1."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4)), np.arange(12) % 3
    L, share = rng.normal(size=(3, 4)) / 2, 0.3
    targets = np.array([rng.permutation(np.flatnonzero((y == y[i]) & (np.arange(12) != i)))[:2] for i in range(12)])

    def outer(i, j):
        return np.outer(X[i] - X[j], X[i] - X[j])

    near = sum(outer(i, j) for i in range(12) for j in targets[i])
    pairs = [(outer(i, t), outer(i, j)) for i in range(12) for t in targets[i] for j in np.flatnonzero(y != y[i])]
    active = [(pull, push) for pull, push in pairs if np.trace(L @ (pull - push) @ L.T) + 1 > 0]
    assert 0 < len(active) < len(pairs)
    M = share * near + (1 - share) * sum(pull - push for pull, push in active)
    G, objective, count = metric_learn_peer.lmnn_loss_grad(None, X, L, near, 2, share, targets, y)
    assert count == len(active)
    assert objective == pytest.approx(np.trace(L @ M @ L.T) + (1 - share) * len(active))
    np.testing.assert_allclose(G, 2 * L @ M, rtol=1e-10, atol=1e-10)
