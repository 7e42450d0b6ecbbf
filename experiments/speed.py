"""Training time against the number of classes, and against the number of images.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, table 5 and figure 4. ``python -m experiments speed``.

Processor time of one thread, one job at a time. Against the number of classes each system learns with the settings and
for the steps that the experiment `retrieval` chose, which is run first where it has not been. Against the number of
images it learns from synthetic images: classes of 40, so that there are more classes where there are more images.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from matplotlib.ticker import NullFormatter
from sklearn.preprocessing import normalize

from benchmarks import plots
from benchmarks.metric_learn_peer import learn_metric
from benchmarks.peers import PeerError
from visterm.learners import AROMA, LEGO, MCML, OASIS, WSABIE

from . import retrieval
from .grids import open_text
from .jobs import run_jobs
from .pages import Finding, Page, Plot, Table
from .protocol import ONE_PAIR, load_fold

ALONE = True
SOURCES: tuple[str, ...] = ("benchmarks/metric_learn_peer.py", "experiments/retrieval.py")
LEARNERS: dict[str, Any] = {
    "OASIS": OASIS,
    "AROMA diagonal": AROMA,
    "AROMA factored": AROMA,
    "WSABIE": WSABIE,
    "MCML": MCML,
    "LEGO": LEGO,
}
STEPS_AN_IMAGE = 100  # 2.3 million images and 160 million triplets in the paper: 70
N_ITERATIONS = 10  # of MCML, which sees all images in each
FOLDS = 2
MOST_REPEATS, ENOUGH_SECONDS = 3, 3.0
# Early stopping on a tenth of the images: looks of the same length whatever their number, so that it decides freely.
STOPPING = {"n_steps": 4_000_000, "pass_steps": 20_000, "validation_fraction": 0.1, "patience": 3, "refit": False}
STOPPING |= {"random_state": 0}


def synthetic_images(n: int, d: int) -> tuple[sp.csr_array, np.ndarray]:
    """Unit rows of about 25 visterms, half of them from those preferred by the row's class of 40 images."""
    rng = np.random.default_rng(0)
    y = np.arange(n) // 40
    preferred = rng.integers(0, d, (y[-1] + 1, 12))
    own = np.take_along_axis(preferred[y], rng.integers(0, 12, (n, 14)), axis=1)
    columns = np.hstack([own, rng.integers(0, d, (n, 14))])
    rows = np.repeat(np.arange(n), columns.shape[1])
    X = sp.csr_array((0.2 + rng.random(columns.size), (rows, columns.ravel())), shape=(n, d))
    return normalize(X).astype(np.float32), y


def jobs(quick: bool) -> list[dict[str, Any]]:
    chosen = run_jobs("retrieval", retrieval.jobs(quick))
    found = []
    for job in chosen:
        system = job["system"]
        if job["fold"] < (1 if system == "LMNN" else FOLDS) and system in (*LEARNERS, "LMNN") and "settings" in job:
            # Results hold what differs from the defaults, as the chosen number of steps need not.
            steps = {"n_steps": LEARNERS[system]().n_steps} if system in LEARNERS else {}
            settings = steps | job["settings"]
            found.append({"system": system, "settings": settings, "classes": job["classes"], "fold": job["fold"]})
            found[-1]["edges"] = job["edges"]
    sizes = (
        {("OASIS", 1000): (1000, 3000, 10_000)}
        if quick
        else {
            ("OASIS", 1000): (1000, 3000, 10_000, 30_000, 100_000),
            ("OASIS", 10_000): (300, 1000, 3000, 10_000),
            ("LEGO", 1000): (300, 1000, 3000),
            ("MCML", 1000): (500, 1000, 2000),
        }
    )
    for (system, d), numbers in sizes.items():
        for n in numbers:
            settings = (
                {"n_steps": N_ITERATIONS, "pass_steps": N_ITERATIONS, "trace_penalty": 0.002}
                if system == "MCML"
                else {"n_steps": STEPS_AN_IMAGE * n, "pass_steps": 10 * n, "random_state": 0}
            ) | (ONE_PAIR if system == "OASIS" else {})
            found.append({"system": system, "settings": settings, "images": n, "d": d})
    for n in (1000, 3000) if quick else (1000, 3000, 10_000, 30_000):
        found.append({"system": "OASIS", "settings": STOPPING | ONE_PAIR, "images": n, "d": 1000, "stops": True})
    if any(job["system"] == "LMNN" for job in chosen):
        lmnn = {
            "system": "LMNN",
            "settings": retrieval.PEERS["LMNN"] | retrieval.PEER_POINTS["LMNN"][1],
            "d": 1000,
            "stops": True,
        }
        found += [lmnn | {"images": n} for n in (500, 1000, 2000)]
    return found


