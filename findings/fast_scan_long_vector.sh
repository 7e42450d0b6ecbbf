#!/usr/bin/env bash
# ScaNN and faiss: distances from tables of 8 bits ("fast scan"), by squared L2, in a gallery with one long vector.
#
# Guess: one vector of 5,000 that is 30 times as long as the others costs itself, or one of the 16 centres of each part; other vectors
#   are found as before, as nobody's codes changed much, and what the tables lose is made up by re-ranking 100 candidates exactly.
# What happens, without a word: of the ten nearest 0.02 are found in ScaNN (score_ah with reorder(100)) and a fifth in faiss
#   ("PQ16x4fs,RFlat", 100 candidates as well), where both had 1.00. A vector 20 times as long costs ScaNN two thirds. All queries are hit,
#   however far from that vector. What fits: the table of a query has an entry per centre, and all of it is brought to 8 bits by one scale;
#   the entry of the far centre takes the range, and those that matter become 0, as do all distances of ScaNN before re-ranking.
#   Codes of the same size with tables of floats ("PQ16x4,RFlat") stay at 1.00, so that it is not the codebook; hash_type="lut256" does not help;
#   a tree before the hashes makes it worse. By inner product, where entries grow by the length and not by its square, 30 is harmless.
# Who meets it: who indexes vectors that are not of unit length (counts, activations, learned spaces), where a broken file, a huge scan or
#   a sum in place of a mean made one long one; recall measured before that photo came was good.
# Versions: scann 1.4.2, faiss-cpu 1.15.1, NumPy 2.4.6, Python 3.11, x86-64 with AVX2. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q scann==1.4.2 faiss-cpu==1.15.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - 2> >(grep -vE "^([IW][0-9]|WARNING: All log)" >&2) <<'PY'
from importlib.metadata import version

import faiss, numpy as np
from scann import scann_ops_pybind

print(*(f"{name} {version(name)}" for name in ("scann", "faiss-cpu", "numpy")))
rng = np.random.default_rng(0)
centres = rng.normal(size=(50, 32)) * 2
vectors, queries = ((centres[rng.integers(0, 50, n)] + rng.normal(size=(n, 32))).astype(np.float32) for n in (5000, 100))


def by_scann(rows, metric, tree=False, **options):
    builder = scann_ops_pybind.builder(rows, 10, metric)
    if tree:
        builder = builder.tree(50, 50, training_sample_size=5000)
    return builder.score_ah(2, **options).reorder(100).build().search_batched(queries)[0]


def by_faiss(rows, factory, metric=faiss.METRIC_L2):
    index = faiss.index_factory(32, factory, metric)
    index.train(rows)
    index.add(rows)
    return index.search(queries, 10, params=faiss.IndexRefineSearchParameters(k_factor=10))[1]


def kept(rows, found, scores):
    best = np.argsort(scores, axis=1)[:, :10]
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), best.tolist())])


shares = {}
for times in (1, 20, 30):
    rows = vectors.copy()
    rows[0] *= times
    squares, products = ((queries[:, None] - rows) ** 2).sum(axis=2), -queries @ rows.T
    shares[times] = {
        "ScaNN": kept(rows, by_scann(rows, "squared_l2"), squares),
        "ScaNN lut256": kept(rows, by_scann(rows, "squared_l2", hash_type="lut256"), squares),
        "ScaNN with a tree": kept(rows, by_scann(rows, "squared_l2", tree=True), squares),
        "faiss PQ16x4fs": kept(rows, by_faiss(rows, "PQ16x4fs,RFlat"), squares),
        "faiss PQ16x4": kept(rows, by_faiss(rows, "PQ16x4,RFlat"), squares),
        "ScaNN, inner product": kept(rows, by_scann(rows, "dot_product"), products),
        "faiss PQ16x4fs, inner product": kept(rows, by_faiss(rows, "PQ16x4fs,RFlat", faiss.METRIC_INNER_PRODUCT), products),
    }
    print(f"one vector {times} times as long, of the ten nearest:", {name: round(float(share), 2) for name, share in shares[times].items()})
plain = scann_ops_pybind.builder(rows, 10, "squared_l2").score_ah(2).build().search_batched(queries)[1]
print("ScaNN's distances before re-ranking, one vector 30 times as long:", np.unique(plain))
assert (plain == 0).mean() > 0.9
assert all(share > 0.98 for share in shares[1].values())
assert shares[20]["ScaNN"] < 0.6 and shares[20]["ScaNN with a tree"] < 0.2
assert all(shares[30][name] < 0.1 for name in ("ScaNN", "ScaNN lut256", "ScaNN with a tree")) and shares[30]["faiss PQ16x4fs"] < 0.4
assert all(shares[times]["faiss PQ16x4"] > 0.98 for times in shares)
assert shares[30]["ScaNN, inner product"] > 0.95
PY
