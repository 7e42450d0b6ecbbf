"""The campaign of faults: make chaos. Prints what was tried and what held, and the seeds of what fell."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

for _name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # children are forked: no thread may run then
os.environ.pop("VISTERM_RUN", None)
os.environ.pop("VISTERM_RUNS", None)

# After the environment is set, which NumPy reads when it is imported: hence E402.
import damage  # noqa: E402
import disk  # noqa: E402
import kills  # noqa: E402
import mutants  # noqa: E402
import pairs  # noqa: E402
import power  # noqa: E402
import service_kills  # noqa: E402
import training_kills  # noqa: E402
from world import World  # noqa: E402


class Category(NamedTuple):
    """One kind of fault: what is tried, how often, and what one attempt does."""

    title: str
    attempt: Callable[[World, int], str | None]  # from a seed; returns what fell
    full: int
    quick: int
    each: int = 1  # how many faults one attempt tries


QUICK_SECONDS = 3.0  # of a category, on however slow a machine
# A category is one function and one line here.
CATEGORIES = {
    "damage": Category("a file of a finished run damaged, under a command", damage.attempt, 5000, 100),
    "repair": Category("a damaged catalogue repaired", damage.repaired, 400, 10),
    "people": Category("label edits, marks and ratings, or their copies, damaged and repaired", damage.people, 400, 10),
    "kills": Category("SIGKILL, SIGINT and SIGTERM at a random moment of a command", kills.attempt, 1000, 20),
    "service": Category("the service killed at a random moment among uploads and marks", service_kills.attempt, 100, 4),
    "trainings": Category(
        "the service or its child process killed while it learns again or adds photos", training_kills.attempt, 100, 1
    ),
    "disk": Category("a full disk during a command", disk.attempt, 300, 10),
    "power": Category("a power loss during a command: writes that were not synced are gone", power.attempt, 300, 10),
    "pairs": Category("two commands at once on one run", pairs.attempt, 350, 8),
    "images": Category("mutated images, decoded and extracted", mutants.images, 300, 6, mutants.IMAGES_EACH),
    "large": Category("images at the limit of pixels", mutants.large, 7, 1),
    "tables": Category("mutated tables of labels, clicks and vectors", mutants.tables, 1000, 30),
    "configurations": Category("mutated configurations", mutants.configurations, 200, 4, mutants.CONFIGURATIONS_EACH),
}


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--quick", action="store_true", help="fixed seeds, a few minutes")
    parser.add_argument("--only", nargs="*", choices=sorted(CATEGORIES), help="categories")
    parser.add_argument("--count", type=int, help="attempts of each category")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of attempts")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; with --count 1 repeats one attempt")
    parser.add_argument("--seconds", type=float, help="begin no attempt of a category after so many seconds")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--write", type=Path, help="write the page of results to this file")
    options = parser.parse_args()
    fell: dict[str, list[tuple[int, str]]] = {}
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        world = World(Path(folder).resolve())
        began = time.perf_counter()
        world.build()
        print(f"a run to damage: {len(world.files())} files, {time.perf_counter() - began:.0f} s", flush=True)
        for name in options.only or CATEGORIES:
            category = CATEGORIES[name]
            n = options.count or (category.quick if options.quick else max(1, round(category.full * options.scale)))
            began = time.perf_counter()
            most = options.seconds or (QUICK_SECONDS if options.quick else float("inf"))
            results = campaign(world, category, range(options.seed, options.seed + n), options.jobs, most)
            fell[name] = [(seed, what) for seed, what in sorted(results.items()) if what is not None]
            tried[name] = len(results) * category.each
            seconds = time.perf_counter() - began
            print(
                f"{name}: {tried[name]:,} tried, {tried[name] - len(fell[name]):,} held ({seconds:.0f} s)", flush=True
            )
            for seed, what in fell[name]:
                print(f"  --only {name} --seed {seed} --count 1: {what}", flush=True)
    if options.write is not None:
        options.write.write_text(page(tried, fell))
    sys.exit(any(fell.values()))


def campaign(world: World, category: Category, seeds: range, jobs: int, most: float) -> dict[int, str | None]:
    """Try each seed, in several processes, for so many seconds; return what fell, None where it held."""
    pipes, end = [], time.monotonic() + most
    for job in range(jobs):
        reading, writing = os.pipe()
        if not os.fork():
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                for seed in seeds[job::jobs]:
                    if time.monotonic() > end:
                        break
                    out.write(json.dumps([seed, "the attempt never ended"]) + "\n")
                    out.flush()
                    try:
                        what = category.attempt(world, seed)
                    except Exception as error:
                        what = f"the attempt itself failed: {type(error).__name__}: {error}"
                    out.write(json.dumps([seed, what]) + "\n")
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
    results: dict[int, str | None] = {}
    for pipe in pipes:
        with os.fdopen(pipe) as lines:
            results.update(tuple(json.loads(line)) for line in lines)
    for _ in pipes:
        os.wait()
    return results


def page(tried: Counter[str], fell: dict[str, list[tuple[int, str]]]) -> str:
    """Return docs/reliability.md with these results."""
    template = Path(__file__).with_name("reliability.md.in").read_text()
    rows = [
        f"| {CATEGORIES[name].title} | {n:,} | {n - len(fell[name]):,} | "
        f"{', '.join(str(seed) for seed, _ in fell[name]) or 'none'} |"
        for name, n in tried.items()
    ]
    return template.replace("{rows}", "\n".join(rows))


if __name__ == "__main__":
    main()