def measure(
    system: str,
    settings: dict[str, Any],
    classes: int | None = None,
    fold: int | None = None,
    images: int | None = None,
    d: int = 1000,
    stops: bool = False,
    edges: Sequence[str] = (),
) -> dict[str, Any]:
    """Processor seconds of a few calls of `fit`; for LMNN, of one call of the package's `fit`.

    With `stops`, of a fit that early stopping ends, and the step at which it ended. `edges`, settings that were chosen
    at the edge of those tried, go into the results as they are.
    """
    if images is None:
        X, y, _, _ = load_fold(classes, d, fold)
    else:
        X, y = synthetic_images(images, d)
    if system in retrieval.PEERS:
        limit = retrieval.PEER_SECONDS
        try:
            return {"times": [learn_metric(system.lower(), X, y, timeout=limit, threads=1, **settings)[1]]}
        except PeerError as error:
            return {"times": [], "failed": str(error)}
    learner = LEARNERS[system](**settings)
    # Compiles, unless done already.
    LEARNERS[system](**settings | {"n_steps": 1}).fit(X, y)
    times: list[float] = []
    while len(times) < MOST_REPEATS and sum(times) < ENOUGH_SECONDS:
        start = time.process_time()
        learner.fit(X, y)
        times.append(time.process_time() - start)
    found = {"times": times, "violating": learner.history_[-1]["violating"]}
    return found | {"ended": learner.history_[-1]["step"], "best": learner.best_step_} if stops else found


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: list[dict[str, Any]]) -> Page:
    failed = sorted({result["system"] for result in results if not result["times"]})
    results = [result | {"train": float(np.median(result["times"]))} for result in results if result["times"]]
    by_classes = [result for result in results if "classes" in result]
    by_images = [result for result in results if "images" in result and not result.get("stops")]
    stopped = [result for result in results if result.get("stops")]
    classes = sorted({result["classes"] for result in by_classes})
    systems = [
        system for system in (*LEARNERS, "LMNN") if system not in failed and page_of(by_classes, system, classes[-1])
    ]
    rows = [
        [system, *(page_spread([r["train"] for r in page_of(by_classes, system, c)]) for c in classes)]
        for system in systems
    ]
    steps = [
        [system, *(page_spread([r["settings"]["n_steps"] for r in page_of(by_classes, system, c)]) for c in classes)]
        for system in systems
        if system in LEARNERS
    ]
    columns = ["", *(f"{c} classes" for c in classes)]
    sizes = [
        [
            page_name(result),
            f"{result['images']:,}",
            f"{result['settings']['n_steps']:,}",
            f"{result['train']:.3g}",
            f"{float(f'{page_step(result):.3g}'):,.10g}",  # three digits, never as a power of ten
            f"{result['violating']:.2f}",
        ]
        for result in by_images
    ]
    n_folds = 1 + max(result["fold"] for result in by_classes)
    ends = [
        [
            result["system"],
            f"{result['images']:,}",
            f"{result['best']:,}" if "best" in result else "",
            f"{result['ended']:,}" if "ended" in result else "",
            f"{result['train']:.3g}",
        ]
        for result in stopped
    ]
    parts: list[str | Table | Plot] = [
        Table("Training time in seconds, d = 1,000: median of the folds (least–most)", columns, rows),
        page_classes_plot(by_classes, systems, classes),
        Table("Steps that the time is for: median of the folds (least–most)", columns, steps),
        "The paper's table 5 has means and standard deviations of five folds, for which there are too few here"
        + ("; LMNN has one. " if "LMNN" in systems else ". ")
        + "Steps and settings are those of the best validation figure. Where that hardly depends on them, chance "
        "decides which are taken, and with them the time.",
        page_images_plot(by_images),
        Table(
            "Training time against the number of images, and the share of triplets (of MCML: images) that violated at "
            "the end",
            ["", "images", "steps", "seconds", "µs a step", "violating"],
            sizes,
        ),
    ]
    parts.append(page_stops_plot(stopped))
    parts.append(
        Table(
            "Time to early stopping against the number of images, validation included, d = 1,000; LMNN, "
            "which has no validation, for its iterations",
            ["", "images", "best step", "ended at step", "seconds"],
            ends,
        )
    )
    if "LMNN" in systems:
        parts.append(
            "LMNN is that of metric-learn 0.7.0, from principal components and for a limited number of iterations, as "
            "[the figures of the retrieval experiment](retrieval.md) are: its time is of those limits. None of the "
            "times holds the choice of settings and steps."
        )
    parts += [f"{system} is absent: it did not finish." for system in failed]
    return Page(
        title="Training time",
        source=(
            "Chechik, Sharma, Shalit, Bengio: *Large Scale Online Learning of Image Similarity through Ranking*, JMLR "
            "11, 2010, section 5.2.4, figure 4, and section 5.3.3, table 5."
        ),
        protocol=(
            "Processor time of one thread, one job at a time; each is the median of up to three, of one where that "
            f"takes {ENOUGH_SECONDS:g} s. Against the number of classes: Caltech-101, 40 images a class, {n_folds} "
            "folds, each with the settings and for the steps that cross-validation chose on its training images. "
            f"Against the number of images: synthetic images in classes of 40, {STEPS_AN_IMAGE} triplets an image; "
            f"MCML {N_ITERATIONS} iterations; and to early stopping, as the paper's figure 4. Agrees: of orders of "
            "magnitude, the median over the numbers of classes, to half an order (a factor of 3.2 either way); of "
            "linear growth, a power of 0.85 to 1.15."
        ),
        findings=page_findings(by_classes, by_images, stopped, systems, classes),
        parts=parts,
    )


