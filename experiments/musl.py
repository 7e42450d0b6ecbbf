"""MuSL: a few metrics and the groups of categories that share them.

Babenko, Branson, Belongie: Similarity Metrics for Categorization: from Monolithic to Category Specific, ICCV 2009,
sections 3.2 to 3.4 and figures 3 to 8. Data: benchmarks/musl_data.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from benchmarks.musl_data import N_HELD_OUT, N_SHOWN, N_TEST, N_TRAIN
from benchmarks.plots import legend, new_figure, series
from benchmarks.vectors import DATA

from .jobs import run_jobs
from .measured.grids import ROUNDS, next_value
from .measured.musl import NEIGHBORS, STARTS, SYSTEMS, corrected_stability, match, measure, stability
from .pages import Panel, Plot, Results, draw, open_text, select, set_ticks
from .statistics import clearly_above, difference, plus_minus

__all__ = ["facts", "jobs", "measure"]

# Systems with settings of their own, and the number of metrics these are chosen with; others use those of "joint".
TUNED = {"one metric": 1, "joint": 5, "k-means": 5, "random": 5}
# The paper's settings first.
GRID = [
    {"midpoint": midpoint, "alpha": alpha, "balanced": balanced}
    for midpoint, balanced, alphas in (
        ("final", False, (0.1, 1.0)),
        ("running", False, (0.1, 0.3, 1.0)),
        ("running", True, (0.5, 1.0, 2.0, 4.0)),
    )
    for alpha in alphas
]
GRID_TRIALS = 2
PER = N_TEST / N_TRAIN  # test images per training image
# Settings for comparing the groups of K = 3: the paper's, and some with which joint grouping was less accurate.
OTHERS = [GRID[i] for i in (0, 2, 4, 6)]
N_TRIALS, FEW_TRIALS = 6, 3
# Numbers of metrics and of trials. More trials for the groups of K = 3, which differ much and are soon learned.
TRIALS = {
    ("one metric", 1): N_TRIALS,
    **{("joint", k): N_TRIALS if k in (3, 5) else FEW_TRIALS for k in (3, 5, 2, 7, 10, 20)},
    ("joint, not re-trained", 5): FEW_TRIALS,
    **{("k-means", k): N_TRIALS if k in (3, 5) else FEW_TRIALS for k in (3, 5, 10)},
    **{("random", k): N_TRIALS if k == 5 else FEW_TRIALS for k in (5, 3, 10)},
    (STARTS, 3): FEW_TRIALS,
}
QUICK_TRIALS = {("one metric", 1): 1, ("joint", 3): 2, ("joint", 5): 1}
QUICK_TRIALS |= {("k-means", 3): 2, ("k-means", 5): 1, ("random", 5): 1}
# On the twenty categories of Caltech alone, with the settings chosen for merged-20.
CALTECH = {"one metric": (1,), "joint": (3, 5, 20), "k-means": (3, 5), "random": (3, 5)}

Settings = dict[str, Any]
Trials = dict[tuple[str, int], dict[str, list[Any]]]  # figures by (system, K) and key, trial by trial


# -- jobs --------------------------------------------------------------------------------------------------------------


def jobs(quick: bool) -> list[dict[str, Any]]:
    grid = grown_grid(quick)
    chosen, _ = choose(run_jobs(measure, grid))
    runs = [(system, k, chosen[system], n) for (system, k), n in (QUICK_TRIALS if quick else TRIALS).items()]
    extra = [{"trial": 0, "system": "joint", "n_metrics": 3, "settings": chosen["joint"], "part": "evolution"}]
    if not quick:
        runs += [(s, k, chosen["joint"], FEW_TRIALS) for s, k in TUNED.items() if chosen[s] != chosen["joint"]]
        runs += [("joint", 3, settings, FEW_TRIALS) for settings in OTHERS if settings != chosen["joint"]]
        extra += [
            {"trial": t, "system": system, "n_metrics": k, "settings": chosen[system], "part": "caltech"}
            for system, metrics in CALTECH.items()
            for k in metrics
            for t in range(FEW_TRIALS)
        ]
    return [
        *grid,
        *extra,
        *(
            {"trial": t, "system": system, "n_metrics": k, "settings": settings}
            for system, k, settings, n_trials in runs
            for t in range(n_trials)
        ),
    ]


def grown_grid(quick: bool) -> list[dict[str, Any]]:
    """The grid, and what is tried where the best alpha of a system lies at the edge."""

    def tried(system: str, settings: Settings) -> list[dict[str, Any]]:
        common = {"system": system, "n_metrics": TUNED[system], "settings": settings, "validate": True}
        return [{"trial": trial} | common for trial in range(1 if quick else GRID_TRIALS)]

    grid = [job for settings in (GRID[5:6] if quick else GRID) for system in TUNED for job in tried(system, settings)]
    for _ in range(0 if quick else ROUNDS):
        results = run_jobs(measure, grid)
        more = [
            job
            for system, settings in choose(results)[0].items()
            if system in TUNED and (alpha := alpha_beyond(results, system, settings)) is not None
            for job in tried(system, settings | {"alpha": alpha})
        ]
        if not more:
            break
        grid += more
    return grid


def alpha_beyond(results: Results, system: str, settings: Settings) -> Any:
    """The alpha beyond that of these settings of a system if it is the least or largest tried, else None."""
    return next_value("alpha", settings, [one["settings"] for one in select(results, validate=True, system=system)], {})


def choose(results: Results) -> tuple[dict[str, Settings], int]:
    """Settings of each system, and one number of voters for all: the best mean on the images that choose."""
    means = {}
    for system in TUNED:
        tried: dict[str, list[list[float]]] = {}
        for one in select(results, validate=True, system=system):
            tried.setdefault(json.dumps(one["settings"]), []).append(one["accuracy"])
        means[system] = {key: np.mean(accuracies, axis=0) for key, accuracies in tried.items()}
    voters = int(np.mean([np.max([*own.values()], axis=0) for own in means.values()], axis=0).argmax())
    best = {system: json.loads(max(own, key=lambda key: own[key][voters])) for system, own in means.items()}
    return {system: best[system if system in TUNED else "joint"] for system in SYSTEMS}, NEIGHBORS[voters]


# -- facts -------------------------------------------------------------------------------------------------------------


def facts(results: Results) -> dict[str, Any]:
    chosen, voters = choose(results)
    trials = collect(results, chosen, voters)
    same = collect(results, dict.fromkeys(SYSTEMS, chosen["joint"]), voters)
    others = {
        name_of(settings): own
        for settings in OTHERS
        if (own := collect(results, dict.fromkeys(SYSTEMS, settings), voters).get(("joint", 3)))
    }
    most = max(k for system, k in trials if system == "joint")
    caltech = collect_caltech(results, voters)
    caltech_ks = [k for system, k in caltech if system == "random"]
    rival_ks = sorted(k for system, k in trials if system == "k-means" and ("joint", k) in trials)
    joint = trials["joint", 3]
    chance = [at_random(groups, sources) for groups, sources in zip(joint["grouping"], joint["sources"], strict=True)]
    (evolution,) = select(results, part="evolution")
    groups = {
        (system, k): one
        for system, k in (("joint", 3), ("k-means", 3), ("joint", 5), ("joint", 7))
        for one in select(results, trial=0, system=system, n_metrics=k, settings=chosen[system])
        if "grouping" in one
    }
    return {
        "chosen": name_of(chosen["joint"]),
        "voters": voters,
        "trials": trials,
        "same": same,
        "most": most,
        "n_shown": N_SHOWN,
        "n_held_out": N_HELD_OUT,
        "starts": trials.get((STARTS, 3)),
        "edges": edges(results, chosen, voters),
        "caltech": caltech,
        "caltech_ks": caltech_ks,
        "caltech_leads": [
            mean_gain(caltech["joint", k]["accuracy"], caltech[system, k]["accuracy"])
            for k in caltech_ks
            for system in ("random", "k-means")
        ],
        "rival_ks": rival_ks,
        "rival_leads": [mean_gain(trials["joint", k]["novel"], trials["k-means", k]["novel"]) for k in rival_ks],
        "chance": chance,
        "others": others,
        "nearest": max(others.items(), key=lambda other: np.mean(other[1]["sourced"])) if others else None,
        "accuracy_rows": accuracy_rows(trials),
        "agreed_rows": [[s, ", ".join(map(str, trials[s, 3]["sourced"]))] for s in SYSTEMS if (s, 3) in trials],
        "group_rows": [[k, names] for k in (5, 7) if ("joint", k) in groups for names in members(groups["joint", k])],
        "other_rows": [other_row(name, own) for name, own in {name_of(chosen["joint"]): joint, **others}.items()],
        "same_rows": same_rows(same),
        **grid_facts(results, chosen, voters),
        "accuracy_plot": draw_accuracy("musl-accuracy", trials, {"accuracy": f"{most} categories"}),
        "novel_plot": draw_accuracy(
            "musl-novel", trials, {"novel": "9 novel categories", "all": f"{most} known and 9 novel"}
        ),
        "shown_trials": least_trials(trials),
        "caltech_plot": caltech and draw_accuracy("musl-caltech", caltech, {"accuracy": "Caltech-20"}),
        "likelihoods_plot": draw_likelihoods(evolution),
        "weights_plot": draw_weights(evolution["pairs"]),
        "groups_plot": draw_groups({system: groups[system, 3] for system in ("joint", "k-means")}),
    }


def collect(results: Results, settings: dict[str, Settings], voters: int) -> Trials:
    """Results of the trials of each (system, K) with its settings, by key; accuracies with `voters` neighbours."""
    trials: Trials = {}
    for one in select(results, validate=None, part=None):
        if one["settings"] == settings[one["system"]]:
            own = trials.setdefault((one["system"], one["n_metrics"]), {})
            figures = {key: one[key][NEIGHBORS.index(voters)] for key in ("accuracy", "novel", "all", "own", "within")}
            figures |= {key: one[key] for key in ("grouping", "sources", "astray")}
            figures |= {"accuracies": one["accuracy"], "sourced": match(one["grouping"], one["sources"])}
            for key, figure in figures.items():
                own.setdefault(key, []).append(figure)
    return trials


def collect_caltech(results: Results, voters: int) -> Trials:
    """Accuracies on Caltech-20; none of a quick run."""
    trials: Trials = {}
    for one in select(results, part="caltech"):
        own = trials.setdefault((one["system"], one["n_metrics"]), {"accuracy": []})
        own["accuracy"].append(one["accuracy"][NEIGHBORS.index(voters)])
    return trials


def paired(first: Sequence[float], second: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Two lists by trial, cut to the trials that both have."""
    n = min(len(first), len(second))
    return first[:n], second[:n]


