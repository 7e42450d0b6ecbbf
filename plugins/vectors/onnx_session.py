"""Sessions of ONNX Runtime, and the input of an image model."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import re
import shutil
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from visterm.extras import how_to_install
from visterm.features.images import StrPath, printable
from visterm.features.parameters import effective_n_jobs
from visterm.files import replaced

from .onnx_files import ModelFile, read_model

_PROVIDERS = ("CUDAExecutionProvider", "ROCMExecutionProvider", "CPUExecutionProvider")  # the first available
_FOLDER = "session.model_external_initializers_file_folder_path"  # where a model that is given as bytes has its weights
_FIRST_WITH_FOLDER = (1, 21)  # older versions ignore it, and take weights from the current folder

MAX_OUTPUT = 1_000_000_000  # bytes of a layer, of a batch
TRIED_BYTES, TRIED_SECONDS = 4_000_000_000, 120.0  # more memory and time than the first run of a network may take
_one_limit = threading.Lock()

# Types of images that a model can take.
DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


class NamedModel:
    """A model by its path, with which its errors begin."""

    model: StrPath
    sha256_: str

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"{printable(self.model)}: {reason}")

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Put the path before the message of a ValueError."""
        try:
            yield
        except ValueError as error:
            raise self._error(str(error)) from None

    def _read_model(self) -> ModelFile:
        with self._named():
            return read_model(self.model)

    def _model_to_fit(self) -> ModelFile:
        model = self._read_model()
        with self._named():
            model.check_nodes()
        return model

    def _model_as_fitted(self) -> ModelFile:
        model = self._read_model()
        if model.sha256() != self.sha256_:
            raise self._error("the model has changed since fit")
        return model

    def _save(self, folder: StrPath, name: str, record: dict[str, Any], tokenizer: bytes | None = None) -> None:
        """Write the model, a tokenizer and, as `name`, the record into a folder, which is created if missing.

        In place of an older record this is one step: the files lie in a folder of their own, which `files_of` finds,
        until they have replaced the older ones.
        """
        folder, data = pathlib.Path(folder), (json.dumps(record, indent=2) + "\n").encode()
        model, new = self._model_as_fitted(), _while_saving(folder, data)
        older = (folder / name).read_bytes() if (folder / name).exists() else None
        in_use, is_saved = folder if older is None else files_of(folder, older), False
        try:
            for place in (folder,) if older is None else (new, folder):
                place.mkdir(parents=True, exist_ok=True)
                if tokenizer is not None:
                    with replaced(place / "tokenizer.json") as file:
                        file.write(tokenizer)
                model.copy_to(place)
                if read_model(place / "model.onnx").sha256() != self.sha256_:
                    raise self._error("the model has changed since fit")
                with replaced(folder / name) as file:
                    file.write(data)
            is_saved = True
        finally:
            if is_saved:
                in_use = folder
            elif older is not None and (folder / name).read_bytes() != older:
                in_use = new
            for path in folder.glob(".new-" + 8 * "[0-9a-f]"):  # also of processes that were killed
                if path != in_use:
                    (path / "model.onnx").unlink(missing_ok=True)  # first: without it, no other file is read
                    shutil.rmtree(path, ignore_errors=True)


def _while_saving(folder: pathlib.Path, record: bytes) -> pathlib.Path:
    """The folder of the files of a record while they replace older ones."""
    return folder / f".new-{zlib.crc32(record):08x}"


def files_of(folder: pathlib.Path, record: bytes) -> pathlib.Path:
    """Return where the files of a record in a folder lie: there, or, where saving was interrupted, in one below."""
    new = _while_saving(folder, record)
    return new if (new / "model.onnx").exists() else folder


