"""Averaged rankers, symmetric and positive variants of OASIS, and how symmetric W becomes.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, sections 5.4 and 6, figures 7, 8 and 9.

    make reproduce ONLY=variants
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks.plots import legend, mean_series, new_figure
from benchmarks.statistics import clearly_above, difference, plus_minus
from visterm.learners import OASIS, Cosine
from visterm.pipeline.console import count

from .grids import ROUNDS, RULE, Grid, open_text
from .pages import Finding, Page, Plot, Table
from .protocol import ONE_PAIR, choose, figures, load_fold

ALONE = False
SOURCES: tuple[str, ...] = ()

C = 0.1  # where nothing else is said, as in the paper's curves
C_TRIED = (0.01, 0.03, 0.1)  # at first
MOST_STEPS = 200_000  # at first
FOLDS = 3
N_INNER = 2  # inner folds; both to stay within the time of all experiments
RANKERS = (1, 5, 10)
VARIANTS = {
    None: "OASIS",
    "symmetric": "Proj-OASIS",
    "online-symmetric": "Online-Proj-OASIS",
    "dissim": "Dissim-OASIS",
}
SYMMETRIC = ["symmetric", "online-symmetric", "dissim"]
SCHEDULES = ("never", "after", "every 50000", "every 5000")
PASS = 5_000
POINTS = [5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 75_000, 100_000, 150_000, 200_000]
PSD_PASS = 10_000  # the jumps of a W that is projected now and then show between its projections


class Projected:
    """The positive semi-definite part of a learned W; training continues with the unprojected W."""

    def __init__(self, learned: OASIS):
        self.A = learned.embedding()

    def transform(self, X: Any) -> np.ndarray:
        return np.ascontiguousarray(X @ self.A.T)

    transform_query = transform


def jobs(quick: bool) -> list[dict[str, Any]]:
    folds = range(1 if quick else FOLDS)
    found: list[dict[str, Any]] = []
    for schedule in ("after", "every 50000") if quick else ("every 5000", "every 50000", "after"):
        found += [{"kind": "psd", "schedule": schedule, "quick": quick, "fold": fold} for fold in folds]
    for classes in (20,) if quick else (20, 10):
        for variant in reversed(list(VARIANTS)):
            found += [{"kind": "symmetric", "classes": classes, "variant": variant, "fold": fold} for fold in folds]
    for n_rankers in (1, 10) if quick else reversed(RANKERS):
        n_steps = 100_000 if quick else 200_000
        found += [{"kind": "rankers", "n_rankers": n_rankers, "n_steps": n_steps, "fold": fold} for fold in folds]
    if quick:
        for job in found:
            job["quick"] = True
    return found


def measure(kind: str, quick: bool = False, **parameters: Any) -> dict[str, Any]:
    if kind == "psd":
        return measure_psd(quick=quick, **parameters)
    if kind == "symmetric":
        return measure_symmetric(quick=quick, **parameters)
    return measure_rankers(**parameters)


def measure_rankers(n_rankers: int, n_steps: int, fold: int) -> dict[str, Any]:
    """Test figures of the mean of so many rankers, by the steps of each; and how symmetric the mean is."""
    X, y, test_X, test_y = load_fold(20, 1000, fold)
    curve = []

    def look(learned: OASIS) -> None:
        if learned.n_steps_ in POINTS:
            found = figures(learned, test_X, test_y)
            point = {"step": learned.n_steps_, "map": found["map"], "p1": found["precision"][0]}
            curve.append(point | symmetry(learned))

    learner = OASIS(C=C, n_rankers=n_rankers, n_steps=n_steps, pass_steps=PASS, random_state=fold, **ONE_PAIR)
    learner.fit(X, y, callback=look)
    return {"curve": curve, "cosine": figures(Cosine().fit(X, y), test_X, test_y)["map"]}


def symmetry(learned: OASIS) -> dict[str, float]:
    """rho of W, and of what was added to the identity that W started from."""
    added = clone(learned)
    added.n_features_in_, added.W_ = learned.n_features_in_, learned.W_ - np.eye(len(learned.W_), dtype=np.float32)
    return {"rho": learned.symmetry_index(), "rho_added": added.symmetry_index()}


def measure_symmetric(classes: int, variant: str | None, fold: int, quick: bool) -> dict[str, Any]:
    """Test figures of a variant; its C and number of steps by cross-validation on the training images."""
    X, y, test_X, test_y = load_fold(classes, 1000, fold)
    settings = {"n_steps": MOST_STEPS, "pass_steps": 2 * PASS, "random_state": fold} | ONE_PAIR
    grid = Grid(OASIS(variant=variant, **settings), {"C": C_TRIED})
    chosen, edges = choose(grid.small() if quick else grid, X, y, n_folds=N_INNER, rounds=0 if quick else ROUNDS)
    result = figures(chosen.fit(X, y), test_X, test_y) | {"C": chosen.C, "n_steps": chosen.n_steps, "edges": edges}
    if variant is None:
        result |= symmetry(chosen)
    return result


def measure_psd(schedule: str, quick: bool, fold: int) -> dict[str, Any]:
    """Test mAP of a schedule of projections, along one fit and where cross-validation stops it.

    "after" gives "never" too: one W is learned, and looked at as it is and projected.
    """
    X, y, test_X, test_y = load_fold(20, 1000, fold)
    every = int(schedule.split()[1]) if schedule.startswith("every") else None
    variant = None if every is None else "psd"
    learner = OASIS(C=C, variant=variant, psd_every=every, pass_steps=PASS, random_state=fold, **ONE_PAIR)
    curves: dict[str, list] = {name: [] for name in ([schedule] if every else ["after", "never"])}

    def look(learned: OASIS) -> None:
        if learned.n_steps_ % PSD_PASS == 0:
            for name, curve in curves.items():
                system = Projected(learned) if name == "after" else learned
                curve.append({"step": learned.n_steps_, "map": figures(system, test_X, test_y)["map"]})

    clone(learner).set_params(n_steps=100_000 if quick else 250_000).fit(X, y, callback=look)
    # C is the paper's: only the number of steps is chosen.
    grid = Grid(clone(learner).set_params(n_steps=100_000), {})
    chosen, edges = choose(grid, X, y, n_folds=N_INNER, rounds=0 if quick else ROUNDS)
    chosen.fit(X, y)
    stopped = {}
    for name in curves:
        system = Projected(chosen) if name == "after" else chosen
        stopped[name] = figures(system, test_X, test_y)["map"]
    return {"curves": curves, "stopped": stopped, "n_steps": chosen.n_steps, "edges": edges}


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: list[dict[str, Any]]) -> Page:
    n_folds = 1 + max(result["fold"] for result in results)
    return Page(
        "Averaged, symmetric and positive OASIS",
        "G. Chechik, V. Sharma, U. Shalit, S. Bengio, JMLR 11, 2010, sections 5.4 and 6, figures 7, 8 and 9.",
        f"Classes of Caltech-101 in place of Caltech-256; 40 training and 25 test images a class, "
        f"{count(n_folds, 'fold')}, 1,000 visterms; test images query test images; means and standard errors "
        "over folds. Rankers and projections: "
        f"20 classes (the paper's rankers: 249), C = {C:g}, curves along one fit. Symmetric variants: C, of "
        f"{', '.join(f'{c:g}' for c in C_TRIED)}, and the number of steps, up to {MOST_STEPS:,} at first, by "
        f"cross-validation on the training images ({N_INNER} inner folds). {RULE} "
        "Projecting after every single step, as one curve of the paper does, would take days. "
        '"Better", "beats" and "clearly above" agree by a one-sided t test over the '
        "folds with p < 0.025, which the one fold of a quick run cannot pass.",
        [
            page_averaging(results),
            *page_symmetric_findings(results),
            page_index(results),
            *page_positive(results),
        ],
        [
            page_rankers_plot(results),
            page_symmetric_plot(results),
            page_symmetric_table(results),
            page_psd_plot(results),
            page_psd_table(results),
            page_index_plot(results),
        ],
    )


def page_rankers(results: list) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Steps, and each figure as (folds, steps), by the number of rankers."""
    found = {}
    for n_rankers in sorted({result["n_rankers"] for result in results if result["kind"] == "rankers"}):
        curves = [one["curve"] for one in results if one["kind"] == "rankers" and one["n_rankers"] == n_rankers]
        steps = np.array([point["step"] for point in curves[0]])
        names = [name for name in curves[0][0] if name != "step"]
        found[n_rankers] = steps, {name: np.array([[p[name] for p in curve] for curve in curves]) for name in names}
    return found


