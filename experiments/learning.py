"""mAP against steps, sensitivity to C and r, and AROMA's lead at the top of the list.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, figure 5; Crammer, Chechik, ICML 2012, figure 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .measured.learning import UNIT, WIDE, measure
from .measured.protocol import N_FOLDS
from .pages import Panel, Plot, Results, draw, select
from .statistics import TEST_PER_TRAIN, clearly_above, difference, plus_minus, ratio_text

__all__ = ["facts", "jobs", "measure"]

STEPS = 200_000  # of the AROMA paper's figure 3
QUICK_STEPS = 100_000
MORE_STEPS = 1_000_000
FEW_FOLDS = 3
C_TRIED = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0)
R_TRIED = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)

System = tuple[str, dict[str, Any]]  # learner and parameters
EUCLIDEAN: System = ("Euclidean", {})
PAPER_OASIS: System = ("OASIS", {"C": 0.1})
OASIS_FROM_ZERO: System = ("OASIS", {"C": 0.1, "init": "zero"})
UNLIMITED: System = ("OASIS", {"C": 1e9, "init": "zero"})
LARGE_C: System = ("OASIS", {"C": 1.0})
LARGE_C_FROM_ZERO: System = ("OASIS", {"C": 1.0, "init": "zero"})
PAPER_AROMA: System = ("AROMA", {"r": 0.01})
FROM_IDENTITY: System = ("AROMA", {"r": 0.01, "init": "identity"})
PAPER_FACTORED: System = ("AROMA", {"r": 0.01, "covariance": "factored"})
# Another r, to see what it does: nothing here is chosen (experiments/lead.py chooses).
LARGE_R: System = ("AROMA", {"r": 10.0})
LARGE_R_FROM_IDENTITY: System = ("AROMA", {"r": 10.0, "init": "identity"})
LARGE_R_FACTORED: System = ("AROMA", {"r": 10.0, "covariance": "factored"})
DRAWN = [PAPER_OASIS, PAPER_AROMA, PAPER_FACTORED, LARGE_R]
BOTH_STARTS = [PAPER_OASIS, OASIS_FROM_ZERO, FROM_IDENTITY, PAPER_AROMA]
EVIDENCE = [*BOTH_STARTS[:2], LARGE_R_FROM_IDENTITY, LARGE_R, *BOTH_STARTS[2:], UNLIMITED]
# Whose sensitivity to C or r is measured; a step of factored AROMA takes a tenth of a millisecond.
TRIED: dict[str, list[System]] = {
    "OASIS": [("OASIS", {"C": C}) for C in C_TRIED],
    "AROMA diagonal": [("AROMA", {"r": r}) for r in R_TRIED],
    "AROMA factored": [("AROMA", {"r": r, "covariance": "factored"}) for r in (*R_TRIED[1:], 1000.0)],
}
# Other vectors and splits than the protocol's, which the AROMA paper may have had.
SETTINGS = {
    UNIT: "as everywhere here",
    "tf-idf, not normalised": "counts times idf, as they are",
    "tf, unit length": "without idf",
    "presence and idf, unit length": "whether a visterm occurs, in place of how often (section 5.1 speaks of presence)",
    "5-fold split": "four fifths of all images to learn from, as section 5 says",
}


def jobs(quick: bool) -> list[dict[str, Any]]:
    n_folds, steps, most = (1, QUICK_STEPS, QUICK_STEPS) if quick else (N_FOLDS, STEPS, 500_000)
    wanted: list[dict[str, Any]] = []

    def job(systems: list, n_steps: int, *, classes: int = 38, setting: str = UNIT, along: bool = False) -> None:
        for learner, parameters in systems:
            what = {"learner": learner, "parameters": parameters, "n_steps": n_steps, "classes": classes}
            what |= {"setting": setting, "along": along}
            # Other vectors, more steps, and values of C and r that are tried for their effect alone, stand beside the
            # papers' own.
            own = along or (learner, parameters) in [EUCLIDEAN, *DRAWN, *EVIDENCE, LARGE_R_FACTORED]
            few = setting != UNIT or n_steps == MORE_STEPS or not own
            wanted.extend(what | {"fold": fold} for fold in range(min(n_folds, FEW_FOLDS) if few else n_folds))

    job(DRAWN, most, along=True)
    for classes in (10,) if quick else (20, 10):
        job([PAPER_OASIS], most, classes=classes, along=True)
        job([EUCLIDEAN], steps, classes=classes)
    tried = [system for systems in TRIED.values() for system in systems]
    if quick:  # the values of r are those of other systems here
        tried = [("OASIS", {"C": C}) for C in (C_TRIED[2], C_TRIED[-1])]
    job([EUCLIDEAN, *(system for system in [*tried, *EVIDENCE] if system not in DRAWN)], steps)
    if not quick:
        job([PAPER_OASIS, PAPER_AROMA, UNLIMITED], MORE_STEPS)
        job([EUCLIDEAN, *BOTH_STARTS, LARGE_C, LARGE_C_FROM_ZERO], STEPS, setting=WIDE)
        job([PAPER_OASIS], MORE_STEPS, setting=WIDE)
        for setting in SETTINGS:
            if setting != UNIT:
                job([EUCLIDEAN, *BOTH_STARTS], STEPS, setting=setting)
    return wanted


class Runs:
    """Figures of the results by system, fold by fold."""

    def __init__(self, results: Results):
        self.results = results
        self.steps = min(STEPS, max(one["n_steps"] for one in results))  # after which systems are compared

    def has(self, setting: str) -> bool:
        return bool(select(self.results, setting=setting))

    def values(
        self, figure: str, system: System, *, step: int | None = None, classes: int = 38, setting: str = UNIT
    ) -> np.ndarray:
        """A figure of each fold after a number of steps, that of `steps` unless another is named."""
        step = step or self.steps
        learner, parameters = system
        own = select(self.results, learner=learner, parameters=parameters, classes=classes, setting=setting)
        return np.array([point[figure] for run in own for point in run["curve"] if point["step"] == step])

    def curve(self, figure: str, system: System, classes: int = 38) -> tuple[np.ndarray, np.ndarray]:
        """Steps (n,), and the figure of each fold there (folds, n)."""
        own = select(self.results, learner=system[0], parameters=system[1], classes=classes, along=True)
        steps = [point["step"] for point in own[0]["curve"]]
        return np.array(steps), np.array([[point[figure] for point in run["curve"]] for run in own])

    def drawn(self, figure: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The curves that the plots of 38 classes compare."""
        return {name_of(system): self.curve(figure, system) for system in DRAWN}

    def compared(self, first: System, second: System, figure: str = "p1", setting: str = UNIT) -> tuple[int, str]:
        """1 if the first is clearly above the second, -1 if clearly below, else 0; and the figures in words."""
        one, two = (self.values(figure, system, setting=setting) for system in (first, second))
        ratio = 1 / (N_FOLDS - 1) if setting == "5-fold split" else TEST_PER_TRAIN
        above = int(clearly_above(one, two, ratio)) - int(clearly_above(two, one, ratio))
        verdict = {1: "clearly above", -1: "clearly below", 0: "no clear difference"}[above]
        return above, f"{plus_minus(one)} against {plus_minus(two)} ({difference(one, two)}, {verdict})"

    def near(self, first: System, second: System) -> bool:
        """Whether the means of precision at 1 are within 5 % of each other."""
        above, below = (self.values("p1", system).mean() for system in (first, second))
        return abs(above / below - 1) <= 0.05


