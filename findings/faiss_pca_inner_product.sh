#!/usr/bin/env bash
# faiss: "PCA32,Flat" by inner product, of unit vectors, with as many dimensions as there were.
#
# Guess: PCA to all dimensions is a rotation, and keeps inner products as it keeps distances; for unit vectors (cosine) METRIC_L2 and
#   METRIC_INNER_PRODUCT rank alike, with PCA as without.
# What happens: the mean is taken off vectors and queries, and inner products are those of what is left: scores are others (0.32 for
#   0.78), and of the ten best by cosine two fifths are found. METRIC_L2 over the same vectors finds all, as do other rotations by
#   inner product (RR). With the PCA's bias set to 0 by hand inner products are right again.
# Who meets it: who writes "PCA64,IVF...,Flat" in the factory for embeddings of networks, whose mean is far from 0, and cosine; the
#   loss is put down to what was cut off, or to IVF and PQ.
# Versions: faiss-cpu 1.15.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q faiss-cpu==1.15.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import faiss, numpy as np

print("faiss", faiss.__version__, "NumPy", np.__version__)
rng = np.random.default_rng(0)
mean = rng.normal(size=32)
vectors, queries = ((rng.normal(size=(n, 32)) + mean).astype(np.float32) for n in (2000, 50))
for rows in (vectors, queries):
    faiss.normalize_L2(rows)
best = np.argsort(-queries @ vectors.T, axis=1)[:, :10]
print(f"length of the mean of the unit vectors: {np.linalg.norm(vectors.mean(axis=0)):.2f}")


def kept(index):
    index.add(vectors)
    scores, rows = index.search(queries, 10)
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows.tolist(), best.tolist())]), scores[0, 0]


shares = {}
for factory in ("Flat", "RR32,Flat", "PCA32,Flat", "PCAR32,Flat", "PCA24,Flat"):
    for name, metric in (("L2", faiss.METRIC_L2), ("inner product", faiss.METRIC_INNER_PRODUCT)):
        index = faiss.index_factory(32, factory, metric)
        index.train(vectors)
        shares[factory, name], score = kept(index)
        print(f"{factory} by {name}: of the ten best by cosine {shares[factory, name]:.2f}, first score {score:.3f}")
index = faiss.index_factory(32, "PCA32,Flat", faiss.METRIC_INNER_PRODUCT)
index.train(vectors)
turn = faiss.downcast_VectorTransform(index.chain.at(0))
faiss.copy_array_to_vector(np.zeros(32, np.float32), turn.b)
without, score = kept(index)
print(f"PCA32,Flat by inner product, bias set to 0: {without:.2f}, first score {score:.3f}")
assert without > 0.99 and abs(score - (queries[0] @ vectors.T).max()) < 1e-4
assert all(shares[factory, "L2"] > 0.99 for factory in ("Flat", "RR32,Flat", "PCA32,Flat", "PCAR32,Flat"))
assert shares["Flat", "inner product"] > 0.99 and shares["RR32,Flat", "inner product"] > 0.99
assert all(shares[factory, "inner product"] < 0.5 for factory in ("PCA32,Flat", "PCAR32,Flat", "PCA24,Flat"))
assert shares["PCA24,Flat", "L2"] > shares["PCA24,Flat", "inner product"]
PY
