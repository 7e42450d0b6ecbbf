"""A similarity of posts: 20 Newsgroups.

Crammer, Chechik: Adaptive Regularization for Weight Matrices, ICML 2012, section 5.2 and figure 4. A post is a tf-idf
vector of the 1,000 terms that say most about its group (information gain); test posts query each other. AROMA, OASIS,
ITML and the cosine, in three splits of 65 % to learn from and 35 % to rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .measured.newsgroups import (
    ITML_POINTS,
    NO_LIMIT,
    SENSITIVITY_STEPS,
    TRACED,
    measure,
)
from .measured.posts import N_TERMS
from .measured.protocol import CURVE
from .pages import Panel, Results, draw, open_text, select, settings_by_fold
from .statistics import clearly_above, difference, plus_minus

__all__ = ["facts", "jobs", "measure"]

SPLIT = 35 / 65  # test posts per training post
N_REPEATS = 3  # of the split, and of everything learned from it
SYSTEMS = ("cosine", "ITML", "OASIS", "AROMA diagonal", "AROMA factored")
FORMS = SYSTEMS[3:]
QUICK_SYSTEMS = ("cosine", "OASIS", "AROMA diagonal")
# With the C and the two r of the paper, and OASIS with other C.
TRACES = (
    *(("OASIS", C) for C in (0.03, 0.1, 0.3, 1.0, 3.0)),
    *((form, r) for form in FORMS for r in (0.01, 1.0)),
    ("OASIS from zero", NO_LIMIT),
)
QUICK_TRACES = (("OASIS", 0.1), ("AROMA diagonal", 0.01), ("OASIS from zero", NO_LIMIT))
SENSITIVITY_R = (0.001, 0.01, 0.1, 1.0, 10.0)
LARGE = 0.05  # of the rival's figure: the least lead that is called large


def jobs(quick: bool) -> list[dict[str, Any]]:
    systems, traces, n_repeats = (QUICK_SYSTEMS, QUICK_TRACES, 1) if quick else (SYSTEMS, TRACES, N_REPEATS)
    # Long ones first.
    order = [s for s in ("ITML", "AROMA factored", "AROMA diagonal", "OASIS", "cosine") if s in systems]
    wanted: list[dict[str, Any]] = [{"part": "system", "system": system, "small": quick} for system in order]
    wanted += [{"part": "trace", "system": system, "value": value} for system, value in reversed(traces)]
    wanted += [
        {"part": "sensitivity", "system": system, "value": r}
        for system in (() if quick else reversed(FORMS))
        for r in SENSITIVITY_R
        if (system, r) not in TRACES  # which pass by the same number of steps
    ]
    return [job | {"repeat": repeat} for job in wanted for repeat in range(n_repeats)]


def facts(results: Results) -> dict[str, Any]:
    failed = {one["failed"] for one in results if "failed" in one}
    of = {name: select(results, part="system", system=name) for name in SYSTEMS}
    systems = {name: own for name, own in of.items() if own and not any("failed" in one for one in own)}
    keys = {(one["system"], one["value"]) for one in results if one["part"] == "trace"}
    # Figures as (repeats, steps).
    traces = {
        (name, value): {
            figure: np.array([one["trace"][figure] for one in select(results, part="trace", system=name, value=value)])
            for figure in ("p@1", "p@10", "mAP")
        }
        for name, value in sorted(keys, key=lambda key: (key[0] != "OASIS", key))
    }
    sensitivity: dict[tuple[str, float], Sequence[float]] = {}
    for one in select(results, part="sensitivity"):
        sensitivity.setdefault((one["system"], one["value"]), []).append(one["precision_at_10"])
    if sensitivity:
        sensitivity |= {key: trace["p@10"][:, TRACED.index(SENSITIVITY_STEPS)] for key, trace in traces.items()}
    forms = [name for name in FORMS if name in systems]
    means = {(*key, figure): values.mean(axis=0) for key, trace in traces.items() for figure, values in trace.items()}
    rs_above = {
        form: [r for r in SENSITIVITY_R if clearly(sensitivity[form, r], sensitivity["OASIS", 0.1])]
        for form in FORMS
        if sensitivity
    }
    times_faster = {
        (form, figure, C): float(TRACED[-1] / steps_to_reach(means["OASIS", C, figure][-1], means[form, 0.01, figure]))
        for C in (0.1, 1.0)
        for figure in ("p@10", "mAP")
        for form in FORMS
        if {("OASIS", C), (form, 0.01)} <= keys
    }
    return {
        "systems": systems,
        "forms": forms,
        "n_repeats": len(systems["OASIS"]),
        "failed": sorted(failed),
        "n_terms": N_TERMS,
        "n_components": ITML_POINTS[0]["n_components"],
        "last_step": TRACED[-1],
        "at": TRACED.index,
        "traces": traces,
        "means": means,
        "Cs": [value for name, value in traces if name == "OASIS"],
        "best_limit": max((means[name, C, "mAP"][-1], C) for name, C in traces if name == "OASIS"),
        "top": figures(systems, 1),
        "at_10": figures(systems, 10),
        "maps": {name: [one["map"] for one in own] for name, own in systems.items()},
        "forms_of": lambda figures: {form: figures[form] for form in forms},
        "as_in_paper": {form: traces[form, 1.0]["p@1"][:, -1] for form in forms if (form, 1.0) in keys},
        "edges": lambda *names: open_text({name: systems[name] for name in names}),
        "times_faster": times_faster,
        "least_times_faster": min(ratio for (*_, C), ratio in times_faster.items() if C == 0.1),
        "sensitivity": sensitivity,
        "rs_above": rs_above,
        "robust": all(r in above for above in rs_above.values() for r in SENSITIVITY_R if 0.01 <= r <= 10),
        "last_of_oasis": [means["OASIS", C, "p@10"][-1] for name, C in traces if name == "OASIS"],
        "rows": [
            [
                name,
                plus_minus([one["map"] for one in own]),
                *(plus_minus([one["precision"][k - 1] for one in own]) for k in (1, 10, 50)),
                settings_by_fold(own) if "settings" in own[0] else "",
            ]
            for name, own in systems.items()
        ],
        "precision_plot": draw(
            "newsgroups-precision",
            [
                Panel(
                    {s: (range(1, CURVE + 1), [one["precision"] for one in own]) for s, own in systems.items()},
                    {"xlabel": "number of posts ranked first, k", "ylabel": "precision at k", "ylim": (0, None)},
                )
            ],
        ),
        # Some values of C are skipped to keep the curves distinct.
        "steps_plot": draw(
            "newsgroups-steps",
            [
                Panel(
                    {
                        label(*key): (TRACED, trace[figure])
                        for key, trace in traces.items()
                        if key not in (("OASIS", 0.03), ("OASIS", 3.0))
                    },
                    {"xlabel": "steps (triplets)", "ylabel": title, "xscale": "log"},
                    {"measure": figure},
                )
                for figure, title in (("p@10", "precision at 10"), ("mAP", "mAP"))
            ],
        ),
        "r_plot": sensitivity
        and draw(
            "newsgroups-r",
            [
                Panel(
                    {s: (SENSITIVITY_R, np.transpose([sensitivity[s, r] for r in SENSITIVITY_R])) for s in FORMS},
                    {"xlabel": "regulariser r", "ylabel": "precision at 10", "xscale": "log"},
                )
            ],
        ),
    }


def figures(systems: Mapping[str, Results], k: int) -> dict[str, list[float]]:
    """Precision at k, repeat by repeat."""
    return {name: [one["precision"][k - 1] for one in own] for name, own in systems.items()}


def label(system: str, value: float) -> str:
    if value == NO_LIMIT:
        return f"{system}, no limit C"
    return f"{system}, {'r' if system.startswith('AROMA') else 'C'} = {value:g}"


def clearly(first: Sequence[float], second: Sequence[float]) -> bool:
    return clearly_above(first[: len(second)], second, SPLIT)


def leads(forms: Mapping[str, Sequence[float]], rival: Sequence[float]) -> list[tuple[Any, Any]]:
    """Each form of AROMA and the rival, repeat by repeat."""
    return [(own[: len(rival)], rival) for own in forms.values()]


def compare(forms: Mapping[str, Sequence[float]], rival: Sequence[float]) -> dict[str, Any]:
    """Whether both forms of AROMA are above the rival clearly, and by large; and the figures in words."""
    clear = all(clearly(own, rival) for own in forms.values())
    texts = [f"{name.removeprefix('AROMA ')} {difference(own, rival)}" for name, own in forms.items()]
    return {
        "clearly": clear,
        "by_large": clear and all(np.mean(own) > (1 + LARGE) * np.mean(rival) for own in forms.values()),
        "text": "; ".join(texts),
    }


def steps_to_reach(goal: float, trace: np.ndarray) -> float:
    """Steps at which a trace first reaches the goal, interpolated over log steps; infinite if never."""
    above = np.flatnonzero(trace >= goal)
    if not len(above):
        return np.inf
    if not (i := above[0]):
        return float(TRACED[0])
    share = (goal - trace[i - 1]) / (trace[i] - trace[i - 1])
    return float(np.exp(np.log(TRACED[i - 1]) + share * np.log(TRACED[i] / TRACED[i - 1])))
