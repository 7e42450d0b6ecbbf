"""Tables of vectors: the files that are read, and those that are refused."""

import json
import pickle
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.features import read_query_vectors, read_vectors
from visterm.features.images import VECTOR_SUFFIXES
from visterm.features.vector_files import VECTORS
from visterm.plugins.vectors.vector_tables import MAX_FEATURES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype(np.float32)
IDS = ["a.jpg", "b/c.jpg", "ä,\n.jpg", "<b>", "5"]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def write(folder, name, array):
    np.save(folder / name, array)
    return folder / name


@pytest.fixture
def ids(tmp_path):
    file = tmp_path / "ids.txt"
    file.write_text("\n".join("abcde") + "\n")
    return file


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, ids, dtype, order):
    table = read_vectors(write(tmp_path, "x.npy", np.array(X, dtype, order=order)), ids)
    assert table.ids == list("abcde")
    assert table.labels is None
    assert isinstance(table.X, np.memmap)
    rows = table.rows([4, 0])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, unit(X)[[4, 0]], rtol=2e-3)
    np.testing.assert_array_equal(table.rows([1], unit=False), X[[1]].astype(dtype).astype(np.float32))


def test_ids_of_every_kind(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = write(tmp_path, "x.npy", X)
    (tmp_path / "ids.csv").write_text('id,label\na.jpg,x\nb/c.jpg,\n"ä,\n.jpg",y\n<b>,y\n5,x\n', encoding="utf-8")
    pq.write_table(pa.table({"id": IDS, "label": ["x", None, "y", "y", "x"]}), tmp_path / "ids.parquet")
    for kind in ("ids.csv", "ids.parquet"):
        table = read_vectors(file, tmp_path / kind)
        assert table.ids == IDS
        assert table.labels == [["x"], [], ["y"], ["y"], ["x"]]
    assert read_vectors(file, write(tmp_path, "ids.npy", np.array(IDS))).ids == IDS
    np.savez(tmp_path / "all.npz", vector=X, id=np.array(IDS), label=np.array(["x", "", "y", "y", "x"]))
    table = read_vectors(tmp_path / "all.npz")
    assert (table.ids, table.labels) == (IDS, [["x"], [], ["y"], ["y"], ["x"]])


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0], [3.0]], "have different lengths, from 1 to 2"),
        ([[1.0, 2.0], None], "has missing values"),
        ([[1.0, None], [1.0, 2.0]], "has missing values"),
        ([[], []], r"has shape \(2, 0\)"),
        (["a", "b"], "holds no vectors"),
    ],
)
def test_columns_that_are_refused(tmp_path, vectors, message):
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.string() if vectors[0] == "a" else pa.list_(pa.float32())
    pq.write_table(pa.table({"v": pa.array(vectors, kind), "id": ["a", "b"]}), tmp_path / "x.parquet", row_group_size=1)
    with pytest.raises(ValueError, match=message):
        read_vectors(tmp_path / "x.parquet")


@pytest.mark.parametrize("fixed", [False, True])
def test_parquet(tmp_path, fixed):
    import pyarrow as pa
    import pyarrow.parquet as pq

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 4) if fixed else pa.array(X.tolist())
    labels = [["x", "y"], [], None, ["y"], ["x"]]
    file = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"clip": vectors, "path": IDS, "n": [1, 2, 3, 4, 5], "label": labels}), file, row_group_size=2
    )
    table = read_vectors(file)  # the only lists of numbers, and the only text
    assert table.ids == IDS
    assert table.labels == [["x", "y"], [], [], ["y"], ["x"]]
    np.testing.assert_allclose(table.rows(slice(None), unit=False), X, rtol=1e-6)
    for column, kind in (("n", "int64"), ("path", "string")):  # the second of another role, too
        with pytest.raises(ValueError, match=rf"holds {kind}, not lists of float32"):
            read_vectors(file, vector_column=column)


