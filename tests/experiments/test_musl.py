import itertools

import numpy as np
import pytest
from made_up import finding
from PIL import Image

from benchmarks import musl_data
from benchmarks.plots import save
from experiments import musl
from experiments.measured import musl as measured
from experiments.measured.musl import corrected_stability, match, measure, metrics_of_sources, stability
from experiments.musl import GRID, TUNED, choose, jobs
from experiments.pages import FEWEST, render

SOURCES = [0] * 7 + [1] * 7 + [2] * 6


@pytest.fixture
def made_up(monkeypatch):
    """Results as a learner would give whose accuracy is that of (system, K), a little different in each trial.

    `best` has the place in GRID of the settings that a system does best with, 3 for those that are not in it.
    """

    def results_of(parameters, accuracy, best):
        system, k, trial = (parameters[name] for name in ("system", "n_metrics", "trial"))
        value = accuracy(system, k) + 0.1 * np.random.default_rng([trial, k, len(system)]).random()
        if parameters.get("part") == "evolution":
            curves = np.random.default_rng(0).random((4, 20, 3))
            names = [f"category {c}" for c in range(20)]
            pairs = {name: {"category": names[0], "weights": curves[:, 0].tolist()} for name in ("easy", "difficult")}
            return parameters | {"categories": names, "likelihoods": (-curves).tolist(), "pairs": pairs}
        if parameters.get("validate"):
            value += parameters["settings"] == GRID[best.get(system, 3)]
        right = [value - 3, value - 2, value, value - 1]
        result = {"accuracy": right, "seconds": 1.0}
        if not parameters.get("validate"):
            novel = [figure - k for figure in right]
            grouping = SOURCES if "joint" in system else np.random.default_rng(trial).permutation(SOURCES).tolist()
            result |= {"novel": novel, "all": novel, "own": novel, "within": novel, "astray": 0}
            result |= {"grouping": [g % k for g in grouping], "sources": SOURCES}
            result |= {"categories": [f"category {c}" for c in range(20)], "photos": [""] * 20}
        return parameters | result

    def make(accuracy, *, quick=False, best=None):
        monkeypatch.setattr(
            musl, "run_jobs", lambda name, todo: [results_of(one, accuracy, best or {}) for one in todo]
        )
        return musl.run_jobs("musl", jobs(quick))

    return make


def as_in_the_paper(system, k):
    bonus = {"random": 0, "k-means": 1, "joint, not re-trained": 4}.get(system, 6) if 1 < k < 20 else 0
    return 40 + 5 * np.log2(k) + bonus


class TestPage:
    @pytest.mark.parametrize("quick", [False, True])
    def test_orderings_that_hold(self, quick, made_up):
        page = render(musl, made_up(as_in_the_paper, quick=quick))
        assert all(finding.agrees for finding in page.findings if finding.must)
        assert sum(finding.must for finding in page.findings) == 3 + (not quick)
        joint = finding(page, "better than random grouping")
        assert joint.must
        assert joint.here.startswith("+6.0 points" if quick else "+6.0 ± 0.0 points")  # one trial has no error
        assert finding(page, "are the sources").agrees
        assert quick or finding(page, "comes close").agrees
        assert not any(one == other for one, other in itertools.combinations(jobs(quick), 2))

    @pytest.mark.parametrize(
        ("accuracy", "broken"),
        [
            (
                lambda k: 40 + 5 * np.log2(k),
                ["better than random grouping", "k-means grouping (K = 5)", "Re-training", "On novel categories joint"],
            ),
            (lambda k: 60 - k, ["Accuracy rises", "K = 5 is 10 points"]),
            (lambda k: 40 + 5 * k, ["Too many metrics hurt"]),
            (lambda k: 40 + k, ["comes close"]),
        ],
        ids=["the same in all groupings", "falls with K", "rises at the end", "rises late"],
    )
    def test_accuracy_that_depends_on_the_number_alone(self, accuracy, broken, made_up):
        page = render(musl, made_up(lambda system, k: accuracy(k)))
        assert not any(finding(page, words).agrees for words in broken)

    @pytest.mark.parametrize("quick", [False, True])
    def test_grouping_at_random(self, quick, made_up):
        results = made_up(as_in_the_paper, quick=quick)
        for result in results:
            if result["system"] == "joint" and "grouping" in result:
                rng = np.random.default_rng(100 + result["trial"])
                result["grouping"] = rng.integers(result["n_metrics"], size=20).tolist()
        page = render(musl, results)
        assert not finding(page, "finds the three sources").agrees
        assert not finding(page, "than groups of the same sizes at random").agrees
        assert not finding(page, "are the sources").agrees
        assert not finding(page, "stable").agrees

    def test_figures_of_the_table_and_settings_for_all(self, made_up):
        text = render(musl, made_up(as_in_the_paper)).text
        row = next(row for row in text.splitlines() if row.startswith("| one metric | 1 |"))
        assert row.endswith(f"40.0 ± 0.0 | 39.0 ± 0.0 | 39.0 ± 0.0 | 39.0 ± 0.0 |  | {musl.N_TRIALS} |")
        results = made_up(as_in_the_paper, best={"joint": 3, "k-means": 5})
        text = render(musl, results).text.partition("**All with the settings chosen for joint grouping, running, 0.3")[
            2
        ]
        assert "| joint | 5 | 57.7 ± 0.0 |  |" in text
        assert "| k-means | 5 | 52.6 ± 0.0 | +5.0 ± 0.0 |" in text
        one, five = [54.1, 54.35, 54.6], [64.0, 64.35, 64.7]
        assert np.mean(np.subtract(five, one)) < 10  # by rounding
        assert musl.reaches(five, one, 10)
        assert not musl.reaches(five, one, 10.01)


