#!/usr/bin/env bash
# pynear: which of the k results comes first, and in what units distances are.
#
# Guess: "sorted nearest-first", as its page says of searchKNN, for all indexes, which have one interface so that one can be tried for another; a
#   class called L2 returns Euclidean distances, or each of them squared ones.
# What happens:
#   1. Vantage-point trees and HNSW put the *farthest* of the k first, for all metrics, dense and binary; IVFFlat and MIH, as well as
#      searchKNN_arrays of the very same trees, put the nearest first. results[0] of a photo of the gallery is not the photo itself. With k=1,
#      and as sets, which recall compares, all agree.
#   2. VPTreeL2Index and HNSWL2Index return distances, IVFFlatL2Index squares of them: a threshold for duplicates that was found on one of
#      them is another one on the other.
# Who meets it: who takes the first of k, cuts a list at n, or weights by rank; who goes over from trees to IVFFlat for wide vectors, as
#   the page advises; binary hashes (ORB, perceptual hashes) by VPTreeBinaryIndex and MIHBinaryIndex.
# Versions: pynear 2.6.0, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pynear==2.6.0 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
import pynear

print(*(f"{name} {version(name)}" for name in ("pynear", "numpy")))
rng = np.random.default_rng(0)
floats = rng.normal(size=(500, 16)).astype(np.float32)
units = floats / np.linalg.norm(floats, axis=1, keepdims=True)
bits = rng.integers(0, 2, size=(500, 128))
bits[1:9] = bits[0] ^ np.tri(8, 128, dtype=int)  # near copies, as MIH looks for
codes = np.packbits(bits, axis=1)
gaps = np.abs(floats[0] - floats)
away = {"L2": np.linalg.norm(gaps, axis=1), "L1": gaps.sum(axis=1), "Chebyshev": gaps.max(axis=1), "Cosine": 1 - units @ units[0]}
away["Binary"] = (bits != bits[0]).sum(axis=1)
KINDS = {"VPTree": ["L2", "L1", "Chebyshev", "Cosine", "Binary"], "HNSW": ["L2", "Cosine", "Binary"], "IVFFlat": ["L2", "Cosine", "Binary"], "MIH": ["Binary"]}
orders, units_of = {}, {}
for kind, metrics in KINDS.items():
    for metric in metrics:
        rows = codes if metric == "Binary" else floats
        index = getattr(pynear, f"{kind}{metric}Index")()
        index.set(rows)
        (found,), (distances,) = index.searchKNN(rows[:1], 5)
        steps = np.diff(away[metric][found])
        order = "nearest first" if (steps >= 0).all() else "farthest first" if (steps <= 0).all() else "neither"
        orders.setdefault(kind, set()).add(order)
        right = next((power for power in (1, 2) if np.allclose(distances, away[metric][found] ** power, atol=1e-3)), None)
        units_of[kind, metric] = {1: "distances", 2: "squares", None: "other numbers"}[right]
        print(f"{kind}{metric}Index: photo 0 is at place {list(found).index(0)} of 0 to 4; {order}; {units_of[kind, metric]}")
assert orders == {"VPTree": {"farthest first"}, "HNSW": {"farthest first"}, "IVFFlat": {"nearest first"}, "MIH": {"nearest first"}}
assert {case for case, units in units_of.items() if units != "distances"} == {("IVFFlat", "L2")} and units_of["IVFFlat", "L2"] == "squares"

tree = pynear.VPTreeL2Index()
tree.set(floats)
lists, arrays = tree.searchKNN(floats[:1], 5)[0][0], tree.searchKNN_arrays(floats[:1], 5)[0][0].tolist()
print("the same tree by searchKNN", lists, "and by searchKNN_arrays", arrays)
assert arrays == list(reversed(lists)) == np.argsort(away["L2"])[:5].tolist()
PY
