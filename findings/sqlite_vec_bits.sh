#!/usr/bin/env bash
# sqlite-vec: bits of vectors, packed by vec_quantize_binary and by NumPy.
#
# Guess: vec_quantize_binary(v) is numpy.packbits(v > 0): number 0 is the first bit of the first byte. A table of bit vectors that
#   one of them filled can be searched with a query that the other packed.
# What happens: number 0 is the *lowest* bit of the first byte; packbits puts it into the highest. Blobs have the same length, so nothing
#   tells them apart: a photo's own vector, packed by the other, lies some 32 of 64 bits away and its nearest are chance.
#   packbits(..., bitorder="little") gives the same bytes.
# Who meets it: who fills a table from Python in bulk and quantises queries in SQL, or the other way round; who moves binary codes
#   between engines.
# Versions: sqlite-vec 0.1.9, pysqlite3-binary 0.5.4.post2, NumPy 2.4.6, Python 3.11. Date: 2026-11-29.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q sqlite-vec==0.1.9 pysqlite3-binary==0.5.4.post2 numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import pysqlite3 as sqlite3  # Python's own may be built without extensions
import sqlite_vec

database = sqlite3.connect(":memory:")
database.enable_load_extension(True)
sqlite_vec.load(database)
print("sqlite-vec", *database.execute("select vec_version()").fetchone(), "SQLite", sqlite3.sqlite_version, "NumPy", np.__version__)

rng = np.random.default_rng(0)
rows = rng.normal(size=(1000, 64)).astype(np.float32)
database.execute("create virtual table photos using vec0(code bit[64])")
database.executemany(
    "insert into photos(rowid, code) values (?, vec_quantize_binary(?))", [(i, row.tobytes()) for i, row in enumerate(rows)]
)

def nearest(bitorder):
    codes = np.packbits(rows > 0, axis=1, bitorder=bitorder)
    search = "select rowid, distance from photos where code match vec_bit(?) and k = 1"
    found = [database.execute(search, [code.tobytes()]).fetchone() for code in codes[:200]]
    own = [database.execute("select vec_distance_hamming(vec_bit(?), code) from photos where rowid = ?", [codes[i].tobytes(), i]).fetchone()[0]
           for i in range(200)]
    return np.mean([row == i for i, (row, _) in enumerate(found)]), np.mean(own)

for bitorder in ("big", "little"):
    share, away = nearest(bitorder)
    print(f"queries of packbits(bitorder={bitorder!r}): {share:.0%} find themselves first; their own code is {away:.1f} of 64 bits away")
    assert (share > 0.99 and away == 0) if bitorder == "little" else (share < 0.02 and 28 < away < 36)
PY
