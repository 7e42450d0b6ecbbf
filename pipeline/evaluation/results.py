"""Writes the files of an evaluation: metrics.json, CSV tables, the precision curve and the report."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

from visterm.features import read_image
from visterm.learners import SimilarityLearner
from visterm.pipeline.console import csv_text, without_password
from visterm.pipeline.report.charts import write_precision_curve
from visterm.pipeline.report.data import (
    HeldOut,
    History,
    Hits,
    LabelTable,
    OpenFigures,
    Query,
    ReportData,
    Result,
    System,
)
from visterm.pipeline.report.page import render_report
from visterm.pipeline.report.text import without_folders
from visterm.pipeline.store.files import write_bytes, write_text
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.recommendation import recommend
from visterm.pipeline.store.records import LIBRARIES, fingerprint, version
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.tuning import tuned_settings, tuned_text
from visterm.retrieval import Evaluation, Ranking, compare

from .measure import EvalTask, SystemResult
from .worlds import below_cosine, held_out_of

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

KS = (1, 10, 50)  # precision at k in metrics.json and in the report's table
SIDE_BY_SIDE = 6  # queries shown with the results of every learner
TAKE_CELLS = (
    "These vectors count visterms in the whole image. To learn a similarity of photos, above all of objects, take "
    "configs/spatial.yaml, which counts them per cell of the image, if longer training does not matter."
)


class Evaluated(NamedTuple):
    """Measurements, and their texts for the report."""

    run: OpenedRun
    systems: dict[str, SystemResult]  # the learners, then cosine; the report shows results of the first as pictures
    task: EvalTask
    warnings: Sequence[str]
    seconds: float  # of ranking
    command: str  # the command line
    open_world: dict[str, Any] | None = None  # what the protocol open adds to metrics.json
    copies: Any = None  # test images that are among the training ones, see `find_copies`


def write_results(folder: Path, evaluated: Evaluated) -> None:
    """Write all files of an evaluation into a folder."""
    run, systems, task, *_ = evaluated
    config, root = run.config, run.catalogue.root or Path()
    first = next(iter(systems.values())).evaluation
    metrics: dict[str, Any] = {
        "protocol": config.evaluate.protocol,
        "n_queries": first.n_queries,
        "n_without_relevant": first.n_without_relevant,
        "n_gallery": len(task.gallery),
        "n_classes": len(np.unique(task.groups[first.counted])),
        "systems": {name: _figures(run, name, system) for name, system in systems.items()},
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
        # The accuracy of a label drawn at random from those of the training images.
        metrics["systems"]["chance"]["knn_accuracy"] = len(tested & trained) / (len(tested) * len(trained))
    if evaluated.open_world is not None:
        metrics["open"] = evaluated.open_world
    evaluations = {name: system.evaluation for name, system in systems.items()}
    if (copies := evaluated.copies) is not None and copies.pairs:
        metrics["copies"] = copies.as_json(evaluations)
    if (recommended := recommend({name: system.trained["result"] for name, system in systems.items()})) is not None:
        metrics["recommended"] = recommended
    write_text(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")

    curves = {name: system.evaluation.precision_curve for name, system in systems.items()}
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
            [query.path, rank, r.path, f"{r.score:.6f}", ";".join(r.labels), int(r.relevant), name]
            for name in list(systems)[: max(1, len(systems) - 1)]  # cosine only if it is the only one
            for row, query in enumerate(task.queries)
            for rank, r in enumerate(_results(systems[name].ranking, task, row), start=1)
        ),
    )

    _write_csv(
        folder / "queries.csv",
        ["query", "labels", "system", "average_precision", "first_relevant", "precision_at_10"],
        (
            [query.path, ";".join(sorted(query.labels)), name, *_hit_fields(_hits(system.evaluation, row))]
            for name, system in systems.items()
            for row, query in enumerate(task.queries)
        ),
    )

    annotations = {name: system.annotation for name, system in systems.items() if system.annotation}
    per_label = [(name, row) for name, annotation in annotations.items() for row in annotation.per_label]
    if per_label:
        _write_csv(
            folder / "labels.csv",
            ["system", "label", "images", "precision", "recall"],
            ([name, row.label, row.n_images, f"{row.precision:.6f}", f"{row.recall:.6f}"] for name, row in per_label),
        )

    data = _report_data(evaluated, metrics, curves)
    write_precision_curve(folder, data)
    page = render_report(data, lambda path: read_image(root / path, max_pixels=config.collection.max_pixels))
    write_bytes(folder / "report.html", page)


def _ks(evaluation: Evaluation) -> list[int]:
    return [k for k in KS if k <= evaluation.max_k]


def _figures(run: Run, name: str, system: SystemResult) -> dict[str, Any]:
    """Return the figures of one system as in metrics.json."""
    evaluation = system.evaluation
    intervals = [list(evaluation.map_interval()), list(evaluation.map_interval(of_classes=True))]
    if math.isnan(intervals[1][0]):  # of one class
        del intervals[1]
    figures: dict[str, Any] = {
        "map": evaluation.mean_average_precision,
        "map_interval": intervals[-1],
        "map_interval_by_query": intervals[0],
        "precision_at": {str(k): evaluation.precision_at(k) for k in _ks(evaluation)},
        "recall_at": {str(k): evaluation.recall_at(k) for k in _ks(evaluation)},
        "ndcg_at": {str(k): evaluation.ndcg_at(k) for k in _ks(evaluation)},
        "r_precision": evaluation.mean_r_precision,
        "map_at_r": evaluation.mean_map_at_r,
    }
    if system.alone is not None:
        figures |= {"map_alone": system.alone.mean_average_precision, "p1_alone": system.alone.precision_at(1)}
    if system.accuracy is not None:
        figures["knn_accuracy"] = system.accuracy
    if system.annotation is not None:
        figures["annotation"] = system.annotation.as_json()
    if result := system.trained["result"]:
        figures |= {"steps": result["steps"], "train_seconds": result["seconds"]}
        if (learned := result.get("learned_weight", 1)) != 1:
            figures["learned_weight"] = learned
        if held_out := held_out_of(result):
            figures["held_out"] = held_out
    if tuned := tuned_settings(run, name, system.trained):
        figures["tuned"] = tuned
    return figures


def _more_measures(figures: dict[str, Any]) -> dict[str, float]:
    """Return the figures that other fields use, by their titles; none of chance."""
    if "r_precision" not in figures:
        return {}
    titles = {"recall_at": "recall@", "ndcg_at": "nDCG@"}
    at_k = {f"{title}{k}": value for key, title in titles.items() for k, value in figures[key].items()}
    return {"R-precision": figures["r_precision"], "MAP@R": figures["map_at_r"]} | at_k


def _results(ranking: Ranking, task: EvalTask, row: int) -> tuple[Result, ...]:
    """Return the first results of one query."""
    relevance = task.relevance
    relevant = set(relevance.indices[relevance.indptr[row] : relevance.indptr[row + 1]])
    results = []
    for i, score in zip(ranking.indices[row], ranking.scores[row], strict=True):
        if i >= 0:
            image = task.gallery[i]
            results.append(Result(image.path, tuple(sorted(image.labels)), int(i) in relevant, float(score)))
    return tuple(results)


def _hits(evaluation: Evaluation, row: int) -> Hits:
    return Hits(
        float(evaluation.average_precision[row]),
        int(evaluation.first_relevant[row]),
        float(evaluation.precision[row, 9]) if evaluation.max_k >= 10 else None,
    )


def _hit_fields(hits: Hits) -> list[str]:
    """Return the fields of a query in queries.csv; empty where there is no figure."""
    ap, at_10 = hits.average_precision, hits.precision_at_10
    return [
        "" if math.isnan(ap) else f"{ap:.6f}",
        str(hits.first_relevant or ""),
        "" if at_10 is None else f"{at_10:.6f}",
    ]


def _report_data(evaluated: Evaluated, metrics: dict[str, Any], curves: dict[str, np.ndarray]) -> ReportData:
    run, systems, task, warnings, seconds, command, *_ = evaluated
    config, first = run.config, next(iter(systems.values()))
    evaluation, baseline = first.evaluation, systems["cosine"].evaluation
    learners = [name for name in systems if name != "cosine"]
    best = max(learners, key=lambda name: metrics["systems"][name]["map"]) if len(learners) > 1 else None
    of_queries, rows = task.groups, []
    for name, figures in metrics["systems"].items():
        annotation = systems[name].annotation if name in systems else None
        rows.append(
            System(
                name,
                figures["map"],
                interval=tuple(figures["map_interval"]) if "map_interval" in figures else None,
                query_interval=tuple(figures["map_interval_by_query"]) if "map_interval" in figures else None,
                map_alone=figures.get("map_alone"),
                precision_at={int(k): value for k, value in figures["precision_at"].items()},
                more_measures=_more_measures(figures),
                precision_curve=curves[name].tolist(),
                steps=figures.get("steps"),
                train_seconds=figures.get("train_seconds"),
                comparison=compare(systems[name].evaluation, baseline, groups=of_queries) if name in learners else None,
                p_of_best=_p_of_best(systems, name, best, of_queries) if name in learners else None,
                knn_accuracy=figures.get("knn_accuracy"),
                label_precision_at=annotation.precision_at if annotation else {},
                sibling_precision_at=annotation.sibling_precision_at if annotation else {},
                label_table=LabelTable(annotation.labels_per_image, annotation.per_label)
                if annotation and annotation.per_label
                else None,
                learned_weight=figures.get("learned_weight", 1.0),
                held_out={world: HeldOut(**row) for world, row in figures.get("held_out", {}).items()},
            )
        )
    collected = run.record(run.collection)
    durations = {"features": collected["result"]["seconds"]} if collected else {}
    for name in learners:
        durations["train" if len(learners) == 1 else f"train {name}"] = metrics["systems"][name]["train_seconds"]
    queries = tuple(
        Query(
            query.path,
            tuple(sorted(query.labels)),
            _hits(evaluation, row),
            _hits(baseline, row) if learners else None,
            _results(first.ranking, task, row),
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
        n_classes=metrics["n_classes"],
        protocol=config.evaluate.protocol,
        accuracy_neighbours=metrics["accuracy"]["neighbours"] if "accuracy" in metrics else None,
        histories=tuple(h for name in learners if (h := _history(name, systems[name].learner)) is not None),
        side_by_side=_side_by_side(queries, systems, task) if len(learners) > 1 else (),
        class_splits=metrics["open"]["n_splits"] if "open" in metrics else 0,
        open_systems={
            name: {world: OpenFigures(**of_world) for world, of_world in worlds.items()}
            for name, worlds in metrics.get("open", {}).get("systems", {}).items()
        },
        groups={name: groups for name in learners if (groups := _groups(systems[name].learner)) is not None},
        warnings=tuple(
            map(without_folders, (*warnings, *_learner_warnings(systems, task), *below_cosine(metrics["systems"])))
        ),
        facts={
            "Date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "Command": without_folders(command),
            "visterm": version("visterm"),
            "Run": without_folders(str(run.folder)),
            "Images": fingerprint([[image.path, image.sha256] for image in (*task.queries, *task.gallery)]),
            "Seed": f"{config.seed}, fold {config.split.seed}",
            **_tuned(run, systems),
            "Cores": str(os.cpu_count()),
        },
        durations=durations | {"rank": seconds},
        environment={"Python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
        | {package: version(package) for package in LIBRARIES},
        config=_config_shown(config, systems),
        closing=TAKE_CELLS if config.counts_visterms and config.features.cells == [1] else "",
    )


def _tuned(run: Run, systems: dict[str, SystemResult]) -> dict[str, str]:
    """Return what tuning chose for the learners that were trained with it."""
    tuned = {name: tuned_text(tuned_settings(run, name, system.trained)) for name, system in systems.items()}
    text = "; ".join(f"{name}: {settings}" for name, settings in tuned.items() if settings)
    return {"Tuned settings": f"{text} (visterm tune, on training images alone)"} if text else {}


def _p_of_best(systems: dict[str, SystemResult], name: str, best: str | None, groups: np.ndarray) -> float | None:
    """Return the p-value of the paired test against the learner with the highest mAP; None for that learner itself."""
    if best in (None, name):
        return None
    return compare(systems[best].evaluation, systems[name].evaluation, groups=groups).p_value


def _config_shown(config: Config, systems: dict[str, SystemResult]) -> str:
    """Return the configuration with the sections that the learners were trained with, without other learners."""
    shown = config.model_dump()
    if config.index.uri is not None:  # reports are passed on
        shown["index"]["uri"] = without_password(config.index.uri)
    for name in TRAINED:
        if name not in systems:
            shown.pop(name, None)
    for system in systems.values():
        shown |= system.trained["config"]
    return yaml.safe_dump(_without_folders(shown), sort_keys=False, allow_unicode=True)


def _without_folders(value: Any) -> Any:
    """Shorten the absolute paths among settings."""
    if isinstance(value, dict):
        return {key: _without_folders(inner) for key, inner in value.items()}
    return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value


def _side_by_side(
    queries: Sequence[Query], systems: dict[str, SystemResult], task: EvalTask
) -> tuple[tuple[Query, dict[str, tuple[Result, ...]]], ...]:
    """Return some queries with the results of every system, spread from the first learner's best to its worst."""
    with_relevant = [row for row, query in enumerate(queries) if not math.isnan(query.learner.average_precision)]
    order = sorted(with_relevant, key=lambda row: -queries[row].learner.average_precision)
    chosen = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, SIDE_BY_SIDE).astype(int))]
    return tuple(
        (queries[row], {name: _results(system.ranking, task, row) for name, system in systems.items()})
        for row in chosen
    )


