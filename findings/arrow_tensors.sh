#!/usr/bin/env bash
# Batches of images or of maps, channels first seen as channels last or the other way round, in Arrow's fixed_shape_tensor.
#
# Guess: FixedShapeTensorArray.from_numpy_ndarray takes any array whose rows are whole, as it keeps the order of axes (permutation) in
#   the type: to_numpy_ndarray gives back what went in, from memory and from Parquet; or it copies, or refuses, as it does for rows
#   that are not whole.
# What happens:
#   1. Two axes swapped are right. Three turned round, which is what channels first to last and back are, come back by the inverse
#      turn: (2, 3, 4, 5) seen as (2, 4, 5, 3) is read as (2, 5, 3, 4), with other numbers, and where sides are equal the shape
#      tells nothing. Seen the other way the array is written, also to Parquet, and then refused ("strides must not involve buffer over
#      run"): what was saved cannot be read so.
#   2. A single tensor, array[i].to_numpy(), is not that of the array at i: matrices that were transposed have other numbers.
#   3. DuckDB reads the plain list, in the order of memory, and not in that of the shape that was written.
#   np.ascontiguousarray(x) before writing makes all of them right.
# Who meets it: those who store images, patch embeddings or maps of features for others to read: x.transpose(0, 2, 3, 1) is a view.
# Versions: pyarrow 26.0.1, duckdb 2.0.1, NumPy 2.4.6, Python 3.11. Date: 2026-11-28.
set -euo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyarrow==26.0.1 duckdb==2.0.1 numpy==2.4.6 2>/dev/null
cd "$folder"
venv/bin/python - <<'PY'
import duckdb, numpy as np, pyarrow as pa, pyarrow.parquet as pq

print("pyarrow", pa.__version__, "duckdb", duckdb.__version__, "NumPy", np.__version__)
SWAPPED, TO_LAST, TO_FIRST = (0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 1, 2)


def read_back(view, whole):
    written = pa.FixedShapeTensorArray.from_numpy_ndarray(view)
    pq.write_table(pa.table({"x": written}), "x.parquet")
    column = pq.read_table("x.parquet")["x"].combine_chunks()
    answers = []
    for array in (written, column):
        try:
            read = array.to_numpy_ndarray() if whole else np.stack([tensor.to_numpy() for tensor in array])
        except pa.ArrowInvalid as error:
            answers.append(str(error))
        else:
            answers.append("right" if np.array_equal(read, view) else f"other numbers, {read.shape}")
    assert answers[0] == answers[1]  # from memory and from Parquet
    (flat,) = duckdb.sql("select x from 'x.parquet' limit 1").fetchall()[0]
    return answers[0], "right" if np.array_equal(flat, view[0].ravel()) else "other numbers"


outcomes = {}
for name, shape, axes in (
    ("as it is", (2, 3, 4, 5), (0, 1, 2, 3)),
    ("rows and columns swapped", (2, 3, 4, 5), SWAPPED),
    ("channels last", (2, 3, 4, 5), TO_LAST),
    ("channels first", (2, 4, 5, 3), TO_FIRST),
    ("channels last, equal sides", (2, 4, 4, 4), TO_LAST),
    ("matrices transposed", (2, 4, 5), (0, 2, 1)),
):
    stored = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    view = stored.transpose(axes)
    outcomes[name] = (*read_back(view, True), read_back(view, False)[0])
    print(f"{name}, {view.shape}: the array {outcomes[name][0]}; one by one {outcomes[name][2]}; DuckDB {outcomes[name][1]}")
    assert read_back(np.ascontiguousarray(view), True) == ("right", "right")
    assert read_back(np.ascontiguousarray(view), False)[0] == "right"
assert outcomes["as it is"] == ("right",) * 3
assert outcomes["rows and columns swapped"] == ("right", "other numbers", "right")
assert outcomes["channels last"][0] == "other numbers, (2, 5, 3, 4)"
assert "buffer over run" in outcomes["channels first"][0]
assert outcomes["channels last, equal sides"][0] == "other numbers, (2, 4, 4, 4)"
assert outcomes["matrices transposed"] == ("right", "other numbers", "other numbers, (2, 5, 4)")
PY
