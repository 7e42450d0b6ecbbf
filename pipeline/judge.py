"""Human evaluation: people judge what a learner finds, and each other.

Chechik, Sharma, Shalit, Bengio: Large Scale Online Learning of Image Similarity through Ranking, JMLR 11, 2010, section
5.2.3, figure 3 and appendix A. A task is a query, its 10 nearest images and 10 random ones that share no label with it,
mixed; a judge says of each whether it is relevant, and is told neither rank nor learner. From the decisions come

    precision at k    share of relevant images among the first k, for each judge and query
    coherence         of an image that a judge found relevant (or that the learner ranked), the share of the other
                      judges who found it relevant, too; mean over those images

Tasks and decisions lie in one SQLite file of the run, and are only added to.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import UserError
from .store.append_only import Ledger
from .store.catalogue import Image
from .store.files import write_bytes

if TYPE_CHECKING:
    from .search.searcher import Searcher

DECISIONS = {"relevant": 1.0, "not": 0.0, "unsure": np.nan}  # and what they count as
N_QUERIES, K, N_RANDOM = 25, 10, 10  # of the paper

INSTRUCTIONS = """\
Somebody looks for pictures for a presentation. A search has found the query image, and is to find more that are
similar in meaning. Similar can mean many things: of a big red truck, any big red truck, any red truck, any big truck,
any truck, any vehicle. Take it in a broad rather than a strict sense; where to draw the line is yours to choose, but
stay with it.

Say of each image whether it is relevant to the query image, or that you cannot say."""


# ------------------------------------------------------------------------------------------------------------ measures
#
# Decisions are float (n_judges, n_queries, n_images): 1 relevant, 0 not, NaN for "cannot say" and for what was not
# judged. NaN takes no part: not among the relevant ones, and not among those that they are a share of.


def precision_curves(decisions: np.ndarray) -> np.ndarray:
    """Precision at k for each judge and query.

    Parameters
    ----------
    decisions : float array of shape (n_judges, n_queries, k)
        On the ranked images, best first.

    Returns
    -------
    float64 array of shape (n_judges, n_queries, k)
        Column k - 1 is the share of relevant images among the first k; NaN where the judge said nothing of them.

    Examples
    --------
    >>> precision_curves(np.array([[[1, 0, np.nan, 1]]])).tolist() == [[[1 / 1, 1 / 2, 1 / 2, 2 / 3]]]
    True
    """
    said = ~np.isnan(decisions)
    relevant = np.cumsum(np.where(said, decisions, 0.0), axis=-1)
    return _ratio(relevant, np.cumsum(said, axis=-1))


def spread(curves: np.ndarray) -> tuple[float, float]:
    """How much queries differ, and how much judges do.

    Parameters
    ----------
    curves : float array of shape (n_judges, n_queries, k)
        Of `precision_curves`. The figure of a judge and a query is the mean of its curve.

    Returns
    -------
    float, float
        Standard deviation over queries, mean over judges; standard deviation over judges, mean over queries. NaN where
        there are fewer than two.
    """
    figures = _mean(curves, axis=2)  # (n_judges, n_queries)
    return float(_mean(_deviation(figures, axis=1), axis=0)), float(_mean(_deviation(figures, axis=0), axis=0))


def judge_coherence(decisions: np.ndarray) -> np.ndarray:
    """Precision of each judge with the decisions of the others as the truth.

    Parameters
    ----------
    decisions : float array of shape (n_judges, n_queries, n_images)
        On all images of a task.

    Returns
    -------
    float64 array of shape (n_judges, n_queries)
        Mean over the images that the judge found relevant of the share of other judges who did; NaN where there are
        none.
    """
    said = ~np.isnan(decisions)
    relevant = np.where(said, decisions, 0.0)
    # (n_judges, n_queries, n_images): of the other judges who said something, how many found it relevant
    share = _ratio(relevant.sum(axis=0) - relevant, said.sum(axis=0) - said)
    return _mean(np.where(relevant == 1.0, share, np.nan), axis=2)


def ranking_coherence(decisions: np.ndarray) -> np.ndarray:
    """Precision of a ranking with the decisions of all judges as the truth.

    Parameters
    ----------
    decisions : float array of shape (n_judges, n_queries, k)
        On the ranked images.

    Returns
    -------
    float64 array of shape (n_queries,)
        Mean over the images of the share of judges who found them relevant; NaN where nobody said anything.

    Notes
    -----
    Comparable with `judge_coherence`, whose truth is one judge short: leaving out one judge after the other and taking
    the mean gives the same figure where everybody judged everything.
    """
    return _mean(_mean(decisions, axis=0), axis=1)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0)


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is not NaN; NaN of nothing."""
    said = ~np.isnan(values)
    return _ratio(np.where(said, values, 0.0).sum(axis=axis), said.sum(axis=axis))


