"""`visterm tune`: what it chooses, what it reads, what it refuses, and how it resumes."""

import functools
import json
import signal
import time

import numpy as np
import pytest
import yaml
from running import end_by_signal, json_of, refused, visterm
from scipy import sparse

from visterm.features import VistermExtractor, VistermWeighting
from visterm.learners import OASIS
from visterm.pipeline.config.learners import TABLE
from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.opened import opened
from visterm.pipeline.store.run import Run
from visterm.plugins.choosing import tune as stage
from visterm.plugins.choosing.commands import say_chosen
from visterm.plugins.choosing.search_spaces import WEIGHTS, search_space
from visterm.plugins.choosing.trials import Budget, Plan, Search, best_step
from visterm.plugins.choosing.tuning_plot import write_tuning_plot

FEW = ("--trials", "4")
SHORT = ("--search", "C=0.01,1", "--search", "features.weighting.tf=count,sqrt")


def chosen(result):
    """What must be the same whenever the same is tuned: all but the times."""
    trials = [{key: value for key, value in trial.items() if key != "seconds"} for trial in result["trials"]]
    return result["best"], trials


# -- the command -------------------------------------------------------------------------------------------------------


def test_tunes_applies_trains_and_reports(mine, monkeypatch):
    read = []
    counts = Collection.counts
    monkeypatch.setattr(
        Collection, "counts", lambda self, images: read.extend(i.split for i in images) or counts(self, images)
    )
    # The figures of these photos are all alike: the settings decide.
    monkeypatch.setattr(
        stage,
        "measure_fold",
        lambda data, config, learner, settings, fold, tick: {
            "steps": [0, 1000, 2000],
            "values": [1.0, 0.3 + settings["oasis.C"] / 10 + 0.2 * (settings["features.weighting.tf"] == "sqrt"), 0.1],
        },
    )
    result = visterm("tune", *SHORT, *FEW, cwd=mine)
    assert set(read) <= {"train"}
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["C", "tf", "steps", "folds", "mAP", "+-", "seconds"]
    assert lines[1].split()[:6] == ["chosen", "1", "sqrt", "1,000", "3", "0.6000"]
    assert len(lines) == 5
    assert sum("start" in line for line in lines) == 1
    words = "chosen: C=1, tf=sqrt (mAP 0.600, before 0.310, +93.5 %)"  # images are held out to choose a share
    assert words in result.stderr
    assert (mine / "runs/fruit/tuning/oasis/tuning.png").read_bytes().startswith(b"\x89PNG")
    assert "Next: visterm tune --apply --run fruit" in result.stderr
    before = yaml.safe_load((mine / "runs/fruit/config.yaml").read_text())
    assert before["oasis"]["C"] == 0.1

    result = visterm("tune", *SHORT, *FEW, "--apply", cwd=mine)
    assert "oasis was tuned already" in result.stderr
    after = yaml.safe_load((mine / "runs/fruit/config.yaml").read_text())
    assert after["oasis"] == before["oasis"] | {"C": 1.0}
    assert after["features"]["weighting"] == {"tf": "sqrt"}
    # The weights alone changed: nothing is extracted again, and the applied settings are known as tuned.
    assert json_of("features", cwd=mine)["extracted"] == 0
    again = json_of("tune", *SHORT, *FEW, cwd=mine)
    assert again["up_to_date"]
    visterm("train", cwd=mine)
    visterm("evaluate", cwd=mine)
    folder = mine / "runs/fruit/evaluations/oasis"
    assert "oasis: C=1, tf=sqrt" in (folder / "report.html").read_text()
    assert json.loads((folder / "metrics.json").read_text())["systems"]["oasis"]["tuned"] == again["best"]
    # A learner trained with other settings is not said to be tuned.
    visterm("train", "--set", "oasis.C=0.5", cwd=mine)
    visterm("evaluate", cwd=mine)
    assert "Tuned settings" not in (folder / "report.html").read_text()