def gain(first: Sequence[float], second: Sequence[float]) -> str:
    return f"{difference(*paired(first, second), 1)} points"


def mean_gain(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.mean(np.subtract(*paired(first, second))))


def clear(first: Sequence[float], second: Sequence[float]) -> bool:
    return clearly_above(*paired(first, second), PER)


def reaches(first: Sequence[float], second: Sequence[float], points: float) -> bool:
    """Whether the first is clearly above the second, and their mean difference reaches `points`."""
    # Accuracies are quarters of a point; their mean is rounded.
    return clear(first, second) and round(mean_gain(first, second), 9) >= points


def edges(results: Results, chosen: dict[str, Settings], voters: int) -> dict[str, str]:
    """Why a verdict over joint grouping and each of the systems is open; empty if it is not."""
    at: dict[str, list[str]] = {}
    for system in TUNED:
        at[system] = ["alpha"] * (alpha_beyond(results, system, chosen[system]) is not None)
        at[system] += ["number of voters"] * (voters == NEIGHBORS[-1])
    return {
        rival: open_text({system: [{"edges": at[system]}] for system in dict.fromkeys(("joint", rival))})
        for rival in TUNED
    }


def at_random(grouping: Sequence[int], sources: Sequence[int]) -> float:
    """Mean number of categories that random groupings of the same sizes have with their source."""
    rng = np.random.default_rng(0)
    return float(np.mean([match(rng.permutation(grouping), sources) for _ in range(20)]))