def page_findings(
    by_classes: list, by_images: list, stopped: list, systems: list[str], classes: list[int]
) -> list[Finding]:
    found = []
    rivals = [system for system in ("MCML", "LEGO", "LMNN") if system in systems]
    if rivals:
        texts = []
        for c in classes:
            others = ", ".join(f"{system} {page_median(by_classes, system, c):.2g} s" for system in rivals)
            texts.append(f"OASIS {page_median(by_classes, 'OASIS', c):.2g} s, {others} ({c} classes)")
        fastest = all(min(page_ratios(by_classes, system, classes)) > 1 for system in rivals)
        paper = f"OASIS takes the least time of {', '.join(rivals)} and itself (table 5)."
        edges = page_edges(by_classes, ["OASIS", *rivals], classes)
        found.append(Finding(paper, "; ".join(texts) + ".", fastest, edges=edges))
    for system, orders, words in (("MCML", 2, "two orders"), ("LMNN", 1, "one order")):
        if system in systems:
            ratios = page_ratios(by_classes, system, classes)
            text = ", ".join(f"{ratio:.3g} times ({c} classes)" for ratio, c in zip(ratios, classes, strict=True))
            found.append(
                Finding(
                    f"{system} takes about {words} of magnitude longer than OASIS (section 5.3.3).",
                    f"{text}{page_limits(system)}.",
                    abs(np.log10(np.median(ratios)) - orders) < 0.5,
                    why=page_why(system),
                    kind="threshold",
                    edges=page_edges(by_classes, ["OASIS", system], classes),
                )
            )
    own = [r for r in by_images if r["system"] == "OASIS" and r["d"] == 1000]
    slope = page_slope(own)
    each = [page_step(r) for r in own]
    found.append(
        Finding(
            "With steps in proportion to the images, the time of OASIS grows linearly with the number of images.",
            f"{STEPS_AN_IMAGE} triplets an image, {own[0]['images']:,} to {own[-1]['images']:,} images: time grows "
            f"with the power {slope:.2f} of the number of images; a triplet takes {min(each):.2f} to "
            f"{max(each):.2f} µs.",
            0.85 < slope < 1.15,
            kind="construction",
        )
    )
    own = [r for r in stopped if r["system"] == "OASIS"]
    slope = page_slope(own)
    found.append(
        Finding(
            "The time of OASIS to early stopping grows linearly with the number of images (figure 4).",
            f"{own[0]['images']:,} to {own[-1]['images']:,} images: with the power {slope:.2f}, from "
            f"{own[0]['train']:.2g} to {own[-1]['train']:.2g} s. (It agrees between 0.85 and 1.15.)",
            0.85 < slope < 1.15,
            kind="threshold",
            why="The images are synthetic, and 500 of the held-out ones are queries at most.",
        )
    )
    return found


def page_edges(results: list, systems: list[str], classes: list[int]) -> str:
    """Why a verdict over the times of these systems is open: the steps and settings that they are for."""
    return open_text({f"{system}, {c} classes": page_of(results, system, c) for system in systems for c in classes})


def page_limits(system: str) -> str:
    return "; LMNN from 100 principal components, for 30 iterations" if system == "LMNN" else ""


def page_why(system: str) -> str:
    return {
        "MCML": "The paper's MCML is its authors' gradient descent with their default parameters. Ours is L-BFGS over "
        "a factor of the matrix, without eigenvectors, for the few iterations that cross-validation chose.",
        "LMNN": "This LMNN is metric-learn's, from 100 principal components in place of 1,000 dimensions, for 30 "
        "iterations.",
    }[system]


