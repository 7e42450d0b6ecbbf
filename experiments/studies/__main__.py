"""Run a study, or list all of them: ``python -m experiments.studies [NAME [--quick]]``.

A study measures quality, mostly on the photos of $VISTERM_DATA: those that chose a default, and those that compare the
defaults with what they replaced. Its records go into benchmarks/results.json and docs/benchmarks.md, as those of
``python -m benchmarks``, and some write a table of another page; ``--quick`` takes fewer settings and prints only. A
study without records, or with others, has `main`, which gets the options after its name.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

from benchmarks.__main__ import run_modules
from benchmarks.vectors import DATA

FILES = {path.stem: path for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.studies", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=FILES, metavar="NAME", help=f"one of: {', '.join(FILES)}")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="--quick, or what the study's file names")
    given = parser.parse_args(arguments)
    if given.name is None:
        for name, path in FILES.items():
            print(f"{name:18} {title(path)}")
        return 0
    if not (DATA / "caltech101").is_dir():
        print(f"error: no images at {DATA}; the environment variable VISTERM_DATA names their folder", file=sys.stderr)
        return 2
    module = importlib.import_module(f"experiments.studies.{given.name}")
    more = set(given.options) - {"--quick"}
    if not hasattr(module, "run") or (more and hasattr(module, "main")):
        module.main(given.options)
        return 0
    if more:
        parser.error(f"{given.name} has no option but --quick")
    run_modules([given.name], "--quick" in given.options, "experiments.studies")
    return 0


def title(path: Path) -> str:
    """First line of a module's docstring, without its command."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0].partition(": ``python")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
