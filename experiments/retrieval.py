"""Images that query images: precision at k and mean average precision of all similarities, for 10, 20 and 38 classes.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.3, figure 6 and table 4; Crammer, Chechik, ICML 2012, section
5.1 and figure 3. Where metric-learn cannot be installed, its LMNN, ITML and NCA are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import plots
from benchmarks.metric_learn_peer import REQUIREMENTS
from benchmarks.peers import PeerError, environment

from .measured.protocol import CURVE, N_FOLDS
from .measured.retrieval import CANDIDATES, PEER_POINTS, PEERS, measure
from .pages import Panel, Plot, Results, draw, open_text, select, set_ticks, settings_text
from .statistics import clearly_above, difference, mean_and_error, plus_minus

__all__ = ["facts", "jobs", "measure"]

CLASSES = (10, 20, 38)
N_TEST = 25  # images of a class that query each other
MANY_FOLDS = 10  # of systems that learn in a second: three folds cannot show a difference below seven standard errors
FEW_FOLDS = 3  # of slow systems, and of those beside the papers' figures
# In the order of tables.
SYSTEMS = (
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
)
SYSTEMS += (*PEERS, "Euclidean")
# Number of classes and of folds by system, the long jobs first, so that no core idles at the end. Of one number of
# classes: factored AROMA, which takes minutes, another reading of LEGO, Xing's method, whose step is an
# eigendecomposition and n^2 distances, and ITML and NCA. LMNN, MCML and LEGO take longest: those that are judged on the
# most classes have many folds there.
DATA = {
    "AROMA factored": (CLASSES[-1:], MANY_FOLDS),
    "LEGO, triplets": (CLASSES[-1:], FEW_FOLDS),
    "Xing": (CLASSES[:1], FEW_FOLDS),
    "NCA": (CLASSES[1:2], FEW_FOLDS),
    "ITML": (CLASSES[1:2], MANY_FOLDS),
    "LMNN": (CLASSES, FEW_FOLDS),
    "MCML": (CLASSES, FEW_FOLDS),
    "RCA": (CLASSES, N_FOLDS),
    "HIER": (CLASSES, MANY_FOLDS),
    "LEGO": (CLASSES, N_FOLDS),
    "WSABIE": (CLASSES, N_FOLDS),
    "AROMA diagonal": (CLASSES, MANY_FOLDS),
    "OASIS": (CLASSES, MANY_FOLDS),
    "Euclidean": (CLASSES, MANY_FOLDS),
}
QUICK = ("RCA", "HIER", "WSABIE", "AROMA diagonal", "OASIS", "Euclidean")


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        data = {system: (CLASSES[:1], 1) for system in QUICK}
    else:
        absent = () if has_peers() else PEERS
        data = {system: own for system, own in DATA.items() if system not in absent}
    return [
        {"system": system, "classes": c, "fold": fold, "quick": quick}
        for system, (classes, n_folds) in data.items()
        for c in reversed(classes)
        for fold in range(MANY_FOLDS if not quick and c == CLASSES[-1] and system in ("LMNN", "MCML") else n_folds)
    ]


def has_peers() -> bool:
    """Whether metric-learn can be installed."""
    try:
        environment("metric-learn", REQUIREMENTS)
    except PeerError as error:
        print(f"left out: {', '.join(PEERS)}: {error}", file=sys.stderr)
        return False
    return True


def facts(results: Results) -> dict[str, Any]:
    failed = {one["system"]: one for one in results if "failed" in one}
    table = Comparison([one for one in results if one["system"] not in failed])
    classes, systems = table.classes, table.systems
    return {
        "classes": classes,
        "class_columns": ["", *(f"{c} classes" for c in classes)],
        "systems": systems,
        "failed": failed,
        "n_folds": 1 + max(one["fold"] for own in table.of.values() for one in own),
        "xing_steps": CANDIDATES["Xing"].learner.n_steps,
        "peers": [*PEERS],
        "peers_are_there": bool({*systems} & {*PEERS}),
        "shrinkages": [one["settings"].get("shrinkage") for one in table.all_of("RCA")],
        "against": table,
        "every_k": every_k(table, [s for s in ("MCML", "LEGO", "LMNN", "Euclidean") if s in systems]),
        "at_the_head": at_the_head(table),
        "as_metric": as_metric(table),
        "variances": [one["least_variance"] for one in table.all_of("AROMA diagonal")],
        "rows": {c: [*(row(s, table.of[s, c]) for s in systems if table.of[s, c]), chance_row(c)] for c in classes},
        "settings_rows": [[s, *(settings(s, table.of[s, c]) for c in classes)] for s in systems if s != "Euclidean"],
        "metrics_plot": draw_precision(
            "retrieval-metrics",
            table,
            [s for s in systems if not s.startswith(("AROMA", "WSABIE", "HIER"))],
            with_chance=True,
        ),
        "similarities_plot": draw_precision(
            "retrieval-similarities",
            table,
            [s for s in systems if s.startswith(("OASIS", "AROMA", "WSABIE", "HIER", "Euclidean"))],
        ),
    }


class Comparison:
    """Results by system and number of classes, in the order of the folds, and how two systems compare."""

    def __init__(self, results: Results):
        results = sorted(results, key=lambda one: one["fold"])
        self.classes = sorted({one["classes"] for one in results})
        self.systems = [system for system in SYSTEMS if select(results, system=system)]
        self.of = {(s, c): select(results, system=s, classes=c) for s in SYSTEMS for c in self.classes}

    def all_of(self, system: str) -> Results:
        return [one for c in self.classes for one in self.of[system, c]]

    def both(self, *systems: str) -> list[int]:
        """Numbers of classes that all of these systems have."""
        return [c for c in self.classes if all(self.of[system, c] for system in systems)]

    def pair(self, one: str, other: str, classes: int, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Precision at k, or mean average precision, of two systems on the folds that both have."""
        some = [
            [fold["map"] if k is None else fold["precision"][k - 1] for fold in self.of[system, classes]]
            for system in (one, other)
        ]
        n = min(map(len, some))
        return np.array(some[0][:n]), np.array(some[1][:n])

    def ratios(self, one: str, other: str) -> np.ndarray:
        """Of mean average precision, in means over the folds, at each number of classes."""
        means = [[np.mean([fold["map"] for fold in self.of[s, c]]) for c in self.classes] for s in (one, other)]
        return np.divide(*means)

    def figures(self, one: str, other: str, k: int | None = None, digits: int = 3) -> str:
        texts = []
        for c in self.both(one, other):
            a, b = self.pair(one, other, c, k)
            texts.append(f"{a.mean():.{digits}f} against {b.mean():.{digits}f} ({c} classes)")
        measure = "mAP" if k is None else f"precision at {k}"
        return f"{measure} {', '.join(texts)}; difference at {c} classes {difference(a, b, digits)}."

    def leads(self, one: str, other: str, k: int | None = None) -> bool:
        """Whether one is above the other in the mean at each number of classes."""
        pairs = [self.pair(one, other, c, k) for c in self.both(one, other)]
        return all(a.mean() > b.mean() for a, b in pairs)

    def above(self, one: str, other: str, k: int | None = None) -> bool:
        """The rule that the page states."""
        last = self.both(one, other)[-1]
        return self.leads(one, other, k) and clearly_above(*self.pair(one, other, last, k))

    def edges(self, *systems: str, classes: Sequence[int] = ()) -> str:
        """Why a verdict over these systems is open, at any number of classes; empty if it is not."""
        return open_text({f"{s}, {c} classes": self.of[s, c] for s in systems for c in classes or self.classes})


