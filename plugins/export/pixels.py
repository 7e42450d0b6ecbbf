"""From the pixels of a photo to its query, as one ONNX model: the network of a run, and a learner's map behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from visterm.plugins.vectors.onnx_files import read_model
from visterm.plugins.vectors.onnx_graph import with_output
from visterm.plugins.vectors.onnx_pooling import channels_first, n_before_patches
from visterm.plugins.vectors.onnx_session import image_input, open_session

if TYPE_CHECKING:
    from visterm.plugins.vectors.onnx_embedder import ModelDescription, OnnxEmbedder

_OLDEST_OPSET = 13  # whose operations, as used here, mean the same in all later ones
_NUMBERS = {"tensor(float)": 1, "tensor(uint8)": 2, "tensor(float16)": 10}  # types as ONNX numbers them
_MOST_BYTES = 2_000_000_000  # of a file in the format of protobuf


def pixels_to_query(embedder: OnnxEmbedder, similarity: bytes, *, rounded: bool) -> bytes:
    """Return a model from pixels to queries, of a fitted embedder and what `visterm.learners.to_onnx` returns.

    Input ``image``: uint8 (n, height, width, 3), RGB, fitted to the size of the network; the metadata name this size
    and the way of fitting. Output ``query``: float32 (n, size of a side), of vectors `rounded` to float16, as a run
    stores them, or not. ValueError, of one line, if the network is of an old opset, or does not fit into a file of 2
    GB.
    """
    import onnx
    from onnx import compose

    described, file = embedder.describe(), read_model(embedder.model)
    session = open_session(file)
    image, several = image_input(session), len(session.get_inputs()) > 1
    if sum(path.stat().st_size for path in file.weights.values()) > _MOST_BYTES:
        raise ValueError(f"an ONNX file holds 2 GB at most, and the weights of {embedder.model} are larger")
    layer = described["layer"]
    data = with_output(file.parsed(), layer, *([image.name] if several else []))
    (output,) = (one for one in open_session(file, data).get_outputs() if one.name == layer)
    network = onnx.load_from_string(data)
    del network.graph.output[:]
    shape: list[Any] = ["n", *embedder.layer_shape()[1:]]
    kind = onnx.TensorProto.FLOAT16 if output.type == "tensor(float16)" else onnx.TensorProto.FLOAT
    network.graph.output.append(onnx.helper.make_tensor_value_info(layer, kind, shape))
    if file.folder is not None:
        onnx.load_external_data_for_model(network, file.folder)
    opset = next((one.version for one in network.opset_import if one.domain in ("", "ai.onnx")), 0)
    if opset < _OLDEST_OPSET:
        raise ValueError(f"the network has opset {opset}: export it with {_OLDEST_OPSET} or later")

    n = image.shape[0] if image.shape and isinstance(image.shape[0], int) else "n"
    height, width = described["size"]
    before, after = _Steps(network, opset), _Steps(network, opset)
    prepared = _prepare(before, described, image.type)
    vectors = _pool(after, embedder, rounded=rounded)
    pixels = [n, height, width, 3]
    axes = [n, 3, height, width] if described["layout"] == "channels first" else pixels
    whole = before.model(("image", onnx.TensorProto.UINT8, pixels), (prepared, _NUMBERS[image.type], axes))
    last = prepared
    learned = onnx.load_from_string(with_output(onnx.load_from_string(similarity), "query", "vectors"))
    learned.ir_version, learned.opset_import[0].version = network.ir_version, opset
    rows = after.model(("layer", kind, shape), (vectors, onnx.TensorProto.FLOAT, ["n", described["n_features"]]))
    parts = (network, image.name, layer), (rows, "layer", vectors)
    for number, (part, start, end) in enumerate((*parts, (learned, "vectors", "query"))):
        prefix = f"{number}/"
        compose.add_prefix(part, prefix, inplace=True)
        whole = compose.merge_models(whole, part, io_map=[(last, prefix + start)], outputs=[prefix + end])
        last = prefix + end
    whole.graph.node.append(onnx.helper.make_node("Identity", [last], ["query"]))
    whole.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("query", onnx.TensorProto.FLOAT, [n, None]))
    fit = {"size": f"{height} x {width}", "resize": embedder.resize, "keep": f"{embedder.keep:g}"}
    onnx.helper.set_model_props(whole, {f"visterm.{key}": value for key, value in fit.items()})
    if whole.ByteSize() > _MOST_BYTES:
        raise ValueError("an ONNX file holds 2 GB at most, and this network with its map takes more")
    return whole.SerializeToString()


class _Steps:
    """Nodes and constants before or behind a network, of its versions."""

    def __init__(self, network: Any, opset: int) -> None:
        self.network, self.opset = network, opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operation: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node, whose inputs are names or constants; return the name of its output."""
        from onnx import helper, numpy_helper

        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants.append(numpy_helper.from_array(np.asarray(value), f"constant_{len(self.constants)}"))
            names.append(value if isinstance(value, str) else self.constants[-1].name)
        output = f"{operation}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, names, [output], **attributes))
        return output

    def model(self, start: tuple[str, int, list[Any]], end: tuple[str, int, list[Any]]) -> Any:
        """Return the model from one tensor to another: their names, types and shapes."""
        from onnx import helper

        first, last = ([helper.make_tensor_value_info(*one)] for one in (start, end))
        graph = helper.make_graph(self.nodes, "part", first, last, self.constants)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=self.network.ir_version
        )