def page_of_variant(results: list, classes: int, variant: str | None, measure: str) -> np.ndarray:
    """A figure of each fold."""
    wanted = ("symmetric", classes, variant)
    return np.array(
        [one[measure] for one in results if (one["kind"], one.get("classes"), one.get("variant")) == wanted]
    )


def page_edges_of(results: list, classes: int, variant: str | None) -> list[list[str]]:
    """What each fold has at the edge of what was tried."""
    wanted = ("symmetric", classes, variant)
    return [one["edges"] for one in results if (one["kind"], one.get("classes"), one.get("variant")) == wanted]


def page_edges(results: list, variants: list) -> str:
    """Why a verdict over these variants and OASIS is open; empty if it is not."""
    found = {
        f"{VARIANTS[variant]}, {classes} classes": page_edges_of(results, classes, variant)
        for classes in page_counts(results)
        for variant in (None, *variants)
    }
    return open_text({name: [{"edges": names} for names in of_folds] for name, of_folds in found.items()})


def page_counts(results: list) -> list[int]:
    """Numbers of classes with which the symmetric variants were run."""
    return sorted({one["classes"] for one in results if one["kind"] == "symmetric"})


def page_schedules(results: list, part: str) -> dict[str, list]:
    """Curves or figures of each fold by schedule, those that were run."""
    found: dict[str, list] = {}
    for schedule in SCHEDULES:
        of_folds = [one[part][schedule] for one in results if one["kind"] == "psd" and schedule in one[part]]
        if of_folds:
            found[schedule] = of_folds
    return found


