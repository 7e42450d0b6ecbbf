"""A run on vectors of the network that pip installs: features, search, explanations, and what is refused."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from running import json_of, refused, set_all, visterm

from visterm.features import deep_embedder
from visterm.pipeline import Searcher
from visterm.plugins.explanation.explanation import explain_pair
from visterm.plugins.vectors import efficientnet

if find_spec("onnxruntime") is None or find_spec(efficientnet.PACKAGE) is None:
    pytest.skip("visterm[deep] is not installed", allow_module_level=True)

KEEP = 0.935  # the default: share of the sides that the network sees
SMALL = set_all(oasis={"n_steps": 3000, "pass_steps": 1000}, wsabie={"n_steps": 3000, "pass_steps": 1000})


@pytest.fixture(scope="module")
def finished(tmp_path_factory, write_images):
    """A folder with three classes of eight images, and a run of them with two learners trained."""
    folder = tmp_path_factory.mktemp("deep")
    write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in ("apple", "pear", "plum") for i in range(8)])
    told = visterm("features", "fruit", "--deep", *SMALL, cwd=folder).stderr
    assert "trim to 224 x 224, rgb, preprocess own (mean 127; scale 0.007812); vector vector, 1,280 numbers" in told
    assert "the mean of 7 x 7 cells" in told
    visterm("train", "--learner", "oasis,wsabie", cwd=folder)
    return folder


def test_the_collection_holds_the_vectors_of_the_network(finished):
    searcher = Searcher(finished / "runs/fruit")
    expected = deep_embedder().fit().transform([finished / "fruit" / image.path for image in searcher.images])
    np.testing.assert_allclose(searcher.X, expected, rtol=2**-11, atol=1e-6)  # in float16
    assert json_of("info", cwd=finished)["vectors"] == "of 1,280 numbers in float16, made by EfficientNet-Lite0"
    record = json.loads((finished / "runs/fruit/extractor/record.json").read_text())
    assert record["inputs"]["model"] == efficientnet.SHA256


@pytest.mark.slow
def test_a_second_run_has_nothing_to_do_and_needs_no_cache(mine, monkeypatch):
    """The run has a copy of the model; --deep need not be given again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(mine / "fruit/apple/0.jpg"))
    monkeypatch.setenv("MPLCONFIGDIR", str(mine))  # else the command sets it, for this process
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 0
    assert json_of("features", "fruit", "--deep", cwd=mine)["extracted"] == 0
    answers = json_of("search", mine / "fruit/pear/1.jpg", "-k", 3, cwd=mine)
    assert {label for row in answers[0]["results"] for label in row["labels"]} == {"pear"}
    assert json_of(
        "features", "fruit", "--set", "features.kind=visterms", *set_all(features={"n_visterms": 20}), cwd=mine
    )["extracted"]


def test_another_way_to_fit_photos_embeds_them_again(mine):
    line = refused("train", "--set", "features.deep.resize=crop", cwd=mine)
    assert "the features were made with another configuration (made with features.deep.resize=" in line
    assert json_of("features", "--run", "fruit", "--set", "features.deep.resize=crop", cwd=mine)["extracted"] == 24
    searcher = Searcher(mine / "runs/fruit")
    expected = deep_embedder(resize="crop").fit().transform([mine / "fruit" / image.path for image in searcher.images])
    np.testing.assert_allclose(searcher.X, expected, rtol=2**-11, atol=1e-6)
    assert "resize" in refused("features", "--run", "fruit", "--set", "features.deep.resize=squeeze", cwd=mine)


