#!/usr/bin/env bash
# NumPy arrays whose bytes stand in the other order (">u2", ">f4"), on their way to OpenCV and ONNX Runtime.
#
# Guess: the order of bytes is part of an array's type: a library swaps them, as faiss, hnswlib and Polars do, or refuses such arrays,
#   as PyArrow, usearch and Numba do. Pillow hands over what it decoded in the order of the machine.
# What happens: OpenCV and ONNX Runtime take the bytes as they lie, under the type of the other order. A level of 500 is 62,465, a pixel
#   value of 1.0 is 4.6e-41; shapes, types and the calls' success are those of the right answer. This holds for resizing, colours,
#   imencode (a PNG of noise), matching descriptors, and for session.run and OrtValue alike.
# Who meets it: whoever opens a big-endian TIFF of 16 bits by Pillow (mode I;16B, whose array is ">u2"), or reads HDF5, FITS, NetCDF 3,
#   MNIST's IDX or Java's files, where such numbers are usual, and resizes or embeds them. np.save and np.load keep the order.
# Versions: opencv-python-headless 5.0.0.93, onnxruntime 1.31.1, Pillow 13.0.0, faiss-cpu 1.15.1, hnswlib 0.8.0, pyarrow 26.0.1,
#   polars 2.1.0, numba 0.68.1, usearch 2.26.6, NumPy 2.4.6, Python 3.11, x86-64. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opencv-python-headless==5.0.0.93 onnxruntime==1.31.1 onnx==1.23.2 pillow==13.0.0 tifffile==2026.3.3 \
  faiss-cpu==1.15.1 hnswlib==0.8.0 pyarrow==26.0.1 polars==2.1.0 numba==0.68.1 usearch==2.26.6 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
import io
import sys
from importlib.metadata import version

import cv2, faiss, hnswlib, numba, numpy as np, onnx, onnxruntime as ort, polars as pl, pyarrow as pa, tifffile, usearch.index
from PIL import Image

print(*(f"{name} {version(name)}" for name in ("opencv-python-headless", "onnxruntime", "pillow", "numpy")), "order here:", sys.byteorder)
assert sys.byteorder == "little"

def opened(order):
    file = io.BytesIO()
    tifffile.imwrite(file, levels, byteorder=order, photometric="minisblack")
    return Image.open(file)

levels = (np.arange(64 * 64).reshape(64, 64) * 8 + 500).astype(np.uint16)
pictures = {order: opened(order) for order in "<>"}
arrays = {order: np.asarray(picture) for order, picture in pictures.items()}
print("Pillow's modes and arrays:", [(pictures[order].mode, arrays[order].dtype.str) for order in "<>"])
assert np.array_equal(arrays["<"], arrays[">"]) and arrays[">"].dtype.str == ">u2"

def read_back(array):
    return cv2.imdecode(cv2.imencode(".png", array)[1], cv2.IMREAD_UNCHANGED)

vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
ends = [[onnx.helper.make_tensor_value_info(name, 1, [None, 8])] for name in "xy"]
graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", *ends)
made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])

def by_hnswlib(x):
    index = hnswlib.Index("l2", 8)
    index.init_index(len(x))
    index.add_items(x)
    return index.get_items(range(len(x)))

def by_usearch(x):
    index = usearch.index.Index(ndim=8, metric="l2sq", dtype="f32")
    index.add(np.arange(len(x)), x)
    return index.get(np.arange(len(x)))

CASES = {  # kind -> what goes in, and what becomes of it
    "OpenCV: resize": (levels, lambda x: cv2.resize(x, (32, 32), interpolation=cv2.INTER_AREA)),
    "OpenCV: cvtColor": (levels, lambda x: cv2.cvtColor(x, cv2.COLOR_GRAY2BGR)),
    "OpenCV: imencode": (levels, read_back),
    "OpenCV: BFMatcher": (vectors, lambda x: [match.distance for match in cv2.BFMatcher().match(vectors[:5] + 1, x)]),
    "ONNX Runtime: run": (vectors, lambda x: session.run(None, {"x": x})[0]),
    "ONNX Runtime: OrtValue": (vectors, lambda x: ort.OrtValue.ortvalue_from_numpy(x).numpy()),
    "faiss": (vectors, lambda x: faiss.knn(vectors[:5], x, 3)[0]),
    "hnswlib": (vectors, by_hnswlib),
    "Polars": (vectors, lambda x: pl.from_numpy(x).to_numpy()),
    "PyArrow": (vectors, lambda x: pa.array(x.ravel()).to_numpy()),
    "usearch": (vectors, by_usearch),
    "Numba": (vectors, numba.njit(lambda x: x * 1)),
}
outcomes = {}
for kind, (native, function) in CASES.items():
    right = np.asarray(function(native))
    try:
        answer = np.asarray(function(native.astype(native.dtype.newbyteorder(">"))))
    except Exception as error:
        outcomes[kind] = f"refused ({type(error).__name__})"
    else:
        assert answer.shape == right.shape and answer.dtype == right.dtype
        outcomes[kind] = "the same" if np.allclose(answer, right, atol=1e-5) else "other numbers"
    print(f"{kind}: {outcomes[kind]}")
one = session.run(None, {"x": np.ones((1, 8), ">f4")})[0][0, 0]
print("a level of 500 by OpenCV:", cv2.resize(arrays[">"], None, fx=1, fy=1)[0, 0], "; 1.0 by ONNX Runtime:", one)
assert cv2.resize(arrays[">"], None, fx=1, fy=1)[0, 0] == 62465 and 0 < one < 1e-40
assert all((outcomes[kind] == "other numbers") == kind.startswith(("OpenCV", "ONNX")) for kind in CASES)
assert all(outcomes[kind] == "the same" for kind in ("faiss", "hnswlib", "Polars"))
PY
