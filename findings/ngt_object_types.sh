#!/usr/bin/env bash
# NGT (ngtpy): indexes that keep vectors as half floats or as bytes.
#
# Guess: object_type changes how precise vectors are kept, no more: Float16 returns what was inserted to three digits; a combination that
#   cannot work (unit length, and bytes) is refused, as unknown distances are.
# What happens, without a word:
#   1. get_object of a Float16 index hands out the half floats two by two, read as one float each: numbers from 1e-7 to 1e4, whatever the vector.
#      search is right.
#   2. Byte with "Normalized Cosine", "Normalized Angle" or "Normalized L2": vectors are scaled to unit length and then cut to whole numbers,
#      so that all are 0; every distance is that of a right angle, and results are any vectors. "Cosine" and "Angle" are right.
#   3. Byte with "Inner Product": the length that an added dimension should hold does not fit a byte; results have nothing to do with
#      inner products. Distances of this kind are in the units of the enlarged space, not inner products, with Float as well.
# Who meets it: who halves or quarters the memory of a gallery; who re-ranks by get_object, or reads vectors back from an index; who keeps
#   visual words' counts or quantised embeddings as bytes and wants cosine.
# Versions: ngt 2.8.0.post1, NumPy 2.4.6, Python 3.11. Date: 2026-11-29.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ngt==2.8.0.post1 numpy==2.4.6 2>/dev/null
cd "$folder"
venv/bin/python - 2>/dev/null <<'PY'
from importlib.metadata import version

import ngtpy
import numpy as np

print(*(f"{name} {version(name)}" for name in ("ngt", "numpy")), flush=True)
rng = np.random.default_rng(0)
vectors = (rng.normal(size=(2000, 24)) * rng.uniform(0.3, 3, (2000, 1))).astype(np.float32)
queries = rng.normal(size=(20, 24)).astype(np.float32)


def as_bytes(rows):
    return np.clip(rows * 40 + 128, 0, 255).astype(np.uint8)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measured(distance, kind):
    """Return the share of the five best that is found, the first distances, and the largest error of get_object."""
    rows, asked = (as_bytes(part) if kind == "Byte" else part for part in (vectors, queries))
    name = f"{distance}-{kind}".replace(" ", "-")
    ngtpy.create(name, 24, distance_type=distance, object_type=kind)
    index = ngtpy.Index(name)
    index.batch_insert(rows)
    wide, near = rows.astype(float), asked.astype(float)
    if distance == "Inner Product":
        products = near @ wide.T
    elif distance == "L2":
        products = -np.linalg.norm(near[:, None] - wide, axis=2)
    else:
        products = unit(near) @ unit(wide).T
    best = np.argsort(-products, axis=1)[:, :5]
    found = [index.search(query, 5, 0.3) for query in asked]
    share = np.mean([len({row for row, _ in some} & set(true.tolist())) / 5 for some, true in zip(found, best)])
    error = max(np.abs(np.asarray(index.get_object(i), float) - wide[i]).max() for i in range(20))
    return share, [round(float(value), 3) for _, value in found[0]], error


for distance, kind in (("L2", "Float"), ("L2", "Byte"), ("L2", "Float16")):
    share, distances, error = measured(distance, kind)
    print(f"{distance}, {kind}: {share:.2f} found; get_object differs by up to {error:.3g}", flush=True)
    assert share > 0.9 and (error > 1 if kind == "Float16" else error == 0)
for distance in ("Cosine", "Normalized Cosine", "Normalized Angle", "Normalized L2", "Inner Product"):
    shares = {}
    for kind in ("Float", "Byte"):
        shares[kind], distances, _ = measured(distance, kind)
        print(f"{distance}, {kind}: {shares[kind]:.2f} found; distances {distances}", flush=True)
    assert shares["Float"] > 0.9 and (shares["Byte"] > 0.9 if distance == "Cosine" else shares["Byte"] < 0.1)
    if distance.startswith("Normalized"):
        assert len(set(distances)) == 1
PY
