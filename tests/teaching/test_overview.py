"""The overview of a collection: map, groups that look alike, labels to check."""

import re
import shutil
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import skimage.data
from running import copy_run, json_of, visterm

from visterm.learners import WSABIE
from visterm.pipeline import Searcher, find_duplicates
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run
from visterm.teaching import overview as module
from visterm.teaching.overview import groups_of, make_overview, read_overview


@pytest.fixture(scope="module")
def odd(finished, tmp_path_factory):
    """The run with a copy of an image, and a plum among the pears."""
    folder = copy_run(finished, tmp_path_factory.mktemp("overview"))
    shutil.copy(folder / "fruit/pear/1.jpg", folder / "fruit/pear/copy.jpg")
    (folder / "fruit/plum/2.jpg").rename(folder / "fruit/pear/plum.jpg")
    visterm("features", "fruit", cwd=folder)
    return Searcher(folder / "runs" / "fruit")


@pytest.fixture(scope="module")
def overview(odd, umap):
    return make_overview(odd)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_map_and_labels_lie_together(odd, overview, monkeypatch):
    assert overview.ids.tolist() == [image.id for image in odd.images]
    assert overview.points.shape == (len(odd.images), 2)
    assert overview.points.min() >= 0
    assert overview.points.max() <= 1
    monkeypatch.setattr(module, "_umap", None)  # it is read, not made again
    np.testing.assert_array_equal(make_overview(odd).points, overview.points)
    monkeypatch.undo()
    shutil.rmtree(module.overview_folder(odd.run))
    np.testing.assert_array_equal(make_overview(odd).points, overview.points)


def test_each_part_is_kept_as_soon_as_it_is_made(finished, tmp_path, monkeypatch):
    searcher = Searcher(copy_run(finished, tmp_path) / "runs/fruit")
    seen, labels_there, plain = [], [], module._look

    def look(phase, share):
        kept = read_overview(searcher.run)
        parts = kept and [name for name in ("check", "alike", "points") if getattr(kept, name) is not None]
        seen.append((parts, kept and kept.record["created"]))

    def projected(searcher):
        labels_there.append(read_overview(searcher.run) is not None)
        return plain(searcher)

    monkeypatch.setattr(module, "_look", projected)
    monkeypatch.setattr(module, "_laid_out", lambda *rest: np.zeros((len(searcher.images), 2), np.float32))
    make_overview(searcher, tell=look)
    assert labels_there == [True]  # made once, for the pairs that look alike
    assert [parts for parts, _ in seen] == [*[None] * 3, ["check"], ["check", "alike"], ["check", "alike", "points"]]
    assert len({created for _, created in seen[3:]}) == 3  # a reader tells them apart
    seen.clear()
    monkeypatch.setattr(module, "is_up_to_date", lambda folder, record: False)
    make_overview(searcher, tell=look)  # those of the overview before stay until then
    assert all(parts == ["check", "alike", "points"] for parts, _ in seen)


@pytest.mark.slow
def test_copies_are_found(odd, overview):
    names = {image.id: image.path for image in odd.images}
    kept = groups_of(odd, overview.alike)
    groups = [{names[number] for number in group["ids"]} for group in kept]
    assert find_duplicates(odd) == kept
    same = [names for names, group in zip(groups, kept, strict=True) if group["same"]]
    assert same == [{"pear/1.jpg", "pear/copy.jpg"}]
    assert not any({"pear/1.jpg", "pear/copy.jpg"} <= names for names in groups[1:])  # one stands for both
    assert not any(len({name.split("/")[0] for name in group - {"pear/plum.jpg"}}) > 1 for group in groups)


def test_the_command_lists_duplicates_that_are_still_there(odd, monkeypatch):
    monkeypatch.setattr(module, "_umap", None)
    folder = odd.root.parent

    def with_copy():
        groups = json_of("duplicates", cwd=folder)["groups"]
        return [{image["path"] for image in group["images"]} & {"pear/1.jpg", "pear/copy.jpg"} for group in groups]

    assert {"pear/1.jpg", "pear/copy.jpg"} in with_copy()
    assert re.search(r"^  id:\d+  pear/copy.jpg$", visterm("duplicates", cwd=folder).stdout, re.MULTILINE)
    kept = (odd.root / "pear/copy.jpg").rename(folder / "copy.jpg")
    assert {"pear/1.jpg", "pear/copy.jpg"} not in with_copy()
    kept.rename(odd.root / "pear/copy.jpg")


