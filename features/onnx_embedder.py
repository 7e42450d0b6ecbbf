"""Vectors of any ONNX image model, run by ONNX Runtime."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Self, TypedDict

import cv2
import joblib
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .batches import check_images
from .decoding import Picture, decode_picture
from .depth import RULES, Rules
from .descriptors import as_rgb
from .images import MAX_PIXELS, StrPath, printable, read_file
from .onnx_graph import cells_of, parse, suggest, with_outputs
from .presets import PRESETS, RESIZES, mean_and_scale
from .vector_tables import MAX_FEATURES, unit_rows

FORMAT = 1  # of a saved embedder
_CUTS = ("crop", "trim")  # ways to fit an image that do not show all of it to the model
_PROVIDERS = ("CUDAExecutionProvider", "ROCMExecutionProvider", "CPUExecutionProvider")  # the first available

Floats = npt.NDArray[np.float32]


class ModelDescription(TypedDict):
    """A model and the settings that an `OnnxEmbedder` uses with it; ready for JSON."""

    model: str
    size: list[int]  # height and width of the input
    layout: str
    resize: str
    channels: str
    preprocess: str  # "own" with mean or scale
    mean: float | list[float]
    scale: float | list[float]
    layer: str  # the tensor that is the vector
    n_features: int
    suggested_layer: str | None  # the last pooled tensor
    cells: list[int] | None  # rows and columns of the map whose mean the vector is


class OnnxEmbedder(TransformerMixin, BaseEstimator):
    """Turn images into dense vectors with an ONNX image model, run by ONNX Runtime.

    Parameters
    ----------
    model : path
        The ONNX file: one input, float32 (n, 3, height, width) or (n, height, width, 3).
    size : int, (int, int) or None
        Height and width of the input in pixels; one number for a square. None: read from the model.
    resize : {"crop", "trim", "stretch", "pad"}
        How to fit an image to this size. "crop": take the largest centred part of the input's aspect ratio. "stretch":
        take the whole image and change its aspect ratio. "trim": halfway between these two; the centred part whose
        aspect ratio is the geometric mean of the image's and the input's is stretched. "pad": take the whole image and
        fill the rest with the mean colour.
    keep : float
        With "crop" and "trim", the share of the longest possible sides that is kept: with "crop", 0.875 equals resizing
        to 256 and cropping to 224.
    preprocess : {"0..1", "imagenet", "tf", "clip", "dinov2"}
        The mean and the scale that models of this kind expect, see `visterm.features.presets`.
    mean, scale : float, three floats or None
        The model gets ``(pixel - mean) * scale`` of pixels from 0 to 255; three numbers are for red, green and blue.
        None: as `preprocess` says.
    channels : {"rgb", "bgr"}
        The order of channels that the model expects.
    layer : str or None
        Name of the tensor in the model that is the vector; None: the output, if there is only one. A map of channels
        (n, c, h, w) is averaged over h and w. A tensor that is not an output needs the package ``onnx``.
    batch : int
        Images per run of the model. A model with a fixed batch size is always run with that size.
    unit : bool
        Scale vectors to unit length.
    max_pixels : int
        Refuse larger image files, see `read_image`.
    reading, white : int
        How files of more than 8 bits become pixels, as in `VistermExtractor`.
    n_jobs : int or None
        Threads of ONNX Runtime, which runs on a GPU where it has one; None means one, -1 all cores. Not saved.

    Attributes
    ----------
    n_features_out_ : int
        Length of the vectors.
    size_ : (int, int)
        Height and width of the input.
    sha256_ : str
        Of the model file, in hexadecimal.

    Notes
    -----
    - Images are reduced by averaging over areas, and enlarged by linear interpolation. JPEG files that are much larger
      than the input are decoded at 1/2, 1/4 or 1/8 of their size.
    - With ``batch=1`` the vector of an image does not depend on the other images. With larger batches ONNX Runtime may
      sum in another order, which can change the last digits.
    - Several threads may use one embedder at the same time.
    """

    def __init__(
        self,
        model: StrPath = "",
        *,
        size: int | Sequence[int] | None = None,
        resize: str = "crop",
        keep: float = 1.0,
        preprocess: str = "0..1",
        mean: Any = None,
        scale: Any = None,
        channels: str = "rgb",
        layer: str | None = None,
        batch: int = 1,
        unit: bool = True,
        max_pixels: int = MAX_PIXELS,
        reading: int = RULES.version,
        white: int = RULES.white,
        n_jobs: int | None = None,
    ) -> None:
        self.model = model
        self.size = size
        self.resize = resize
        self.keep = keep
        self.preprocess = preprocess
        self.mean = mean
        self.scale = scale
        self.channels = channels
        self.layer = layer
        self.batch = batch
        self.unit = unit
        self.max_pixels = max_pixels
        self.reading = reading
        self.white = white
        self.n_jobs = n_jobs

    def fit(self, images: Any = None, y: Any = None) -> Self:
        """Check the settings, and the model by running it on noise. Nothing is learned.

        Parameters
        ----------
        images, y
            Ignored.

        Returns
        -------
        OnnxEmbedder
            Itself.

        Raises
        ------
        ValueError
            One line: the model cannot be read or run, has no such layer, does not give one vector per image, or a
            setting is out of range.
        ImportError
            ONNX Runtime is not installed, or `layer` needs the package ``onnx``, which is not installed.
        """
        self._check_settings()
        data = self._read_model()
        self.sha256_ = hashlib.sha256(data).hexdigest()
        self._open(data)
        self.size_ = self._input_size()
        noise = np.random.default_rng(0).integers(0, 256, (self.batch, *self.size_, 3), dtype=np.uint8)
        rows = self._run(np.stack([self._prepare(pixels) for pixels in noise]))
        self.n_features_out_ = rows.shape[1]
        if rows.shape[1] > MAX_FEATURES:
            raise self._error(
                f"gives vectors of {rows.shape[1]:,} numbers; at most {MAX_FEATURES:,} are supported: set layer to "
                "another layer"
            )
        if self.batch > 1:
            alone = self._run(self._prepare(noise[-1])[None])
            if not np.allclose(alone, rows[-1:], rtol=1e-3, atol=1e-4 * np.abs(rows).max()):
                raise self._error(f"gives other vectors for {self.batch} images at once than for one: set batch to 1")
        return self

    def transform(self, images: Iterable[Any]) -> Floats:
        """Return the vectors of images.

        Parameters
        ----------
        images : iterable of path or ndarray
            Paths, RGB uint8 arrays (H, W, 3) and grey uint8 arrays (H, W). A generator is read batch by batch.

        Returns
        -------
        ndarray of float32, (n_images, n_features_out_)

        Raises
        ------
        ImageError
            A path cannot be read.
        ValueError
            The model fails, gives a number that is not finite, or has changed since `fit`.
        ImportError
            As in `fit`.
        """
        check_is_fitted(self)
        remaining, rows = iter(check_images(images)), [np.empty((0, self.n_features_out_), np.float32)]
        while batch := [self._prepare(self._picture(image).pixels) for image in islice(remaining, self.batch)]:
            rows.append(self._run(np.stack(batch)))
        X = np.concatenate(rows)
        return unit_rows(X) if self.unit else X

    @property
    def min_side(self) -> int:
        """Length of the shorter side, in pixels, below which `read` does not reduce an image.

        1.5 times the input: the decoder reduces each block of 8 x 8 pixels by itself, which changes the vectors of
        photos that end up no larger than the input.
        """
        return math.ceil(1.5 * max(self.size_) / (self.keep if self.resize in _CUTS else 1))

    def read(self, path: StrPath, *, max_pixels: int | None = None, data: bytes | None = None) -> Picture:
        """Read an image file, or its `data`, as `transform` does, a large JPEG at reduced size; see `read_picture`."""
        data = read_file(path) if data is None else data
        max_pixels = max_pixels or self.max_pixels
        return decode_picture(data, path, min_side=self.min_side, max_pixels=max_pixels, rules=self.rules)

    @property
    def rules(self) -> Rules:
        """How files become pixels."""
        return Rules(self.reading, self.white)

    def block_vectors(self, image: Any) -> tuple[npt.NDArray[np.float64], Floats]:
        """Return the share of each cell of the model's last map in the vector of an image.

        Parameters
        ----------
        image : path, ndarray of uint8, or Picture of `read`

        Returns
        -------
        boxes : ndarray of float64, (n_cells, 4)
            x, y, width, height of each cell in pixels of the image, however it is reduced: its place on the map. What
            the network sees there reaches farther.
        vectors : ndarray of float32, (n_cells, n_features_out_)
            They sum to the vector of the image.

        Raises
        ------
        ValueError
            The vector is not the mean over a map, so that it has no cells; or as `transform`.
        ImageError
            As in `transform`.
        ImportError
            The package ``onnx`` is not installed.
        """
        check_is_fitted(self)
        picture = self._picture(image)
        prepared = self._prepare(picture.pixels)[None]
        vector = self._run(prepared)[0]
        cells = self._run_cells(prepared)  # (c, h, w)
        parts = cells.reshape(len(cells), -1).T / np.float32(cells[0].size)
        if parts.shape[1] != len(vector) or not np.allclose(parts.sum(axis=0), vector, rtol=1e-3, atol=1e-4):
            raise self._error("its vectors are not the mean over the cells of a map, which explanations need")
        length = np.linalg.norm(vector) if self.unit else 0.0
        return self._cell_boxes((picture.height, picture.width), cells.shape[1:]), parts / np.float32(length or 1)

    def describe(self) -> ModelDescription:
        """Describe the model and the settings that are used with it.

        Returns
        -------
        ModelDescription
            A dictionary, ready for JSON.
        """
        check_is_fitted(self)
        cells, layer = None, None
        with contextlib.suppress(ImportError, ValueError):  # no package onnx; no cells
            layer = suggest(parse(self._read_model()))
            pixels = np.random.default_rng(0).integers(0, 256, (*self.size_, 3), dtype=np.uint8)
            self.block_vectors(pixels)
            cells = list(self._run_cells(self._prepare(pixels)[None]).shape[1:])
        mean, scale = self._mean_and_scale()
        return {
            "model": os.fspath(self.model),
            "size": list(self.size_),
            "layout": "channels last" if _channels_last(self._network[0].get_inputs()[0]) else "channels first",
            "resize": self.resize,
            "channels": self.channels,
            "preprocess": self.preprocess if self.mean is None and self.scale is None else "own",
            "mean": _plain(mean),
            "scale": _plain(scale),
            "layer": self._network[1],
            "n_features": self.n_features_out_,
            "suggested_layer": layer,
            "cells": cells,
        }

    def _picture(self, image: Any) -> Picture:
        if isinstance(image, Picture):
            return image
        if isinstance(image, str | os.PathLike):
            return self.read(image)
        pixels = as_rgb(image)
        return Picture(pixels, *pixels.shape[:2])

    def _check_settings(self) -> None:
        choices = (("resize", RESIZES), ("channels", ("rgb", "bgr")), ("preprocess", tuple(PRESETS)))
        for name, allowed in choices:
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be more than 0 and at most 1, not {self.keep!r}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch!r}")
        for name, setting in zip(("mean", "scale"), self._mean_and_scale(), strict=True):
            value = np.asarray(setting, dtype=np.float64)
            if value.shape not in ((), (3,)) or not np.isfinite(value).all():
                raise ValueError(f"{name} must be one number, or three for red, green and blue, not {value.tolist()}")

    def _mean_and_scale(self) -> tuple[Any, Any]:
        return mean_and_scale(self.preprocess, self.mean, self.scale)

    # -----------------------------------------------------------------------------------------------------------
    # The network

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"{printable(self.model)}: {reason}")

    def _read_model(self) -> bytes:
        try:
            return pathlib.Path(self.model).read_bytes()
        except OSError as error:
            raise self._error(f"the model cannot be read ({error.strerror})") from None

    def _open(self, data: bytes) -> None:
        """Make the session of ONNX Runtime; set ``_network`` to the session and the name of the layer."""
        network = self._session(data)
        outputs = [output.name for output in network.get_outputs()]
        if self.layer is None and len(outputs) > 1:
            raise self._error(f"has several outputs: set layer to one of {', '.join(outputs[:10])}")
        layer = outputs[0] if self.layer is None else self.layer
        if layer not in outputs:
            network = self._session(self._with_outputs(data, layer))
        self._network = network, layer

    def _session(self, data: bytes) -> Any:
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("features.kind=onnx needs onnxruntime: pip install 'visterm[onnx]'") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1 if self.n_jobs is None else joblib.effective_n_jobs(self.n_jobs)
        # Idle threads wait instead of spinning, which would take the cores from those that decode the next images.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.use_deterministic_compute = True
        options.log_severity_level = 4  # errors are raised, not printed
        available = onnxruntime.get_available_providers()
        providers = [name for name in _PROVIDERS if name in available]
        try:
            return onnxruntime.InferenceSession(data, options, providers=providers, enable_fallback=False)
        except Exception as error:  # ONNX Runtime's errors share no other class
            if "protobuf" in str(error):
                raise self._error("not an ONNX model, or damaged") from None
            if newer := re.search(r"Opset (\d+) is under development|model (IR version: \d+)", str(error)):
                version = newer[2] or f"opset {newer[1]}"
                raise self._error(
                    f"{version} is newer than this ONNX Runtime ({onnxruntime.__version__}) knows: export the model "
                    "with an older one, or update onnxruntime"
                ) from None
            raise self._error(f"ONNX Runtime cannot run this model ({_one_line(error)})") from None

    def _with_outputs(self, data: bytes, *layers: str) -> bytes:
        try:
            model = parse(data)
        except ImportError as error:
            raise ImportError(f"layer {layers[-1]!r} is no output, so it needs onnx: {error}") from None
        try:
            return with_outputs(model, *layers)
        except ValueError as error:
            raise self._error(str(error)) from None

    def _run_cells(self, prepared: Floats) -> Floats:
        """Return the map (c, h, w) whose mean is the vector of one prepared image."""
        if not hasattr(self, "_map"):
            data, (network, layer) = self._read_model(), self._network
            (rank,) = (len(output.shape) for output in network.get_outputs() if output.name == layer)
            try:
                cells = cells_of(parse(data), layer) or layer
            except ImportError as error:
                raise ImportError(f"explanations need onnx: {error}") from None
            if cells == layer and rank != 4:
                raise self._error("its vectors are not the mean over the cells of a map, which explanations need")
            self._map = self._session(self._with_outputs(data, cells)), cells
        session, cells = self._map
        image, fixed = _input(session)
        images = self._in_layout(image, np.repeat(prepared, fixed or 1, axis=0))
        return np.asarray(session.run([cells], {image.name: images})[0])[0]

    def _input_size(self) -> tuple[int, int]:
        """Check the input of the model; return its height and width."""
        inputs = self._network[0].get_inputs()
        if len(inputs) != 1:
            names = ", ".join(one.name for one in inputs[:5])
            raise self._error(f"has {len(inputs)} inputs ({names or 'none'}); an image model has one, the image")
        shape = [side if isinstance(side, int) else None for side in inputs[0].shape] or [None] * 4  # [] is unknown
        last = _channels_last(inputs[0])
        if len(shape) != 4 or not (last or shape[1] in (3, None)) or inputs[0].type != "tensor(float)":
            axes = " x ".join(str(side or "?") for side in shape)
            raise self._error(f"takes {inputs[0].type} of {axes}, not tensor(float) of images x 3 x height x width")
        sides = height, width = shape[1:3] if last else shape[2:]
        if self.size is None:
            if height is None or width is None:
                raise self._error("takes images of any size: set size, for example to 224")
            return height, width
        size = [self.size] * 2 if isinstance(self.size, int | np.integer) else list(self.size)
        if len(size) != 2 or not all(isinstance(n, int | np.integer) and 1 <= n <= 4096 for n in size):
            raise ValueError(f"size must be one or two integers, height and width up to 4096, not {self.size!r}")
        if any(n is not None and n != side for n, side in zip(sides, size, strict=True)):
            fixed = " x ".join(str(n or "any") for n in sides)
            raise self._error(f"takes images of {fixed}, not {size[0]} x {size[1]} (height x width)")
        return int(size[0]), int(size[1])

    def _run(self, images: Floats) -> Floats:
        """Return the vectors of prepared images (n, 3, height, width), not yet of unit length."""
        if not hasattr(self, "_network"):  # loaded, unpickled or copied
            data = self._read_model()
            if hashlib.sha256(data).hexdigest() != self.sha256_:
                raise self._error("the model has changed since fit")
            self._open(data)
        network, layer = self._network
        image, fixed = _input(network)
        if fixed is not None and len(images) != fixed:
            parts = [images[start : start + fixed] for start in range(0, len(images), fixed)]
            blank = np.zeros((fixed - len(parts[-1]), *images.shape[1:]), np.float32)
            parts[-1] = np.concatenate([parts[-1], blank])
            return np.concatenate([self._run(part) for part in parts])[: len(images)]
        n = len(images)
        try:
            (rows,) = network.run([layer], {image.name: self._in_layout(image, images)})
        except Exception as error:  # ONNX Runtime's errors share no other class
            hint = f" on {n} images at once (batch: 1 may help)" if n > 1 else ""
            raise self._error(f"ONNX Runtime cannot run this model{hint} ({_one_line(error)})") from None
        rows = np.asarray(rows)
        shape = rows.shape
        if rows.ndim == 1 and n == 1:
            rows = rows[None]
        if rows.ndim == 4:
            rows = rows.mean(axis=(2, 3))
        if rows.ndim != 2 or len(rows) != n or rows.dtype.kind != "f":
            raise self._error(
                f"{layer} gives {rows.dtype} {shape} for {n} image{'s' * (n > 1)}, not one vector per image; set layer "
                "to another layer" + (", or batch to 1" if n > 1 else "")
            )
        if not np.isfinite(rows).all():
            raise self._error(f"{layer} gives numbers that are not finite; check mean and scale")
        return rows.astype(np.float32, copy=False)

    @staticmethod
    def _in_layout(image: Any, images: Floats) -> Floats:
        """Return prepared images in the order of axes that the input has."""
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if _channels_last(image) else images

    def _seen(self, size: tuple[int, int]) -> tuple[float, float]:
        """Height and width, in pixels of an image of this size, of the part that the model gets; larger with "pad"."""
        (height, width), (old_height, old_width) = self.size_, size
        if self.resize == "stretch":
            return old_height, old_width
        choose = max if self.resize == "pad" else min
        factor = choose(old_height / height, old_width / width) * (self.keep if self.resize in _CUTS else 1)
        tall, wide = height * factor, width * factor
        if self.resize == "trim":
            return math.sqrt(self.keep * old_height * tall), math.sqrt(self.keep * old_width * wide)
        return tall, wide

    def _cell_boxes(self, size: tuple[int, int], shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Boxes (x, y, width, height) of the cells of a map of this shape, cut at the image's edges."""
        tall, wide = self._seen(size)
        ends = []
        for length, n, side in ((wide, shape[1], size[1]), (tall, shape[0], size[0])):
            edges = np.clip((side - length) / 2 + length * np.arange(n + 1) / n, 0, side)
            first = np.minimum(edges[:-1], side - 1)  # a cell of nothing but padding keeps one pixel
            ends.append((first, np.maximum(edges[1:] - first, 1)))
        (x, w), (y, h) = ends
        grid = np.meshgrid(y, x, indexing="ij"), np.meshgrid(h, w, indexing="ij")
        return np.stack([grid[0][1], grid[0][0], grid[1][1], grid[1][0]], axis=2).reshape(-1, 4)

    def _prepare(self, pixels: npt.NDArray[np.uint8]) -> Floats:
        """Turn RGB pixels (H, W, 3) into the input of the model, (3, height, width)."""
        (height, width), (old_height, old_width) = self.size_, pixels.shape[:2]
        inner, top, left = (height, width), 0, 0  # of the canvas
        if self.resize in _CUTS:
            sides = [max(1, round(side)) for side in self._seen((old_height, old_width))]
            y, x = (old_height - sides[0]) // 2, (old_width - sides[1]) // 2
            pixels = pixels[y : y + sides[0], x : x + sides[1]]
        elif self.resize == "pad":
            factor = max(old_height / height, old_width / width)
            inner = max(1, round(old_height / factor)), max(1, round(old_width / factor))
            top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
        shrinks = pixels.shape[0] > inner[0] or pixels.shape[1] > inner[1]
        interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR_EXACT  # the same on every processor
        small = cv2.resize(np.ascontiguousarray(pixels), inner[::-1], interpolation=interpolation)
        with np.errstate(over="ignore"):  # reported when the model gives numbers that are not finite
            mean, scale = (np.asarray(value, np.float32) for value in self._mean_and_scale())
            values = (small.astype(np.float32) - mean) * scale
        canvas = np.zeros((height, width, 3), np.float32)
        canvas[top : top + inner[0], left : left + inner[1]] = values
        if self.channels == "bgr":
            canvas = canvas[:, :, ::-1]
        return canvas.transpose(2, 0, 1)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("_network", "_map")}

    # -----------------------------------------------------------------------------------------------------------
    # On disk

    def save(self, folder: StrPath) -> None:
        """Write the fitted embedder into a folder, which is created if missing.

        Parameters
        ----------
        folder : path
            Gets a copy of the model, ``model.onnx``, and ``embedder.json`` (settings, format version and SHA-256).

        Raises
        ------
        ValueError
            The model has changed since `fit`.
        """
        check_is_fitted(self)
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.model, folder / "model.onnx")
        with open(folder / "model.onnx", "rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != self.sha256_:
                raise self._error("the model has changed since fit")
        settings = {name: _plain(value) for name, value in self.get_params().items() if name not in ("model", "n_jobs")}
        state = {"size": list(self.size_), "n_features_out": self.n_features_out_, "sha256": self.sha256_}
        record = {"format": FORMAT, "settings": settings, "fitted": state}
        (folder / "embedder.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: StrPath) -> OnnxEmbedder:
        """Read an embedder that `save` wrote. The model is read and checked at its first use.

        Parameters
        ----------
        folder : path

        Returns
        -------
        OnnxEmbedder

        Raises
        ------
        ValueError
            The folder holds no embedder, one of another format version, or a damaged one.
        """
        folder = pathlib.Path(folder)
        try:
            record = json.loads((folder / "embedder.json").read_text(encoding="utf-8"))
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}, this version reads {FORMAT}: rebuild it")
            embedder = cls(folder / "model.onnx", **{"reading": 1} | record["settings"])
            height, width = record["fitted"]["size"]
            embedder.size_ = int(height), int(width)
            embedder.n_features_out_ = int(record["fitted"]["n_features_out"])
            embedder.sha256_ = str(record["fitted"]["sha256"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder} holds no readable embedder: {error}") from None
        return embedder


def _input(session: Any) -> tuple[Any, int | None]:
    """Return the input of a session and the batch size that it requires."""
    (image,) = session.get_inputs()
    return image, image.shape[0] if image.shape and isinstance(image.shape[0], int) else None


def _channels_last(image: Any) -> bool:
    """Whether an input of ONNX Runtime is (n, height, width, 3), as TensorFlow has it."""
    shape = image.shape
    return len(shape) == 4 and shape[3] == 3 and shape[1] != 3


def _plain(value: Any) -> Any:
    """Return a setting as a value that JSON can hold."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _one_line(error: Exception) -> str:
    """Return the message of ONNX Runtime on one line, without its prefix."""
    text = " ".join(str(error).split())
    return printable(text.removeprefix("[ONNXRuntimeError] : "))[:200]
