"""Vectors of any ONNX image model, run by ONNX Runtime."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Self, TypedDict

import numpy as np
import numpy.typing as npt

from visterm.features.batches import check_images
from visterm.features.decoding import Picture, as_rgb, decode_picture
from visterm.features.depth import RULES, Rules
from visterm.features.images import MAX_PIXELS, StrPath, read_file
from visterm.features.parameters import Transformer, check_fitted
from visterm.features.presets import POOLS, PRESETS, RESIZES, mean_and_scale
from visterm.features.resizing import VERSION, resize, resize_as_before

from .onnx_files import ModelFile, read_model
from .onnx_graph import before_classifier, cells_of, inputs_of, suggest, with_output
from .onnx_pooling import channels_first, n_before_patches, patch_grid, pooled
from .onnx_session import (
    TRIED_BYTES,
    TRIED_SECONDS,
    NamedModel,
    as_input,
    batch_size,
    channels_last,
    check_size,
    files_of,
    image_input,
    limited_memory,
    open_session,
    run_within,
    sides_of,
)
from .vector_tables import MAX_FEATURES, unit_rows

FORMAT = 1  # of a saved embedder
_CUTS = ("crop", "trim")  # ways to fit an image that do not show all of it to the model

Floats = npt.NDArray[np.float32]


class ModelDescription(TypedDict):
    """A model and the settings that an embedder uses with it; ready for JSON."""

    model: str
    size: list[int]  # height and width of the input
    layout: str
    resize: str
    channels: str
    preprocess: str  # "own" with mean or scale
    mean: float | list[float]
    scale: float | list[float]
    layer: str  # the tensor that is the vector
    pool: str | None
    n_features: int
    suggested_layer: str | None  # the last pooled tensor; where there is none, the input of a classifier
    suggested_as: str
    cells: list[int] | None  # rows and columns of the map whose mean the vector is


class OnnxEmbedder(Transformer, NamedModel):
    """Turn images into dense vectors with an ONNX image model, run by ONNX Runtime.

    Parameters
    ----------
    model : path
        The ONNX file: an input float32, float16 or uint8, (n, 3, height, width) or (n, height, width, 3). Weights may
        lie in files beside it. Of a model of images and texts, the part that `layer` needs is used.
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
        None: as `preprocess` says. A model whose input is uint8 gets the pixels as they are.
    channels : {"rgb", "bgr"}
        The order of channels that the model expects.
    layer : str or None
        Name of the tensor in the model that is the vector; None: the output, if there is only one. A map of channels
        (n, c, h, w) or (n, h, w, c) is averaged over h and w. A tensor that is no output needs the package ``onnx``.
    pool : {"cls", "mean", "mean-patches"} or None
        Of tokens (n, n_tokens, d), as transformers give them: the first, the mean of all, or the mean of those of
        patches, without the class token and registers before them. None: the layer gives a vector or a map.
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
        Of the model file, in hexadecimal; where weights lie in files beside it, of all files.
    resizing_ : int
        Version of `visterm.features.resizing`, which an embedder saved earlier keeps.

    Notes
    -----
    - A side that shrinks is averaged over areas, one that grows is interpolated linearly. JPEG files much larger
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
        pool: str | None = None,
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
        self.pool = pool
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
            ONNX Runtime is not installed, or the package ``onnx``, which `layer`, weights in files and a model of
            images and texts need.
        """
        self._start()
        noise = np.random.default_rng(0).integers(0, 256, (self.batch, *self.size_, 3), dtype=np.uint8)
        with limited_memory(TRIED_BYTES):
            rows = self._run(np.stack([self._prepare(pixels) for pixels in noise]), TRIED_SECONDS)
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
        check_fitted(self, "n_features_out_")
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
        check_fitted(self, "n_features_out_")
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
        check_fitted(self, "n_features_out_")
        cells, layer, classified = None, None, None
        with contextlib.suppress(ImportError, ValueError):  # no package onnx; no cells
            graph = self._read_model().parsed()
            layer = suggest(graph)
            classified = before_classifier(graph, self._network[1]) if layer is None else None
            pixels = np.random.default_rng(0).integers(0, 256, (*self.size_, 3), dtype=np.uint8)
            self.block_vectors(pixels)
            cells = list(self._run_cells(self._prepare(pixels)[None]).shape[1:])
        mean, scale = self._mean_and_scale()
        return {
            "model": os.fspath(self.model),
            "size": list(self.size_),
            "layout": "channels last" if channels_last(image_input(self._network[0])) else "channels first",
            "resize": self.resize,
            "channels": self.channels,
            "preprocess": self._preprocess(),
            "mean": _plain(mean),
            "scale": _plain(scale),
            "layer": self._network[1],
            "pool": self.pool,
            "n_features": self.n_features_out_,
            "suggested_layer": layer or classified,
            "suggested_as": "the input of the last layer" if classified else "the last pooled tensor",
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
        if self.pool not in (None, *POOLS):
            raise ValueError(f"pool must be one of {', '.join(POOLS)}, not {self.pool!r}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be more than 0 and at most 1, not {self.keep!r}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch!r}")
        for name, setting in zip(
            ("mean", "scale"), mean_and_scale(self.preprocess, self.mean, self.scale), strict=True
        ):
            value = np.asarray(setting, dtype=np.float64)
            if value.shape not in ((), (3,)) or not np.isfinite(value).all():
                raise ValueError(f"{name} must be one number, or three for red, green and blue, not {value.tolist()}")

    def _mean_and_scale(self) -> tuple[Any, Any]:
        """Return mean and scale of the opened model, which takes pixels as they are where its input is uint8."""
        if self._takes_pixels():
            return 0.0, 1.0
        return mean_and_scale(self.preprocess, self.mean, self.scale)

    def _takes_pixels(self) -> bool:
        return image_input(self._network[0]).type == "tensor(uint8)"

    def _preprocess(self) -> str:
        if self._takes_pixels():
            return "none"
        return self.preprocess if self.mean is None and self.scale is None else "own"

    # -----------------------------------------------------------------------------------------------------------
    # The network

    def _start(self) -> None:
        """Check the settings, open the model, and find out the size of its input."""
        self._check_settings()
        model = self._model_to_fit()
        self.sha256_ = model.sha256()
        with limited_memory(TRIED_BYTES + 4 * model.n_bytes()):
            self._open(model)
        if self._takes_pixels() and (self.preprocess, self.mean, self.scale) != ("0..1", None, None):
            raise self._error("takes pixels from 0 to 255 (uint8): leave preprocess, mean and scale out")
        self.size_, self.resizing_ = self._input_size(), VERSION
        network, layer = self._network
        with self._named():
            check_size(network, layer, self.batch)

    def layer_shape(self) -> tuple[int, ...]:
        """Return the shape of what the layer gives for noise, before `pool`; errors as of `fit`."""
        self._start()
        n = batch_size(image_input(self._network[0])) or 1
        with limited_memory(TRIED_BYTES):
            return self._output(np.zeros((n, 3, *self.size_), np.float32), TRIED_SECONDS).shape

    def _open(self, model: ModelFile) -> None:
        """Make the session of ONNX Runtime; set ``_network`` to the session and the name of the layer."""
        with self._named():
            network = open_session(model, n_jobs=self.n_jobs)
            image, layer = image_input(network), self.layer
            names = [output.name for output in network.get_outputs()]
            inputs = [one.name for one in network.get_inputs()]
            only = image.name if len(inputs) > 1 else None
            if only is not None and layer is None:
                names = [name for name in names if inputs_of(model.parsed(), name) <= {only}]
                if not names:
                    raise ValueError(
                        f"has {len(inputs)} inputs ({', '.join(inputs[:5])}), and each output needs more than the "
                        f"image, {only}: set layer to a tensor that does not"
                    )
            if layer is None and len(names) > 1:
                raise ValueError(f"has several outputs: set layer to one of {', '.join(names[:10])}")
            layer = names[0] if layer is None else layer
            if only is not None or layer not in names:
                network = self._session_for(model, layer, only)
        self._network, self._only = (network, layer), only

    def _session_for(self, model: ModelFile, layer: str, image: str | None) -> Any:
        """Open a model with this layer as an output, and, of several inputs, the image alone."""
        try:
            data = with_output(model.parsed(), layer, *([] if image is None else [image]))
        except ImportError as error:
            why = f"layer {layer!r} is no output" if image is None else f"of several inputs {image} alone is kept"
            raise ImportError(f"{why}, so it needs onnx: {error}") from None
        return open_session(model, data, self.n_jobs)

    def _run_cells(self, prepared: Floats) -> Floats:
        """Return the map (c, h, w) whose mean is the vector of one prepared image."""
        if not hasattr(self, "_map"):
            model, (network, layer) = self._read_model(), self._network
            (rank,) = (len(output.shape) for output in network.get_outputs() if output.name == layer)
            try:
                cells = layer if rank == 3 else cells_of(model.parsed(), layer) or layer
            except ImportError as error:
                raise ImportError(f"explanations need onnx: {error}") from None
            if cells == layer and (rank not in (3, 4) or self.pool == "cls"):
                raise self._error("its vectors are not the mean over the cells of a map, which explanations need")
            self._map = self._session_for(model, cells, self._only), cells
        session, cells = self._map
        image = image_input(session)
        images = as_input(image, np.repeat(prepared, batch_size(image) or 1, axis=0))
        rows = np.asarray(session.run([cells], {image.name: images})[0])[:1].astype(np.float32)
        if rows.ndim == 4:
            return channels_first(rows, self.size_)[0]
        first, grid = n_before_patches(rows.shape[1], self.size_), patch_grid(rows.shape[1], self.size_)
        if first and self.pool == "mean":
            raise self._error("its vectors are the mean of more than cells: explanations need pool=mean-patches")
        return rows[0, first:].T.reshape(-1, *grid)

    def _input_size(self) -> tuple[int, int]:
        """Check the input of the model; return its height and width."""
        image = image_input(self._network[0])
        shape = sides_of(image)
        sides = height, width = shape[1:3] if channels_last(image) else shape[2:]
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

    def _output(self, images: Floats, seconds: float | None = None) -> npt.NDArray[Any]:
        """Return what the layer gives for prepared images (n, 3, height, width)."""
        image, n = image_input(self._network[0]), len(images)
        what = f"{n} images at once (batch: 1 may help)" if n > 1 else "1 image"
        with self._named():
            return np.asarray(run_within(*self._network, {image.name: as_input(image, images)}, what, seconds))

    def _run(self, images: Floats, seconds: float | None = None) -> Floats:
        """Return the vectors of prepared images (n, 3, height, width), not yet of unit length; `seconds` at most."""
        network, layer = self._network
        image = image_input(network)
        fixed = batch_size(image)
        if fixed is not None and len(images) != fixed:
            parts = [images[start : start + fixed] for start in range(0, len(images), fixed)]
            blank = np.zeros((fixed - len(parts[-1]), *images.shape[1:]), np.float32)
            parts[-1] = np.concatenate([parts[-1], blank])
            return np.concatenate([self._run(part, seconds) for part in parts])[: len(images)]
        n = len(images)
        rows = self._output(images, seconds)
        shape = rows.shape
        if rows.ndim == 1 and n == 1:
            rows = rows[None]
        if rows.ndim in (2, 3, 4) and rows.dtype.kind == "f":
            with self._named():
                rows = pooled(rows, self.pool, self.size_, layer)
        if rows.ndim != 2 or len(rows) != n or rows.dtype.kind != "f":
            raise self._error(
                f"{layer} gives {rows.dtype} {shape} for {n} image{'s' * (n > 1)}, not one vector per image; set layer "
                "to another layer" + (", or batch to 1" if n > 1 else "")
            )
        if not np.isfinite(rows).all():
            raise self._error(f"{layer} gives numbers that are not finite; check mean and scale")
        return rows.astype(np.float32, copy=False)

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
        """Turn RGB pixels (H, W, 3) into the input of the model, (3, height, width), and open it if it is not."""
        if not hasattr(self, "_network"):  # loaded, unpickled or copied
            self._open(self._model_as_fitted())
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
        small = (resize if self.resizing_ == VERSION else resize_as_before)(pixels, *inner)
        with np.errstate(over="ignore"):  # reported when the model gives numbers that are not finite
            mean, scale = (np.asarray(value, np.float32) for value in self._mean_and_scale())
            values = (small.astype(np.float32) - mean) * scale
        canvas = np.zeros((height, width, 3), np.float32)
        canvas[top : top + inner[0], left : left + inner[1]] = values
        if self.channels == "bgr":
            canvas = canvas[:, :, ::-1]
        return canvas.transpose(2, 0, 1)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_network", "_only", "_map")}

    # -----------------------------------------------------------------------------------------------------------
    # On disk

    def save(self, folder: StrPath) -> None:
        """Write the fitted embedder into a folder, which is created if missing; over an older one in one step.

        Parameters
        ----------
        folder : path
            Gets a copy of the model, ``model.onnx`` with the files of its weights, and ``embedder.json`` (settings,
            format version and SHA-256).

        Raises
        ------
        ValueError
            The model has changed since `fit`.
        """
        check_fitted(self, "n_features_out_")
        settings = {name: _plain(value) for name, value in self.get_params().items() if name not in ("model", "n_jobs")}
        state = {
            "size": list(self.size_), "n_features_out": self.n_features_out_, "sha256": self.sha256_,
            "resizing": self.resizing_,
        }  # fmt: skip
        self._save(folder, "embedder.json", {"format": FORMAT, "settings": settings, "fitted": state})

    @classmethod
    def load(cls, folder: StrPath) -> Self:
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
            data = (folder / "embedder.json").read_bytes()
            record = json.loads(data)
            if record["format"] != FORMAT:
                raise ValueError(f"format {record['format']!r}, this version reads {FORMAT}: rebuild it")
            embedder = cls(files_of(folder, data) / "model.onnx", **{"reading": 1} | record["settings"])
            height, width = record["fitted"]["size"]
            embedder.size_ = int(height), int(width)
            embedder.n_features_out_ = int(record["fitted"]["n_features_out"])
            embedder.sha256_ = str(record["fitted"]["sha256"])
            embedder.resizing_ = int(record["fitted"].get("resizing", 1))
            if embedder.resizing_ == 1:  # saved by a version that left files of weights out
                _check_whole(embedder.model)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder} holds no readable embedder: {error}") from None
        return embedder


def _check_whole(model: StrPath) -> None:
    try:
        read_model(model)
    except ImportError:  # needed for weights in files, which cannot be used without it
        return
    except ValueError as error:
        raise ValueError(f"an earlier version left its weights out ({error})") from None


def _plain(value: Any) -> Any:
    """Return a setting as a value that JSON can hold."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
