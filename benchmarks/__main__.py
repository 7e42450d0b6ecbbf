"""Run the benchmarks, write benchmarks/results.json, docs/benchmarks.md and docs/growth.png.

    python -m benchmarks [--quick] [NAME ...]

Each record holds our figure, a peer's figure from the same session on the same data, their ratio (above 1 means ours
is better), the physical limit, how it was measured, and the command that repeats it. Figures are medians; quote
ratios, since machines differ. ``--quick`` takes smaller inputs and fewer repetitions, and prints only. Quality is
measured by ``python -m experiments.studies``, whose records stand in the same file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from . import page
from .peers import PeerError
from .vectors import DATA, ROOT

MODULES = (
    *("machine", "startup", "extraction", "photo_sizes", "deep", "forest", "incremental", "edit", "filters"),
    *("catalogue", "columns", "cluster", "codebook", "oasis", "pairs", "aroma", "comparison", "annotators", "wsabie"),
    *("musl", "search", "dense", "two_stage", "milvus", "milvus_dense", "service", "label_edits", "checks", "webpage"),
    "first_screen",
    *("feedback", "growth", "scale", "teachers", "million", "small_classes", "neighbours", "wrong_labels", "keywords"),
)
STUDIES = ("alike", "one_ground")  # of experiments.studies, run by this command, too, when named
LONG = ("scale", "million")  # take long: run only when named
# Without the photos of $VISTERM_DATA they have nothing to measure.
PHOTOS = (
    "photo_sizes",
    "deep",
    "dense",
    "milvus_dense",
    "webpage",
    "first_screen",
    "feedback",
    "million",
    "small_classes",
    "neighbours",
    "wrong_labels",
)
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="smaller inputs, fewer repetitions; prints, writes nothing"
    )
    listed = f"some of: {', '.join((*MODULES, *STUDIES))}; default: all but {', '.join((*LONG, *STUDIES))}"
    parser.add_argument("modules", nargs="*", metavar="NAME", help=listed)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.modules if name not in (*MODULES, *STUDIES)]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join((*MODULES, *STUDIES))}")
    names = arguments.modules or [name for name in MODULES if name not in LONG]
    for package, of_package in (("benchmarks", MODULES), ("experiments.studies", STUDIES)):
        if chosen := [name for name in names if name in of_package]:
            run_modules(chosen, arguments.quick, package)


def run_modules(names: Sequence[str], quick: bool, package: str = "benchmarks") -> None:
    """Measure modules of a package in turn; print their records and, unless `quick`, write results and pages."""
    failed, missing, started = [], [], time.perf_counter()
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}, {(time.perf_counter() - started) / 60:.1f} min] {name}", flush=True)
        try:
            records = measure(name, quick, package)
        except (PeerError, ModuleNotFoundError) as error:
            print(f"    cannot be measured: {error}", file=sys.stderr)
            missing.append(name)
            continue
        except Exception:  # one module must not stop the others; the exit code tells
            traceback.print_exc()
            failed.append(name)
            continue
        for record in records:
            print(f"    {page.line(record)}", flush=True)
        if not quick:
            RESULTS.write_text(json.dumps(merge(RESULTS, records, f"python -m {package} {name}"), indent=1) + "\n")
    if not quick:
        page.write(json.loads(RESULTS.read_text()))
    print(f"{(time.perf_counter() - started) / 60:.1f} min")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if missing:
        sys.exit(2)


def measure(name: str, quick: bool, package: str = "benchmarks") -> list[dict]:
    """The records of a module, with the command that repeats them."""
    if name in PHOTOS and not (DATA / "caltech101").is_dir():
        print(f"    skipped: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    records = importlib.import_module(f"{package}.{name}").run(quick=quick)
    return [record | {"command": f"python -m {package} {name}"} for record in records]


def merge(results: Path, records: list[dict], command: str) -> list[dict]:
    """All records: `records` at the place of those that the command wrote before, or at the end.

    A record that the command no longer gives, because it is gone or its peer could not run, is dropped; so is one of a
    module that is gone.
    """
    old = json.loads(results.read_text()) if results.exists() else []
    place = next((i for i, record in enumerate(old) if record["command"] == command), len(old))
    before, after = (
        [record for record in part if record["command"] != command and has_module(record)]
        for part in (old[:place], old[place:])
    )
    return [*before, *records, *after]


def has_module(record: dict) -> bool:
    *_, package, name = record["command"].split()
    return (ROOT / package.replace(".", "/") / f"{name}.py").is_file()


if __name__ == "__main__":
    main()