def facts(results: Results) -> dict[str, Any]:
    runs = Runs(results)
    n_folds = 1 + max(one["fold"] for one in results)
    sensitivity = sensitivities(runs)
    others = [setting for setting in SETTINGS if setting != UNIT and runs.has(setting)]
    starts = [(PAPER_OASIS, OASIS_FROM_ZERO), (LARGE_R_FROM_IDENTITY, LARGE_R), (FROM_IDENTITY, PAPER_AROMA)]
    same_start = [(LARGE_R_FROM_IDENTITY, PAPER_OASIS), (LARGE_R, OASIS_FROM_ZERO)]
    rivals = {"C = 0.1": PAPER_OASIS, "C = 1": LARGE_C, "C = 1 from zero": LARGE_C_FROM_ZERO} if runs.has(WIDE) else {}
    return {
        "n_folds": n_folds,
        "fewest_folds": 1 + max((one["fold"] for one in results if one["setting"] != UNIT), default=n_folds),
        "runs": runs,
        "STEPS": runs.steps,
        "largest_C": C_TRIED[-1],
        # What sets AROMA and OASIS apart at the top of the list.
        "begun": {name_of(first): runs.compared(first, second) for first, second in starts},
        "same_start": [runs.compared(*pair) for pair in same_start],
        "same_start_near": all(runs.near(*pair) for pair in same_start),
        "elsewhere": {s: runs.compared(PAPER_AROMA, PAPER_OASIS, setting=s) for s in others},
        "wide": {name: runs.compared(PAPER_AROMA, rival, setting=WIDE) for name, rival in rivals.items()},
        "evidence": evidence(runs),
        "notes": {"lead": note_of_training(runs)},
        "both_starts": [f"{name_of(system)}, from {start_of(system)}" for system in BOTH_STARTS],
        "settings_rows": settings_rows(runs),
        "has_20_classes": bool(select(results, classes=20, along=True)),
        "tops": runs.drawn("p10"),
        "in_the_end": {
            name_of(system): [runs.curve(figure, system)[1][:, -1].mean() for figure in ("training_map", "map")]
            for system in DRAWN
        },
        "robustness": [robustness(name, *curve) for name, curve in sensitivity.items()],
        "oasis_plot": draw_panels(
            "learning-oasis",
            [oasis_panel(runs, classes) for classes in sorted({one["classes"] for one in results} - {38})],
        ),
        "steps_plot": draw_panels(
            "learning-steps",
            [panel(runs, "training_map", "training images", "mAP"), panel(runs, "map", "test images", "mAP")],
        ),
        "top_plot": draw_panels(
            "learning-top",
            [
                panel(runs, "p1", "first image", "precision at 1"),
                panel(runs, "p10", "first ten images", "precision at 10"),
            ],
        ),
        "sensitivity_plot": draw_sensitivity(runs, sensitivity),
    }


