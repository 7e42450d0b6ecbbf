"""Vectors of ONNX models: those of the model itself, and the models and settings that are refused."""

import copy
import hashlib
import json
import pickle
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from sklearn.base import clone

from visterm.features import ImageError, OnnxEmbedder, read_picture
from visterm.plugins.vectors import onnx_embedder, onnx_files

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, shape, dtype=np.uint8) for shape in ((32, 32, 3), (50, 90, 3), (33, 20, 3), (40, 40))]


@pytest.fixture(scope="module")
def models(tmp_path_factory, write_model):
    """A folder with fixed.onnx (32 x 32), free.onnx and the reference of both in NumPy."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "free.onnx")
    return folder, write_model(folder / "fixed.onnx", 32)


@pytest.fixture
def fixed(models):
    return models[0] / "fixed.onnx"


@pytest.fixture
def free(models):
    return models[0] / "free.onnx"


@pytest.fixture
def tensors(models):
    return models[1]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def prepared(pixels, side):
    """The middle square of an image in the model's size: (1, 3, side, side) of numbers from 0 to 1."""
    pixels = pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
    short = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - short) // 2, (pixels.shape[1] - short) // 2
    square = np.ascontiguousarray(pixels[top : top + short, left : left + short])
    small = cv2.resize(square, (side, side), interpolation=cv2.INTER_AREA if short > side else cv2.INTER_LINEAR_EXACT)
    return (small.astype(np.float32) / 255).transpose(2, 0, 1)[None]


def changed(source, file, change):
    """Write a changed copy of a model."""
    model = onnx.load(source)
    change(model.graph)
    onnx.save(model, file)
    return file