def _prepare(part: _Steps, described: ModelDescription, kind: str) -> str:
    """Add the steps from pixels to the input of the network, as `OnnxEmbedder` takes them."""
    image = "image"
    if kind != "tensor(uint8)":
        image = part.add("Cast", image, to=1)
        mean, scale = (np.asarray(described[name], np.float32) for name in ("mean", "scale"))
        image = part.add("Mul", part.add("Sub", image, mean), scale)
    if described["channels"] == "bgr":
        image = part.add("Gather", image, np.array([2, 1, 0]), axis=3)
    if described["layout"] == "channels first":
        image = part.add("Transpose", image, perm=[0, 3, 1, 2])
    return part.add("Cast", image, to=_NUMBERS[kind])


def _pool(part: _Steps, embedder: OnnxEmbedder, *, rounded: bool) -> str:
    """Add the steps from the layer to vectors."""
    shape, size = embedder.layer_shape(), embedder.size_
    rows = part.add("Cast", "layer", to=1)
    if len(shape) == 3 and embedder.pool == "cls":
        rows = part.add("Gather", rows, np.array(0), axis=1)
    elif len(shape) == 3:
        first = n_before_patches(shape[1], size) if embedder.pool == "mean-patches" else 0
        rows = part.add("Slice", rows, np.array([first]), np.array([shape[1]]), np.array([1]))
        rows = part.add("Mul", _sum(part, rows, 1), np.float32(1 / (shape[1] - first)))
    elif len(shape) == 4:
        axes = [2, 3] if channels_first(np.empty(shape, np.float32), size).shape == shape else [1, 2]
        rows = part.add("Mul", _sum(part, rows, *axes), np.float32(1 / (shape[axes[0]] * shape[axes[1]])))
    elif len(shape) == 1:
        rows = part.add("Unsqueeze", rows, np.array([0]))
    if embedder.unit:
        length = part.add("Sqrt", part.add("ReduceSum", part.add("Mul", rows, rows), np.array([1]), keepdims=1))
        rows = part.add("Div", rows, part.add("Max", length, np.float32(1e-30)))
    return part.add("Cast", part.add("Cast", rows, to=10), to=1) if rounded else rows


def _sum(part: _Steps, rows: str, *axes: int) -> str:
    return part.add("ReduceSum", rows, np.array(axes), keepdims=0)
