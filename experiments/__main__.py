"""Repeat the experiments of the papers: ``python -m experiments [--quick] [NAME ...]``.

Writes one page per experiment and a summary to docs/results, with --quick to build/results-quick. The result of each
job is cached under build/experiments: an interrupted run resumes where it stopped. With --render the findings of all
pages, the summary and coverage.md are written again from the pages' records, after a change of verdicts or words.

An experiment is declared once, in three files of its name, and named in `NAMES` and in coverage.py. A module in
measured/ has its systems, grids and data, and `measure`, which runs one job. A module here has `jobs`, the parameters
of all calls of `measure`, none where a quick run leaves it out; if some measure time, `runs_alone`, which of them run
one at a time; and `facts`, the numbers, rows and drawings of its page, and as `notes` sentences for other pages, by
name. A template in templates/ has the page's prose, and the claims with the rule that judges each. Two experiments may
share a module in measured/.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

from benchmarks.vectors import DATA

from .coverage import write_coverage
from .jobs import ROOT, code_of, finish, run_jobs
from .pages import render_again, write_page, write_summary

NAMES = ("seeds", "retrieval", "learning", "lead", "scales", "variants", "details", "newsgroups", "annotation", "corel")
NAMES += ("pamir", "musl", "musl_r", "printed", "speed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer folds and settings; takes minutes")
    parser.add_argument(
        "--render", action="store_true", help="write verdicts, README.md and coverage.md again; run nothing"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES)}; default: all")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in NAMES]
    if unknown:
        parser.error(f"no experiment {unknown[0]}; there are {', '.join(NAMES)}")
    if not arguments.render and not (DATA / "caltech101").is_dir():
        print(f"error: no images at {DATA}; the environment variable VISTERM_DATA names their folder", file=sys.stderr)
        return 2
    quick = arguments.quick
    folder = ROOT / "build" / "results-quick" if quick else ROOT / "docs" / "results"
    modules = {name: importlib.import_module(f"experiments.{name}") for name in NAMES}
    codes = {name: code_of(module.measure) for name, module in modules.items()}
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    if arguments.render:
        render_again(folder, codes)
    chosen = () if arguments.render else arguments.names or NAMES
    for timed in (False, True):  # what measures time comes last
        jobs = {name: modules[name].jobs(quick) for name in chosen if timed == hasattr(modules[name], "runs_alone")}
        if timed:
            beside = {
                name: (modules[name].measure, [job for job in own if not modules[name].runs_alone(job)])
                for name, own in jobs.items()
            }
            for _ in finish(beside):
                pass
        for name in finish({name: (modules[name].measure, own) for name, own in jobs.items()}, alone=timed):
            if not jobs[name]:
                print(f"{name}: left out of a quick run", flush=True)
                continue
            results = run_jobs(modules[name].measure, jobs[name])
            command = f"make reproduce{' QUICK=1' if quick else ''} ONLY={name}"
            write_page(folder, modules[name], results, command=command, code=codes[name], quick=quick)
            print(f"{name}: {folder / name}.md after {(time.monotonic() - started) / 60:.1f} min", flush=True)
    broken = write_summary(folder, codes)
    write_coverage(folder, NAMES)
    print(f"summary: {folder / 'README.md'}, {folder / 'coverage.md'}")
    for line in broken:
        print(f"error: must hold, and does not: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
