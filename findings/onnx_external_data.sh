#!/usr/bin/env bash
# ONNX models whose weights lie in a second file (what PyTorch's exporter writes by default).
#
# Guess: a session that is opened from the bytes of such a model fails, as bytes have no folder; where a folder is named,
#   every version looks there; saving a model again replaces its file of weights.
# What happens:
#   1. From bytes, ONNX Runtime takes the weights from the process's current folder: a stranger's file of the same name
#      and size is used without a word, and the vectors are another model's.
#   2. session.model_external_initializers_file_folder_path names the folder since 1.21. 1.20 takes the entry, as it takes
#      any unknown one, and goes on to look in the current folder.
#   3. onnx.save(..., save_as_external_data=True) appends to a file of weights that is there: saved twice, twice the size.
# Who meets it: programs that read, change or cut a graph before they open it, or cache models as bytes.
# Versions: onnx 1.23.2, onnxruntime 1.20.1 and 1.31.1, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
cat > "$folder/show.py" <<'PY'
import os, sys
import numpy as np, onnx, onnxruntime as ort
from onnx import helper, numpy_helper

os.chdir(sys.argv[1])
print("onnx", onnx.__version__, "onnxruntime", ort.__version__)
new = tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 21)

def save(folder, seed):
    os.makedirs(folder, exist_ok=True)
    weights = np.random.default_rng(seed).normal(size=(12, 4)).astype(np.float32)
    ends = [[helper.make_tensor_value_info(*one)] for one in (("x", 1, [1, 12]), ("y", 1, [1, 4]))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", *ends, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, f"{folder}/m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return weights.sum(axis=0)

def run(model, weights_in=None):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if weights_in:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.path.abspath(weights_in))
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.ones((1, 12), np.float32)})[0][0]

mine, stranger = save("mine", 0), save("stranger", 1)
data = open("mine/m.onnx", "rb").read()
os.chdir("stranger")
assert np.allclose(run(data), stranger, atol=1e-5)
print("1. from bytes, in a stranger's folder: the stranger's vector")
named = run(data, "../mine")
assert np.allclose(named, mine if new else stranger, atol=1e-5)
print("2. with the folder named:", "its own vector" if new else "the stranger's vector still")
os.chdir("..")
before = os.path.getsize("mine/w.bin")
save("mine", 0)
assert os.path.getsize("mine/w.bin") == 2 * before
print("3. saved twice:", before, "->", 2 * before, "bytes of weights")
PY
for version in 1.20.1 1.31.1; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q onnx==1.23.2 onnxruntime==$version "numpy<3" 2>/dev/null
  mkdir "$folder/in-$version"
  "$folder/$version/bin/python" "$folder/show.py" "$folder/in-$version"
done