def close(own: dict[str, list[Any]]) -> int:
    """Trials in which all categories but at most two are with their source."""
    return sum(agreed >= len(own["sources"][0]) - 2 for agreed in own["sourced"])


def name_of(settings: Settings) -> str:
    return f"{settings['midpoint']}, {settings['alpha']}{', balanced' if settings['balanced'] else ''}"


def members(result: dict[str, Any]) -> list[str]:
    """Categories of each group."""
    groups: dict[int, list[str]] = {}
    for group, name in zip(result["grouping"], result["categories"], strict=True):
        groups.setdefault(group, []).append(name)
    return [", ".join(names) for names in groups.values()]


def accuracy_rows(trials: Trials) -> list[list[Any]]:
    rows = []
    for system, k in sorted(trials, key=lambda key: ([*SYSTEMS].index(key[0]), key[1])):
        own = trials[system, k]
        groupings = own["grouping"]
        some = 1 < k < len(groupings[0]) and len(groupings) > 1
        stable = f"{stability(groupings):.0f} % ({corrected_stability(groupings):.0f} %)" if some else ""
        columns = [*np.transpose(own["accuracies"]), own["novel"], own["all"]]
        rows.append([system, k, *(plus_minus(column, 1) for column in columns), stable, len(groupings)])
    return rows


