#!/usr/bin/env bash
# voyager: Index.get_distance of two vectors, in an index by inner product.
#
# Guess: get_distance(a, b) is what query returns for the same two vectors, 1 - a.b, as it is in indexes by Euclid and by cosine; and
#   asking for a distance changes nothing.
# What happens: an index by inner product keeps one number more per vector, from the longest one that it has seen, which a query leaves at
#   0 and get_distance does not.
#   1. Both vectors get it: distances are off by up to the square of the greatest length, most for short ones, and the vector that is
#      nearest by get_distance is mostly not the one of the largest inner product. It is right only where one of the two is the
#      longest that the index has seen, as in an empty index.
#   2. A vector longer than those of the index becomes the longest that it has seen: the index is another one (as_bytes), and what is
#      added later is linked for that length. One call on a long vector between two batches, and of the ten best 0.56 are kept, not
#      0.97. A query by the same vector changes nothing.
# Who meets it: who ranks a shortlist again, checks results, or explains them by get_distance; recommenders, whose lengths carry meaning.
#   With vectors of unit length 1 - a.b is off by rounding alone, so that tests on these pass.
# Versions: voyager 2.2.3, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q voyager==2.2.3 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
from importlib.metadata import version

import numpy as np
from voyager import Index, Space

print(*(f"{name} {version(name)}" for name in ("voyager", "numpy")))
rng = np.random.default_rng(0)
vectors = (rng.normal(size=(2000, 16)) * np.exp(rng.normal(size=(2000, 1)))).astype(np.float32)
queries = rng.normal(size=(30, 16)).astype(np.float32)
units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, queries)]


def distances(index, x, q):
    """By query, and by get_distance for the same pairs; and which of 300 vectors get_distance puts first."""
    keys, by_query = index.query(q, 5, num_threads=1, query_ef=500)
    by_call = np.array([[index.get_distance(q[i], x[key]) for key in keys[i]] for i in range(len(q))])
    every = np.array([[index.get_distance(q[i], row) for row in x[:300]] for i in range(len(q))])
    return keys.astype(int), by_query, by_call, every.argmin(axis=1)


for name, space, x, q, wanted in (
    ("Euclidean", Space.Euclidean, vectors, queries, ((queries[:, None] - vectors) ** 2).sum(axis=-1)),
    ("Cosine", Space.Cosine, vectors, queries, -queries @ units[0].T),
    ("InnerProduct", Space.InnerProduct, vectors, queries, -queries @ vectors.T),
    ("InnerProduct of unit length", Space.InnerProduct, *units, -units[1] @ units[0].T),
):
    index = Index(space, 16)
    index.add_items(x, num_threads=1)
    keys, by_query, by_call, firsts = distances(index, x, q)
    off, right = np.abs(by_query - by_call).max(), (firsts == wanted[:, :300].argmin(axis=1)).sum()
    print(f"1. {name}: first distances {by_query[0, :3].round(2)}, by get_distance {by_call[0, :3].round(2)}; right first of 300 for {right} of {len(q)} queries")
    if name == "InnerProduct":
        assert np.allclose(by_query, 1 + np.take_along_axis(wanted, keys, axis=1), atol=1e-2)
        assert off > 1000 and right < len(q) / 3
    else:
        assert off < 0.01 and right == len(q)
empty = Index(Space.InnerProduct, 16)
assert abs(empty.get_distance(vectors[0], vectors[1]) - (1 - vectors[0] @ vectors[1])) < 0.01

vectors = rng.normal(size=(2000, 16)).astype(np.float32)
best = np.argsort(-queries @ vectors.T, axis=1)[:, :10]
kept = {}
for asked in ("nothing", "query", "get_distance"):
    index = Index(Space.InnerProduct, 16)
    index.add_items(vectors[:1000], ids=list(range(1000)), num_threads=1)
    before = index.as_bytes()
    if asked == "query":
        index.query(vectors[0] * 1000, 1)
    elif asked == "get_distance":
        index.get_distance(vectors[0] * 1000, vectors[1])
    changed = index.as_bytes() != before
    index.add_items(vectors[1000:], ids=list(range(1000, 2000)), num_threads=1)
    keys, _ = index.query(queries, 10, num_threads=1, query_ef=50)
    kept[asked] = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(keys.tolist(), best.tolist())])
    print(f"2. {asked} of a long vector between two batches: index changed {changed}, of the ten best kept {kept[asked]:.2f}")
    assert changed == (asked == "get_distance")
assert kept["nothing"] == kept["query"] > 0.9 and kept["get_distance"] < 0.75
PY