def test_sparse_npz(tmp_path, ids):
    S = sp.random(5, 30, density=0.3, format="csr", random_state=0, dtype=np.float64)
    sp.save_npz(tmp_path / "s.npz", S)
    table = read_vectors(tmp_path / "s.npz", ids)
    rows = table.rows([3, 1])
    assert sp.issparse(rows)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows.toarray(), unit(S.toarray())[[3, 1]], rtol=1e-6)
    arrays = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}  # without a format
    np.savez(tmp_path / "t.npz", **arrays, id=np.array(list("abcde")))
    assert read_vectors(tmp_path / "t.npz").digests() == table.digests()
    with pytest.raises(ValueError, match=r"has no ids; .*--ids ids\.txt"):  # b"csr", its format, has three bytes
        read_vectors(tmp_path / "s.npz")
    for other in ("csc", "coo", "bsr", "dia"):
        sp.save_npz(tmp_path / "s.npz", S.asformat(other))
        with pytest.raises(ValueError, match=r"not CSR; save matrix.tocsr\(\)"):
            read_vectors(tmp_path / "s.npz", ids)


def test_rows_of_zeros_and_of_extreme_numbers(tmp_path, ids):
    extreme = np.array([[0, 0], [3e38, 3e38], [1e-40, 0], [1, 0], [0, -2]], np.float32)
    rows = read_vectors(write(tmp_path, "x.npy", extreme), ids).rows(slice(None))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(rows, [[0, 0], [half, half], [1, 0], [1, 0], [0, -1]], rtol=1e-5)
    assert tuple(VECTORS) == VECTOR_SUFFIXES


def test_digests_tell_what_has_changed(tmp_path, ids):
    before = read_vectors(write(tmp_path, "x.npy", X), ids).digests()
    other = X.copy()
    other[2, 3] += 1
    after = read_vectors(write(tmp_path, "y.npy", other.astype(np.float64)), ids).digests()
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True, True]
    sp.save_npz(tmp_path / "s.npz", sp.csr_matrix(X))
    assert len(set(read_vectors(tmp_path / "s.npz", ids).digests())) == 5


def damaged(folder, name, array, keep):
    file = write(folder, name, array) if name.endswith(".npy") else folder / name
    if name.endswith(".npz"):
        np.savez(file, vector=array)
    elif name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"vector": array.tolist()}), file)
    file.write_bytes(file.read_bytes()[:keep])
    return file


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
@pytest.mark.parametrize("keep", [0, 3, 60, -1])
def test_files_that_were_cut_short(tmp_path, ids, name, keep):
    file = damaged(tmp_path, name, X, keep)
    with pytest.raises(ValueError, match=r"x\.\w+: (damaged|cannot be read)") as error:
        read_vectors(file, ids)
    assert "\n" not in str(error.value)


WITH_NAN = X.copy()
WITH_NAN[3, 1] = np.nan


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (X[0], r"shape \(4,\), not \(n_vectors"),
        (X[None], r"shape \(1, 5, 4\)"),
        (X[:0], r"shape \(0, 4\)"),
        (X[:, :0], r"shape \(5, 0\)"),
        (WITH_NAN, r"row 3 \(from 0\) holds NaN"),
        (np.where(np.isnan(WITH_NAN), 1e300, X.astype(float)), r"row 3 \(from 0\) holds NaN, infinity or more"),
        (np.arange(20).reshape(5, 4), r"holds int64, not float32"),
        (X.astype(complex), r"holds complex128"),
        (X[:4], r"5 ids for 4 vectors"),
        (np.zeros((5, MAX_FEATURES + 1), np.float16), r"vectors of 65,537 numbers; at most 65,536"),
    ],
)
def test_arrays_that_are_refused(tmp_path, ids, array, message):
    with pytest.raises(ValueError, match=message) as error:
        read_vectors(write(tmp_path, "x.npy", array), ids)
    assert "\n" not in str(error.value)
    assert len(str(error.value).replace(str(tmp_path), "")) < 200


