#!/usr/bin/env bash
# OpenCV 5's dnn module: ONNX models whose convolutions and pools have auto_pad="SAME_UPPER", as TensorFlow pads.
#
# Guess: SAME_UPPER puts the odd row and column of padding at the bottom and right, as ONNX says, as ONNX Runtime does, and as OpenCV 4 did; a
#   model that gave the right vectors under 4 gives them under 5, or is refused.
# What happens, without a word, by all three engines (AUTO, NEW, CLASSIC): OpenCV 5 pads SAME_UPPER as SAME_LOWER where a stride of 2 meets an
#   even side. A 3x3 convolution or pool of stride 2 looks a pixel up and to the left at 224, as at every even side; at odd sides (225) all is
#   right. The shifts add up: five such layers, from 224 to 7, look 31 pixels (1 + 2 + 4 + 8 + 16) away. Shapes are the right ones. SAME_LOWER is
#   wrong for even kernels (2x2). OpenCV 4.13 is right with SAME_UPPER and wrong with SAME_LOWER. Pads written out as numbers are right in both.
# Who meets it: who runs Keras and TensorFlow networks (MobileNet, EfficientNet, detectors) by OpenCV: tf2onnx 1.17 writes auto_pad where
#   the model's height or width is open, and numbers where they are fixed, so that it is the flexible export that goes wrong; galleries that
#   OpenCV 4 or ONNX Runtime indexed, searched by OpenCV 5.
# Versions: opencv-python-headless 5.0.0.93 and 4.13.0.92, onnx 1.23.2, onnxruntime 1.32.0, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q opencv-python-headless==5.0.0.93 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/pip" install -q --no-deps --target "$folder/four" opencv-python-headless==4.13.0.92 2>/dev/null
cat > "$folder/compare.py" <<'PY'
from importlib.metadata import version

import cv2, numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper

print("OpenCV", cv2.__version__, *(f"{name} {version(name)}" for name in ("onnx", "onnxruntime", "numpy")))
rng = np.random.default_rng(0)
five = cv2.__version__.startswith("5")
engines = [{"engine": getattr(cv2.dnn, f"ENGINE_{name}")} for name in ("AUTO", "NEW", "CLASSIC")] if five else [{}]


def model(kind, kernel, side, layers=1, stride=2, **padding):
    """Layers of one kind on four channels; the weights of convolutions are noise, the same at each call."""
    nodes, weights = [], []
    for layer in range(layers):
        if kind == "Conv":
            noise = np.random.default_rng(layer).normal(size=(4, 4, kernel, kernel)).astype(np.float32) / kernel
            weights.append(numpy_helper.from_array(noise, f"w{layer}"))
        inputs = [f"x{layer}", f"w{layer}"][: 1 + (kind == "Conv")]
        nodes.append(helper.make_node(kind, inputs, [f"x{layer + 1}"], kernel_shape=[kernel] * 2, strides=[stride] * 2, **padding))
    first = helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 4, side, side])
    last = helper.make_tensor_value_info(f"x{layers}", TensorProto.FLOAT, [1, 4, "h", "w"])
    graph = helper.make_graph(nodes, "g", [first], [last], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()


def by_opencv(data, image, engine):
    net = cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8), **engine)
    net.setInput(image)
    return net.forward()


def by_runtime(data, image):
    return onnxruntime.InferenceSession(data).run(None, {"x0": image})[0]


def same(a, b):
    return a.shape == b.shape and np.allclose(a, b, atol=1e-4)


CASES = (224, 3, 2, "SAME_UPPER"), (225, 3, 2, "SAME_UPPER"), (224, 3, 1, "SAME_UPPER"), (224, 3, 2, "SAME_LOWER"), (224, 2, 1, "SAME_LOWER"), (224, 3, 2, None)
for kind in ("Conv", "MaxPool", "AveragePool"):
    for side, kernel, stride, mode in CASES:
        image = rng.normal(size=(1, 4, side, side)).astype(np.float32)
        data = model(kind, kernel, side, stride=stride, **({"auto_pad": mode} if mode else {"pads": [0, 0, 1, 1]}))
        right = [same(by_opencv(data, image, engine), by_runtime(data, image)) for engine in engines]
        print(f"{kind} {kernel}x{kernel}, stride {stride}, side {side}, {mode or 'pads in numbers'}: right {right}")
        broken = {(224, 3, 2, "SAME_UPPER"), (224, 2, 1, "SAME_LOWER")} if five else {(224, 3, 2, "SAME_LOWER"), (224, 2, 1, "SAME_LOWER")}
        assert set(right) == {(side, kernel, stride, mode) not in broken}

image = np.zeros((1, 4, 224, 224), np.float32)
image[..., 80:160, 80:160] = rng.normal(size=(1, 4, 80, 80))
data = model("Conv", 3, 224, layers=5, auto_pad="SAME_UPPER")
got, right, moved = by_opencv(data, image, engines[0]), by_runtime(data, image), by_runtime(data, np.roll(image, 31, axis=(2, 3)))
print(f"five layers of stride 2, shape {got.shape}: right {same(got, right)}, right for the image 31 pixels further down and to the right {same(got, moved)}")
assert (same(got, right), same(got, moved)) == (not five, five)
PY
"$folder/venv/bin/python" "$folder/compare.py"
PYTHONPATH="$folder/four" "$folder/venv/bin/python" "$folder/compare.py"
