#!/usr/bin/env bash
# pynndescent: metric="dot" for vectors whose lengths differ.
#
# Guess: metric="dot" ranks by the dot product, as scikit-learn's linear kernel and other indexes' "dot" and "ip" do; or it is
#   refused for vectors that are not of unit length.
# What happens: vectors and queries are scaled to unit length without a word, and "dot" gives the neighbours and the distances of
#   "cosine", number by number. Of the five vectors of the largest dot product a tenth is found; metric="inner_product"
#   finds nearly all.
# Who meets it: those who index embeddings whose lengths carry meaning (recommenders, learned query and item sides), or who take
#   the name over from another index.
# Versions: pynndescent 0.7.0, NumPy 2.4.6, SciPy 1.17.1, scikit-learn 1.9.1, numba 0.68.1, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pynndescent==0.7.0 numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 numba==0.68.1 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import numpy as np
import pynndescent

print(*(f"{name} {version(name)}" for name in ("pynndescent", "numpy", "scipy", "scikit-learn", "numba")))
rng = np.random.default_rng(0)
vectors = rng.normal(size=(600, 32)) * np.exp(rng.normal(size=(600, 1)))
vectors, queries = vectors.astype(np.float32), rng.normal(size=(50, 32)).astype(np.float32)
wanted = np.argsort(-(queries @ vectors.T), axis=1)[:, :5]

answers = {}
for metric in ("dot", "cosine", "inner_product"):
    index = pynndescent.NNDescent(vectors, metric=metric, n_neighbors=15, random_state=0)
    answers[metric] = rows, distances = index.query(queries, k=5)
    kept = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(rows.tolist(), wanted.tolist())])
    print(f"{metric}: of the five best by dot product {kept:.2f}; first distances {distances[0, :2].round(3).tolist()}")
    assert (kept > 0.7) == (metric == "inner_product") and (kept < 0.3) == (metric != "inner_product")
same = (answers["dot"][0] == answers["cosine"][0]).mean()
print(f"same places by dot and by cosine: {same:.2f}")
assert same > 0.9 and np.allclose(answers["dot"][1], answers["cosine"][1], atol=1e-5)
PY
