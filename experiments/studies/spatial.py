"""What `configs/spatial.yaml` gains over the defaults, by set of photos.

``visterm features``, ``train`` and ``evaluate``, as a user runs them, with the configuration and without; OASIS, test
images query test images. Three splits, but for Corel-5K, which has one of its own.
``--choose`` prints the cross-validation that chose the configuration.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from benchmarks.photos import evaluated, folder_of, settings_of
from benchmarks.records import compared, record
from benchmarks.vectors import ROOT
from experiments.statistics import mean_and_error
from visterm.pipeline.config.loading import load_config

from .configurations import FOLDS, QUICK
from .cross_validation import measured_once, scores_of, training_images

SETS = "caltech101-20", "flowers", "textures", "corel5k"
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


def mean_average_precision(name: str, config: Path | None, settings: list[str]) -> float:
    """That of OASIS on a set of photos."""

    def measure() -> float:
        options = ["--config", str(config)] if config else []
        return evaluated(folder_of(name), *options, settings=settings)["oasis"]["map"]

    made_from = name, settings, config.read_text() if config else None
    return measured_once(made_from, measure, ("features", "learners", "retrieval", "pipeline"))


def compare(name: str, quick: bool) -> dict:
    settings = [*settings_of(name), *(QUICK if quick else [])]
    has_split = name == "corel5k"
    maps = []
    for fold in FOLDS[: 1 if quick or has_split else 3]:
        chosen = [*settings, *([] if has_split else [f"split.seed={fold}"])]
        spatial = ROOT / "configs" / "spatial.yaml"
        maps.append([mean_average_precision(name, config, chosen) for config in (spatial, None)])
    ours, peer = np.mean(maps, axis=0)
    return record(
        f"spatial-map-{name}",
        f"configs/spatial.yaml on {name}, OASIS",
        "the defaults",
        "1.0: every relevant image first",
        compared(ours, peer, "mAP", len(maps), higher=True),
        measured=f"mean of {len(maps)} split{'s' if len(maps) > 1 else ''}: "
        + ", ".join(f"{a:.3f} and {b:.3f}" for a, b in maps),
    )


def run(quick: bool = False) -> list[dict]:
    return [compare(name, quick) for name in (["textures"] if quick else SETS)]


def steps_of(mixture: str) -> tuple[float, ...]:
    """Values of `oasis.C` that are tried: the defaults have their own only."""
    return STEPS[:1] if mixture == "defaults" else STEPS


def cross_validated(name: str, mixture: str) -> dict:
    """Scores on the training images of a set, see `scores_of`."""
    paths, y = training_images(folder_of(name), load_config(None, [*settings_of(name), "split.seed=0"]))
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


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.studies spatial", description=choose.__doc__.splitlines()[0]
    )
    parser.add_argument("--choose", nargs="*", metavar="SET", required=True, choices=CHOICE_SETS, help="default: all")
    choose(parser.parse_args(options).choose or list(CHOICE_SETS))
