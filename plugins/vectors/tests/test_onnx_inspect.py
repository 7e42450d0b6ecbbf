"""What models give: several outputs, tokens, other types, inputs of texts; and what a file beside them asks for."""

import json

import numpy as np
import pytest

from visterm.features import OnnxEmbedder
from visterm.features.presets import PRESETS
from visterm.plugins.vectors.onnx_inspect import inspect_model, unlike_file_beside
from visterm.plugins.vectors.onnx_pooling import channels_first, n_before_patches, patch_grid, pooled

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402 - onnx may be missing

RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, (32, 32, 3), dtype=np.uint8) for _ in range(3)]
SIDE, PATCH, WIDTH, N_BEFORE = 32, 8, 6, 3  # 4 x 4 patches


def write(file, nodes, outputs, constants=(), inputs=(), kind=TensorProto.FLOAT, n="n"):
    """Write a model of an image; `outputs` are shapes by name."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("pixel_values", kind, [n, 3, SIDE, SIDE]), *inputs],
        [helper.make_tensor_value_info(name, kind_, shape) for name, (kind_, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
    return file


def tokens_model(file):
    """Write a model with tokens: three that do not look at the image, and one per patch; return it and its kernel."""
    kernel = RNG.normal(size=(WIDTH, 3, PATCH, PATCH)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["pixel_values", "kernel"], ["map"], strides=[PATCH, PATCH]),
        helper.make_node("Reshape", ["map", "flat"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["patches"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["before", "patches"], ["last_hidden_state"], axis=1),
        helper.make_node("ReduceMean", ["patches"], ["pooler_output"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["pooler_output", "classes"], ["logits"]),
    ]
    before = np.arange(N_BEFORE * WIDTH, dtype=np.float32).reshape(1, N_BEFORE, WIDTH)
    constants = {
        "kernel": kernel,
        "flat": np.array([0, WIDTH, -1]),
        "before": before,
        "classes": np.eye(WIDTH, 9, dtype=np.float32),
    }
    n_tokens = N_BEFORE + (SIDE // PATCH) ** 2
    outputs = {
        "logits": (TensorProto.FLOAT, [1, 9]),
        "last_hidden_state": (TensorProto.FLOAT, [1, n_tokens, WIDTH]),
        "pooler_output": (TensorProto.FLOAT, [1, WIDTH]),
    }
    write(file, nodes, outputs, constants, n=1)

    def reference(pixels):
        blocks = (pixels / np.float32(255)).reshape(4, PATCH, 4, PATCH, 3).transpose(0, 2, 4, 1, 3)
        return np.concatenate([before[0], blocks.reshape(16, -1) @ kernel.reshape(WIDTH, -1).T])

    return file, reference


def test_tokens_become_one_vector(tmp_path):
    file, reference = tokens_model(tmp_path / "vit.onnx")
    layer = {"layer": "last_hidden_state", "unit": False}
    for pool, of in (
        ("cls", lambda t: t[0]),
        ("mean", lambda t: t.mean(axis=0)),
        ("mean-patches", lambda t: t[3:].mean(axis=0)),
    ):
        X = OnnxEmbedder(file, pool=pool, **layer).fit_transform(IMAGES)
        np.testing.assert_allclose(X, [of(reference(pixels)) for pixels in IMAGES], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="last_hidden_state gives 19 tokens of 6 numbers: set pool to cls or mean or"):
        OnnxEmbedder(file, **layer).fit()
    with pytest.raises(ValueError, match="pooler_output gives one vector per image, which pool=cls does not change"):
        OnnxEmbedder(file, layer="pooler_output", pool="cls").fit()
    with pytest.raises(ValueError, match="map gives a map, which has no class token: set pool to mean"):
        OnnxEmbedder(file, layer="map", pool="cls").fit()
    with pytest.raises(ValueError, match="pool must be one of cls, mean, mean-patches, not 'max'"):
        OnnxEmbedder(file, pool="max").fit()


def test_patches_are_cells_of_explanations(tmp_path):
    file, reference = tokens_model(tmp_path / "vit.onnx")
    embedder = OnnxEmbedder(file, layer="last_hidden_state", pool="mean-patches", unit=False).fit()
    boxes, parts = embedder.block_vectors(IMAGES[0])
    np.testing.assert_allclose(parts, reference(IMAGES[0])[3:] / 16, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(boxes[1], [8, 0, 8, 8])
    assert embedder.describe()["cells"] == [4, 4]
    with pytest.raises(ValueError, match="explanations need pool=mean-patches"):
        OnnxEmbedder(file, layer="last_hidden_state", pool="mean").fit().block_vectors(IMAGES[0])


@pytest.mark.parametrize(
    ("n_tokens", "size", "grid"),
    [
        (197, (224, 224), (14, 14)),  # ViT
        (261, (224, 224), (16, 16)),  # DINOv2 with registers
        (1370, (518, 518), (37, 37)),
        (729, (384, 384), (27, 27)),  # SigLIP: 384 is no multiple of 14
        (50, (224, 224), (7, 7)),  # CLIP
        (49, (224, 224), (7, 7)),  # Swin
        (129, (256, 128), (16, 8)),
    ],
)
def test_patches_are_counted(n_tokens, size, grid):
    assert patch_grid(n_tokens, size) == grid
    assert n_before_patches(n_tokens, size) == n_tokens - grid[0] * grid[1]


def test_maps_with_channels_last_are_known_by_their_shape():
    for shape, size in (((2, 7, 7, 96), (224, 224)), ((2, 8, 4, 16), (256, 128)), ((2, 1, 1, 5), (32, 32))):
        maps = RNG.normal(size=shape).astype(np.float32)
        np.testing.assert_array_equal(channels_first(maps, size), maps.transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(pooled(maps, None, size, "out"), maps.transpose(0, 3, 1, 2).mean(axis=(2, 3)))
        first = np.ascontiguousarray(maps.transpose(0, 3, 1, 2))
        assert channels_first(first, size) is first
    alike = np.zeros((1, 8, 8, 8), np.float32)
    assert channels_first(alike, (32, 32)) is alike


def test_an_output_is_proposed_or_the_input_of_a_classifier(tmp_path):
    file, _ = tokens_model(tmp_path / "vit.onnx")
    info = inspect_model(file)
    assert [(one["name"], one["shape"], one["type"]) for one in info["outputs"]] == [
        ("logits", [1, 9], "float"),
        ("last_hidden_state", [1, 19, 6], "float"),
        ("pooler_output", [1, 6], "float"),
    ]
    assert (info["layer"], info["settings"], info["n_features"]) == ("pooler_output", {"layer": "pooler_output"}, 6)
    chosen = inspect_model(file, layer="last_hidden_state")
    assert (chosen["pool"], chosen["n_features"]) == ("cls", 6)
    assert inspect_model(file, layer="last_hidden_state", pool="mean-patches")["cells"] == [4, 4]
    json.dumps(info)
    nodes = [
        helper.make_node("Flatten", ["pixel_values"], ["vector"]),
        helper.make_node("Gemm", ["vector", "w", "b"], ["logits"]),
    ]
    constants = {"w": np.ones((3 * SIDE * SIDE, 5), np.float32), "b": np.ones(5, np.float32)}
    info = inspect_model(write(tmp_path / "m.onnx", nodes, {"logits": (TensorProto.FLOAT, ["n", 5])}, constants))
    assert (info["suggested_layer"], info["suggested_as"]) == ("vector", "the input of the last layer")


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT16, np.float16), (TensorProto.UINT8, np.uint8)])
def test_inputs_of_other_types(tmp_path, kind, dtype):
    nodes = [
        helper.make_node("Cast", ["pixel_values"], ["numbers"], to=TensorProto.FLOAT16),
        helper.make_node("Flatten", ["numbers"], ["flat"]),
    ]
    file = write(tmp_path / "m.onnx", nodes, {"flat": (TensorProto.FLOAT16, ["n", 3 * SIDE * SIDE])}, kind=kind)
    preprocess = {} if dtype == np.uint8 else {"preprocess": "tf"}
    embedder = OnnxEmbedder(file, unit=False, **preprocess).fit()
    X = embedder.transform(IMAGES)
    assert X.dtype == np.float32
    pixels = np.stack(IMAGES).transpose(0, 3, 1, 2).reshape(3, -1).astype(np.float32)
    expected = pixels if dtype == np.uint8 else ((pixels - 127.5) / 127.5).astype(np.float16)
    np.testing.assert_array_equal(X, expected)
    embedder.save(tmp_path / "saved")
    np.testing.assert_array_equal(OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES), X)
    if dtype == np.uint8:
        with pytest.raises(
            ValueError, match=r"takes pixels from 0 to 255 \(uint8\): leave preprocess, mean and scale out"
        ):
            OnnxEmbedder(file, preprocess="tf").fit()
        (tmp_path / "preprocessor_config.json").write_text(
            json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3})
        )
        assert inspect_model(file)["settings"] == {}
    described = embedder.describe()
    assert (described["preprocess"], described["scale"]) == (("none", 1.0) if dtype == np.uint8 else ("tf", 1 / 127.5))


def joint(file, *, mixed=False):
    """Write a model of images and texts; a branch (If) reads the image's vector from outside of it."""
    inner = [
        helper.make_graph(
            [helper.make_node(kind, ["raw"], [name])], name, [], [helper.make_tensor_value_info(name, 1, None)]
        )
        for kind, name in (("Identity", "kept"), ("Neg", "turned"))
    ]
    nodes = [
        helper.make_node("Relu", ["pixel_values"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["raw"]),
        helper.make_node("If", ["yes"], ["image_embeds"], then_branch=inner[0], else_branch=inner[1]),
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["ids", "table"], ["text_embeds"]),
        helper.make_node("Mul", ["image_embeds", "text_embeds"], ["logits_per_image"]),
    ]
    outputs = {"logits_per_image": [1, 3]} | ({} if mixed else {"text_embeds": [1, 3], "image_embeds": [1, 3]})
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 4])
    constants = {"yes": np.array(True), "table": np.ones((4, 3), np.float32)}
    return write(file, nodes, {name: (1, shape) for name, shape in outputs.items()}, constants, [ids], n=1)


