#!/usr/bin/env bash
# nanopq: OPQ(metric="dot"), and faiss_to_nanopq of an index by inner product.
#
# Guess: OPQ(metric="dot") ranks by inner product as PQ(metric="dot") does, a little better for its rotation, and adist() is largest for the
#   best. faiss_to_nanopq keeps the metric of the index, as nanopq_to_faiss does.
# What happens:
#   1. OPQ.fit makes its quantizer anew, without the metric: before it `opq.pq.metric` is "dot", afterwards "l2". dtable() then holds squared
#      Euclidean distances. Ranked by the largest adist(), as "dot" asks for, what comes first is the farthest: 0.2 of the ten
#      best are kept, by the smallest none, where PQ(metric="dot") keeps 0.8.
#   2. faiss_to_nanopq of an IndexPQ by inner product gives metric "l2", and nanopq_to_faiss of that an index by L2: there and back again,
#      and of the ten best by inner product none is left.
# Who meets it: who tries OPQ in place of PQ for maximum inner product and finds it worse; who exchanges a trained quantizer with FAISS.
#   With vectors and queries of one length the two metrics rank nearly alike, once the sign is turned.
# Versions: nanopq 0.2.2, faiss-cpu 1.15.1, NumPy 2.4.6, SciPy 1.17.1, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q nanopq==0.2.2 faiss-cpu==1.15.1 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import faiss
import nanopq
import numpy as np

print(*(f"{name} {version(name)}" for name in ("nanopq", "faiss-cpu", "numpy", "scipy")))
rng = np.random.default_rng(0)
vectors = (rng.normal(size=(4000, 32)) * np.exp(rng.normal(size=(4000, 1)))).astype(np.float32)
queries = rng.normal(size=(50, 32)).astype(np.float32)
best = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]


def kept(found):
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), best.tolist())])


by = {}
for kind in (nanopq.PQ, nanopq.OPQ):
    quantizer = kind(M=16, metric="dot", verbose=False)
    before = getattr(quantizer, "pq", quantizer).metric
    quantizer.fit(vectors[:3000])
    after = getattr(quantizer, "pq", quantizer).metric
    codes = quantizer.encode(vectors)
    tables = [quantizer.dtable(query).adist(codes) for query in queries]
    by[kind] = [kept(np.array([np.argsort(sign * table)[:10] for table in tables])) for sign in (-1, 1)]
    print(f"1. {kind.__name__}: metric {before}, after fit {after}; kept by the largest adist {by[kind][0]:.2f}, by the smallest {by[kind][1]:.2f}")
    assert (before, after) == ("dot", "dot" if kind is nanopq.PQ else "l2")
assert by[nanopq.PQ][0] > 0.7 and max(by[nanopq.OPQ]) < 0.4

index = faiss.IndexPQ(32, 16, 8, faiss.METRIC_INNER_PRODUCT)
index.train(vectors[:3000])
quantizer = nanopq.faiss_to_nanopq(index)
quantizer = quantizer[0] if isinstance(quantizer, tuple) else quantizer
again = nanopq.nanopq_to_faiss(quantizer)
for one in (index, again):
    one.add(vectors)
there, back = kept(index.search(queries, 10)[1]), kept(again.search(queries, 10)[1])
print(f"2. FAISS by inner product keeps {there:.2f}; from nanopq (metric {quantizer.metric}) and back {back:.2f}")
assert quantizer.metric == "l2" and again.metric_type == faiss.METRIC_L2
assert there > 0.7 and back < 0.1
PY
