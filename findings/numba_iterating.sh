#!/usr/bin/env bash
# Numba: a loop over the elements of an array, beside the same loop over their numbers.
#
# Guess: "for x in a" and "for i in range(len(a)): x = a[i]" compile to the same machine code; the first reads better and saves a
#   check of bounds.
# What happens: the first keeps an iterator with a counter of its own, and LLVM does not turn the loop into vector instructions:
#   counting elements below a value takes some 8 times as long, a sum with fastmath=True some 25 times. A slice makes no difference.
# Who meets it: authors of kernels on long float32 vectors (counts of a ranking, sums, norms), who write the loop as in Python.
# Versions: Numba 0.68.1, NumPy 2.4.6, Python 3.11, x86-64 with AVX2. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numba==0.68.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import time

import numba
import numpy as np

print("Numba", numba.__version__, "NumPy", np.__version__, "on", numba.core.config.NUMBA_DEFAULT_NUM_THREADS, "threads")


@numba.njit
def count_elements(a, value):
    n = 0
    for x in a:
        n += x < value
    return n


@numba.njit
def count_numbers(a, value):
    n = 0
    for i in range(len(a)):
        n += a[i] < value
    return n


@numba.njit(fastmath=True)
def sum_elements(a):
    total = np.float32(0)
    for x in a:
        total += x
    return total


@numba.njit(fastmath=True)
def sum_numbers(a):
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i]
    return total


def least(function, *arguments):
    function(*arguments)  # compiles
    times = []
    for _ in range(200):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


a = np.random.default_rng(0).random(100_000).astype(np.float32)
value = np.float32(0.5)
assert count_elements(a, value) == count_numbers(a, value) == (a < value).sum()
for slow, fast, arguments in ((count_elements, count_numbers, (a, value)), (sum_elements, sum_numbers, (a,))):
    times = least(slow, *arguments), least(fast, *arguments)
    print(f"{slow.__name__} {times[0]:.1f} us, {fast.__name__} {times[1]:.1f} us: {times[0] / times[1]:.0f} times as long")
    assert times[0] > 3 * times[1]
PY
