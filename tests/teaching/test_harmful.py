"""Training images that harm: what held-out images would gain without them."""

import json

import numpy as np
import pytest
from running import copy_run, visterm

from visterm.learners.validation import mean_average_precision
from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.held_out import draw_held_out
from visterm.pipeline.store.catalogue import Collection
from visterm.teaching import harmful
from visterm.teaching.harmful import find_harmful, in_words
from visterm.teaching.teachers import open_teachers


@pytest.fixture(scope="module")
def noisy(finished, tmp_path_factory):
    """A copy of the run, trained with plums and apples among the pears."""
    folder = copy_run(finished, tmp_path_factory.mktemp("harmful"))
    for kind in ("plum", "apple"):
        for number in (2, 3, 4):
            (folder / f"fruit/{kind}/{number}.jpg").rename(folder / f"fruit/pear/{kind}-{number}.jpg")
    visterm("features", "fruit", cwd=folder)
    visterm("train", cwd=folder)
    return Searcher(folder / "runs" / "fruit")


def test_gains_are_those_of_the_learner_without_the_image(noisy):
    said = find_harmful(noisy, k=3)
    assert said == json.loads(json.dumps(said))
    teachers, rows = open_teachers(noisy, "oasis")
    with Collection(noisy.run.collection) as collection:
        held_out = draw_held_out(noisy.run, "oasis", collection, noisy.images, set())
    place = {row["id"]: number for number, row in enumerate(rows)}

    def measured(learner):
        return mean_average_precision(held_out.scores(learner), held_out.relevant, held_out.own)

    assert said["map"] == pytest.approx(measured(noisy.learner("oasis")), abs=1e-6)
    gains = [image["gain"] for image in said["images"]]
    assert 0 < len(gains) <= 3
    assert gains == sorted(gains, reverse=True)
    for image in said["images"]:
        without = teachers.without([place[image["id"]]])
        assert measured(without) - said["map"] == pytest.approx(image["gain"], abs=1e-3)
        assert image["path"] == noisy.images[noisy.place[image["id"]]].path
        shared = set(image["labels"]).intersection(image["did"]["image"]["labels"])
        assert image["did"]["together"] == bool(shared)
    lines = in_words(said)
    assert len(lines) == len(gains)
    assert f"id:{said['images'][0]['id']}  " in lines[0]


def test_what_does_not_harm_is_not_listed(noisy, monkeypatch):
    said = find_harmful(noisy, k=1000)
    assert all(image["gain"] >= harmful.LEAST_GAIN for image in said["images"])
    folder = noisy.root.parent
    lines = visterm("doctor", cwd=folder).stdout.splitlines()
    shares = f"({said['share_harmful']:.0%} of all, by chance {said['share_by_chance']:.0%})"
    known = f"the mAP of oasis, {said['map']:.4f} on {said['measured_on']}, would be higher {shares}"
    assert f"Images without which {known}" in lines
    assert not [line for line in lines if line.lstrip().startswith("+0.0000")]
    second = said["images"][1]["gain"]
    monkeypatch.setattr(harmful, "LEAST_GAIN", second + 1e-6)
    assert [image["gain"] for image in find_harmful(noisy, k=1000)["images"]] == [
        image["gain"] for image in said["images"] if image["gain"] > second
    ]
    monkeypatch.setattr(harmful, "LEAST_GAIN", 1.0)
    lines = visterm("doctor", cwd=folder).stdout.splitlines()
    assert lines[-1].startswith(f"No training image lowers the mAP of oasis, {said['map']:.4f} on ")
    assert lines[-1].endswith(", by 1.0000 or more")


def test_what_lowers_the_margins_most_is_told(noisy):
    teachers, rows = open_teachers(noisy, "oasis")
    for image in find_harmful(noisy)["images"]:
        other = image["did"]["image"]
        table = teachers.table
        place = {row["id"]: number for number, row in enumerate(rows)}
        a, b = place[image["id"]], place[other["id"]]
        assert table[a, b] or table[b, a]


def test_half_of_changes_that_mean_nothing_are_gains_by_chance_and_few_of_one_class():
    rng = np.random.default_rng(0)
    relevant = np.eye(40, dtype=bool)
    nothing = rng.normal(size=(500, 40))
    assert harmful.share_by_chance(nothing, relevant) == pytest.approx(0.5, abs=0.01)
    harm = nothing + 3  # for each query: signs by chance hardly ever agree
    assert (harm.mean(axis=1) > 2).all()
    assert harmful.share_by_chance(harm * 1e-4 / 3, relevant) < 0.01
    one_class = np.ones((40, 40), bool)  # then they agree in every second draw
    assert harmful.share_by_chance(harm, one_class) == pytest.approx(0.5, abs=0.1)


def test_a_learner_without_a_table_is_refused(searcher):
    with pytest.raises(UserError, match="wsabie has no table of teachers"):
        find_harmful(searcher, "wsabie")
