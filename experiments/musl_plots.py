"""MuSL: the drawings of its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from benchmarks.plots import legend, mean_series, new_figure, series
from benchmarks.vectors import DATA

from .musl_trials import NEIGHBORS, SYSTEMS
from .pages import Plot

Found = dict[tuple[str, int], dict[str, list[Any]]]


def page_metrics(found: Found, system: str) -> list[int]:
    return sorted(k for name, k in found if name == system)


def page_of_caltech(results: list[dict[str, Any]], voters: int) -> dict[tuple[str, int], list[float]]:
    """Accuracies on Caltech-20 of each (system, K); none of a quick run."""
    found: dict[tuple[str, int], list[float]] = {}
    for result in results:
        if result.get("part") == "caltech":
            place = result["system"], result["n_metrics"]
            found.setdefault(place, []).append(result["accuracy"][NEIGHBORS.index(voters)])
    return found


def page_caltech(results: list[dict[str, Any]], voters: int) -> list[Plot]:
    """Figure 5 A: accuracy against K on Caltech-20; none of a quick run."""
    found = page_of_caltech(results, voters)
    if not found:
        return []
    figure, (axes,) = new_figure(width=7.0)
    data = []
    for place, system in enumerate(SYSTEMS):
        if metrics := sorted(k for name, k in found if name == system):
            values = np.transpose([found[system, k] for k in metrics])
            data += mean_series(axes, place, metrics, values, system)
    axes.set(xscale="log", xlabel="number of metrics K", ylabel="accuracy (%)", title="Caltech-20")
    ticks = sorted({k for _, k in found})
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    legend(figure, axes, "grouping")
    n_trials = len(found["joint", ticks[-1]])
    text = f"Accuracy on 20 categories of Caltech (the paper's figure 5 A), {n_trials} trials; bars: standard error."
    return [Plot("musl-caltech", text, figure, data)]


def page_evolution(results: list[dict[str, Any]]) -> list[Plot]:
    """Figures 3 and 4: how likely each category is under each metric, and the weights of two pairs."""
    (found,) = (result for result in results if result.get("part") == "evolution")
    return [page_likelihoods(found), page_weights(found["pairs"])]


def page_likelihoods(found: dict[str, Any]) -> Plot:
    values = np.array(found["likelihoods"])  # (T, C, K)
    values -= values.mean(axis=2, keepdims=True)
    order = np.lexsort((found["categories"], values[-1].argmax(axis=1)))  # by the metric in the end
    names = [found["categories"][c] for c in order]
    rounds = [1, len(values) // 2, len(values)]
    figure, panels = new_figure(len(rounds), width=9, height=5)
    data = []
    for axes, t in zip(panels, rounds, strict=True):
        shown = values[t - 1, order]
        most = np.abs(shown).max() or 1.0
        image = axes.imshow(shown, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        figure.colorbar(image, ax=axes, shrink=0.6)
        axes.grid(visible=False)
        axes.set(title=f"round {t}", xlabel="metric")
        axes.set_xticks(range(shown.shape[1]), [str(k + 1) for k in range(shown.shape[1])])
        axes.set_yticks(range(len(names)), names if axes is panels[0] else [""] * len(names), fontsize=7)
        data += [
            {"round": t, "category": name, "metric": k + 1, "log_likelihood": float(v)}
            for name, row in zip(names, shown, strict=True)
            for k, v in enumerate(row)
        ]
    text = (
        "The matrix L in three rounds of one trial, K = 3 (the paper's figure 3): log likelihood a pair of each "
        "category under each metric, less its mean over the metrics; red is likelier. Each round has its own scale."
    )
    return Plot("musl-likelihoods", text, figure, data)


def page_weights(pairs: dict[str, dict[str, Any]]) -> Plot:
    figure, panels = new_figure(2)
    data = []
    for axes, name in zip(panels, ("difficult", "easy"), strict=True):
        values = np.array(pairs[name]["weights"])  # (T, K)
        rounds = np.arange(1, len(values) + 1)
        for k in range(values.shape[1]):
            series(axes, k, rounds, values[:, k], label=f"metric {k + 1}")
            data += [
                {
                    "pair": name,
                    "category": pairs[name]["category"],
                    "metric": k + 1,
                    "round": int(t),
                    "weight": float(v),
                }
                for t, v in zip(rounds, values[:, k], strict=True)
            ]
        axes.set(xlabel="round", ylabel="weight", title=f"{name} pair ({pairs[name]['category']})", ylim=(0, None))
    legend(figure, panels[0])
    text = (
        "Weights of two pairs along the rounds of one trial, K = 3 (the paper's figure 4): of all pairs of two images "
        "of one category those that its metric has farthest (difficult) and nearest (easy) in the end."
    )
    return Plot("musl-weights", text, figure, data)


def page_groups(results: list[dict[str, Any]], settings: dict[str, dict[str, Any]]) -> list[Plot]:
    """Figures 6 and 7: the groups of one trial with K = 3, a training photo of each category."""
    first = {
        system: next(
            r
            for r in results
            if "grouping" in r
            and (r["trial"], r["system"], r["n_metrics"]) == (0, system, 3)
            and r["settings"] == settings[system]
        )
        for system in ("joint", "k-means")
    }
    widest = max(np.bincount(result["grouping"]).max() for result in first.values())
    figure = Figure(figsize=(0.62 * widest + 0.3, 5.6), dpi=100, layout="constrained")
    data = []
    for part, (system, result) in zip(figure.subfigures(2), first.items(), strict=True):
        part.suptitle(f"{'MuSL (figure 6)' if system == 'joint' else 'k-means (figure 7)'}, K = 3", fontsize=9)
        places = part.subplots(3, widest, squeeze=False)
        for axes in places.flat:
            axes.axis("off")
        for k in range(3):
            members = np.flatnonzero(np.array(result["grouping"]) == k)
            for axes, c in zip(places[k], members, strict=False):
                name, photo = result["categories"][c], result["photos"][c]
                data.append({"grouping": system, "group": k + 1, "category": name, "photo": photo})
                axes.set_title(name[:11], fontsize=5, pad=1)
                if photo:
                    axes.imshow(square(DATA / photo), interpolation="nearest")
    text = (
        "The groups of K = 3 in one trial, a training photo of each category (the paper's figures 6 and 7). Photos: "
        "Caltech-101 (CC BY 4.0), Oxford flowers and DTD (for research)."
    )
    return [Plot("musl-groups", text, figure, data, photos=True)]


def square(path: Path, side: int = 56) -> np.ndarray:
    """The middle of a photo, as a small square."""
    with Image.open(path) as photo:
        return np.asarray(ImageOps.fit(photo.convert("RGB"), (side, side)))


def page_curves(found: Found, stem: str, caption: str, panels: dict[str, str]) -> Plot:
    """Accuracy against K, one curve per system, for each key in `panels`."""
    figure, places = new_figure(len(panels))
    n_trials = min(len(values["novel"]) for values in found.values())
    data = []
    for axes, (key, title) in zip(places, panels.items(), strict=True):
        for place, system in enumerate(SYSTEMS):
            if metrics := page_metrics(found, system):
                values = np.transpose([found[system, k][key][:n_trials] for k in metrics])
                rows = mean_series(axes, place, metrics, values, system)
                data += [{"categories": title} | row for row in rows]
        axes.set_xscale("log")
        ticks = sorted({k for _, k in found})
        axes.set_xticks(ticks, [str(k) for k in ticks])
        axes.minorticks_off()
        axes.set_xlabel("number of metrics K")
        axes.set_ylabel("accuracy (%)")
        axes.set_title(title)
    legend(figure, places[0], "grouping")
    return Plot(
        stem, f"{caption}, first {n_trials} trial{'s' if n_trials > 1 else ''}; bars: standard error.", figure, data
    )
