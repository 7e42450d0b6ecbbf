"""Images that query images: precision at k and mean average precision of all similarities, for 10, 20 and 38 classes.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.3, figure 6 and table 4; Crammer, Chechik, ICML 2012, section
5.1 and figure 3. ``python -m experiments retrieval``.

LMNN, ITML and NCA are those of the metric-learn package, learned from principal components and for few iterations:
`PEERS` says how many. These limits were settled on the training images of one fold of 20 classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.metric_learn_peer import Linear, learn_metric
from visterm.learners import AROMA, LEGO, MCML, OASIS, WSABIE, Cosine
from visterm.learners.online import OnlineLearner

from . import plots
from .pages import Finding, Page, Plot, Table
from .protocol import CURVE, N_FOLDS, N_INNER_FOLDS, choose, figures, load_fold, settings_of
from .statistics import mean_and_error

ALONE = False
SOURCES: tuple[str, ...] = ("benchmarks/metric_learn_peer.py",)
CLASSES = (10, 20, 38)
N_TEST = 25  # images of a class that query each other


class EmbeddingWSABIE(WSABIE):
    """WSABIE whose steps are chosen as those of the others are: by images that query images, not by their labels."""

    click_cutoff = None
    validation_measure = OnlineLearner.validation_measure
    _validator = OnlineLearner._validator


# Settings to choose among, and the most steps; how many steps are taken comes out of the validation figures.
CANDIDATES: dict[str, list[Any]] = {
    "OASIS": [OASIS(C=C, n_steps=200_000, pass_steps=20_000, random_state=0) for C in (0.01, 0.03, 0.1, 0.3)],
    "AROMA diagonal": [AROMA(r=r, n_steps=200_000, pass_steps=20_000, random_state=0) for r in (0.01, 1, 10, 100)],
    "AROMA factored": [
        AROMA(covariance="factored", r=r, n_steps=200_000, pass_steps=20_000, random_state=0) for r in (1, 100)
    ],
    "WSABIE": [
        EmbeddingWSABIE(learning_rate=rate, n_steps=50_000, pass_steps=2_500, random_state=0)
        for rate in (0.02, 0.08, 0.32)
    ],
    "MCML": [MCML(trace_penalty=penalty, n_steps=20, pass_steps=5) for penalty in (0.001, 0.002, 0.004)],
    "LEGO": [LEGO(eta=eta, n_steps=40_000, pass_steps=4_000, random_state=0) for eta in (0.02, 0.08, 0.32)],
}
CANDIDATES_10000: dict[str, list[Any]] = {
    "OASIS": [OASIS(C=C, n_steps=200_000, pass_steps=20_000, random_state=0) for C in (0.03, 0.1)],
    "AROMA diagonal": [AROMA(r=r, n_steps=200_000, pass_steps=20_000, random_state=0) for r in (10, 100)],
}
# Inner folds, where `N_INNER_FOLDS` would take too long.
INNER_FOLDS = {"AROMA factored": 2, "MCML": 3}
INNER_FOLDS_10000 = 2
INNER_FOLDS_QUICK = 2

PEERS: dict[str, dict[str, Any]] = {
    "NCA": {"n_components": 200, "max_iter": 20},
    "ITML": {"n_components": 100, "max_iter": 10, "random_state": 0},
    # Its margin is 1: vectors of length 3 have fewer images within it than unit ones, and an iteration takes less.
    "LMNN": {"n_components": 100, "max_iter": 50, "learn_rate": 0.01, "scale": 3},
}
PEER_SECONDS = 1200


def jobs(quick: bool) -> list[dict[str, Any]]:
    systems = ["Euclidean", "OASIS", "AROMA diagonal", "WSABIE", "LEGO"]
    if quick:
        classes, folds, pairs = CLASSES[:2], 2, [(system, 1000) for system in systems]
    else:
        classes, folds = CLASSES, N_FOLDS
        pairs = [(system, 1000) for system in [*systems, "MCML", "AROMA factored", *PEERS]]
        pairs += [(system, 10_000) for system in ("Euclidean", *CANDIDATES_10000)]
    # Long jobs first, so that no core waits for the last one.
    return [
        {"system": system, "classes": c, "d": d, "fold": fold, "quick": quick}
        for system, d in reversed(pairs)
        for c in reversed(classes)
        for fold in range(folds)
    ]


def measure(system: str, classes: int, d: int, fold: int, quick: bool) -> dict[str, Any]:
    """Figures of a system on the test images of a fold, and the settings that it took."""
    X, y, test, test_y = load_fold(classes, d, fold)
    if system in PEERS:
        components, _ = learn_metric(system.lower(), X, y, timeout=PEER_SECONDS, threads=1, **PEERS[system])
        return figures(Linear(components), test, test_y) | {"settings": PEERS[system]}
    if system == "Euclidean":  # ranks unit rows as the inner product does
        learner = Cosine()
    elif d > 1000:
        learner = choose(CANDIDATES_10000[system], X, y, n_folds=INNER_FOLDS_10000)
    else:
        n_folds = INNER_FOLDS_QUICK if quick else INNER_FOLDS.get(system, N_INNER_FOLDS)
        learner = choose(CANDIDATES[system], X, y, n_folds=n_folds)
    learner.fit(X, y)
    return figures(learner, test, test_y) | {"settings": settings_of(learner)}


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: list[dict[str, Any]]) -> Page:
    classes = sorted({result["classes"] for result in results})
    small = [result for result in results if result["d"] == 1000]
    large = [result for result in results if result["d"] > 1000]
    order = ["OASIS", "AROMA diagonal", "AROMA factored", "WSABIE", "MCML", "LEGO", "NCA", "ITML", "LMNN", "Euclidean"]
    systems = [system for system in order if any(result["system"] == system for result in small)]
    n_folds = 1 + max(result["fold"] for result in results)
    protocol = (
        f"{page_list(classes)} classes of Caltech-101 in place of 10, 20 and 50 of Caltech-256; of each class 40 "
        f"images to learn from and {N_TEST} that query each other, {n_folds} folds. Settings and steps are chosen on "
        "the training images by cross-validation over "
        f"{INNER_FOLDS_QUICK if results[0]['quick'] else N_INNER_FOLDS} inner folds"
    )
    if not results[0]["quick"]:
        fewer = ", ".join(f"{system} {n}" for system, n in INNER_FOLDS.items())
        protocol += f" ({fewer}, all at d = 10,000 {INNER_FOLDS_10000}: they take long)"
    protocol += (
        ". One system is above another where it is so in the mean at each number of classes, and where, over all folds "
        "and numbers of classes, the mean of the paired differences is more than two of its standard errors."
    )
    parts: list[str | Table | Plot] = []
    for c in classes:
        rows = [page_row(system, page_of(small, system, c)) for system in systems]
        rows.append(["chance", *(f"{value:.3f}" for value in page_chance(c))])
        columns = ["", "mAP", "top 1", "top 10", "top 50"]
        parts.append(Table(f"{c} classes, d = 1,000; mean ± standard deviation of the folds", columns, rows))
    compared = [system for system in systems if not system.startswith(("AROMA", "WSABIE"))]
    parts.append(
        page_plot("retrieval-metrics", "OASIS and metrics, d = 1,000", small, compared, order, classes, chance=True)
    )
    similarities = [s for s in systems if s.startswith(("OASIS", "AROMA", "WSABIE", "Euclidean"))]
    parts.append(
        page_plot(
            "retrieval-similarities", "Similarities that are no metrics, d = 1,000", small, similarities, order, classes
        )
    )
    if large:
        names = [system for system in order if any(result["system"] == system for result in large)]
        rows = [page_row(f"{system}, {c} classes", page_of(large, system, c)) for c in classes for system in names]
        columns = ["", "mAP", "top 1", "top 10", "top 50"]
        parts.append(Table("d = 10,000; mean ± standard deviation of the folds", columns, rows))
        parts.append(page_plot("retrieval-10000", "d = 10,000", large, names, order, classes))
    rows = [
        [system if d == 1000 else f"{system}, d = 10,000", *(page_settings(page_of(some, system, c)) for c in classes)]
        for d, some in ((1000, small), (10_000, large))
        for system in systems
        if system != "Euclidean" and page_of(some, system, classes[0])
    ]
    parts.append(Table("Settings taken, with the number of folds", ["", *(f"{c} classes" for c in classes)], rows))
    if any(result["system"] in PEERS for result in results):
        parts.append(
            "LMNN, ITML and NCA are those of metric-learn 0.7.0. They learn from principal components and stop after a "
            "number of iterations, since on all 1,000 dimensions they take minutes: a limit of this comparison, not of "
            "the methods. The limits were settled by the mean average precision of a fifth of the training images of "
            "one fold of 20 classes, which the rest had not learned from."
        )
    return Page(
        title="Images that query images: all similarities",
        source=(
            "Chechik, Sharma, Shalit, Bengio: *Large Scale Online Learning of Image Similarity through Ranking*, JMLR "
            "11, 2010, section 5.3, figure 6, table 4. Crammer, Chechik: *Adaptive Regularization for Weight "
            "Matrices*, ICML 2012, section 5.1, figure 3."
        ),
        protocol=protocol,
        findings=page_findings(small, systems, classes),
        parts=parts,
    )


def page_findings(results: list[dict[str, Any]], systems: Sequence[str], classes: Sequence[int]) -> list[Finding]:
    found = []
    rivals = [system for system in ("MCML", "LEGO", "LMNN", "Euclidean") if system in systems]
    if "MCML" in rivals:
        found.append(page_every_k(results, rivals, classes))
    found.append(
        Finding(
            "OASIS is well above the Euclidean distance (JMLR, figure 6).",
            page_against(results, "OASIS", "Euclidean", classes),
            page_least_ratio(results, "OASIS", "Euclidean", classes) > 1.2,
            must=True,
        )
    )
    found.append(
        Finding(
            "AROMA is well above the Euclidean distance (ICML, figure 3).",
            page_against(results, "AROMA diagonal", "Euclidean", classes),
            page_least_ratio(results, "AROMA diagonal", "Euclidean", classes) > 1.2,
            must=True,
        )
    )
    for better, worse in (("OASIS", "MCML"), ("MCML", "LEGO"), ("OASIS", "LEGO"), ("LEGO", "LMNN")):
        if {better, worse} <= set(systems):
            paper = f"{better} is above {worse} in mean average precision (JMLR, table 4)."
            found.append(
                Finding(
                    paper,
                    page_against(results, better, worse, classes),
                    page_above(results, better, worse, classes),
                    why=page_why(better, worse),
                )
            )
    if "LMNN" in systems:
        ratio = [page_mean(results, "LMNN", c) / page_mean(results, "Euclidean", c) for c in classes]
        found.append(
            Finding(
                "LMNN is about as good as the Euclidean distance (JMLR, figure 6): within a tenth of it.",
                page_against(results, "LMNN", "Euclidean", classes),
                bool(np.all(np.abs(np.array(ratio) - 1) < 0.1)),
                why=page_why("LMNN", "Euclidean"),
            )
        )
    for system in ("AROMA diagonal", "AROMA factored"):
        if system in systems:
            found.append(
                Finding(
                    f"{system} is above OASIS at the top of the list: precision at 1 of 0.33 against 0.22 (ICML, "
                    "figure 3, 50 classes).",
                    page_against(results, system, "OASIS", classes, k=1),
                    page_above(results, system, "OASIS", classes, k=1),
                    why=page_why(system, "OASIS"),
                )
            )
    if "AROMA factored" in systems:
        found.append(
            Finding(
                "Factored AROMA is slightly above diagonal AROMA (ICML, figure 3).",
                page_against(results, "AROMA factored", "AROMA diagonal", classes),
                page_above(results, "AROMA factored", "AROMA diagonal", classes),
                why=page_why("AROMA factored", "AROMA diagonal"),
            )
        )
    return found


def page_why(better: str, worse: str) -> str:
    if (better, worse) == ("AROMA diagonal", "OASIS"):
        return (
            "The top of the list depends on where learning starts: AROMA at W = 0, OASIS at the identity, which ranks "
            "as the Euclidean distance does. [learning](learning.md) starts each at both."
        )
    if (better, worse) == ("AROMA factored", "OASIS"):
        return "As of the diagonal form."
    if "LMNN" in (better, worse):
        return (
            "This LMNN is metric-learn's, from 100 principal components; the paper took the authors' own, from all of "
            "them."
        )
    return ""


def page_every_k(results: list[dict[str, Any]], rivals: Sequence[str], classes: Sequence[int]) -> Finding:
    """Whether no rival is above OASIS by more than a standard error of the paired difference, at any k."""
    first, places, most = 0, 0, (-np.inf, 0.0, "")
    agrees = True
    for c in classes:
        ours = page_curves(results, "OASIS", c)
        others = {system: page_curves(results, system, c) for system in rivals}
        for k in range(CURVE):
            places += 1
            first += all(ours[:, k].mean() >= other[:, k].mean() for other in others.values())
            for system, other in others.items():
                lead, error = mean_and_error(other[:, k] - ours[:, k])
                agrees &= lead <= error
                most = max(most, (lead, error, f"{system} at k = {k + 1}, {c} classes"))
    here = f"OASIS is first at {first} of {places} places (k = 1 to {CURVE}, {page_list(classes)} classes)"
    if most[0] > 0:
        here += f"; the largest lead over it is {most[0]:.3f} ± {most[1]:.3f}, of {most[2]}"
    paper = f"OASIS is best at every k, of {', '.join(rivals)} and itself (JMLR, figure 6)."
    return Finding(paper, here + ".", bool(agrees), why=page_why("OASIS", "rivals"))


def page_plot(
    stem: str,
    caption: str,
    results: list[dict[str, Any]],
    systems: Sequence[str],
    order: Sequence[str],
    classes: Sequence[int],
    *,
    chance: bool = False,
) -> Plot:
    figure, panels = plots.new_figure(len(classes))
    k, data = np.arange(1, CURVE + 1), []
    for axes, c in zip(panels, classes, strict=True):
        for system in systems:
            curves = page_curves(results, system, c)
            mean = curves.mean(axis=0)
            error = [mean_and_error(column)[1] for column in curves.T]
            plots.series(axes, order.index(system), k, mean, error=error, label=system)
            data += [
                {"classes": c, "system": system, "k": int(i), "precision": float(p), "standard_error": float(e)}
                for i, p, e in zip(k, mean, error, strict=True)
            ]
        if chance:
            plots.series(axes, len(order), k, np.full(CURVE, page_chance(c)[1]), label="chance")
        axes.set(xscale="log", xlabel="number of images k", title=f"{c} classes", ylim=(0, None))
        axes.set_xticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"], minor=False)
        axes.set_xticks([], minor=True)
    panels[0].set(ylabel="precision at k")
    plots.legend(figure, panels[0])
    text = f"{caption}: precision among the k nearest images; bars: standard error of the mean over the folds"
    return Plot(stem, text, figure, data)


def page_row(name: str, some: list[dict[str, Any]]) -> list[str]:
    """A system's figures: mean and standard deviation over the folds, as table 4 of the paper has them."""
    columns = [[result["map"] for result in some]]
    columns += [[result["precision"][k - 1] for result in some] for k in (1, 10, 50)]
    return [name, *(f"{np.mean(column):.3f} ± {np.std(column, ddof=1):.3f}" for column in columns)]


