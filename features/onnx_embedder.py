"""Vectors of any ONNX image model, run by ONNX Runtime."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterable
from itertools import islice
from typing import Any, Self

import cv2
import joblib
import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .batches import check_images, read_pixels
from .images import MAX_PIXELS, StrPath, printable
from .vector_tables import MAX_FEATURES, unit_rows

FORMAT = 1  # of a saved embedder

Floats = npt.NDArray[np.float32]


class OnnxEmbedder(TransformerMixin, BaseEstimator):
    """Turn images into dense vectors with an ONNX image model, run by ONNX Runtime.

    Parameters
    ----------
    model : path
        The ONNX file: one input, float32 (n, 3, height, width).
    size : int, (int, int) or None
        Height and width of the input in pixels; one number for a square. None: read from the model.
    resize : {"crop", "stretch", "pad"}
        How to fit an image to this size. "crop": take the largest centred part of the input's aspect ratio. "stretch":
        take the whole image and change its aspect ratio. "pad": take the whole image and fill the rest with the mean
        colour.
    keep : float
        With "crop", the share of the longest possible sides that is kept: 0.875 equals resizing to 256 and cropping to
        224.
    mean, scale : float or three floats
        The model gets ``(pixel - mean) * scale`` of pixels from 0 to 255; three numbers are for red, green and blue.
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
    n_jobs : int or None
        Threads of ONNX Runtime; None means one, -1 all cores. Not saved.

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
    - Images are reduced by averaging over areas, and enlarged by linear interpolation.
    - With ``batch=1`` the vector of an image does not depend on the other images. With larger batches ONNX Runtime may
      sum in another order, which can change the last digits.
    - Versions before 0.2 ran models with OpenCV. The vectors differ in the last digits only (up to 1e-6 of unit length
      with the models of the tests), so saved embedders and the vectors made with them stay valid.
    - Several threads may use one embedder at the same time.
    """

    def __init__(
        self,
        model="",
        *,
        size=None,
        resize="crop",
        keep=1.0,
        mean=0.0,
        scale=1 / 255,
        channels="rgb",
        layer=None,
        batch=1,
        unit=True,
        max_pixels=MAX_PIXELS,
        n_jobs=None,
    ):
        self.model = model
        self.size = size
        self.resize = resize
        self.keep = keep
        self.mean = mean
        self.scale = scale
        self.channels = channels
        self.layer = layer
        self.batch = batch
        self.unit = unit
        self.max_pixels = max_pixels
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
        while batch := [self._prepare(read_pixels(image, self.max_pixels)) for image in islice(remaining, self.batch)]:
            rows.append(self._run(np.stack(batch)))
        X = np.concatenate(rows)
        return unit_rows(X) if self.unit else X

    def _check_settings(self) -> None:
        for name, allowed in (("resize", ("crop", "stretch", "pad")), ("channels", ("rgb", "bgr"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep must be more than 0 and at most 1, not {self.keep!r}")
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, not {self.batch!r}")
        for name in ("mean", "scale"):
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.shape not in ((), (3,)) or not np.isfinite(value).all():
                raise ValueError(f"{name} must be one number, or three for red, green and blue, not {value.tolist()}")

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
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("features.kind=onnx needs onnxruntime: pip install 'visterm[onnx]'") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1 if self.n_jobs is None else joblib.effective_n_jobs(self.n_jobs)
        options.use_deterministic_compute = True
        options.log_severity_level = 4  # errors are raised, not printed

        def session(data: bytes) -> Any:
            try:
                return onnxruntime.InferenceSession(
                    data, options, providers=["CPUExecutionProvider"], enable_fallback=False
                )
            except Exception as error:  # ONNX Runtime's errors share no other class
                if "protobuf" in str(error):
                    raise self._error("not an ONNX model, or damaged") from None
                raise self._error(f"ONNX Runtime cannot run this model ({_one_line(error)})") from None

        network = session(data)
        outputs = [output.name for output in network.get_outputs()]
        if self.layer is None and len(outputs) > 1:
            raise self._error(f"has several outputs: set layer to one of {', '.join(outputs[:10])}")
        layer = outputs[0] if self.layer is None else self.layer
        if layer not in outputs:
            network = session(self._with_output(data, layer))
        self._network = network, layer

    def _with_output(self, data: bytes, layer: str) -> bytes:
        """Return the model with one of its inner tensors as another output, as ONNX Runtime gives only outputs."""
        try:
            import onnx
        except ImportError:
            raise ImportError(f"layer {layer!r} is no output, so it needs onnx: pip install 'visterm[onnx]'") from None
        model = onnx.load_from_string(data)
        tensors = [name for node in model.graph.node for name in node.output if name]
        if layer not in tensors:
            similar = difflib.get_close_matches(layer, tensors, n=1)
            hint = f" (did you mean {similar[0]}?)" if similar else ""
            more = f" and {len(tensors) - 10} before" if len(tensors) > 10 else ""
            raise self._error(f"has no layer {layer!r}{hint}; its last layers are {', '.join(tensors[-10:])}{more}")
        model.graph.output.append(onnx.ValueInfoProto(name=layer))  # ONNX Runtime infers the type
        return model.SerializeToString()

    def _input_size(self) -> tuple[int, int]:
        """Check the input of the model; return its height and width."""
        inputs = self._network[0].get_inputs()
        if len(inputs) != 1:
            names = ", ".join(one.name for one in inputs[:5])
            raise self._error(f"has {len(inputs)} inputs ({names}); an image model has one, the image")
        shape = [side if isinstance(side, int) else None for side in inputs[0].shape] or [None] * 4  # [] is unknown
        if len(shape) != 4 or shape[1] not in (3, None) or inputs[0].type != "tensor(float)":
            sides = " x ".join(str(side or "?") for side in shape)
            raise self._error(f"takes {inputs[0].type} of {sides}, not tensor(float) of images x 3 x height x width")
        own = height, width = shape[2:]
        if self.size is None:
            if height is None or width is None:
                raise self._error("takes images of any size: set size, for example to 224")
            return height, width
        wanted = [self.size] * 2 if isinstance(self.size, int | np.integer) else list(self.size)
        if len(wanted) != 2 or not all(isinstance(n, int | np.integer) and 1 <= n <= 4096 for n in wanted):
            raise ValueError(f"size must be one or two integers, height and width up to 4096, not {self.size!r}")
        if any(n is not None and n != side for n, side in zip(own, wanted, strict=True)):
            fixed = " x ".join(str(n or "any") for n in own)
            raise self._error(f"takes images of {fixed}, not {wanted[0]} x {wanted[1]} (height x width)")
        return int(wanted[0]), int(wanted[1])

    def _run(self, images: Floats) -> Floats:
        """Return the vectors of prepared images (n, 3, height, width), not yet of unit length."""
        if not hasattr(self, "_network"):  # loaded, unpickled or copied
            data = self._read_model()
            if hashlib.sha256(data).hexdigest() != self.sha256_:
                raise self._error("the model has changed since fit")
            self._open(data)
        network, layer = self._network
        (image,) = network.get_inputs()
        fixed = image.shape[0] if image.shape and isinstance(image.shape[0], int) else None
        if fixed is not None and len(images) != fixed:
            parts = [images[start : start + fixed] for start in range(0, len(images), fixed)]
            blank = np.zeros((fixed - len(parts[-1]), *images.shape[1:]), np.float32)
            parts[-1] = np.concatenate([parts[-1], blank])
            return np.concatenate([self._run(part) for part in parts])[: len(images)]
        n = len(images)
        try:
            (rows,) = network.run([layer], {image.name: images})
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

    def _prepare(self, pixels: npt.NDArray[np.uint8]) -> Floats:
        """Turn RGB pixels (H, W, 3) into the input of the model, (3, height, width)."""
        (height, width), (old_height, old_width) = self.size_, pixels.shape[:2]
        inner, top, left = (height, width), 0, 0  # of the canvas
        if self.resize == "crop":
            factor = min(old_height / height, old_width / width) * self.keep
            sides = [max(1, round(side * factor)) for side in (height, width)]
            y, x = (old_height - sides[0]) // 2, (old_width - sides[1]) // 2
            pixels = pixels[y : y + sides[0], x : x + sides[1]]
        elif self.resize == "pad":
            factor = max(old_height / height, old_width / width)
            inner = max(1, round(old_height / factor)), max(1, round(old_width / factor))
            top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
        shrinks = pixels.shape[0] > inner[0] or pixels.shape[1] > inner[1]
        interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        small = cv2.resize(np.ascontiguousarray(pixels), inner[::-1], interpolation=interpolation)
        with np.errstate(over="ignore"):  # reported when the model gives numbers that are not finite
            values = (small.astype(np.float32) - np.float32(self.mean)) * np.float32(self.scale)
        canvas = np.zeros((height, width, 3), np.float32)
        canvas[top : top + inner[0], left : left + inner[1]] = values
        if self.channels == "bgr":
            canvas = canvas[:, :, ::-1]
        return canvas.transpose(2, 0, 1)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_network"}

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
            embedder = cls(folder / "model.onnx", **record["settings"])
            height, width = record["fitted"]["size"]
            embedder.size_ = int(height), int(width)
            embedder.n_features_out_ = int(record["fitted"]["n_features_out"])
            embedder.sha256_ = str(record["fitted"]["sha256"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{folder} holds no readable embedder: {error}") from None
        return embedder


def _plain(value: Any) -> Any:
    """Return a setting as a value that JSON can hold."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _one_line(error: Exception) -> str:
    """Return the message of ONNX Runtime on one line, without its prefix."""
    text = " ".join(str(error).split())
    return printable(text.removeprefix("[ONNXRuntimeError] : "))[:200]
