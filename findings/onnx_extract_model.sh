#!/usr/bin/env bash
# Cutting a part out of an ONNX model that has branches.
#
# Guess: onnx.utils.extract_model keeps all nodes that the chosen output depends on.
# What happens: it follows the inputs of nodes, not what their inner graphs (If, Loop) read from outside of them. Such a
#   model is cut without its first half, and the checker refuses the result.
# Who meets it: who takes the image's part out of a model of images and texts; exporters write If for squeezed axes.
# Versions: onnx 1.23.2, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q onnx==1.23.2 2>/dev/null
cd "$folder"
venv/bin/python - <<'PY'
import sys
import numpy as np, onnx, onnx.utils
from onnx import helper, numpy_helper

print("onnx", onnx.__version__)
def value(name):
    return helper.make_tensor_value_info(name, 1, [1, 4])
inner = [helper.make_graph([helper.make_node(kind, ["raw"], [out])], out, [], [value(out)]) for kind, out in (("Identity", "a"), ("Neg", "b"))]
nodes = [
    helper.make_node("Relu", ["image"], ["raw"]),
    helper.make_node("If", ["yes"], ["vector"], then_branch=inner[0], else_branch=inner[1]),
    helper.make_node("Neg", ["text"], ["words"]),
]
graph = helper.make_graph(nodes, "g", [value("image"), value("text")], [value("vector"), value("words")], [numpy_helper.from_array(np.array(True), "yes")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "both.onnx")
onnx.checker.check_model("both.onnx")
onnx.utils.extract_model("both.onnx", "image.onnx", ["image"], ["vector"], check_model=False)
kept = [node.op_type for node in onnx.load("image.onnx").graph.node]
print("kept:", kept)
if kept != ["If"]:
    sys.exit("changed: what inner graphs read is kept")
try:
    onnx.checker.check_model("image.onnx")
    sys.exit("changed: the part is valid")
except onnx.checker.ValidationError as error:
    print("the checker:", " ".join(str(error).split())[:120])
PY