def page_chance(classes: int) -> tuple[float, float, float, float]:
    """Expected mean average precision, and precision at 1, 10 and 50, of images in random order.

    Of n images R are relevant. The image at rank k, if relevant, has precision (1 + (k - 1) (R - 1) / (n - 1)) / k, and
    each rank is equally likely to hold one.
    """
    n, relevant = classes * N_TEST - 1, N_TEST - 1
    harmonic = np.sum(1 / np.arange(1, n + 1)) / n
    precision = relevant / n
    return float(harmonic + (relevant - 1) / (n - 1) * (1 - harmonic)), precision, precision, precision


def page_settings(some: list[dict[str, Any]]) -> str:
    """The setting that was chosen, with the number of folds that took it, and the median of the steps."""
    if not some:
        return ""
    names = {"OASIS": "C", "WSABIE": "learning_rate", "MCML": "trace_penalty", "LEGO": "eta"}
    system = some[0]["system"]
    if system in PEERS:
        return ", ".join(f"{key} {value:g}" for key, value in PEERS[system].items() if key != "random_state")
    name = names.get(system, "r")
    default = CANDIDATES[system][0].__class__().get_params()[name]  # results hold what differs from the defaults
    values = [result["settings"].get(name, default) for result in some]
    counts = [f"{value:g} ({values.count(value)})" for value in sorted(set(values))]
    steps = np.median([result["settings"]["n_steps"] for result in some])
    return f"{name} {', '.join(counts)}; {steps:,.0f} steps"


