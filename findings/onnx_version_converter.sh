#!/usr/bin/env bash
# Raising the opset of an ONNX model by onnx.version_converter, as quantisation and newer tools ask for.
#
# Guess: the converted model computes what the old one did, as attributes that an operator gained are set to what it did before, or
#   the converter refuses, as it does for antialias; so it is for Softmax (flattened before 13) and RoiAlign (other corners from 16).
# What happens: without a word, and past the checker,
#   1. Resize 10 -> 11 takes the new default of where pixels lie (half_pixel) and of rounding: an enlarged or shrunk image is shifted
#      by a part of a pixel. Asymmetric, floor, set by hand, gives the old numbers. Factors that hide it: nearest, by 2 or 1/2.
#   2. Upsample 9 -> 11 becomes such a Resize; up to 10 it is right.
#   3. Hardmax 12 -> 13 goes on by axis alone, and has a one per row, not per image. Softmax and LogSoftmax are rewritten.
# Who meets it: those who bring models of 2019 and 2020 (PyTorch exported bilinear up-sampling so, at its opset of then) to the opset
#   that quantising, merging with another graph, or a runtime without the old operator needs. Vectors stay plausible, and differ.
# Versions: onnx 1.23.2, onnxruntime 1.31.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import numpy as np, onnx, onnxruntime as ort
from onnx import TensorProto, checker, helper, numpy_helper, version_converter

print("onnx", onnx.__version__, "onnxruntime", ort.__version__, "NumPy", np.__version__)
x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)

def model(kind, opset, inputs=None, **attributes):
    inputs = inputs or {}
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (("x", x.shape), ("y", ["n", "c", "h", "w"]))]
    node = helper.make_node(kind, ["x", *inputs], ["y"], **attributes)
    graph = helper.make_graph([node], "g", *ends, [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in inputs.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    checker.check_model(made)
    return made

def run(made):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]

def compare(number, name, made, opset, same):
    old, raised = run(made), version_converter.convert_version(made, opset)
    checker.check_model(raised)
    new = run(raised)
    agree = old.shape == new.shape and np.allclose(old, new, atol=1e-5)
    correlation = np.corrcoef(old.ravel(), new.ravel())[0, 1]
    print(f"{number} {name} to {opset}: {'the same' if agree else 'other'} numbers, correlation {correlation:.2f}")
    assert agree == same, name
    return old, raised

def scales(factor):
    return {"scales": [1, 1, factor, factor]}

for mode, factor, same in (("linear", 2, False), ("linear", 0.5, False), ("nearest", 1.7, False), ("nearest", 2, True), ("nearest", 0.5, True)):
    old, raised = compare("1.", f"Resize 10, {mode}, by {factor},", model("Resize", 10, scales(factor), mode=mode), 11, same)
    node = next(node for node in raised.graph.node if node.op_type == "Resize")
    assert not {a.name for a in node.attribute} & {"coordinate_transformation_mode", "nearest_mode"}
    node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    node.attribute.append(helper.make_attribute("nearest_mode", "floor"))
    assert np.allclose(run(raised), old, atol=1e-5)
print("   all five, with asymmetric and floor set by hand: the same numbers")
for opset in (10, 11):
    compare("2.", "Upsample 9, linear, by 2,", model("Upsample", 9, scales(2), mode="linear"), opset, opset == 10)
for kind in ("Softmax", "LogSoftmax", "Hardmax"):
    old, raised = compare("3.", f"{kind} 11, axis 1,", model(kind, 11, axis=1), 13, kind != "Hardmax")
print("   ones of Hardmax before and after:", old.sum(), run(raised).sum())
assert old.sum() == 1 and run(raised).sum() == 64

plain = np.asarray([[0, 0, 5, 5], [1, 1, 6, 7]], np.float32), np.zeros(2, np.int64)
made = model("RoiAlign", 10, {"rois": plain[0], "batch": plain[1]}, output_height=3, output_width=3, sampling_ratio=2)
made.graph.initializer[1].CopyFrom(numpy_helper.from_array(plain[1], "batch"))
compare("4.", "RoiAlign 10", made, 16, True)
PY
