"""Two-stage indexes: when they are used, what they find, and what a run keeps of them."""

import json
import shutil

import pytest
from running import visterm

from visterm.pipeline import Searcher
from visterm.pipeline.store.run import Run
from visterm.retrieval import TwoStageIndex


def paths_of(answer):
    return [result["path"] for result in answer["results"]]


def test_two_stages_of_few_images_find_what_exact_search_finds(mine, searcher):
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    two_stages = Searcher(mine / "runs/fruit")
    for name in two_stages.learners:
        assert isinstance(two_stages.index(name), TwoStageIndex)
        assert two_stages.search("id:3", learner=name) == searcher.search("id:3", learner=name)
    for kind, milliseconds, two in (("exact", "0.0001", False), ("auto", "0.0001", True), ("auto", "50", False)):
        settings = ["--set", f"index.exact_milliseconds={milliseconds}", "--set", "index.n_candidates=7"]
        visterm("features", "fruit", "--set", f"index.kind={kind}", *settings, cwd=mine)
        index = Searcher(mine / "runs/fruit").index("cosine")
        assert isinstance(index, TwoStageIndex) == two
        assert not two or index.n_candidates == 7


def test_what_two_stages_find_is_measured_once_and_shown(mine):
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    for name in ("oasis", "wsabie"):  # without lists, and with
        told = f"two stages find 100.0% of the 10 nearest images for {name} (measured with 30 queries"
        ask = ["search", "id:3", "--learner", name]
        assert told in visterm(*ask, cwd=mine).stderr
        assert "two stages" not in visterm(*ask, cwd=mine).stderr
    measured = {"recall": 1.0, "k": 10, "queries": 30, "images": 30}
    found = json.loads(visterm("info", "--json", cwd=mine).stdout)["indexes"]
    assert found == {"oasis": measured, "wsabie": measured}
    line = "index:       wsabie finds 100.0% of the 10 nearest of 30 images (measured with 30 of them)"
    assert line in visterm("info", cwd=mine).stdout.splitlines()


@pytest.mark.slow
def test_an_index_that_takes_long_to_make_is_kept(mine, write_images):
    """That of a dense gallery side, such as wsabie's where all that it learned counts."""
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    visterm("train", "--learner", "wsabie", "--set", "train.learned=1", cwd=mine)
    ask, making = ["search", "id:3", "-k", "31", "--learner", "wsabie", "--json"], "building the index of"
    folder = mine / "runs/fruit/index"
    first = visterm(*ask, cwd=mine)
    assert "building the index of 30 images for wsabie" in first.stderr
    again = visterm(*ask, cwd=mine)
    assert making not in again.stderr
    assert again.stdout == first.stdout
    visterm("search", "id:3", "--learner", "oasis", cwd=mine)
    assert [path.parent.name for path in folder.glob("*/two_stage.npz")] == ["wsabie"]

    write_images(mine / "fruit", ["pear/new.jpg"])  # a few more images change nothing
    visterm("features", "fruit", cwd=mine)
    result = visterm(*ask, cwd=mine)
    assert making not in result.stderr
    assert "pear/new.jpg" in paths_of(json.loads(result.stdout)[0])

    visterm("train", "--learner", "wsabie", "--set", "wsabie.n_steps=3000", cwd=mine)
    assert making in visterm(*ask, cwd=mine).stderr
    next((folder / "wsabie").glob("*.npz")).write_bytes(b"damaged")
    assert making in visterm(*ask, cwd=mine).stderr

    shutil.rmtree(folder)
    with Run(mine / "runs/fruit").locked():  # another visterm is at work
        result = visterm(*ask, cwd=mine)
    assert "the index for wsabie cannot be saved" in result.stderr
    assert json.loads(result.stdout)[0]["results"]
    assert not folder.exists()
