"""Images that query images: precision at k and mean average precision of all similarities, for 10, 20 and 38 classes.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.3, figure 6 and table 4; Crammer, Chechik, ICML 2012, section
5.1 and figure 3. ``python -m experiments retrieval``.

LMNN, ITML and NCA are those of the metric-learn package, learned from principal components and for few iterations:
`PEERS` and `PEER_POINTS` say how many. Where the package cannot be installed, they are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks import plots
from benchmarks.metric_learn_peer import REQUIREMENTS, Linear, learn_metric
from benchmarks.peers import PeerError, environment
from benchmarks.statistics import clearly_above, difference, mean_and_error, plus_minus
from visterm.learners import AROMA, HIER, LEGO, MCML, OASIS, RCA, WSABIE, Cosine, Xing
from visterm.learners.online import OnlineLearner
from visterm.pipeline.console import count
from visterm.pipeline.evaluation.is_a import parents_of

from .grids import ROUNDS, RULE, Curve, Grid, Point, open_text, search, settings_text
from .jobs import ROOT
from .pages import Finding, Page, Plot, Table
from .protocol import CURVE, N_FOLDS, ONE_PAIR, choose, figures, load_fold, settings_of

ALONE = False
IS_A = ROOT / "configs" / "caltech101-is-a.csv"
SOURCES: tuple[str, ...] = (
    "benchmarks/metric_learn_peer.py",
    "pipeline/evaluation/is_a.py",
    "configs/caltech101-is-a.csv",
)
CLASSES = (10, 20, 38)
N_TEST = 25  # images of a class that query each other


class RankingHIER(HIER):
    """HIER validated as the other systems are, by images that query images, not by label ranking."""

    click_cutoff = None
    validation_measure = OnlineLearner.validation_measure

    def _validator(self, X: Any, y: Any, held_out: np.ndarray) -> Callable[[], float]:
        measure = self._image_validator(X, y, held_out)

        def calibrated() -> float:
            self._calibrate(X.shape[0])
            return measure()

        return calibrated


class EmbeddingWSABIE(WSABIE):
    """WSABIE validated as the other systems are, by images that query images, not by label ranking."""

    click_cutoff = None
    validation_measure = OnlineLearner.validation_measure
    _validator = OnlineLearner._validator


# Settings tried first, and the most steps: validation chooses, and grids grow.
ONLINE: dict[str, Any] = {"n_steps": 200_000, "pass_steps": 20_000, "random_state": 0} | ONE_PAIR
CANDIDATES: dict[str, Grid] = {
    "OASIS": Grid(OASIS(**ONLINE), {"C": (0.01, 0.03, 0.1)}),
    "AROMA diagonal": Grid(AROMA(**ONLINE), {"r": (10.0, 100.0, 1000.0)}),
    "AROMA factored": Grid(AROMA(covariance="factored", **ONLINE), {"r": (10.0, 100.0, 1000.0)}),
    "WSABIE": Grid(
        EmbeddingWSABIE(n_steps=30_000, pass_steps=2_500, random_state=0),
        {"max_norm": (0.6, 1.0, 1.7), "learning_rate": (0.02, 0.08, 0.32)},
    ),
    "MCML": Grid(MCML(n_steps=6, pass_steps=1), {"trace_penalty": (0.001, 0.002)}),
    # The paper's three.
    "LEGO": Grid(LEGO(loss="pairs", n_steps=28_000, pass_steps=4_000, random_state=0), {"eta": (0.02, 0.08, 0.32)}),
    "LEGO, triplets": Grid(LEGO(n_steps=28_000, pass_steps=4_000, random_state=0), {"eta": (0.005, 0.02, 0.08)}),
    "HIER": Grid(RankingHIER(n_steps=30_000, pass_steps=3_000, random_state=0), {"C": (0.01, 0.03, 0.1, 0.3)}),
    "RCA": Grid(RCA(), {"shrinkage": (0.3, 0.9, 1.0)}, {"shrinkage": (0.0, 1.0)}),
    "Xing": Grid(Xing(n_steps=6, pass_steps=1), {"shrinkage": (3e-5, 3e-3)}, {"shrinkage": (0.0, 1.0)}),
}
INNER_FOLDS = 3
FEW_INNER_FOLDS = 2  # of factored AROMA, whose updates take a tenth of a millisecond, and of Xing's method
FEW_FOLDS = 3  # of it, and of systems beside those of the papers' figures

# Of the methods of metric-learn: what keeps their time in bounds, and what of it is chosen on a fifth of the training
# images of each fold. LMNN's margin is 1: among longer vectors fewer images lie within it, and iterations are faster.
PEERS: dict[str, dict[str, Any]] = {
    "NCA": {"n_components": 200},
    "ITML": {"n_components": 100, "random_state": 0},
    "LMNN": {"n_components": 100, "max_iter": 30, "learn_rate": 0.01},
}
PEER_POINTS: dict[str, list[Point]] = {
    "NCA": [{"max_iter": n} for n in (5, 10, 20)],
    "ITML": [{"max_iter": n} for n in (1, 2, 5)],
    "LMNN": [{"scale": scale} for scale in (0.2, 1.0)],
}
PEER_SECONDS = 300


def jobs(quick: bool) -> list[dict[str, Any]]:
    systems = ["Euclidean", "OASIS", "AROMA diagonal", "WSABIE", *([] if quick else ["LEGO"]), "HIER", "RCA"]
    classes, folds = (CLASSES[1:2], 1) if quick else (CLASSES, N_FOLDS)
    found = []
    if not quick:
        systems += ["MCML", *jobs_peers()]
        # Long jobs first, so that no core idles at the end.
        # Of the paper's figure alone: the first takes minutes; the second is another reading of a system.
        found += [("AROMA factored", classes[-1], FEW_FOLDS), ("LEGO, triplets", classes[-1], FEW_FOLDS)]
        found += [("Xing", classes[0], FEW_FOLDS)]  # a step is an eigendecomposition, and n^2 distances
        found += [(system, classes[1], FEW_FOLDS) for system in ("NCA", "ITML") if system in systems]
    compared = [system for system in reversed(systems) if system not in ("NCA", "ITML")]  # by a paper, on images
    for system in compared:
        few = not quick and system in ("LMNN", "MCML", "LEGO")  # these take longest
        found += [(system, c, FEW_FOLDS if few else folds) for c in reversed(classes)]
    return [
        {"system": system, "classes": c, "fold": fold, "quick": quick}
        for system, c, n_folds in found
        for fold in range(n_folds)
    ]


def jobs_peers() -> list[str]:
    """Systems of metric-learn; none if it cannot be installed."""
    try:
        environment("metric-learn", REQUIREMENTS)
    except PeerError as error:
        print(f"left out: {', '.join(PEERS)}: {error}", file=sys.stderr)
        return []
    return list(PEERS)


def measure(system: str, classes: int, fold: int, quick: bool) -> dict[str, Any]:
    """Figures of a system on the test images of a fold, its chosen settings, and which of them are at the edge."""
    X, y, test, test_y = load_fold(classes, 1000, fold)
    if system in PEERS:
        try:
            return measure_peer(system, X, y, test, test_y)
        except PeerError as error:
            return {"failed": str(error)}
    edges: list[str] = []
    if system == "Euclidean":  # ranks unit rows as the inner product does
        learner = Cosine()
    else:
        grid = CANDIDATES[system]
        if system == "HIER":
            is_a = parents_of(sorted(set(y.tolist())), IS_A, numbered=False)
            grid = replace(grid, learner=clone(grid.learner).set_params(is_a=is_a))
        tried, rounds = (grid.small(), 0) if quick else (grid, ROUNDS)
        few = quick or system in ("AROMA factored", "Xing")
        learner, edges = choose(tried, X, y, n_folds=FEW_INNER_FOLDS if few else INNER_FOLDS, rounds=rounds)
    learner.fit(X, y)
    found = figures(learner, test, test_y) | {"settings": settings_of(learner), "edges": edges}
    found["settings"].pop("is_a", None)
    if system == "AROMA diagonal":
        found["least_variance"] = float(learner.covariance_.min())
    return found


def measure_peer(system: str, X: Any, y: np.ndarray, test: Any, test_y: np.ndarray) -> dict[str, Any]:
    """A method of metric-learn; its limits by the mean average precision of a fifth of the training images."""
    ((shown, held_out),) = StratifiedShuffleSplit(1, test_size=0.2, random_state=0).split(X, y)

    def learned(rows: np.ndarray, point: Point) -> Linear:
        options = PEERS[system] | point
        return Linear(learn_metric(system.lower(), X[rows], y[rows], timeout=PEER_SECONDS, threads=1, **options)[0])

    def measure(points: Sequence[Point]) -> list[Curve]:
        return [[(None, figures(learned(shown, p), X[held_out], y[held_out])["map"])] for p in points]

    chosen = search(PEER_POINTS[system], measure, rounds=0)  # more take too long
    found = figures(learned(np.arange(len(y)), chosen.point), test, test_y)
    return found | {"settings": PEERS[system] | chosen.point, "edges": chosen.edges}


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: list[dict[str, Any]]) -> Page:
    quick = results[0]["quick"]
    failed = {result["system"]: result for result in results if "failed" in result}
    results = [result for result in results if result["system"] not in failed]
    classes = sorted({result["classes"] for result in results})
    order = [
        "OASIS",
        "AROMA diagonal",
        "AROMA factored",
        "WSABIE",
        "HIER",
        "MCML",
        "LEGO",
        "LEGO, triplets",
        "RCA",
        "Xing",
        *PEERS,
        "Euclidean",
    ]
    systems = [system for system in order if any(page_of(results, system, c) for c in classes)]
    parts: list[str | Table | Plot] = []
    columns = ["", "mAP", "top 1", "top 10", "top 50"]
    for c in classes:
        rows = [page_row(system, page_of(results, system, c)) for system in systems if page_of(results, system, c)]
        rows.append(["chance", *(f"{value:.3f}" for value in page_chance(c))])
        parts.append(Table(f"{c} classes, d = 1,000; mean ± standard deviation of the folds", columns, rows))
    compared = [system for system in systems if not system.startswith(("AROMA", "WSABIE", "HIER"))]
    parts.append(page_plot("retrieval-metrics", "OASIS and metrics, d = 1,000", results, compared, chance=True))
    similarities = [s for s in systems if s.startswith(("OASIS", "AROMA", "WSABIE", "HIER", "Euclidean"))]
    parts.append(page_plot("retrieval-similarities", "Similarities, d = 1,000", results, similarities))
    rows = [
        [system, *(page_settings(page_of(results, system, c)) for c in classes)]
        for system in systems
        if system != "Euclidean"
    ]
    caption = "Settings taken, with the number of folds, and the median of the steps. * At the edge of what was tried"
    parts.append(Table(caption, ["", *(f"{c} classes" for c in classes)], rows))
    parts += page_systems(results, failed, quick)
    return Page(
        title="Images that query images: all similarities",
        source=(
            "Chechik, Sharma, Shalit, Bengio: *Large Scale Online Learning of Image Similarity through Ranking*, JMLR "
            "11, 2010, section 5.3, figure 6, table 4. Crammer, Chechik: *Adaptive Regularization for Weight "
            "Matrices*, ICML 2012, section 5.1, figure 3."
        ),
        protocol=page_protocol(classes, 1 + max(result["fold"] for result in results), quick),
        findings=page_findings(results, systems, classes),
        parts=parts,
    )


def page_protocol(classes: Sequence[int], n_folds: int, quick: bool) -> str:
    return (
        f"{page_list(classes)} classes of Caltech-101 in place of 10, 20 and 50 of Caltech-256; of each class 40 "
        f"images to learn from and {N_TEST} that query each other, {count(n_folds, 'fold')}. Settings and steps are "
        "chosen on the training images, by mean average precision in cross-validation over "
        f"{FEW_INNER_FOLDS if quick else INNER_FOLDS} inner folds, {FEW_INNER_FOLDS} of factored AROMA and Xing's "
        "method, no more, to stay within the time of all experiments; those of MCML too, which the paper left as "
        "its authors' code has them. An inner fold learns from fewer images than the final training, so that the "
        "choice may be a little cautious: fewer steps, or a smaller C. "
        f"{'' if quick else RULE}\n\n"
        "The cells of table 4 are lost in the text of the paper at hand: its orderings are taken from the project's "
        "specification. One system is above another where it is so in the mean at each number of classes, and by a t "
        f"test over the folds (one-sided, p < 0.025) at {classes[-1]} classes"
        f"{', which one fold cannot decide' if quick else ''}; other margins stand in the finding."
    )


def page_systems(results: list[dict[str, Any]], failed: dict[str, dict[str, Any]], quick: bool) -> list[str]:
    """What the systems are, which are missing, and why."""
    found = [
        "HIER takes the hierarchy of configs/caltech101-is-a.csv. LEGO is the compared one, of pairs; the "
        "triplets, of the most classes only, are another reading of the same section. RCA and Xing's method, which the "
        "paper tried and did not report, are baselines. Xing's takes an eigendecomposition a step: it has at most "
        f"{CANDIDATES['Xing'].learner.n_steps} steps, and is tried on the fewest classes only."
    ]
    shrinkages = [result["settings"].get("shrinkage") for result in results if result["system"] == "RCA"]
    if same := shrinkages.count(1.0):
        found.append(
            f"In {same} of {len(shrinkages)} folds validation chose RCA with a shrinkage of 1, which is the Euclidean "
            "distance: it learned nothing there."
        )
    if not quick:
        found.append(
            f"LMNN, MCML and LEGO have {FEW_FOLDS} folds; factored AROMA, LEGO with triplets, Xing's method, NCA and "
            "ITML have as many, of one number of classes each. A difference to another system is of these folds. "
            "[Learning curves](learning.md) have 10,000 visterms."
        )
    if {result["system"] for result in results} & set(PEERS):
        found.append(
            "LMNN, ITML and NCA are those of metric-learn 0.7.0. They learn from principal components and stop after a "
            "number of iterations, since on all 1,000 dimensions they take minutes: a limit of this comparison, not of "
            "the methods. NCA's and ITML's number of iterations and the length of LMNN's vectors are chosen in each "
            "fold, by the mean average precision of a fifth of its training images, which the rest had not learned "
            "from; more values than these are not tried."
        )
    elif not quick and not failed:
        found.append(f"{', '.join(PEERS)} are absent: metric-learn could not be installed.")
    found += [
        f"{system} is absent: it did not finish ({result['classes']} classes, fold {result['fold']}: "
        f"{result['failed'].splitlines()[-1]})."
        for system, result in failed.items()
    ]
    return found


def page_findings(results: list[dict[str, Any]], systems: Sequence[str], classes: Sequence[int]) -> list[Finding]:
    found = []
    if "MCML" in systems:
        rivals = [system for system in ("MCML", "LEGO", "LMNN", "Euclidean") if system in systems]
        found.append(page_every_k(results, rivals, classes))
    for system, percent, paper in (
        ("OASIS", 20, "OASIS is well above the Euclidean distance (JMLR, figure 6)"),
        ("AROMA diagonal", 20, "AROMA is well above the Euclidean distance (ICML, figure 3)"),
        ("LEGO", 15, "LEGO is above the Euclidean distance (JMLR, figure 6)"),
        ("WSABIE", 15, "WSABIE, which these papers do not have, is above the Euclidean distance"),
    ):
        if system not in systems:  # LEGO in a quick run
            continue
        ratio = min(page_mean(results, system, c) / page_mean(results, "Euclidean", c) for c in classes)
        here = page_against(results, system, "Euclidean", classes)
        agrees = ratio > 1 + percent / 100
        of_paper = system != "WSABIE"
        found.append(
            Finding(
                f"{paper}: by more than {percent} % in mAP.",
                here,
                agrees,
                must=True,
                of_paper=of_paper,
                kind="threshold",
                edges=page_edges(results, (system,), classes),
            )
        )
    variances = [result["least_variance"] for result in results if result["system"] == "AROMA diagonal"]
    found.append(
        Finding(
            "AROMA grows surer of what it has learned (ICML, section 3): the least variance falls from 1 to below "
            "0.999, however large r is.",
            f"Least variance of an entry of W: {min(variances):.3f} to {max(variances):.3f}.",
            max(variances) < 0.999,
            must=True,
            of_paper=False,
        )
    )

    def compare(better: str, worse: str, paper: str, *, k: int | None = None, digits: int = 3, why: str = "") -> None:
        at = [c for c in classes if page_of(results, better, c) and page_of(results, worse, c)]
        if at:
            here = page_against(results, better, worse, at, k=k, digits=digits)
            if page_leads(results, better, worse, at, k=k):
                why = "In the mean it is so at each number of classes; the paired test does not bear it out."
            edges = page_edges(results, (better, worse), at)
            found.append(Finding(paper, here, page_above(results, better, worse, at, k=k), why=why, edges=edges))

    compare("OASIS", "MCML", "OASIS is above MCML in mAP (JMLR, section 5.3.3).", why=page_why("MCML"))
    compare("OASIS", "LEGO", "OASIS is above LEGO in mAP (JMLR, section 5.3.3).")
    compare("MCML", "LEGO", "MCML is above LEGO in mAP (JMLR, table 4).")
    compare("AROMA diagonal", "HIER", "AROMA is above HIER in precision at 1 (ICML, figure 3).", k=1)
    compare("LEGO", "LMNN", "LEGO is above LMNN in mAP (JMLR, table 4).", why=page_why("LMNN"))
    if "LMNN" in systems:
        ratios = [page_mean(results, "LMNN", c) / page_mean(results, "Euclidean", c) for c in classes]
        paper = "LMNN is about as good as the Euclidean distance (JMLR, table 4): within a tenth of its mAP."
        here = page_against(results, "LMNN", "Euclidean", classes)
        agrees, edges = all(abs(ratio - 1) < 0.1 for ratio in ratios), page_edges(results, ("LMNN",), classes)
        found.append(Finding(paper, here, agrees, why=page_why("LMNN"), kind="threshold", edges=edges))
    for system in ("AROMA diagonal", "AROMA factored"):
        paper = f"{system} is above OASIS in precision at 1: 0.33 against 0.22 (ICML, figure 3, 50 classes)."
        compare(system, "OASIS", paper, k=1, why=page_why("AROMA"))
    compare(
        "AROMA factored",
        "AROMA diagonal",
        "Factored AROMA is slightly above diagonal AROMA in mAP (ICML, figure 3; here: with an r chosen for each, "
        "[learning](learning.md) has both with the same).",
        digits=4,
        why=page_why("AROMA factored"),
    )
    return found


def page_every_k(results: list[dict[str, Any]], rivals: Sequence[str], classes: Sequence[int]) -> Finding:
    """Whether OASIS is first nearly everywhere, and nowhere clearly behind."""
    first, leads = 0, []
    for c in classes:
        for k in range(CURVE):
            pairs = {system: page_pair(results, "OASIS", system, c, k + 1) for system in rivals}
            first += all(ours.mean() >= other.mean() for ours, other in pairs.values())
            for system, (ours, other) in pairs.items():
                what = f"{plus_minus(other - ours)}, of {system} at k = {k + 1}, {c} classes"
                leads.append((*mean_and_error(other - ours), system, what))
    places = CURVE * len(classes)
    here = f"OASIS is first at {first} of {places} places (k = 1 to {CURVE}, {page_list(classes)} classes)"
    lead, _, leader, what = max(leads)
    if lead > 0:
        here += f"; the largest lead over it is {what}"
    agrees = first >= 0.95 * places and all(lead <= 2 * error for lead, error, *_ in leads if lead > 0)
    paper = (
        f"OASIS is best at every k, of {', '.join(rivals)} and itself (JMLR, figure 6): first at 95 % of the places, "
        "and nowhere behind by more than two standard errors of the paired difference, which are not corrected here."
    )
    why = page_why("MCML") if leader == "MCML" else ""
    edges = page_edges(results, ("OASIS", *rivals), classes)
    return Finding(paper, here + ".", agrees, why=why, kind="threshold", edges=edges)


def page_why(about: str) -> str:
    return {
        "MCML": "MCML may gain here by its cross-validation, which the paper's did not have.",
        "LMNN": "This LMNN is metric-learn's, from 100 principal components; the paper took the authors' own, from "
        "all of them.",
        "AROMA": "AROMA starts at W = 0, OASIS at the identity, which ranks as the Euclidean distance does. "
        "[learning](learning.md) starts each at both, and tests what that and the size of the steps are worth.",
        "AROMA factored": "The paper expects the factored form to gain where features depend on each other strongly "
        "(ICML, section 6): these may not.",
    }[about]


def page_plot(
    stem: str,
    caption: str,
    results: list[dict[str, Any]],
    systems: Sequence[str],
    *,
    chance: bool = False,
) -> Plot:
    classes = sorted({result["classes"] for result in results})
    figure, panels = plots.new_figure(len(classes))
    k, data = np.arange(1, CURVE + 1), []
    for axes, c in zip(panels, classes, strict=True):
        for system in systems:
            curves = page_curves(results, system, c)
            if len(curves):
                data += [{"classes": c} | r for r in plots.mean_series(axes, system, k, curves, system)]
        if chance:
            plots.series(axes, "chance", k, np.full(CURVE, page_chance(c)[1]), label="chance")
        axes.set(xscale="log", xlabel="number of images k", title=f"{c} classes", ylim=(0, None))
        axes.set_xticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"], minor=False)
        axes.set_xticks([], minor=True)
    panels[0].set(ylabel="precision at k")
    lines = {name: line for one in panels for line, name in zip(*one.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside right center", frameon=False)
    text = f"{caption}: precision among the k nearest images; bars: standard error of the mean over the folds"
    return Plot(stem, text, figure, data)


def page_row(name: str, some: list[dict[str, Any]]) -> list[str]:
    """A system's figures: mean and standard deviation over the folds, as in table 4 of the paper; of one the figure."""
    columns = [[result["map"] for result in some]]
    columns += [[result["precision"][k - 1] for result in some] for k in (1, 10, 50)]
    spreads = [f" ± {np.std(column, ddof=1):.3f}" if len(some) > 1 else "" for column in columns]
    return [name, *(f"{np.mean(column):.3f}{spread}" for column, spread in zip(columns, spreads, strict=True))]


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
    """Chosen settings with the number of folds that chose each; those at the edge of the grid are marked."""
    if not some:
        return ""
    system = some[0]["system"]
    if system in PEERS:
        names: Sequence[str] = [*PEER_POINTS[system][0], *(key for key in PEERS[system] if key != "random_state")]
        return settings_text(some, names)
    grid = CANDIDATES[system]
    defaults = type(grid.learner)().get_params()
    # Results hold what differs from the defaults.
    taken = [result | {"settings": defaults | result["settings"]} for result in some]
    parts = [settings_text(taken, [*grid.axes])]
    if hasattr(grid.learner, "n_steps"):
        at_most = sum("n_steps" in result["edges"] for result in some)
        steps = np.median([result["settings"]["n_steps"] for result in taken])
        parts.append(f"{steps:,.0f} steps" + (f" ({at_most}*)" if at_most else ""))
    return "; ".join(parts)