@pytest.mark.slow
def test_figures_of_the_settings_chosen_read_apart(mine, capsys):
    result = {"up_to_date": False, "learner": "oasis", "measure": "mAP", "score": 0.9214, "own_score": 0.9212}
    say_chosen(result | {"best": {"oasis.C": 1.0}, "applied": True}, Run(mine / "runs/fruit"), Console(progress=False))
    assert "(mAP 0.9214, before 0.9212)" in capsys.readouterr().err


def test_train_tunes_first(mine):
    result = visterm("train", "--learner", "knn", "--tune", "--budget", "1m", cwd=mine)
    assert "tuning knn on 18 training images" in result.stderr
    assert "knn trained" in result.stderr


@pytest.mark.slow
def test_killed_tuning_resumes_with_the_same_choice(mine):
    command = ("tune", "--search", "C=0.01,1", "--search", "init=identity,zero", *FEW)
    end_by_signal(signal.SIGKILL, "visterm.plugins.choosing.tune measure_fold 6", *command, cwd=mine)
    assert "interrupted tuning with other" in refused("tune", *FEW, cwd=mine)
    assert not (mine / "runs/fruit/tuning/oasis").exists()
    again = json_of(*command, cwd=mine)
    assert not again["up_to_date"]
    whole = json_of(*command, "--force", cwd=mine)
    assert chosen(again) == chosen(whole)
    # More trials continue with those that are there.
    more = json_of(*command[:-1], "6", cwd=mine)
    assert chosen(more)[1][:4] == chosen(whole)[1]
    assert len(more["trials"]) == 6
    assert not (mine / "runs/fruit/tuning/oasis.checkpoint").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "0.001s"), "is too short for one trial of oasis on 18 training images"),
        (("--budget", "soon"), "expected a time such as 90s, 5m or 1h"),
        (("--learner", "osis"), "unknown learner osis; did you mean oasis?"),
        (("--learner", "cosine"), "cosine learns nothing"),
        (("--search", "D=1,2"), "--search D=1,2: unknown key oasis.D"),
        (("--search", "C=-1,2"), "--search C=-1,2: oasis.C: input should be greater than 0"),
        (("--search", "features.stride=16,32"), "only settings of oasis and features.weighting.tf can be tuned"),
        (("--search", "C="), "nothing to search"),
        (("--search", "C"), "expected setting=value,value"),
        (("--search", "C=0.1"), "nothing to choose from"),
        (("--learner", "musl", "--search", "n_metrics=3,4", "--set", "musl.n_metrics=4"), "musl: n_metrics="),
    ],
)
def test_refuses_with_one_line_and_writes_nothing(finished, arguments, words):
    assert words in refused("tune", *arguments, cwd=finished)
    left = finished / "runs/fruit/tuning"
    assert not left.exists() or not list(left.iterdir())


def test_refuses_a_run_without_labels(write_images, tmp_path):
    write_images(tmp_path / "photos", [f"{i}.jpg" for i in range(6)])
    visterm("features", "photos", "--set", "features.n_visterms=20", "--set", "compute.n_jobs=1", cwd=tmp_path)
    assert "has no labelled training images: sort the images" in refused("tune", cwd=tmp_path)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a"] * 9, "all of one class, a"),
        (["a", "a", "a", "b", "b"], "no class has so many"),  # five images
        (["a", "b", "c", "d", "e", "f", "g", "h"], "no class has so many"),  # classes of one image
        (["a"] * 9 + ["b"], "only one class has so many"),
        (sparse.csr_matrix(np.ones((5, 2))), "5 labelled training images are too few"),  # of several labels
    ],
)
def test_refuses_labels_that_folds_cannot_be_made_of(labels, words):
    with pytest.raises(UserError, match=words):
        stage._folds(labels if sparse.issparse(labels) else np.array(labels), 0, "fruit")


