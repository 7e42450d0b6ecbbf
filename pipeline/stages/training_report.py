"""Messages at the end of a training: the weight of the learner, and settings that may improve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import Console, count, reads_below
from visterm.pipeline.evaluation.worlds import held_out_of

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

_HARDLY_BETTER = 0.05  # gain on held-out images, of cosine's mAP there, or of what that lacks to 1


def report_training(learner_name: str, learner: Any, y: Any, timed_out: bool, config: Config, console: Console) -> None:
    """Say what the figures on held-out images advise, one line each."""
    if learner.validation_map_ is None:
        return
    if learner.is_improving():
        measure, steps = learner.validation_measure, max(entry["step"] for entry in learner.history_)
        advice = "a longer --time-limit" if timed_out else f"--set {learner_name}.n_steps={2 * learner.n_steps}"
        console.say(
            f"{learner_name}: validation {measure} was still improving when the steps ended, after {steps:,}: {advice}"
        )
    if learner.worlds_ is not None:
        _say_worlds(learner_name, learner, y, console)
    cosine = learner.cosine_map_
    if learner.validation_map_ - cosine < _HARDLY_BETTER * min(cosine, 1 - cosine):
        figures = f"mAP {learner.validation_map_:.3f}, cosine {cosine:.3f}"
        network = "vectors of a network (visterm features IMAGES --deep), or " if config.counts_visterms else ""
        better = "hardly" if reads_below(cosine, learner.validation_map_) else "no"
        console.say(
            f"{learner_name} is {better} better than cosine on held-out images ({figures}): try {network}other "
            "settings (visterm tune)"
        )


def _say_worlds(learner_name: str, learner: Any, y: Any, console: Console) -> None:
    """Report the weight of the learner, and what it does for classes that are trained on and for others."""
    worlds = learner.worlds_
    names = {"seen": "classes that it was trained on", "unseen": "other classes", "both": "both in one gallery"}
    held_out = held_out_of({"worlds": worlds})
    figures = [f"{row['map']:.3f} ({row['cosine']:.3f}) for {names[world]}" for world, row in held_out.items()]
    share = "all" if learner.learned_weight_ == 1 else f"{learner.learned_weight_:.0%}"
    start = "the whitened vectors" if learner.is_whitened() else "cosine"  # which share 0 is
    beside = "" if learner.learned_weight_ == 1 else f", beside {start}"
    if len(worlds["shares"]) > 1 and learner.world_ != "seen" and len(worlds["learner"]) == 1:
        beside += f", the cautious share, as no class could be held out ({_why_no_class(y)})"
    console.say(
        f"{learner_name}: {share} of the learned similarity counts{beside}; mAP on held-out images (cosine): "
        f"{', '.join(figures)}"
    )
    for world, row in held_out.items():
        if row["below_cosine"]:
            console.warn(
                f"{learner_name} is below cosine on held-out images for {names[world]}: mAP {row['map']:.3f}, cosine "
                f"{row['cosine']:.3f}; a smaller --set train.learned_weight, or --learner cosine, is better for these"
            )


def _why_no_class(y: Any) -> str:
    """Say why no class could be held out to validate."""
    import numpy as np

    from visterm.learners.validation import FEWEST_CLASSES

    if hasattr(y, "indptr"):
        return "too few labels are those of two images and more, and of a fifth of the images at most"
    n_classes = int((np.unique(y, return_counts=True)[1] >= 2).sum())
    if n_classes >= FEWEST_CLASSES:
        return "too few images would be left"
    return f"{count(n_classes, 'class')} with two training images or more, and {FEWEST_CLASSES} are needed"
