"""The two sides of a similarity as an ONNX model, for ONNX Runtime on servers, phones and in browsers."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from visterm.extras import how_to_install
from visterm.learners.maps import Affine, Logistic, Map, Scale, SideBySide, Squares, Unit

# Of 2020 and 2021: what ONNX Runtime has read since then, also in browsers. No newer operation is needed.
_OPSET, _IR_VERSION = 13, 8
_MOST_BYTES = 2_000_000_000  # of a file in the format of protobuf


def to_onnx(learner: Any) -> bytes:
    """Write the two sides of a similarity as an ONNX model.

    Parameters
    ----------
    learner : SimilarityLearner or Blend
        Fitted.

    Returns
    -------
    bytes
        A model with the input ``vectors``, float32 (n, n_features_in_), and the outputs ``query`` and ``gallery``,
        float32 (n, size of a side): what `transform_query` and `transform` give, up to rounding. The similarity of a
        query and an image is the inner product of the two.

    Raises
    ------
    ImportError
        The package onnx is missing.
    NotImplementedError
        The learner has no such maps.
    ValueError
        They do not fit into a file of 2 GB.
    """
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ImportError(f"ONNX models need onnx: {how_to_install('onnx')}") from None

    graph = _Graph()
    sides = {"query": graph.add(learner.query_map(), "vectors"), "gallery": graph.add(learner.gallery_map(), "vectors")}
    n_bytes = sum(constant.nbytes for constant in graph.constants.values())
    if n_bytes > _MOST_BYTES:
        raise ValueError(f"an ONNX file holds 2 GB at most, and the matrices of this learner take {n_bytes / 1e9:.1f}")
    nodes = [
        helper.make_node(operation, [*inputs], [name], **attributes)
        for name, (operation, inputs, attributes) in graph.nodes.items()
    ]
    nodes += [helper.make_node("Identity", [name], [side]) for side, name in sides.items()]
    shape = {"vectors": ["n", learner.n_features_in_], "query": ["n", None], "gallery": ["n", None]}
    vectors, *outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, of) for name, of in shape.items())
    constants = [numpy_helper.from_array(constant, name) for name, constant in graph.constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "similarity", [vectors], outputs, constants),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="visterm",
    )
    return model.SerializeToString()


class _Graph:
    """Nodes and constants; what two maps have in common is there once."""

    def __init__(self) -> None:
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {}  # operation, inputs, attributes

    def add(self, steps: Map, name: str) -> str:
        """Add the steps of a map of the tensor `name`; return the name of the result."""
        for step in steps:
            name = self._step(step, name)
        return name

    def _step(self, step: Any, x: str) -> str:
        match step:
            case Affine(matrix, offset):
                x = self._node("MatMul", x, self._constant(matrix))
                return x if offset is None else self._node("Add", x, self._constant(offset))
            case Unit():
                length = self._node("Sqrt", self._sum(self._node("Mul", x, x)))  # as ReduceL2, which opset 18 changed
                return self._node("Div", x, self._node("Max", length, self._constant(np.float32(1e-30))))
            case Scale(factor):
                return self._node("Mul", x, self._constant(np.float32(factor)))
            case Squares(matrix):
                product = self._node("Mul", self._node("MatMul", x, self._constant(matrix)), x)
                negated = self._node("Neg", self._sum(product))
                return self._node("Concat", x, negated, axis=1)
            case Logistic(to_sum_one):
                x = self._node("Sigmoid", x)
                if not to_sum_one:
                    return x
                return self._node("Div", x, self._node("Max", self._sum(x), self._constant(np.float32(1e-30))))
            case SideBySide(first, second):
                return self._node("Concat", self.add(first, x), self.add(second, x), axis=1)
        raise TypeError(f"no such step: {step!r}")

    def _sum(self, x: str) -> str:
        return self._node("ReduceSum", x, self._constant(np.array([1], np.int64)), keepdims=1)

    def _constant(self, value: Any) -> str:
        value = np.asarray(value, order="C")
        value = value if value.dtype == np.int64 else value.astype(np.float32, copy=False)
        name = f"constant_{'x'.join(map(str, value.shape))}_{zlib.crc32(value.tobytes()):08x}"
        self.constants.setdefault(name, value)
        return name

    def _node(self, operation: str, *inputs: str, **attributes: Any) -> str:
        for name, node in self.nodes.items():
            if node == (operation, inputs, attributes):
                return name
        name = f"{operation}_{len(self.nodes)}"
        self.nodes[name] = (operation, inputs, attributes)
        return name