def test_no_claim_is_decided_at_the_edge_or_by_too_few_trials(made_up, unflagged, monkeypatch):
    results = made_up(as_in_the_paper)
    monkeypatch.setattr(musl, "alpha_beyond", lambda *given: 8.0)
    assert not unflagged(musl, results)
    assert min(musl.TRIALS.values()) >= FEWEST


class TestChoice:
    def grid(self, accuracy):
        tried = [
            {"trial": t, "system": s, "n_metrics": k, "settings": settings, "validate": True}
            for settings in GRID
            for s, k in TUNED.items()
            for t in range(musl.GRID_TRIALS)
        ]
        return [job | {"accuracy": accuracy(job)} for job in tried]

    def test_each_system_is_chosen_by_itself_by_the_mean_of_its_trials(self):
        best = dict(zip(TUNED, (1, 3, 6, 7), strict=True))
        results = self.grid(lambda job: [50 + (GRID.index(job["settings"]) == best[job["system"]])] * 4)
        chosen, _ = choose(results)
        assert {system: GRID.index(chosen[system]) for system in TUNED} == best
        assert chosen[measured.STARTS] == chosen["joint, not re-trained"] == chosen["joint"]
        # One lucky trial does not decide.

        def accuracy(job):
            place = GRID.index(job["settings"])
            return [40 + 5 * (place == 2) + 9 * (place == 3 and job["trial"] == 0)] * 4

        assert choose(self.grid(accuracy))[0]["joint"] == GRID[2]
        assert choose(self.grid(lambda job: [1, 2, 4, 3]))[1] == 10

    def test_the_grid_grows_where_the_best_alpha_is_at_its_edge(self, monkeypatch):
        def run(name, todo):
            return [
                job
                | {"accuracy": [50 - abs(job["settings"]["alpha"] - 20) - 40 * (not job["settings"]["balanced"])] * 4}
                if job["system"] == "joint"
                else job | {"accuracy": [50 + (job["settings"] == GRID[3])] * 4}
                for job in todo
            ]

        monkeypatch.setattr(musl, "run_jobs", run)
        grown = musl.grown_grid(False)
        more = grown[len(GRID) * len(TUNED) * musl.GRID_TRIALS :]
        assert [job["settings"]["alpha"] for job in more] == [
            a for a in (8.0, 20.0, 50.0) for _ in range(musl.GRID_TRIALS)
        ]
        assert {job["system"] for job in more} == {"joint"}
        assert len(musl.grown_grid(True)) == len(TUNED)
        results = run("musl", grown)
        chosen, voters = choose(results)
        assert chosen["joint"]["alpha"] == 20
        assert set(musl.edges(results, chosen, voters).values()) == {""}
        at_edge = run("musl", grown[:-3])
        assert "joint: alpha" in musl.edges(at_edge, *choose(at_edge))["random"]


