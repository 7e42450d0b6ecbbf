#!/usr/bin/env bash
# polars-distance: dist_list.cosine of two columns of tags, or of visual words, each row a set.
#
# Guess: the cosine of two sets, |A and B| / sqrt(|A| |B|), or 1 less that, as its documentation says "cosine distance": between 0 and 1, the same in both
#   directions, and 1 (or 0) for equal sets.
# What happens, without a word: |A and B| sqrt(|B| / |A|). Two equal sets of three tags have 3, of ten tags 10; one tag among eight that contain it has 2.83, the
#   other way round 0.35. Ranked by it, photos with many tags come first for every query, and an identical set of two tags is behind a set of twelve of which
#   it is a part. jaccard_index, sorensen_index and overlap_coef of the same rows are right.
# Who meets it: who finds near duplicates of product listings or photos by their tags in Polars, beside a cosine from scikit-learn or SQL.
# Versions: polars-distance 0.5.3, polars 2.1.0, scikit-learn 1.9.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q polars-distance==0.5.3 polars==2.1.0 scikit-learn==1.9.1 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version
from math import isclose, sqrt

import polars as pl
import polars_distance as pld
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.preprocessing import MultiLabelBinarizer

print(*(f"{name} {version(name)}" for name in ("polars-distance", "polars", "scikit-learn", "numpy")))
tags = [f"tag{i:02}" for i in range(12)]
pairs = [(tags[:3], tags[:3]), (tags[:10], tags[:10]), (tags[:1], tags[:8]), (tags[:8], tags[:1]), (tags[:4], tags[2:6])]
photos = pl.DataFrame({"one": [one for one, _ in pairs], "other": [other for _, other in pairs]})
one = pld.col("one").dist_list
measured = photos.select(one.cosine("other").alias("cosine"), one.jaccard_index("other").alias("jaccard"), one.sorensen_index("other").alias("sorensen"))
binary = MultiLabelBinarizer(classes=tags)
for (a, b), row in zip(pairs, measured.iter_rows(named=True), strict=True):
    common = len({*a} & {*b})
    (true,) = cosine_similarity(binary.fit_transform([a]), binary.transform([b])).ravel()
    print(f"{len(a)} and {len(b)} tags, {common} in common: cosine {row['cosine']:.3f}, by scikit-learn {true:.3f}")
    assert isclose(row["cosine"], common * sqrt(len(b) / len(a)), rel_tol=1e-6)
    assert isclose(row["jaccard"], common / len({*a, *b}))
    assert isclose(row["sorensen"], 2 * common / (len(a) + len(b)))

query = pl.DataFrame({"one": [tags[:2]] * 2, "other": [tags[:2], tags]})
same, wider = query.select(pld.col("one").dist_list.cosine("other")).to_series()
print(f"two tags beside the same two: {same:.3f}; beside all twelve: {wider:.3f}")
assert same < wider
PY
