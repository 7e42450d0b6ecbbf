"""Tensors of an ONNX model: outputs, layers, pooled maps; needs the package ``onnx``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from visterm.extras import how_to_install

_SAME_NUMBERS = ("Flatten", "Squeeze", "Reshape", "Identity", "Dropout")  # reshape a vector, or hand it on


def parse(data: bytes) -> Any:
    """Return the graph of a model; ImportError names the package that is missing."""
    try:
        import onnx
    except ImportError:
        raise ImportError(how_to_install("onnx")) from None
    try:
        return onnx.load_from_string(data)
    except Exception:  # protobuf's errors share no other class
        raise ValueError("not an ONNX model, or damaged; export it again") from None


def with_output(model: Any, layer: str, *kept: str) -> bytes:
    """Return the model with one more output, an inner tensor: ONNX Runtime returns only outputs.

    Parameters
    ----------
    model : ModelProto
        It stays as it is.
    layer : str
    *kept : str
        The only inputs to keep, with what the layer needs of the model: a model of images and texts becomes one of
        images, or of texts. Without names all are kept.

    Raises
    ------
    ValueError
        There is no such tensor, or it needs another input; the message, without the name of the model, says what to do.
    """
    import onnx

    tensors = [name for node in model.graph.node for name in node.output if name]
    outputs = {output.name for output in model.graph.output}
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    if layer not in tensors:
        similar = difflib.get_close_matches(layer, tensors, n=3)
        hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
        more = f" and {len(tensors) - 10} before" if len(tensors) > 10 else ""
        raise ValueError(f"has no layer {layer!r}{hint}; its last layers are {', '.join(tensors[-10:])}{more}")
    if layer not in outputs:
        extended.graph.output.append(onnx.ValueInfoProto(name=layer))  # ONNX Runtime infers the type
    if kept:
        _cut(extended.graph, layer, kept)
    return extended.SerializeToString()


def inputs_of(model: Any, layer: str) -> set[str]:
    """Return the inputs of the model that a tensor depends on."""
    constants = {constant.name for constant in model.graph.initializer}
    needed = _needed(model.graph, layer)
    return {entry.name for entry in model.graph.input if entry.name in needed and entry.name not in constants}


def _cut(graph: Any, layer: str, inputs: Sequence[str]) -> None:
    """Remove all that a layer does not need. `onnx.utils.extract_model` misses what inner graphs (If, Loop) read."""
    needed = _needed(graph, layer)
    constants = {constant.name for constant in graph.initializer}
    others = [entry.name for entry in graph.input if entry.name in needed and entry.name not in {*inputs, *constants}]
    if others:
        raise ValueError(
            f"{layer} needs {', '.join(others[:5])}, too, not {', '.join(inputs)} alone: set layer to another"
        )
    for parts, keep in (
        (graph.node, lambda node: any(name in needed for name in node.output)),
        (graph.initializer, lambda constant: constant.name in needed),
        (graph.sparse_initializer, lambda constant: constant.values.name in needed),
        (graph.input, lambda entry: entry.name in needed or [entry.name] == list(inputs)),
        (graph.output, lambda entry: entry.name == layer),
    ):
        kept = [part for part in parts if keep(part)]
        del parts[:]
        parts.extend(kept)


def _needed(graph: Any, layer: str) -> set[str]:
    """Return the names of all tensors that a layer depends on, and its own."""
    makers = {name: node for node in graph.node for name in node.output}
    needed, waiting = set(), [layer]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            if name in makers:
                waiting += _reads(makers[name])
    return needed


def _reads(node: Any) -> list[str]:
    """Return the names that a node reads, and the nodes of its inner graphs."""
    graphs = [graph for attribute in node.attribute for graph in (attribute.g, *attribute.graphs)]
    inner = [name for graph in graphs for part in graph.node for name in _reads(part)]
    return [*node.input, *inner, *(entry.name for graph in graphs for entry in graph.output)]


def cells_of(model: Any, layer: str) -> str | None:
    """Return the map (n, c, h, w) whose mean over h and w is this tensor, perhaps reshaped; None if there is none."""
    makers = {name: node for node in model.graph.node for name in node.output}
    while (node := makers.get(layer)) is not None and node.op_type in _SAME_NUMBERS:
        layer = node.input[0]
    return node.input[0] if node is not None and _pools(model, node) else None


def suggest(model: Any) -> str | None:
    """Return the last pooled tensor of a model, after reshaping; None if nothing is pooled."""
    pools = [node for node in model.graph.node if _pools(model, node)]
    if not pools:
        return None
    layer = pools[-1].output[0]
    while True:
        readers = [node for node in model.graph.node if layer in node.input]
        if len(readers) != 1 or readers[0].op_type not in _SAME_NUMBERS:
            return layer
        layer = readers[0].output[0]


def before_classifier(model: Any, layer: str) -> str | None:
    """Return the tensor that the last layer turns into scores, if this is a fully connected one with a bias."""
    makers = {name: node for node in model.graph.node for name in node.output}
    node = makers.get(layer)
    if node is not None and node.op_type == "Add":  # of a bias, to a product
        node = next((makers[name] for name in node.input if name in makers), None)
        return node.input[0] if node is not None and node.op_type == "MatMul" else None
    return node.input[0] if node is not None and node.op_type == "Gemm" and len(node.input) > 2 else None


def _pools(model: Any, node: Any) -> bool:
    """Whether a node averages over height and width."""
    if node.op_type == "GlobalAveragePool":
        return True
    if node.op_type != "ReduceMean":
        return False
    from onnx import numpy_helper

    axes = [value for attribute in node.attribute if attribute.name == "axes" for value in attribute.ints]
    if len(node.input) > 1:  # since opset 18
        constants = {constant.name: constant for constant in model.graph.initializer}
        constants |= {
            maker.output[0]: maker.attribute[0].t for maker in model.graph.node if maker.op_type == "Constant"
        }
        if node.input[1] in constants:
            axes = numpy_helper.to_array(constants[node.input[1]]).ravel().tolist()
    return sorted(axis % 4 for axis in axes) in ([2, 3], [1, 2])  # the second where channels are last