def test_a_run_of_before_int8_stays_in_float32(mine):
    """Its configuration names no precision of the network, and its record neither."""
    visterm("features", "--run", "fruit", "--set", "features.deep.precision=float32", cwd=mine)
    record = json.loads((mine / "runs/fruit/extractor/record.json").read_text())
    assert record["config"]["features"]["deep"] == {"resize": "trim", "keep": KEEP}
    kept = mine / "runs/fruit/config.yaml"
    kept.write_text(kept.read_text().replace("    precision: float32\n", ""))
    assert "deep:\n    resize: trim\n    keep: 0.935\n" in kept.read_text()
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 0
    assert json_of("features", "fruit", "--set", "features.deep.precision=int8", cwd=mine)["extracted"] == 24


def test_a_run_keeps_how_photos_are_fitted(mine):
    kept = ["--set", "features.deep.resize=stretch", "--set", "features.precision=float32"]
    visterm("features", "--run", "fruit", *kept, cwd=mine)
    record = json.loads((mine / "runs/fruit/extractor/record.json").read_text())
    assert record["inputs"]["preparation"] == {"size": 224, "resize": "stretch", "mean": 127.0, "scale": 1 / 128}
    assert json_of("features", "fruit", "--deep", cwd=mine)["extracted"] == 0
    summary = json_of("features", "fruit", "--set", "features.deep.resize=trim", cwd=mine)
    assert summary["extracted"] == 24


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("learner", ["cosine", "oasis", "wsabie"])
def test_pairs_of_cells_sum_to_the_score(finished, learner):
    searcher = Searcher(finished / "runs/fruit")
    explained = explain_pair(searcher, "pear/0.jpg", "pear/5.jpg", learner, n_pairs=49)
    (answer,) = searcher.search(["id:" + str(explained["query"]["id"])], k=23, learner=learner)
    shown = next(row["score"] for row in answer["results"] if row["path"] == "pear/5.jpg")
    assert explained["parts"] == "cell"
    assert explained["score"] == pytest.approx(shown, rel=1e-5)
    for side in ("query", "result"):
        assert len(explained[side]["heat"]) == len(explained[side]["boxes"]) == 49
        assert sum(explained[side]["heat"]) == pytest.approx(shown, rel=1e-5)
        x, y, width, height = np.array(explained[side]["boxes"]).T
        seen = [x.min() + (x + width).max(), y.min() + (y + height).max()]  # as much is cut on the left as on the right
        assert seen == pytest.approx([explained[side]["width"], explained[side]["height"]], abs=0.1)
        shorter, longer = sorted((explained[side]["width"], explained[side]["height"]))
        assert (width * height).sum() == pytest.approx(KEEP**2 * shorter * (shorter * longer) ** 0.5, rel=1e-2)
    assert explained["positive"] + explained["negative"] == pytest.approx(shown, rel=1e-5)
    carried = sum(pair["contribution"] for pair in explained["regions"])
    assert carried + explained["rest"] == pytest.approx(shown, rel=1e-5)
    assert carried >= 0.5 * shown
    for side in ("query", "result"):
        assert explained[side]["cells"] == explained[side]["boxes"]
        assert explained[side]["cell_heat"] == explained[side]["heat"]
    listed = [[pair[f"{side}_block"] for pair in explained["pairs"]] for side in ("query", "result")]
    assert all(len(set(cells)) == len(cells) for cells in listed)  # no cell fills the list


@pytest.mark.slow
def test_a_large_photo_is_explained_in_its_own_pixels(finished, tmp_path):
    """It is decoded at reduced size for its vector, and the boxes name places in the original."""
    import cv2

    pixels = cv2.imread(str(finished / "fruit/plum/2.jpg"))
    cv2.imwrite(str(tmp_path / "large.jpg"), cv2.resize(pixels, (2000, 1500), interpolation=cv2.INTER_CUBIC))
    explained = json_of("explain", tmp_path / "large.jpg", "plum/2.jpg", "--output", tmp_path / "why.png", cwd=finished)
    assert (explained["query"]["width"], explained["query"]["height"]) == (2000, 1500)
    x, y, width, height = explained["query"]["boxes"][-1]
    wide = 1500 * (4 / 3) ** 0.5  # what the network sees, but for `KEEP`
    assert (x + width, y + height) == pytest.approx((1000 + KEEP * wide / 2, 750 + KEEP * 750), abs=0.1)
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    words = visterm("explain", tmp_path / "large.jpg", "plum/2.jpg", "--pairs", 2, cwd=finished).stdout
    assert "cell in the query" in words
    assert "of 49 cells" in words.splitlines()[0]
    answers = json_of("search", tmp_path / "large.jpg", "-k", 1, "--learner", "cosine", cwd=finished)
    assert answers[0]["results"][0]["path"] == "plum/2.jpg"


