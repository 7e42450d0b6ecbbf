"""Compile the kernels, so that the first command after `make install` does not wait.

It is run by: python -m visterm.plugins.compiling.warm

Numba keeps what it has compiled beside the sources, or in NUMBA_CACHE_DIR. It compiles a kernel again when the file of
the kernel has changed, but not when a file has whose kernels it calls: `delete_stale_kernels` looks at those.
"""

from __future__ import annotations

import logging
import multiprocessing
import re
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

_ROOMS = ("features", "learners", "retrieval", "plugins/*")  # with kernels
KINDS = ("sparse", "dense")  # vectors, which have kernels of their own
_SMALL = {"n_steps": 64, "pass_steps": 64, "validation_fraction": 0.3, "n_bits": 2, "n_metrics": 2, "n_components": 8}
_IMAGES, _FEATURES = 40, 64
_GALLERY = 200  # images, so that few of them are candidates


def delete_stale_kernels(package: Path) -> None:
    """Delete the compiled kernels of a module of a package that imports from one that changed after compiling."""
    sources = {
        ".".join(file.relative_to(package).with_suffix("").parts): (file, text)
        for room in _ROOMS
        for file in package.glob(f"{room}/*.py")
        if re.search("numba|njit", text := file.read_text(encoding="utf-8"))
    }

    def called(name: str) -> set[str]:
        """Modules with kernels that a module imports, directly or through others."""
        near, far = (
            re.findall(pattern, sources[name][1], re.MULTILINE)
            for pattern in (r"^from \.(\w+) import", r"^from visterm\.([\w.]+) import")
        )
        direct = {f"{name.rpartition('.')[0]}.{module}" for module in near}.union(far) & set(sources)
        return direct.union(*map(called, direct))

    for name, (source, _) in sources.items():
        compiled = list(source.parent.glob(f"__pycache__/{source.stem}.*.nb[ci]"))
        changed = [sources[module][0].stat().st_mtime for module in called(name)]
        if compiled and changed and min(file.stat().st_mtime for file in compiled) < max(changed):
            for file in compiled:
                file.unlink(missing_ok=True)


def learn(name: str, kind: str) -> None:
    """Fit a learner on a few vectors, and search with it."""
    import scipy.sparse as sp

    from visterm.learners import LEARNERS
    from visterm.retrieval import ExactIndex

    rng = np.random.default_rng(0)
    density = 0.1 if kind == "sparse" else 1.0
    X: Any = sp.random_array((_IMAGES, _FEATURES), density=density, dtype=np.float32, rng=rng, format="csr")
    X = X if kind == "sparse" else X.toarray()
    learner: Any = LEARNERS[name]()
    known = learner.get_params()
    learner.set_params(**{key: value for key, value in _SMALL.items() if key in known})
    learner.fit(X, np.arange(_IMAGES) % 4)
    ExactIndex(learner, X).search(X, 5)
    if hasattr(learner, "annotate"):
        learner.annotate(X, 2)


def search() -> None:
    """Search a few vectors, in memory and stored, also by neighbours, with compiled kernels alone."""
    import scipy.sparse as sp

    from visterm import compiled
    from visterm.learners import Cosine
    from visterm.retrieval import ExactIndex, NeighbourIndex, Neighbours, StoredVectors

    compiled.Kernel.spent = compiled.WORTH_COMPILING
    X = np.random.default_rng(0).random((_GALLERY, _FEATURES), np.float32)
    halves, rows = X.astype(np.float16), np.arange(_GALLERY)
    for gallery in (sp.csr_matrix(X), X, StoredVectors([halves], np.zeros(_GALLERY, int), rows)):
        index = ExactIndex(Cosine().fit(X), gallery)
        for k in (5, _GALLERY - 1):  # few of the gallery, and nearly all
            index.search(X[:8], k, exclude=rows[:8])
        by = NeighbourIndex(index, Neighbours.of(index, gallery), gallery)
        by.search(gallery[:2], 5, exclude=rows[:2])


def extract() -> None:
    """Extract visterms from a few images, with compiled kernels alone."""
    from visterm import compiled
    from visterm.features import VistermExtractor

    compiled.Kernel.spent = compiled.WORTH_COMPILING
    images = [np.random.default_rng(i).integers(0, 256, (128, 160, 3), np.uint8) for i in range(4)]
    VistermExtractor(n_visterms=12, n_colors=4, random_state=0).fit(images).transform(images)


def _done(task: tuple[str, ...]) -> None:
    logging.disable()  # so few images are warned of
    warnings.simplefilter("ignore")
    if len(task) > 1:
        learn(*task)
    else:
        {"extract": extract, "search": search}[task[0]]()


def main() -> None:
    """Compile on two processes, which share what they have compiled."""
    from visterm.learners import LEARNERS

    delete_stale_kernels(Path(import_module("visterm.learners").__path__[0]).parent)
    tasks: list[tuple[str, ...]] = [("extract",), ("search",), *((name, kind) for name in LEARNERS for kind in KINDS)]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_done, tasks))


if __name__ == "__main__":
    main()