def open_session(model: ModelFile, data: bytes | None = None, n_jobs: int | None = None) -> Any:
    """Open a model, or its changed graph `data`.

    Raises
    ------
    ValueError
        ONNX Runtime cannot run it. One line, without the name of the model.
    ImportError
        ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError:
        raise ImportError(f"features.kind=onnx needs onnxruntime: {how_to_install('onnx')}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if n_jobs is None else effective_n_jobs(n_jobs)
    # Idle threads wait instead of spinning, which would take the cores from those that decode the next images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.use_deterministic_compute = True
    options.log_severity_level = 4  # errors are raised, not printed
    version = onnxruntime.__version__
    if model.folder is not None:
        if tuple(int(part) for part in version.split(".")[:2]) < _FIRST_WITH_FOLDER:
            raise ValueError(f"models with weights in another file need onnxruntime 1.21 or later, not {version}")
        options.add_session_config_entry(_FOLDER, model.folder)
        data = model.graph.SerializeToString() if data is None else data
    available = onnxruntime.get_available_providers()
    providers = [name for name in _PROVIDERS if name in available]
    try:
        return onnxruntime.InferenceSession(
            model.data if data is None else data, options, providers=providers, enable_fallback=False
        )
    except Exception as error:  # ONNX Runtime's errors share no other class
        if "protobuf" in str(error):
            raise ValueError("not an ONNX model, or damaged; export it again") from None
        if newer := re.search(r"Opset (\d+) is under development|model (IR version: \d+)", str(error)):
            needed = newer[2] or f"opset {newer[1]}"
            raise ValueError(
                f"{needed} is newer than this ONNX Runtime ({version}) knows: export the model with an older one, or "
                "update onnxruntime"
            ) from None
        raise ValueError(f"ONNX Runtime cannot run this model ({one_line(error)})") from None


def check_size(session: Any, layer: str, n_images: int) -> None:
    """Raise ValueError, without the name of the model, for a layer whose declared shape is of gigabytes."""
    (output,) = (one for one in session.get_outputs() if one.name == layer)
    sides = [side for side in output.shape if isinstance(side, int)]
    n_bytes = 4 * math.prod(sides) * (1 if len(sides) == len(output.shape) else n_images)
    if n_bytes > MAX_OUTPUT:
        shape = " x ".join(map(str, output.shape))
        size = f"{n_bytes / 1e9:.0f} GB for a batch of {n_images}"
        raise ValueError(f"{layer} gives {shape} numbers, {size}; set layer to another layer")


def run_within(session: Any, layer: str, inputs: dict[str, Any], what: str, seconds: float | None) -> Any:
    """Return what a layer gives; ValueError, without the name of the model, if it fails or takes longer.

    ``what`` says in words what the inputs are. ``seconds`` None: without a limit.
    """
    import onnxruntime

    options, ended = onnxruntime.RunOptions(), threading.Event()

    def end() -> None:
        ended.set()
        options.terminate = True

    timer = threading.Timer(seconds or 0, end)
    if seconds is not None:
        timer.start()
    try:
        return session.run([layer], inputs, options)[0]
    except Exception as error:  # ONNX Runtime's errors share no other class
        failed = f"ONNX Runtime cannot run this model on {what} ({one_line(error)})"
        raise ValueError(f"takes more than {seconds:g} seconds for {what}" if ended.is_set() else failed) from None
    finally:
        timer.cancel()


@contextlib.contextmanager
def limited_memory(n_bytes: int) -> Iterator[None]:
    """Let this process map so much more memory and no more, where the system has such a limit, for what is tried.

    A network that asks for more is then an error; without a limit the system may end the process.
    """
    try:
        import resource

        import onnxruntime

        if set(_PROVIDERS[:-1]) & set(onnxruntime.get_available_providers()):  # they reserve more than they use
            raise ImportError
        mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    with _one_limit:  # two would give back each other's
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY or soft > mapped + n_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (mapped + n_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def image_input(session: Any) -> Any:
    """Return the input of a session that takes images; ValueError, without the name of the model, if none does."""
    inputs = session.get_inputs()
    images = [one for one in inputs if _takes_images(one)]
    if len(images) == 1:
        return images[0]
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs[:5])
        raise ValueError(f"has {len(inputs)} inputs ({names or 'none'}); an image model has one, the image")
    axes = " x ".join(str(side or "?") for side in sides_of(inputs[0]))
    raise ValueError(f"takes {inputs[0].type} of {axes}, not tensor(float) of images x 3 x height x width")


def _takes_images(one: Any) -> bool:
    """Whether an input is of three channels, floats or pixels."""
    shape = sides_of(one)
    return one.type in DTYPES and len(shape) == 4 and (channels_last(one) or shape[1] in (3, None))


def sides_of(one: Any) -> list[int | None]:
    """Return the shape of an input, None where it is open."""
    return [side if isinstance(side, int) else None for side in one.shape] or [None] * 4  # [] is unknown


def batch_size(image: Any) -> int | None:
    """Return the batch size that an input requires."""
    return image.shape[0] if image.shape and isinstance(image.shape[0], int) else None


def channels_last(image: Any) -> bool:
    """Whether an input of ONNX Runtime is (n, height, width, 3), as TensorFlow has it."""
    shape = image.shape
    return len(shape) == 4 and shape[3] == 3 and shape[1] != 3


def as_input(image: Any, images: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Return prepared images (n, 3, height, width) with the axes and the type that an input has."""
    ordered = images.transpose(0, 2, 3, 1) if channels_last(image) else images
    dtype = DTYPES[image.type]
    with np.errstate(over="ignore"):  # reported when the model gives numbers that are not finite
        return np.ascontiguousarray(ordered if dtype == np.float32 else ordered.astype(dtype))


def one_line(error: Exception) -> str:
    """Return the message of ONNX Runtime on one line, without its prefix."""
    text = " ".join(str(error).split())
    return printable(text.removeprefix("[ONNXRuntimeError] : "))[:200]
