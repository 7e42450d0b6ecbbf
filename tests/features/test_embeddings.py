"""Vectors from elsewhere: what tables are read and refused, and what an ONNX model makes of images."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from visterm.features import ImageError, OnnxEmbedder, embeddings, read_query_vectors, read_vectors
from visterm.features.embeddings import MAX_FEATURES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4)).astype(np.float32)
IDS = ["a.jpg", "b/c.jpg", "ä,\n.jpg", "<b>", "5"]

# ---------------------------------------------------------------------------------------------------------- tables


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
    found = table.rows([4, 0])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, unit(X)[[4, 0]], rtol=2e-3)
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
        ([[], []], r"has the shape \(2, 0\)"),
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
    with pytest.raises(ValueError, match=r"holds int64, not lists of float32"):
        read_vectors(file, vector_column="n")


def test_sparse_npz(tmp_path, ids):
    S = sp.random(5, 30, density=0.3, format="csr", random_state=0, dtype=np.float64)
    sp.save_npz(tmp_path / "s.npz", S)
    table = read_vectors(tmp_path / "s.npz", ids)
    found = table.rows([3, 1])
    assert sp.issparse(found)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), unit(S.toarray())[[3, 1]], rtol=1e-6)
    sp.save_npz(tmp_path / "s.npz", S.tocsc())
    with pytest.raises(ValueError, match=r"not CSR; save matrix.tocsr\(\)"):
        read_vectors(tmp_path / "s.npz", ids)


def test_rows_of_zeros_and_of_extreme_numbers(tmp_path, ids):
    extreme = np.array([[0, 0], [3e38, 3e38], [1e-40, 0], [1, 0], [0, -2]], np.float32)
    found = read_vectors(write(tmp_path, "x.npy", extreme), ids).rows(slice(None))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[0, 0], [half, half], [1, 0], [1, 0], [0, -1]], rtol=1e-5)


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
        (X[0], r"shape \(4,\), not \(number of vectors"),
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
        with pytest.raises(ValueError, match=r"damaged, or no file of NumPy's"):
            read_vectors(tmp_path / file, ids)
    assert not (tmp_path / "exploded").exists()


def test_a_header_that_announces_more_than_there_is(tmp_path, ids):
    file = write(tmp_path, "x.npy", X)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"(5, 4), ", b"(5000000000, 4), ", 1)[: len(data)])
    with pytest.raises(ValueError, match=r"x\.npy: damaged"):
        read_vectors(file, ids)


def test_a_sparse_matrix_that_points_outside(tmp_path, ids):
    S = sp.csr_matrix(X)
    arrays = {"data": S.data, "indices": S.indices.copy(), "indptr": S.indptr, "shape": S.shape, "format": b"csr"}
    arrays["indices"][3] = 1000
    np.savez(tmp_path / "s.npz", **arrays)
    with pytest.raises(ValueError, match=r"s\.npz: damaged"):
        read_vectors(tmp_path / "s.npz", ids)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\nc\nd\n", "4 ids for 5 vectors"),
        ("", "0 ids for 5 vectors"),
        ("a\nb\n\nd\ne\n", r"row 2 \(from 0\) is empty"),
        ("a\nb\nc\0\nd\ne\n", r"row 2 \(from 0\) is damaged"),
        ("a\nb\nc\nb\ne\n", r"the id 'b' stands in rows 1 and 3"),
    ],
)
def test_ids_that_are_refused(tmp_path, text, message):
    file = write(tmp_path, "x.npy", X)
    (tmp_path / "ids.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"ids\.txt: .*{message}"):
        read_vectors(file, tmp_path / "ids.txt")


def test_what_is_missing_is_named(tmp_path, ids):
    file = write(tmp_path, "x.npy", X)
    with pytest.raises(ValueError, match=r"whose vectors are these\?.*--ids"):
        read_vectors(file)
    with pytest.raises(ValueError, match=r"none\.npy: cannot be read \(No such file"):
        read_vectors(tmp_path / "none.npy", ids)
    with pytest.raises(ValueError, match=r"ids\.txt: holds no vectors"):
        read_vectors(ids)
    with pytest.raises(ValueError, match=r"unknown kind '\.hdf5'; known: \.npy"):
        read_vectors(tmp_path / "x.hdf5", ids)
    (tmp_path / "ids.csv").write_text("path\na\n")
    with pytest.raises(ValueError, match=r"ids\.csv: no column 'id'"):
        read_vectors(file, tmp_path / "ids.csv")
    np.savez(tmp_path / "two.npz", a=X, b=X)
    with pytest.raises(ValueError, match=r"name it 'vector'; it has a, b"):
        read_vectors(tmp_path / "two.npz", ids)
    assert read_vectors(tmp_path / "two.npz", ids, vector_column="b").X.shape == (5, 4)


def test_vectors_to_search_with(tmp_path):
    names, found = read_query_vectors(write(tmp_path, "one.npy", X[0]), 4)
    assert names == [str(tmp_path / "one.npy")]
    np.testing.assert_allclose(found, unit(X[:1]), rtol=1e-6)
    names, found = read_query_vectors(write(tmp_path, "all.npy", X), 4, unit=False)
    assert names == [f"{tmp_path / 'all.npy'}[{i}]" for i in range(5)]
    np.testing.assert_array_equal(found, X)
    with pytest.raises(ValueError, match="vectors of 4 numbers; those of the run have 7"):
        read_query_vectors(tmp_path / "all.npy", 7)


# ------------------------------------------------------------------------------------------------------------ ONNX


@pytest.fixture
def images():
    return [RNG.integers(0, 256, shape, dtype=np.uint8) for shape in ((32, 32, 3), (50, 90, 3), (33, 20, 3), (40, 40))]


def prepared(pixels, side):
    """The middle square of an image in the model's size, as it is read: (1, 3, side, side) of numbers from 0 to 1."""
    pixels = pixels if pixels.ndim == 3 else np.repeat(pixels[:, :, None], 3, axis=2)
    short = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - short) // 2, (pixels.shape[1] - short) // 2
    square = np.ascontiguousarray(pixels[top : top + short, left : left + short])
    small = cv2.resize(square, (side, side), interpolation=cv2.INTER_AREA if short > side else cv2.INTER_LINEAR)
    return (small.astype(np.float32) / 255).transpose(2, 0, 1)[None]


