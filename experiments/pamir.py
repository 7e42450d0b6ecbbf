"""PAMIR as published, photos ranked for words, beside PAMIR-IA and one classifier a word, on Corel-5K.

Grangier, Bengio: A Discriminative Kernel-Based Approach to Rank Images from Text Queries, IEEE PAMI 30(8), 2008.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .corel import NAMES, has_deep, in_order, settings
from .measured.corel import N_SEEDS, RANKERS, measure
from .pages import Results, open_text, select
from .statistics import difference

__all__ = ["facts", "jobs", "measure"]


def jobs(quick: bool) -> list[dict[str, Any]]:
    kinds = [] if quick else [*NAMES] if has_deep() else ["visterms"]
    return [
        {"part": "queries", "vectors": kind, "system": system, "quick": False}
        for kind in kinds
        for system in RANKERS[kind]
    ]


def facts(results: Results) -> dict[str, Any]:
    kinds = [kind for kind in NAMES if select(results, vectors=kind)]
    queries = {kind: in_order(select(results, vectors=kind), RANKERS[kind]) for kind in kinds}
    return {
        "names": {kind: NAMES[kind].lower() for kind in kinds},
        "queries": queries,
        "n_words": len(queries[kinds[0]]["PAMIR"]["precisions"]),
        "n_trainings": N_SEEDS,
        "edges": lambda kind, *names: open_text({name: [queries[kind][name]] for name in names}),
        "lead": lambda kind, rival: difference(*(queries[kind][name]["precisions"] for name in ("PAMIR", rival))),
        "rows": [
            [NAMES[kind], name, f"{np.mean(one['precisions']):.3f}", f"{one['validation']:.3f}", settings(one)]
            for kind, own in queries.items()
            for name, one in own.items()
        ],
    }