def other_row(name: str, own: dict[str, list[Any]]) -> list[str]:
    return [
        name,
        f"{close(own)} of {len(own['sourced'])}",
        f"{np.mean(own['sourced']):.1f}",
        f"{stability(own['grouping']):.0f} %",
        *(plus_minus(own[key], 1) for key in ("astray", "accuracy", "novel")),
    ]


def same_rows(same: Trials) -> list[list[Any]]:
    """The systems with the settings of joint grouping; none unless all were run with them."""
    if not all(place in same for place in TUNED.items()):
        return []
    joint = same["joint", 5]["accuracy"]
    own = {place: same[place]["accuracy"] for place in TUNED.items()}
    leads = {place: difference(*paired(joint, accuracy), 1) for place, accuracy in own.items() if place[0] != "joint"}
    return [[*place, plus_minus(accuracy, 1), leads.get(place, "")] for place, accuracy in own.items()]


def grid_facts(results: Results, chosen: dict[str, Settings], voters: int) -> dict[str, Any]:
    """Accuracy of all settings tried, on images that no trial tests with."""
    held_out: dict[tuple[str, str], list[float]] = {}
    tried: dict[str, Settings] = {}
    for one in select(results, validate=True):
        name = name_of(one["settings"])
        tried[name] = one["settings"]
        held_out.setdefault((name, one["system"]), []).append(one["accuracy"][NEIGHBORS.index(voters)])
    rows = []
    for name, settings in sorted(tried.items(), key=lambda item: [str(v) for v in item[1].values()]):
        row = [name]
        for system in TUNED:
            cell = plus_minus(held_out[name, system], 1) if (name, system) in held_out else ""
            if chosen[system] == settings:
                edge = alpha_beyond(results, system, settings) is not None
                cell = f"**{cell}**{' (edge)' * edge}"
            row.append(cell)
        rows.append(row)
    paper = name_of(GRID[0])  # not in a quick run
    return {
        "tuned": [*TUNED],
        "grid_rows": rows,
        "n_draws": max(map(len, held_out.values())),
        "with_paper": {s: np.mean(held_out[paper, s]) for s in ("one metric", "joint")} if paper in tried else None,
    }


# -- drawings ----------------------------------------------------------------------------------------------------------


def least_trials(trials: Trials) -> int:
    return min(len(own["accuracy"]) for own in trials.values())


def draw_accuracy(stem: str, trials: Trials, panels: dict[str, str]) -> Plot:
    """Accuracy against K, one curve per system, for each key in `panels`; of the trials that all have."""
    ticks, n = sorted({k for _, k in trials}), least_trials(trials)
    drawn = []
    for key, title in panels.items():
        curves = {}
        for system in SYSTEMS:
            if metrics := sorted(k for name, k in trials if name == system):
                curves[system] = metrics, np.transpose([trials[system, k][key][:n] for k in metrics])
        axes = {"xscale": "log", "xlabel": "number of metrics K", "ylabel": "accuracy (%)", "title": title}
        drawn.append(Panel(curves, axes, {} if stem == "musl-caltech" else {"categories": title}, set_ticks(ticks)))
    return draw(stem, drawn, width=7.0 if stem == "musl-caltech" else None, title="grouping", order=[*SYSTEMS])


def draw_likelihoods(evolution: dict[str, Any]) -> Plot:
    """Figure 3: how likely each category is under each metric."""
    values = np.array(evolution["likelihoods"])  # (T, C, K)
    values -= values.mean(axis=2, keepdims=True)
    order = np.lexsort((evolution["categories"], values[-1].argmax(axis=1)))  # by the metric in the end
    names = [evolution["categories"][c] for c in order]
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
    return Plot("musl-likelihoods", figure, data)


def draw_weights(pairs: dict[str, dict[str, Any]]) -> Plot:
    """Figure 4: the weights of two pairs."""
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
    return Plot("musl-weights", figure, data)


def draw_groups(first: dict[str, dict[str, Any]]) -> Plot:
    """Figures 6 and 7: the groups of one trial with K = 3, a training photo of each category."""
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
    return Plot("musl-groups", figure, data, photos=True)


def square(path: Path, side: int = 56) -> np.ndarray:
    """The middle of a photo, as a small square."""
    with Image.open(path) as photo:
        return np.asarray(ImageOps.fit(photo.convert("RGB"), (side, side)))
