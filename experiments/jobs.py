"""Jobs: an experiment in parts whose results are cached, so that an interrupted run resumes where it stopped.

A job is a call `measure(**parameters)` of an experiment's module; parameters and result are JSON. A result is cached
under build/experiments; its key is a digest of its parameters and of the code it depends on: `SHARED` here, the
experiment's own module, and the files that this module names in `SOURCES`. Changes to comments, docstrings, the list of
jobs and the layout of pages keep it valid.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import joblib
import numba
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "experiments"
# Code that any result may depend on.
SHARED = (
    *("features", "learners", "retrieval", "experiments/grids.py", "experiments/protocol.py", "benchmarks/vectors.py"),
    "constraints.txt",
)
SAY_SECONDS = 30.0


def run_jobs(name: str, jobs: list[dict[str, Any]], *, alone: bool = False) -> list[dict[str, Any]]:
    """Run an experiment's jobs; return their results in order, each with its parameters and its core `seconds`.

    Parameters
    ----------
    name : str
        Module of `experiments` with a function `measure`.
    jobs : list of dict
        Keyword arguments of `measure`.
    alone : bool
        Run one job at a time, for jobs that measure time; default: one per core.
    """
    code = code_of(name)
    places = [place(name, code, parameters) for parameters in jobs]
    todo = [(parameters, path) for parameters, path in zip(jobs, places, strict=True) if not path.exists()]
    if todo:
        if alone:  # else the time of idle processes counts when they end, in the middle of a job
            get_reusable_executor().shutdown()
        started = said = time.monotonic()
        print(f"{name}: {len(todo)} of {len(jobs)} jobs to do", flush=True)
        calls = (joblib.delayed(run_job)(name, parameters, path) for parameters, path in todo)
        parallel = joblib.Parallel(n_jobs=1 if alone else -1, return_as="generator_unordered", batch_size=1)
        for done, _ in enumerate(parallel(calls), start=1):
            now = time.monotonic()
            if now - said >= SAY_SECONDS or done == len(todo):
                said = now
                print(f"{name}: {done} of {len(todo)} done after {(now - started) / 60:.1f} min", flush=True)
    found = [json.loads(path.read_text(encoding="utf-8")) for path in places]
    return [parameters | result for parameters, result in zip(jobs, found, strict=True)]


def run_job(name: str, parameters: dict[str, Any], path: Path) -> None:
    """Run one job on one thread; write its result under a temporary name, then rename it."""
    module = importlib.import_module(f"experiments.{name}")
    numba.set_num_threads(1)
    start = core_seconds()
    with threadpool_limits(1):
        result = module.measure(**parameters)
    result["seconds"] = core_seconds() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)


def core_seconds() -> float:
    """Processor time of this process and of the children it has waited for."""
    return sum(os.times()[:4])


def place(name: str, code: str, parameters: dict[str, Any]) -> Path:
    """File of a job's result."""
    text = json.dumps([code, parameters], sort_keys=True)
    return KEPT / name / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def code_of(name: str) -> str:
    """Digest of the statements, tables and versions that this experiment's results may depend on."""
    module = importlib.import_module(f"experiments.{name}")
    digest = hashlib.sha256()
    for path in _files(*SHARED, f"experiments/{name}.py", *module.SOURCES):
        text = path.read_text(encoding="utf-8")
        digest.update((statements(text) if path.suffix == ".py" else text).encode())
    return digest.hexdigest()


def statements(source: str) -> str:
    """A module's syntax tree as text, without comments, docstrings and functions named jobs* and page*."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant()) as docstring, *_]:
                docstring.value = ast.Constant(None)
    # The list of jobs and the layout of pages do not affect a result.
    tree.body = [node for node in tree.body if not getattr(node, "name", "").startswith(("jobs", "page"))]
    return ast.dump(tree)


def _files(*names: str) -> Iterable[Path]:
    for name in names:
        path = ROOT / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
