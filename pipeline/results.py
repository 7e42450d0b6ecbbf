"""What ``evaluate`` writes: metrics.json, curves.csv, neighbours.csv, precision_curve.png and report.html."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from scipy import sparse

from visterm.features import read_image
from visterm.learners import SimilarityLearner
from visterm.retrieval import Evaluation, Ranking, compare

from .collection import Image
from .config import Config
from .report import History, Hits, Query, ReportData, Result, System, write_precision_curve, write_report
from .run import Run, fingerprint, read_record, write_text

KS = (1, 10, 50)  # precision at k in metrics.json and in the report's table


class Measured(NamedTuple):
    """One system: its figures, and its first results for every query."""

    evaluation: Evaluation
    ranking: Ranking


def write_results(
    folder: Path,
    run: Run,
    config: Config,
    systems: dict[str, Measured],
    queries: Sequence[Image],
    gallery: Sequence[Image],
    relevance: sparse.csr_matrix,
    learner: SimilarityLearner,
    trained: dict[str, Any],
    *,
    root: Path,
    warnings: Sequence[str],
    seconds: float,
) -> None:
    """Write all files of an evaluation into a folder.

    Parameters
    ----------
    folder : Path
    run : Run
    config : Config
    systems : dict
        The learner first, then cosine.
    queries, gallery : sequences of Image
    relevance : CSR of bool, (n_queries, n_gallery)
    learner : SimilarityLearner
        The one that the report is about; its training history is drawn if it has one.
    trained : dict
        The learner's record.
    root : Path
        Where the images lie.
    warnings : sequence of str
    seconds : float
        How long ranking took.
    """
    name = next(iter(systems))
    first = systems[name].evaluation
    metrics: dict[str, Any] = {
        "protocol": config.evaluate.protocol,
        "n_queries": first.n_queries,
        "n_without_relevant": first.n_without_relevant,
        "n_gallery": len(gallery),
        "systems": {system: _figures(measured.evaluation) for system, measured in systems.items()},
    }
    if trained["result"]:
        metrics["systems"][name] |= {
            "steps": trained["result"]["steps"],
            "train_seconds": trained["result"]["seconds"],
        }
    ks = _ks(first)
    metrics["systems"]["chance"] = {
        "map": first.chance_mean_average_precision,
        "precision_at": {str(k): first.chance_precision for k in ks},
    }
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")

    curves = {system: measured.evaluation.precision_curve for system, measured in systems.items()}
    curves["chance"] = np.full(first.max_k, first.chance_precision)
    _write_csv(
        folder / "curves.csv",
        ["k", *curves],
        ([k, *(f"{curve[k - 1]:.6f}" for curve in curves.values())] for k in range(1, first.max_k + 1)),
    )
    results = _results(systems[name].ranking, gallery, relevance)
    _write_csv(
        folder / "neighbours.csv",
        ["query", "rank", "path", "score", "labels", "relevant"],
        (
            [query.path, rank, r.path, f"{r.score:.6f}", ";".join(r.labels), int(r.relevant)]
            for query, row in zip(queries, results, strict=True)
            for rank, r in enumerate(row, start=1)
        ),
    )

    data = _report_data(
        run, config, metrics, curves, systems, queries, gallery, results, learner, trained, warnings, seconds
    )
    write_precision_curve(folder / "precision_curve.png", data)
    write_report(
        folder / "report.html",
        data,
        lambda path: read_image(root / path, max_pixels=config.collection.max_pixels),
    )


def _ks(evaluation: Evaluation) -> list[int]:
    return [k for k in KS if k <= evaluation.max_k]


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    low, high = evaluation.map_interval()
    return {
        "map": evaluation.mean_average_precision,
        "map_interval": [low, high],
        "precision_at": {str(k): evaluation.precision_at(k) for k in _ks(evaluation)},
    }


def _results(ranking: Ranking, gallery: Sequence[Image], relevance: sparse.csr_matrix) -> list[tuple[Result, ...]]:
    found = []
    for row, (indices, scores) in enumerate(zip(ranking.indices, ranking.scores, strict=True)):
        relevant = set(relevance.indices[relevance.indptr[row] : relevance.indptr[row + 1]])
        found.append(
            tuple(
                Result(gallery[i].path, tuple(sorted(gallery[i].labels)), int(i) in relevant, float(score))
                for i, score in zip(indices, scores, strict=True)
                if i >= 0
            )
        )
    return found


def _hits(evaluation: Evaluation, row: int) -> Hits:
    return Hits(
        float(evaluation.average_precision[row]),
        int(evaluation.first_relevant[row]),
        float(evaluation.precision[row, 9]) if evaluation.max_k >= 10 else None,
    )


def _report_data(
    run, config, metrics, curves, systems, queries, gallery, results, learner, trained, warnings, seconds
) -> ReportData:
    name = next(iter(systems))
    evaluation, baseline = systems[name].evaluation, systems["cosine"].evaluation
    rows = []
    for system, figures in metrics["systems"].items():
        rows.append(
            System(
                system,
                figures["map"],
                interval=tuple(figures["map_interval"]) if "map_interval" in figures else None,
                precision_at={int(k): value for k, value in figures["precision_at"].items()},
                precision_curve=curves[system].tolist(),
                steps=figures.get("steps"),
                train_seconds=figures.get("train_seconds"),
                comparison=compare(evaluation, baseline) if system == name != "cosine" else None,
            )
        )
    collected = read_record(run.collection)
    durations = {"features": collected["result"]["seconds"]} if collected else {}
    if "train_seconds" in metrics["systems"][name]:
        durations["train"] = metrics["systems"][name]["train_seconds"]
    return ReportData(
        title=f"{run.name}: {name}",
        systems=tuple(rows),
        baseline="cosine" if name != "cosine" else None,
        queries=tuple(
            Query(
                query.path,
                tuple(sorted(query.labels)),
                _hits(evaluation, row),
                _hits(baseline, row) if name != "cosine" else None,
                results[row],
            )
            for row, query in enumerate(queries)
        ),
        n_queries=evaluation.n_queries,
        n_gallery=len(gallery),
        n_without_relevant=evaluation.n_without_relevant,
        protocol=config.evaluate.protocol,
        history=_history(learner),
        warnings=tuple(warnings),
        facts={
            "Date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "Command": f"visterm evaluate --run {run.name} --learner {name}",
            "visterm": version("visterm"),
            "Run": str(run.folder),
            "Images": fingerprint([[image.path, image.sha256] for image in (*queries, *gallery)]),
            "Seed": f"{config.seed}, fold {config.split.seed}",
            "Cores": str(os.cpu_count()),
        },
        durations=durations | {"rank": seconds},
        environment={
            "Python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
        }
        | {package: version(package) for package in ("numpy", "scipy", "numba", "opencv-python-headless")},
        config=yaml.safe_dump(config.model_dump() | trained["config"], sort_keys=False, allow_unicode=True),
    )


def _history(learner: SimilarityLearner) -> History | None:
    """Validation mAP along training; the figure before the first step is cosine's if W started as the identity."""
    entries = [e for e in getattr(learner, "history_", []) if e["validation_map"] is not None]
    if len(entries) < 2:
        return None
    return History(
        [e["step"] for e in entries],
        [e["validation_map"] for e in entries],
        getattr(learner, "best_step_", None),
        entries[0]["validation_map"] if getattr(learner, "init", None) == "identity" else None,
    )


def _write_csv(file: Path, header: Sequence[str], rows) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(file, text.getvalue())