def write_copy(file):
    """Write a model that gives its input back."""
    from onnx import TensorProto, helper

    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("image", "flat")]
    graph = helper.make_graph([helper.make_node("Flatten", ["image"], ["flat"])], "copy", shapes[:1], shapes[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    return file


def test_vectors_are_those_of_the_model(fixed, tensors):
    embedder = OnnxEmbedder(fixed, unit=False).fit()
    assert (embedder.size_, embedder.n_features_out_) == ((32, 32), 16)
    expected = np.concatenate([tensors(prepared(pixels, 32))["embedding"] for pixels in IMAGES])
    X = embedder.transform(IMAGES)
    assert X.dtype == np.float32
    np.testing.assert_allclose(X, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(OnnxEmbedder(fixed).fit_transform(IMAGES), unit(expected), rtol=1e-4, atol=1e-5)
    for i, pixels in enumerate(IMAGES):  # the same bytes alone and among others
        np.testing.assert_array_equal(embedder.transform([pixels])[0], X[i])
    mean, scale = [120.0, 110.0, 100.0], [0.01, 0.02, 0.03]
    rgb = (IMAGES[0].astype(np.float32) - np.float32(mean)) * np.float32(scale)
    for channels, order in (("rgb", [0, 1, 2]), ("bgr", [2, 1, 0])):
        expected = tensors(rgb[:, :, order].transpose(2, 0, 1)[None])["embedding"]
        embedder = OnnxEmbedder(fixed, mean=mean, scale=scale, channels=channels, unit=False).fit()
        np.testing.assert_allclose(embedder.transform(IMAGES[:1]), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layer", ["convolved", "positive", "pooled", "flat", "embedding"])
def test_every_layer_can_be_the_vector(fixed, tensors, layer):
    reference = tensors(prepared(IMAGES[0], 32))
    expected = reference.get(layer, reference["flat"])
    expected = expected.mean(axis=(2, 3)) if expected.ndim == 4 else expected  # maps are averaged
    X = OnnxEmbedder(fixed, layer=layer, unit=False).fit().transform(IMAGES[:1])
    np.testing.assert_allclose(X, expected, rtol=1e-4, atol=1e-5)


def test_the_rules_of_size(tmp_path):
    """The left third of the image is black, the middle red and the right white; the model gives its input back."""
    model = write_copy(tmp_path / "copy.onnx")
    pixels = np.zeros((30, 90, 3), np.uint8)
    pixels[:, 30:60] = 255, 0, 0
    pixels[:, 60:] = 255

    def seen(size=(8, 8), **settings):
        embedder = OnnxEmbedder(model, size=size, scale=1.0, unit=False, **settings).fit()
        return embedder.transform([pixels]).reshape(3, *size)

    red = np.array([255, 0, 0])[:, None, None]
    assert (seen() == red).all()
    assert (seen(keep=0.5) == red).all()
    stretched = seen(resize="stretch")
    assert (stretched[:, :, 0] == 0).all()
    assert (stretched[:, :, 7] == 255).all()
    trimmed = seen(resize="trim")  # 52 of 90 columns: 11 black, 30 red, 11 white
    assert (trimmed[:, :, 0] == 0).all()
    assert (trimmed[:, :, 2:6] == red).all()
    assert (trimmed[:, :, 7] == 255).all()
    assert (seen(resize="trim", keep=0.5) == red).all()
    padded = seen(resize="pad", mean=7.0)
    assert (padded[:, :2] == 0).all()  # the mean colour
    assert (padded[:, 6:] == 0).all()
    assert (padded[:, 3, 0] == -7).all()
    assert (seen(size=[4, 12])[:, :, 11] == 255).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("resize", "width"), [("stretch", 640), ("stretch", 3000), ("trim", 640)])
def test_bands_of_panoramas_and_strips_keep_their_mean(tmp_path, resize, width, turned):
    """One side shrinks and the other grows: OpenCV's INTER_AREA then interpolates between two pixels."""
    columns = np.where(np.random.default_rng(0).random(width) < 0.5, 255, 0).astype(np.uint8)
    pixels = np.tile(columns[None, :, None], (8, 1, 3))
    embedder = OnnxEmbedder(write_copy(tmp_path / "copy.onnx"), size=16, scale=1.0, resize=resize, unit=False).fit()
    pixels = pixels.transpose(1, 0, 2) if turned else pixels
    seen = embedder.transform([pixels]).reshape(3, 16, 16)
    kept = width if resize == "stretch" else round((8 * width) ** 0.5)
    start = (width - kept) // 2
    fine = np.repeat(columns[start : start + kept].astype(float), 16).reshape(16, kept)  # sixteenths of columns
    np.testing.assert_allclose(seen.mean(axis=(0, 2 if turned else 1)), fine.mean(axis=1), atol=1)
    embedder.save(tmp_path / "saved")
    np.testing.assert_array_equal(OnnxEmbedder.load(tmp_path / "saved").transform([pixels])[0], seen.ravel())
    record = json.loads((tmp_path / "saved/embedder.json").read_text())
    del record["fitted"]["resizing"]  # as runs made before have it: their queries stay like their gallery
    (tmp_path / "saved/embedder.json").write_text(json.dumps(record))
    before = OnnxEmbedder.load(tmp_path / "saved").transform([pixels]).reshape(3, 16, 16)
    assert np.abs(before - seen).max() > 20


def test_batches(fixed):
    one = OnnxEmbedder(fixed).fit()
    X = one.transform(IMAGES)
    np.testing.assert_allclose(OnnxEmbedder(fixed, batch=3).fit().transform(iter(IMAGES)), X, atol=1e-5)
    np.testing.assert_array_equal(OnnxEmbedder(fixed, n_jobs=2).fit().transform(IMAGES), X)
    assert one.transform([]).shape == (0, 16)


@pytest.mark.parametrize("n", [1, 3])
def test_a_model_with_a_fixed_batch_size(tmp_path, write_model, fixed, n):
    write_model(tmp_path / "m.onnx", 32, n=n)
    X = OnnxEmbedder(fixed).fit().transform(IMAGES)
    for batch in (1, 2):
        np.testing.assert_allclose(OnnxEmbedder(tmp_path / "m.onnx", batch=batch).fit().transform(IMAGES), X, atol=1e-5)


def test_a_batch_that_the_model_does_not_take(tmp_path, free):
    def one_at_a_time(graph):
        graph.node[3].CopyFrom(onnx.helper.make_node("Reshape", ["pooled", "shape"], ["flat"]))
        graph.initializer.append(onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [1, 8]))

    file = changed(free, tmp_path / "m.onnx", one_at_a_time)
    assert OnnxEmbedder(file, size=32).fit().n_features_out_ == 16
    assert "on 4 images at once (batch: 1 may help)" in refusal(file, size=32, batch=4)


def test_paths_are_read(tmp_path, fixed, write_images):
    write_images(tmp_path, ["pear/1.jpg"])
    embedder = OnnxEmbedder(fixed).fit()
    assert embedder.transform([tmp_path / "pear/1.jpg"]).shape == (1, 16)
    with pytest.raises(ImageError, match="cannot be read"):
        embedder.transform([tmp_path / "none.jpg"])
    with pytest.raises(ValueError, match="not one path"):
        embedder.transform(str(tmp_path / "pear/1.jpg"))


def test_clone_pickle_save_and_load(tmp_path, write_model):
    write_model(tmp_path / "m.onnx")
    embedder = OnnxEmbedder(tmp_path / "m.onnx", size=16, mean=(1.0, 2.0, 3.0), layer="flat", n_jobs=2).fit()
    expected = embedder.transform(IMAGES)
    assert clone(embedder).fit().get_params() == embedder.get_params()
    np.testing.assert_array_equal(copy.deepcopy(embedder).transform(IMAGES), expected)
    embedder.save(tmp_path / "saved")
    assert (tmp_path / "saved/model.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    write_model(tmp_path / "m.onnx", seed=1)
    with pytest.raises(ValueError, match=r"m\.onnx: the model has changed since fit"):
        embedder.save(tmp_path / "other")
    (tmp_path / "m.onnx").unlink()
    loaded = OnnxEmbedder.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.transform(IMAGES), expected)
    assert loaded.sha256_ == embedder.sha256_
    write_model(tmp_path / "saved/model.onnx", seed=1)
    with pytest.raises(ValueError, match="the model has changed since fit"):
        OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES)
    (tmp_path / "saved/embedder.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99, this version reads 1"):
        OnnxEmbedder.load(tmp_path / "saved")


def test_an_embedder_saved_by_version_0_1(tmp_path, write_model):
    """Version 0.1 ran models with OpenCV; its folders work, and its vectors agree."""
    write_model(tmp_path / "model.onnx")
    settings = {
        "batch": 1, "channels": "rgb", "keep": 0.9, "layer": "flat", "max_pixels": 100000000, "mean": 0.0,
        "resize": "stretch", "scale": 1 / 255, "size": 32, "unit": True,
    }  # fmt: skip
    sha256 = hashlib.sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()
    fitted = {"size": [32, 32], "n_features_out": 8, "sha256": sha256}
    (tmp_path / "embedder.json").write_text(json.dumps({"format": 1, "settings": settings, "fitted": fitted}))
    network = cv2.dnn.readNetFromONNX(str(tmp_path / "model.onnx"))
    network.setInput(prepared(IMAGES[0], 32))
    X = OnnxEmbedder.load(tmp_path).transform(IMAGES[:1])
    np.testing.assert_allclose(X, unit(network.forward("flat")), atol=1e-6)


def test_threads_share_an_embedder(tmp_path, fixed):
    embedder = OnnxEmbedder(fixed).fit()
    images = [RNG.integers(0, 256, (40, 40, 3), dtype=np.uint8) for _ in range(20)]
    expected = embedder.transform(images)
    for shared in (embedder, pickle.loads(pickle.dumps(embedder))):  # the model of the second is not yet open
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(lambda pixels, shared=shared: shared.transform([pixels])[0], images))
        np.testing.assert_array_equal(rows, expected)


