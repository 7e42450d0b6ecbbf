"""Human evaluation: people judge the results of a learner, and are compared with each other.

Chechik, Sharma, Shalit, Bengio: Large Scale Online Learning of Image Similarity through Ranking, JMLR 11, 2010, section
5.2.3, figure 3 and appendix A. A task is a query, its 10 nearest images and 10 random ones that share no label with it,
mixed; a judge decides for each whether it is relevant, without knowing rank or learner. The measures are

    precision at k    share of relevant images among the first k, for each judge and query
    coherence         mean, over the images that a judge found relevant (or that the learner ranked), of the share of
                      the other judges who found it relevant, too

Tasks and decisions are in one SQLite file of the run, which is only appended to.
"""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.console import csv_text
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.append_only import AppendOnlyStore, append_row
from visterm.pipeline.store.files import write_bytes

from .figure import draw_figure
from .measures import (
    by_k,
    judge_coherence,
    nan_mean,
    nan_std,
    nan_to_none,
    precision_curves,
    ranking_coherence,
    spread,
    standard_error,
)
from .tasks import DECISIONS, Candidate, Study, Task

INSTRUCTIONS = """\
Somebody looks for pictures for a presentation. A search has found the query image, and is to find more that are
similar in meaning. Similar can mean many things: of a big red truck, any big red truck, any red truck, any big truck,
any truck, any vehicle. Take it in a broad rather than a strict sense; where to draw the line is yours to choose, but
stay with it.

Say of each image whether it is relevant to the query image, or that you cannot say."""


_ENOUGH, _RECENT = 3, 30  # decisions that the time left follows from: at least, and at most


class JudgingTask(TypedDict):
    """An image to judge and its query, without rank, learner and path (which often names the class)."""

    task: int
    query: int
    image: int
    position: int


class JudgingProgress(TypedDict):
    """A judge's progress in the latest study, and the next image; paths stay hidden, as they often name the class."""

    judge: str
    study: int
    done: int
    total: int
    query_index: int
    n_queries: int
    seconds_left: Annotated[
        float | None, Field(description="Time for the rest at this judge's pace; null: not known yet")
    ]
    task: Annotated[JudgingTask | None, Field(description="null: all images are judged")]


class JudgeFigures(TypedDict):
    """A judge's progress and figures."""

    judge: str
    done: int
    total: int
    tasks_done: int
    unsure: int
    seconds: Annotated[float | None, Field(description="Median per decision")]
    precision_at: dict[str, float | None]
    coherence: float | None


class JudgedQuery(TypedDict):
    """The figures of one judged query."""

    query: int
    path: str
    judges: int
    precision_at: dict[str, float | None]
    deviation: float | None
    coherence: float | None
    judge_coherence: float | None


class JudgingResults(TypedDict):
    """The figures of a human evaluation; null without decisions."""

    study: int
    learner: str
    version: str
    time: str
    k: int
    precision_at: dict[str, float | None]
    standard_error_at: dict[str, float | None]
    random_relevant: Annotated[float | None, Field(description="Share of random images that judges found relevant")]
    deviation_over_queries: float | None
    deviation_over_judges: float | None
    judges: list[JudgeFigures]
    queries: list[JudgedQuery]


