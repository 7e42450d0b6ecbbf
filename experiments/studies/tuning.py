"""What `visterm tune` gains on test images, and whether it keeps its time and resumes.

``visterm features``, ``train`` and ``evaluate`` with the defaults, then ``tune --apply``, ``train`` and ``evaluate``,
as a user runs them; OASIS on visterms, test images query test images. 45 minutes of tuning, or ten with --quick.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time

import numpy as np

from benchmarks.photos import SETS, folder_of, settings_of
from benchmarks.processes import command, environment, set_options, visterm
from benchmarks.records import ELAPSED, compared, record, timed

from .configurations import FOLDS


def evaluated(runs: str) -> float:
    visterm(runs, "train")
    return json.loads(visterm(runs, "evaluate", "--json"))["systems"]["oasis"]["map"]


def extracted(name: str, fold: int, runs: str) -> None:
    settings = [*settings_of(name), f"split.seed={fold}"]
    if name == "caltech101-20":
        settings.append("features.stride=16")
    visterm(runs, "features", folder_of(name), *set_options(settings))


def tuned(runs: str, *options: str) -> dict:
    return json.loads(visterm(runs, "tune", *options, "--json"))


def gain(name: str, fold: int, *limit: str) -> dict:
    """Test mAP with the defaults and with tuned settings, and the seconds that tuning took."""
    with tempfile.TemporaryDirectory() as runs:
        extracted(name, fold, runs)
        defaults = evaluated(runs)
        result, spent = timed(tuned, runs, *limit, "--apply", clock=ELAPSED)
        return {
            "defaults": defaults,
            "tuned": evaluated(runs),
            "seconds": spent,
            "trials": len(result["trials"]),
            "best": result["best"],
            "validation": [result["own_score"], result["score"]],
        }


def resumed(name: str, fold: int, budget: str) -> dict:
    """What a tuning chooses that is killed after half of its time and resumed, and what one chooses that is not."""
    from visterm.plugins.choosing.commands import seconds_of

    with tempfile.TemporaryDirectory() as runs:
        extracted(name, fold, runs)
        options = ("--budget", budget)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        killed = subprocess.Popen(command("tune", *options), env=environment(runs), **quiet)
        time.sleep(seconds_of(budget) / 2)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        again, whole = tuned(runs, *options), tuned(runs, *options, "--force")
    return {
        "same": again["best"] == whole["best"],
        "killed": again["best"],
        "whole": whole["best"],
        "trials": [len(again["trials"]), len(whole["trials"])],
        "seconds": [again["seconds"], whole["seconds"]],
    }


def run(quick: bool = False) -> list[dict]:
    budget, folds = ("60s", FOLDS[:2]) if quick else ("5m", FOLDS)
    gains = {name: [gain(name, fold, "--budget", budget) for fold in folds] for name in SETS}
    return records(gains, resumed("textures", 0, budget), budget)


def records(gains: dict[str, list[dict]], again: dict, budget: str) -> list[dict]:
    """What `run` reports of what `gain` found for each set and split, and of what `resumed` found."""
    from visterm.plugins.choosing.commands import seconds_of

    maps = []
    for name, splits in gains.items():
        pairs = [(one["tuned"], one["defaults"]) for one in splits]
        ours, peer = np.mean(pairs, axis=0)
        both = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in pairs)
        maps.append(
            record(
                f"tune-map-{name}",
                f"tuned settings on {name}, OASIS, --budget {budget}",
                "the defaults",
                "1.0: every relevant image first",
                compared(ours, peer, "mAP", len(splits), higher=True),
                measured=f"test images, mean of {len(splits)} splits: {both}",
            )
        )
    spent = [one["seconds"] for splits in gains.values() for one in splits]
    return [
        *maps,
        record(
            "tune-budget",
            f"the longest tuning with --budget {budget}, with the start of Python and the plot",
            "the budget",
            "1: the budget is used and kept",
            compared(max(spent), float(seconds_of(budget)), "s", len(spent)),
            measured=f"elapsed time of {len(spent)} tunings, {min(spent):.0f} to {max(spent):.0f} s",
        ),
        record(
            "tune-resumed",
            "a tuning that is killed after half of its time and resumed: the same choice as one that is not",
            "the same choice",
            "1",
            compared(float(again["same"]), 1.0, "of 1", 1, higher=True),
            measured=f"textures, SIGKILL; {again['trials'][0]} and {again['trials'][1]} trials",
        ),
    ]
