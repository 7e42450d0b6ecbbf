"""What `configs/spatial.yaml` gains over the defaults, by set of photos: ``python -m benchmarks spatial [--quick]``.

``visterm features``, ``train`` and ``evaluate``, as a user runs them, with the configuration and without; OASIS, test
images query test images. Three splits, but for Corel-5K, which has one of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from visterm.pipeline.config.loading import load_config

from .configurations import FOLDS
from .cross_validation import measured_once, scores_of, training_images
from .statistics import mean_and_error
from .vectors import DATA, ROOT, choose_images

COMMAND = "python -m benchmarks spatial"
SETS = {  # folder, settings, whether it has a split of its own
    "caltech101-20": ("caltech101", ["split.train=40", "split.test=25"], False),
    "flowers": ("flowers", [], False),
    "textures": ("textures", [], False),
    "corel5k": ("corel5k", [f"collection.labels={DATA / 'corel5k' / 'labels.csv'}"], True),
}
CHOICE_SETS = "caltech101-20", "flowers", "textures"  # small, with one label per image
CHOICE_FOLDS = 2
# Blocks of 16 and 32 in 3 x 3 cells, and blocks of 24 in 2 x 2, did no better on textures beyond noise.
MIXTURES = {
    f"blocks of {block_size}, cells {cells}": [
        f"features.block_size={block_size}", "features.stride=8", f"features.cells={cells}",
        "features.weighting.tf=sqrt",
    ]
    for block_size, cells in ((24, [3]), (24, [1, 3]))
} | {"defaults": []}  # fmt: skip
STEPS = 0.1, 0.3  # oasis.C


def mean_average_precision(folder: str, config: Path | None, options: list[str]) -> float:
    """That of OASIS on a set of photos, with some options of the commands."""
    options = [*(["--config", str(config)] if config else []), *options]

    def measure() -> float:
        with tempfile.TemporaryDirectory() as runs:
            for stage in (["features", str(DATA / folder)], ["train"], ["evaluate"]):
                command = [Path(sys.executable).with_name("visterm"), *stage, "--run", "bench", *options]
                subprocess.run(command, check=True, capture_output=True, env=os.environ | {"VISTERM_RUNS": runs})
            metrics = json.loads((Path(runs) / "bench" / "evaluations" / "oasis" / "metrics.json").read_text())
        return metrics["systems"]["oasis"]["map"]

    settings = folder, options, config.read_text() if config else None
    return measured_once(settings, measure, ("features", "learners", "retrieval", "pipeline"))


def of_set(name: str) -> tuple[str, list[str], bool]:
    """Folder and settings of a set of photos, and whether it has a split of its own."""
    folder, settings, has_split = SETS[name]
    if name == "caltech101-20":
        classes = sorted({path.parent.name for path in choose_images(name)[0]})
        settings = [*settings, f"collection.classes={json.dumps(classes)}"]
    return folder, settings, has_split


def record(name: str, quick: bool) -> dict:
    folder, settings, has_split = of_set(name)
    if quick:
        settings = [*settings, "oasis.n_steps=20000", "features.max_training_images=100"]
    found = []
    for fold in FOLDS[: 1 if quick or has_split else 3]:
        chosen = [*settings, *([] if has_split else [f"split.seed={fold}"])]
        options = [part for setting in chosen for part in ("--set", setting)]
        spatial = ROOT / "configs" / "spatial.yaml"
        found.append([mean_average_precision(folder, config, options) for config in (spatial, None)])
    ours, peer = np.transpose(found)
    folds = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in found)
    return {
        "name": f"spatial-map-{name}",
        "what": f"configs/spatial.yaml on {name}, OASIS",
        "ours": mean_and_error(ours)[0],
        "peer": mean_and_error(peer)[0],
        "peer_name": "the defaults",
        "ratio": float(np.mean(ours) / np.mean(peer)),
        "limit": "1.0: every relevant image first",
        "unit": "mAP",
        "n": len(found),
        "measured": f"mean of {len(found)} split{'s' if len(found) > 1 else ''}: {folds}",
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    return [record(name, quick) for name in (["textures"] if quick else SETS)]


def steps_of(mixture: str) -> tuple[float, ...]:
    """Values of `oasis.C` that are tried: the defaults have their own only."""
    return STEPS[:1] if mixture == "defaults" else STEPS


def cross_validated(name: str, mixture: str) -> dict:
    """Scores on the training images of a set, see `scores_of`."""
    folder, settings, _ = of_set(name)
    paths, y = training_images(DATA / folder, load_config(None, [*settings, "split.seed=0"]))
    return scores_of(paths, y, MIXTURES[mixture], steps_of(mixture), CHOICE_FOLDS)


def choose(names: list[str]) -> None:
    """Print the mAP of each mixture by set, and the mixture with the fewest non-zeros of those as good as the best.

    Only a mixture that beats the defaults on every set is eligible. It is as good as the best if its ratios to the
    defaults, one per set and fold, are lower by no more than the standard error of the differences.
    """
    measured = {}
    for mixture in MIXTURES:
        for name in names:
            measured[mixture, name] = cross_validated(name, mixture)
            print(f"    {name}, {mixture}: {np.mean(measured[mixture, name]['map'], axis=0).round(4)}", file=sys.stderr)
    peer = np.array([measured["defaults", name]["map"] for name in names])[:, :, 0]  # (n_sets, n_folds), C = 0.1
    print(f"{'mixture':28}  C  " + "".join(f"{name:>15}" for name in names) + "  to defaults     non-zeros")
    ratios, costs = {}, {}
    for mixture in MIXTURES:
        rows = [measured[mixture, name] for name in names]
        scores = np.array([row["map"] for row in rows])  # (n_sets, n_folds, n_C)
        costs[mixture] = np.mean([row["nonzeros"] for row in rows])
        for i, C in enumerate(steps_of(mixture)):
            by_set = scores[:, :, i].mean(axis=1)
            ratio = scores[:, :, i] / peer
            mean, error = mean_and_error(ratio.ravel())
            if mixture != "defaults" and np.all(by_set >= peer.mean(axis=1)):
                ratios[mixture, C] = ratio.ravel()
            shown = "".join(f"{score:15.3f}" for score in by_set)
            print(f"{mixture:28}  {C:.1f}{shown}  {mean:.3f} +- {error:.3f}  {costs[mixture]:9.0f}")
    if not ratios:
        print("chosen: none, as every mixture loses on some set")
        return
    best = max(ratios, key=lambda key: ratios[key].mean())
    as_good = [best]
    for key in ratios:
        difference, error = mean_and_error(ratios[best] - ratios[key])
        if difference <= error:
            as_good.append(key)
    mixture, C = min(as_good, key=lambda key: (costs[key[0]], -ratios[key].mean()))
    print(f"best: {best[0]}, C {best[1]}; chosen, the fewest non-zeros within noise of it: {mixture}, C {C}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spatial", description=choose.__doc__.splitlines()[0])
    parser.add_argument("--choose", nargs="*", metavar="SET", required=True, choices=CHOICE_SETS, help="default: all")
    choose(parser.parse_args().choose or list(CHOICE_SETS))


if __name__ == "__main__":
    main()