def refusal(*args, **settings):
    with pytest.raises(ValueError) as error:
        OnnxEmbedder(*args, **settings).fit()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models_that_cannot_be_read_whichever_byte_is_wrong(tmp_path, fixed, capfd):
    data = fixed.read_bytes()
    bad = tmp_path / "bad.onnx"
    assert "No such file" in refusal(tmp_path / "none.onnx")
    for content in (b"", b"hello world", RNG.bytes(500), data[: len(data) // 2], data[:-3], data[10:]):
        bad.write_bytes(content)
        assert refusal(bad).startswith(f"{bad}: not an ONNX model, or damaged")
    sound, bad = fixed.read_bytes(), tmp_path / "bad.onnx"
    for place in (6, 12, 38, 52, 67, 79, 95, 176, 211):
        data = bytearray(sound)
        data[place] ^= 0xA5
        bad.write_bytes(data)
        assert refusal(bad).startswith(f"{bad}: "), place
    assert capfd.readouterr() == ("", "")


def test_settings_that_do_not_fit(fixed, free):
    assert "takes images of 32 x 32, not 24 x 32 (height x width)" in refusal(fixed, size=[24, 32])
    assert "takes images of any size: set size" in refusal(free)
    message = refusal(fixed, layer="pooledd")
    assert (
        "no layer 'pooledd' (did you mean pooled or convolved?); its last layers are convolved, positive, pooled, flat"
        in message
    )
    for settings in ({"resize": "squeeze"}, {"channels": "grey"}, {"keep": 0}, {"batch": 0}, {"mean": [1, 2]}):
        assert str(next(iter(settings))) in refusal(fixed, **settings)
    assert "size must be" in refusal(free, size=[1, 2, 3])
    assert "size must be" in refusal(free, size=0)
    assert "not finite; check mean and scale" in refusal(fixed, scale=1e38)


def test_models_of_other_kinds(tmp_path, fixed):
    from onnx import TensorProto, helper

    def other(change):
        return changed(fixed, tmp_path / "other.onnx", change)

    two = other(lambda g: g.input.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1])))
    assert OnnxEmbedder(two).fit().n_features_out_ == 16  # no output needs the second
    outputs = other(lambda g: g.output.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["n", 8])))
    assert "set layer to one of embedding, flat" in refusal(outputs)
    assert OnnxEmbedder(outputs, layer="flat").fit().n_features_out_ == 8
    grey = other(lambda g: g.input[0].type.tensor_type.shape.dim.__getitem__(1).__setattr__("dim_value", 1))
    assert "takes tensor(float) of ? x 1 x 32 x 32, not tensor(float) of images x 3 x height x width" in refusal(grey)
    tokens = other(
        lambda g: (
            g.node.append(helper.make_node("Unsqueeze", ["embedding", "axis"], ["tokens"])),
            g.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [1], [2])),
        )
    )
    message = refusal(tokens, layer="tokens")
    assert "tokens gives 16 tokens of 1 numbers: set pool to cls or mean or mean-patches" in message
    unknown = other(lambda g: g.node[1].__setattr__("op_type", "Teleport"))
    assert "ONNX Runtime cannot run this model" in refusal(unknown)

    def without_input(graph):
        graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 3, 32, 32), np.float32), "image"))
        del graph.input[:]

    assert "has 0 inputs (none); an image model has one, the image" in refusal(other(without_input))
    flat = other(lambda g: [g.input[0].type.tensor_type.shape.dim.pop() for _ in range(2)])
    assert refusal(flat).startswith(f"{flat}: ")
    model = onnx.load(fixed)
    model.opset_import[0].version = 999
    onnx.save(model, tmp_path / "new.onnx")
    assert "opset 999 is newer than this ONNX Runtime" in refusal(tmp_path / "new.onnx")
    model.opset_import[0].version, model.ir_version = 13, 99
    onnx.save(model, tmp_path / "new.onnx")
    assert "IR version: 99 is newer than this ONNX Runtime" in refusal(tmp_path / "new.onnx")
    steps = [("Neg", "flat", "minus"), ("Sub", "minus", "below"), ("Log", "below", "nan")]
    nan = other(
        lambda g: g.node.extend(
            onnx.helper.make_node(step, [given, "flat"] if step == "Sub" else [given], [made])
            for step, given, made in steps
        )
    )
    assert "not finite; check mean and scale" in refusal(nan, layer="nan")
    nearest = refusal(fixed, layer="convolve")
    assert "no layer 'convolve' (did you mean convolved?)" in nearest


