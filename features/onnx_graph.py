"""Tensors of an ONNX model: outputs, layers, pooled maps; needs the package ``onnx``."""

from __future__ import annotations

import difflib
from typing import Any

_SAME_NUMBERS = ("Flatten", "Squeeze", "Reshape", "Identity", "Dropout")  # reshape a vector, or hand it on


def parse(data: bytes) -> Any:
    """Return the graph of a model; ImportError names the package that is missing."""
    try:
        import onnx
    except ImportError:
        raise ImportError("pip install 'visterm[onnx]'") from None
    return onnx.load_from_string(data)


def with_outputs(model: Any, *layers: str) -> bytes:
    """Return the model with more outputs, some of its inner tensors: ONNX Runtime returns only outputs.

    Raises
    ------
    ValueError
        There is no such tensor; the message, without the name of the model, suggests others.
    """
    import onnx

    tensors = [name for node in model.graph.node for name in node.output if name]
    outputs = {output.name for output in model.graph.output}
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    for layer in layers:
        if layer not in tensors:
            similar = difflib.get_close_matches(layer, tensors, n=3)
            hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
            more = f" and {len(tensors) - 10} before" if len(tensors) > 10 else ""
            raise ValueError(f"has no layer {layer!r}{hint}; its last layers are {', '.join(tensors[-10:])}{more}")
        if layer not in outputs:
            extended.graph.output.append(onnx.ValueInfoProto(name=layer))  # ONNX Runtime infers the type
    return extended.SerializeToString()


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
    return sorted(axis % 4 for axis in axes) == [2, 3]
