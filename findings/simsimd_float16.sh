#!/usr/bin/env bash
# SimSIMD: cosine distance of float16 vectors on processors with AVX512-FP16.
#
# Guess: cosine(a, b) of two float16 vectors is that of their float32 copies, up to the rounding of what comes in; it has no units, so
#   the scale of the vectors (counts, pixels, activations before normalisation) does not matter. Another processor changes the last
#   digits.
# What happens: where the processor has AVX512-FP16 (Xeons of the fourth generation and later, as clouds rent them), sums are kept in
#   float16, too. Where the squares of a vector add up to more than 65,504, which 64 numbers up to 100 do, dot() is inf, and cosine() is
#   0.0, "the same direction", for all pairs; cdist() gives zeros likewise. No error, no warning, no NaN: all vectors tie for first.
#   The same call is right to six digits on an older processor, and on this one after disable_capability("sapphire"). Below the limit,
#   distances are off by 0.0007, and near neighbours change places.
# Who meets it: who halves the memory of vectors that are not of unit length, tries it on a laptop and serves it in a cloud.
# Versions: simsimd 6.5.16, NumPy 2.4.6, Python 3.11. Date: 2026-11-29.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q simsimd==6.5.16 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata
import sys

import numpy as np, simsimd

print("SimSIMD", importlib.metadata.version("simsimd"), "NumPy", np.__version__)
if not simsimd.get_capabilities()["sapphire"]:
    sys.exit("this processor has no AVX512-FP16: nothing to see here")

rng = np.random.default_rng(0)

def right(X):
    X = X.astype(float)
    return 1 - X[1:] @ X[0] / np.linalg.norm(X[1:], axis=1) / np.linalg.norm(X[0])

def compared(X, what):
    there = np.array([simsimd.cosine(X[0], x) for x in X[1:]])
    many = np.asarray(simsimd.cdist(X[:1], X[1:], metric="cosine"))[0]
    print(f"{what:50}", "dot", f"{simsimd.dot(X[0], X[1]):.6g}", "of", f"{X[0].astype(float) @ X[1].astype(float):.6g}; cosine distances",
          there[:3].round(4), "of", right(X)[:3].round(4))
    return there, many

large = (rng.random((200, 64)) * 100).astype(np.float16)
small = rng.random((200, 1280)).astype(np.float16)
there, many = compared(large, "64 numbers up to 100")
assert np.isinf(simsimd.dot(large[0], large[1])) and (there == 0).all() and (many == 0).all() and right(large).min() > 0.05
there, _ = compared(small, "1,280 numbers up to 1")
assert 1e-4 < np.abs(there - right(small)).max() < 1e-2
simsimd.disable_capability("sapphire")
for X, what in ((large, "64 numbers up to 100, sapphire disabled"), (small, "1,280 numbers up to 1, sapphire disabled")):
    there, many = compared(X, what)
    assert np.abs(there - right(X)).max() < 1e-5 and np.abs(many - right(X)).max() < 1e-5
PY
