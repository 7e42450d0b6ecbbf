"""Models whose weights lie in files beside them, as PyTorch's exporter writes them."""

import itertools
import json
import os
import shutil

import numpy as np
import pytest

from visterm.features import OnnxEmbedder
from visterm.plugins.vectors.onnx_files import read_model

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, shape, dtype=np.uint8) for shape in ((32, 32, 3), (50, 90, 3), (33, 20, 3))]


def split(source, file, location="weights.bin"):
    """Write a model with all its weights in another file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / location).parent.mkdir(exist_ok=True)
    (file.parent / location).unlink(missing_ok=True)  # onnx.save appends
    onnx.save(onnx.load(source), file, save_as_external_data=True, location=location, size_threshold=0)
    return file


def pointing(file, **entries):
    """Change what a model says about the file of its largest weights."""
    model = onnx.load(file, load_external_data=False)
    tensor = max(model.graph.initializer, key=lambda tensor: np.prod(tensor.dims))
    for entry in tensor.external_data:
        entry.value = str(entries.get(entry.key, entry.value))
    file.write_bytes(model.SerializeToString())
    return file


@pytest.fixture
def whole(tmp_path, write_model):
    write_model(tmp_path / "whole.onnx", 32)
    return tmp_path / "whole.onnx"


@pytest.fixture
def model(tmp_path, whole):
    return split(whole, tmp_path / "models/m.onnx")


@pytest.mark.parametrize("location", ["weights.bin", "parts/weights.bin", "m.onnx.data"])
@pytest.mark.parametrize("layer", [None, "flat"])
def test_vectors_are_those_of_the_model_in_one_file(tmp_path, write_model, whole, monkeypatch, location, layer):
    model = split(whole, tmp_path / "models/m.onnx", location)
    write_model(tmp_path / "other.onnx", 32, seed=1)
    split(tmp_path / "other.onnx", tmp_path / "here/o.onnx", location)  # a stranger's weights of the same name
    monkeypatch.chdir(tmp_path / "here")
    expected = OnnxEmbedder(whole, layer=layer).fit_transform(IMAGES)
    embedder = OnnxEmbedder(model, layer=layer).fit()
    np.testing.assert_array_equal(embedder.transform(IMAGES), expected)
    np.testing.assert_array_equal(OnnxEmbedder("../models/m.onnx", layer=layer).fit_transform(IMAGES), expected)

    embedder.save(tmp_path / "saved")
    shutil.rmtree(model.parent)
    (tmp_path / "saved").rename(tmp_path / "moved")
    assert os.path.getsize(tmp_path / "moved" / location) >= 4 * (8 * 48 + 8 + 16 * 8)
    np.testing.assert_array_equal(OnnxEmbedder.load(tmp_path / "moved").transform(IMAGES), expected)
    assert onnx.load(tmp_path / "moved/model.onnx").graph.initializer  # whole for any other program


def test_saving_that_is_interrupted_leaves_the_old_embedder_or_the_new_one(tmp_path, write_model, model, interrupted):
    """The model was overwritten first, then its weights, then the record."""
    write_model(tmp_path / "other.onnx", 32, seed=1)
    embedders = OnnxEmbedder(model).fit(), OnnxEmbedder(split(tmp_path / "other.onnx", tmp_path / "two/m.onnx")).fit()
    expected = [embedder.transform(IMAGES) for embedder in embedders]
    for second in (1, 0):  # another one, and the same again
        for steps in itertools.count(1):
            folder = tmp_path / f"{second} {steps}"
            embedders[0].save(folder)
            stopped = interrupted(steps, embedders[second].save, folder)
            loaded = OnnxEmbedder.load(folder)
            np.testing.assert_array_equal(loaded.transform(IMAGES), expected[loaded.sha256_ == embedders[1].sha256_])
            embedders[second].save(folder)
            np.testing.assert_array_equal(OnnxEmbedder.load(folder).transform(IMAGES), expected[second])
            assert sorted(path.name for path in folder.iterdir()) == ["embedder.json", "model.onnx", "weights.bin"]
            if not stopped:
                break


def test_an_embedder_is_saved_where_its_model_lies(tmp_path, model):
    """With weights in a file of their own, that file was the same one."""
    shutil.copy(model, model.with_name("model.onnx"))
    expected = OnnxEmbedder(model.with_name("model.onnx")).fit_transform(IMAGES)
    for embedder in (OnnxEmbedder(model.with_name("model.onnx")).fit(), OnnxEmbedder(model).fit()):
        embedder.save(model.parent)
        OnnxEmbedder.load(model.parent).save(model.parent)
        np.testing.assert_array_equal(OnnxEmbedder.load(model.parent).transform(IMAGES), expected)


def test_explanations_have_the_axes_that_lie_in_the_file(tmp_path, whole):
    model = onnx.load(whole)
    model.opset_import[0].version = 18
    model.graph.node[2].CopyFrom(onnx.helper.make_node("ReduceMean", ["positive", "axes"], ["pooled"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "axes"))
    onnx.save(model, tmp_path / "axes.onnx")
    embedder = OnnxEmbedder(split(tmp_path / "axes.onnx", tmp_path / "models/m.onnx"), layer="flat").fit()
    assert embedder.describe()["suggested_layer"] == "flat"
    _, parts = embedder.block_vectors(IMAGES[0])
    np.testing.assert_allclose(parts.sum(axis=0), embedder.transform(IMAGES[:1])[0], atol=1e-6)


def test_other_weights_are_another_model(tmp_path, write_model, model):
    embedder = OnnxEmbedder(model).fit()
    embedder.save(tmp_path / "saved")
    graph = model.read_bytes()
    write_model(tmp_path / "other.onnx", 32, seed=1)
    split(tmp_path / "other.onnx", model)
    assert model.read_bytes() == graph  # the file alone does not tell
    assert read_model(model).sha256() != embedder.sha256_
    expected = OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES)
    for name in ("other", "saved"):
        with pytest.raises(ValueError, match="the model has changed since fit"):
            embedder.save(tmp_path / name)
    np.testing.assert_array_equal(OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES), expected)
    assert len(list((tmp_path / "saved").iterdir())) == 3
    shutil.copy(model.with_name("weights.bin"), tmp_path / "saved/weights.bin")
    with pytest.raises(ValueError, match="the model has changed since fit"):
        OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES)


def refusal(model):
    with pytest.raises(ValueError) as error:
        OnnxEmbedder(model).fit()
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{model}: ")
    return message


def test_weights_that_are_not_there(model):
    weights = model.with_name("weights.bin")
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    assert "its weights, weights.bin, are too short: " in refusal(model)
    weights.write_bytes(b"")
    assert "are too short: 0 bytes" in refusal(model)
    weights.unlink()
    assert f"its weights are missing: put the file weights.bin into {model.parent}" in refusal(model)
    weights.mkdir()
    assert "weights.bin in" in refusal(model)
    assert "is no file" in refusal(model)


def test_weights_of_another_type(model):
    assert "are float of 8 x 3 x 4 x 4, 1,536 bytes, and weights.bin has 768: they are of another" in refusal(
        pointing(model, length=768)
    )
    for entries in ({"length": "many"}, {"offset": -4}, {"offset": "", "length": -1536}):
        assert refusal(pointing(model, **{"offset": 0, "length": 1536} | entries))
    assert "are too short" in refusal(pointing(model, offset=1 << 70, length=1536))


@pytest.mark.parametrize(
    "location", ["../weights.bin", "a/../../weights.bin", "/etc/hostname", "C:\\w.bin", "..\\w.bin"]
)
def test_weights_outside_of_the_folder_are_refused(tmp_path, model, location):
    shutil.copy(model.with_name("weights.bin"), tmp_path / "weights.bin")
    assert "outside of its folder" in refusal(pointing(model, location=location))
    assert "refused" in refusal(model)


@pytest.mark.parametrize("location", ["", ".", "model.onnx", "embedder.json"])
def test_names_that_weights_cannot_have(model, location):
    assert "as the file of its weights, which cannot be" in refusal(pointing(model, location=location))


def test_links(tmp_path, whole, model):
    expected = OnnxEmbedder(whole).fit_transform(IMAGES)
    hub = tmp_path / "hub"  # as a cache has it: links into one folder of files that are named by their content
    (hub / "blobs").mkdir(parents=True)
    (hub / "snapshot").mkdir()
    for name, blob in (("m.onnx", "1a2b"), ("weights.bin", "3c4d")):
        shutil.copy(model.with_name(name), hub / "blobs" / blob)
        (hub / "snapshot" / name).symlink_to(f"../blobs/{blob}")
    embedder = OnnxEmbedder(hub / "snapshot/m.onnx").fit()
    np.testing.assert_array_equal(embedder.transform(IMAGES), expected)
    assert embedder.sha256_ == OnnxEmbedder(model).fit().sha256_
    embedder.save(tmp_path / "saved")
    np.testing.assert_array_equal(OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES), expected)

    (tmp_path / "link.onnx").symlink_to(model)  # its weights lie beside the model that it leads to
    np.testing.assert_array_equal(OnnxEmbedder(tmp_path / "link.onnx").fit_transform(IMAGES), expected)

    model.with_name("weights.bin").rename(tmp_path / "elsewhere.bin")
    model.with_name("weights.bin").symlink_to(tmp_path / "elsewhere.bin")
    message = refusal(model)
    assert f"outside of its folder (weights.bin -> {tmp_path}/elsewhere.bin): refused; copy them beside it" in message


def test_an_embedder_that_was_saved_without_its_weights(tmp_path, model):
    OnnxEmbedder(model).fit().save(tmp_path / "saved")
    (tmp_path / "saved/weights.bin").unlink()
    record = json.loads((tmp_path / "saved/embedder.json").read_text())
    del record["fitted"]["resizing"]
    (tmp_path / "saved/embedder.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="holds no readable embedder: an earlier version left its weights out"):
        OnnxEmbedder.load(tmp_path / "saved")


def test_packages_that_are_missing_or_old(model, whole, monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.20.1")  # which ignores the folder
    assert "need onnxruntime 1.21 or later, not 1.20.1" in refusal(model)
    OnnxEmbedder(whole).fit()
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r"m\.onnx: models with weights in another file need onnx: .* -m pip install"):
        OnnxEmbedder(model).fit()
    OnnxEmbedder(whole).fit()
