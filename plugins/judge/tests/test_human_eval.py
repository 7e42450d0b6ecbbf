"""The human evaluation: hand-worked measures, tasks of real images, decisions that stay, exports, the figure."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import running

from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.run import Run
from visterm.plugins.judge.judgements import Judgements
from visterm.plugins.judge.measures import judge_coherence, precision_curves, ranking_coherence, spread
from visterm.plugins.judge.tasks import Candidate, Task, draw_tasks
from visterm.service import commands as cli_serving

NAN = np.nan
CLASSES = ("apple", "pear", "plum")


def test_precision_spread_and_coherence_by_hand():
    decisions = np.array([[[1, 0, 1, 1], [0, 0, 0, 0]], [[NAN, 1, 0, NAN], [NAN, NAN, NAN, NAN]]])
    expected = [[[1, 1 / 2, 2 / 3, 3 / 4], [0, 0, 0, 0]], [[NAN, 1 / 1, 1 / 2, 1 / 2], [NAN] * 4]]
    np.testing.assert_allclose(precision_curves(decisions), expected)
    decisions = np.array([[[1.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    over_queries, over_judges = spread(decisions)
    assert over_queries == pytest.approx(np.sqrt(1 / 2) / 2)
    assert over_judges == pytest.approx(np.sqrt(1 / 8))
    assert np.isnan(spread(decisions[:1])[1])  # one judge
    assert np.isnan(spread(decisions[:0])).all()  # no judge
    decisions = np.array([[[1, 0, 1, 0]], [[1, 1, 0, 0]], [[0, NAN, 1, 0]]])
    # a found images 1 and 3: of the others 1/2 (b) and 1/2 (c). b found 1 and 2: 1/2 (a) and 0/1 (a, as c cannot say).
    # c found image 3: 1/2 (a).
    expected = [[(1 / 2 + 1 / 2) / 2], [(1 / 2 + 0) / 2], [1 / 2]]
    np.testing.assert_allclose(judge_coherence(decisions), expected)
    np.testing.assert_allclose(ranking_coherence(decisions[:, :, :2]), [(2 / 3 + 1 / 2) / 2])
    decisions = np.random.default_rng(0).integers(0, 2, (4, 5, 6)).astype(float)
    without = [ranking_coherence(np.delete(decisions, judge, axis=0)) for judge in range(4)]
    np.testing.assert_allclose(ranking_coherence(decisions), np.mean(without, axis=0))
    assert np.isnan(judge_coherence(np.array([[[1.0, 0.0]]]))).all()
    assert np.isnan(judge_coherence(np.zeros((2, 1, 2)))).all()  # who found nothing relevant cannot be confirmed
    assert np.isnan(ranking_coherence(np.full((2, 3, 4), NAN))).all()
    assert precision_curves(np.zeros((0, 3, 4))).shape == (0, 3, 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory, write_images):
    folder = tmp_path_factory.mktemp("judged")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(20)])
    write_images(folder / "fruit", ["pear/_$x$.jpg"])
    (folder / "fruit/apple/copy.jpg").write_bytes((folder / "fruit/apple/1.jpg").read_bytes())
    place = Run(folder / "runs/fruit")
    settings = ["features.n_visterms=60", "split.train=4", "split.test=18", "compute.n_jobs=1"]
    config = load_config(None, [*settings, "musl.n_metrics=3", "musl.n_bits=8"])
    features(place, config, folder / "fruit", Console(quiet=True))
    train(place, config, "musl", Console(quiet=True))
    return place


@pytest.fixture(scope="module")
def searcher(run):
    return Searcher(run)


@pytest.mark.parametrize("learner", ["cosine", "musl"])  # MuSL chooses the metric of an image by its label
def test_tasks_are_those_of_the_paper(searcher, learner):
    tasks = draw_tasks(searcher, learner, n_queries=6, k=5, n_random=4, seed=1)
    images = {image.id: image for image in searcher.images}
    assert len({task.query.id for task in tasks}) == len(tasks) == 6
    for task in tasks:
        ranked, others = task.candidates[:5], task.candidates[5:]
        assert [c.rank for c in ranked] == [1, 2, 3, 4, 5]
        assert [c.rank for c in others] == [None] * 4
        contents = [task.query.sha256, *(c.sha256 for c in task.candidates)]
        assert len(set(contents)) == len(contents)  # no copies
        for candidate in [task.query, *task.candidates]:
            assert images[candidate.id].split == "test"
        for candidate in others:
            assert images[candidate.id].labels != images[task.query.id].labels
        # The ranked ones are what a search finds among the test images.
        results = searcher.search(f"id:{task.query.id}", k=len(images) - 1, learner=learner)[0]["results"]
        test = [row["id"] for row in results if images[row["id"]].split == "test"]
        assert [c.id for c in ranked] == test[:5]
    assert tasks == draw_tasks(searcher, learner, n_queries=6, k=5, n_random=4, seed=1)
    assert tasks != draw_tasks(searcher, learner, n_queries=6, k=5, n_random=4, seed=2)
    with pytest.raises(UserError, match="too few to judge"):
        draw_tasks(searcher, learner, k=1000)


def candidates(first, n, ranked):
    return [
        Candidate(first + i, f"a/{first + i}.jpg", f"{first + i:064x}", i + 1 if i < ranked else None) for i in range(n)
    ]


@pytest.fixture
def judgements(tmp_path):
    """Two tasks of two ranked and two random images."""
    store = Judgements(tmp_path / "judgements.sqlite")
    tasks = [Task(candidates(100 * t, 1, 0)[0], candidates(100 * t + 1, 4, 2)) for t in (1, 2)]
    store.create(tasks, learner="oasis", version="abc", seed=3)
    return store


def judge_all(judgements, judge, relevant, unsure=()):
    """Let a judge decide everything in the order shown; the ids."""
    seen = []
    while (task := judgements.next(judge)["task"]) is not None:
        image = task["image"]
        decision = "unsure" if image in unsure else "relevant" if image in relevant else "not"
        judgements.decide(judge, task["task"], image, decision, seconds=2.0)
        seen.append(image)
    return seen


def test_a_judge_goes_on_where_they_left_and_is_told_neither_rank_nor_class(judgements):
    first = judgements.next("ann")
    assert (first["done"], first["total"], first["query_index"], first["n_queries"]) == (0, 8, 0, 2)
    assert set(first["task"]) == {"task", "query", "image", "position"}
    judgements.decide("ann", first["task"]["task"], first["task"]["image"], "relevant")
    again = Judgements(judgements.file).next("ann")
    assert again["done"] == 1
    assert again["task"]["image"] != first["task"]["image"]
    assert judgements.next("bob")["done"] == 0


def test_every_judge_has_an_order_of_their_own_that_stays(judgements):
    orders = {judge: judge_all(judgements, judge, ()) for judge in ("ann", "bob", "eve", "joe")}
    assert all(sorted(order) == [101, 102, 103, 104, 201, 202, 203, 204] for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) > 1
    positions = {row["image"]: row["position"] for row in judgements.rows() if row["judge"] == "ann"}
    assert [positions[image] for image in orders["ann"]] == [0, 1, 2, 3] * 2


def test_undo_asks_again_and_only_the_judge_s_own(judgements):
    assert judgements.undo("ann") is None
    task = judgements.next("ann")["task"]
    judgements.decide("ann", task["task"], task["image"], "relevant")
    judgements.decide("ann", task["task"], task["image"], "not")  # changed their mind
    judgements.decide("bob", 0, 101, "unsure")
    assert judgements.undo("ann") == {"task": 0, "image": task["image"], "decision": "not"}
    assert [row["decision"] for row in judgements.rows() if row["judge"] == "ann"] == ["relevant"]
    assert judgements.undo("ann")["decision"] == "relevant"
    assert judgements.next("ann")["task"] == task
    assert judgements.undo("ann") is None
    assert [row["judge"] for row in judgements.rows()] == ["bob"]


def test_what_cannot_be_is_refused(judgements):
    judges = [(judge, 0, 101, "not") for judge in ("", "a\nb", "a" * 61)]
    tasks = [("ann", task, 101, "not") for task in (2, -1, "0")]
    for wrong in (*judges, *tasks, ("ann", 0, 201, "not"), ("ann", 0, 101, "maybe")):
        with pytest.raises(UserError):
            judgements.decide(*wrong)
    assert judgements.rows() == []


def test_results_by_hand(judgements):
    judge_all(judgements, "ann", {101, 102, 201}, unsure={202})
    judge_all(judgements, "bob", {101, 103, 203})
    judgements.decide("eve", 0, 101, "relevant")  # an unfinished task does not count
    results = judgements.results()
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    # ann: query 1 has 1, 1; query 2 has 1, then one of one she can say. bob: 1, 1/2 and 0, 0.
    assert results["precision_at"] == {"1": pytest.approx((1 + 1 / 2) / 2), "2": pytest.approx((3 / 4 + 1 / 2) / 2)}
    # Of 4 random images each, ann found none relevant, bob 2.
    assert results["random_relevant"] == pytest.approx(2 / 8)
    ann, bob, eve = results["judges"]
    assert (ann["judge"], ann["done"], ann["unsure"], ann["seconds"], ann["tasks_done"]) == ("ann", 8, 1, 2.0, 2)
    assert bob["precision_at"] == {"1": pytest.approx(1 / 2), "2": pytest.approx(1 / 4)}
    assert (eve["done"], eve["tasks_done"], eve["precision_at"]["1"], eve["coherence"]) == (1, 0, None, None)
    # Coherence: ann found 101 (bob too) and 102 (bob not); 201 (bob not). bob found 101 (ann too), 103; 203.
    assert ann["coherence"] == pytest.approx((1 / 2 + 0) / 2)
    first, second = results["queries"]
    assert first["coherence"] == pytest.approx((1 + 1 / 2) / 2)
    assert first["judge_coherence"] == pytest.approx(1 / 2)
    assert second["coherence"] == pytest.approx((1 / 2 + 0) / 2)
    assert (first["judges"], first["path"]) == (2, "a/100.jpg")


def test_exports(judgements):
    judge_all(judgements, "ann", {101, 102, 203}, unsure={104, 204})
    judge_all(judgements, "bob", {101, 203})
    judge_all(judgements, "joe", {101, 102}, unsure={204})
    rows = list(csv.DictReader(io.StringIO(judgements.csv())))
    assert len(rows) == 24
    told = {(row["rank"], row["decision"]) for row in rows if row["image"] == "102"}
    assert told == {("2", "relevant"), ("2", "not")}
    assert rows[0]["version"] == "abc"
    relevance = dict(line.split(" 0 ")[1].split() for line in judgements.qrels().splitlines())
    # 102: 2 of 3. 104: 0 of 2 who can say. 204: 0 of 1.
    assert relevance == {
        "101": "1", "102": "1", "103": "0", "104": "0", "201": "0", "202": "0", "203": "1", "204": "0",
    }  # fmt: skip
    assert judgements.qrels().startswith("100 0 101 1\n")


@pytest.mark.slow
def test_the_figure_is_drawn_of_any_names(searcher, tmp_path):
    store = Judgements(tmp_path / "judgements.sqlite")
    store.create(draw_tasks(searcher, "cosine", n_queries=5, k=5, n_random=4), learner="cosine", version="1")
    with pytest.raises(UserError, match="no judge has finished a task"):
        store.draw(tmp_path / "figure.png")
    labels = {image.id: image.labels for image in searcher.images}
    for judge in ("_ann", "$b$"):
        while (task := store.next(judge)["task"]) is not None:
            same = labels[task["image"]] == labels[task["query"]]
            store.decide(judge, task["task"], task["image"], "relevant" if same else "not")
    store.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    # Judges who go by the labels agree in everything: each is as coherent as can be.
    assert all(judge["coherence"] == 1 for judge in store.results()["judges"])


def test_a_new_study_leaves_the_old_one_as_it_is(judgements):
    judge_all(judgements, "ann", {101})
    before = judgements.results()
    number = judgements.create([Task(candidates(300, 1, 0)[0], candidates(301, 3, 2))], learner="aroma", version="d")
    assert judgements.next("ann")["done"] == 0
    assert judgements.results()["learner"] == "aroma"
    assert judgements.results(number - 1) == before
    with pytest.raises(UserError, match="no study 9"):
        judgements.results(9)


def test_no_tasks_yet(tmp_path):
    with pytest.raises(UserError, match="visterm judge"):
        Judgements(tmp_path / "judgements.sqlite").next("ann")
    assert list(tmp_path.iterdir()) == []


def test_decisions_survive_a_kill(judgements):
    """The process is killed right after the last `decide` returned."""
    program = """