def test_vectors_are_those_of_the_model(tmp_path, write_model, images):
    tensors = write_model(tmp_path / "m.onnx", 32)
    embedder = OnnxEmbedder(tmp_path / "m.onnx", unit=False).fit()
    assert (embedder.size_, embedder.n_features_out_) == ((32, 32), 16)
    expected = np.concatenate([tensors(prepared(pixels, 32))["embedding"] for pixels in images])
    found = embedder.transform(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        OnnxEmbedder(tmp_path / "m.onnx").fit_transform(images), unit(expected), rtol=1e-4, atol=1e-5
    )
    for i, pixels in enumerate(images):  # alone as among others, bit for bit
        np.testing.assert_array_equal(embedder.transform([pixels])[0], found[i])


@pytest.mark.parametrize("layer", ["convolved", "positive", "pooled", "flat", "embedding"])
def test_every_layer_can_be_the_vector(tmp_path, write_model, images, layer):
    tensors = write_model(tmp_path / "m.onnx", 32)(prepared(images[0], 32))
    expected = tensors.get(layer, tensors["flat"])
    expected = expected.mean(axis=(2, 3)) if expected.ndim == 4 else expected  # maps are averaged
    found = OnnxEmbedder(tmp_path / "m.onnx", layer=layer, unit=False).fit().transform(images[:1])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_mean_scale_and_channels(tmp_path, write_model, images):
    tensors = write_model(tmp_path / "m.onnx", 32)
    mean, scale = [120.0, 110.0, 100.0], [0.01, 0.02, 0.03]
    rgb = (images[0].astype(np.float32) - np.float32(mean)) * np.float32(scale)
    for channels, order in (("rgb", [0, 1, 2]), ("bgr", [2, 1, 0])):
        expected = tensors(rgb[:, :, order].transpose(2, 0, 1)[None])["embedding"]
        embedder = OnnxEmbedder(tmp_path / "m.onnx", mean=mean, scale=scale, channels=channels, unit=False).fit()
        np.testing.assert_allclose(embedder.transform(images[:1]), expected, rtol=1e-3, atol=1e-3)


