"""Validation figures of classes that were trained on and of others: from a learner's record to metrics.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visterm.pipeline.console import reads_below
from visterm.pipeline.report.text import WORLDS

_BETTER = "a smaller --set train.learned_weight, or --learner cosine, is better"


def held_out_of(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures on held-out images, of the record's ``result``, by name of `WORLDS`.

    Each has ``map``, ``cosine``, ``chance`` and ``n_images``, and ``below_cosine``: whether clearly, by the test that
    chose the weight, and as the figures read; for older trainings as they read alone. Only ``seen`` where no class was
    held out, only ``unseen`` where only classes were; empty where nothing was validated for a world.
    """
    worlds = result.get("worlds")
    if worlds is None:
        return {}
    columns = zip(WORLDS, worlds["learner"], worlds["cosine"], worlds["chance"], worlds["n_images"], strict=False)
    figures = {
        world: {"map": figure, "cosine": cosine, "chance": chance, "n_images": n_images}
        for world, figure, cosine, chance, n_images in columns
    }
    below = [reads_below(row["map"], row["cosine"]) for row in figures.values()]  # else the figures contradict it
    below = [reads and clearly for reads, clearly in zip(below, worlds.get("clearly_below") or below, strict=True)]
    measured = [world for world, row in figures.items() if row["n_images"]]
    if "seen" not in measured:  # whole classes alone: both in one gallery are the same
        measured.remove("both")
    return {
        world: row | {"below_cosine": is_below}
        for (world, row), is_below in zip(figures.items(), below, strict=True)
        if world in measured
    }


def below_cosine(systems: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each of the ``systems`` of metrics.json that is below cosine, on test or on held-out images."""
    lines, cosine = [], systems.get("cosine", {})
    for name, figures in systems.items():
        on_test = [
            f"{title} {figure:.3f}, cosine {of_cosine:.3f}"
            for (title, figure), (_, of_cosine) in zip(_on_test(figures), _on_test(cosine), strict=False)
            if reads_below(figure, of_cosine)
        ]
        if on_test and name != "chance":
            lines.append(f"{name} is below cosine on test images ({'; '.join(on_test)}): {_BETTER}")
        below = [
            f"for {WORLDS[world]} (mAP {figure['map']:.3f}, cosine {figure['cosine']:.3f})"
            for world, figure in figures.get("held_out", {}).items()
            if figure["below_cosine"]
        ]
        if below:
            lines.append(f"{name} is below cosine on held-out images {' and '.join(below)}: {_BETTER} there")
    return lines


def _on_test(figures: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return mAP and precision at 1 on test images, as far as they are known."""
    known = [("mAP", figures.get("map")), ("P@1", figures.get("precision_at", {}).get("1"))]
    return [(title, figure) for title, figure in known if figure is not None]