def _deviation(values: np.ndarray, axis: int) -> np.ndarray:
    """Standard deviation (n - 1) of what is not NaN; NaN of fewer than two."""
    mean = np.expand_dims(_mean(values, axis), axis)
    n = (~np.isnan(values)).sum(axis=axis)
    squares = _mean((values - mean) ** 2, axis)
    return np.where(n > 1, np.sqrt(squares * n / np.maximum(n - 1, 1)), np.nan)


# --------------------------------------------------------------------------------------------------------------- tasks


class Candidate(NamedTuple):
    """An image of a task."""

    id: int
    path: str
    sha256: str
    rank: int | None  # from 1; None of a random one


class Task(NamedTuple):
    """A query and what is to be judged, the ranked images first."""

    query: Candidate
    candidates: list[Candidate]


def draw_tasks(
    searcher: Searcher,
    learner: str,
    *,
    n_queries: int = N_QUERIES,
    k: int = K,
    n_random: int = N_RANDOM,
    seed: int = 0,
) -> list[Task]:
    """Choose queries at random, their nearest images, and random ones.

    Parameters
    ----------
    searcher : Searcher
    learner : str
        Whose ranking is judged.
    n_queries : int
        Or as many as there are.
    k, n_random : int
        Images of a task: ranked, and random.
    seed : int

    Returns
    -------
    list of Task

    Raises
    ------
    UserError
        Too few images.

    Notes
    -----
    Labelled test images query each other, as in `evaluate`; without any, all images do. As in the paper a query is
    passed over whose nearest images hold copies, and the random images are of other labels than the query. Where the
    paper takes the 25 queries with most clicks, these are drawn.
    """
    from visterm.retrieval import ExactIndex

    images, X = searcher.images, searcher.X
    rows = [row for row, image in enumerate(images) if image.split == "test" and image.labels]
    if len(rows) <= k + 1:
        rows = list(range(len(images)))
    if len(rows) <= k + 1:
        raise UserError(f"run {searcher.run.name}: {len(rows)} images are too few to judge the {k} nearest of them")
    labels = searcher.labels_for(learner)
    index = ExactIndex(
        searcher.learner(learner),
        X[rows],
        None if labels is None else labels[rows],
        n_jobs=searcher.config.compute.n_jobs,
    )
    rng = random.Random(seed)
    order = rng.sample(range(len(rows)), len(rows))
    tasks: list[Task] = []
    for start in range(0, len(order), 4 * n_queries):
        some = order[start : start + 4 * n_queries]
        ranking = index.search(X[[rows[i] for i in some]], k=k, exclude=some)
        for i, nearest in zip(some, ranking.indices.tolist(), strict=True):
            found = [images[rows[j]] for j in nearest if j >= 0]
            query = images[rows[i]]
            if len(found) < k or len({query.sha256, *(image.sha256 for image in found)}) <= k:
                continue
            others = _unrelated(query, found, [images[row] for row in rows], n_random, rng)
            ranked = [_candidate(image, rank) for rank, image in enumerate(found, start=1)]
            tasks.append(Task(_candidate(query), ranked + [_candidate(image) for image in others]))
            if len(tasks) == n_queries:
                return tasks
    if not tasks:
        raise UserError(f"run {searcher.run.name}: no query without copies among its {k} nearest images")
    return tasks


def _candidate(image: Image, rank: int | None = None) -> Candidate:
    return Candidate(image.id, image.path, image.sha256, rank)


