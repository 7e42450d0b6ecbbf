"""The whole pipeline, from a directory of images to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from visterm.pipeline.console import Console
from visterm.pipeline.store.run import Run

from .evaluate import evaluate
from .features import features
from .train import train

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config


def run_pipeline(
    run: Run, config: Config, images: Path, console: Console, learners: Sequence[str] = ("oasis",)
) -> Path:
    """Run all stages, each of which skips what is up to date; return the path of ``report.html``.

    `run` gets all results: ``collection/`` and ``extractor/`` by `features`, ``learners/<name>/`` by `train`,
    ``evaluations/<names>/`` by `evaluate`. `images` is a directory with a folder per class, or with folders ``train/``
    and ``test/`` of such. The learners are compared in one report, with cosine and chance.
    """
    features(run, config, images, console)
    for learner in learners:
        train(run, config, learner, console)
    return evaluate(run, config, learners, console) / "report.html"