def name_of(system: System) -> str:
    learner, parameters = system
    words = [learner if "r" not in parameters else f"AROMA {parameters.get('covariance', 'diagonal')}"]
    words += [
        f"{key} = {parameters[key]:g}" if parameters[key] < 1e9 else "unlimited C" for key in parameters.keys() & "Cr"
    ]
    return ", ".join(words)


def start_of(system: System) -> str:
    return system[1].get("init", {"OASIS": "identity", "AROMA": "zero"}.get(system[0], ""))


def evidence(runs: Runs) -> dict[str, list[list[str]]]:
    """Rows of the tables of AROMA against OASIS, by the vectors."""
    tables = {}
    for setting, title, systems in (
        (UNIT, "1,000 visterms", [*EVIDENCE, PAPER_FACTORED, LARGE_R_FACTORED]),
        (WIDE, "10,000 visterms", [*BOTH_STARTS, LARGE_C, LARGE_C_FROM_ZERO]),
    ):
        rows = []
        more = [(system, MORE_STEPS) for system in (PAPER_AROMA, UNLIMITED, PAPER_OASIS)]
        for system, step in [*((system, runs.steps) for system in (EUCLIDEAN, *systems)), *more]:
            cells = [
                runs.values(figure, system, step=step, setting=setting)
                for figure in ("p1", "p10", "map", "kept", "in_training", "among_training")
            ]
            if len(cells[0]):
                what = [name_of(system), start_of(system), "" if system == EUCLIDEAN else f"{step:,}"]
                rows.append([*what, *map(plus_minus, cells)])
        if rows:
            tables[title] = rows
    return tables


def note_of_training(runs: Runs) -> str:
    """What the page on AROMA's lead is to say."""
    factored, oasis = (runs.values("among_training", system).mean() for system in (PAPER_FACTORED, PAPER_OASIS))
    return (
        f"**Evaluated on training images AROMA leads,** {factored / oasis:.2f} times: of images that were learned from "
        f"and query each other, precision at 1 of the factored form with r = 0.01 is {factored:.3f}, of OASIS with "
        f"C = 0.1 {oasis:.3f} ([learning](learning.md))."
    )


def settings_rows(runs: Runs) -> list[list[str]]:
    rows = []
    for setting, what in SETTINGS.items():
        if runs.has(setting):
            cells = [runs.values("p1", system, setting=setting) for system in (EUCLIDEAN, *BOTH_STARTS)]
            rows.append([setting, what, *map(plus_minus, cells), ratio_text(cells[4], cells[1])])
    return rows


