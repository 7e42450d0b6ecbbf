"""Quality of MuSL for docs/benchmarks.md: ``python -m experiments.musl_records [--quick]``.

Accuracy and groups of the first ten trials of experiments/musl.py, with the settings that it chooses for each system on
images that no trial tests with. Jobs that the experiment has already run are not run again. The records go into
benchmarks/results.json beside those of ``python -m benchmarks musl``, and docs/benchmarks.md is rewritten; ``--quick``
only prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from benchmarks import page
from benchmarks.__main__ import RESULTS, merge
from benchmarks.vectors import DATA

from .jobs import run_jobs
from .measured.musl import STARTS
from .musl import choose, collect, grown_grid, measure

NAME = "experiments.musl_records"
COMMAND = f"python -m {NAME}"


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one trial and fewer settings; prints, writes nothing")
    quick = parser.parse_args().quick
    if not quick and not (DATA / "caltech101").is_dir():
        print(f"error: no images at {DATA}; the environment variable VISTERM_DATA names their folder", file=sys.stderr)
        return 2
    records = compare_quality(quick)
    for record in records:
        print(page.line(record))
    if not quick:
        merged = merge(RESULTS, records, NAME)
        RESULTS.write_text(json.dumps(merged, indent=1) + "\n")
        page.write(merged)
    return 0


def compare_quality(quick: bool) -> list[dict[str, Any]]:
    """Records: five metrics against other groupings, and whether three groups are the three sources."""
    grid = run_jobs(measure, grown_grid(quick))
    settings, voters = choose(grid)
    asked = [("one metric", 1), *((system, k) for k in (5, 3) for system in ("joint", "k-means")), ("random", 5)]
    n_trials = 1 if quick else 10
    trials = [
        {"trial": trial, "system": system, "n_metrics": k, "settings": settings[system]}
        for system, k in [*asked, (STARTS, 3)]
        for trial in range(n_trials)
    ]
    figures = collect(run_jobs(measure, trials), settings, voters)
    common = {"n": n_trials, "measured": f"{n_trials} trials", "command": COMMAND}
    ours = float(np.mean(figures["joint", 5]["accuracy"]))
    records = []
    for name, system, k in (("k1", "one metric", 1), ("kmeans", "k-means", 5), ("random", "random", 5)):
        peer = float(np.mean(figures[system, k]["accuracy"]))
        records.append(
            {
                "name": f"musl-k5-{name}",
                "what": "accuracy of 5 metrics with joint grouping, merged-20",
                "ours": ours,
                "peer": peer,
                "points": ours - peer,
                "peer_name": "one metric" if k == 1 else f"{system} grouping, 5 metrics",
                "ratio": ours / peer,
                "unit": f"% right, {voters}-NN",
                "limit": "100",
                **common,
            }
        )
    best, one, means = (np.array(figures[system, 3]["sourced"]) for system in (STARTS, "joint", "k-means"))
    records.append(
        {
            "name": "musl-k3-sources",
            "what": "trials whose 3 groups are the 3 sources but for at most 2 of 20 categories, best of 5 starts",
            "ours": int((best >= 18).sum()),
            "peer": int((means >= 18).sum()),
            "peer_name": "k-means grouping",
            "exactly": int((best == 20).sum()),
            "one_start": int((one >= 18).sum()),
            "ratio": float((best >= 18).sum() / max((means >= 18).sum(), 1)),
            "unit": "trials",
            "limit": f"all {n_trials} trials",
            **common,
        }
    )
    return records


if __name__ == "__main__":
    sys.exit(main())