def every_k(table: Comparison, rivals: Sequence[str]) -> dict[str, Any]:
    """Whether OASIS is first nearly everywhere, and nowhere clearly behind."""
    first, leads = 0, []
    for c in table.classes:
        for k in range(1, CURVE + 1):
            pairs = {system: table.pair("OASIS", system, c, k) for system in rivals}
            first += all(ours.mean() >= other.mean() for ours, other in pairs.values())
            for system, (ours, other) in pairs.items():
                what = f"{plus_minus(other - ours)}, of {system} at k = {k}, {c} classes"
                leads.append((*mean_and_error(other - ours), system, what))
    places = CURVE * len(table.classes)
    lead, _, leader, what = max(leads)
    return {
        "rivals": rivals,
        "first": first,
        "places": places,
        "largest_lead": what if lead > 0 else "",
        "leader": leader,
        "agrees": first >= 0.95 * places and all(lead <= 2 * error for lead, error, *_ in leads if lead > 0),
    }


def at_the_head(table: Comparison) -> dict[str, Any]:
    """AROMA, the form that is ahead, against every rival of the paper in precision at 1, on the most classes."""
    most = table.classes[-1]
    forms = [form for form in ("AROMA diagonal", "AROMA factored") if table.of[form, most]]
    rivals = [name for name in ("OASIS", "MCML", "LEGO", "HIER", "Euclidean") if table.of[name, most]]
    if not forms or not rivals:
        return {}
    form = max(forms, key=lambda name: np.mean([one["precision"][0] for one in table.of[name, most]]))
    pairs = {rival: table.pair(form, rival, most, 1) for rival in rivals}
    texts = [f"{rival} {plus_minus(theirs)} ({difference(ours, theirs)})" for rival, (ours, theirs) in pairs.items()]
    return {
        "pairs": [*pairs.values()],
        "agrees": all(clearly_above(*pair) for pair in pairs.values()),
        "edges": table.edges(form, *rivals, classes=(most,)),
        "text": f"{form} against {', '.join(texts)}",
    }


