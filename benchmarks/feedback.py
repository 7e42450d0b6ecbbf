"""Effect and time of learning from relevance feedback: ``python -m benchmarks feedback``.

A session on Caltech-101 with the configurations in `configs`: for each query, a test image, the first 20 results are
marked by their labels, all correctly or all incorrectly, and the learner is updated.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .vectors import DATA, ROOT

COMMAND = "python -m benchmarks feedback"
TOP = 20  # results that are marked, then compared with those after the update
CONFIGS = {1000: "caltech101-20", 10000: "caltech101-20-10000"}


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    return [record for d in list(CONFIGS)[: 1 if quick else 2] for record in _records(d, 3 if quick else 20)]


def _records(d: int, n_queries: int) -> list[dict]:
    from visterm.pipeline.store.run import Run

    with tempfile.TemporaryDirectory() as runs:
        options = ["--config", str(ROOT / "configs" / f"{CONFIGS[d]}.yaml"), "--run", "bench"]
        for stage in (["features", str(DATA / "caltech101")], ["train"], ["train", "--learner", "aroma"]):
            command = [Path(sys.executable).with_name("visterm"), *stage, *options]
            subprocess.run(command, check=True, capture_output=True, env=os.environ | {"VISTERM_RUNS": runs})
        place = Run(Path(runs) / "bench")
        return [record for learner in ("oasis", "aroma") for record in _of_learner(place, learner, d, n_queries)]


def _of_learner(place, learner: str, d: int, n_queries: int) -> list[dict]:
    from visterm.pipeline.feedback.update import MAX_FALL
    from visterm.pipeline.store.records import read_record

    right, wrong = _session(place, learner, n_queries, wrong=False), _session(place, learner, n_queries, wrong=True)
    seconds = np.median(right["seconds"])
    trained = read_record(place.learner(learner))["result"]["seconds"]
    return [
        {
            "name": f"feedback-{learner}-{d}",
            "what": f"{TOP} marks: kept, learned from, measured on held-out images, and searched with, d = {d}",
            "ours": seconds,
            "peer": trained,
            "peer_name": f"training {learner} again",
            "ratio": trained / seconds,
            "limit": "2 s, for people",
            "unit": "s",
            "n": right["n"],
            "measured": f"median of {right['n']} queries (the first {right['seconds'][0]:.2f}, the slowest "
            f"{max(right['seconds']):.2f}), one after the other; of their top {TOP} {np.mean(right['changed']):.1f} "
            f"changed (at least {min(right['changed'])}); relevant ones went {-right['moved'][0]:.1f} places up "
            f"and others {right['moved'][1]:.1f} down; a version takes {right['megabytes']:.1f} MB at the end",
            "command": COMMAND,
        },
        {
            "name": f"feedback-map-{learner}-{d}",
            "what": f"mAP of test images that nobody marked after a session of right marks, d = {d}",
            "ours": right["map"][1],
            "peer": right["map"][0],
            "peer_name": "before",
            "ratio": right["map"][1] / right["map"][0],
            "limit": f"a fall of {MAX_FALL}",
            "unit": "mAP",
            "n": right["n"],
            "measured": f"{TOP * right['n']} right marks, {right['refused']} of {right['n']} updates refused; all test "
            f"images, marked ones too: {right['all'][0]:.4f} to {right['all'][1]:.4f}; wrong marks: {wrong['refused']} "
            f"of {wrong['n']} updates refused, all test images {wrong['all'][0]:.4f} to {wrong['all'][1]:.4f}",
            "command": COMMAND,
        },
    ]


def _session(place, learner: str, n_queries: int, *, wrong: bool) -> dict:
    """Mark the first results of some queries, whose results are of both kinds, and update after each."""
    from visterm.pipeline import Searcher
    from visterm.pipeline.feedback.update import FeedbackTrainer
    from visterm.retrieval import ExactIndex

    shutil.rmtree(place.taught(learner), ignore_errors=True)
    for file in place.folder.glob("feedback.sqlite*"):
        file.unlink()
    teacher, searcher = FeedbackTrainer(place), Searcher(place)
    images, X = searcher.images, searcher.X
    test = np.array([image.split == "test" for image in images])
    y = np.array([min(image.labels) for image in images])
    marked = np.zeros(len(images), bool)
    base = teacher.load(learner)
    found = {"seconds": [], "changed": [], "refused": 0, "moved": []}
    index = ExactIndex(base, X)
    for row in np.random.default_rng(0).permutation(np.flatnonzero(test)):
        if len(found["seconds"]) == n_queries:
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
        found["seconds"].append(time.perf_counter() - started)
        found["changed"].append(len(set(before[:TOP]) - set(after[:TOP])))
        found["refused"] += not answer["accepted"]
        moved = np.argsort(after)[np.searchsorted(np.sort(after), before[:TOP])] - np.arange(TOP)
        found["moved"].append((moved[relevant].mean(), moved[~relevant].mean()))
        marked[[row, *before[:TOP]]] = True
    now = teacher.load(learner)
    kept = test & ~marked
    size = sum(file.stat().st_size for file in place.taught(learner).glob(f"{teacher.version(learner)}/*"))
    return found | {
        "n": len(found["seconds"]),
        "moved": np.mean(found["moved"], axis=0),
        "map": [model.score(X[kept], y[kept]) for model in (base, now)],
        "all": [model.score(X[test], y[test]) for model in (base, now)],
        "megabytes": size / 1e6,
    }
