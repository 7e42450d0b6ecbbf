"""Learning at the size of the web: ``python -m benchmarks scale [--quick]``, or ``make webscale [SIZE=small]``.

The images and clicks of benchmarks/webscale.py, memory-mapped; OASIS at d = 10,000 (2,000 in small), `PAIRS` pairs a
query. A training is a process of its own that writes checkpoints and can be killed; it reports after every pass. What
is measured is kept below build/webscale, so that a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import machine
from .processes import peak_memory
from .records import ELAPSED, compared, kept_in, record, seconds
from .vectors import ROOT
from .webscale import D, load

PAIRS = 128  # of a query
C = 0.3  # of 0.1, 0.3 and 1, the best mAP at 230,000 images
WATCHED = 20_000  # validation images that mAP is measured on, and as many that nothing sees until the end
QUERIES, KS = 500, (1, 10, 50)  # of the latter, and the ranks at which precision is measured
STEP_SECONDS = 4e-6  # of a triplet, roughly: kills come while it learns
THREADS = 2
LINEAR = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_300_000)
PAPER = {"images": 2_300_000, "triplets": 160_000_000, "minutes": 4_000}


class Size(NamedTuple):
    """How much is learned from, and how much is done."""

    images: int
    validation: int
    d: int  # visterms
    steps: int
    pass_steps: int
    checkpoint_seconds: float
    kills: int
    repeats: int  # of what no two runs do alike


FULL = Size(2_300_000, 400_000, D, 160_000_000, 1_000_000, 60.0, 3, 1)
MEDIUM = Size(230_000, 40_000, D, 16_000_000, 500_000, 15.0, 10, 3)
SMALL = Size(10_000, 2_000, 2_000, 60_000, 10_000, 1.0, 1, 1)


def watched_of(size: Size) -> int:
    """Number of validation images that are watched; of few at most half are, so that others are left."""
    return min(size.validation // 2, WATCHED)


# -- one training, in a process of its own -----------------------------------------------------------------------------


def train(size: Size, folder: str, options: dict) -> None:
    """Learn, or go on from the checkpoint in `folder`; a line of JSON first, after each pass, and last."""
    from visterm.learners import OASIS, load_learner
    from visterm.learners.rows import take_rows

    X, y = load(size.images + size.validation, size.d)
    watched = np.arange(size.images, size.images + watched_of(size))
    used = np.arange(watched[-1] + 1)
    X, y = take_rows(X, used), y[used]
    checkpoint = Path(folder) / "checkpoint"
    begun = saved = time.monotonic()

    def tell(**line) -> None:
        line |= {"seconds": time.monotonic() - begun, "at": time.time(), "peak": peak_memory()}
        print(json.dumps(line), flush=True)

    def report(learner) -> None:
        nonlocal saved
        line = {}
        if learner.phase_ != "done" and time.monotonic() - saved > size.checkpoint_seconds:
            learner.save(checkpoint)
            saved = time.monotonic()
            line = {"checkpoint": learner.n_steps_}
        last = learner.history_[-1]
        tell(steps=learner.n_steps_, map=last["validation"], violating=last["violating"], **line)

    if checkpoint.exists():
        learner = load_learner(checkpoint)
        tell(resumed=learner.n_steps_)
        learner.resume(X, y, callback=report)
    else:
        tell(resumed=0)
        parameters = {"C": C, "n_steps": size.steps, "pass_steps": size.pass_steps, "pairs_per_query": PAIRS}
        learner = OASIS(
            **(parameters | {"click_cutoff": 0.0, "patience": None, "refit": False, "random_state": 0} | options)
        )
        learner.fit(X, y, validation_rows=watched, callback=report)
    looks = [entry for entry in learner.history_ if entry["validation"] is not None]
    tell(history=[(look["step"], look["validation"]) for look in looks], unwatched=unwatched(learner, size))


def unwatched(learner, size: Size) -> dict:
    """Precision at k of validation images that were never watched, each a query among the others; and by cosine.

    Relevant: clicked for the same query.
    """
    from visterm.learners import Cosine
    from visterm.learners.rows import take_rows
    from visterm.retrieval import ExactIndex, evaluate_index, relevance_from_labels

    X, y = load(size.images + size.validation, size.d)
    first = size.images + watched_of(size)
    rows = np.arange(first, min(first + WATCHED, X.shape[0]))
    X, y = take_rows(X, rows), y[rows]
    queries = np.sort(np.random.default_rng(0).permutation(len(rows))[:QUERIES])
    relevance = relevance_from_labels(y[queries], y, exclude=queries)
    precisions = {}
    for name, system in (("learned", learner), ("cosine", Cosine().fit(X))):
        ranked = evaluate_index(ExactIndex(system, X), X[queries], relevance, exclude=queries, max_k=KS[-1])
        precisions[name] = {str(k): ranked.precision_at(k) for k in KS}
    return precisions


def start(size: Size, folder: Path, options: dict) -> subprocess.Popen:
    arguments = [sys.executable, "-m", "benchmarks.scale", json.dumps(size), str(folder), json.dumps(options)]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def trained(size: Size, options: dict, kills: list[float]) -> dict:
    """Train, killing the process after each of `kills` seconds.

    What the last one reported, with the peak of all; and for each kill what was done again, in seconds since the last
    checkpoint or, where there was none yet, since the beginning.
    """
    folder = ROOT / "build" / "webscale" / f"training-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seconds, peak, repeated, lost, saved, waits = 0.0, 0, [], 0, 0, list(kills)
    try:
        while True:
            begun = time.monotonic()
            process, ended = start(size, folder, options), time.time()
            if waits:
                try:
                    process.wait(waits.pop(0))
                except subprocess.TimeoutExpired:
                    ended = time.time()
                    process.send_signal(signal.SIGKILL)
            lines = [json.loads(line) for line in process.communicate()[0].splitlines()]
            seconds += time.monotonic() - begun
            if lines:
                lost += lines[0]["resumed"] < saved  # a checkpoint that was reported and was not gone on from
                peak = max(peak, lines[-1]["peak"])
                saved = max([saved, *(line.get("checkpoint", 0) for line in lines)])
            if process.returncode == 0:
                return lines[-1] | {"elapsed": seconds, "peak": peak, "repeated": repeated, "lost": lost}
            if process.returncode != -signal.SIGKILL:
                raise RuntimeError(f"training ended with {process.returncode}")
            since = max((line["at"] for line in lines if "checkpoint" in line or "resumed" in line), default=ended)
            repeated.append(ended - since)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_seconds(size: Size) -> float:
    """What a process takes before its first pass: libraries, compiled kernels, tables of the clicks."""
    process = start(size, ROOT / "build" / "webscale" / "nothing", {"n_steps": 1, "pass_steps": 1})
    begun = time.monotonic()
    process.communicate()
    return time.monotonic() - begun


# -- what is measured --------------------------------------------------------------------------------------------------


def kept(name: str, size: Size, measure, *, keep: bool) -> dict:
    """What `measure` finds; kept on disk, so that a run that was stopped goes on, until the code has changed."""
    digest = hashlib.sha256(repr((size, C, PAIRS, WATCHED, THREADS, LINEAR)).encode())
    learners = (f"learners/{name}.py" for name in ("blocks", "oasis", "online", "triplets"))
    for file in (*learners, "benchmarks/webscale.py"):
        digest.update((ROOT / file).read_bytes())

    def measured() -> dict:
        print(f"    {name}: {size.images:,} images, {size.steps:,} triplets", file=sys.stderr, flush=True)
        return json.loads(json.dumps(measure(size)))

    file = ROOT / "build" / "webscale" / f"{name}-{size.images}-{digest.hexdigest()[:8]}.json"
    return kept_in(file, measured) if keep else measured()


def whole_training(size: Size) -> dict:
    """The paper's task, by threads without locks, killed and resumed on the way."""
    first = start_seconds(size)
    moments = first + np.random.default_rng(0).uniform(0.05, 0.3, size.kills) * size.steps * STEP_SECONDS
    return trained(size, {"n_jobs": THREADS, "lock_free": True}, moments.tolist())


