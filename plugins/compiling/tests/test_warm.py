"""Compiling the kernels ahead."""

import os
import subprocess
import sys

import pytest

from visterm.learners import LEARNERS
from visterm.plugins.compiling import warm


@pytest.mark.parametrize("kind", warm.KINDS)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore")
def test_every_learner_takes_the_few_vectors(name, kind):
    warm.learn(name, kind)


def test_images_are_extracted():
    warm.extract()


@pytest.mark.slow
def test_dense_searches_compile_nothing_more(tmp_path):
    program = """
import numpy as np
from numba.core import event
from visterm.plugins.compiling import warm
from visterm.learners import Cosine
from visterm.retrieval import ExactIndex, StoredVectors
warm.search()
compiled = []
event.register("numba:compile", type("", (event.Listener,), {"on_start": lambda self, e: compiled.append(e.data),
                                                             "on_end": lambda self, e: None})())
X = np.random.default_rng(1).random((500, 20), np.float32)
np.save("X.npy", X.astype(np.float16))
stored = StoredVectors([np.load("X.npy", mmap_mode="r")], np.zeros(500, int), np.arange(500))
for gallery in (X, stored):
    for queries in (X[:1], X[:100], stored):
        for k in (10, 499):
            ExactIndex(Cosine().fit(X), gallery, n_jobs=2).search(queries, k, exclude=np.full(len(queries), -1))
print(len(compiled), [one["dispatcher"] for one in compiled])
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, env=environment, text=True)
    assert told == "0 []\n"


@pytest.mark.slow
def test_kernels_compiled_with_an_older_helper_are_deleted(tmp_path):
    room, beside = tmp_path / "visterm/learners", tmp_path / "visterm/plugins/room"
    room.mkdir(parents=True)
    beside.mkdir(parents=True)
    kernel = "import numba\n{}\n\n@numba.njit(cache=True)\ndef {}(x):\n    return {}\n"
    (room / "helper.py").write_text(kernel.format("", "helper", "x + 1"))
    (room / "between.py").write_text(kernel.format("from .helper import helper", "between", "helper(x)"))
    (room / "caller.py").write_text(kernel.format("from .between import between", "caller", "between(x)"))
    far = kernel.format("from visterm.learners.caller import caller", "far", "caller(x)")
    (beside / "far.py").write_text(far)
    (room / "alone.py").write_text(kernel.format("", "alone", "x"))

    def answer() -> int:
        line = (
            "from visterm.learners import alone; from visterm.plugins.room import far; print(far.far(alone.alone(1)))"
        )
        return int(subprocess.check_output([sys.executable, "-c", line], cwd=tmp_path))

    def compiled() -> set[str]:
        return {file.name.partition(".")[0] for file in tmp_path.rglob("__pycache__/*.nbi")}

    assert answer() == 2
    warm.delete_stale_kernels(tmp_path / "visterm")
    assert compiled() == {"helper", "between", "caller", "far", "alone"}
    (room / "helper.py").write_text(kernel.format("", "helper", "x + 10"))
    assert answer() == 2, "Numba looks at imported files, too: nothing needs to be deleted"
    warm.delete_stale_kernels(tmp_path / "visterm")
    assert compiled() == {"helper", "alone"}
    assert answer() == 11