def page_averaging(results: list) -> Finding:
    found = page_rankers(results)
    steps, single = found[1]
    texts, clear = [], []
    for n_rankers, (_, curves) in found.items():
        if n_rankers > 1:
            several, one = curves["map"].mean(axis=1), single["map"].mean(axis=1)
            clear.append(clearly_above(several, one))
            texts.append(
                f"{n_rankers} rankers have {difference(several, one, 4)} more mAP than one in the mean of all looks "
                f"from {steps[0]:,} to {steps[-1]:,} steps of each, "
                f"{difference(curves['map'][:, -1], single['map'][:, -1], 4)} at the end"
            )
    return Finding(
        "Figure 7: the mean of 5 or 10 rankers is better than one ranker after the same number of steps of each.",
        "; ".join(texts) + f" (one: {plus_minus(single['map'][:, -1])}).",
        all(clear),
        why="Rankers differ by their streams of triplets alone, which may leave little to average.",
    )


def page_symmetric_findings(results: list) -> list[Finding]:
    maps = {
        (classes, variant): page_of_variant(results, classes, variant, "map")
        for classes in page_counts(results)
        for variant in VARIANTS
    }
    pairs = {(classes, variant): (maps[classes, variant], maps[classes, None]) for classes, variant in maps if variant}

    def texts(variants: list) -> str:
        return "; ".join(
            f"{VARIANTS[variant]}, {classes} classes: {difference(*pair, 4)}"
            for (classes, variant), pair in pairs.items()
            if variant in variants
        )

    def ratios(wanted: str) -> list[float]:
        return [above.mean() / plain.mean() for (_, variant), (above, plain) in pairs.items() if variant == wanted]

    plain = ", ".join(plus_minus(values) for (_, variant), values in maps.items() if variant is None)
    return [
        Finding(
            "Figure 8: Proj-OASIS (symmetric after learning) is as precise as OASIS.",
            f"mAP less OASIS's, {texts(['symmetric'])}; OASIS: {plain}. (It agrees within 3 %.)",
            all(0.97 <= ratio <= 1.03 for ratio in ratios("symmetric")),
            edges=page_edges(results, ["symmetric"]),
            why="The part of W that is not symmetric may be noise, since labels make relevance symmetric.",
            kind="threshold",
        ),
        Finding(
            "Figure 8: all symmetric variants are slightly worse than OASIS, or equal.",
            f"mAP less OASIS's, {texts(SYMMETRIC)}. (It agrees if none is above OASIS clearly, or by 3 %.)",
            not any(
                clearly_above(above, plain) or above.mean() > 1.03 * plain.mean() for above, plain in pairs.values()
            ),
            kind="threshold",
            edges=page_edges(results, SYMMETRIC),
            why="Labels make relevance symmetric, so that what is not symmetric in W may be noise.",
        ),
        Finding(
            "Figure 8: Online-Proj-OASIS (symmetric after every step) comes near OASIS.",
            f"mAP less OASIS's, {texts(['online-symmetric'])}. (90 % of OASIS's are asked.)",
            all(ratio > 0.9 for ratio in ratios("online-symmetric")),
            edges=page_edges(results, ["online-symmetric"]),
            must=True,
            kind="threshold",
        ),
    ]