def test_the_rules_of_size(tmp_path, write_model):
    """Of an image whose left third is black, the middle red and the right white, what does the model see?"""
    write_model(tmp_path / "m.onnx")
    pixels = np.zeros((30, 90, 3), np.uint8)
    pixels[:, 30:60] = 255, 0, 0
    pixels[:, 60:] = 255

    def seen(**settings):
        embedder = OnnxEmbedder(tmp_path / "m.onnx", size=(8, 8), scale=1.0, **settings).fit()
        return embedder._prepare(pixels)

    red = np.array([255, 0, 0])[:, None, None]
    assert (seen() == red).all()
    assert (seen(keep=0.5) == red).all()
    stretched = seen(resize="stretch")
    assert (stretched[:, :, 0] == 0).all()
    assert (stretched[:, :, 7] == 255).all()
    padded = seen(resize="pad", mean=7.0)
    assert (padded[:, :2] == 0).all()  # the mean colour, as the model gets it
    assert (padded[:, 6:] == 0).all()
    assert (padded[:, 3, 0] == -7).all()
    wide = OnnxEmbedder(tmp_path / "m.onnx", size=[4, 12], scale=1.0).fit()._prepare(pixels)
    assert wide.shape == (3, 4, 12)
    assert (wide[:, :, 11] == 255).all()


def test_batches(tmp_path, write_model, images):
    write_model(tmp_path / "m.onnx", 32)
    one = OnnxEmbedder(tmp_path / "m.onnx").fit().transform(images)
    np.testing.assert_allclose(OnnxEmbedder(tmp_path / "m.onnx", batch=3).fit().transform(iter(images)), one, atol=1e-5)
    assert OnnxEmbedder(tmp_path / "m.onnx").fit().transform([]).shape == (0, 16)


def test_paths_are_read(tmp_path, write_model, write_images):
    write_model(tmp_path / "m.onnx", 32)
    write_images(tmp_path, ["pear/1.jpg"])
    embedder = OnnxEmbedder(tmp_path / "m.onnx").fit()
    assert embedder.transform([tmp_path / "pear/1.jpg"]).shape == (1, 16)
    with pytest.raises(ImageError, match="cannot be read"):
        embedder.transform([tmp_path / "none.jpg"])
    with pytest.raises(ValueError, match="not one path"):
        embedder.transform(str(tmp_path / "pear/1.jpg"))


def test_clone_pickle_save_and_load(tmp_path, write_model, images):
    write_model(tmp_path / "m.onnx")
    embedder = OnnxEmbedder(tmp_path / "m.onnx", size=16, mean=(1.0, 2.0, 3.0), layer="flat").fit()
    expected = embedder.transform(images)
    assert clone(embedder).fit().get_params() == embedder.get_params()
    np.testing.assert_array_equal(copy.deepcopy(embedder).transform(images), expected)
    embedder.save(tmp_path / "saved")
    assert (tmp_path / "saved/model.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    (tmp_path / "m.onnx").unlink()
    loaded = OnnxEmbedder.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.transform(images), expected)
    assert loaded.sha256_ == embedder.sha256_
    write_model(tmp_path / "saved/model.onnx", seed=1)
    with pytest.raises(ValueError, match="the model has changed since it was taken"):
        OnnxEmbedder.load(tmp_path / "saved").transform(images)
    (tmp_path / "saved/embedder.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99, this program reads 1"):
        OnnxEmbedder.load(tmp_path / "saved")


