"""Weights that PyTorch saved, read without it: tensors of any strides, and files that are refused."""

import pickle

import numpy as np
import pytest

from visterm.plugins.vectors.torch_weights import read_torch_weights

TENSOR = (
    b"V{name}\nctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\n{kind}Storage\nV{key}\nVcpu\nI6\nNtQ"
    b"I{offset}\n({shape}t({strides}tI00\nNtR"
)


def tensor(name="w", kind="Float", key="7", offset=0, shape=(2, 3), strides=(3, 1)):
    """The opcodes of a tensor of a storage, as PyTorch writes them."""

    def numbers(values):
        return "".join(f"I{value}\n" for value in values)

    fields = {"name": name, "kind": kind, "key": key, "offset": offset}
    return TENSOR.decode().format(**fields, shape=numbers(shape), strides=numbers(strides)).encode()


def legacy(*tensors, keys=("7",), storage=None, magic=0x1950A86A20F9469CFC6C):
    """A file in the legacy format: four pickles, the keys, and a storage of six numbers for each."""
    storage = np.arange(6, dtype="<f4").tobytes() if storage is None else storage
    head = b"".join(pickle.dumps(value, 2) for value in (magic, 1001, {"little_endian": True}))
    names = b"ccollections\nOrderedDict\n(tR(" + b"".join(tensors) + b"u."
    storages = b"".join((6).to_bytes(8, "little") + storage for _ in keys)
    return head + names + pickle.dumps(list(keys), 2) + storages


def test_tensors_are_read_whatever_their_strides():
    whole = np.arange(6, dtype=np.float32)
    tensors = read_torch_weights(
        legacy(
            tensor("rows"),
            tensor("columns", strides=(1, 2)),
            tensor("last", offset=5, shape=(), strides=()),
            tensor("part", offset=2, shape=(3,), strides=(1,)),
        )
    )
    np.testing.assert_array_equal(tensors["rows"], whole.reshape(2, 3))
    np.testing.assert_array_equal(tensors["columns"], whole.reshape(3, 2).T)
    np.testing.assert_array_equal(tensors["last"], np.float32(5))
    np.testing.assert_array_equal(tensors["part"], whole[2:5])
    assert all(array.flags.c_contiguous for array in tensors.values())
    counts = read_torch_weights(legacy(tensor(kind="Long"), storage=np.arange(6, dtype="<i8").tobytes()))
    assert counts["w"].dtype == np.int64


@pytest.mark.parametrize("name", ["posix\nsystem", "builtins\neval", "torch\nload", "numpy\nload"])
@pytest.mark.parametrize("place", [0, 3])
def test_a_pickle_that_names_anything_else_is_refused_and_nothing_is_run(tmp_path, name, place):
    mark = tmp_path / "was-run"
    hostile = f"c{name}\n(Vtouch {mark}\ntR.".encode()
    head = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
    with pytest.raises(ValueError, match=r"which weights do not need: refused, nothing was run") as error:
        read_torch_weights(b"".join([*head[:place], hostile]))
    assert name.replace("\n", ".") in str(error.value)
    assert not mark.exists()


def test_damaged_files_are_refused():
    sound = legacy(tensor())
    read_torch_weights(sound)
    for data in (b"", b"PK\x03\x04", sound[:30], sound[:200], sound[:-1], legacy(tensor(), magic=1)):
        with pytest.raises(ValueError) as error:
            read_torch_weights(data)
        assert "\n" not in str(error.value)
    outside = ({"offset": 1}, {"offset": -1}, {"shape": (3, 3)}, {"strides": (-3, 1)}, {"shape": (1 << 20, 1 << 20)})
    for wrong in (*outside, {"key": "8"}):
        with pytest.raises(ValueError, match="damaged"):
            read_torch_weights(legacy(tensor(**wrong)))