import os, signal, sys
from pathlib import Path
from visterm.plugins.judge.judgements import Judgements
judgements = Judgements(Path(sys.argv[1]))
for _ in range(3):
    task = judgements.next("ann")["task"]
    judgements.decide("ann", task["task"], task["image"], "relevant")
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program, str(judgements.file)], capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert len(judgements.rows()) == 3


def test_the_command(run, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(cli_serving, "start_service", lambda: lambda *_, **options: served.append(options))

    def visterm(*arguments, code=0):
        return running.visterm("judge", *arguments, cwd=run.folder.parent.parent, check=code)

    assert "no tasks yet; run 'visterm judge' to draw some" in visterm("results", code=2).stderr
    told = visterm("--learner", "cosine", "--queries", "3", "--port", "0").stderr
    assert "study 1: 3 queries of 20 images each" in told
    visterm()  # goes on with the same
    assert "use --new to start one for oasis" in visterm("--learner", "oasis", code=2).stderr
    own = {"host": "127.0.0.1", "token": None}
    assert served == [own | {"port": 0}, own | {"port": 8000}]
    told = visterm("--host", "0.0.0.0", "--token", "secret-enough-for-all").stderr
    assert served[2] == {"host": "0.0.0.0", "port": 8000, "token": "secret-enough-for-all"}
    assert "judge?token=TOKEN" in told
    assert "put options after results" in visterm("--run", "other", "results", code=2).stderr
    assert "a picture needs a name that ends in .png" in visterm("results", "--figure", "a.jpg", code=2).stderr
    store = Judgements(run.judgements)
    tasks = store.study().tasks
    while (shown := store.next("ann")["task"]) is not None:
        relevant = shown["image"] in [candidate.id for candidate in tasks[shown["task"]].candidates[:5]]
        store.decide("ann", shown["task"], shown["image"], "relevant" if relevant else "not", seconds=2)
    lines = visterm("results", "--figure", str(tmp_path / "figure.png")).stdout.splitlines()
    assert lines[0].startswith("cosine: P@1 1.00, P@10 0.50, random images 0.00")
    assert lines[2] == " 0.50          -    60/60  ann"
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert json.loads(visterm("results", "--json").stdout)["judges"][0]["seconds"] == 2
    assert len(json.loads(visterm("export").stdout)) == 60
    assert len(visterm("export", "--format", "qrels").stdout.splitlines()) == 60
    assert visterm("export", "--format", "csv").stdout.startswith("study,learner,version,task,query,")
    assert "no study 4" in visterm("results", "--study", "4", code=2).stderr
    assert "ranked by musl" in visterm("--new", "--queries", "2").stderr  # the only one that is trained
    assert "did you mean cosine?" in visterm("--learner", "cosin", code=2).stderr
