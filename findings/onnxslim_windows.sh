#!/usr/bin/env bash
# onnxslim: a convolution whose map is multiplied by a window, a weight per column or per row.
#
# Guess: slim() fuses Conv and Mul where the factors are one per channel, (C, 1, 1), and leaves other factors alone, as it does for Conv and Add.
# What happens: a vector of factors is taken for one per channel if it has as many numbers as there are channels, wherever its axis lies: (W,)
#   for columns, (H, 1) for rows. Maps of 8 x 8 with 8 channels are scaled by channel in place of column; those of 7 x 7 and 9 x 9 are right. So are
#   sequences of length C (Conv of one axis) and ConvTranspose. Shapes, checker and call succeed; only slim(..., model_check=True), off by
#   default, would compare.
# Who meets it: networks that weigh places before pooling (a cosine window, a prior of the centre, weights per time step), of 16, 32 or 64
#   channels and the same side, which are usual for both; exporters that slim what they wrote. Whether it strikes depends on the size
#   of the input that the model was exported for.
# Versions: onnxslim 0.1.98, onnx 1.23.2, onnxruntime 1.32.0, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnxslim==0.1.98 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np, onnx, onnxruntime, onnxslim
from onnx import helper, numpy_helper

print(*(f"{name} {version(name)}" for name in ("onnxslim", "onnx", "onnxruntime", "numpy")))
rng = np.random.default_rng(0)
CHANNELS = 8


def run(model, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def slimmed(kind, operator, side, factors, axes=2):
    """Largest difference after slimming, of the windowed and of the plain model; and from the window laid by NumPy."""
    shape = [3] + [side] * axes
    turned = [3, CHANNELS] if kind == "ConvTranspose" else [CHANNELS, 3]
    kernel = rng.normal(size=(*turned, *[3] * axes)).astype(np.float32)
    nodes = [helper.make_node(kind, ["x", "kernel"], ["map"], pads=[1] * 2 * axes), helper.make_node(operator, ["map", "factors"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", *shape])], [helper.make_tensor_value_info("y", 1, ["n", CHANNELS, *shape[1:]])],
        [numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(factors, "factors")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    slim = onnxslim.slim(onnx.ModelProto.FromString(model.SerializeToString()))
    onnx.checker.check_model(slim)
    x = rng.normal(size=(2, *shape)).astype(np.float32)
    before, after = run(model, x), run(slim, x)
    plain = onnx.ModelProto.FromString(model.SerializeToString())
    del plain.graph.node[1]
    plain.graph.node[0].output[0] = "y"
    by_numpy = (np.multiply if operator == "Mul" else np.add)(run(plain, x), factors)
    assert before.shape == after.shape and np.allclose(before, by_numpy, atol=1e-4)
    return np.abs(after - by_numpy).max(), [node.op_type for node in slim.graph.node]


def window(side):
    return np.hanning(side + 2)[1:-1].astype(np.float32)


wrong = set()
for case, arguments in {
    **{f"columns, Mul, {side} x {side}": ("Conv", "Mul", side, window(side)) for side in (7, 8, 9)},
    **{f"rows, Mul, {side} x {side}": ("Conv", "Mul", side, window(side)[:, None]) for side in (7, 8, 9)},
    "columns, Add, 8 x 8": ("Conv", "Add", 8, window(8)),
    "channels, Mul, 8 x 8": ("Conv", "Mul", 8, window(8)[:, None, None]),
    "steps of a sequence, Mul, 8": ("Conv", "Mul", 8, window(8), 1),
    "columns after ConvTranspose, Mul, 8 x 8": ("ConvTranspose", "Mul", 8, window(8)),
}.items():
    difference, left = slimmed(*arguments)
    print(f"{case}: largest difference {difference:.2g}; nodes {left}")
    wrong |= {case} if difference > 0.1 else set()
assert wrong == {"columns, Mul, 8 x 8", "rows, Mul, 8 x 8", "steps of a sequence, Mul, 8", "columns after ConvTranspose, Mul, 8 x 8"}
PY
