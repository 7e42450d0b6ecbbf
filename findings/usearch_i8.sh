#!/usr/bin/env bash
# usearch: an index of dtype="i8" by inner product, and a batch of queries that asks for more than there is.
#
# Guess: dtype="i8" rounds numbers, by one scale or one per row, and ranks by inner product as "f16" does, a little worse; what
#   get() and search() return is in the units of the vectors. A batch of queries that asks for more results than there are
#   vectors is filled up with a key that no vector can have, or cut.
# What happens:
#   1. Each vector is scaled to one length and this length is dropped: metric="ip" ranks as "cos" does. Of the ten best by inner
#      product, where rows have different lengths, a tenth remains; f16 keeps all. Rows a hundred times as long, or as short,
#      give the same index. Distances are those of whole numbers, such as -5607.
#   2. A batch is filled up with key 0, which is that of a vector where keys count from 0, with NaN as distance, or whatever `counts`
#      says; one query alone is cut.
# Who meets it: users of embeddings whose lengths carry meaning (popularity, recommenders, learned spaces), who choose i8 for its
#   size; programs that take `keys` of a batch as they are.
# Versions: usearch 2.26.6, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q usearch==2.26.6 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import numpy as np, usearch
from usearch.index import Index

print("usearch", usearch.__version__, "NumPy", np.__version__)
rng = np.random.default_rng(0)
rows, queries = (rng.normal(size=(n, 64)).astype(np.float32) for n in (1000, 100))
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
queries /= np.linalg.norm(queries, axis=1, keepdims=True)
lengths = np.exp(rng.normal(size=(1000, 1))).astype(np.float32)

def search(vectors, dtype, metric="ip", exact=True):
    index = Index(ndim=64, metric=metric, dtype=dtype)
    index.add(np.arange(1000, dtype=np.uint64), vectors)
    return index.search(queries, 10, exact=exact)

def kept(answer, scores):
    best = np.argsort(-scores, axis=1)[:, :10]
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(answer.keys.tolist(), best.tolist())])

long = rows * lengths
half, whole = search(long, "f16"), search(long, "i8")
print(f"1. kept of the ten best by inner product: f16 {kept(half, queries @ long.T):.2f}, i8 {kept(whole, queries @ long.T):.2f}")
print(f"   kept of the ten best by cosine: i8 {kept(whole, queries @ rows.T):.2f}; first distance {whole.distances[0, 0]:.0f}")
assert kept(half, queries @ long.T) > 0.98
assert kept(whole, queries @ long.T) < 0.3
assert kept(whole, queries @ rows.T) > 0.9
for factor in (100, 0.01):
    assert (search(rows * np.float32(factor), "i8").keys == search(rows, "i8").keys).all()
assert whole.distances[0, 0] < -1000

index = Index(ndim=64, metric="ip", dtype="f32")
index.add(np.arange(3, dtype=np.uint64), rows[:3])
batch, alone = index.search(queries[:2], 6), index.search(queries[0], 6)
print("2. keys of a batch", batch.keys[0].tolist(), "counts", batch.counts.tolist(), "; of a query alone", alone.keys.tolist())
assert batch.keys[0].tolist()[3:] == [0, 0, 0] and 0 in batch.keys[0].tolist()[:3]
assert batch.counts.tolist() == [3, 3] and len(alone.keys) == 3
PY