def _unrelated(
    query: Image, found: Sequence[Image], images: Sequence[Image], n: int, rng: random.Random
) -> list[Image]:
    """Random images that share no label with the query and are not among those found: n, or as many as there are."""
    seen = {query.sha256, *(image.sha256 for image in found)}
    chosen: list[Image] = []
    for row in rng.sample(range(len(images)), len(images)):
        image = images[row]
        if len(chosen) == n:
            break
        if image.sha256 not in seen and query.labels.keys().isdisjoint(image.labels):
            seen.add(image.sha256)
            chosen.append(image)
    return chosen


# ----------------------------------------------------------------------------------------------------------- decisions


class Study(NamedTuple):
    """One set of tasks."""

    number: int
    time: str
    learner: str
    version: str  # of the model, as `create` was told
    seed: int
    k: int
    tasks: list[Task]


class Judgements(Ledger):
    """The tasks of a run's human evaluation and what judges decided.

    A study is a set of tasks for one model; the last one is gone on with until another is made. A judge sees the images
    of a task in an order of his own, which a stored seed decides. The last decision of a judge on an image stands.

    Parameters
    ----------
    file : Path
        ``runs/<run>/judgements.sqlite``; made with the first study.
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
        """Keep a new study; it is the one that judges go on with.

        Parameters
        ----------
        tasks : sequence of Task
            Of `draw_tasks`.
        learner, version : str
            Whose rankings they are.
        seed : int
            Decides the order in which each judge sees the images.

        Returns
        -------
        int
            Its number, from 1.
        """
        k = sum(candidate.rank is not None for candidate in tasks[0].candidates)
        with self._writing() as db:
            cursor = db.execute(
                "INSERT INTO studies (time, learner, version, seed, k, tasks) VALUES (?, ?, ?, ?, ?, ?)",
                (_now(), learner, version, seed, k, json.dumps(tasks)),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def study(self, number: int | None = None) -> Study:
        """Return a study, the last one unless named.

        Raises
        ------
        UserError
            There is none.
        """
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
            raise UserError(f"{self.file}: {which}; 'visterm judge' draws some")
        tasks = [Task(Candidate(*query), [Candidate(*c) for c in found]) for query, found in json.loads(row[6])]
        return Study._make((*row[:6], tasks))

    def next(self, judge: str) -> dict[str, Any]:
        """Say what a judge is to look at next, in the last study.

        Returns
        -------
        dict
            ``judge``, ``study``, ``done`` and ``total`` (images decided, and to decide), ``query_index`` (from 0) and
            ``n_queries``; ``task`` is None at the end, or a dict: ``task`` (its number), ``query`` and ``image`` (ids),
            ``position``. Nothing tells rank, learner, or what others decided; nor do paths, which often name the class.
        """
        judge, study = _check_judge(judge), self.study()
        decided = self._standing(study.number, judge)
        total = sum(len(task.candidates) for task in study.tasks)
        answer = {"judge": judge, "study": study.number, "done": len(decided), "total": total, "task": None}
        answer |= {"query_index": len(study.tasks), "n_queries": len(study.tasks)}
        for number, task in enumerate(study.tasks):
            for position, candidate in enumerate(_order(study, number, judge)):
                if (judge, number, candidate.id) not in decided:
                    answer["query_index"] = number
                    answer["task"] = {
                        "task": number,
                        "query": task.query.id,
                        "image": candidate.id,
                        "position": position,
                    }
                    return answer
        return answer

    def decide(self, judge: str, task: int, image: int, decision: str, *, seconds: float | None = None) -> int:
        """Keep a decision of the last study, on disk when this returns; a later one on the same image replaces it.

        Parameters
        ----------
        judge : str
            Name, 1 to 60 printable characters.
        task : int
            As `next` gave it.
        image : int
            Id of the candidate.
        decision : {"relevant", "not", "unsure"}
        seconds : float, optional
            That the judge took.

        Returns
        -------
        int
            Number of the decision.

        Raises
        ------
        UserError
            No such task, image or decision; the disk is full, and nothing was changed.
        """
        judge, study = _check_judge(judge), self.study()
        if decision not in DECISIONS:
            raise UserError(f"a decision is {', '.join(DECISIONS)}; not {decision!r}")
        if isinstance(task, bool) or not isinstance(task, int) or not 0 <= task < len(study.tasks):
            raise UserError(f"study {study.number} has no task {task!r}; they go from 0 to {len(study.tasks) - 1}")
        shown = [candidate.id for candidate in _order(study, task, judge)]
        if image not in shown:
            raise UserError(f"task {task} of study {study.number} has no image {image!r}")
        if seconds is not None and not 0 <= seconds < 1e6:
            seconds = None
        with self._writing() as db:
            return _insert(db, (study.number, judge, task, image, shown.index(image), decision, seconds, None))

    def undo(self, judge: str) -> dict[str, Any] | None:
        """Take back the last decision of a judge in the last study; `next` then asks for it again.

        Returns
        -------
        dict or None
            ``task``, ``image`` and the ``decision`` that was taken back; None where there is nothing to undo.
        """
        judge, study = _check_judge(judge), self.study()
        with self._writing() as db:
            found = db.execute(
                "SELECT number, task, image, position, decision FROM decisions WHERE study = ? AND judge = ? "
                "AND undoes IS NULL AND number NOT IN (SELECT undoes FROM decisions WHERE undoes IS NOT NULL) "
                "ORDER BY number DESC",
                (study.number, judge),
            ).fetchall()
            if not found:
                return None
            number, task, image, position, decision = found[0]
            before = next((row[4] for row in found[1:] if row[1:3] == (task, image)), None)
            _insert(db, (study.number, judge, task, image, position, before, None, number))
        return {"task": task, "image": image, "decision": decision}

    def _standing(self, study: int, judge: str | None = None) -> dict[tuple[str, int, int], dict[str, Any]]:
        """Decisions that stand, by judge, task and image."""
        found: dict[tuple[str, int, int], dict[str, Any]] = {}
        names = ("judge", "task", "image", "position", "decision", "seconds", "time")
        which = "study = ? AND (judge = ? OR ? IS NULL) ORDER BY number"
        with self._reading() as db:
            rows = []
            if db is not None:
                rows = db.execute(
                    f"SELECT {', '.join(names)} FROM decisions WHERE {which}", (study, judge, judge)
                ).fetchall()
        for row in rows:
            found[row[:3]] = dict(zip(names, row, strict=True))
        return {key: row for key, row in found.items() if row["decision"] is not None}

    # --- results --------------------------------------------------------------------------------------------------

    def decisions(self, study: Study) -> tuple[list[str], np.ndarray]:
        """Names of the judges, and their decisions: float (n_judges, n_queries, most candidates), ranked ones first.

        NaN where a judge cannot say. A task counts for a judge once all its images are decided; before that it is NaN.
        """
        standing = self._standing(study.number)
        judges = sorted({judge for judge, _, _ in standing})
        shape = (len(judges), len(study.tasks), max(len(task.candidates) for task in study.tasks))
        found = np.full(shape, np.nan)
        for row, judge in enumerate(judges):
            for number, task in enumerate(study.tasks):
                said = [standing.get((judge, number, candidate.id)) for candidate in task.candidates]
                if all(said):
                    found[row, number, : len(said)] = [DECISIONS[decision["decision"]] for decision in said if decision]
        return judges, found

    def results(self, number: int | None = None) -> dict[str, Any]:
        """Figures of a study, the last one unless named.

        Returns
        -------
        dict
            ``study``, ``learner``, ``version``, ``time``, ``k``; ``precision_at`` (k to the mean over queries of the
            mean over judges) and ``standard_error_at`` (over queries); ``random_relevant``, the share of the random
            images that judges found relevant; ``deviation_over_queries`` and ``deviation_over_judges`` of `spread`;
            ``judges``: ``judge``, ``done``, ``total``, ``tasks_done``, ``unsure``, ``seconds`` (median of a decision),
            ``precision_at``, ``coherence``; ``queries``: ``query`` (id), ``path``, ``judges``, ``precision_at`` (mean
            over judges), ``deviation`` over judges at k, ``coherence`` of learner and ``judge_coherence`` of judges.
            A figure that nothing was decided for is None.
        """
        study = self.study(number)
        judges, decisions = self.decisions(study)
        standing = self._standing(study.number)
        curves = precision_curves(decisions[:, :, : study.k])
        by_query = _mean(curves, axis=0)  # (n_queries, k)
        coherence, of_learner = judge_coherence(decisions), ranking_coherence(decisions[:, :, : study.k])
        n = (~np.isnan(by_query)).sum(axis=0)
        over_queries, over_judges = spread(curves)
        found: dict[str, Any] = {
            "study": study.number,
            "learner": study.learner,
            "version": study.version,
            "time": study.time,
            "k": study.k,
            "precision_at": _by_k(_mean(by_query, axis=0)),
            "standard_error_at": _by_k(_deviation(by_query, axis=0) / np.sqrt(np.maximum(n, 1))),
            "random_relevant": float(_mean(decisions[:, :, study.k :].ravel(), axis=0)),
            "deviation_over_queries": over_queries,
            "deviation_over_judges": over_judges,
            "judges": [],
            "queries": [],
        }
        for row, judge in enumerate(judges):
            own = [decision for decision in standing.values() if decision["judge"] == judge]
            seconds = [decision["seconds"] for decision in own if decision["seconds"] is not None]
            found["judges"].append(
                {
                    "judge": judge,
                    "done": len(own),
                    "total": sum(len(task.candidates) for task in study.tasks),
                    "tasks_done": int((~np.isnan(curves[row])).any(axis=1).sum()),
                    "unsure": sum(decision["decision"] == "unsure" for decision in own),
                    "seconds": float(np.median(seconds)) if seconds else None,
                    "precision_at": _by_k(_mean(curves[row], axis=0)),
                    "coherence": float(_mean(coherence[row], axis=0)),
                }
            )
        for column, task in enumerate(study.tasks):
            found["queries"].append(
                {
                    "query": task.query.id,
                    "path": task.query.path,
                    "judges": int((~np.isnan(curves[:, column])).any(axis=1).sum()),
                    "precision_at": _by_k(by_query[column]),
                    "deviation": float(_deviation(curves[:, column, -1], axis=0)),
                    "coherence": float(of_learner[column]),
                    "judge_coherence": float(_mean(coherence[:, column], axis=0)),
                }
            )
        return _without_nan(found)

    def rows(self, number: int | None = None) -> list[dict[str, Any]]:
        """Every decision that stands, with what it is about: for CSV and JSON."""
        study = self.study(number)
        found = []
        for decision in self._standing(study.number).values():
            task = study.tasks[decision["task"]]
            candidate = next(c for c in task.candidates if c.id == decision["image"])
            found.append(
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
                    "judge": decision["judge"],
                    "decision": decision["decision"],
                    "position": decision["position"],
                    "seconds": decision["seconds"],
                    "time": decision["time"],
                }
            )
        return sorted(found, key=lambda row: (row["task"], row["image"], row["judge"]))

    def qrels(self, number: int | None = None) -> str:
        """Relevance as TREC tools read it, ``query 0 image relevance`` a line: 1 where most judges found it relevant.

        Queries and images are named by their ids. Of those who can say more than half must; an image that nobody can
        judge is left out. Every decision that stands counts, also those on tasks that a judge has not finished.
        """
        votes: dict[tuple[int, int, int], list[float]] = {}
        for row in self.rows(number):
            votes.setdefault((row["task"], row["query"], row["image"]), []).append(DECISIONS[row["decision"]])
        lines = []
        for (_, query, image), said in votes.items():
            known = [vote for vote in said if not np.isnan(vote)]
            if known:
                lines.append(f"{query} 0 {image} {int(2 * sum(known) > len(known))}\n")
        return "".join(lines)

    def csv(self, number: int | None = None) -> str:
        """The rows as CSV."""
        rows = self.rows(number)
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return text.getvalue()

    def draw(self, file: str | os.PathLike[str], number: int | None = None) -> None:
        """Draw figure 3 of the paper, B to D, as PNG: precision at k, of some queries, and coherence.

        A file at the path is replaced in one step.

        Raises
        ------
        UserError
            No judge has finished a task yet.
        """
        study = self.study(number)
        judges, decisions = self.decisions(study)
        if not (~np.isnan(decisions)).any():
            raise UserError(f"study {study.number}: no judge has finished a task yet")
        figure = _figure(study, judges, decisions)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
        write_bytes(Path(file), drawn.getvalue())


def _figure(study: Study, judges: Sequence[str], decisions: np.ndarray) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    curves = precision_curves(decisions[:, :, : study.k])
    by_query = _mean(curves, axis=0)
    ks = np.arange(1, study.k + 1)
    figure = Figure(figsize=(15, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)

    n = (~np.isnan(by_query)).sum(axis=0)
    error = _deviation(by_query, axis=0) / np.sqrt(np.maximum(n, 1))
    left.errorbar(ks, _mean(by_query, axis=0), yerr=np.nan_to_num(error), marker="o", capsize=3, label=study.learner)
    chance = float(_mean(decisions[:, :, study.k :].ravel(), axis=0))
    if not np.isnan(chance):
        left.axhline(chance, color="0.4", linestyle="--", label="random images")
    left.set(title="Precision, mean over judges and queries", xlabel="k", ylabel="precision at k", ylim=(0, 1.02))
    left.legend(loc="lower left")

    figures = _mean(by_query, axis=1)
    judged = np.flatnonzero(~np.isnan(figures))
    order = judged[np.argsort(-figures[judged], kind="stable")]
    for i in range(min(5, len(order))):  # of 25 those at position 1, 6, 11, 16, 21
        query = order[i * len(order) // min(5, len(order))]
        several = (~np.isnan(curves[:, query])).sum(axis=0)
        error = _deviation(curves[:, query], axis=0) / np.sqrt(np.maximum(several, 1))
        name = os.path.basename(study.tasks[query].query.path).encode("utf-8", "replace").decode()
        middle.errorbar(
            ks, by_query[query], yerr=np.nan_to_num(error), marker="osv^D"[i], capsize=3, label=_plain(name)
        )
    middle.set(title="Some queries, mean over judges", xlabel="k", ylabel="precision at k", ylim=(0, 1.02))
    middle.legend(loc="lower left", fontsize="small")

    of_learner, of_judges = ranking_coherence(decisions[:, :, : study.k]), judge_coherence(decisions)
    judged = np.flatnonzero(~np.isnan(of_learner))
    order = judged[np.argsort(of_learner[judged], kind="stable")]
    places = np.arange(1, len(order) + 1)
    for row in range(len(judges)):
        label = "each judge" if row == 0 else None
        right.plot(places, of_judges[row, order], ".", color="0.7", label=label)
    right.plot(places, _mean(of_judges[:, order], axis=0), "s-", color="C1", label="judges, mean")
    right.plot(places, of_learner[order], "o-", color="C0", label=study.learner)
    right.set(title="Coherence with the other judges", xlabel="query, by precision", ylabel="precision", ylim=(0, 1.02))
    right.legend(loc="lower right")
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _plain(name: str) -> str:
    """A file name that matplotlib shows as it is: no mathematics, no leading underscore, which hides a label."""
    short = name if len(name) <= 28 else f"{name[:25]}..."
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def _order(study: Study, task: int, judge: str) -> list[Candidate]:
    """Candidates of a task as a judge sees them."""
    candidates = study.tasks[task].candidates
    return random.Random(f"{study.seed} {study.number} {task} {judge}").sample(candidates, len(candidates))


def _insert(db: sqlite3.Connection, values: tuple[Any, ...]) -> int:
    cursor = db.execute(
        "INSERT INTO decisions (time, study, judge, task, image, position, decision, seconds, undoes) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_now(), *values),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _check_judge(judge: str) -> str:
    name = judge.strip() if isinstance(judge, str) else ""
    if not 1 <= len(name) <= 60 or not name.isprintable():
        raise UserError("who judges? a name has 1 to 60 printable characters")
    return name


def _by_k(values: np.ndarray) -> dict[str, float]:
    return {str(k): float(value) for k, value in enumerate(values, start=1)}


def _without_nan(value: Any) -> Any:
    """Replace NaN by None, which JSON has."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
