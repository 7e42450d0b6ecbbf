"""What `visterm tune` gains on test images, and whether it keeps its time and resumes: ``python -m benchmarks tuning``.

``visterm features``, ``train`` and ``evaluate`` with the defaults, then ``tune --apply``, ``train`` and ``evaluate``,
as a user runs them; OASIS on visterms, test images query test images. 45 minutes of tuning, or ten with --quick. One
part of it alone:

    python -m benchmarks.tuning flowers 0 --budget 60s
    python -m benchmarks.tuning flowers 0 --budget 60s --kill
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from .configurations import FOLDS
from .vectors import DATA, ROOT

COMMAND = "python -m benchmarks tuning"
CLASSES = yaml.safe_load((ROOT / "configs" / "caltech101-20-10000.yaml").read_text())["collection"]["classes"]
SETS = {  # folder and settings
    "caltech101-20": (
        "caltech101",
        [f"collection.classes={json.dumps(CLASSES)}", "split.train=40", "split.test=25", "features.stride=16"],
    ),
    "flowers": ("flowers", []),
    "textures": ("textures", []),
}


def visterm(*arguments: str, runs: str, **options) -> subprocess.CompletedProcess:
    program = Path(sys.executable).with_name("visterm")
    environment = os.environ | {"VISTERM_RUNS": runs}
    return subprocess.run([program, *arguments, "--run", "bench"], env=environment, capture_output=True, **options)


def evaluated(runs: str) -> float:
    visterm("train", runs=runs, check=True)
    return json.loads(visterm("evaluate", "--json", runs=runs, check=True).stdout)["systems"]["oasis"]["map"]


def extracted(name: str, fold: int, runs: str) -> None:
    folder, settings = SETS[name]
    options = [part for setting in (*settings, f"split.seed={fold}") for part in ("--set", setting)]
    visterm("features", str(DATA / folder), *options, runs=runs, check=True)


def gain(name: str, fold: int, *limit: str) -> dict:
    """Test mAP with the defaults and with tuned settings, and the seconds that tuning took."""
    with tempfile.TemporaryDirectory() as runs:
        extracted(name, fold, runs)
        defaults = evaluated(runs)
        started = time.perf_counter()
        result = json.loads(visterm("tune", *limit, "--apply", "--json", runs=runs, check=True).stdout)
        seconds = time.perf_counter() - started
        return {
            "defaults": defaults,
            "tuned": evaluated(runs),
            "seconds": seconds,
            "trials": len(result["trials"]),
            "best": result["best"],
            "validation": [result["own_score"], result["score"]],
        }


def resumed(name: str, fold: int, budget: str) -> dict:
    """What a tuning chooses that is killed after half of its time and resumed, and what one chooses that is not."""
    from visterm.pipeline.cli.tuning import seconds_of

    with tempfile.TemporaryDirectory() as runs:
        extracted(name, fold, runs)
        command = ("tune", "--budget", budget, "--json")
        program = [Path(sys.executable).with_name("visterm"), *command, "--run", "bench"]
        killed = subprocess.Popen(
            program, env=os.environ | {"VISTERM_RUNS": runs}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(seconds_of(budget) / 2)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        again = json.loads(visterm(*command, runs=runs, check=True).stdout)
        whole = json.loads(visterm(*command, "--force", runs=runs, check=True).stdout)
    return {
        "same": again["best"] == whole["best"],
        "killed": again["best"],
        "whole": whole["best"],
        "trials": [len(again["trials"]), len(whole["trials"])],
        "seconds": [again["seconds"], whole["seconds"]],
    }


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    budget, folds = ("60s", FOLDS[:2]) if quick else ("5m", FOLDS)
    found = {name: [gain(name, fold, "--budget", budget) for fold in folds] for name in SETS}
    return records(found, resumed("textures", 0, budget), budget)


def records(found: dict[str, list[dict]], again: dict, budget: str) -> list[dict]:
    """What `run` reports of what `gain` found for each set and split, and of what `resumed` found."""
    from visterm.pipeline.cli.tuning import seconds_of

    limit, made = seconds_of(budget), []
    for name, splits in found.items():
        tuned, defaults = (np.array([one[key] for one in splits]) for key in ("tuned", "defaults"))
        both = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in zip(tuned, defaults, strict=True))
        made.append(
            {
                "name": f"tune-map-{name}",
                "what": f"tuned settings on {name}, OASIS, --budget {budget}",
                "ours": float(tuned.mean()),
                "peer": float(defaults.mean()),
                "peer_name": "the defaults",
                "ratio": float(tuned.mean() / defaults.mean()),
                "limit": "1.0: every relevant image first",
                "unit": "mAP",
                "n": len(splits),
                "measured": f"test images, mean of {len(splits)} splits: {both}",
                "command": COMMAND,
            }
        )
    seconds = [one["seconds"] for splits in found.values() for one in splits]
    return [
        *made,
        {
            "name": "tune-budget",
            "what": f"the longest tuning with --budget {budget}, with the start of Python and the plot",
            "ours": max(seconds),
            "peer": float(limit),
            "peer_name": "the budget",
            "ratio": limit / max(seconds),
            "limit": "1: the budget is used and kept",
            "unit": "s",
            "n": len(seconds),
            "measured": f"elapsed time of {len(seconds)} tunings, {min(seconds):.0f} to {max(seconds):.0f} s",
            "command": COMMAND,
        },
        {
            "name": "tune-resumed",
            "what": "a tuning that is killed after half of its time and resumed: the same choice as one that is not",
            "ours": float(again["same"]),
            "peer": 1.0,
            "peer_name": "the same choice",
            "ratio": float(again["same"]),
            "limit": "1",
            "unit": "of 1",
            "n": 1,
            "measured": f"textures, SIGKILL; {again['trials'][0]} and {again['trials'][1]} trials",
            "command": COMMAND,
        },
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("fold", type=int)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--trials", help="so many trials, however long they take: where other work takes the cores")
    parser.add_argument("--kill", action="store_true", help="kill and resume, and compare the choice")
    given = parser.parse_args()
    limit = ("--trials", given.trials) if given.trials else ("--budget", given.budget)
    found = resumed(given.set, given.fold, given.budget) if given.kill else gain(given.set, given.fold, *limit)
    print(json.dumps(found, indent=1))
