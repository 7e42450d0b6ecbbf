#!/usr/bin/env bash
# faiss: METRIC_JensenShannon and METRIC_Canberra, of histograms with empty bins.
#
# Guess: an empty bin adds nothing (0 log 0 and 0 / 0 are 0), as in SciPy and the books; a photo of the gallery finds itself first, at
#   distance 0. Were a distance not a number, there would be an error, a warning, or it would come last.
# What happens, without a word:
#   1. Jensen-Shannon: a single empty bin, of the query or of the photo, makes the distance NaN, and NaN is never a result. A photo with
#      an empty bin is found by no query, not by itself. A query with one finds nothing: -1 for all. From a query without empty bins only
#      those without them are found, the noisy and blurred: k results, in order, and the nearest photos are not among them.
#   2. Canberra: a bin that is empty in both is enough. Found is what has no empty bin in common with the query, here the noisy photos alone.
#   pairwise_distances gives the NaN. METRIC_BrayCurtis is right. Adding 1e-10 to all bins, queries' too, mends both:
#   Jensen-Shannon is SciPy's squared to six digits.
# Who meets it: who compares colour histograms, bags of visual words or other distributions, which have empty bins as a rule, and was told
#   that these are the distances for them; a test on noise, which fills all bins, passes.
# Versions: faiss-cpu 1.15.1, NumPy 2.4.6, SciPy 1.17.1, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q faiss-cpu==1.15.1 numpy==2.4.6 scipy==1.17.1 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import faiss, numpy as np
from scipy.spatial.distance import cdist

print(*(f"{name} {version(name)}" for name in ("faiss-cpu", "numpy", "scipy")))
rng = np.random.default_rng(0)
photos = np.zeros((500, 64), np.float32)  # 64 colours, of which a photo has 12 to 52
for photo in photos:
    count = rng.integers(12, 53)
    photo[rng.choice(64, count, replace=False)] = rng.dirichlet(np.ones(count))
noisy = np.arange(0, 500, 25)  # 20 photos have all of them
photos[noisy] = photos[noisy] * 0.9 + 0.1 / 64


def search(metric, queries, k=10, added=0.0):
    index = faiss.IndexFlat(64, getattr(faiss, f"METRIC_{metric}"))
    index.add(photos + np.float32(added))
    return index.search(queries + np.float32(added), k)


def right(metric, queries):
    return cdist(queries, photos, metric) ** (2 if metric == "jensenshannon" else 1)


def kept(found, scores):
    return np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), np.argsort(scores, axis=1)[:, :10].tolist())])


plain = np.setdiff1d(np.arange(500), noisy)
_, found = search("JensenShannon", photos[plain])
print(f"Jensen-Shannon, {len(plain)} photos with an empty bin look for themselves: results {set(found.ravel().tolist())}")
assert (found == -1).all()

query = np.float32(0.9) * photos[plain[:50]] + np.float32(0.1 / 64)  # near copies, without empty bins
_, found = search("JensenShannon", query)
share = np.isin(plain[:50], right("jensenshannon", query).argmin(axis=1)).mean()
print(f"near copies without empty bins: SciPy has the photo first for {share:.2f}; results are noisy photos for {np.isin(found, noisy).mean():.2f}")
assert share == 1 and np.isin(found, noisy).all()

gaps, found = search("Canberra", photos[plain], 500)
shared = (photos[plain][:, None] == 0) & (photos == 0)
expected = [np.sort(np.flatnonzero(~row.any(axis=1))) for row in shared]
print(f"Canberra: {np.mean([len(row) for row in expected]):.0f} of 500 results, those without a common empty bin")
assert all(np.array_equal(np.sort(row[row >= 0]), each) for row, each in zip(found, expected))
assert not any(own in row for own, row in zip(plain, found))

for metric in ("JensenShannon", "Canberra"):
    assert np.isnan(faiss.pairwise_distances(photos[plain[:5]], photos, getattr(faiss, f"METRIC_{metric}"))).any()
    scores = right(metric.lower(), photos[plain[:50]])
    distances, found = search(metric, photos[plain[:50]], added=1e-10)
    print(f"{metric}, 1e-10 added: {kept(found, scores):.3f} of the ten nearest, off by {np.abs(distances - np.take_along_axis(scores, found, axis=1)).max():.1e}")
    assert kept(found, scores) > 0.99
assert kept(search("BrayCurtis", photos[plain[:50]])[1], right("braycurtis", photos[plain[:50]])) == 1
PY