@pytest.mark.slow
def test_refuses_a_run_that_changes_meanwhile(mine, monkeypatch):
    measure_fold = stage.measure_fold

    def changing(*arguments):
        collection = Collection(mine / "runs/fruit/collection")
        collection.execute("UPDATE images SET labels = '{\"pear\": 1.0}' WHERE labels LIKE '%apple%'")
        collection.close()
        return measure_fold(*arguments)

    monkeypatch.setattr(stage, "measure_fold", changing)
    before = (mine / "runs/fruit/config.yaml").read_bytes()
    assert "changed while it was tuned" in refused("tune", "--apply", *FEW, cwd=mine)
    assert not list((mine / "runs/fruit/tuning").iterdir())
    assert (mine / "runs/fruit/config.yaml").read_bytes() == before


# -- folds and vectors -------------------------------------------------------------------------------------------------


def test_folds_hold_out_each_image_once_and_two_of_a_class():
    y = np.repeat(["a", "b", "c"], [9, 8, 3])
    fold_of = stage._folds(y, 0, "fruit")
    for fold in range(4):
        assert all((y[fold_of == fold] == name).sum() >= 2 for name in "ab")
    assert (fold_of == stage._folds(y, 0, "fruit")).all()
    assert (fold_of != stage._folds(y, 1, "fruit")).any()


def test_idf_is_learned_without_held_out_images(finished):
    run = Run(finished / "runs/fruit")
    with opened(run, Config(), lock=False) as it:
        data = stage._Data(it, "oasis", True)
        stored = it.catalogue.counts(it.images("train"))
    training, held_out = data.rows(1)
    assert len(held_out) == 6
    expected = VistermWeighting(tf="sqrt").fit(stored[training])
    vectors, as_new = data.vectors(1, "sqrt")
    assert as_new is vectors  # where they were not counted as new ones
    assert (vectors != expected.transform(stored)).nnz == 0
    assert (vectors != VistermWeighting(tf="sqrt").fit(stored).transform(stored)).nnz


@pytest.mark.parametrize("learner", ["oasis", "wsabie", "knn", "hier"])
def test_held_out_images_are_measured_as_new(run, learner, tmp_path, monkeypatch):
    config, file = run.configure(None, []), tmp_path / "as_new.npz"
    with opened(run, config, lock=False) as it:
        images = it.images("train")
        plain, data, resumed = (stage._Data(it, learner, True) for _ in range(3))
        data.count_as_new(file, Console(quiet=True))
        monkeypatch.delattr(VistermExtractor, "count_as_new")  # an interrupted tuning has the counts
        resumed.count_as_new(file, Console(quiet=True))
    np.testing.assert_array_equal(data._as_new.sum(axis=1), plain._stored.sum(axis=1))
    for row in range(len(images)):  # some of its blocks had a centre of their own
        assert (data._as_new[[row]] != plain._stored[[row]]).nnz
    measured = [stage.measure_fold(some, config, learner, {}, 0, lambda: None)["values"] for some in (data, resumed)]
    assert measured[0] == measured[1]
    data._as_new = data._as_new[np.random.default_rng(0).permutation(len(images))]
    data.vectors.cache_clear()
    wrong = stage.measure_fold(data, config, learner, {}, 0, lambda: None)["values"]
    assert max(wrong) < max(stage.measure_fold(plain, config, learner, {}, 0, lambda: None)["values"])


def test_images_that_the_codebook_was_not_learned_from_are_measured_as_they_are(mine, write_images):
    assert "counting 18 training images as new photos" in visterm("tune", *SHORT, "--trials", "2", cwd=mine).stderr
    write_images(mine, ["plum.jpg"])
    visterm("add", "plum.jpg", "--label", "plum", cwd=mine)
    result = visterm("tune", *SHORT, "--trials", "2", "--force", cwd=mine)
    assert "the codebook would now be made from other images" in result.stderr
    assert "as new photos" not in result.stderr


