#!/usr/bin/env bash
# milvus-lite 3: a search with a filter that the photos nearest to the query do not pass.
#
# Guess: "limit 10" gives ten photos as long as ten pass the filter; an approximate index may give ten that are not the nearest. A filter that leaves
#   five sixths of a gallery costs little, and none is needed in an exact search.
# What happens, without a word: of 12,000 photos in six groups, a photo of one group finds 0 to 3 of the 10,000 outside it ('folder != "f0"'), and 0
#   or 1 of the 2,000 of another one; a third to two thirds of the queries find none. HNSW and AUTOINDEX, which is a graph here, look at the 64 nearest photos, or as
#   many as are asked for, and drop what does not pass; IVF_FLAT drops all that is in the lists it looks into. limit=100 finds no more. ef=12000 finds
#   ten each, and so does FLAT. Just after writing, before the collection is loaded again, every kind compares all rows and is right, so that a test of
#   one process passes, and the same file gives nothing the next day.
#   faiss's HNSW with IDSelector, on which it stands, marks what is missing by -1; here the list is short, as if nothing passed.
# Who meets it: who looks for something like a photo outside its own album, class, shop or day, or in one that looks different, which is what such
#   filters are for; pages and counts of results that come out empty.
# Versions: milvus-lite 3.2.2, pymilvus 3.0.2, faiss-cpu 1.15.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q milvus-lite==3.2.2 pymilvus==3.0.2 faiss-cpu==1.15.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - "$folder/photos.db" <<'PY'
import sys
from importlib.metadata import version

import numpy as np
from pymilvus import DataType, MilvusClient

print(*(f"{name} {version(name)}" for name in ("milvus-lite", "pymilvus", "faiss-cpu", "numpy")))
N, D, GROUPS = 12_000, 64, 6
rng = np.random.default_rng(0)
groups = rng.permutation(N) % GROUPS
photos = rng.normal(size=(GROUPS, D))[groups] + 0.35 * rng.normal(size=(N, D))
photos = (photos / np.linalg.norm(photos, axis=1, keepdims=True)).astype(np.float32)
queries = photos[groups == 0][:20]
client = MilvusClient(sys.argv[1])


def found(kind, filter, limit=10, **params):
    """How many results each query has."""
    params = {"metric_type": "COSINE", "params": params}
    return [len(hits) for hits in client.search(kind, queries.tolist(), limit=limit, filter=filter, search_params=params)]


own, others, another = 'folder == "f0"', 'folder != "f0"', 'folder == "f3"'
for kind, params in (("HNSW", {"M": 16, "efConstruction": 200}), ("AUTOINDEX", {}), ("IVF_FLAT", {"nlist": 64}), ("FLAT", {})):
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("folder", DataType.VARCHAR, max_length=10)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=D)
    index = client.prepare_index_params()
    index.add_index("vector", index_type=kind, metric_type="COSINE", params=params)
    client.create_collection(kind, schema=schema, index_params=index, consistency_level="Strong")
    for start in range(0, N, 2000):
        rows = range(start, start + 2000)
        client.insert(kind, [{"id": i, "folder": f"f{groups[i]}", "vector": photos[i].tolist()} for i in rows])
    client.flush(kind)
    at_first = found(kind, others)
    client.release_collection(kind)
    client.load_collection(kind)  # as the next process does
    counts = {filter: found(kind, filter) for filter in (own, others, another)}
    for filter, n in counts.items():
        print(f"{kind}, {filter}: results of ten, by query {n}")
    assert at_first == counts[own] == [10] * 20
    if kind == "FLAT":
        assert counts[others] == counts[another] == [10] * 20
        continue
    assert max(counts[others] + counts[another]) < 10
    assert np.mean(counts[others]) < 3 and np.mean(counts[another]) < 2
    if kind != "IVF_FLAT":
        wide = found(kind, others, ef=N)
        print(f"{kind}, {others}, ef={N}: {wide}")
        assert wide == [10] * 20
    print(f"{kind}, {others}, limit=100: {found(kind, others, limit=100)}")
PY
