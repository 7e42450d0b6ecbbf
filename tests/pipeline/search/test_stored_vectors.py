"""A run of float16 vectors that stay on disk: whatever is asked gives what the same vectors in memory give."""

from importlib.util import find_spec

import numpy as np
import pytest
from running import set_all, visterm

from visterm.pipeline import Searcher, find_duplicates
from visterm.pipeline.errors import UserError
from visterm.pipeline.store import vectors
from visterm.plugins.explanation.explanation import explain_pair
from visterm.plugins.judge.tasks import draw_tasks
from visterm.plugins.vectors import efficientnet
from visterm.retrieval import StoredVectors
from visterm.teaching import overview
from visterm.teaching.wrong_labels import find_wrong_labels

if find_spec("onnxruntime") is None or find_spec(efficientnet.PACKAGE) is None:
    # Its runs are made by the network of that extra; tests/retrieval/test_stored.py needs none.
    pytest.skip("visterm[deep] is not installed", allow_module_level=True)

LEARNERS = ("oasis", "wsabie", "aroma", "cosine")
SMALL = {"oasis": {"n_steps": 3000, "pass_steps": 1000}, "aroma": {"n_steps": 3000, "pass_steps": 1000}}
SMALL |= {"wsabie": {"n_steps": 3000, "pass_steps": 1000, "n_components": 8}, "compute": {"segment_size": 7}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, write_images):
    """A folder with three classes of eight images, one of them twice, and a run of them with three learners."""
    folder = tmp_path_factory.mktemp("stored")
    names = [f"{label}/{i}.jpg" for label in ("apple", "pear", "plum") for i in range(8)]
    write_images(folder / "fruit", names)
    (folder / "fruit/pear/again.jpg").write_bytes((folder / "fruit/pear/3.jpg").read_bytes())
    (folder / "fruit/plum/apple.jpg").write_bytes((folder / "fruit/apple/3.jpg").read_bytes())
    visterm("features", "fruit", "--deep", *set_all(**SMALL), cwd=folder)
    visterm("train", "--learner", ",".join(LEARNERS[:3]), cwd=folder)
    return folder


def opened(folder):
    """The run with its vectors in memory, and with vectors that stay on disk."""
    in_memory = Searcher(folder / "runs/fruit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "IN_MEMORY", 0)
        on_disk = Searcher(folder / "runs/fruit")
    assert isinstance(in_memory.X, np.ndarray)
    assert isinstance(on_disk.X, StoredVectors)
    np.testing.assert_array_equal(on_disk.X[:], in_memory.X)
    return on_disk, in_memory


@pytest.fixture(scope="module")
def both(finished):
    return opened(finished)


@pytest.mark.parametrize("learner", LEARNERS)
def test_search(both, finished, learner):
    file = str(finished / "fruit/plum/2.jpg")
    asked = [
        {"queries": ["id:3", file], "k": 26},
        {"queries": "id:3", "learned_weight": 0.4},
        {"queries": "id:3", "label": "pear"},
        {"queries": "id:3", "not_label": "pear", "exclude_duplicates": True},
        {"queries": "id:3", "example": "id:9@-0.5", "weight": 0.5},
    ]
    for options in asked:
        if "learned_weight" in options and learner == "cosine":
            continue
        answers, wanted = (searcher.search(learner=learner, **options) for searcher in both)
        assert answers == wanted
        assert all(answer["results"] for answer in answers)


@pytest.mark.usefixtures("alone")
def test_a_photo_gives_the_same_scores_wherever_it_lies(both, finished, tmp_path):
    """That of the collection is rounded to float16, and so is the vector of a query."""
    copy = tmp_path / "copy.jpg"
    copy.write_bytes((finished / "fruit/plum/2.jpg").read_bytes())
    for searcher in both:
        own, copied = searcher.search([str(finished / "fruit/plum/2.jpg"), str(copy)], k=27, learner="cosine")
        scores = {row["path"]: row["score"] for row in copied["results"]}
        assert scores["plum/2.jpg"] == pytest.approx(1, abs=1e-6)
        assert all(scores[row["path"]] == pytest.approx(row["score"], abs=1e-6) for row in own["results"])


def test_labels(both):
    for ask in (
        lambda searcher: searcher.search_label("pear", k=26),
        lambda searcher: searcher.search_label(["pear", "plum"], label="plum"),
        lambda searcher: searcher.annotate(["id:1", "id:20"]),
        find_wrong_labels,
    ):
        answer, wanted = map(ask, both)
        assert answer == wanted


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("learner", ["oasis", "cosine"])
def test_explanations(both, learner):
    explanation, wanted = (explain_pair(searcher, "id:3", "id:9", learner, n_pairs=49) for searcher in both)
    assert explanation == wanted
    (answer,) = both[0].search("id:3", k=26, learner=learner)
    (score,) = [row["score"] for row in answer["results"] if row["id"] == 9]
    assert explanation["positive"] + explanation["negative"] == pytest.approx(score, rel=1e-5)


def test_an_image_that_has_changed_is_not_explained(mine):
    (mine / "fruit/pear/1.jpg").write_bytes((mine / "fruit/plum/5.jpg").read_bytes())
    for searcher in opened(mine):
        with pytest.raises(UserError, match="has changed since it was extracted"):
            explain_pair(searcher, "pear/1.jpg", "id:9", "cosine")


@pytest.mark.parametrize("learner", ["oasis", "wsabie"])
def test_what_the_map_is_made_of(both, learner, monkeypatch):
    for searcher in both:
        monkeypatch.setattr(searcher, "default_learner", lambda: learner)
    for made in (overview._look, lambda searcher: overview._projected(searcher, lambda: overview._look(searcher))):
        projected, wanted = map(made, both)
        np.testing.assert_allclose(projected, wanted, atol=1e-5)
    groups, wanted = map(find_duplicates, both)
    assert groups == wanted
    assert len(groups) >= 2


@pytest.mark.parametrize("learner", ["oasis", "wsabie"])
def test_tasks_of_the_human_evaluation(both, learner):
    tasks, wanted = (draw_tasks(searcher, learner, n_queries=2, k=3, n_random=2) for searcher in both)
    assert tasks == wanted
    assert len(tasks) == 2


@pytest.mark.parametrize("kind", ["two-stage", "milvus"])
def test_indexes(mine, both, kind):
    pytest.importorskip("faiss" if kind == "two-stage" else "milvus_lite")
    visterm("features", "--run", "fruit", "--set", f"index.kind={kind}", "--set", "index.n_candidates=20", cwd=mine)
    for searcher in opened(mine):
        for learner in LEARNERS:
            (answer,), (wanted,) = (one.search("id:3", k=2, learner=learner) for one in (searcher, both[0]))
            assert [row["id"] for row in answer["results"]] == [row["id"] for row in wanted["results"]]


def test_a_damaged_segment_is_told(mine, monkeypatch):
    segment = max((mine / "runs/fruit/collection/segments").iterdir())
    data = bytearray((segment / "vectors.npy").read_bytes())
    data[-1] ^= 1
    (segment / "vectors.npy").write_bytes(data)
    monkeypatch.setattr(vectors, "IN_MEMORY", 0)
    with pytest.raises(UserError, match="damaged segment"):
        Searcher(mine / "runs/fruit")