@pytest.mark.parametrize(
    ("package", "layer", "message"),
    [
        ("onnxruntime", None, r"features\.kind=onnx needs onnxruntime: .* -m pip install .*'onnxruntime"),
        ("onnx", "flat", r"layer 'flat' is no output, so it needs onnx: .* -m pip install .*'onnxruntime"),
    ],
)
def test_a_missing_package_is_named(fixed, monkeypatch, package, layer, message):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=message):
        OnnxEmbedder(fixed, layer=layer).fit()


# --------------------------------------------------------------------------------------------------- what was chosen


def test_presets_stand_for_mean_and_scale(fixed):
    X = OnnxEmbedder(fixed, mean=[123.675, 116.28, 103.53], scale=[1 / 58.395, 1 / 57.12, 1 / 57.375]).fit_transform(
        IMAGES
    )
    np.testing.assert_array_equal(OnnxEmbedder(fixed, preprocess="imagenet").fit_transform(IMAGES), X)
    Y = OnnxEmbedder(fixed, preprocess="tf", scale=0.5).fit_transform(IMAGES)  # the mean of the preset
    np.testing.assert_array_equal(OnnxEmbedder(fixed, mean=127.5, scale=0.5).fit_transform(IMAGES), Y)
    assert "preprocess must be one of 0..1, imagenet, tf, clip, dinov2, not 'keras'" in refusal(
        fixed, preprocess="keras"
    )