def page_edges(results: list[dict[str, Any]], systems: Sequence[str], classes: Sequence[int]) -> str:
    """Why a verdict over these systems is open, at any number of classes; empty if it is not."""
    return open_text({f"{system}, {c} classes": page_of(results, system, c) for system in systems for c in classes})


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


def page_pair(
    results: list[dict[str, Any]], one: str, other: str, classes: int, k: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Values of two systems on the folds that both have."""
    values = [page_values(results, system, classes, k) for system in (one, other)]
    n = min(map(len, values))
    return values[0][:n], values[1][:n]


def page_against(
    results: list[dict[str, Any]],
    one: str,
    other: str,
    classes: Sequence[int],
    *,
    k: int | None = None,
    digits: int = 3,
) -> str:
    measure = "mAP" if k is None else f"precision at {k}"
    texts = []
    for c in classes:
        a, b = page_pair(results, one, other, c, k)
        texts.append(f"{a.mean():.{digits}f} against {b.mean():.{digits}f} ({c} classes)")
    return f"{measure} {', '.join(texts)}; difference at {classes[-1]} classes {difference(a, b, digits)}."


def page_leads(
    results: list[dict[str, Any]], one: str, other: str, classes: Sequence[int], *, k: int | None = None
) -> bool:
    """Whether one is above the other in the mean at each number of classes."""
    return all(np.greater(*(values.mean() for values in page_pair(results, one, other, c, k))) for c in classes)


def page_above(
    results: list[dict[str, Any]], one: str, other: str, classes: Sequence[int], *, k: int | None = None
) -> bool:
    """The rule that the page states."""
    last = page_pair(results, one, other, classes[-1], k)
    return page_leads(results, one, other, classes, k=k) and clearly_above(*last)


def page_list(numbers: Sequence[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
