"""How much of a score an explanation shows.

Pairs of a photo and one of its ten best results by OASIS, drawn at random, are explained as the command does. Measured
is the share of the score that the regions shown carry, beside that of the eight strongest pairs of blocks or cells,
which explanations showed before; and the part of both photos that the regions take: of an even score they would carry
as much as they have of all pairs of cells.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.photos import SETS, folder_of, settings_of
from benchmarks.processes import RUN, set_options, temporary_folder, visterm
from benchmarks.records import ELAPSED, compared, record, timed
from visterm.pipeline import Searcher, explain_pair
from visterm.pipeline.store.run import Run

KINDS = {"deep": ["features.kind=deep"], "visterms": []}
PAIRS, PAIRS_BEFORE = 100, 8
RESULTS = 10  # a pair's result is one of the best so many
SHARE = 0.5  # asked for


def explained(searcher: Searcher, n: int) -> np.ndarray:
    """Per pair: the shares of regions and of pairs of cells, parts of both photos, pairs of regions, and seconds."""
    rng = np.random.default_rng(0)
    rows = []
    for number in rng.choice(len(searcher.images), n, replace=False):
        query = f"id:{searcher.images[number].id}"
        results = searcher.search(query, RESULTS + 1, "oasis")[0]["results"]
        others = [result["path"] for result in results if result["id"] != searcher.images[number].id]
        result = others[rng.integers(RESULTS)]
        made, took = timed(partial(explain_pair, searcher, query, result, "oasis", n_pairs=PAIRS_BEFORE), clock=ELAPSED)
        parts = [
            sum(len(region["cells"]) for region in made[side]["regions"]) / len(made[side]["cells"])
            for side in ("query", "result")
        ]
        shares = [sum(pair["share"] for pair in made[name]) for name in ("regions", "pairs")]
        rows.append([*shares, *parts, len(made["regions"]), took])
    return np.array(rows)


def measure(name: str, kind: str, n: int) -> dict:
    """The record of a set and a kind of vectors."""
    with temporary_folder() as folder:
        visterm(folder, "features", str(folder_of(name)), *set_options([*settings_of(name), *KINDS[kind]]))
        visterm(folder, "train")
        rows = explained(Searcher(Run(folder / RUN)), n)
    ours, before, of_query, of_result, n_regions, took = np.median(rows, axis=0)
    even = np.median(rows[:, 2] * rows[:, 3])
    return record(
        f"explaining-quality-{name}-{kind}",
        f"{SETS[name]}, {kind}: share of the score that the regions shown by an explanation carry",
        f"the {PAIRS_BEFORE} strongest pairs of {'cells' if kind == 'deep' else 'blocks'}, shown before",
        f"{SHARE} asked for; 1.0 is the whole of both photos",
        compared(float(ours), float(before), "of the score", n, higher=True),
        measured=f"median of {n} pairs, least {rows[:, 0].min():.3f}; {n_regions:.0f} pair of regions in the median, "
        f"{rows[:, 4].max():.0f} at most; {of_query:.2f} of the query and {of_result:.2f} of the result, "
        f"whose pairs would carry {even:.2f} of an even score; {1000 * took:.0f} ms per explanation",
    )


def run(quick: bool = False) -> list[dict]:
    """One record per set and kind of vectors."""
    names, n = (["flowers"], 20) if quick else (list(SETS), PAIRS)
    return [measure(name, kind, n) for name in names for kind in KINDS]