def test_an_input_with_channels_last(tmp_path, fixed):
    def turn(graph):
        graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("last", onnx.TensorProto.FLOAT, ["n", 32, 32, 3]))
        graph.node.insert(0, onnx.helper.make_node("Transpose", ["last"], ["image"], perm=[0, 3, 1, 2]))

    turned = OnnxEmbedder(changed(fixed, tmp_path / "last.onnx", turn)).fit()
    np.testing.assert_allclose(turned.transform(IMAGES), OnnxEmbedder(fixed).fit_transform(IMAGES), atol=1e-6)
    assert turned.describe()["layout"] == "channels last"


def test_the_description_suggests_the_last_pooled_tensor(fixed):
    facts = OnnxEmbedder(fixed).fit().describe()
    assert (facts["layer"], facts["n_features"], facts["suggested_layer"], facts["cells"]) == (
        "embedding",
        16,
        "flat",
        None,
    )
    facts = OnnxEmbedder(fixed, layer="flat", preprocess="clip").fit().describe()
    assert (facts["layer"], facts["n_features"], facts["cells"], facts["preprocess"]) == ("flat", 8, [8, 8], "clip")
    json.dumps(facts)


@pytest.mark.parametrize("resize", ["crop", "trim", "stretch", "pad"])
@pytest.mark.parametrize("layer", ["pooled", "flat", "positive"])
def test_cells_sum_to_the_vector_and_lie_where_the_model_looks(fixed, layer, resize):
    embedder = OnnxEmbedder(fixed, layer=layer, resize=resize).fit()
    for image in IMAGES:
        boxes, parts = embedder.block_vectors(image)
        assert boxes.shape == (64, 4)
        assert parts.shape == (64, 8)
        np.testing.assert_allclose(parts.sum(axis=0), embedder.transform([image])[0], atol=1e-6)
        height, width = image.shape[:2]
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 0] + boxes[:, 2] <= width + 1e-9).all()
        assert (boxes[:, 1] + boxes[:, 3] <= height + 1e-9).all()
        shorter = min(height, width)
        areas = {"crop": shorter**2, "trim": shorter * (height * width) ** 0.5, "stretch": height * width}
        area = areas.get(resize)
        assert area is None or (boxes[:, 2] * boxes[:, 3]).sum() == pytest.approx(area)
    # A cell follows its part of the image: one white quarter lights up the cells that lie there.
    image = np.zeros((64, 64, 3), np.uint8)
    image[:32, 32:] = 255
    boxes, parts = embedder.block_vectors(image)
    lit = np.abs(parts - parts[-1]).sum(axis=1) > 1e-6
    assert lit.tolist() == [bool(y < 32 and x >= 32) for x, y, _, _ in boxes]


def test_a_model_without_cells_says_so(fixed, free):
    for embedder in (OnnxEmbedder(fixed).fit(), OnnxEmbedder(free, size=32).fit()):
        with pytest.raises(ValueError, match="not the mean over the cells of a map, which explanations need"):
            embedder.block_vectors(IMAGES[0])


def test_large_photos_are_decoded_at_reduced_size(tmp_path, fixed, crops):
    (crop,) = crops("coffee", 1, 0, low=300, high=330)
    large = cv2.resize(crop, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(tmp_path / "large.jpg"), large[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 95])
    embedder = OnnxEmbedder(fixed, layer="flat", preprocess="tf").fit()
    pixels, *size = read_picture(tmp_path / "large.jpg", min_side=embedder.min_side)
    assert tuple(size) == large.shape[:2]
    assert 32 <= min(pixels.shape[:2]) < min(large.shape[:2]) / 4
    X = embedder.transform([tmp_path / "large.jpg", large])
    assert X[0] @ X[1] > 0.999


