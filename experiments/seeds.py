"""What another seed of the codebook is worth, on the photos of each page; differences below it say nothing.

Visterms are the centres that k-means finds in descriptors of the training images (Chechik, Sharma, Shalit, Bengio, JMLR
11, 2010, section 3); from another start it finds others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .measured.seeds import PHOTOS, VOTERS, measure
from .pages import Results, select

__all__ = ["facts", "jobs", "measure"]

SEEDS = 5
# The photos of each page whose figures hang on a codebook.
ELSEWHERE = ", codebook of Corel-5K"
PAGES = {
    "retrieval": ("10 classes", "20 classes", "38 classes", f"38 classes{ELSEWHERE}"),
    "learning": (
        "10 classes",
        "20 classes",
        "38 classes",
        "38 classes, d = 10,000",
        f"38 classes{ELSEWHERE}",
        f"38 classes, d = 10,000{ELSEWHERE}",
    ),
    "lead": ("38 classes", f"38 classes{ELSEWHERE}"),
    "variants": ("10 classes", "20 classes"),
    "annotation": ("38 classes", "38 classes, d = 10,000"),
    "corel": ("Corel-5K",),
    "musl": ("merged-20",),
}


def jobs(quick: bool) -> list[dict[str, Any]]:
    # The longest first, so that no core idles at the end.
    return [{"photos": name, "seed": seed} for name in ([] if quick else reversed(PHOTOS)) for seed in range(SEEDS)]


def facts(results: Results) -> dict[str, Any]:
    sets: dict[str, dict[str, list[float]]] = {}
    for name in PHOTOS:
        for one in select(results, photos=name):
            for system, figure in one["figures"].items():
                sets.setdefault(name, {}).setdefault(system, []).append(figure)
    learned = {name: own for name, own in sets.items() if "OASIS" in own}
    return {
        "n_seeds": 1 + max(one["seed"] for one in results),
        "voters": VOTERS,
        "elsewhere": {name: (sets[name], sets[name + ELSEWHERE]) for name in sets if name + ELSEWHERE in sets},
        "leads": {name: np.subtract(*own.values()) * -1 for name, own in learned.items()},
        "widest": {name: max(np.ptp(figures) for figures in own.values()) for name, own in learned.items()},
        "rows": [
            [name, system, f"{np.mean(figures):.{places(name)}f}", *spread(name, figures)]
            for name, own in sets.items()
            for system, figures in own.items()
        ],
        "notes": {page: note({name: sets[name] for name in names}) for page, names in PAGES.items()},
    }


def places(name: str) -> int:
    """Decimal places of a figure: accuracies are in %."""
    return 1 if name == "merged-20" else 4


def spread(name: str, figures: list[float]) -> list[str]:
    """Standard deviation over the seeds, least and most."""
    return [f"{value:.{places(name)}f}" for value in (np.std(figures, ddof=1), min(figures), max(figures))]


def note(sets: dict[str, dict[str, list[float]]]) -> str:
    """The sentence of a page."""
    n = max(len(figures) for own in sets.values() for figures in own.values())
    texts = []
    for name, own in sets.items():
        of = "accuracy in %" if name == "merged-20" else "mAP"
        parts = [
            f"{system} {least} to {most}" for system, own_ in own.items() for _, least, most in [spread(name, own_)]
        ]
        texts.append(f"{name}, {of}: {', '.join(parts)}")
    return (
        f"**What the codebook's seed is worth.** The same images and settings, {n} seeds, [least to most](seeds.md): "
        f"{'; '.join(texts)}. Between pages and runs with other codebooks, differences below that say nothing."
    )