def page_of(results: list[dict[str, Any]], system: str, classes: int) -> list[dict[str, Any]]:
    """A system's results in the order of the folds."""
    own = [result for result in results if result["system"] == system and result["classes"] == classes]
    return sorted(own, key=lambda result: result["fold"])


def page_curves(results: list[dict[str, Any]], system: str, classes: int) -> np.ndarray:
    return np.array([result["precision"] for result in page_of(results, system, classes)])  # (folds, k)


def page_values(results: list[dict[str, Any]], system: str, classes: int, k: int | None) -> np.ndarray:
    """Precision at k of each fold, or mean average precision."""
    if k is not None:
        return page_curves(results, system, classes)[:, k - 1]
    return np.array([result["map"] for result in page_of(results, system, classes)])


def page_mean(results: list[dict[str, Any]], system: str, classes: int) -> float:
    return float(page_values(results, system, classes, None).mean())


def page_against(
    results: list[dict[str, Any]], one: str, other: str, classes: Sequence[int], *, k: int | None = None
) -> str:
    measure = "mAP" if k is None else f"precision at {k}"
    pairs = []
    for c in classes:
        a, b = (page_values(results, system, c, k).mean() for system in (one, other))
        pairs.append(f"{a:.3f} against {b:.3f} ({c} classes)")
    return f"{measure} {', '.join(pairs)}."


def page_above(
    results: list[dict[str, Any]], one: str, other: str, classes: Sequence[int], *, k: int | None = None
) -> bool:
    """The rule that the page states."""
    leads = [page_values(results, one, c, k) - page_values(results, other, c, k) for c in classes]
    mean, error = mean_and_error(np.concatenate(leads))
    return bool(mean > 2 * error and all(lead.mean() > 0 for lead in leads))


def page_least_ratio(results: list[dict[str, Any]], one: str, other: str, classes: Sequence[int]) -> float:
    return min(page_mean(results, one, c) / page_mean(results, other, c) for c in classes)


def page_list(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
