#!/usr/bin/env bash
# A folder of Parquet files, whose columns are not of one type, read as one table.
#
# Guess: pyarrow.dataset and pq.read_table compare the schemas of the files, or widen types where they differ; what cannot be joined
#   without loss is an error, as lists of another length are.
# What happens: the first file decides, in the order of texts (0, 10, 2), and every other one is cast to it without a word:
#   1. keys that are texts in a later file become numbers: "000000012" is 12, and finds no file any more;
#   2. float32 in a later file becomes infinity, where the first has float16 and numbers are above 65,504;
#   3. where a later file has the column under another name, its rows are null.
#   DuckDB does 1, widens 2, and refuses 3.
# Who meets it: readers of embeddings written by several jobs, or by two versions of one (img2dataset's keys, float16 by default in
#   one exporter and float32 in another); rows and keys are counted, and the count is right.
# Versions: pyarrow 26.0.1, duckdb 2.0.1, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyarrow==26.0.1 duckdb==2.0.1 numpy==2.4.6 2>/dev/null
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import os
import duckdb, numpy as np, pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq

print("pyarrow", pa.__version__, "duckdb", duckdb.__version__)
rows = np.arange(8, dtype=np.float32).reshape(2, 4)

def write(folder, *tables):
    os.makedirs(folder)
    for name, columns in zip(("0", "10", "2"), tables):
        pq.write_table(pa.table(columns), f"{folder}/{name}.parquet")

def read(folder, column):
    table = ds.dataset(folder).to_table()
    assert table.equals(pq.read_table(folder))
    return table[column].to_pylist()

def lists(array, kind):
    return pa.array(array.tolist(), pa.list_(kind))

write("keys", {"key": [11]}, {"key": ["000000012"]})
write("types", {"v": lists(rows.astype(np.float16), pa.float16())}, {"v": lists(rows * np.float32(1e5), pa.float32())})
write("names", {"vector": lists(rows, pa.float32())}, {"embedding": lists(rows, pa.float32())})
write("order", {"key": [0]}, {"key": [10]}, {"key": [2]})
print("1.", read("keys", "key"), "order", read("order", "key"))
print("2.", read("types", "v")[2])
print("3.", read("names", "vector")[2:])
assert read("keys", "key") == [11, 12] and read("order", "key") == [0, 10, 2]
assert read("types", "v")[2] == [0, float("inf"), float("inf"), float("inf")]
assert read("names", "vector")[2:] == [None, None]

joined = {name: f"SELECT * FROM '{name}/*.parquet'" for name in ("keys", "types", "names")}
assert duckdb.sql(joined["keys"]).fetchall() == [(11,), (12,)]
assert duckdb.sql(joined["types"]).fetchall()[2][0][1] == 100_000
try:
    duckdb.sql(joined["names"]).fetchall()
    raise AssertionError("names are not compared")
except duckdb.Error as error:
    print("DuckDB:", str(error).splitlines()[0][:90])
PY