def _groups(learner: Any) -> list[list[str]] | None:
    """Return the categories of each metric of a learner with several metrics (MuSL), or None."""
    metric_of = getattr(learner, "metric_of_category_", None)
    if metric_of is None:
        return None
    groups: list[list[str]] = [[] for _ in range(max(metric_of) + 1)]
    for name, metric in zip(learner.classes_.tolist(), metric_of, strict=True):
        groups[metric].append(str(name))
    return groups


def _learner_warnings(systems: dict[str, SystemResult], task: EvalTask) -> list[str]:
    """Return warnings about how single learners were measured."""
    if not task.own and task.classes is not None:
        return []
    why = "they are what is measured" if task.own else "an image may have several"
    return [
        f"{name} ranks without the labels of the ranked images ({why}), which choose its metrics: all metrics count "
        "equally"
        for name, system in systems.items()
        if system.learner.by_category
    ]


def _history(name: str, learner: SimilarityLearner) -> History | None:
    """Return the validation history, with cosine's mAP on the same images."""
    entries = [e for e in getattr(learner, "history_", None) or [] if e.get("validation") is not None]
    if len(entries) < 2:
        return None
    measure = getattr(learner, "validation_measure", "mAP")
    return History(
        [e["step"] for e in entries],
        [e["validation"] for e in entries],
        getattr(learner, "best_step_", None),
        getattr(learner, "cosine_map_", None) if measure == "mAP" else None,
        name,
        measure,
    )


def _write_csv(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    write_text(file, csv_text(header, rows))
