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
from collections.abc import Callable, Iterator, Mapping
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

    Jobs are keyword arguments of `measure`, a function of a module in experiments/measured. One job runs per core, or
    with `alone` one at a time, for jobs that measure time.
    """
    name = measure.__module__.rpartition(".")[2]
    for _ in finish({name: (measure, jobs)}, alone=alone):
        pass
    results = [json.loads(place(measure, parameters).read_text(encoding="utf-8")) for parameters in jobs]
    return [parameters | result for parameters, result in zip(jobs, results, strict=True)]


def finish(wanted: Mapping[str, tuple[Measure, list[dict[str, Any]]]], *, alone: bool = False) -> Iterator[str]:
    """Do what is left of the jobs of some experiments, together, so that no core idles at the end of each.

    Yields the names in their order, each once its jobs, and those of the names before it, are done.
    """
    todo: dict[Path, tuple[Measure, dict[str, Any]]] = {}
    left: dict[str, set[Path]] = {}
    for name, (measure, jobs) in wanted.items():
        missing = {path: (measure, one) for one in jobs if not (path := place(measure, one)).exists()}
        left[name] = set(missing)
        todo |= missing
    if todo:
        if alone:  # else the time of idle processes counts when they end, in the middle of a job
            get_reusable_executor().shutdown()
        started = said = time.monotonic()
        title = next(iter(wanted)) if len(wanted) == 1 else f"{len(wanted)} experiments"
        print(f"{title}: {len(todo)} of {sum(len(jobs) for _, jobs in wanted.values())} jobs to do", flush=True)
        calls = (joblib.delayed(run_job)(measure, parameters, path) for path, (measure, parameters) in todo.items())
        parallel = joblib.Parallel(n_jobs=1 if alone else -1, return_as="generator_unordered", batch_size=1)
        for done, path in enumerate(parallel(calls), start=1):
            now = time.monotonic()
            if now - said >= SAY_SECONDS or done == len(todo):
                said = now
                print(f"{title}: {done} of {len(todo)} done after {(now - started) / 60:.1f} min", flush=True)
            for paths in left.values():
                paths.discard(path)
            while left and not next(iter(left.values())):
                name = next(iter(left))
                del left[name]
                yield name
    yield from left


def run_job(measure: Measure, parameters: dict[str, Any], path: Path) -> Path:
    """Run one job on one thread; write its result under a temporary name, then rename it; return its path."""
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
    return path


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
                    yield from (*place.glob("*.py"), *place.glob("*.pyi"))  # stubs name what is taken from plug-ins
                else:
                    continue
                break
