"""Jobs: an experiment in parts whose results are cached, so that an interrupted run resumes where it stopped.

A job is a call `measure(**parameters)` of a function in experiments/measured; parameters and result are JSON. A result
is cached under build/experiments; its key is a digest of its parameters and of the code that it comes from: the module
of `measure` and all of the repository that this imports, at any depth, the tables in its `FILES`, and constraints.txt.
What imports `measure` (lists of jobs, pages) has no part in it, nor have comments and docstrings.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numba
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_limits

from benchmarks.vectors import USED, used_checksums

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "experiments"
SAY_SECONDS = 30.0

Measure = Callable[..., dict[str, Any]]


def run_jobs(measure: Measure, jobs: list[dict[str, Any]], *, alone: bool = False) -> list[dict[str, Any]]:
    """Run jobs; return their results in order, each with its parameters and its core `seconds`.

    Parameters
    ----------
    measure : callable
        A function of a module in experiments/measured.
    jobs : list of dict
        Keyword arguments of `measure`.
    alone : bool
        Run one job at a time, for jobs that measure time; default: one per core.
    """
    name = measure.__module__.rpartition(".")[2]
    places = [place(measure, parameters) for parameters in jobs]
    todo = [(parameters, path) for parameters, path in zip(jobs, places, strict=True) if not path.exists()]
    if todo:
        if alone:  # else the time of idle processes counts when they end, in the middle of a job
            get_reusable_executor().shutdown()
        started = said = time.monotonic()
        print(f"{name}: {len(todo)} of {len(jobs)} jobs to do", flush=True)
        calls = (joblib.delayed(run_job)(measure, parameters, path) for parameters, path in todo)
        parallel = joblib.Parallel(n_jobs=1 if alone else -1, return_as="generator_unordered", batch_size=1)
        for done, _ in enumerate(parallel(calls), start=1):
            now = time.monotonic()
            if now - said >= SAY_SECONDS or done == len(todo):
                said = now
                print(f"{name}: {done} of {len(todo)} done after {(now - started) / 60:.1f} min", flush=True)
    results = [json.loads(path.read_text(encoding="utf-8")) for path in places]
    return [parameters | result for parameters, result in zip(jobs, results, strict=True)]


def run_job(measure: Measure, parameters: dict[str, Any], path: Path) -> None:
    """Run one job on one thread; write its result under a temporary name, then rename it."""
    numba.set_num_threads(1)
    start = core_seconds()
    USED.clear()
    with threadpool_limits(1):
        result = measure(**parameters)
    result["seconds"] = core_seconds() - start
    result["checksums"] = used_checksums()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)


def core_seconds() -> float:
    """Processor time of this process and of the children it has waited for."""
    return sum(os.times()[:4])


def place(measure: Measure, parameters: dict[str, Any]) -> Path:
    """File of a job's result."""
    text = json.dumps([code_of(measure), parameters], sort_keys=True)
    name = measure.__module__.rpartition(".")[2]
    return KEPT / name / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


@cache
def code_of(measure: Measure) -> str:
    """Digest of the statements, tables and versions that the results of `measure` come from."""
    module = sys.modules[measure.__module__]
    digest = hashlib.sha256()
    for path in sources(Path(module.__file__)):
        digest.update(read(path)[0].encode())
    for path in (*getattr(module, "FILES", ()), ROOT / "constraints.txt"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources(file: Path) -> list[Path]:
    """A module's file and those of all that it imports from the repository, at any depth.

    A package counts with all its modules, since what it hands out may lie in any of them.
    """
    seen: set[Path] = set()
    todo = {file}
    while todo:
        path = todo.pop()
        seen.add(path)
        todo.update(read(path)[1] - seen)
    return sorted(seen)


@cache
def read(file: Path) -> tuple[str, set[Path]]:
    """A module's syntax tree as text, without comments and docstrings; and the files that it imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = set(_imported(file, tree))
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant()) as docstring, *_]:
                docstring.value = ast.Constant(None)
    return ast.dump(tree), imported


def _imported(file: Path, tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(ROOT, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if node.level else ROOT
            of = f"{node.module}." if node.module else ""
            names = [(folder, f"{of}{alias.name}") for alias in node.names]
        else:
            continue
        for folder, name in names:
            parts = name.split(".")
            parts = parts[1:] if parts[0] == "visterm" else parts  # its rooms lie at the root
            for place in (folder.joinpath(*parts), folder.joinpath(*parts[:-1])):  # the last may be a name in a module
                if place.with_suffix(".py").is_file():
                    yield place.with_suffix(".py")
                elif (place / "__init__.py").is_file():
                    yield from place.glob("*.py")
                else:
                    continue
                break
