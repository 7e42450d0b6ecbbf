"""Concepts from a few images: scores, the image to ask about, the images that are sure."""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from running import copy_run
from scipy import sparse
from sklearn.metrics import average_precision_score
from sklearn.preprocessing import normalize

from visterm.pipeline import LabelEditor, Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run
from visterm.teaching import concepts
from visterm.teaching.concepts import (
    Concept,
    Growth,
    follow,
    growth,
    image_to_ask,
    learn_concept,
    offer,
    score_concept,
    sure_images,
)


@pytest.fixture(scope="module")
def groups():
    """Unit rows of five groups of 40 images that overlap, and the group of each."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 40)
    return normalize(rng.normal(size=(5, 30))[y] + rng.normal(scale=1.6, size=(200, 30))).astype(np.float32), y


def answered(X, y, n, ask):
    """Answer n questions about group 0, from three of its images on; return scores, yes and no."""
    yes, no = {0, 1, 2}, set()
    for _ in range(n):
        row = ask(score_concept(X, yes, no), yes | no)
        (yes if y[row] == 0 else no).add(row)
    return score_concept(X, yes, no), yes, no


def test_answers_on_the_unsure_images_teach_more_than_on_random_ones(groups):
    X, y = groups
    rng = np.random.default_rng(0)

    def precision(ask):
        scores, yes, no = answered(X, y, 12, ask)
        rest = np.setdiff1d(np.arange(len(y)), [*yes, *no])
        return average_precision_score(y[rest] == 0, scores[rest])

    random = [precision(lambda _, known: int(rng.choice(np.setdiff1d(np.arange(len(y)), [*known])))) for _ in range(5)]
    assert precision(image_to_ask) > np.mean(random) + 0.02


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_the_sure_images_are_right_and_were_not_asked_about(groups, form):
    X, y = groups
    scores, yes, no = answered(form(X), y, 12, image_to_ask)
    sure = sure_images(scores, yes | no)
    assert len(sure) > 5
    assert not set(sure.tolist()) & (yes | no)
    assert (y[sure] == 0).mean() >= 0.9
    assert (np.diff(scores[sure]) <= 0).all()


def test_many_images_are_sampled_without_those_that_were_answered(groups):
    X, _ = groups
    X = np.tile(X, (25, 1))  # 5,000
    scores = score_concept(X, [0, 1, 2], [50, 90])
    assert scores[:40].mean() > scores[40:200].mean()
    assert (scores == score_concept(X, [2, 1, 0], [90, 50])).all()


def test_certainty_is_what_share_of_the_suggestions_is_right(groups):
    X, y = groups
    searcher = SimpleNamespace(X=X)

    def concept(n):
        scores, yes, no = answered(X, y, n, image_to_ask)
        return Concept(yes, no, None, sure_images(scores, yes | no), scores)

    assert concept(5).certainty(searcher) is None  # eight answers
    known = concept(25)
    assert known._replace(sure=known.sure[:0]).certainty(searcher).tolist() == []
    certainty = known.certainty(searcher)
    assert (np.diff(certainty) <= 0).all()
    right = y[known.sure] == 0
    assert abs(certainty.mean() - right.mean()) < 0.15
    assert right[certainty >= 0.9].mean() > 0.9


def test_added_images_are_offered_for_a_concept_until_somebody_looked(finished, tmp_path):
    run = Run(copy_run(finished, tmp_path) / "runs/fruit")
    editor, searcher = LabelEditor(run), Searcher(run)
    plums = [image.id for image in searcher.images if image.path.startswith("plum")]
    editor.add("round", plums[:4])
    searcher = Searcher(run)
    concept = learn_concept(searcher, "round", set())
    sure = searcher.images.ids[concept.sure].tolist()
    assert sure
    follow(searcher, ["round"], again=False)
    newest = max(image.id for image in searcher.images)
    assert growth(searcher, set()) == [Growth("round", 4, newest, [], None)]
    run.concepts.write_text(json.dumps({"round": min(sure), "gone": 1}))  # the others came later
    [grown] = growth(searcher, set())
    assert grown.new == [id_ for id_ in sure if id_ > min(sure)]
    assert growth(searcher, {(grown.new[0], "round")} if grown.new else set())[0].new != grown.new
    follow(searcher, ["round"], again=False)
    assert growth(searcher, set()) == [grown]
    offer(run, "round", False)
    follow(searcher, ["round"], again=False)  # a later answer takes it up no more
    assert growth(searcher, set()) == []
    offer(run, "round", True)
    assert growth(searcher, set()) == [grown]
    editor.rename(["round"], "ball")
    searcher = Searcher(run)
    assert growth(searcher, set()) == [grown._replace(label="ball")]
    follow(searcher, ["ball"], again=True)
    assert growth(searcher, set()) == [Growth("ball", 4, newest, [], None)]
    follow(searcher, ["ball"], again=True, last=10**9)  # nobody looked at photos that will be added
    assert growth(searcher, set()) == [Growth("ball", 4, newest, [], None)]
    follow(searcher, ["ball"], again=True, last=grown.last)  # that was undone
    assert growth(searcher, set()) == [grown._replace(label="ball")]
    editor.undo()  # a label that no image has is no concept
    assert growth(Searcher(run), set()) == [grown]
    assert concepts.followed(run).keys() == {"round", "gone"}
    editor.rename(["round"], "plum")  # which is there, and stays what it is
    assert concepts.followed(run).keys() == {"round", "gone"}
    run.concepts.write_text("[1, 2")  # not ours
    assert growth(searcher, set()) == []


def test_two_concepts_that_begin_at_once_are_both_kept(tmp_path, monkeypatch):
    run, both, read = Run(tmp_path / "runs/fruit"), threading.Barrier(2), concepts.followed
    run.folder.mkdir(parents=True)

    def followed(run):
        kept = read(run)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # until the other one has read, too
        return kept

    monkeypatch.setattr(concepts, "followed", followed)
    searcher = SimpleNamespace(run=run, images=SimpleNamespace(ids=np.arange(9)))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda label: follow(searcher, [label], again=False), ["round", "green"]))
    assert read(run) == {"round": 8, "green": 8}


def test_without_images_to_tell_apart_nothing_is_sure(groups):
    X, _ = groups
    scores = score_concept(X[:3], [0, 1, 2])
    assert image_to_ask(scores, [0, 1, 2]) is None
    assert len(sure_images(scores, [0, 1, 2])) == 0
    with pytest.raises(UserError, match="at least one image that shows it"):
        score_concept(X, [])
