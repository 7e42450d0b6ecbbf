#!/usr/bin/env bash
# rii: an index over nanopq.PQ(metric="dot").
#
# Guess: Rii takes the fine quantizer with its metric, so that over PQ(metric="dot") it ranks by inner product, as the quantizer's own
#   tables of distances do; or it refuses the metric.
# What happens: Rii takes the codewords alone and computes squared Euclidean distances from them. It finds the same vectors, at the same
#   distances, over PQ(metric="dot") as over PQ(metric="l2"), by both of its methods and without a word: of the ten best by inner product
#   none, where the quantizer's own tables keep 8 of 10. `index.fine_quantizer.metric` still says "dot".
# Who meets it: who replaces a linear scan with nanopq by Rii, for its speed or its search in subsets, for maximum inner product: learned
#   query sides, recommenders. With vectors and queries of one length the two rankings are nearly the same, so that tests on these pass.
# Versions: rii 0.2.12, nanopq 0.2.2, NumPy 2.4.6, SciPy 1.17.1, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q rii==0.2.12 nanopq==0.2.2 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import nanopq
import numpy as np
import rii

print(*(f"{name} {version(name)}" for name in ("rii", "nanopq", "numpy", "scipy")))
rng = np.random.default_rng(0)
vectors = (rng.normal(size=(4000, 32)) * np.exp(rng.normal(size=(4000, 1)))).astype(np.float32)
queries = rng.normal(size=(50, 32)).astype(np.float32)
best = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
nearest = np.argsort(((queries[:, None] - vectors) ** 2).sum(axis=-1), axis=1)[:, :10]


def kept(found, wanted):
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), wanted.tolist())])


answers = {}
for metric, sign in (("dot", -1), ("l2", 1)):
    quantizer = nanopq.PQ(M=16, metric=metric, verbose=False).fit(vectors[:3000])
    codes = quantizer.encode(vectors)
    own = np.array([np.argsort(sign * quantizer.dtable(query).adist(codes))[:10] for query in queries])
    index = rii.Rii(fine_quantizer=quantizer)
    index.verbose = False
    index.add_configure(vecs=vectors)
    found = {method: [index.query(query, topk=10, L=4000, method=method) for query in queries] for method in ("linear", "ivf")}
    answers[metric] = np.array([[ids for ids, _ in found[method]] for method in found]), found["linear"][0][1]
    print(
        f"PQ({metric}): the quantizer's tables keep {kept(own, best):.2f} of the ten best by inner product; Rii keeps",
        *(f"{kept(ids, best):.2f} of these and {kept(ids, nearest):.2f} of the ten nearest ({method});" for method, ids in zip(found, answers[metric][0])),
        f"first distances {answers[metric][1][:3].round(2)}; metric {index.fine_quantizer.metric}",
    )
    assert index.fine_quantizer.metric == metric
    assert kept(own, best) > 0.7 if metric == "dot" else kept(own, nearest) > 0.7
    assert all(kept(ids, best) < 0.1 and kept(ids, nearest) > 0.7 for ids in answers[metric][0])
assert np.array_equal(answers["dot"][0], answers["l2"][0]) and np.allclose(answers["dot"][1], answers["l2"][1])
PY