def common(curves: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[float, list[int]]:
    """98 % of the lowest of the curves' peaks, and the steps after which the mean of each is first as high."""
    means = [(steps, values.mean(axis=0)) for steps, values in curves]
    height = 0.98 * min(mean.max() for _, mean in means)
    return height, [int(steps[(mean >= height).argmax()]) for steps, mean in means]


def sensitivities(runs: Runs) -> dict[str, tuple[list[float], np.ndarray]]:
    """Values of C or r, and precision at 10 (folds, values), by system."""
    curves = {}
    for name, systems in TRIED.items():
        tried = [system for system in systems if len(runs.values("p10", system))]
        values = [parameters.get("C") or parameters["r"] for _, parameters in tried]
        of_folds = [runs.values("p10", system) for system in tried]
        curves[name] = values, np.transpose([figures[: min(map(len, of_folds))] for figures in of_folds])
    return curves


def robustness(name: str, values: list[float], precision: np.ndarray) -> dict[str, Any]:
    """Change over all values and, of AROMA, over the three decades where it is least."""
    result = {"name": name, "values": values, "change": change(values, precision)}
    best = result["best"] = values[precision.mean(axis=0).argmax()]
    # The fewest decades of a claim: were the best beyond, another three would differ less.
    result["edges"] = f"The best r, {best:g}, is the largest tried." if best == values[-1] else ""
    if name != "OASIS" and values[-1] >= 1000 * values[0]:
        decades = {low: change(values, precision, low, 1000 * low) for low in values if 1000 * low <= values[-1]}
        result["low"] = min(decades, key=decades.__getitem__)
        result["least"] = decades[result["low"]]
    return result


def change(values: list[float], precision: np.ndarray, low: float = 0, high: float = np.inf) -> float:
    """Largest relative change between values from low to high, in means over the folds."""
    means = [of_folds.mean() for value, of_folds in zip(values, precision.T, strict=True) if low <= value <= high]
    return float(1 - min(means) / max(means))


# -- drawings ----------------------------------------------------------------------------------------------------------

Drawn = tuple[Mapping[str, Any], Mapping[str, Any], float | None]  # axes, curves, the level of the Euclidean distance


def draw_panels(stem: str, drawn: list[Drawn]) -> Plot:
    panels = []
    for axes, curves, euclidean in drawn:

        def finish(one: Any, euclidean: float | None = euclidean) -> None:
            if euclidean is not None:
                one.axhline(euclidean, color="#808080", linestyle=":", linewidth=1.5, label="Euclidean, test images")
                low, high = one.get_ylim()
                one.set_ylim(min(low, euclidean - 0.05 * (high - euclidean)), high)  # off the axis, to be seen
            one.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")

        panels.append(Panel(curves, {"xscale": "log", **axes}, {"panel": axes["title"]}, finish))
    return draw(stem, panels)


def panel(runs: Runs, figure: str, title: str, ylabel: str) -> Drawn:
    level = None if figure == "training_map" else runs.values(figure, EUCLIDEAN).mean()
    return {"title": title, "xlabel": "steps", "ylabel": ylabel}, runs.drawn(figure), level


def oasis_panel(runs: Runs, classes: int) -> Drawn:
    images = {"training images": "training_map", "test images": "map"}
    curves = {name: runs.curve(figure, PAPER_OASIS, classes) for name, figure in images.items()}
    axes = {"title": f"{classes} classes", "xlabel": "steps", "ylabel": "mAP", "ylim": (0, 1.05)}
    return axes, curves, runs.values("map", EUCLIDEAN, classes=classes).mean()


def draw_sensitivity(runs: Runs, curves: dict[str, tuple[list[float], np.ndarray]]) -> Plot:
    top = 1.15 * max(values.mean(axis=0).max() for _, values in curves.values())
    level = runs.values("p10", EUCLIDEAN).mean()
    panels: list[Drawn] = []
    for learner, label in (("OASIS", "aggressiveness C"), ("AROMA", "regulariser r")):
        axes = {"title": learner, "xlabel": label, "ylabel": "precision at 10", "ylim": (0, top)}
        panels.append((axes, {name: curve for name, curve in curves.items() if name.startswith(learner)}, level))
    return draw_panels("learning-sensitivity", panels)