def as_metric(table: Comparison, classes: int = 20) -> dict[str, Any]:
    """The positive semi-definite part of OASIS's W against the similarities that are learned as metrics, in mAP."""
    rivals = [name for name in ("MCML", "LEGO", "LMNN") if table.of[name, classes]] if classes in table.classes else []
    if not rivals:
        return {}
    ours = np.array([one["metric_map"] for one in table.of["OASIS", classes]])
    pairs = {}
    for rival in rivals:
        theirs = table.pair("OASIS", rival, classes)[1]
        pairs[rival] = ours[: len(theirs)], theirs
    texts = [f"{rival} {plus_minus(theirs)} ({difference(own, theirs)})" for rival, (own, theirs) in pairs.items()]
    return {
        "pairs": [*pairs.values()],
        "agrees": all(clearly_above(*pair) for pair in pairs.values()),
        "edges": table.edges("OASIS", *rivals, classes=(classes,)),
        "text": f"mAP {plus_minus(ours)} against {', '.join(texts)}",
    }


def row(name: str, some: Results) -> list[str]:
    """A system's figures: mean and standard deviation over the folds, as in table 4 of the paper; of one the figure."""
    columns = [[one["map"] for one in some], *([one["precision"][k - 1] for one in some] for k in (1, 10, 50))]
    spreads = [f" ± {np.std(column, ddof=1):.3f}" if len(some) > 1 else "" for column in columns]
    return [name, *(f"{np.mean(column):.3f}{spread}" for column, spread in zip(columns, spreads, strict=True))]


def chance_row(classes: int) -> list[str]:
    expected, precision = chance(classes)
    return ["chance", *(f"{value:.3f}" for value in (expected, precision, precision, precision))]


def chance(classes: int) -> tuple[float, float]:
    """Expected mean average precision, and precision at any k, of images in random order.

    Of n images R are relevant. The image at rank k, if relevant, has precision (1 + (k - 1) (R - 1) / (n - 1)) / k, and
    each rank is equally likely to hold one.
    """
    n, relevant = classes * N_TEST - 1, N_TEST - 1
    harmonic = np.sum(1 / np.arange(1, n + 1)) / n
    return float(harmonic + (relevant - 1) / (n - 1) * (1 - harmonic)), relevant / n


def settings(system: str, some: Results) -> str:
    """Chosen settings with the number of folds that chose each; those at the edge of the grid are marked."""
    if not some:
        return ""
    if system in PEERS:
        return settings_text(some, [*PEER_POINTS[system][0], *(key for key in PEERS[system] if key != "random_state")])
    grid = CANDIDATES[system]
    defaults = type(grid.learner)().get_params()
    # Results hold what differs from the defaults.
    taken = [one | {"settings": defaults | one["settings"]} for one in some]
    parts = [settings_text(taken, [*grid.axes])]
    if hasattr(grid.learner, "n_steps"):
        at_most = sum("n_steps" in one["edges"] for one in some)
        steps = np.median([one["settings"]["n_steps"] for one in taken])
        parts.append(f"{steps:,.0f} steps" + (f" ({at_most}*)" if at_most else ""))
    return "; ".join(parts)


def draw_precision(stem: str, table: Comparison, systems: Sequence[str], *, with_chance: bool = False) -> Plot:
    k, panels = np.arange(1, CURVE + 1), []
    for c in table.classes:

        def finish(axes: Any, c: int = c) -> None:
            if with_chance:
                plots.series(axes, "chance", k, np.full(CURVE, chance(c)[1]), label="chance")
            axes.set_ylim(bottom=0)
            set_ticks([1, 2, 5, 10, 20, 50])(axes)

        curves = {s: (k, [one["precision"] for one in table.of[s, c]]) for s in systems if table.of[s, c]}
        axes = {"xscale": "log", "xlabel": "number of images k", "title": f"{c} classes"}
        panels.append(Panel(curves, axes | ({} if panels else {"ylabel": "precision at k"}), {"classes": c}, finish))
    return draw(stem, panels)