def test_pictures_whose_directory_is_gone_are_not_compared_and_that_is_said(finished, tmp_path, monkeypatch):
    """Their copies were listed, and kept for the page, as images that look alike."""
    folder = copy_run(finished, tmp_path)
    visterm("features", "fruit", cwd=folder)
    monkeypatch.setattr(module, "_umap", lambda *given: given[3])
    line = f"{folder / 'fruit'} is gone: pictures cannot be compared, and their copies only look alike; 'visterm "
    searcher = Searcher(folder / "runs/fruit")
    (folder / "fruit").rename(folder / "away")
    said = visterm("duplicates", cwd=folder).stderr
    assert f"warning: {line}features IMAGES --run fruit' follows images that were moved\n" in said
    with pytest.raises(UserError, match=f"^{re.escape(line)}"):
        make_overview(searcher)
    kept = read_overview(searcher.run)
    assert (kept.alike, len(kept.points), type(kept.check)) == (None, len(searcher.images), list)
    (folder / "away").rename(folder / "fruit")
    assert make_overview(searcher).alike is not None
    assert "is gone" not in visterm("duplicates", cwd=folder).stderr


def test_the_command_lists_another_shot_of_a_scene(finished, tmp_path, monkeypatch):
    folder = copy_run(finished, tmp_path)
    coffee = skimage.data.coffee()
    white = np.full((120, 160, 3), 255, np.uint8)
    for name, pixels in (("coffee", coffee), ("part", coffee[60:340, 110:520]), ("white", white), ("blank", white)):
        cv2.imwrite(str(folder / f"fruit/pear/{name}.png"), pixels)
    visterm("features", "fruit", cwd=folder)
    monkeypatch.setattr(module, "alike_limit", lambda config: -1.0)  # every image with its nearest ones
    groups = json_of("duplicates", cwd=folder)["groups"]
    assert groups[0]["images"][0].keys() == {"id", "path", "split"}
    (scene,) = [group for group in groups if group["degree"] == "scene"]
    assert ([image["path"] for image in scene["images"]], scene["same"]) == (
        ["pear/coffee.png", "pear/part.png"],
        False,
    )
    listed = visterm("duplicates", cwd=folder)
    assert re.search(
        r"^2 pictures of the same scene, 0\.\d{4}\n  id:\d+  pear/coffee.png$", listed.stdout, re.MULTILINE
    )
    assert "0 pictures and 1 scene more than once" in listed.stderr
    assert re.search(
        r"^2 images of one colour\n  id:\d+  pear/blank.png\n  id:\d+  pear/white.png$", listed.stdout, re.M
    )
    assert "2 photos are blank, and in no group" in listed.stderr
    blank = [image["path"] for image in json_of("duplicates", cwd=folder)["blank"]]
    assert blank == ["pear/blank.png", "pear/white.png"]  # equal files


@pytest.mark.slow
def test_an_image_among_others_is_to_be_checked(odd, overview):
    wrong = next(image.id for image in odd.images if image.path == "pear/plum.jpg")
    [entry] = [entry for entry in overview.check if entry["id"] == wrong]
    assert (entry["label"], entry["suggested"]) == ("pear", "plum")
    assert entry == overview.check[0]


