"""What an ONNX model takes and gives, and the settings that it is to be used with."""

from __future__ import annotations

import json
import pathlib
from typing import Any, TypedDict

import numpy as np

from visterm.features.images import StrPath, printable
from visterm.features.presets import PRESETS, mean_and_scale

from .onnx_embedder import ModelDescription, OnnxEmbedder
from .onnx_files import ModelFile, read_model
from .onnx_graph import inputs_of
from .onnx_pooling import n_before_patches
from .onnx_session import channels_last, image_input, one_line, open_session

# Outputs of exporters that are vectors of images, the best first.
_VECTORS = (
    "image_embeds",
    "image_embeddings",
    "image_features",
    "pooler_output",
    "embedding",
    "embeddings",
    "features",
)
_NOT_VECTORS = ("logit", "prob", "class", "score", "label", "mask", "box", "attention", "loss")  # parts of such names
_PREPROCESSOR = "preprocessor_config.json"


class Output(TypedDict):
    """An output of a model."""

    name: str
    shape: list[int | str]  # a name where it is open
    type: str
    needs: list[str]  # inputs beside the image


class Settings(TypedDict, total=False):
    """Settings of an `OnnxEmbedder` that are not the defaults."""

    size: int | list[int]
    resize: str
    keep: float
    preprocess: str
    mean: list[float]
    scale: list[float]
    channels: str
    layer: str
    pool: str


class Inspection(ModelDescription):
    """A model, its outputs and proposed settings; ready for JSON."""

    outputs: list[Output]
    settings: Settings  # that are proposed
    preprocessor: str | None  # the file that says how images are to be prepared


def inspect_model(
    model: StrPath, *, size: int | None = None, layer: str | None = None, pool: str | None = None
) -> Inspection:
    """Describe a model with its outputs, and propose settings; it is run on noise.

    Parameters
    ----------
    model : path
        The ONNX file. ``preprocessor_config.json``, which Hugging Face writes beside it or into the folder above, says
        how images are to be prepared.
    size, layer, pool
        As of `OnnxEmbedder`; None: as the model, the file beside it, and its outputs suggest.

    Returns
    -------
    Inspection

    Raises
    ------
    ValueError, ImportError
        As of `OnnxEmbedder.fit`.
    """
    try:
        file = read_model(model)
        file.check_nodes()
        session = open_session(file)
        outputs = _outputs(file, session)
    except ValueError as error:
        raise ValueError(f"{printable(model)}: {error}") from None
    beside = _preprocessor_file(model)
    settings: Settings = {} if beside is None else _settings_of(beside)
    image = image_input(session)
    sides = image.shape[1:3] if channels_last(image) else image.shape[2:]
    if image.type == "tensor(uint8)":  # these are in the model
        for name in ("preprocess", "mean", "scale"):
            settings.pop(name, None)  # type: ignore[misc]  # a key in a variable
    if size is not None:
        settings["size"] = size
    elif len(image.shape) == 4 and all(isinstance(side, int) for side in sides):
        settings.pop("size", None)  # the model says so itself
    if layer is None and len(outputs) > 1:
        layer = propose([output for output in outputs if not output["needs"]])
    if layer is not None:
        settings["layer"] = layer
    if pool is None:
        unpooled = OnnxEmbedder(model, **settings)
        shape = unpooled.layer_shape()
        if len(shape) == 3:
            pool = "cls" if n_before_patches(shape[1], unpooled.size_) else "mean"
    if pool is not None:
        settings["pool"] = pool
    return {
        **OnnxEmbedder(model, **settings).fit().describe(),
        "outputs": outputs,
        "settings": settings,
        "preprocessor": None if beside is None else str(beside),
    }


def unlike_file_beside(embedder: OnnxEmbedder) -> pathlib.Path | None:
    """Return the file beside the model of a fitted embedder that asks for another mean, scale or order of channels.

    A file that cannot be understood asks for nothing.
    """
    file = _preprocessor_file(embedder.model)
    description = embedder.describe()
    if file is None or description["preprocess"] == "none":
        return None
    try:
        expected = _settings_of(file)
    except ValueError:
        return None
    pairs = zip(
        mean_and_scale(expected.get("preprocess", "0..1"), expected.get("mean"), expected.get("scale")),
        (description["mean"], description["scale"]),
        strict=True,
    )
    same = all(np.allclose(one, other, rtol=1e-4) for one, other in pairs)
    return None if same and expected.get("channels", "rgb") == embedder.channels else file