def test_of_images_and_texts_the_part_of_images_is_used(tmp_path):
    file = joint(tmp_path / "clip.onnx")
    embedder = OnnxEmbedder(file, unit=False).fit()
    expected = np.stack([pixels.mean(axis=(0, 1)) / 255 for pixels in IMAGES])
    np.testing.assert_allclose(embedder.transform(IMAGES), expected, rtol=1e-5)
    np.testing.assert_allclose(OnnxEmbedder(file, layer="raw", unit=False).fit_transform(IMAGES), expected, rtol=1e-5)
    embedder.save(tmp_path / "saved")
    np.testing.assert_allclose(OnnxEmbedder.load(tmp_path / "saved").transform(IMAGES), expected, rtol=1e-5)
    _, parts = OnnxEmbedder(file, layer="raw", unit=False).fit().block_vectors(IMAGES[0])
    np.testing.assert_allclose(parts.sum(axis=0), expected[0], rtol=1e-4)
    info = inspect_model(file)
    assert {one["name"]: one["needs"] for one in info["outputs"]} == {
        "logits_per_image": ["input_ids"],
        "text_embeds": ["input_ids"],
        "image_embeds": [],
    }
    assert info["layer"] == "image_embeds"
    with pytest.raises(
        ValueError, match="text_embeds needs input_ids, too, not pixel_values alone: set layer to anoth"
    ):
        OnnxEmbedder(file, layer="text_embeds").fit()
    with pytest.raises(ValueError, match=r"has 2 inputs \(pixel_values, input_ids\), and each output needs more than"):
        OnnxEmbedder(joint(tmp_path / "mixed.onnx", mixed=True)).fit()


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
PLAIN = {"do_normalize": False}
CROP = {"do_center_crop": True}


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        (  # DINOv2
            IMAGENET | CROP | {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}},
            {"preprocess": "imagenet", "size": 224, "resize": "crop", "keep": 0.875},
        ),
        (  # SigLIP
            HALF | {"size": {"height": 384, "width": 384}},
            {"preprocess": "tf", "size": 384, "resize": "stretch"},
        ),
        (HALF | {"size": 224}, {"preprocess": "tf", "size": 224, "resize": "stretch"}),
        (PLAIN | CROP | {"size": 224, "crop_size": 224}, {"preprocess": "0..1", "size": 224, "resize": "crop"}),
        (  # ConvNeXT
            IMAGENET | {"size": {"shortest_edge": 224}, "crop_pct": 0.875},
            {"preprocess": "imagenet", "size": 224, "resize": "crop", "keep": 0.875},
        ),
        (
            IMAGENET | {"size": {"shortest_edge": 384}, "crop_pct": 0.875},
            {"preprocess": "imagenet", "size": 384, "resize": "stretch"},
        ),
        (
            PLAIN | {"do_rescale": False, "do_resize": False, "do_flip_channel_order": True},
            {"mean": [0.0] * 3, "scale": [1.0] * 3, "channels": "bgr"},
        ),
        (
            PLAIN | {"size": {"height": 256, "width": 128}},
            {"preprocess": "0..1", "size": [256, 128], "resize": "stretch"},
        ),
    ],
)
@pytest.mark.parametrize("above", [False, True])
def test_a_file_of_preprocessing(tmp_path, content, settings, above):
    (tmp_path / "onnx").mkdir()
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["map"]),
        helper.make_node("Flatten", ["map"], ["v"]),
    ]
    file = write(tmp_path / "onnx/model.onnx", nodes, {"v": (TensorProto.FLOAT, ["n", 3])})
    model = onnx.load(file)
    for axis in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        axis.dim_param = "side"
    onnx.save(model, file)
    (tmp_path if above else tmp_path / "onnx").joinpath("preprocessor_config.json").write_text(json.dumps(content))
    if "size" not in settings:
        with pytest.raises(ValueError, match="takes images of any size: set size"):
            inspect_model(file)
    info = inspect_model(file, size=None if "size" in settings else 32)
    assert info["settings"] == {"size": 32} | settings
    assert unlike_file_beside(OnnxEmbedder(file, **info["settings"]).fit()) is None
    other = next(name for name in PRESETS if name != settings.get("preprocess"))
    assert unlike_file_beside(OnnxEmbedder(file, size=32, preprocess=other).fit()).name == "preprocessor_config.json"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"image_mean": 3, "image_std": 1}', '{"image_mean": [0], "image_std": [0]}']
)
def test_a_file_of_preprocessing_that_cannot_be_understood(tmp_path, text):
    file, _ = tokens_model(tmp_path / "vit.onnx")
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(ValueError, match=r"preprocessor_config\.json: cannot be understood"):
        inspect_model(file)
    assert unlike_file_beside(OnnxEmbedder(file, layer="pooler_output").fit()) is None
