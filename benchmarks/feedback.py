"""Effect and time of learning from relevance feedback: ``python -m benchmarks feedback``.

A session on Caltech-101 with the configurations in `configs`: for each query, a test image, the first 20 results are
marked by their labels, all correctly or all incorrectly, and the learner is updated.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from .processes import RUN, visterm
from .records import compared, record
from .vectors import DATA, ROOT

TOP = 20  # results that are marked, then compared with those after the update
CONFIGS = {1000: "caltech101-20", 10000: "caltech101-20-10000"}


def run(quick: bool = False) -> list[dict]:
    return [one for d in list(CONFIGS)[: 1 if quick else 2] for one in _of_config(d, 3 if quick else 20)]


def _of_config(d: int, n_queries: int) -> list[dict]:
    from visterm.pipeline.store.run import Run

    with tempfile.TemporaryDirectory() as runs:
        options = ["--config", str(ROOT / "configs" / f"{CONFIGS[d]}.yaml")]
        for stage in (["features", DATA / "caltech101"], ["train"], ["train", "--learner", "aroma"]):
            visterm(runs, *stage, *options)
        place = Run(Path(runs) / RUN)
        return [one for learner in ("oasis", "aroma") for one in _of_learner(place, learner, d, n_queries)]


def _of_learner(place, learner: str, d: int, n_queries: int) -> list[dict]:
    from visterm.pipeline.store.records import read_record
    from visterm.teaching.feedback import MAX_FALL

    right, wrong = _session(place, learner, n_queries, wrong=False), _session(place, learner, n_queries, wrong=True)
    trained, n = read_record(place.learner(learner))["result"]["seconds"], right["n"]
    return [
        record(
            f"feedback-{learner}-{d}",
            f"{TOP} marks: kept, learned from, measured on held-out images, and searched with, d = {d}",
            f"training {learner} again",
            "2 s, for people",
            compared(np.median(right["seconds"]), trained, "s", n),
            measured=f"median of {n} queries (the first {right['seconds'][0]:.2f}, the slowest "
            f"{max(right['seconds']):.2f}), one after the other; of their top {TOP} "
            f"{np.mean(right['changed']):.1f} changed (at least {min(right['changed'])}); relevant ones went "
            f"{-right['moved'][0]:.1f} places up and others {right['moved'][1]:.1f} down; a version takes "
            f"{right['megabytes']:.1f} MB at the end",
        ),
        record(
            f"feedback-map-{learner}-{d}",
            f"mAP of test images that nobody marked after a session of right marks, d = {d}",
            "before",
            f"a fall of {MAX_FALL}",
            compared(right["map"][1], right["map"][0], "mAP", n, higher=True),
            measured=f"{TOP * n} right marks, {right['refused']} of {n} updates refused; all test "
            f"images, marked ones too: {right['all'][0]:.4f} to {right['all'][1]:.4f}; wrong marks: "
            f"{wrong['refused']} of {wrong['n']} updates refused, all test images {wrong['all'][0]:.4f} to "
            f"{wrong['all'][1]:.4f}",
        ),
    ]


def _session(place, learner: str, n_queries: int, *, wrong: bool) -> dict:
    """Mark the first results of some queries, whose results are of both kinds, and update after each."""
    from visterm.pipeline import Searcher
    from visterm.retrieval import ExactIndex
    from visterm.teaching.feedback import FeedbackTrainer

    # Of all learners: a version that is left behind would say that marks are missing.
    shutil.rmtree(place.feedback(learner).parent, ignore_errors=True)
    for file in place.folder.glob("feedback.sqlite*"):
        file.unlink()
    teacher, searcher = FeedbackTrainer(place), Searcher(place)
    images, X = searcher.images, searcher.X
    test = np.array([image.split == "test" for image in images])
    y = np.array([min(image.labels) for image in images])
    marked = np.zeros(len(images), bool)
    base = teacher.load(learner)
    figures = {"seconds": [], "changed": [], "refused": 0, "moved": []}
    index = ExactIndex(base, X)
    for row in np.random.default_rng(0).permutation(np.flatnonzero(test)):
        if len(figures["seconds"]) == n_queries:
            break
        before = index.search(X[[row]], exclude=[row]).indices[0][: len(images) - 1]
        relevant = y[before[:TOP]] == y[row]
        if relevant.all() or not relevant.any():
            continue
        started = time.perf_counter()
        for i, is_relevant in zip(before[:TOP], relevant, strict=True):
            mark = 1 if is_relevant != wrong else -1
            teacher.marks.add(images[row].sha256, images[i], mark, learner=learner, version=teacher.version(learner))
        answer = teacher.update(learner)
        index = ExactIndex(teacher.load(learner), X)
        after = index.search(X[[row]], exclude=[row]).indices[0][: len(images) - 1]
        figures["seconds"].append(time.perf_counter() - started)
        figures["changed"].append(len(set(before[:TOP]) - set(after[:TOP])))
        figures["refused"] += not answer["accepted"]
        moved = np.argsort(after)[np.searchsorted(np.sort(after), before[:TOP])] - np.arange(TOP)
        figures["moved"].append((moved[relevant].mean(), moved[~relevant].mean()))
        marked[[row, *before[:TOP]]] = True
    now = teacher.load(learner)
    kept = test & ~marked
    size = sum(file.stat().st_size for file in place.feedback(learner).glob(f"{teacher.version(learner)}/*"))
    return figures | {
        "n": len(figures["seconds"]),
        "moved": np.mean(figures["moved"], axis=0),
        "map": [model.score(X[kept], y[kept]) for model in (base, now)],
        "all": [model.score(X[test], y[test]) for model in (base, now)],
        "megabytes": size / 1e6,
    }