def test_the_learned_neighbours_are_those_of_the_learner(odd):
    n = len(odd.images)
    learned = module._projected(odd, lambda: module._look(odd))
    near = module._nearest(learned, 5)[0]
    exact = odd.index("oasis").search(odd.X, k=5, exclude=np.arange(n)).indices
    shared = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(near.tolist(), exact.tolist(), strict=True)])
    assert shared > 0.5  # by chance 0.16


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_map_of_a_share_weighs_look_and_learned_as_the_similarity_does(odd, monkeypatch, share):
    """Also of a learner whose images lie in a space of their own; nothing as wide as the vectors is held of all."""
    monkeypatch.setattr(odd, "default_learner", lambda: "wsabie")
    monkeypatch.setattr(odd, "share", lambda name, learned_weight=None: share)
    look = module._unit_rows(module._look(odd))
    learned = module._projected(odd, lambda: module._look(odd))
    blend = odd.blend("wsabie")
    assert blend.learned_weight == share
    assert learned.shape[1] == look.shape[1] + odd.learner("wsabie").member_sizes_[0]
    sides = blend.transform_query(odd.X), blend.transform(odd.X).toarray()
    lengths = np.sqrt(np.einsum("ij,ij->i", *sides))
    scores = sides[0] @ sides[1].T / lengths[:, None] / lengths
    np.testing.assert_allclose(learned @ learned.T, scores, atol=0.15)  # the look has fewer directions
    others = [
        np.corrcoef((part @ part.T).ravel(), scores.ravel())[0, 1] for part in (look, learned[:, look.shape[1] :])
    ]
    assert np.corrcoef((learned @ learned.T).ravel(), scores.ravel())[0, 1] > max(others) - 1e-3


def test_spaces_limits_and_nearest_against_numpy():
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(4), 15)
    X = (rng.normal(size=(4, 8))[y] + rng.normal(size=(60, 8))).astype(np.float32)
    learner = WSABIE(n_components=8, whiten=True, n_steps=2000, random_state=0).fit(X, y)
    searcher = SimpleNamespace(X=X, config=SimpleNamespace(seed=0))
    searcher.default_learner = lambda: "wsabie"
    searcher.learner = searcher.blend = lambda name: learner
    learned = module._projected(searcher, lambda: module._look(searcher))
    np.testing.assert_allclose(learned, module._unit_rows(learner.transform(X)), atol=1e-6)
    settings = {"features.kind=deep": "deep", "features.cells=[3]": "spatial", "features.n_visterms=100": "visterms"}
    for setting, kind in settings.items():
        assert module.alike_limit(load_config(None, [setting])) == module.ALIKE[kind]
    for others in (["features.kind=onnx", "features.onnx.model=x.onnx"], ["collection.vectors.file=x.npy"]):
        assert module.alike_limit(load_config(None, others)) == module.ALIKE_OTHER
    vectors = module._unit_rows(np.random.default_rng(0).normal(size=(1100, 6)))
    indices, distances = module._nearest(vectors, 7)
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -2)
    np.testing.assert_array_equal(indices[::97], np.argsort(-scores[::97], axis=1)[:, :7])
    np.testing.assert_allclose(distances[:, 0], 1 - scores.max(axis=1), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_images_are_laid_out_without_umap(n):
    vectors = module._unit_rows(np.random.default_rng(1).normal(size=(n, 4)))
    points = module._laid_out(vectors, *module._nearest(vectors, 3), seed=0)
    assert points.shape == (n, 2)
    assert np.isfinite(points).all()


def test_many_images_are_put_between_their_nearest_ones(monkeypatch):
    monkeypatch.setattr(module, "MAX_LAID_OUT", 20)
    monkeypatch.setattr(module, "_umap", lambda vectors, neighbors, distances, start, seed: vectors[:, :2])
    vectors = module._unit_rows(np.random.default_rng(2).normal(size=(60, 2)))
    points = module._laid_out(vectors, *module._nearest(vectors, 5), seed=0)
    near = module._nearest(vectors, 1)[0].ravel()
    assert np.linalg.norm(points - points[near], axis=1).mean() < 0.2


@pytest.mark.slow
def test_a_damaged_overview_is_none(odd, overview, tmp_path):
    run = Run(copy_run(odd.run.folder, tmp_path / "odd"))
    # The latter two are of earlier versions.
    for damaged in ("{", "[]", '{"same": [], "scene": [], "alike": []}'):
        (module.overview_folder(run) / "alike.json").write_text(damaged)
        assert read_overview(run) is None
