"""Run the benchmarks, write benchmarks/results.json, docs/benchmarks.md and docs/growth.png.

    python -m benchmarks [--quick] [NAME ...]

Each record holds our figure, a peer's figure from the same session on the same data, their ratio (above 1 means ours
is better), the physical limit, how it was measured, and the command that repeats it. Figures are medians; quote
ratios, since machines differ. ``--quick`` takes smaller inputs and fewer repetitions, and prints only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path

from . import page
from .vectors import DATA

MODULES = (
    *("machine", "startup", "extraction", "photo_sizes", "deep", "fitting", "vectors_table", "both", "forest"),
    *("incremental", "edit", "filters", "catalogue", "columns", "cluster", "codebook", "oasis", "pairs", "aroma"),
    *("comparison", "open", "defaults", "held_out", "annotators", "wsabie", "musl", "search", "dense", "two_stage"),
    *("milvus", "milvus_dense", "service", "label_edits"),
    *("checks", "webpage", "feedback", "growth", "configurations", "spatial", "tuning", "scale", "teachers"),
    *("probabilities", "trying", "alike", "labelling", "explaining", "precision", "million"),
)
LONG = ("held_out", "scale", "tuning", "teachers", "trying", "million")  # take long: run only when named
# Without the photos of $VISTERM_DATA they have nothing to measure.
PHOTOS = (
    *("photo_sizes", "deep", "fitting", "vectors_table", "both", "open", "defaults", "held_out", "dense", "webpage"),
    *("feedback", "configurations", "spatial", "tuning", "teachers", "probabilities", "trying"),
    *("alike", "labelling", "explaining", "precision", "million", "milvus_dense"),
)
# Commands outside this folder that merge records of their own, and the module whose records theirs follow.
ELSEWHERE = {"experiments.musl_records": "musl"}
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="smaller inputs, fewer repetitions; prints, writes nothing"
    )
    names = f"some of: {', '.join(MODULES)}; default: all but {', '.join(LONG)}"
    parser.add_argument("modules", nargs="*", metavar="NAME", help=names)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join(MODULES)}")
    chosen, failed = arguments.modules or [name for name in MODULES if name not in LONG], []
    started = time.perf_counter()
    for number, name in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}, {(time.perf_counter() - started) / 60:.1f} min] {name}", flush=True)
        try:
            records = measure(name, arguments.quick)
        except Exception:  # one module must not stop the others; the exit code tells
            traceback.print_exc()
            failed.append(name)
            continue
        for record in records:
            print(f"    {page.line(record)}", flush=True)
        if not arguments.quick:
            RESULTS.write_text(json.dumps(merge(RESULTS, records, name), indent=1) + "\n")
    if not arguments.quick:
        page.write(json.loads(RESULTS.read_text()))
    print(f"{(time.perf_counter() - started) / 60:.1f} min")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def measure(name: str, quick: bool) -> list[dict]:
    """The records of a module, with the command that repeats them."""
    if name in PHOTOS and not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    records = importlib.import_module(f"benchmarks.{name}").run(quick=quick)
    return [record | {"command": f"python -m benchmarks {name}"} for record in records]


def merge(results: Path, records: list[dict], module: str) -> list[dict]:
    """All records in the order of the modules: `records` in place of those that the module wrote before.

    A record that the module no longer gives, because it is gone or its peer could not run, is dropped; so is one of a
    module that is gone.
    """
    kept = json.loads(results.read_text()) if results.exists() else []
    kept = [record for record in kept if module_of(record) in {*MODULES, *ELSEWHERE} - {module}]
    return sorted(kept + records, key=rank)


def rank(record: dict) -> tuple[int, bool]:
    name = module_of(record)
    return MODULES.index(ELSEWHERE.get(name, name)), name in ELSEWHERE


def module_of(record: dict) -> str:
    return record["command"].split()[-1]


if __name__ == "__main__":
    main()