def test_a_gpu_is_taken_where_there_is_one(fixed, monkeypatch):
    import onnxruntime

    asked = []

    class Session(onnxruntime.InferenceSession):
        def __init__(self, *args, providers, **options):
            asked.append(providers)
            super().__init__(*args, providers=["CPUExecutionProvider"], **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    there = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: there)
    OnnxEmbedder(fixed).fit()
    assert asked == [["CUDAExecutionProvider", "CPUExecutionProvider"]]


def small_model(file, nodes, initializers=(), shape=None):
    """Write a model of a few nodes, from ``image`` to ``out``."""
    from onnx import TensorProto, helper, numpy_helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [None, 3, 8, 8])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)
    constants = [numpy_helper.from_array(array, name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "small", [image], [out], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    return file


def test_nodes_are_bounded_before_anything_is_opened(tmp_path, fixed, monkeypatch):
    from onnx import helper

    chain = [helper.make_node("Relu", [f"t{i}" if i else "image"], [f"t{i + 1}"]) for i in range(30)]
    inner = helper.make_graph(chain, "inner", [], [helper.make_tensor_value_info("t30", 1, None)])
    nodes = [*chain[:5], helper.make_node("If", ["t5"], ["out"], then_branch=inner, else_branch=inner)]
    small_model(tmp_path / "m.onnx", nodes)
    monkeypatch.setattr(onnx_files, "MAX_NODES", 66)
    onnx_files.read_model(tmp_path / "m.onnx").check_nodes()
    monkeypatch.setattr(onnx_files, "MAX_NODES", 65)
    monkeypatch.setattr(onnx_embedder, "open_session", Mock(side_effect=AssertionError))
    assert "a graph of 66 nodes; at most 65 are supported" in refusal(tmp_path / "m.onnx", size=8)


def test_a_layer_of_gigabytes_is_refused_before_it_is_run(tmp_path, monkeypatch):
    from onnx import helper

    nodes = [helper.make_node("Tile", ["image", "repeats"], ["out"])]
    file = small_model(tmp_path / "m.onnx", nodes, {"repeats": np.array([1, 1000, 100, 100])})
    monkeypatch.setattr(onnx_embedder, "run_within", Mock(side_effect=AssertionError))
    assert "out gives None x 3000 x 800 x 800 numbers, 8 GB for a batch of 1" in refusal(file)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system has no such limit")
def test_a_layer_whose_size_nobody_declares_is_an_error_of_memory(tmp_path, monkeypatch):
    """The size depends on the picture: without a limit the system may end the process."""
    from onnx import helper

    nodes = [
        helper.make_node("Shape", ["image"], ["shape"]),
        helper.make_node("NonZero", ["image"], ["places"]),
        helper.make_node("Shape", ["places"], ["n"]),
        helper.make_node("Concat", ["n", "n"], ["four"], axis=0),
        helper.make_node("Mul", ["four", "few"], ["repeats"]),
        helper.make_node("Expand", ["number", "repeats"], ["out"]),
    ]
    constants = {"few": np.array([20, 1, 20, 1]), "number": np.float32([1.0])}
    file = small_model(tmp_path / "m.onnx", nodes, constants)  # 900 MB
    monkeypatch.setattr(onnx_embedder, "TRIED_BYTES", 300_000_000)
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert "ONNX Runtime cannot run this model" in refusal(file)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_network_that_does_not_end_is_refused(tmp_path, monkeypatch):
    from onnx import TensorProto, helper

    values = {"i": (TensorProto.INT64, []), "on": (TensorProto.BOOL, []), "x": (TensorProto.FLOAT, None)}
    inputs = [helper.make_tensor_value_info(name, *value) for name, value in values.items()]
    outputs = [helper.make_tensor_value_info(f"{name}2", *values[name]) for name in ("on", "x")]
    body = [helper.make_node("Identity", ["on"], ["on2"]), helper.make_node("Sigmoid", ["x"], ["x2"])]
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        helper.make_node(
            "Loop", ["n", "yes", "pooled"], ["out"], body=helper.make_graph(body, "body", inputs, outputs)
        ),
    ]
    file = small_model(tmp_path / "m.onnx", nodes, {"n": np.array(10**9), "yes": np.array(True)})
    monkeypatch.setattr(onnx_embedder, "TRIED_SECONDS", 0.3)
    assert "takes more than 0.3 seconds for 1 image" in refusal(file)