def refusal(*args, **settings):
    with pytest.raises(ValueError) as error:
        OnnxEmbedder(*args, **settings).fit()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_models_that_cannot_be_read(tmp_path, write_model):
    write_model(tmp_path / "m.onnx", 32)
    data = (tmp_path / "m.onnx").read_bytes()
    bad = tmp_path / "bad.onnx"
    assert "No such file" in refusal(tmp_path / "none.onnx")
    for content in (b"", b"hello world", RNG.bytes(500), data[: len(data) // 2], data[:-3], data[10:]):
        bad.write_bytes(content)
        assert refusal(bad).startswith(f"{bad}: not an ONNX model, or damaged")


def test_a_model_that_ends_the_process_of_opencv(tmp_path, write_model):
    write_model(tmp_path / "m.onnx", 8)
    data = bytearray((tmp_path / "m.onnx").read_bytes())
    data[176] ^= 8
    (tmp_path / "m.onnx").write_bytes(data)
    assert "OpenCV ends with SIGSEGV on this model; it is damaged" in refusal(tmp_path / "m.onnx")


def test_a_model_that_does_not_come_to_an_end(tmp_path, write_model, monkeypatch):
    write_model(tmp_path / "m.onnx", 8)
    monkeypatch.setattr(embeddings, "TRIAL_SECONDS", 0.001)  # no process starts as soon as that
    assert "OpenCV has not run this model once in 0.001 s" in refusal(tmp_path / "m.onnx")


@pytest.mark.parametrize("place", [6, 12, 38, 52, 67, 79, 95, 211])
def test_every_byte_of_a_model_may_be_wrong(tmp_path, write_model, place):
    write_model(tmp_path / "m.onnx", 8)
    data = bytearray((tmp_path / "m.onnx").read_bytes())
    data[place] ^= 0xA5
    (tmp_path / "m.onnx").write_bytes(data)
    assert refusal(tmp_path / "m.onnx").startswith(f"{tmp_path / 'm.onnx'}: ")


def test_settings_that_do_not_fit(tmp_path, write_model):
    fixed, free = tmp_path / "fixed.onnx", tmp_path / "free.onnx"
    write_model(fixed, 32)
    write_model(free)
    assert "takes images of 32 x 32, not 24 x 32 (height x width)" in refusal(fixed, size=[24, 32])
    assert "takes images of any size: set size" in refusal(free)
    message = refusal(fixed, layer="pooledd")
    assert "no layer 'pooledd' (did you mean pooled?); the last of it are convolved, positive, pooled, flat" in message
    for settings in ({"resize": "squeeze"}, {"channels": "grey"}, {"keep": 0}, {"batch": 0}, {"mean": [1, 2]}):
        assert str(next(iter(settings))) in refusal(fixed, **settings)
    assert "size must be" in refusal(free, size=[1, 2, 3])
    assert "size must be" in refusal(free, size=0)
    assert "not finite; do mean and scale fit" in refusal(fixed, scale=1e38)


def test_models_of_other_kinds(tmp_path, write_model):
    import onnx
    from onnx import TensorProto, helper

    write_model(tmp_path / "m.onnx", 32)
    model = onnx.load(tmp_path / "m.onnx")

    def changed(change):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        change(other.graph)
        onnx.save(other, tmp_path / "other.onnx")
        return tmp_path / "other.onnx"

    two = changed(lambda g: g.input.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1])))
    assert "has 2 inputs (image, mask); an image model has one" in refusal(two)
    outputs = changed(lambda g: g.output.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, ["n", 8])))
    assert "set layer to one of embedding, flat" in refusal(outputs)
    assert OnnxEmbedder(outputs, layer="flat").fit().n_features_out_ == 8
    grey = changed(lambda g: g.input[0].type.tensor_type.shape.dim.__getitem__(1).__setattr__("dim_value", 1))
    assert "takes ? x 1 x 32 x 32 numbers, not images x 3 x height x width" in refusal(grey)
    tokens = changed(
        lambda g: (
            g.node.append(helper.make_node("Unsqueeze", ["embedding", "axis"], ["tokens"])),
            g.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [1], [2])),
        )
    )
    assert "tokens gives float32 (1, 16, 1) for 1 image, not one vector an image" in refusal(tokens, layer="tokens")
    unknown = changed(lambda g: g.node[1].__setattr__("op_type", "Teleport"))
    assert "OpenCV cannot run this model" in refusal(unknown)


def test_a_batch_that_the_model_does_not_take(tmp_path, write_model):
    import onnx
    from onnx import TensorProto, helper

    write_model(tmp_path / "m.onnx", 32, n=1)
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.node[3].CopyFrom(helper.make_node("Reshape", ["pooled", "shape"], ["flat"]))
    model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [2], [1, 8]))
    onnx.save(model, tmp_path / "m.onnx")
    assert OnnxEmbedder(tmp_path / "m.onnx").fit().n_features_out_ == 16
    assert "batch" in refusal(tmp_path / "m.onnx", batch=4)


def test_threads_share_an_embedder(tmp_path, write_model):
    from concurrent.futures import ThreadPoolExecutor

    write_model(tmp_path / "m.onnx", 32)
    embedder = OnnxEmbedder(tmp_path / "m.onnx").fit()
    images = [RNG.integers(0, 256, (40, 40, 3), dtype=np.uint8) for _ in range(20)]
    expected = embedder.transform(images)
    fresh = clone(embedder).fit()
    del fresh._network  # as after loading: the first one who asks opens it
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda pixels: fresh.transform([pixels])[0], images))
    np.testing.assert_array_equal(found, expected)


def test_pyarrow_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    import sys

    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'visterm\[parquet\]'"):
        read_vectors(Path(tmp_path / "x.parquet"))