def page_index(results: list) -> Finding:
    steps, curves = page_rankers(results)[1]
    rho, added = curves["rho"][:, -1], curves["rho_added"][:, -1]
    chosen = page_of_variant(results, 20, None, "rho")
    return Finding(
        "Section 6.1: OASIS converges to an almost symmetric W, rho(W) = ‖sym(W)‖² / ‖W‖² = 0.94 (NIPS 2009, 4.3.1).",
        f"rho = {plus_minus(rho)} after {steps[-1]:,} steps on 20 classes; {plus_minus(added)} of what was added to "
        f"the identity; {plus_minus(chosen)} where cross-validation stops. (It agrees above 0.9 at the end.)",
        bool(rho.mean() > 0.9),
        why="A W that starts as the identity is symmetric at first; it may draw nearer to it again with more steps.",
        kind="threshold",
    )


def page_positive(results: list) -> list[Finding]:
    stopped = page_schedules(results, "stopped")
    curves = page_schedules(results, "curves")
    last = {name: [curve[-1]["map"] for curve in of_folds] for name, of_folds in curves.items()}
    steps = curves["after"][0][-1]["step"]
    meanwhile = [name for name in last if name.startswith("every")]
    found = [
        Finding(
            "Figure 9: projecting W on the positive semi-definite matrices once, after learning, beats doing so "
            "meanwhile.",
            f"After {steps:,} steps, where the curves end, mAP "
            + ", ".join(f"{page_schedule_name(name)} {plus_minus(values)}" for name, values in last.items())
            + "; after less "
            + ", ".join(f"{page_schedule_name(n)}: {difference(last['after'], last[n], 4)}" for n in meanwhile)
            + ". Where cross-validation stops, "
            + ", ".join(f"{page_schedule_name(n)}: {difference(stopped['after'], stopped[n], 4)}" for n in meanwhile)
            + ".",
            all(clearly_above(last["after"], last[name]) for name in meanwhile),
            why="What projecting can change here, after less never projected: mAP "
            f"{difference(last['after'], last['never'], 4)} at the end of the curve.",
        )
    ]
    if len(meanwhile) > 1:
        rare, often = (last[name] for name in SCHEDULES[2:])
        found.append(
            Finding(
                "Figure 9: projecting every 50,000 steps is better than projecting every 5,000.",
                f"mAP after {steps:,} steps {plus_minus(rare)} against {plus_minus(often)} "
                f"({difference(rare, often, 4)}).",
                clearly_above(rare, often),
                why="In the paper's figure the projections every 50,000 steps show as jumps upwards of an overfitted "
                f"curve; here projecting changes mAP by {difference(last['after'], last['never'], 4)} at the most.",
            )
        )
    return found


# -- figures and tables


def page_rankers_plot(results: list) -> Plot:
    figure, (axes,) = new_figure()
    rows = []
    for place, (n_rankers, (steps, curves)) in enumerate(page_rankers(results).items()):
        name = "one ranker" if n_rankers == 1 else f"mean of {n_rankers} rankers"
        rows += mean_series(axes, place, steps / 1000, curves["map"], name)
    axes.set(xlabel="steps of each ranker (thousands)", ylabel="mAP, test images")
    legend(figure, axes)
    return Plot("variants-rankers", "mAP of averaged rankers, 20 classes (figure 7)", figure, rows)


