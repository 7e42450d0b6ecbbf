#!/usr/bin/env bash
# ONNX models that resize their photos themselves (Resize with antialias=1, from opset 18), in OpenCV's dnn module and in OpenVINO.
#
# Guess: an engine that cannot average over the pixels that it leaves out refuses the model, as OpenCV refuses keep_aspect_ratio_policy and
#   OpenVINO refuses half_pixel_symmetric; preprocessing that was put into the graph is then the same everywhere, which is why it was put there.
# What happens, without a word:
#   1. Both take antialias=1 for 0, linear and cubic: four pixels (sixteen, cubic) count of each cell, however large it is. Noise shrunk
#      eightfold keeps six times the spread that averaging leaves. ONNX Runtime and tract give what Pillow gives, away from the borders,
#      and with exclude_outside=1 to the last pixel.
#   2. OpenVINO leaves out keep_aspect_ratio_policy as well, and stretches a 3:2 photo to the square; and exclude_outside.
#   Upwards, and with antialias=0, all agree.
# Who meets it: who exports PyTorch's interpolate(..., antialias=True), CLIP's or torchvision's Resize within the model, and serves it by
#   OpenCV or OpenVINO; a gallery that ONNX Runtime indexed. Large photos suffer most, those of the input's size not at all, and tests use
#   small ones.
# Versions: opencv-python-headless 5.0.0.93, openvino 2026.4.1, onnxruntime 1.32.0, tract 0.23.9, onnx 1.23.2, Pillow 13.0.0, NumPy 2.4.6,
#   Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opencv-python-headless==5.0.0.93 openvino==2026.4.1 onnxruntime==1.32.0 tract==0.23.9 onnx==1.23.2 pillow==13.0.0 \
  numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - "$folder/model.onnx" <<'PY'
import sys
from importlib.metadata import version

import cv2, numpy as np, onnx, onnxruntime, openvino, tract
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

print(*(f"{name} {version(name)}" for name in ("opencv-python-headless", "openvino", "onnxruntime", "tract", "onnx", "pillow", "numpy")))
photo = np.random.default_rng(0).normal(size=(1, 3, 256, 384)).astype(np.float32)
path = sys.argv[1]


def by_opencv(photo):
    net = cv2.dnn.readNetFromONNX(path)
    net.setInput(photo)
    return net.forward()


def by_openvino(photo):
    return openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([photo])[0]


ENGINES = {
    "OpenCV": by_opencv,
    "OpenVINO": by_openvino,
    "ONNX Runtime": lambda photo: onnxruntime.InferenceSession(path).run(None, {"x": photo})[0],
    "tract": lambda photo: tract.onnx().load(path).into_model().into_runnable().run([photo])[0].to_numpy(),
}


def results(size, **options):
    axes = {"axes": [2, 3]} if len(size) == 2 else {}
    node = helper.make_node("Resize", ["x", "", "", "size"], ["y"], cubic_coeff_a=-0.5, **options, **axes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", photo.shape), ("y", [1, 3, "h", "w"]))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(np.array(size), "size")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    onnx.checker.check_model(path, full_check=True)
    return {name: engine(photo) for name, engine in ENGINES.items() if name != "OpenCV" or "keep_aspect_ratio_policy" not in options}


for mode, pillow in (("linear", Image.BILINEAR), ("cubic", Image.BICUBIC)):
    smooth, sharp = (results([1, 3, 32, 48], mode=mode, antialias=each) for each in (1, 0))
    for name, y in smooth.items():
        print(f"{mode}, noise of spread 1 shrunk eightfold by {name}: spread {y.std():.2f}, with antialias=0 {sharp[name].std():.2f}")
    assert all(np.allclose(y, sharp["ONNX Runtime"], atol=1e-4) for y in sharp.values())
    assert all(np.allclose(smooth[name], sharp[name], atol=1e-4) for name in ("OpenCV", "OpenVINO"))
    expected = np.stack([np.asarray(Image.fromarray(plane).resize((48, 32), pillow)) for plane in photo[0]])
    bordered = results([1, 3, 32, 48], mode=mode, antialias=1, exclude_outside=1)
    for name in ("ONNX Runtime", "tract"):
        inner, whole = np.abs(smooth[name] - expected)[..., 2:-2, 2:-2].max(), np.abs(bordered[name] - expected).max()
        print(f"{mode}, {name} beside Pillow: off by {inner:.0e} away from the borders, by {whole:.0e} with exclude_outside=1")
        assert max(inner, whole) < 1e-5 and smooth[name].std() < 0.2 * sharp["OpenCV"].std()
    large = results([1, 3, 512, 768], mode=mode, antialias=1)
    assert all(np.allclose(y, large["ONNX Runtime"], atol=1e-4) for y in large.values())

kept = results([224, 224], mode="linear", keep_aspect_ratio_policy="not_larger")
print("not larger than 224 x 224:", {name: y.shape[2:] for name, y in kept.items()})
assert kept["OpenVINO"].shape[2:] == (224, 224) and kept["ONNX Runtime"].shape[2:] == (149, 224)
inner = results([1, 3, 200, 300], mode="cubic", exclude_outside=1)
differences = {name: float(np.abs(y - inner["ONNX Runtime"]).max()) for name, y in inner.items()}
print("exclude_outside=1, largest difference to ONNX Runtime:", {name: round(each, 3) for name, each in differences.items()})
assert all((each < 1e-3) == (name != "OpenVINO") for name, each in differences.items())
PY