class Judgements(AppendOnlyStore):
    """The tasks of a run's human evaluation and what judges decided.

    A study is a set of tasks for one model; the latest one is open for decisions. Each judge sees the images of a task
    in an order of their own, which follows from a stored seed. A judge's last decision on an image stands.
    """

    what = "the decision"
    schema = """
CREATE TABLE studies (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    learner TEXT NOT NULL,
    version TEXT NOT NULL,
    seed INTEGER NOT NULL,
    k INTEGER NOT NULL,
    tasks TEXT NOT NULL         -- JSON: [[query, [candidate, ...]], ...], each [id, path, sha256, rank]
);

CREATE TABLE decisions (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    study INTEGER NOT NULL REFERENCES studies,
    judge TEXT NOT NULL,
    task INTEGER NOT NULL,      -- from 0
    image INTEGER NOT NULL,     -- id of the candidate
    position INTEGER NOT NULL,  -- where it was shown, from 0
    decision TEXT CHECK (decision IN ('relevant', 'not', 'unsure')),  -- null: none stands after an undo
    seconds REAL,
    undoes INTEGER UNIQUE
);

CREATE INDEX by_judge ON decisions (study, judge);

CREATE TRIGGER no_update BEFORE UPDATE ON decisions BEGIN SELECT RAISE(ABORT, 'decisions are only added'); END;

CREATE TRIGGER no_delete BEFORE DELETE ON decisions BEGIN SELECT RAISE(ABORT, 'decisions are only added'); END
"""

    def create(self, tasks: Sequence[Task], *, learner: str, version: str, seed: int = 0) -> int:
        """Save a new study of the tasks from `draw_tasks`, open it for decisions, and return its number, from 1."""
        k = sum(candidate.rank is not None for candidate in tasks[0].candidates)
        with self._writing() as db:
            row = {"learner": learner, "version": version, "seed": seed, "k": k, "tasks": json.dumps(tasks)}
            return append_row(db, "studies", row)

    def study(self, number: int | None = None) -> Study:
        """Return a study, by default the latest."""
        with self._reading() as db:
            row = (
                db
                and db.execute(
                    "SELECT number, time, learner, version, seed, k, tasks FROM studies WHERE number = ? OR ? IS NULL "
                    "ORDER BY number DESC LIMIT 1",
                    (number, number),
                ).fetchone()
            )
        if not row:
            which = "no tasks yet" if number is None else f"no study {number}"
            raise UserError(f"{self.file}: {which}; run 'visterm judge' to draw some")
        tasks = [
            Task(Candidate(*query), [Candidate(*c) for c in candidates]) for query, candidates in json.loads(row[6])
        ]
        return Study._make((*row[:6], tasks))

    def next(self, judge: str) -> JudgingProgress:
        """Return a judge's progress in the latest study and the next image; others' decisions stay hidden."""
        judge, study = _check_judge(judge), self.study()
        decided = self._standing(study.number, judge)
        total = sum(len(task.candidates) for task in study.tasks)
        recent = [seconds for decision in decided.values() if (seconds := decision["seconds"]) is not None][-_RECENT:]
        enough = len(recent) >= _ENOUGH
        progress: JudgingProgress = {
            "judge": judge,
            "study": study.number,
            "done": len(decided),
            "total": total,
            "task": None,
            "query_index": len(study.tasks),
            "n_queries": len(study.tasks),
            "seconds_left": round(float(np.median(recent)) * (total - len(decided)), 1) if enough else None,
        }
        for number, task in enumerate(study.tasks):
            for position, candidate in enumerate(_order(study, number, judge)):
                if (judge, number, candidate.id) not in decided:
                    asked: JudgingTask = {
                        "task": number,
                        "query": task.query.id,
                        "image": candidate.id,
                        "position": position,
                    }
                    return {**progress, "query_index": number, "task": asked}
        return progress

    def decide(self, judge: str, task: int, image: int, decision: str, *, seconds: float | None = None) -> int:
        """Save a decision in the latest study on disk and return its number; the last one on an image counts."""
        judge, study = _check_judge(judge), self.study()
        if decision not in DECISIONS:
            raise UserError(f"decision must be {', '.join(DECISIONS)}; not {decision!r}")
        if isinstance(task, bool) or not isinstance(task, int) or not 0 <= task < len(study.tasks):
            raise UserError(f"study {study.number} has no task {task!r}; they go from 0 to {len(study.tasks) - 1}")
        shown = [candidate.id for candidate in _order(study, task, judge)]
        if image not in shown:
            raise UserError(f"task {task} of study {study.number} has no image {image!r}")
        if seconds is not None and not 0 <= seconds < 1e6:
            seconds = None
        with self._writing() as db:
            row = {"study": study.number, "judge": judge, "task": task, "image": image, "decision": decision}
            return append_row(db, "decisions", row | {"position": shown.index(image), "seconds": seconds})

    def undo(self, judge: str) -> dict[str, Any] | None:
        """Undo the last decision of a judge in the latest study; `next` then asks for it again.

        Returns the ``task``, ``image`` and ``decision`` that was undone; None if there is nothing to undo.
        """
        judge, study = _check_judge(judge), self.study()
        with self._writing() as db:
            rows = db.execute(
                "SELECT number, task, image, position, decision FROM decisions WHERE study = ? AND judge = ? "
                "AND undoes IS NULL AND number NOT IN (SELECT undoes FROM decisions WHERE undoes IS NOT NULL) "
                "ORDER BY number DESC",
                (study.number, judge),
            ).fetchall()
            if not rows:
                return None
            number, task, image, position, decision = rows[0]
            before = next((row[4] for row in rows[1:] if row[1:3] == (task, image)), None)
            row = {"study": study.number, "judge": judge, "task": task, "image": image, "decision": before}
            append_row(db, "decisions", row | {"position": position, "undoes": number})
        return {"task": task, "image": image, "decision": decision}

    def _standing(self, study: int, judge: str | None = None) -> dict[tuple[str, int, int], dict[str, Any]]:
        """Standing decisions by judge, task and image."""
        names = ("judge", "task", "image", "decision", "position", "seconds", "time")
        which = "study = ? AND (judge = ? OR ? IS NULL) ORDER BY number"
        with self._reading() as db:
            sql = f"SELECT {', '.join(names)} FROM decisions WHERE {which}"
            rows = [] if db is None else db.execute(sql, (study, judge, judge)).fetchall()
        last = {row[:3]: dict(zip(names, row, strict=True)) for row in rows}
        return {key: decision for key, decision in last.items() if decision["decision"] is not None}

    def decisions(self, study: Study) -> tuple[list[str], np.ndarray]:
        """Names of the judges, and their decisions: float (n_judges, n_queries, most candidates), ranked ones first.

        NaN where a judge cannot say. A task counts for a judge once all its images are decided; before that it is NaN.
        """
        standing = self._standing(study.number)
        judges = sorted({judge for judge, _, _ in standing})
        shape = (len(judges), len(study.tasks), max(len(task.candidates) for task in study.tasks))
        decisions = np.full(shape, np.nan)
        for row, judge in enumerate(judges):
            for number, task in enumerate(study.tasks):
                own = [standing.get((judge, number, candidate.id)) for candidate in task.candidates]
                if all(own):
                    decisions[row, number, : len(own)] = [DECISIONS[made["decision"]] for made in own if made]
        return judges, decisions

    def results(self, number: int | None = None) -> JudgingResults:
        """Return the figures of a study, by default the latest.

        Precision of the study is the mean over queries of the mean over judges, its standard error is over queries. A
        query has the ``coherence`` of the learner and the ``judge_coherence`` of its judges.
        """
        study = self.study(number)
        judges, decisions = self.decisions(study)
        standing = self._standing(study.number)
        curves = precision_curves(decisions[:, :, : study.k])
        by_query = nan_mean(curves, axis=0)  # (n_queries, k)
        coherence, of_learner = judge_coherence(decisions), ranking_coherence(decisions[:, :, : study.k])
        over_queries, over_judges = spread(decisions[:, :, : study.k])
        results: dict[str, Any] = {
            "study": study.number,
            "learner": study.learner,
            "version": study.version,
            "time": study.time,
            "k": study.k,
            "precision_at": by_k(nan_mean(by_query, axis=0)),
            "standard_error_at": by_k(standard_error(by_query, axis=0)),
            "random_relevant": float(nan_mean(decisions[:, :, study.k :])),
            "deviation_over_queries": over_queries,
            "deviation_over_judges": over_judges,
            "judges": [],
            "queries": [],
        }
        for row, judge in enumerate(judges):
            own = [decision for decision in standing.values() if decision["judge"] == judge]
            seconds = [decision["seconds"] for decision in own if decision["seconds"] is not None]
            results["judges"].append(
                {
                    "judge": judge,
                    "done": len(own),
                    "total": sum(len(task.candidates) for task in study.tasks),
                    "tasks_done": int((~np.isnan(curves[row])).any(axis=1).sum()),
                    "unsure": sum(decision["decision"] == "unsure" for decision in own),
                    "seconds": float(np.median(seconds)) if seconds else None,
                    "precision_at": by_k(nan_mean(curves[row], axis=0)),
                    "coherence": float(nan_mean(coherence[row])),
                }
            )
        for column, task in enumerate(study.tasks):
            results["queries"].append(
                {
                    "query": task.query.id,
                    "path": task.query.path,
                    "judges": int((~np.isnan(curves[:, column])).any(axis=1).sum()),
                    "precision_at": by_k(by_query[column]),
                    "deviation": float(nan_std(curves[:, column, -1], axis=0)),
                    "coherence": float(of_learner[column]),
                    "judge_coherence": float(nan_mean(coherence[:, column])),
                }
            )
        return nan_to_none(results)

    def rows(self, number: int | None = None) -> list[dict[str, Any]]:
        """Every standing decision with its query and image, for CSV and JSON."""
        study = self.study(number)
        rows = []
        for decision in self._standing(study.number).values():
            task = study.tasks[decision["task"]]
            candidate = next(c for c in task.candidates if c.id == decision["image"])
            rows.append(
                {
                    "study": study.number,
                    "learner": study.learner,
                    "version": study.version,
                    "task": decision["task"],
                    "query": task.query.id,
                    "query_path": task.query.path,
                    "query_sha256": task.query.sha256,
                    "image": candidate.id,
                    "path": candidate.path,
                    "sha256": candidate.sha256,
                    "rank": candidate.rank,
                }
                | decision
            )
        return sorted(rows, key=lambda row: (row["task"], row["image"], row["judge"]))

    def qrels(self, number: int | None = None) -> str:
        """Return relevance in the format of TREC, ``query 0 image relevance`` per line, with ids.

        Relevance is 1 if more than half of the judges who could say found the image relevant; an image that nobody
        could judge is skipped. Decisions on tasks that are not finished count, too.
        """
        votes: dict[tuple[int, int, int], list[float]] = {}
        for row in self.rows(number):
            votes.setdefault((row["task"], row["query"], row["image"]), []).append(DECISIONS[row["decision"]])
        lines = []
        for (_, query, image), cast in votes.items():
            known = [vote for vote in cast if not np.isnan(vote)]
            if known:
                lines.append(f"{query} 0 {image} {int(2 * sum(known) > len(known))}\n")
        return "".join(lines)

    def csv(self, number: int | None = None) -> str:
        """The rows as CSV, which spreadsheets can open safely; see `csv_cells`."""
        rows = self.rows(number)
        return csv_text(rows[0], (row.values() for row in rows)) if rows else ""

    def draw(self, file: str | os.PathLike[str], number: int | None = None) -> None:
        """Write figure 3 of the paper, B to D, as PNG: precision at k, of some queries, and coherence."""
        study = self.study(number)
        judges, decisions = self.decisions(study)
        if not (~np.isnan(decisions)).any():
            raise UserError(f"study {study.number}: no judge has finished a task yet")
        figure = draw_figure(study, judges, decisions)
        png = io.BytesIO()
        figure.savefig(png, format="png")
        write_bytes(Path(file), png.getvalue())


def _order(study: Study, task: int, judge: str) -> list[Candidate]:
    """Candidates of a task in the order that a judge sees them in."""
    candidates = study.tasks[task].candidates
    return random.Random(f"{study.seed} {study.number} {task} {judge}").sample(candidates, len(candidates))


def _check_judge(judge: str) -> str:
    name = judge.strip() if isinstance(judge, str) else ""
    if not 1 <= len(name) <= 60 or not name.isprintable():
        raise UserError("the name of a judge must have 1 to 60 printable characters")
    return name