def killed_training(size: Size) -> dict:
    """The same triplets in one go, and killed at random moments; by one thread, which makes the same W in every run.

    Passes are short, so that several lie between two checkpoints.
    """
    options = {"n_steps": size.steps // 4, "pass_steps": size.pass_steps // 5}
    whole = trained(size, options, [])
    first = start_seconds(size)
    most = 2 * max(whole["elapsed"] - first, 0.1) / (size.kills + 1)
    moments = first + np.random.default_rng(1).uniform(0, most, size.kills)
    killed = trained(size, options, moments.tolist())
    if killed["lost"] or killed["history"] != whole["history"]:
        raise RuntimeError("a training that was killed did not end as one that was not")
    return {"whole": whole, "killed": killed}


def threads(size: Size) -> dict:
    """One thread and several, the same triplets; looks and checkpoints as rare as in the whole training."""
    size = size._replace(pass_steps=size.pass_steps * 2, checkpoint_seconds=FULL.checkpoint_seconds)
    options = {"n_steps": size.steps // 2}
    several = options | {"n_jobs": THREADS}
    return {
        "one": trained(size, options, []),
        "more": [trained(size, several, []) for _ in range(size.repeats)],
        "lock_free": [trained(size, several | {"lock_free": True}, []) for _ in range(size.repeats)],
    }


def mixing(size: Size) -> dict:
    """Rankers that mix, beside one worker, as many triplets in all; checkpoints as rare as in the whole training."""
    size = size._replace(checkpoint_seconds=FULL.checkpoint_seconds)
    half, every = size.steps // 2 // THREADS, size.pass_steps
    workers = {"n_rankers": THREADS, "n_jobs": THREADS, "n_steps": half}
    return {
        "one": trained(size, {"n_steps": half * THREADS}, []),
        "mixing": trained(size, workers | {"mix_every": every}, []),
        "averaged at the end": trained(size, workers, []),
    }


def linear(size: Size) -> dict:
    """Seconds a triplet by the number of images; W, the pairs and the passes are the same."""
    from visterm.learners import TripletSampler
    from visterm.learners.blocks import block_size
    from visterm.learners.oasis import _learn
    from visterm.learners.rows import as_rows, take_rows

    X, y = load(size.images + size.validation, size.d)
    worlds = []
    for n in (n for n in LINEAR if n <= size.images):
        some = np.arange(n)
        worlds.append((n, as_rows(take_rows(X, some)), TripletSampler(y[some], cutoff=0.0)))
    n_steps = min(200_000, size.pass_steps)

    def learn(turn: int, rows, sampler, W: np.ndarray) -> None:
        triplets = sampler.draw_pass((turn,), 0, n_steps, pairs_per_query=PAIRS)
        _learn(rows, triplets, (C, None, block_size(rows, size.d, PAIRS)), W)

    times: dict[int, list[float]] = {n: [] for n, _, _ in worlds}
    for turn in range(6):
        for n, rows, sampler in worlds:
            W = np.zeros((size.d, size.d), np.float32)
            np.fill_diagonal(W, 1.0)
            W[:] += 0  # pages that exist: the first touch of a page is no part of a triplet
            times[n].append(seconds(learn, turn, rows, sampler, W, clock=ELAPSED) / n_steps)
    return {str(n): 1e6 * float(np.median(spent[1:])) for n, spent in times.items()}


def run(quick: bool = False) -> list[dict]:
    big, small = (SMALL, SMALL) if quick else (FULL, MEDIUM)
    X, _ = load(big.images + big.validation, big.d)
    entries = X.nnz / X.shape[0]
    size = f"{big.images:,} images, d = {big.d:,}, {entries:.0f} non-zeros, {PAIRS} pairs a query"
    training = kept("training", big, whole_training, keep=not quick)
    maps = [value for _, value in training["history"]]
    minutes = training["elapsed"] / 60
    moved = 3 * 4 * entries * big.d / PAIRS
    records = [
        record(
            "webscale-training",
            f"{big.steps:,} triplets, {size}; watched on {watched_of(big):,} images, killed "
            f"{len(training['repeated'])} times",
            "OASIS-JMLR section 5.2, one CPU of 2009, as many triplets",
            f": {moved / 1e3:.3g} kB of rows of W a triplet, read, and read and written",
            compared(minutes, PAPER["minutes"] * big.steps / PAPER["triplets"], "min", big.steps),
            measured=f"once, {THREADS} threads without locks, elapsed, with validation, checkpoints and "
            "what was repeated",
            bound=big.steps * moved / machine.memory_bandwidth(THREADS),
        ),
        record(
            "webscale-peak-memory",
            f"peak of the process, mapped vectors counted, {size}",
            "what is aimed at",
            f"W and the best W: {2 * 4 * big.d**2 / 1e6:,.0f} MB",
            compared(training["peak"] / 1e6, 6_000.0, "MB", big.images),
            measured="VmHWM",
        ),
        record(
            "webscale-map",
            f"mAP of 500 queries among {watched_of(big):,} images, {size}; half of the gain after "
            f"{steps_to_half(training['history']):,} triplets",
            "cosine",
            "1",
            compared(max(maps), maps[0], "mAP", watched_of(big), higher=True),
            measured="best of all looks",
            curve=training["history"],
        ),
    ]
    if "unwatched" in training:  # a training that was kept from before has none
        own, cosine = training["unwatched"]["learned"], training["unwatched"]["cosine"]
        records.append(
            record(
                "webscale-unwatched",
                f"precision at 10 of {QUERIES} images that validation never watched, among {watched_of(big):,} "
                f"of these, {size}; " + ", ".join(f"at {k} {own[k]:.3f}, cosine {cosine[k]:.3f}" for k in own),
                "cosine",
                "1",
                compared(own["10"], cosine["10"], "precision", QUERIES, higher=True),
                measured="once, at the end, with the W that was best on watched images",
            )
        )
    fits = kept("threads", small, threads, keep=not quick)
    one, maps = fits["one"], {name: [run["history"][-1][1] for run in fits[name]] for name in ("more", "lock_free")}
    for name, runs, how in (
        ("webscale-threads", "more", f"{THREADS} threads share the work of one model"),
        ("webscale-lock-free", "lock_free", f"{THREADS} threads learn into one W without locks"),
    ):
        spent = [run["seconds"] for run in fits[runs]]
        records.append(
            record(
                name,
                f"{how}: {small.steps // 2:,} triplets, {small.images:,} images; mAP "
                f"{np.mean(maps[runs]):.4f}, of one thread {one['history'][-1][1]:.4f}",
                "one thread",
                f"{one['seconds'] / THREADS:.3g} s: half",
                compared(float(np.median(spent)), one["seconds"], "s", small.steps // 2),
                measured=f"one thread once, {THREADS} threads {len(fits[runs])} times (median, mean mAP), with "
                "start and validation",
                maps=[one["history"][-1][1], *maps[runs]],
            )
        )
    fits = kept("killed", small, killed_training, keep=not quick)
    whole, killed = fits["whole"], fits["killed"]
    records.append(
        record(
            "webscale-killed",
            f"final mAP of {small.steps // 4:,} triplets, killed {len(killed['repeated'])} times; "
            f"{killed['lost']} checkpoints lost, at most {max(killed['repeated'], default=0):.1f} s done again",
            "never killed",
            "the same: the streams are",
            compared(killed["history"][-1][1], whole["history"][-1][1], "mAP", len(killed["repeated"]), higher=True),
            measured=f"checkpoints after a pass, {small.checkpoint_seconds:.0f} s after the last one",
            repeated=killed["repeated"],
        )
    )
    fits = kept("mixing", small, mixing, keep=not quick)
    one, mixed = fits["one"], fits["mixing"]
    last = {name: value["history"][-1][1] for name, value in fits.items()}
    steps, maps = zip(*one["history"], strict=True)
    as_long = np.interp(mixed["seconds"], np.array(steps) * one["seconds"] / steps[-1], maps)
    for name, peer, value in (("triplets", "as many triplets", last["one"]), ("time", "as long", float(as_long))):
        records.append(
            record(
                f"webscale-mixing-equal-{name}",
                f"mAP of {THREADS} workers that mix every {small.pass_steps:,} triplets, {small.steps // 2:,} "
                f"in all; averaged only at the end {last['averaged at the end']:.4f}",
                f"one worker, {peer} ({one['seconds']:.0f} s in all; mixing {mixed['seconds']:.0f} s)",
                "1",
                compared(last["mixing"], value, "mAP", small.steps // 2, higher=True),
                measured="once each",
            )
        )
    per_triplet = kept("linear", big, linear, keep=not quick)
    first, final = list(per_triplet)[0], list(per_triplet)[-1]
    records.append(
        record(
            "webscale-linear",
            "a triplet by the number of images: "
            + ", ".join(f"{int(n):,}: {microseconds:.1f} us" for n, microseconds in per_triplet.items()),
            f"with {int(first):,} images",
            "the same: a triplet touches three images",
            compared(per_triplet[final], per_triplet[first], "us", int(final)),
            measured="median of 5 in turns, one thread",
            curve=[(int(n), microseconds) for n, microseconds in per_triplet.items()],
        )
    )
    return records


def steps_to_half(history: list) -> int:
    """Triplets after which half of the final gain in mAP was there."""
    maps = np.array([value for _, value in history])
    return int(history[int(np.argmax(maps >= (maps[0] + maps.max()) / 2))][0])


def draw(records: list[dict], path: Path) -> None:
    """Two panels: mAP over triplets (OASIS-JMLR figure 3), and time a triplet over images (figure 4)."""
    from .plots import new_figure, save, series

    curves = {record["name"]: record["curve"] for record in records if "curve" in record}
    figure, (learning, times) = new_figure(2, width=10, height=3.6)
    steps, maps = zip(*curves["webscale-map"], strict=True)
    series(learning, 0, np.array(steps) / 1e6, maps)
    learning.set(xlabel="triplets (millions)", ylabel="mAP of validation images", ylim=(0, None))
    images, microseconds = zip(*curves["webscale-linear"], strict=True)
    series(times, 0, images, microseconds)
    times.set(xscale="log", xlabel="number of images", ylabel="time a triplet (µs)", ylim=(0, None))
    times.minorticks_off()
    save(figure, path)


if __name__ == "__main__":
    size_, folder_, options_ = sys.argv[1:]
    train(Size(*json.loads(size_)), folder_, json.loads(options_))
