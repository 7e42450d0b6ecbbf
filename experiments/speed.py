"""Training time against the number of classes, and against the number of images.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, table 5 and figure 4. ``python -m experiments speed``.

Processor time of one thread, one job at a time. Against the number of classes each system learns with the settings and
for the steps that the experiment `retrieval` chose, which is run first where it has not been. Against the number of
images it learns from synthetic images: classes of 40, so that there are more classes where there are more images.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.metric_learn_peer import learn_metric
from visterm.learners import AROMA, LEGO, MCML, OASIS, WSABIE

from . import plots, retrieval
from .jobs import run_jobs
from .pages import Finding, Page, Plot, Table
from .protocol import load_fold

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
MOST_REPEATS, ENOUGH_SECONDS = 3, 5.0


def synthetic_images(n: int, d: int) -> tuple[sp.csr_array, np.ndarray]:
    """Unit rows of about 25 visterms, half of which its class of 40 images prefers."""
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
    found = [
        {"system": job["system"], "settings": job["settings"], "classes": job["classes"], "fold": job["fold"]}
        for job in chosen
        if job["d"] == 1000 and job["system"] != "Euclidean" and job["fold"] < 3
    ]
    sizes = (
        {("OASIS", 1000): (1000, 3000, 10_000)}
        if quick
        else {
            ("OASIS", 1000): (1000, 3000, 10_000, 30_000, 100_000),
            ("OASIS", 10_000): (1000, 3000, 10_000, 30_000),
            ("LEGO", 1000): (1000, 3000, 10_000),
            ("MCML", 1000): (1000, 2000, 4000),
        }
    )
    for (system, d), numbers in sizes.items():
        for n in numbers:
            settings = (
                {"n_steps": N_ITERATIONS, "pass_steps": N_ITERATIONS, "trace_penalty": 0.002}
                if system == "MCML"
                else {"n_steps": STEPS_AN_IMAGE * n, "pass_steps": 10 * n, "random_state": 0}
            )
            found.append({"system": system, "settings": settings, "images": n, "d": d})
    return found


def measure(
    system: str,
    settings: dict[str, Any],
    classes: int | None = None,
    fold: int | None = None,
    images: int | None = None,
    d: int = 1000,
) -> dict[str, Any]:
    """Processor seconds of `fit`, median of a few; for LMNN, ITML and NCA those of the package's `fit`, once."""
    if images is None:
        X, y, _, _ = load_fold(classes, d, fold)
    else:
        X, y = synthetic_images(images, d)
    if system in retrieval.PEERS:
        limit = retrieval.PEER_SECONDS
        return {"train": learn_metric(system.lower(), X, y, timeout=limit, threads=1, **settings)[1]}
    learner = LEARNERS[system](**settings)
    # Compiles, where that has not been done.
    LEARNERS[system](**settings | {"n_steps": 1}).fit(X, y)
    times: list[float] = []
    while len(times) < MOST_REPEATS and sum(times) < ENOUGH_SECONDS:
        start = time.process_time()
        learner.fit(X, y)
        times.append(time.process_time() - start)
    return {"train": float(np.median(times)), "violating": learner.history_[-1]["violating"]}


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: list[dict[str, Any]]) -> Page:
    by_classes = [result for result in results if "classes" in result]
    by_images = [result for result in results if "images" in result]
    order = ["OASIS", "AROMA diagonal", "AROMA factored", "WSABIE", "MCML", "LEGO", "NCA", "ITML", "LMNN"]
    systems = [system for system in order if any(result["system"] == system for result in by_classes)]
    classes = sorted({result["classes"] for result in by_classes})
    rows = [
        [system, *(page_spread([r["train"] for r in page_of(by_classes, system, c)]) for c in classes)]
        for system in systems
    ]
    steps = [
        [system, *(page_steps(page_of(by_classes, system, c)) for c in classes)]
        for system in systems
        if "n_steps" in page_of(by_classes, system, classes[0])[0]["settings"]
    ]
    columns = ["", *(f"{c} classes" for c in classes)]
    sizes = [
        [
            page_name(result),
            f"{result['images']:,}",
            f"{result['settings']['n_steps']:,}",
            f"{result['train']:.3g}",
            f"{1e6 * result['train'] / result['settings']['n_steps']:,.3g}",
            f"{result['violating']:.2f}",
        ]
        for result in by_images
    ]
    parts: list[str | Table | Plot] = [
        Table("Training time in seconds, d = 1,000: median of the folds, least and most", columns, rows),
        page_classes_plot(by_classes, systems, order, classes),
        Table("Steps that the time is for: median of the folds", columns, steps),
        page_images_plot(by_images),
        Table(
            "Training time against the number of images, and the share of triplets (of MCML: images) that violated at "
            "the end",
            ["", "images", "steps", "seconds", "µs a step", "violating"],
            sizes,
        ),
    ]
    if any(result["system"] in retrieval.PEERS for result in results):
        parts.append(
            "LMNN, ITML and NCA are those of metric-learn 0.7.0, from principal components and for a limited number of "
            "iterations, as [the figures of the retrieval experiment](retrieval.md) are: their times are of those "
            "limits. None of the times holds the choice of settings and steps."
        )
    return Page(
        title="Training time",
        source=(
            "Chechik, Sharma, Shalit, Bengio: *Large Scale Online Learning of Image Similarity through Ranking*, JMLR "
            "11, 2010, section 5.2.4, figure 4, and section 5.3.3, table 5."
        ),
        protocol=(
            "Processor time of one thread, one job at a time. Against the number of classes: Caltech-101, 40 images a "
            f"class, {1 + max(result['fold'] for result in by_classes)} folds, each with the settings and for the "
            "steps that cross-validation chose on its training images. Against the number of images: synthetic images "
            f"in classes of 40, {STEPS_AN_IMAGE} triplets an image; MCML {N_ITERATIONS} iterations. That the triplets "
            "needed grow in proportion to the images is taken from the paper, which found them by early stopping."
        ),
        findings=page_findings(by_classes, by_images, systems, classes),
        parts=parts,
    )


