#!/usr/bin/env bash
# Numba: float(x) of a 32-bit number, in kernels that sum in double precision.
#
# Guess: float(x) is Python's float, 64 bits, in compiled code as without the decorator: a kernel that writes
#   float(a[i]) - float(b[i]) subtracts and multiplies in double precision.
# What happens: float(x) of a float32 stays a float32. Differences and squares are rounded to 32 bits; only the sum is wider, if its
#   first value is (total = 0.0). The same function, called as function.py_func or with NUMBA_DISABLE_JIT=1, gives other numbers,
#   so that a test against the plain form, or coverage without compiling, disagrees in the last digits. np.float64(x) does widen.
# Who meets it: authors of kernels on float32 vectors (distances, sums of squares), who take float() for "in double precision", and
#   whose nearest neighbours then differ between the compiled and the plain form.
# Versions: Numba 0.68.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numba==0.68.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import numba
import numpy as np

print("Numba", numba.__version__, "NumPy", np.__version__)


@numba.njit
def by_float(a, b):
    total = 0.0
    for i in range(len(a)):
        difference = float(a[i]) - float(b[i])
        total += difference * difference
    return total


@numba.njit
def by_float64(a, b):
    total = 0.0
    for i in range(len(a)):
        difference = np.float64(a[i]) - np.float64(b[i])
        total += difference * difference
    return total


@numba.njit
def width(x):
    return float(x)


rng = np.random.default_rng(0)
a, b = rng.random((2, 64)).astype(np.float32)
exact = float(((a.astype(float) - b.astype(float)) ** 2).sum())
for function in (by_float, by_float64):
    compiled, plain = function(a, b), float(function.py_func(a, b))
    print(f"{function.__name__}: compiled {compiled:.17g}, plain {plain:.17g}, exact {exact:.17g}")
    assert abs(plain - exact) < 1e-14
    assert (abs(compiled - exact) < 1e-14) == (function is by_float64)
width(np.float32(0.1))
print("what float() of a float32 returns:", width.nopython_signatures[0].return_type)
assert width.nopython_signatures[0].return_type == numba.float32
PY
