"""What ``evaluate`` writes: metrics.json, curves.csv, neighbours.csv, precision_curve.png and report.html."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from visterm.features import read_image
from visterm.learners import SimilarityLearner
from visterm.pipeline.config.models import Config, without_password
from visterm.pipeline.report.charts import write_precision_curve
from visterm.pipeline.report.data import History, Hits, Query, ReportData, Result, System
from visterm.pipeline.report.page import write_report
from visterm.pipeline.store.files import write_text
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.records import fingerprint, read_record
from visterm.pipeline.store.run import Run
from visterm.retrieval import Evaluation, Ranking, compare

from .measure import SystemResult, Task

KS = (1, 10, 50)  # precision at k in metrics.json and in the report's table
SIDE_BY_SIDE = 6  # queries shown with the results of every learner


def write_results(
    folder: Path,
    run: Run,
    config: Config,
    systems: dict[str, SystemResult],
    task: Task,
    *,
    root: Path,
    warnings: Sequence[str],
    seconds: float,
    command: str,
) -> None:
    """Write all files of an evaluation into a folder.

    Parameters
    ----------
    folder : Path
    run : Run
    config : Config
    systems : dict
        The learners, of which the report shows the pictures of the first, then cosine.
    task : Task
    root : Path
        Where the images lie.
    warnings : sequence of str
    seconds : float
        How long ranking took.
    command : str
    """
    first = next(iter(systems.values())).evaluation
    metrics: dict[str, Any] = {
        "protocol": config.evaluate.protocol,
        "n_queries": first.n_queries,
        "n_without_relevant": first.n_without_relevant,
        "n_gallery": len(task.gallery),
        "systems": {system: _figures(measured) for system, measured in systems.items()},
    }
    ks = _ks(first)
    metrics["systems"]["chance"] = {
        "map": first.chance_mean_average_precision,
        "precision_at": {str(k): first.chance_precision for k in ks},
    }
    if task.classes is not None:
        tested, trained = (set(labels.tolist()) for labels in task.classes)
        metrics["accuracy"] = {
            "neighbours": min(config.evaluate.accuracy_neighbours, len(task.train)),
            "n_queries": len(task.queries),
            "n_train": len(task.train),
            "n_classes": len(tested),
            "n_unknown_labels": len(tested - trained),
        }
        # A label drawn at random from those of the training images.
        metrics["systems"]["chance"]["knn_accuracy"] = len(tested & trained) / (len(tested) * len(trained))
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")

    curves = {system: measured.evaluation.precision_curve for system, measured in systems.items()}
    curves["chance"] = np.full(first.max_k, first.chance_precision)
    _write_csv(
        folder / "curves.csv",
        ["k", *curves],
        ([k, *(f"{curve[k - 1]:.6f}" for curve in curves.values())] for k in range(1, first.max_k + 1)),
    )
    _write_csv(
        folder / "neighbours.csv",
        ["query", "rank", "path", "score", "labels", "relevant", "system"],
        (
            [query.path, rank, r.path, f"{r.score:.6f}", ";".join(r.labels), int(r.relevant), system]
            for system in list(systems)[: max(1, len(systems) - 1)]  # cosine only if it is the only one
            for row, query in enumerate(task.queries)
            for rank, r in enumerate(_results(systems[system].ranking, task, row), start=1)
        ),
    )

    data = _report_data(run, config, metrics, curves, systems, task, warnings, seconds, command)
    write_precision_curve(folder, data)
    write_report(
        folder / "report.html",
        data,
        lambda path: read_image(root / path, max_pixels=config.collection.max_pixels),
    )


def _ks(evaluation: Evaluation) -> list[int]:
    return [k for k in KS if k <= evaluation.max_k]


def _figures(measured: SystemResult) -> dict[str, Any]:
    """One system as in metrics.json."""
    evaluation = measured.evaluation
    low, high = evaluation.map_interval()
    found: dict[str, Any] = {
        "map": evaluation.mean_average_precision,
        "map_interval": [low, high],
        "precision_at": {str(k): evaluation.precision_at(k) for k in _ks(evaluation)},
    }
    if measured.accuracy is not None:
        found["knn_accuracy"] = measured.accuracy
    if measured.annotation is not None:
        found["annotation"] = measured.annotation.as_json()
    if result := measured.trained["result"]:
        found |= {"steps": result["steps"], "train_seconds": result["seconds"]}
    return found


def _results(ranking: Ranking, task: Task, row: int) -> tuple[Result, ...]:
    """First results of one query."""
    relevance = task.relevance
    relevant = set(relevance.indices[relevance.indptr[row] : relevance.indptr[row + 1]])
    found = []
    for i, score in zip(ranking.indices[row], ranking.scores[row], strict=True):
        if i >= 0:
            image = task.gallery[i]
            found.append(Result(image.path, tuple(sorted(image.labels)), int(i) in relevant, float(score)))
    return tuple(found)


def _hits(evaluation: Evaluation, row: int) -> Hits:
    return Hits(
        float(evaluation.average_precision[row]),
        int(evaluation.first_relevant[row]),
        float(evaluation.precision[row, 9]) if evaluation.max_k >= 10 else None,
    )


def _report_data(run, config, metrics, curves, systems, task, warnings, seconds, command) -> ReportData:
    name = next(iter(systems))
    evaluation, baseline = systems[name].evaluation, systems["cosine"].evaluation
    learners = [system for system in systems if system != "cosine"]
    best = max(learners, key=lambda system: metrics["systems"][system]["map"]) if len(learners) > 1 else None
    rows = []
    for system, figures in metrics["systems"].items():
        annotation = systems[system].annotation if system in systems else None
        rows.append(
            System(
                system,
                figures["map"],
                interval=tuple(figures["map_interval"]) if "map_interval" in figures else None,
                precision_at={int(k): value for k, value in figures["precision_at"].items()},
                precision_curve=curves[system].tolist(),
                steps=figures.get("steps"),
                train_seconds=figures.get("train_seconds"),
                comparison=compare(systems[system].evaluation, baseline) if system in learners else None,
                p_of_best=_p_of_best(systems, system, best) if system in learners else None,
                knn_accuracy=figures.get("knn_accuracy"),
                label_precision_at=annotation.precision_at if annotation else {},
                sibling_precision_at=annotation.sibling_precision_at if annotation else {},
            )
        )
    collected = read_record(run.collection)
    durations = {"features": collected["result"]["seconds"]} if collected else {}
    for system in learners:
        label = "train" if len(learners) == 1 else f"train {system}"
        durations[label] = metrics["systems"][system]["train_seconds"]
    queries = tuple(
        Query(
            query.path,
            tuple(sorted(query.labels)),
            _hits(evaluation, row),
            _hits(baseline, row) if learners else None,
            _results(systems[name].ranking, task, row),
        )
        for row, query in enumerate(task.queries)
    )
    return ReportData(
        title=f"{run.name}: {' + '.join(learners or systems)}",
        systems=tuple(rows),
        baseline="cosine" if learners else None,
        queries=queries,
        n_queries=evaluation.n_queries,
        n_gallery=len(task.gallery),
        n_without_relevant=evaluation.n_without_relevant,
        protocol=config.evaluate.protocol,
        accuracy_neighbours=metrics["accuracy"]["neighbours"] if "accuracy" in metrics else None,
        histories=tuple(h for system in learners if (h := _history(system, systems[system].learner)) is not None),
        side_by_side=_side_by_side(queries, systems, task) if len(learners) > 1 else (),
        groups={system: found for system in learners if (found := _groups(systems[system])) is not None},
        warnings=(*warnings, *_learner_warnings(systems, task)),
        facts={
            "Date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "Command": command,
            "visterm": version("visterm"),
            "Run": str(run.folder),
            "Images": fingerprint([[image.path, image.sha256] for image in (*task.queries, *task.gallery)]),
            "Seed": f"{config.seed}, fold {config.split.seed}",
            "Cores": str(os.cpu_count()),
        },
        durations=durations | {"rank": seconds},
        environment={
            "Python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}",
        }
        | {package: version(package) for package in ("numpy", "scipy", "numba", "opencv-python-headless")},
        config=_config_shown(config, systems),
    )


def _p_of_best(systems: dict[str, SystemResult], system: str, best: str | None) -> float | None:
    """p-value of the paired test against the learner with the highest mAP; None of itself, and of the only one."""
    if best in (None, system):
        return None
    return compare(systems[best].evaluation, systems[system].evaluation).p_value


def _config_shown(config: Config, systems: dict[str, SystemResult]) -> str:
    """The configuration, with the sections that the learners were trained with, and without those of other learners."""
    shown = config.model_dump()
    if config.index.uri is not None:  # reports are passed on
        shown["index"]["uri"] = without_password(config.index.uri)
    for name in TRAINED:
        if name not in systems:
            shown.pop(name, None)
    for measured in systems.values():
        shown |= measured.trained["config"]
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)


def _side_by_side(
    queries: Sequence[Query], systems: dict[str, SystemResult], task: Task
) -> tuple[tuple[Query, dict[str, tuple[Result, ...]]], ...]:
    """Some queries with the results of every system: from the best to the worst of the first learner, evenly."""
    measured = [row for row, query in enumerate(queries) if not math.isnan(query.learner.average_precision)]
    order = sorted(measured, key=lambda row: -queries[row].learner.average_precision)
    chosen = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, SIDE_BY_SIDE).astype(int))]
    return tuple(
        (queries[row], {name: _results(system.ranking, task, row) for name, system in systems.items()})
        for row in chosen
    )


def _groups(measured: SystemResult) -> list[list[str]] | None:
    """Categories of each metric, of a learner that has several metrics (MuSL)."""
    metric_of = getattr(measured.learner, "metric_of_category_", None)
    if metric_of is None:
        return None
    groups: list[list[str]] = [[] for _ in range(max(metric_of) + 1)]
    for name, metric in zip(measured.learner.classes_.tolist(), metric_of, strict=True):
        groups[metric].append(str(name))
    return groups


def _learner_warnings(systems: dict[str, SystemResult], task: Task) -> list[str]:
    """What a reader should know about how single learners were measured."""
    found = []
    for name, measured in systems.items():
        if not hasattr(measured.learner, "metric_of_category_"):
            continue
        if task.own or task.classes is None:
            why = "they are what is measured" if task.own else "an image may have several"
            found.append(
                f"{name} ranks without the labels of the ranked images ({why}), which choose its metrics: all have an "
                "equal say"
            )
    return found


def _history(name: str, learner: SimilarityLearner) -> History | None:
    """Validation along training; the mAP before the first step is cosine's if W started as the identity."""
    entries = [e for e in getattr(learner, "history_", None) or [] if e.get("validation") is not None]
    if len(entries) < 2:
        return None
    return History(
        [e["step"] for e in entries],
        [e["validation"] for e in entries],
        getattr(learner, "best_step_", None),
        entries[0]["validation"] if getattr(learner, "init", None) == "identity" else None,
        name,
        getattr(learner, "validation_measure", "mAP"),
    )


def _write_csv(file: Path, header: Sequence[str], rows) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(file, text.getvalue())