def page_findings(by_classes: list, by_images: list, systems: list[str], classes: list[int]) -> list[Finding]:
    found = []
    rivals = [system for system in ("MCML", "LEGO", "LMNN") if system in systems]
    if rivals:
        ours = {c: page_median(by_classes, "OASIS", c) for c in classes}
        texts = []
        for c in classes:
            others = ", ".join(f"{system} {page_median(by_classes, system, c):.2g} s" for system in rivals)
            texts.append(f"OASIS {ours[c]:.2g} s, {others} ({c} classes)")
        fastest = all(ours[c] < page_median(by_classes, system, c) for c in classes for system in rivals)
        paper = f"OASIS takes the least time of {', '.join(rivals)} and itself (table 5)."
        found.append(Finding(paper, "; ".join(texts) + ".", fastest))
    # Half an order of magnitude less still counts as the order.
    for system, factor, words in (("MCML", 100, "two orders"), ("LMNN", 10, "one order")):
        if system in systems:
            ratios = [page_median(by_classes, system, c) / page_median(by_classes, "OASIS", c) for c in classes]
            text = ", ".join(f"{ratio:.3g} times ({c} classes)" for ratio, c in zip(ratios, classes, strict=True))
            found.append(
                Finding(
                    f"{system} takes about {words} of magnitude longer than OASIS (section 5.3.3).",
                    f"{text}.",
                    max(ratios) > factor / 10**0.5,
                    why=page_why(system),
                )
            )
    own = [r for r in by_images if r["system"] == "OASIS" and r["d"] == 1000]
    slope = page_slope(own)
    each = [1e6 * r["train"] / r["settings"]["n_steps"] for r in own]
    found.append(
        Finding(
            "The time of OASIS grows linearly with the number of images (figure 4).",
            f"{STEPS_AN_IMAGE} triplets an image, {own[0]['images']:,} to {own[-1]['images']:,} images: time grows "
            f"with the power {slope:.2f} of the number of images; a triplet takes {min(each):.2f} to "
            f"{max(each):.2f} µs.",
            bool(0.85 < slope < 1.15),
            why=page_why("OASIS"),
        )
    )
    return found