def test_objects_are_never_unpickled(tmp_path, ids):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    np.save(tmp_path / "x.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", vector=np.array([[Bomb()]], dtype=object))
    np.save(tmp_path / "ids.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    (tmp_path / "pickled.npy").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "pickled.npz").write_bytes(pickle.dumps(Bomb()))
    for file in ("x.npy", "x.npz"):
        with pytest.raises(ValueError, match="holds Python objects"):
            read_vectors(tmp_path / file, ids)
    with pytest.raises(ValueError, match=r"ids\.npy: holds Python objects"):
        read_vectors(write(tmp_path, "good.npy", X), tmp_path / "ids.npy")
    for file in ("pickled.npy", "pickled.npz"):
        with pytest.raises(ValueError, match=r"damaged, or not a NumPy file"):
            read_vectors(tmp_path / file, ids)
    assert not (tmp_path / "exploded").exists()


def test_a_header_or_a_sparse_matrix_that_lies(tmp_path, ids):
    file = write(tmp_path, "x.npy", X)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"(5, 4), ", b"(5000000000, 4), ", 1)[: len(data)])
    with pytest.raises(ValueError, match=r"x\.npy: damaged"):
        read_vectors(file, ids)
    S = sp.csr_matrix(X)
    arrays = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape, "format": b"csr"}
    for damage in ({"indices": np.where(np.arange(S.nnz) == 3, 1000, S.indices)}, {"shape": np.array([3.5, 4])}):
        np.savez(tmp_path / "s.npz", **arrays | damage)
        with pytest.raises(ValueError, match=r"s\.npz: damaged"):
            read_vectors(tmp_path / "s.npz", ids)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\nc\nd\n", "4 ids for 5 vectors"),
        ("", "0 ids for 5 vectors"),
        ("a\nb\n\nd\ne\n", r"row 2 \(from 0\) is empty"),
        ("a\nb\nc\0\nd\ne\n", r"row 2 \(from 0\) is damaged"),
        ("a\nb\nc\nb\ne\n", r"the id 'b' is in rows 1 and 3"),
    ],
)
def test_ids_that_are_refused(tmp_path, text, message):
    file = write(tmp_path, "x.npy", X)
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"ids\.txt: .*{message}"):
        read_vectors(file, tmp_path / "ids.txt")


def test_what_is_missing_is_named(tmp_path, ids):
    file = write(tmp_path, "x.npy", X)
    with pytest.raises(ValueError, match=r"has no ids; .*--ids ids\.txt"):
        read_vectors(file)
    with pytest.raises(ValueError, match=r"none\.npy: cannot be read \(No such file"):
        read_vectors(tmp_path / "none.npy", ids)
    with pytest.raises(ValueError, match=r"ids\.txt: holds no vectors"):
        read_vectors(ids)
    with pytest.raises(ValueError, match=r"unknown file type '\.hdf5'; known: \.npy"):
        read_vectors(tmp_path / "x.hdf5", ids)
    (tmp_path / "ids.csv").write_text("where,vector\na,1\n")
    with pytest.raises(ValueError, match=r"ids\.csv: no column 'id', nor another of ids; it has 'where', 'vector'"):
        read_vectors(file, tmp_path / "ids.csv")
    with pytest.raises(ValueError, match=r"ids\.csv: holds no vectors; it has 'where', 'vector'"):
        read_vectors(tmp_path / "ids.csv")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    with pytest.raises(ValueError, match=r"no array is named 'vector' and several could hold the vectors: a, b"):
        read_vectors(tmp_path / "two.npz", ids)
    assert read_vectors(tmp_path / "two.npz", ids, vector_column="b").X.shape == (5, 4)


def test_vectors_to_search_with(tmp_path):
    names, vectors = read_query_vectors(write(tmp_path, "one.npy", X[0]), 4)
    assert names == [str(tmp_path / "one.npy")]
    np.testing.assert_allclose(vectors, unit(X[:1]), rtol=1e-6)
    names, vectors = read_query_vectors(write(tmp_path, "all.npy", X), 4, unit=False)
    assert names == [f"{tmp_path / 'all.npy'}[{i}]" for i in range(5)]
    np.testing.assert_array_equal(vectors, X)
    with pytest.raises(ValueError, match="vectors of 4 numbers; those of the run have 7"):
        read_query_vectors(tmp_path / "all.npy", 7)


def test_pyarrow_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"-m pip install 'pyarrow>="):
        read_vectors(tmp_path / "x.parquet")


@pytest.mark.parametrize("shape", ["(3, 4\n", "(3, 4), 'x': 0x_", "(3, $)", "((((((("])
def test_headers_that_numpy_cannot_parse(tmp_path, shape):
    np.save(tmp_path / "v.npy", np.ones((3, 4), np.float32))
    data = (tmp_path / "v.npy").read_bytes()
    (tmp_path / "v.npy").write_bytes(data.replace(b"(3, 4), }", f"{shape:9}"[:9].encode()))
    with pytest.raises(ValueError, match=r"v.npy: (damaged|holds)"):
        read_vectors(tmp_path / "v.npy")