def page_symmetric_plot(results: list) -> Plot:
    counts = page_counts(results)
    figure, panels = new_figure(len(counts))
    rows = []
    for axes, classes in zip(panels, counts, strict=True):
        for place, variant in enumerate(VARIANTS):
            values = page_of_variant(results, classes, variant, "precision")
            drawn = mean_series(axes, place, range(1, values.shape[1] + 1), values, VARIANTS[variant])
            rows += [{"classes": classes} | row for row in drawn]
        axes.set(title=f"{classes} classes", xlabel="number of neighbours k", ylabel="precision at k")
        axes.set_ylim(bottom=0)
    legend(figure, panels[0])
    return Plot("variants-symmetric", "Precision at k of the symmetric variants (figure 8)", figure, rows)


def page_symmetric_table(results: list) -> Table:
    rows = []
    for classes in page_counts(results):
        for variant in VARIANTS:
            maps, precision, C, n_steps = (
                page_of_variant(results, classes, variant, name) for name in ("map", "precision", "C", "n_steps")
            )
            found = [plus_minus(values) for values in (maps, precision[:, 0], precision[:, 9])]
            edges = page_edges_of(results, classes, variant)
            marked = [f"{c:g}{'*' * ('C' in names)}" for c, names in zip(C, edges, strict=True)]
            steps = [f"{n / 1000:g}{'*' * ('n_steps' in names)}" for n, names in zip(n_steps, edges, strict=True)]
            rows.append([classes, VARIANTS[variant], *found, ", ".join(marked), ", ".join(steps)])
    columns = ["classes", "", "mAP", "precision@1", "precision@10", "C by fold", "thousands of steps by fold"]
    return Table(
        "Symmetric variants, settings chosen by cross-validation (*: at the edge of what was tried).", columns, rows
    )


def page_psd_plot(results: list) -> Plot:
    figure, (axes,) = new_figure()
    rows = []
    for place, (schedule, curves) in enumerate(page_schedules(results, "curves").items()):
        steps = np.array([point["step"] for point in curves[0]])
        values = np.array([[point["map"] for point in curve] for curve in curves])
        rows += mean_series(axes, place, steps / 1000, values, page_schedule_name(schedule))
    axes.set(xlabel="steps (thousands)", ylabel="mAP, test images")
    legend(figure, axes, "projected")
    return Plot("variants-psd", "mAP of three schedules of projections, 20 classes (figure 9)", figure, rows)


def page_schedule_name(schedule: str) -> str:
    return f"every {int(schedule.split()[1]):,} steps" if schedule.startswith("every") else schedule


def page_psd_table(results: list) -> Table:
    stopped, curves = page_schedules(results, "stopped"), page_schedules(results, "curves")
    rows = []
    for schedule, values in stopped.items():
        peaks = np.array([[point["map"] for point in curve] for curve in curves[schedule]]).mean(axis=0)
        steps = [point["step"] for point in curves[schedule][0]]
        rows.append(
            [
                page_schedule_name(schedule),
                plus_minus(values),
                f"{peaks.max():.3f} after {steps[int(peaks.argmax())]:,}",
                f"{peaks[-1]:.3f} after {steps[-1]:,}",
            ]
        )
    columns = ["Projected", "mAP where cross-validation stops", "highest mean mAP of the curve", "at its end"]
    return Table("Projections on the positive semi-definite matrices, 20 classes.", columns, rows)


def page_index_plot(results: list) -> Plot:
    figure, (axes,) = new_figure()
    rows: list[dict[str, Any]] = []
    found = page_rankers(results)
    named = [(n, measure, what) for n in (1, max(found)) for measure, what in (("rho", "W"), ("rho_added", "W - I"))]
    for place, (n_rankers, measure, what) in enumerate(named):
        steps, curves = found[n_rankers]
        name = f"{what}, {'one ranker' if n_rankers == 1 else f'mean of {n_rankers}'}"
        rows += mean_series(axes, place, steps / 1000, curves[measure], name)
    axes.set(xlabel="steps of each ranker (thousands)", ylabel="symmetry index rho", ylim=(0.5, 1.01))
    legend(figure, axes)
    return Plot("variants-symmetry", "How symmetric W is along the steps, 20 classes (section 6.1)", figure, rows)