def page_why(system: str) -> str:
    return {
        "MCML": "The paper's MCML is its authors' gradient descent, run to its end. Ours is L-BFGS over a factor of "
        "the matrix, without eigenvectors, for the few iterations that cross-validation chose.",
        "LMNN": "This LMNN is metric-learn's, from 100 principal components in place of 1,000 dimensions, for 50 "
        "iterations.",
    }.get(system, "")


def page_classes_plot(results: list, systems: list[str], order: list[str], classes: list[int]) -> Plot:
    figure, (axes,) = plots.new_figure(width=7.0)
    data = []
    for system in systems:
        times = [[r["train"] for r in page_of(results, system, c)] for c in classes]
        middle = [float(np.median(some)) for some in times]
        bars = [[m - min(some) for m, some in zip(middle, times, strict=True)]]
        bars.append([max(some) - m for m, some in zip(middle, times, strict=True)])
        plots.series(axes, order.index(system), classes, middle, error=bars, label=system)
        data += [
            {"system": system, "classes": c, "fold": r["fold"], "seconds": r["train"]}
            for c in classes
            for r in page_of(results, system, c)
        ]
    axes.set(yscale="log", xlabel="number of classes, 40 images each", ylabel="training time [s]")
    axes.set_xticks(classes)
    plots.legend(figure, axes)
    text = "Training time against the number of classes, d = 1,000: median of the folds; bars: least and most"
    return Plot("speed-classes", text, figure, data)


def page_images_plot(results: list) -> Plot:
    figure, panels = plots.new_figure(2)
    names = list(dict.fromkeys(page_name(result) for result in results))
    data = [
        {
            "system": page_name(r),
            "images": r["images"],
            "steps": r["settings"]["n_steps"],
            "seconds": r["train"],
            "microseconds_a_step": 1e6 * r["train"] / r["settings"]["n_steps"],
        }
        for r in results
    ]
    for place, name in enumerate(names):
        own = [row for row in data if row["system"] == name]
        sizes = [row["images"] for row in own]
        plots.series(panels[0], place, sizes, [row["seconds"] for row in own], label=name)
        plots.series(panels[1], place, sizes, [row["microseconds_a_step"] for row in own], label=name)
    first = [row for row in data if row["system"] == names[0]]
    sizes = [row["images"] for row in first]
    linear = [first[0]["seconds"] * size / sizes[0] for size in sizes]
    plots.series(panels[0], 9, sizes, linear, label="linear")  # grey and dashed
    for axes, key, label in (
        (panels[0], "seconds", "training time [s]"),
        (panels[1], "microseconds_a_step", "time a step [µs]"),
    ):
        axes.set(xscale="log", yscale="log", xlabel="number of images", ylabel=label)
        axes.set_ylim(0.1, max(10, 2 * max(row[key] for row in data)))
    plots.legend(figure, panels[0])
    text = f"Training time; {STEPS_AN_IMAGE} triplets an image, MCML {N_ITERATIONS} iterations"
    return Plot("speed-images", text, figure, data)


def page_slope(results: list) -> float:
    """Power of the number of images that the time grows with, by least squares over logarithms."""
    sizes, times = ([r[key] for r in results] for key in ("images", "train"))
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def page_of(results: list, system: str, classes: int) -> list:
    return [r for r in results if r["system"] == system and r["classes"] == classes]


def page_median(results: list, system: str, classes: int) -> float:
    return float(np.median([r["train"] for r in page_of(results, system, classes)]))


def page_spread(values: list[float]) -> str:
    return f"{np.median(values):.2g} ({min(values):.2g}–{max(values):.2g})"


def page_steps(results: list) -> str:
    return f"{np.median([r['settings']['n_steps'] for r in results]):,.0f}"


def page_name(result: dict[str, Any]) -> str:
    return f"{result['system']}, d = {result['d']:,}"