def propose(outputs: list[Output]) -> str | None:
    """Return the name of the output that is most likely a vector of the image: of vectors, tokens and maps, the first.

    Names that exporters give come first, and scores of classes last.
    """

    def rank(output: Output) -> tuple[bool, int, int]:
        name, axes = output["name"].lower(), len(output["shape"])
        known = _VECTORS.index(name) if name in _VECTORS else len(_VECTORS)
        return any(part in name for part in _NOT_VECTORS), known, {2: 0, 3: 1, 4: 2}.get(axes, 3)

    floats = [output for output in outputs if "float" in output["type"]]
    return min(floats, key=rank)["name"] if floats else None


def _outputs(file: ModelFile, session: Any) -> list[Output]:
    inputs = [one.name for one in session.get_inputs()]
    image = image_input(session).name
    needs: dict[str, list[str]] = {}
    if len(inputs) > 1:
        graph = file.parsed()
        needs = {one.name: sorted(inputs_of(graph, one.name) - {image}) for one in session.get_outputs()}
    return [
        {
            "name": one.name,
            "shape": [side if isinstance(side, int) else str(side or "?") for side in one.shape],
            "type": one.type.removeprefix("tensor(").removesuffix(")"),
            "needs": needs.get(one.name, []),
        }
        for one in session.get_outputs()
    ]


def _preprocessor_file(model: StrPath) -> pathlib.Path | None:
    """Return the file that tells how to prepare images, beside a model or in the folder above, as hubs lay them out."""
    folder = pathlib.Path(model).absolute().parent
    return next((file for file in (folder / _PREPROCESSOR, folder.parent / _PREPROCESSOR) if file.is_file()), None)


def _settings_of(file: pathlib.Path) -> Settings:
    """Return the settings of `OnnxEmbedder` that are as a file of Hugging Face's image processors says."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        factor = float(content.get("rescale_factor", 1 / 255)) if content.get("do_rescale", True) else 1.0
        mean, scale = [0.0] * 3, [factor] * 3
        if content.get("do_normalize", True) and "image_mean" in content:
            mean = [float(value) / factor for value in content["image_mean"]]
            scale = [factor / float(value) for value in content["image_std"]]
        settings: Settings = {"mean": mean, "scale": scale}
        for name, (of_mean, of_scale) in PRESETS.items():
            if np.allclose(mean, of_mean, rtol=1e-4) and np.allclose(scale, of_scale, rtol=1e-4):
                settings = {"preprocess": name}
                break
        if content.get("do_flip_channel_order", False):
            settings["channels"] = "bgr"
        if content.get("do_resize", True):
            settings.update(_fit_of(content))
        return settings
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError) as error:
        reason = one_line(error) or type(error).__name__
        raise ValueError(f"{printable(file)}: cannot be understood ({reason}); remove it, or correct it") from None


def _fit_of(content: dict[str, Any]) -> Settings:
    """Return size, resize and keep."""
    cropped = content.get("do_center_crop", False)
    size, crop = content.get("size", {}), content.get("crop_size", {})
    if not isinstance(size, dict):  # as older files have it
        size = {"shortest_edge": size} if cropped else {"height": size, "width": size}
    if not isinstance(crop, dict):
        crop = {"height": crop, "width": crop}
    edge = size.get("shortest_edge") or min(size.get("height", 0), size.get("width", 0))
    if cropped and edge:
        keep = round(min(1.0, max(crop["height"], crop["width"]) / edge), 6)
        return _cropped(_sides(crop), keep)
    if "shortest_edge" not in size:
        return {"size": _sides(size), "resize": "stretch"} if edge else {}
    keep = float(content.get("crop_pct", 1.0))  # ConvNeXT, which stretches from 384 pixels
    if keep < 1 and edge >= 384:
        return {"size": int(edge), "resize": "stretch"}
    return _cropped(int(edge), keep)


def _cropped(size: int | list[int], keep: float) -> Settings:
    return {"size": size, "resize": "crop", "keep": keep} if keep < 1 else {"size": size, "resize": "crop"}


def _sides(size: dict[str, Any]) -> int | list[int]:
    height, width = int(size["height"]), int(size["width"])
    return height if height == width else [height, width]
