"""Training time against the number of classes, and against the number of images.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, table 5 and figure 4.

Processor time of one thread, one job at a time; to early stopping, which takes long, two at a time. Against the number
of classes each system learns with the settings and for the steps that the experiment `retrieval` chose, which is run
first where it has not been. Against the number of images it learns from synthetic images: classes of 40, so that there
are more classes where there are more images.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter

from benchmarks import plots

from . import retrieval
from .jobs import run_jobs
from .measured.protocol import ONE_PAIR
from .measured.retrieval import PEERS
from .measured.speed import LEARNERS, measure
from .pages import Plot, Results, open_text, select

__all__ = ["facts", "jobs", "measure", "runs_alone"]

FOLDS = {"LMNN": 1} | dict.fromkeys(LEARNERS, 2)
STEPS_AN_IMAGE = 100  # 2.3 million images and 160 million triplets in the paper: 70
N_ITERATIONS = 10  # of MCML, which sees all images in each
# Numbers of synthetic images, by system and d.
IMAGES = {
    ("OASIS", 1000): (1000, 3000, 10_000, 30_000, 100_000),
    ("OASIS", 10_000): (300, 1000, 3000, 10_000),
    ("LEGO", 1000): (300, 1000, 3000),
    ("MCML", 1000): (500, 1000, 2000),
}
QUICK_IMAGES = {("OASIS", 1000): (1000, 3000, 10_000)}
# Early stopping on a tenth of the images: looks of the same length whatever their number. A verdict over times that the
# cap of steps ended says so.
STOPPING = {"n_steps": 50_000_000, "pass_steps": 20_000, "validation_fraction": 0.1, "patience": 3, "refit": False}
STOPPING |= ONE_PAIR
RIVALS = {"MCML": (2, "two orders"), "LMNN": (1, "one order")}  # orders of magnitude above OASIS, in the paper


def runs_alone(job: dict[str, Any]) -> bool:
    """Whether no other job runs beside it; those to early stopping, which take long, run two at a time."""
    return not job.get("stops")


def jobs(quick: bool) -> list[dict[str, Any]]:
    chosen = run_jobs(retrieval.measure, retrieval.jobs(quick))
    wanted = []
    for job in chosen:
        system = job["system"]
        if job["fold"] < FOLDS.get(system, 0) and "settings" in job:
            # Results hold what differs from the defaults, as the chosen number of steps need not.
            steps = {"n_steps": LEARNERS[system]().n_steps} if system in LEARNERS else {}
            wanted.append({key: job[key] for key in ("system", "classes", "fold", "edges")})
            wanted[-1]["settings"] = steps | job["settings"]
    for (system, d), numbers in (QUICK_IMAGES if quick else IMAGES).items():
        for n in numbers:
            settings = {"n_steps": STEPS_AN_IMAGE * n, "pass_steps": 10 * n, "random_state": 0}
            if system == "MCML":
                settings = {"n_steps": N_ITERATIONS, "pass_steps": N_ITERATIONS, "trace_penalty": 0.002}
            settings |= ONE_PAIR if system == "OASIS" else {}
            wanted.append({"system": system, "settings": settings, "images": n, "d": d})
    stopping = {"system": "OASIS", "d": 1000, "stops": True}
    sizes, seeds = ((1000, 3000), 1) if quick else ((1000, 2000, 4000, 8000, 16_000, 32_000), 5)
    wanted += [
        stopping | {"images": n, "settings": STOPPING | {"random_state": seed}} for n in sizes for seed in range(seeds)
    ]
    if any(job["system"] == "LMNN" for job in chosen):
        lmnn = {
            "system": "LMNN",
            "settings": PEERS["LMNN"] | {"scale": 1.0, "regularization": 0.5},
            "d": 1000,
            "stops": True,
        }
        wanted += [lmnn | {"images": n} for n in (500, 1000, 2000)]
    return wanted


def facts(results: Results) -> dict[str, Any]:
    failed = sorted({one["system"] for one in results if not one["times"]})
    results = [one | {"train": float(np.median(one["times"]))} for one in results if one["times"]]
    classes = sorted({one["classes"] for one in results if "classes" in one})
    of_classes = {(s, c): select(results, system=s, classes=c) for s in FOLDS for c in classes}
    order = [*LEARNERS, "LMNN"]
    systems = [system for system in order if system not in failed and of_classes[system, classes[-1]]]
    of_images = [one for one in results if "images" in one and not one.get("stops")]
    stopped = without_seeds([one for one in results if one.get("stops")])
    medians = {key: np.median([one["train"] for one in own]) for key, own in of_classes.items() if own}
    rivals = [system for system in ("MCML", "LEGO", "LMNN") if system in systems]
    ratios = {system: [medians[system, c] / medians["OASIS", c] for c in classes] for system in rivals}
    fixed, free = select(of_images, system="OASIS", d=1000), select(stopped, system="OASIS")
    return {
        "classes": classes,
        "class_columns": ["", *(f"{c} classes" for c in classes)],
        "systems": systems,
        "failed": failed,
        "n_folds": 1 + max(one["fold"] for own in of_classes.values() for one in own),
        "orders": {system: orders for system, orders in RIVALS.items() if system in systems},
        "rivals": rivals,
        "medians": medians,
        "ratios": ratios,
        "least_ratio": min((min(ratios[system]) for system in rivals), default=None),
        "order_of": np.log10,
        "median": np.median,
        "edges": lambda *names: open_text({f"{s}, {c} classes": of_classes[s, c] for s in names for c in classes}),
        "capped": capped_text(free),
        "fixed": fixed,
        "free": free,
        "step_times": [step_time(one) for one in fixed],
        "times_rows": [[s, *(spread(one["train"] for one in of_classes[s, c]) for c in classes)] for s in systems],
        "steps_rows": [
            [s, *(spread(one["settings"]["n_steps"] for one in of_classes[s, c]) for c in classes)]
            for s in systems
            if s in LEARNERS
        ],
        "images_rows": [
            [
                name_of(one),
                f"{one['images']:,}",
                f"{one['settings']['n_steps']:,}",
                f"{one['train']:.3g}",
                f"{float(f'{step_time(one):.3g}'):,.10g}",  # three digits, never as a power of ten
                f"{one['violating']:.2f}",
            ]
            for one in of_images
        ],
        "stopped_rows": [
            [
                one["system"],
                f"{one['images']:,}",
                *(f"{one[key]:,}" if key in one else "" for key in ("best", "ended")),
                f"{one['train']:.3g}",
            ]
            for one in stopped
        ],
        "classes_plot": draw_classes(of_classes, systems, classes),
        "images_plot": draw_images(of_images),
        "stopped_plot": draw_stopped(stopped),
    }


def capped_text(results: Results) -> str:
    """Of how many seeds the cap of steps ended training; empty where it ended none."""
    texts = [
        f"{one['n_capped']} of {one['n_seeds']} seeds with {one['images']:,} images"
        for one in results
        if one["n_capped"]
    ]
    return f"The cap of {STOPPING['n_steps']:,} triplets ended {'; '.join(texts)}." if texts else ""


def without_seeds(results: Results) -> Results:
    """Results of one system and number of images as one: medians of the seeds' times and best steps, and the last step.

    And how many seeds there are, and of how many the cap ended training.
    """
    groups: dict[tuple[str, int], Results] = {}
    for one in results:
        groups.setdefault((one["system"], one["images"]), []).append(one)
    merged = []
    for own in groups.values():
        one = own[0] | {"times": [each["train"] for each in own]}
        one["train"] = float(np.median(one["times"]))
        for key, of in (("best", np.median), ("ended", max)):
            if key in one:
                one[key] = int(of([each[key] for each in own]))
        capped = [each for each in own if each.get("ended", 0) >= each["settings"].get("n_steps", np.inf)]
        merged.append(one | {"n_seeds": len(own), "n_capped": len(capped)})
    return merged


def power(results: Results) -> float:
    """Exponent of the growth of time with the number of images, by least squares over logarithms."""
    sizes, times = ([one[key] for one in results] for key in ("images", "train"))
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def step_time(result: dict[str, Any]) -> float:
    """Microseconds per step."""
    return 1e6 * result["train"] / result["settings"]["n_steps"]


def name_of(result: dict[str, Any]) -> str:
    return f"{result['system']}, d = {result['d']:,}"


def spread(values: Iterable[float]) -> str:
    """Median, least and most; empty if there are none."""
    values = list(values)
    if not values:
        return ""
    figures = [of(values) for of in (np.median, min, max)]
    middle, least, most = (f"{figure:,.0f}" if figure >= 100 else f"{figure:.2g}" for figure in figures)
    return f"{middle} ({least}–{most})"


# -- drawings ----------------------------------------------------------------------------------------------------------


def draw_classes(of_classes: dict[tuple[str, int], Results], systems: list[str], classes: list[int]) -> Plot:
    figure, (axes,) = plots.new_figure(width=7.0)
    data = []
    for system in systems:
        times = {c: [one["train"] for one in of_classes[system, c]] for c in classes if of_classes[system, c]}
        data += draw_range(axes, system, list(times), list(times.values()), system)
    axes.set(yscale="log", xlabel="number of classes, 40 images each", ylabel="training time (s)")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_xticks(classes)
    plots.legend(figure, axes)
    return Plot("speed-classes", figure, data)


def draw_images(results: Results) -> Plot:
    figure, panels = plots.new_figure(2)
    data = []
    for place, name in enumerate(dict.fromkeys(map(name_of, results))):
        own = [one for one in results if name_of(one) == name]
        sizes = [one["images"] for one in own]
        data += draw_range(panels[0], place, sizes, [one["times"] for one in own], name)
        steps = [[1e6 * t / one["settings"]["n_steps"] for t in one["times"]] for one in own]
        draw_range(panels[1], place, sizes, steps, name)
    draw_linear(panels[0], 9, [row["x"] for row in data if row["series"] == data[0]["series"]], data[0])
    for axes, label in zip(panels, ("training time (s)", "time a step (µs)"), strict=True):
        set_logarithmic(axes, label)
    # At least two decades, for enough ticks.
    panels[1].set_ylim(0.1, max(10, 2 * max(map(step_time, results))))
    plots.legend(figure, panels[0])
    return Plot("speed-images", figure, data)


def draw_stopped(results: Results) -> Plot:
    figure, (axes,) = plots.new_figure(width=7.0)
    data = []
    for system in dict.fromkeys(one["system"] for one in results):
        own = select(results, system=system)
        name = system if system == "LMNN" else f"{system}, to early stopping"
        data += draw_range(axes, system, [one["images"] for one in own], [one["times"] for one in own], name)
    draw_linear(axes, "chance", sorted({row["x"] for row in data}), data[0])
    set_logarithmic(axes, "training time (s)")
    plots.legend(figure, axes)
    return Plot("speed-stopping", figure, data)


def draw_range(
    axes: Any, place: int | str, x: list[int], values: list[list[float]], label: str
) -> list[dict[str, Any]]:
    """Draw the median curve with bars from minimum to maximum; return its numbers."""
    middle, least, most = (np.array([float(of(some)) for some in values]) for of in (np.median, min, max))
    plots.series(axes, place, x, middle, error=[middle - least, most - middle], label=label)
    return [
        {"series": label, "x": at, "seconds": float(m), "least": float(low), "most": float(high)}
        for at, m, low, high in zip(x, middle, least, most, strict=True)
    ]


def draw_linear(axes: Any, place: int | str, sizes: list[int], first: dict[str, Any]) -> None:
    """Draw what linear growth from the first point would be."""
    plots.series(axes, place, sizes, [first["seconds"] * size / first["x"] for size in sizes], label="linear")


def set_logarithmic(axes: Any, label: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel="number of images", ylabel=label)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.10g}")
        axis.set_minor_formatter(NullFormatter())
