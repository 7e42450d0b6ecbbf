"""Figures of an evaluation for people: labels, the best and worst queries, and which labels are confused."""

from __future__ import annotations

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visterm.pipeline.errors import UserError
from visterm.pipeline.report.data import each_label_first
from visterm.pipeline.store.records import read_metrics

RESULTS = 10  # of a query that are looked at: as many as neighbours.csv has


def read_figures(folder: Path, *, n_queries: int = 8, n_confusions: int = 20) -> dict[str, Any]:
    """Read the figures of ``runs/<run>/evaluations/<name>``; UserError if a file is missing or damaged.

    Returns
    -------
    dict
        - ``learner``: the system that the figures are of, and ``baseline``: "cosine", or None if that is the same;
        - ``measure``: "mAP";
        - ``labels``: ``{"label", "queries", "learner", "baseline"}`` each, the mean of the measure over its queries,
          best first;
        - ``best`` and ``worst``, `n_queries` of each: ``{"query", "labels", "value", "baseline", "first_relevant",
          "results"}``, with ``{"path", "labels", "relevant"}`` per result; the best are of different labels;
        - ``confusions``, `n_confusions`: ``{"label", "taken_for", "share", "queries"}`` each: the share of the first
          results of a label's queries that have another label, the largest first.
    """
    metrics = read_metrics(folder)
    learner = next(iter(metrics["systems"]))
    baseline = "cosine" if learner != "cosine" and "cosine" in metrics["systems"] else None
    try:
        results = _results(folder / "neighbours.csv", learner)
        queries = _queries(folder / "queries.csv", learner, baseline)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error)
    else:
        measured = [query for query in queries if query["value"] is not None]
        ranked = sorted(measured, key=lambda query: (-query["value"], query["query"]))
        for query in queries:
            query["results"] = results.get(query["query"], [])
        return {
            "learner": learner,
            "baseline": baseline,
            "measure": "mAP",
            "n_queries": len(queries),
            "labels": _labels(measured),
            "best": different(ranked, n_queries),
            "worst": ranked[::-1][:n_queries],
            "confusions": _confusions(queries, n_confusions),
        }
    raise UserError(f"{folder}: damaged figures ({reason}); run 'visterm evaluate --force' to rebuild them")


def different(ranked: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    """The first queries by their first labels: see `each_label_first`."""
    return each_label_first(ranked, lambda query: query["labels"][:1] and query["labels"][0])[:n]


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with open(file, encoding="utf-8", errors="surrogateescape", newline="") as stream:
        yield from csv.DictReader(stream)


def _split(labels: str) -> list[str]:
    return labels.split(";") if labels else []


def _results(file: Path, system: str) -> dict[str, list[dict[str, Any]]]:
    """First results of each query."""
    results = defaultdict(list)
    for row in _rows(file):
        if row["system"] == system and int(row["rank"]) <= RESULTS:
            relevant = row["relevant"] == "1"
            results[row["query"]].append({"path": row["path"], "labels": _split(row["labels"]), "relevant": relevant})
    return results


def _queries(file: Path, learner: str, baseline: str | None) -> list[dict[str, Any]]:
    """Return the queries with their average precision."""
    queries: dict[str, dict[str, Any]] = {}
    others: dict[str, float | None] = {}
    for row in _rows(file):
        value = float(row["average_precision"]) if row["average_precision"] else None
        if row["system"] == learner:
            queries[row["query"]] = {
                "query": row["query"],
                "labels": _split(row["labels"]),
                "value": value,
                "first_relevant": int(row["first_relevant"]) if row["first_relevant"] else None,
            }
        elif row["system"] == baseline:
            others[row["query"]] = value
    return [query | {"baseline": others.get(name)} for name, query in queries.items()]


def _labels(queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    of_label = defaultdict(list)
    for query in queries:
        for label in query["labels"]:
            of_label[label].append(query)
    rows = [
        {
            "label": label,
            "queries": len(of_one),
            "learner": _mean([query["value"] for query in of_one]),
            "baseline": _mean([query["baseline"] for query in of_one]),
        }
        for label, of_one in of_label.items()
    ]
    return sorted(rows, key=lambda row: (-(row["learner"] or 0), row["label"]))


def _confusions(queries: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    wrong: dict[str, Counter[str]] = defaultdict(Counter)
    shown: Counter[str] = Counter()
    n_queries: Counter[str] = Counter()
    for query in queries:
        for label in query["labels"]:
            n_queries[label] += 1
            shown[label] += len(query["results"])
            for result in query["results"]:
                if not result["relevant"]:
                    wrong[label].update(result["labels"])
    pairs: list[dict[str, Any]] = [
        {"label": label, "taken_for": taken_for, "share": round(count / shown[label], 4), "queries": n_queries[label]}
        for label, others in wrong.items()
        for taken_for, count in others.items()
    ]
    return sorted(pairs, key=lambda pair: (-pair["share"], pair["label"], pair["taken_for"]))[:n]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return round(sum(known) / len(known), 6) if known else None