@pytest.mark.parametrize("learner", ["wsabie", "musl", "knn"])
def test_learners_with_and_without_steps_are_measured(finished, learner):
    run = Run(finished / "runs/fruit")
    config = run.configure(None, [])
    with opened(run, config, lock=False) as it:
        data = stage._Data(it, learner, True)
    curve = stage.measure_fold(data, config, learner, {}, 0, lambda: None)
    assert curve["steps"][-1] == (4000 if learner == "wsabie" else 0)
    assert all(0 <= value <= 1 for value in curve["values"])
    assert max(curve["values"]) > 0.4


def test_same_weights_as_from_scratch(mine, write_images):
    options = [part for key in ("n_visterms=40", "weighting.tf=sqrt") for part in ("--set", f"features.{key}")]
    visterm("features", "fruit", *options, "--set", "compute.n_jobs=1", "--run", "scratch", cwd=mine)
    visterm("features", "--run", "fruit", "--set", "features.weighting.tf=sqrt", cwd=mine)
    records = [json.loads((mine / f"runs/{name}/extractor/record.json").read_text()) for name in ("scratch", "fruit")]
    assert records[0]["content"] == records[1]["content"]
    first, second = (
        (mine / f"runs/{name}/extractor/files/extractor.json").read_text() for name in ("scratch", "fruit")
    )
    assert first == second


# -- the search --------------------------------------------------------------------------------------------------------


def test_every_learner_has_a_space_of_valid_values_and_one_step_for_all_folds():
    for name in TABLE:
        space = search_space(name, Config(), visterms=True)
        assert set(WEIGHTS) < set(space)
        for key, values in space.items():
            assert len(values) > 1
            for value in values:
                with_settings(Config(), {key: value})
    config = with_settings(Config(), {"oasis.C": 0.07})
    assert search_space("oasis", config, visterms=False, given=["C=1,2"]) == {"oasis.C": [1, 2, 0.07]}
    curves = [
        {"steps": [0, 10, 20, 30], "values": [9.0, 0.3, 0.2, 0.1]},
        {"steps": [0, 10, 20], "values": [9.0, 0.1, 0.4]},
    ]
    assert best_step(curves) == ([0.2, 0.4], 20)
    assert best_step([{"steps": [0], "values": [0.5]}]) == ([0.5], None)
    from visterm.plugins.choosing.trials import Trial

    own = Trial(0, {"oasis.C": 0.1}, [0.5, 0.6, 0.7], 100, 1.0, "complete")
    lucky = Trial(1, {"oasis.C": 1.0}, [0.8, 0.55, 0.5], 200, 1.0, "complete")
    clear = Trial(2, {"oasis.C": 0.3}, [0.55, 0.66, 0.75], 300, 1.0, "complete")
    assert stage._chosen(Config(), "oasis", [own, lucky])["best"] == {}
    assert stage._chosen(Config(), "oasis", [own, clear])["best"] == {"oasis.C": 0.3}
    best = {"oasis.C": 0.3, "oasis.n_steps": 300, "oasis.validation_fraction": None}
    fixed = with_settings(Config(), {"train.learned_weight": 1})  # there is no share to choose
    assert stage._chosen(fixed, "oasis", [own, clear])["best"] == best


SPACE = {"a": [1, 2, 3, 4, 5, 6], "b": ["x", "y", None], "c": [[1], [2, 3]]}
OWN = {"a": 1, "b": "x", "c": [1]}


def figure(settings, fold, tick):
    """Best at 4, y; folds differ a little."""
    return {"steps": [0], "values": [1 - 0.1 * abs(settings["a"] - 4) + 0.05 * (settings["b"] == "y") + fold / 100]}


def search(folder, measure=figure, n_jobs=2, **options):
    budget = Budget(**{"seconds": 60, "trials": 16} | options)
    folder.mkdir(exist_ok=True)
    return Search(folder / "journal", SPACE, OWN, measure, Plan(4, n_jobs, 0, budget))


def test_halving_stops_the_worse_half_and_finds_the_best(tmp_path):
    searching = search(tmp_path)
    assert not searching.run()
    trials = searching.trials()
    assert len(trials) == 16
    assert len({json.dumps(trial.settings) for trial in trials}) == 16
    assert trials[0].settings == OWN
    stopped = [trial for trial in trials if trial.state == "stopped"]
    assert 7 <= len(stopped) <= 12
    assert {len(trial.values) for trial in stopped} == {1, 2}
    best = max(trials, key=lambda trial: trial.score)
    assert best.state == "complete"
    assert best.settings["a"] == 4