def arrow(folder, name, columns, *, metadata=None, stream=True):
    """Write an Arrow file, as a stream or with a footer."""
    import pyarrow as pa

    table = pa.table(columns).replace_schema_metadata(metadata)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    writer = pa.ipc.new_stream if stream else pa.ipc.new_file
    with writer(str(folder / name), table.schema) as sink:
        sink.write_table(table, max_chunksize=2)
    return folder / name


@pytest.fixture
def shards(tmp_path):
    """Twelve shards with ids, whose numbers have no zeros in front."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "img_emb").mkdir()
    (tmp_path / "metadata").mkdir()
    rows = np.arange(24, dtype=np.float16).reshape(12, 2, 1) + np.ones(4, np.float16)
    for i, part in enumerate(rows):
        write(tmp_path, f"img_emb/img_emb_{i}.npy", part)
        ids = {"image_path": [f"{i}/a.jpg", f"{i}/b.jpg"], "caption": ["x", "y"]}
        pq.write_table(pa.table(ids), tmp_path / f"metadata/metadata_{i}.parquet")
    return tmp_path


def test_shards_are_one_table_in_the_order_of_their_numbers(shards):
    table = read_vectors(shards / "img_emb/*.npy", shards / "metadata/*.parquet")
    assert table.ids == [f"{i}/{name}.jpg" for i in range(12) for name in "ab"]
    np.testing.assert_array_equal(table.rows(slice(None), unit=False), np.arange(24)[:, None] + np.ones((1, 4)))
    np.testing.assert_array_equal(table.rows([23, 2, 3], unit=False)[:, 0], [24, 3, 4])
    assert table.source == (
        "vectors of 12 files, img_emb/img_emb_0.npy to img_emb/img_emb_11.npy; "
        "ids from column 'image_path' of 12 files, metadata/metadata_0.parquet to metadata/metadata_11.parquet; "
        "fields caption"
    )
    for vectors, ids in ((shards, None), (shards / "img_emb", shards / "metadata")):  # clip-retrieval's folders
        assert read_vectors(vectors, ids).digests() == table.digests()


def test_shards_that_do_not_fit_are_named(shards):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"image_path": ["a", "b", "c"]}), shards / "metadata/metadata_10.parquet")
    with pytest.raises(ValueError, match=r"metadata_10\.parquet: 3 ids for the 2 vectors of .*img_emb_10\.npy"):
        read_vectors(shards)
    (shards / "metadata/metadata_10.parquet").unlink()
    with pytest.raises(ValueError, match=r"metadata: 22 ids for 24 vectors"):
        read_vectors(shards)
    write(shards, "img_emb/img_emb_3.npy", np.ones((2, 5), np.float16))
    with pytest.raises(ValueError, match=r"img_emb_3\.npy: vectors of 5 numbers, and 4 in img_emb_0\.npy"):
        read_vectors(shards)
    write(shards, "img_emb/img_emb_3.npy", np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"img_emb_3\.npy: numbers of type float32, and float16 in img_emb_0\.npy"):
        read_vectors(shards)
    write(shards, "img_emb/img_emb_3.npy", np.full((2, 4), np.nan, np.float16))
    with pytest.raises(ValueError, match=r"img_emb_3\.npy: the vector in row 0 \(from 0\) holds NaN"):
        read_vectors(shards)
    with pytest.raises(ValueError, match=r"no file matches this pattern"):
        read_vectors(shards / "img_emb/*.npz")
    with pytest.raises(ValueError, match=r"a folder without \.npy, .* files; name them by a pattern, such as"):
        read_vectors(shards / "img_emb/..", shards / "metadata")
    (shards / "img_emb/x.npz").touch()
    with pytest.raises(ValueError, match=r"img_emb: holds \.npy and \.npz files; name them by a pattern"):
        read_vectors(shards)


NAMES = {"names": ["cat", "dog"], "_type": "ClassLabel"}
FEATURES = {"label": NAMES, "first": NAMES, "all": {"feature": NAMES, "_type": "List"}, "old": [NAMES]}
CLASSES = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()}


def test_data_sets_on_disk(tmp_path):
    for split in ("train", "test"):
        files = [{"filename": f"data-0000{i}-of-00002.arrow"} for i in range(2)]
        for i, rows in enumerate((slice(0, 3), slice(3, 5))):
            columns = {"label": [0, 1, -1, 1, 0][rows], "embedding": X[rows].tolist(), "bbox": X[rows, :2].tolist()}
            arrow(tmp_path, f"set/{split}/{files[i]['filename']}", columns, metadata=CLASSES)
        (tmp_path / f"set/{split}/state.json").write_text(json.dumps({"_data_files": files}))
    (tmp_path / "set/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    table = read_vectors(tmp_path / "set/train")
    assert table.ids == ["0", "1", "2", "3", "4"]
    assert table.labels == [["cat"], ["dog"], [], ["dog"], ["cat"]]
    np.testing.assert_allclose(table.rows(slice(None), unit=False), X)
    assert table.source.startswith("vectors from column 'embedding', ids: row numbers, labels from column 'label' of ")
    table = read_vectors(tmp_path / "set")
    assert table.ids == [f"{split}/{i}" for split in ("train", "test") for i in range(5)]
    columns = {"embedding": X.tolist(), "id": IDS, "first": [0, 1, -1, None, 1], "all": [[0, 1], [], None, [1], [-1]]}
    file = arrow(tmp_path, "several.arrow", columns | {"old": columns["all"]}, metadata=CLASSES)
    assert read_vectors(file).fields == {"first": ["cat", "dog", None, None, "dog"]}
    for column in ("all", "old"):
        assert read_vectors(file, label_column=column).labels == [["cat", "dog"], [], [], ["dog"], []]

    with pytest.raises(ValueError, match=r"set: no column 'none'; it has 'label', 'embedding', 'bbox'"):
        read_vectors(tmp_path / "set", vector_column="none")
    for file in tmp_path.glob("set/*/*.arrow"):
        arrow(file.parent, file.name, {"label": [0]})
    with pytest.raises(ValueError, match=r"set: holds no vectors; it has 'label'; use a \.npy"):
        read_vectors(tmp_path / "set")

    state = tmp_path / "set/test/state.json"
    state.write_text('{"_data_files": [], "_indices_data_files": [{"filename": "indices.arrow"}]}')
    with pytest.raises(ValueError, match=r"set/test: its rows are chosen by an index; save flatten_indices\(\)"):
        read_vectors(tmp_path / "set")
    state.write_text('{"_data_files": []}')
    with pytest.raises(ValueError, match=r"set/test: a data set without rows"):
        read_vectors(tmp_path / "set/test")
    state.write_text("{")
    with pytest.raises(ValueError, match=r"set/test: not a whole data set"):
        read_vectors(tmp_path / "set")


@pytest.mark.parametrize("stream", [False, True])
def test_arrow(tmp_path, stream):
    import pyarrow as pa

    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(X)
    images = pa.array([{"bytes": b"", "path": name} for name in IDS])
    file = arrow(tmp_path, "x.arrow", {"v": tensors, "image": images, "text": ["a"] * 5}, stream=stream)
    table = read_vectors(file)
    assert table.ids == IDS
    np.testing.assert_array_equal(table.rows(slice(None), unit=False), X)
    names = {
        "view": pa.array(IDS, pa.string_view()),
        "large": pa.array(IDS, pa.large_string()),
        "dictionary": pa.array(IDS).dictionary_encode(),
    }
    for name, ids in names.items():
        assert read_vectors(arrow(tmp_path, f"{name}.feather", {"v": tensors, "names": ids}, stream=stream)).ids == IDS
    maps = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((5, 2, 3), np.float32))
    with pytest.raises(ValueError, match=r"column 'v' holds extension.* not lists of"):
        read_vectors(arrow(tmp_path, "x.arrow", {"v": maps, "id": IDS}, stream=stream))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"x\.arrow: damaged or truncated"):
        read_vectors(file)
    file = arrow(tmp_path, "x.arrow", {"v": X[:2].tolist(), "id": ["aaaa", "bbbb"]}, stream=stream)
    offsets = file.read_bytes().replace(np.int32([0, 4, 8]).tobytes(), np.int32([0, 4, 9]).tobytes())
    file.write_bytes(offsets)  # which pyarrow does not look at by itself
    with pytest.raises(ValueError, match=r"x\.arrow: damaged or truncated"):
        read_vectors(file)


@pytest.mark.parametrize("scale", [np.float32(0.5), np.arange(1, 6, dtype=np.float32) / 4, np.float32([1, 2, 3, 4])])
def test_whole_numbers_with_a_scale(tmp_path, ids, scale):
    whole = RNG.integers(-127, 128, (5, 4)).astype(np.int8)
    np.savez(tmp_path / "x.npz", vector=whole, scale=scale)
    table = read_vectors(tmp_path / "x.npz", ids)
    by_row = scale[:, None] if scale.shape == (5,) else scale
    np.testing.assert_allclose(table.rows(slice(1, None), unit=False), (whole * by_row)[1:])
    np.savez(tmp_path / "x.npz", vector=whole, scale=np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"3 scales for 5 vectors of 4 numbers"):
        read_vectors(tmp_path / "x.npz", ids)
    if scale.shape == (5,):
        import pyarrow as pa

        columns = {"vector": pa.array(whole.tolist(), pa.list_(pa.int8())), "scale": scale, "id": IDS}
        table = read_vectors(arrow(tmp_path, "x.arrow", columns))
        np.testing.assert_allclose(table.rows(slice(None), unit=False), whole * by_row)


def safetensors(file, **arrays):
    header, data = {"__metadata__": {"made": "by hand"}}, b""
    for name, (kind, array) in arrays.items():
        span = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": span}
        data += array.tobytes()
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return file


def test_safetensors(tmp_path, ids):
    half = (np.ascontiguousarray(X).view(np.uint32) >> 16).astype(np.uint16)
    tensors = {"n": ("I64", np.arange(5)), "embedding": ("F32", X), "brain": ("BF16", half), "e4": ("F8_E4M3", half)}
    file = safetensors(tmp_path / "x.safetensors", **tensors)
    table = read_vectors(file, ids)
    assert isinstance(table.X, np.memmap)
    np.testing.assert_array_equal(table.rows(slice(None), unit=False), X)
    vectors = read_vectors(file, ids, vector_column="brain").rows(slice(None), unit=False)
    np.testing.assert_allclose(vectors, X, rtol=1e-2)
    file.write_bytes(file.read_bytes()[:-60])
    with pytest.raises(ValueError, match=r"x\.safetensors: damaged"):
        read_vectors(file, ids)
    file.write_bytes(b"\xff" * 20)
    with pytest.raises(ValueError, match=r"x\.safetensors: damaged or truncated \(its header ends behind the file"):
        read_vectors(file, ids)


def test_a_column_per_number_or_one_that_is_missing(tmp_path):
    file = arrow(tmp_path, "x.arrow", {"embedding": X.tolist(), "id": IDS})
    with pytest.raises(ValueError, match=r"no column 'vectr'; it has 'embedding', 'id'"):
        read_vectors(file, vector_column="vectr")
    assert read_vectors(file).labels is None
    file = arrow(tmp_path, "x.arrow", {"embedding": X.tolist(), "id": [*IDS[:4], None]})
    with pytest.raises(ValueError, match=r"the id in row 4 \(from 0\) is missing"):
        read_vectors(file)
    columns = {f"emb_{i}": X[:, i % 4] + i for i in range(11, -1, -1)}
    file = arrow(tmp_path, "x.feather", {**columns, "path": IDS, "n": [1] * 5}, stream=False)
    table = read_vectors(file)
    np.testing.assert_allclose(table.rows(slice(None), unit=False), np.tile(X, 3) + np.arange(12), rtol=1e-6)
    assert table.source == "vectors from column 'emb_0 to emb_11', ids from column 'path' of x.feather; fields n"
    assert table.fields == {"n": [1] * 5}
    file = arrow(tmp_path, "y.feather", {**columns, "area": X[:, 0], "path": IDS}, stream=False)
    with pytest.raises(ValueError, match=r"y\.feather: holds no vectors; it has 'emb_11'"):
        read_vectors(file)