def page_classes_plot(results: list, systems: list[str], classes: list[int]) -> Plot:
    figure, (axes,) = plots.new_figure(width=7.0)
    data = []
    for system in systems:
        times = {c: [r["train"] for r in page_of(results, system, c)] for c in classes}
        times = {c: some for c, some in times.items() if some}
        data += page_range(axes, system, list(times), list(times.values()), system)
    axes.set(yscale="log", xlabel="number of classes, 40 images each", ylabel="training time (s)")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.set_xticks(classes)
    plots.legend(figure, axes)
    text = "Training time against the number of classes, d = 1,000: median of the folds; bars: least and most"
    return Plot("speed-classes", text, figure, data)


def page_images_plot(results: list) -> Plot:
    figure, panels = plots.new_figure(2)
    data = []
    for place, name in enumerate(dict.fromkeys(page_name(result) for result in results)):
        own = [r for r in results if page_name(r) == name]
        sizes = [r["images"] for r in own]
        data += page_range(panels[0], place, sizes, [r["times"] for r in own], name)
        page_range(
            panels[1], place, sizes, [[1e6 * t / r["settings"]["n_steps"] for t in r["times"]] for r in own], name
        )
    first = [row for row in data if row["series"] == data[0]["series"]]
    sizes = [row["x"] for row in first]
    linear = [first[0]["seconds"] * size / sizes[0] for size in sizes]
    plots.series(panels[0], 9, sizes, linear, label="linear")  # grey and dashed
    for axes, label in zip(panels, ("training time (s)", "time a step (µs)"), strict=True):
        axes.set(xscale="log", yscale="log", xlabel="number of images", ylabel=label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.10g}")
            axis.set_minor_formatter(NullFormatter())
    # At least two decades, for enough ticks.
    panels[1].set_ylim(0.1, max(10, 2 * max(page_step(r) for r in results)))
    plots.legend(figure, panels[0])
    text = (
        f"Training time; {STEPS_AN_IMAGE} triplets an image, MCML {N_ITERATIONS} iterations: median; bars: least and "
        "most of the repeats"
    )
    return Plot("speed-images", text, figure, data)


def page_stops_plot(results: list) -> Plot:
    """The paper's figure 4: time to early stopping against the number of images, and LMNN's."""
    figure, (axes,) = plots.new_figure(width=7.0)
    data = []
    for system in dict.fromkeys(result["system"] for result in results):
        own = [result for result in results if result["system"] == system]
        name = system if system == "LMNN" else f"{system}, to early stopping"
        data += page_range(axes, system, [r["images"] for r in own], [r["times"] for r in own], name)
    first = data[0]
    sizes = sorted({row["x"] for row in data})
    linear = [first["seconds"] * size / first["x"] for size in sizes]
    plots.series(axes, "chance", sizes, linear, label="linear")  # grey and dotted
    axes.set(xscale="log", yscale="log", xlabel="number of images", ylabel="training time (s)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.10g}")
        axis.set_minor_formatter(NullFormatter())
    plots.legend(figure, axes)
    text = "Time to early stopping against the number of images (figure 4); bars: least and most of the repeats"
    return Plot("speed-stopping", text, figure, data)


def page_range(
    axes: Any, place: int | str, x: list[int], values: list[list[float]], label: str
) -> list[dict[str, Any]]:
    """Draw the median curve with bars from minimum to maximum; return its numbers."""
    middle, least, most = (np.array([float(of(some)) for some in values]) for of in (np.median, min, max))
    plots.series(axes, place, x, middle, error=[middle - least, most - middle], label=label)
    return [
        {"series": label, "x": at, "seconds": float(m), "least": float(low), "most": float(high)}
        for at, m, low, high in zip(x, middle, least, most, strict=True)
    ]


def page_slope(results: list) -> float:
    """Exponent of the growth of time with the number of images, by least squares over logarithms."""
    sizes, times = ([r[key] for r in results] for key in ("images", "train"))
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def page_of(results: list, system: str, classes: int) -> list:
    return [r for r in results if r["system"] == system and r["classes"] == classes]


def page_median(results: list, system: str, classes: int) -> float:
    return float(np.median([r["train"] for r in page_of(results, system, classes)]))


def page_ratios(results: list, system: str, classes: list[int]) -> list[float]:
    """Ratio of a system's time to that of OASIS, for each number of classes."""
    return [page_median(results, system, c) / page_median(results, "OASIS", c) for c in classes]


def page_spread(values: list[float]) -> str:
    if not values:
        return ""
    middle, least, most = (page_number(of(values)) for of in (np.median, min, max))
    return f"{middle} ({least}–{most})"


def page_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def page_step(result: dict[str, Any]) -> float:
    """Microseconds per step."""
    return 1e6 * result["train"] / result["settings"]["n_steps"]


def page_name(result: dict[str, Any]) -> str:
    return f"{result['system']}, d = {result['d']:,}"
