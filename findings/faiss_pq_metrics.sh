#!/usr/bin/env bash
# faiss: product quantisation, and inverted lists, by distances other than L2 and inner product (L1, Lp), from index_factory.
#
# Guess: what cannot be computed from codes is refused, as "SQ8", "IVF32,PQ16x4" and "LSH" refuse METRIC_L1 with an error; lists by Lp
#   spread the vectors as lists by L1 do.
# What happens, without a word:
#   1. "PQ16x4" and "PQ16x4fs" take METRIC_L1 and METRIC_Lp for METRIC_INNER_PRODUCT: results and "distances" are those of the largest
#      products, largest first, number by number. Of the ten nearest by L1, of vectors without negative numbers (histograms, ReLU), none are
#      found: the longest are.
#   2. "IVF32,Flat" by METRIC_Lp with metric_arg = 3: the quantizer of the lists keeps metric_arg = 0, by which all vectors are equally far. All go
#      to one list: recall is 1 with nprobe=1, at the price of a scan of everything. quantizer.metric_arg set by hand, before training, spreads
#      them.
# Who meets it: who compares colour histograms or counts of visual words by L1, as papers do, and goes from "Flat" to codes as galleries grow;
#   who tunes nprobe by recall, and finds that 1 is enough.
# Versions: faiss-cpu 1.15.1, NumPy 2.4.6, Python 3.11, x86-64 with AVX2. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q faiss-cpu==1.15.1 numpy==2.4.6 2>/dev/null
OMP_NUM_THREADS=1 "$folder/venv/bin/python" - 2> >(grep -v "^WARNING clustering" >&2) <<'PY'
from importlib.metadata import version

import faiss, numpy as np

print(*(f"{name} {version(name)}" for name in ("faiss-cpu", "numpy")))
rng = np.random.default_rng(0)
gallery, queries = (np.abs(rng.normal(size=(n, 32)) * rng.uniform(0.5, 3, size=(n, 1))).astype(np.float32) for n in (1500, 30))
gaps = np.abs(queries[:, None] - gallery)
away = {"L1": gaps.sum(axis=2), "Lp": (gaps**3).sum(axis=2), "L2": (gaps**2).sum(axis=2), "INNER_PRODUCT": -queries @ gallery.T}


def built(factory, metric, by_hand=False):
    index = faiss.index_factory(32, factory, getattr(faiss, f"METRIC_{metric}"))
    if metric == "Lp":
        index.metric_arg = 3
        if by_hand:
            faiss.downcast_index(index.quantizer).metric_arg = 3
    index.train(gallery)
    index.add(gallery)
    return index


def kept(found, metric):
    best = np.argsort(away[metric], axis=1)[:, :10]
    return round(float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), best.tolist())])), 2)


for factory in ("PQ16x4", "PQ16x4fs"):
    products, best = built(factory, "INNER_PRODUCT").search(queries, 10)
    for metric in ("L1", "Lp", "L2"):
        distances, found = built(factory, metric).search(queries, 10)
        taken = np.array_equal(distances, products) and np.array_equal(found, best)
        print(f"{factory} by {metric}: {kept(found, metric)} of the ten nearest; the very results of inner product: {taken}")
        assert taken == (metric != "L2") and (kept(found, metric) < 0.05 or metric == "L2")
for factory in ("SQ8", "IVF32,PQ16x4", "LSH"):
    try:
        built(factory, "L1").search(queries, 10)
        raise SystemExit(f"{factory} takes L1")
    except RuntimeError as error:
        print(factory, "by L1 is refused:", "Error" in str(error))

for metric, by_hand in (("L1", False), ("Lp", False), ("Lp", True)):
    index = built("IVF32,Flat", metric, by_hand)
    sizes = [index.invlists.list_size(number) for number in range(32)]
    print(f"IVF32,Flat by {metric}, metric_arg of the lists set {by_hand}: largest list {max(sizes)}, nprobe=1 keeps {kept(index.search(queries, 10)[1], metric)}")
    alone = metric == "Lp" and not by_hand
    assert (max(sizes) == len(gallery)) == alone and (kept(index.search(queries, 10)[1], metric) == 1) == alone
PY