def test_threads_and_an_interruption_change_nothing(tmp_path):
    whole = search(tmp_path / "whole")
    whole.run()
    calls = []

    def interrupted(settings, fold, tick):
        calls.append(fold)
        if len(calls) == 14:
            raise KeyboardInterrupt
        return figure(settings, fold, tick)

    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "again", interrupted, n_jobs=1).run()
    with open(tmp_path / "again" / "journal", "a") as journal:
        journal.write('{"op_code"')  # what a kill leaves of a line
    again = search(tmp_path / "again", n_jobs=1)
    assert 2 < len(again.trials()) < 16
    again.run()
    plain = [[trial._replace(seconds=0) for trial in searched.trials()] for searched in (whole, again)]
    assert plain[0] == plain[1]


def test_all_settings_are_tried_once_and_then_it_ends(tmp_path):
    searching = search(tmp_path, trials=None)
    assert not searching.run()
    assert len(searching.trials()) == 36
    assert searching.exhausted()


def test_keeps_the_budget(tmp_path):
    def slow(settings, fold, tick):
        time.sleep(0.02 if settings == OWN else 0.1)  # the first one flatters the others
        tick()
        return figure(settings, fold, tick)

    searching = search(tmp_path, slow, trials=None, seconds=0.8)
    searching.run()
    assert 0 < len(searching.trials()) < 36  # all would take longer than the budget, whatever the machine


def test_refused_settings_do_not_end_the_search(tmp_path):
    def picky(settings, fold, tick):
        if settings["b"] is None:
            raise ValueError("b must be given")
        return {"steps": [0], "values": [np.inf]} if settings["a"] == 6 else figure(settings, fold, tick)

    searching = search(tmp_path, picky, trials=36)
    searching.run()
    trials = searching.trials()
    states = {trial.state for trial in trials if trial.settings["b"] is None or trial.settings["a"] == 6}
    assert states == {"refused"}
    assert {trial.reason for trial in trials} == {"", "b must be given", "the measure is not finite"}


def test_tunes_for_the_world_that_the_learner_is_for(mine, monkeypatch):
    """What the folds are measured by is part of the record, and so is a share that is given."""
    fits = []
    fit = OASIS.fit

    @functools.wraps(fit)
    def noted(self, *arguments, **options):
        fits.append((options["world"], options["learned_weight"]))
        return fit(self, *arguments, **options)

    monkeypatch.setattr(OASIS, "fit", noted)
    short = ("--search", "C=0.01,1", "--trials", "2", "--set", "oasis.n_steps=100", "--set", "oasis.pass_steps=50")
    for options, asked in (
        ((), {"world": "open", "learned_weight": None}),
        (("--for", "unseen"), {"world": "unseen", "learned_weight": None}),
        (("--for", "seen", "--set", "train.learned_weight=1"), {"world": "seen", "learned_weight": 1.0}),
    ):
        fits.clear()
        assert not json_of("tune", *short, *options, cwd=mine)["up_to_date"]
        assert set(fits) == {tuple(asked.values())}
        record = json.loads((mine / "runs/fruit/tuning/oasis/record.json").read_text())
        assert record["config"]["train"] == asked
        assert json_of("tune", *short, *options, cwd=mine)["up_to_date"]


def test_plot_of_odd_values(tmp_path):
    searching = search(tmp_path)
    searching.run()
    trials = [trial._asdict() | {"score": trial.score} for trial in searching.trials()]
    result = {"trials": trials, "own_score": 0.7, "best_trial": 0, "measure": "mAP", "n_folds": 4}
    write_tuning_plot(tmp_path / "plot.png", "oasis", result)
    assert (tmp_path / "plot.png").stat().st_size > 10_000