def test_photos_of_one_pixel_and_of_too_many(mine):
    """A photo of 200 megapixels is refused by its header."""
    import cv2

    cv2.imwrite(str(mine / "fruit/plum/dot.png"), np.full((1, 1, 3), 9, np.uint8))
    huge = bytearray(cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes())
    frame = huge.index(b"\xff\xc0")
    huge[frame + 5 : frame + 9] = (10_000).to_bytes(2) + (20_000).to_bytes(2)
    (mine / "fruit/plum/huge.jpg").write_bytes(huge)
    result = visterm("features", "fruit", cwd=mine)
    assert "huge.jpg: too large: 20000 x 10000 pixels is over the limit of 100,000,000" in result.stderr
    assert "25 images in runs/fruit/collection" in result.stderr


def test_what_cannot_be_made_is_refused_with_one_line_and_the_run_stays(mine, tmp_path, monkeypatch, write_images):
    write_images(tmp_path / "flat", ["1.jpg"])
    (tmp_path / "cache").write_text("a file")
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        patch.setenv("MPLCONFIGDIR", str(tmp_path))  # else the command sets it, for this process
        line = refused("features", "flat", "--deep", cwd=tmp_path)
        assert line.endswith("name another folder with the environment variable XDG_CACHE_HOME")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        line = refused("features", "flat", "--deep", cwd=tmp_path)
        assert line.startswith("visterm: features.kind=deep needs onnxruntime: ")
        assert " -m pip install 'onnx>=1.17' 'onnxruntime>=1.21' efficientnet-lite0" in line
    assert not list(Path(tmp_path / "runs/flat").glob("extractor*"))
    line = refused("features", "fruit", "--deep", "--vectors", "v.npy", cwd=mine)
    assert line == "visterm: give --deep or --vectors, not both: precomputed vectors need no network"
    line = refused("features", "fruit", "--deep", "--set", "features.onnx.model=m.onnx", cwd=mine)
    assert "onnx.model is used with kind: onnx only" in line


def test_musl_is_refused_with_the_way_out(mine):
    line = refused("train", "--learner", "musl", cwd=mine)
    assert "musl: images are split by single numbers" in line
    assert line.endswith("--set features.kind=visterms --set features.codebook.kind=forest")


def test_a_model_is_inspected(finished, tmp_path, write_model):
    model = finished / "runs/fruit/extractor/files/model.onnx"
    facts = json_of("model", "inspect", model, cwd=finished)
    assert (facts["layer"], facts["n_features"], facts["cells"], facts["size"]) == ("vector", 1280, [7, 7], [224, 224])
    write_model(tmp_path / "free.onnx")
    assert refused("model", "inspect", "free.onnx", cwd=tmp_path).endswith("give --size, for example 224")
    words = visterm("model", "inspect", "free.onnx", "--size", 32, cwd=tmp_path).stdout
    assert "suggested:  flat, the last pooled tensor" in words
    assert "explained:  no: the vector is not the mean over a map" in words
    assert "--set features.onnx.model=free.onnx" in words
    taken = visterm("model", "inspect", "free.onnx", "--size", 32, "--layer", "flat", cwd=tmp_path).stdout
    assert "explained:  yes, by 8 x 8 cells" in taken
    assert "No such file" in refused("model", "inspect", "none.onnx", cwd=tmp_path)
