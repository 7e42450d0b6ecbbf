"""Run the benchmarks, write benchmarks/results.json and docs/benchmarks.md.

    python -m benchmarks [--quick] [NAME ...]

Each record holds our figure, a peer's figure from the same session, their ratio (above 1 means ours is better), what
the physical limit is, and the command that repeats it. Figures are medians; quote ratios, since machines differ.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

MODULES = (
    "startup",
    "extraction",
    "forest",
    "oasis",
    "aroma",
    "search",
    "incremental",
    "annotators",
    "wsabie",
    "comparison",
    "musl",
)
RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`, which also keeps the raw figures in `benchmarks/results.json`. A ratio above 1 means that ours
is better than the peer, which ran in the same session; figures are medians. Machines differ: compare ratios.

| Name | Ours | Peer | Ratio | Physical limit | Command |
|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer repetitions; for a look only")
    parser.add_argument("modules", nargs="*", metavar="NAME", help=f"some of: {', '.join(MODULES)}; default: all")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.modules if name not in MODULES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]}; there are {', '.join(MODULES)}")
    chosen = arguments.modules or MODULES
    # Records of modules that do not run now stay as they are.
    results = {r["name"]: r for r in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for name in chosen:
        for record in importlib.import_module(f"benchmarks.{name}").run(quick=arguments.quick):
            record["quick"] = arguments.quick
            results[record["name"]] = record
            print(
                f"{record['name']:26} ours {record['ours']:10.4g} {record['unit']:<14} "
                f"peer {record['peer']:10.4g} ({record['peer_name']})  ratio {record['ratio']:.2f}",
                flush=True,
            )
            RESULTS.write_text(json.dumps(list(results.values()), indent=1) + "\n")
    PAGE.write_text(HEAD + "".join(map(_row, results.values())))


def _row(record: dict) -> str:
    quick = " (quick)" if record["quick"] else ""
    return (
        f"| {record['name']}{quick} | {record['ours']:.3g} {record['unit']} "
        f"| {record['peer']:.3g}: {record['peer_name']} | {record['ratio']:.2f} "
        f"| {record['limit']} | `{record['command']}` |\n"
    )


if __name__ == "__main__":
    main()
