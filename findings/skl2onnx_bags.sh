#!/usr/bin/env bash
# skl2onnx: scikit-learn's steps for bags of words (or of visual terms), as an ONNX model.
#
# Guess: a step that converts without a warning computes what scikit-learn does, to the last digits of float32; skl2onnx refuses what it
#   cannot express, as it does for other metrics of nearest neighbours.
# What happens:
#   1. TfidfTransformer(sublinear_tf=True) becomes log(1 + tf) for 1 + log(tf): a term that occurs once weighs 0.69, one that occurs a
#      hundred times 4.6 for 5.6. After idf and unit length rows differ by a degree or two, neighbours change, and nothing fails.
#   2. Normalizer("max") divides by the largest number, where scikit-learn divides by the largest magnitude: rows whose largest magnitude is
#      negative come out larger than 1, and a row of negative numbers alone changes its signs.
#   3. KernelPCA(kernel="cosine") of a row without a term is NaN, where scikit-learn projects the zero vector; Normalizer keeps zeros.
# Who meets it: who serves tf-idf vectors from ONNX beside a gallery that scikit-learn made; who scales signed features (centred, hashed);
#   whose photo or text has no known term, which then ranks nowhere, or first.
# Versions: skl2onnx 1.20.0, onnx 1.23.2, onnxruntime 1.32.0, scikit-learn 1.9.1, Python 3.11. Date: 2026-11-29.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q skl2onnx==1.20.0 onnx==1.23.2 onnxruntime==1.32.0 scikit-learn==1.9.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
import onnxruntime
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.decomposition import KernelPCA
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import Normalizer

print(*(f"{name} {version(name)}" for name in ("skl2onnx", "onnx", "onnxruntime", "scikit-learn", "numpy")))


def both(step, rows):
    """Return what scikit-learn gives, and what the converted step gives."""
    step.fit(rows)
    model = convert_sklearn(step, initial_types=[("X", FloatTensorType([None, rows.shape[1]]))])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = step.transform(rows)
    return np.asarray(ours.todense() if hasattr(ours, "todense") else ours), session.run(None, {"X": rows})[0]


counts = np.array([[1, 0, 2, 100], [0, 1, 1, 0]], np.float32)
ours, theirs = both(TfidfTransformer(norm=None, use_idf=False, sublinear_tf=True), counts)
print("1. counts 1, 0, 2, 100:", ours[0].round(2), "and", theirs[0].round(2))
assert np.allclose(ours, np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0))
assert np.allclose(theirs, np.log1p(counts))

rng = np.random.default_rng(0)
bags = rng.poisson(rng.gamma(0.3, 1, (300, 200))).astype(np.float32)
plain, converted = both(TfidfTransformer(), bags)
assert np.allclose(plain, converted, atol=1e-6)  # without sublinear_tf all is right
ours, theirs = both(TfidfTransformer(sublinear_tf=True), bags)
angle = np.degrees(np.arccos(np.clip((ours * theirs).sum(axis=1), -1, 1)))


def nearest(queries):
    products = queries @ ours.T
    np.fill_diagonal(products, -1)
    return np.argsort(-products, axis=1)[:, :5]


same = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(nearest(ours).tolist(), nearest(theirs).tolist())])
print(f"   300 bags of 200 terms: {np.median(angle):.1f} degrees apart, {same:.0%} of the five nearest are the same")
assert np.median(angle) > 0.5 and same < 0.99

signed = np.array([[1, -4, 2], [-1, -2, -4]], np.float32)
ours, theirs = both(Normalizer("max"), signed)
print("2. Normalizer('max'):", ours.tolist(), "and", theirs.tolist())
assert np.allclose(ours, signed / 4) and np.allclose(theirs, signed / signed.max(axis=1, keepdims=True))

bags[0] = 0
ours, theirs = both(KernelPCA(3, kernel="cosine"), bags)
print("3. KernelPCA('cosine') of an empty bag:", ours[0].round(3), "and", theirs[0])
assert np.isfinite(ours).all() and np.isnan(theirs[0]).all() and np.isfinite(theirs[1:]).all()
ours, theirs = both(Normalizer(), bags)
assert not ours[0].any() and not theirs[0].any()
PY
