"""Weights of a PyTorch model without PyTorch: the legacy format of ``torch.save``, as before version 1.6.

The format is five pickles (a magic number, a version, the machine's sizes, the tensors, the keys of the storages), and
then the numbers of each storage. A pickle can name any function of Python to be called, so this reader maps the
four names that weights need to harmless values and refuses every other name.
"""

from __future__ import annotations

import collections
import io
import math
import pickle
from typing import Any, NamedTuple

import numpy as np

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_MAX_NUMBERS = 1 << 31  # per tensor: a size is read before the numbers are


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in numbers, not bytes


def _tensor(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> _Tensor:
    """Stand for the function that rebuilds a tensor, whose last arguments are about gradients."""
    return _Tensor(storage, offset, shape, strides)


class _Unpickler(pickle.Unpickler):
    """Unpickler restricted to four types."""

    _NAMES = {
        "collections.OrderedDict": collections.OrderedDict,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch.FloatStorage": np.dtype("<f4"),
        "torch.LongStorage": np.dtype("<i8"),
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._NAMES[f"{module}.{name}"]
        except KeyError:
            raise ValueError(f"names {module}.{name}, which weights do not need: refused, nothing was run") from None

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, *_ = pid  # "storage", type, key, device, length, view
        return _Storage(key, dtype)


def read_torch_weights(data: bytes) -> dict[str, np.ndarray]:
    """Read the tensors of a state dict that PyTorch saved in its legacy format; nothing in it is run.

    Parameters
    ----------
    data : bytes
        The whole file.

    Returns
    -------
    dict of str to ndarray
        The tensors by name, float32 or int64, C-contiguous whatever their strides in the file.

    Raises
    ------
    ValueError
        The data are not such a file, are damaged, or their pickle names anything but tensors. The message is one line.
    """
    stream = io.BytesIO(data)
    try:
        magic, version, _, tensors, keys = (_Unpickler(stream).load() for _ in range(5))
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError("not weights in the legacy format of PyTorch")
        dtypes = {tensor.storage.key: tensor.storage.dtype for tensor in tensors.values()}
        storages = {}
        for key in keys:
            n = int.from_bytes(stream.read(8), "little")
            content = stream.read(n * dtypes[key].itemsize)
            storages[key] = np.frombuffer(content, dtypes[key], n)
        return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except Exception as error:  # a damaged pickle makes the unpickler raise nearly everything
        raise ValueError(f"damaged, or not weights of PyTorch ({type(error).__name__})") from None


def _array(tensor: _Tensor, storage: np.ndarray) -> np.ndarray:
    """Return a tensor as an array of its own; kernels may lie transposed in their storage."""
    offset, shape, strides = tensor.offset, tensor.shape, tensor.strides
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or math.prod(shape) > _MAX_NUMBERS or last >= len(storage):
        raise ValueError("damaged: a tensor lies outside of its storage")
    bytes_apart = [stride * storage.itemsize for stride in strides]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(storage[offset:], shape, bytes_apart)).reshape(shape)
