"""AROMA's lead over OASIS at the top of the list, settled as far as the data at hand can.

Crammer, Chechik, ICML 2012, section 5.1 and figure 3: precision at 1 of 0.33 against 0.22 on 50 classes of Caltech-256,
d = 1,000 visterms, a median of 27 non-zero values per image and a maximum of 129.

Vectors like these are made in the ways that the paper leaves open, of 38 and of 50 labels; C and r are chosen on
training images for each. Scaled photos have as many non-zeros as the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.plots import new_figure

from .measured.lead import CONDITIONS, ONLINE, STARTS, measure
from .pages import Plot, Results, open_text, select, settings_text
from .statistics import clearly_above, plus_minus, ratio_and_error, ratio_text

__all__ = ["facts", "jobs", "measure"]

FOLDS = 3
PAPER_AROMA, PAPER_OASIS = 0.33, 0.22
MEDIAN, MOST = 27, 129  # non-zero values of an image in the paper
LIKE_PAPER = [*CONDITIONS][1:]  # in their non-zeros

System = tuple[str, str, bool]  # system, start, whether settings are chosen
EUCLIDEAN = ("Euclidean", "", False)
OASIS_CHOSEN, AROMA_CHOSEN = ("OASIS", "identity", True), ("AROMA", "zero", True)
OASIS_FIXED, AROMA_FIXED = ("OASIS", "identity", False), ("AROMA", "zero", False)
OASIS_FROM_ZERO, AROMA_FROM_IDENTITY = ("OASIS", "zero", True), ("AROMA", "identity", True)
COLUMNS: dict[System, str] = {
    EUCLIDEAN: "Euclidean",
    OASIS_CHOSEN: "OASIS",
    AROMA_CHOSEN: "AROMA",
    OASIS_FROM_ZERO: "OASIS from zero",
    AROMA_FROM_IDENTITY: "AROMA from the identity",
    OASIS_FIXED: "OASIS, C = 0.1",
    AROMA_FIXED: "AROMA, r = 0.01",
}
# What is compared: AROMA, OASIS.
PAIRS = {
    "C and r chosen": (AROMA_CHOSEN, OASIS_CHOSEN),
    "both from zero": (AROMA_CHOSEN, OASIS_FROM_ZERO),
    "both from the identity": (AROMA_FROM_IDENTITY, OASIS_CHOSEN),
    "C = 0.1, r = 0.01": (AROMA_FIXED, OASIS_FIXED),
}


def jobs(quick: bool) -> list[dict[str, Any]]:
    conditions = [*CONDITIONS][:1] if quick else [*CONDITIONS]
    systems = [(system, start, True) for system, starts in STARTS.items() for start in starts[: 1 if quick else 2]]
    systems += [OASIS_FIXED, AROMA_FIXED, EUCLIDEAN]
    return [
        {"condition": name, "system": system, "start": start, "chosen": chosen, "fold": fold, "quick": quick}
        for system, start, chosen in systems
        # Other vectors from job to job: no process waits for another that makes the same.
        for name in reversed(conditions)
        for fold in range(1 if quick else FOLDS)
    ]


def facts(results: Results) -> dict[str, Any]:
    names = [name for name in CONDITIONS if select(results, condition=name)]
    of = {
        (name, system): select(results, condition=name, system=system[0], start=system[1], chosen=system[2])
        for name in names
        for system in COLUMNS
    }
    p1 = {key: np.array([one["p1"] for one in own]) for key, own in of.items()}  # fold by fold
    # Precision at 1 of AROMA and of OASIS where both were run.
    pairs = {
        (name, pair): (p1[name, above], p1[name, below])
        for name in names
        for pair, (above, below) in PAIRS.items()
        if len(p1[name, above]) and len(p1[name, below])
    }
    chosen = {name: pairs[name, "C and r chosen"] for name in names}
    ratios = {key: above.mean() / below.mean() for key, (above, below) in pairs.items()}
    entries = {name: non_zeros(select(results, condition=name)) for name in names}
    like_paper = {name: entries[name] for name in names if name in LIKE_PAPER}
    return {
        "n_folds": 1 + max(one["fold"] for one in results),
        "names": names,
        "paper": {"aroma": PAPER_AROMA, "oasis": PAPER_OASIS, "ratio": PAPER_AROMA / PAPER_OASIS},
        "n_steps": ONLINE["n_steps"],
        "sizes": {name: condition.size for name, condition in CONDITIONS.items() if condition.size},
        "chosen": chosen,
        "leads": any(clearly_above(a, o) and a.mean() >= 1.25 * o.mean() for a, o in chosen.values()),
        "best_pair": max(chosen.values(), key=lambda pair: pair[0].mean() - pair[1].mean()),
        "edges": open_text(
            {f"{system[0]}, {name}": of[name, system] for name in names for system in (AROMA_CHOSEN, OASIS_CHOSEN)}
        ),
        "euclidean": {name: p1[name, EUCLIDEAN] for name in names},
        "like_paper": like_paper,
        "to_a_tenth": all(abs(n / MEDIAN - 1) <= 0.1 and abs(m / MOST - 1) <= 0.1 for n, m in like_paper.values()),
        "highest": max(((ratio, *key) for key, ratio in ratios.items()), key=lambda entry: entry[0]),
        # An OASIS that AROMA leads as in the paper would be below the Euclidean distance.
        "below": [
            name for name in names if chosen[name][0].mean() / (PAPER_AROMA / PAPER_OASIS) < p1[name, EUCLIDEAN].mean()
        ],
        "columns": [*COLUMNS.values()],
        "rows": [
            [
                name,
                f"{entries[name][0]:.0f}, {entries[name][1]}",
                *(plus_minus(p1[name, s]) if len(p1[name, s]) else "" for s in COLUMNS),
            ]
            for name in names
        ],
        "pairs": [*PAIRS],
        "ratio_rows": [
            [name, *(ratio_text(*pairs[name, pair]) if (name, pair) in pairs else "" for pair in PAIRS)]
            for name in names
        ],
        "chosen_columns": [title for system, title in COLUMNS.items() if system[2]],
        "settings_rows": [
            [name, *(settings_text(of[name, s]) if of[name, s] else "" for s in COLUMNS if s[2])] for name in names
        ],
        "ratio_plot": draw_ratios(names, pairs),
    }


def non_zeros(results: Results) -> tuple[float, int]:
    """Median and maximum of the non-zeros of an image; medians over folds."""
    medians, mosts = np.transpose([one["entries"] for one in results])
    return float(np.median(medians)), int(np.median(mosts))


def draw_ratios(names: Sequence[str], pairs: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]) -> Plot:
    figure, (axes,) = new_figure(width=8.0, height=1.6 + 0.45 * len(names))
    data = []
    for place, pair in enumerate(PAIRS):
        for row, name in enumerate(names):
            if (name, pair) in pairs:
                ratio, error = ratio_and_error(*pairs[name, pair])
                data.append({"vectors": name, "pair": pair, "ratio": ratio, "standard_error": error})
                axes.errorbar(
                    ratio,
                    row + 0.12 * (place - 1.5),
                    xerr=error,
                    color=f"C{place}",
                    marker="osD^"[place],
                    label=pair if row == 0 else None,
                    capsize=2,
                )
    axes.axvline(PAPER_AROMA / PAPER_OASIS, color="#808080", linestyle="--", label="the paper")
    axes.axvline(1, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="precision at 1, AROMA divided by OASIS")
    axes.invert_yaxis()
    figure.legend(loc="outside right center", frameon=False)
    return Plot("lead-ratio", figure, data)