def test_images_that_choose_settings_test_nothing(tmp_path, monkeypatch):
    names = ["crab", "lily"]
    drawn = {name: [tmp_path / name / f"{i:02}.jpg" for i in range(60)] for name in names}

    def choose_images(name, fold, n_train, n_test):
        rng = np.random.default_rng(fold)
        paths = [drawn[category][i] for category in names for i in rng.permutation(60)]
        return paths, np.repeat(names, 60), np.ones(120, bool)

    monkeypatch.setattr(musl_data, "choose_images", choose_images)
    trials = [musl_data.draw("two", trial) for trial in range(3)]
    choosing = [musl_data.draw("two", trial, choosing=True) for trial in range(2)]
    for paths, y, train in trials:
        assert len(set(paths)) == len(paths)
        assert [path.parent.name for path in paths] == y.tolist()
        assert [train[y == name].sum() for name in names] == [musl_data.N_TRAIN] * 2
        assert [(~train[y == name]).sum() for name in names] == [musl_data.N_TEST] * 2
    tested = {path for paths, _, train in trials for path, learned in zip(paths, train, strict=True) if not learned}
    assert all(not tested & set(paths) for paths, *_ in choosing)
    assert [sum(train) for *_, train in choosing] == [2 * musl_data.N_SHOWN] * 2
    assert set(choosing[0][0]) == set(choosing[1][0])
    assert choosing[0][0] != choosing[1][0]
    assert tested != set(trials[0][0])


def test_a_sheet_of_photos_is_small(made_up, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(musl, "DATA", tmp_path)
    results = made_up(as_in_the_paper)
    for i in range(20):  # noise packs worst
        Image.fromarray(rng.integers(0, 255, (90, 120, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    for result in results:
        if "photos" in result:
            result["photos"] = [f"{i}.png" for i in range(20)]
    (sheet,) = (plot for plot in render(musl, results).plots if plot.stem == "musl-groups")
    assert len(sheet.data) == 40
    assert {row["group"] for row in sheet.data if row["grouping"] == "joint"} == {1, 2, 3}
    save(sheet.figure, tmp_path / "sheet.png", few_colours=sheet.photos)
    assert (tmp_path / "sheet.png").stat().st_size < 300_000
    assert len(np.unique(np.asarray(Image.open(tmp_path / "sheet.png")))) > 100


def test_groups_match_and_are_stable_beyond_chance():
    metrics, sources = np.array([2, 2, 0, 1, 1]), np.array(["a", "a", "a", "b", "b"])
    assert metrics_of_sources(metrics, sources) == {"a": 2, "b": 1}
    assert match([0, 0, 1, 2], [2, 2, 0, 1]) == 4
    assert match([0, 0, 1, 1], [0, 0, 0, 1]) == 3
    assert stability([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]]) == pytest.approx(100 * (1 + 0.75 + 0.75) / 3)
    # Equal groupings are stable; groupings drawn at random are near zero, though a third and more of them agrees.
    same = [SOURCES] * 4
    assert corrected_stability(same) == 100
    drawn = [np.random.default_rng(i).permutation(SOURCES).tolist() for i in range(30)]
    assert stability(drawn) > 40
    assert abs(corrected_stability(drawn)) < 5


@pytest.fixture
def small(monkeypatch):
    """Made-up categories, few of their images and features."""

    def load(trial, known="merged-20", new="merged-novel", choosing=False):
        whole = musl_data.synthetic_trial(trial)
        rows = np.arange(len(whole["y"])) % 50 % 30 < 10  # ten of those to learn from, ten to test
        rows &= ~whole["novel"] | (new is not None)
        return {name: values[rows] for name, values in whole.items()} | {"X": whole["X"][rows][:, ::5]}

    monkeypatch.setattr(measured, "load_trial", load)


def test_measure_and_its_parts(small):
    options = {"trial": 0, "system": "joint", "settings": {"midpoint": "running", "alpha": 1.0, "balanced": True}}
    several, one = measure(n_metrics=3, **options), measure(n_metrics=1, **options)
    assert several["accuracy"][2] > one["accuracy"][2] > 20
    assert len(several["grouping"]) == len(several["sources"]) == 20
    assert one["astray"] == 0
    assert one["novel"] == one["own"]
    assert len(several["novel"]) == len(several["within"]) == len(measured.NEIGHBORS)
    assert len(several["categories"]) == len(several["photos"]) == 20
    held_out = measure(n_metrics=3, validate=True, **options)
    assert held_out.keys() == {"accuracy"}
    assert held_out == measure(n_metrics=3, validate=True, **options)
    options = {"trial": 0, "system": "joint", "n_metrics": 3, "settings": {"alpha": 1.0, "balanced": True, "n_bits": 4}}
    assert len(measure(part="caltech", **options)["accuracy"]) == len(measured.NEIGHBORS)
    evolution = measure(part="evolution", **options)
    easy, difficult = (np.array(evolution["pairs"][name]["weights"]) for name in ("easy", "difficult"))
    assert easy.shape == difficult.shape == (4, 3)
    assert (easy > 0).all()
    assert easy[-1].sum() < difficult[-1].sum() < 1
    assert (np.array(evolution["likelihoods"]) < 0).all()
