"""Learning from relevance feedback: people mark results, and online learners are updated from the marks.

A mark says that an image is, or is not, relevant to a query; marks are only ever added. The marks of a query make
triplets (query, relevant, not relevant), from which `partial_fit` updates a copy of the trained learner, the base.

    runs/<run>/feedback.sqlite                marks, and the vectors of queries: see marks.py
    runs/<run>/feedback/<learner>/            versions of a learner: see versions.py
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from visterm import sparse
from visterm.pipeline.console import numbers_apart
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.evaluation.calibration import measure_calibration
from visterm.pipeline.evaluation.held_out import FallFigures, HeldOutSet, largest_fall
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import locked
from visterm.pipeline.store.models import check_trained, load_trained, trained_record
from visterm.pipeline.store.records import make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import TaughtImages
from visterm.pipeline.store.versions import InForce, LearnerVersions

from .batches import (
    STEPS_PER_MARK,
    UPDATABLE,
    FeedbackBatch,
    FeedbackData,
    collect_batches,
    learn_batch,
    prepare_learner,
)
from .first import can_start, start_learner
from .marks import Mark, RelevanceMarks
from .teachers import teaching_ids, without_taught

if TYPE_CHECKING:
    import numpy as np

    from visterm.learners import SimilarityLearner
else:
    from visterm import numpy as np


MAX_FALL = 0.005  # of held-out mAP below the base: a version that loses more is refused


_UNMEASURED: Any = dict.fromkeys(FallFigures.__annotations__)


class FeedbackUpdate(FallFigures, total=False):
    """Outcome of an update, or of forgetting."""

    learner: str
    accepted: bool
    reason: str | None  # None where accepted
    from_version: int
    to_version: int
    n_relevant: int  # this and what follows, of an update: of the marks that are new
    n_not: int
    n_marks: int  # learned in all
    n_left_out: int  # image or query is gone, or the query has marks of one kind only
    images: list[dict[str, Any]]  # of forgetting: id and path of each that is forgotten
    marks: list[int]  # of forgetting: the numbers of those that the learner does not learn from any more
    milliseconds: float


class FeedbackReverted(TypedDict):
    """The versions before and after an undo or a reset."""

    learner: str
    from_version: int
    to_version: int


class _Made(NamedTuple):
    """A version that is not saved yet."""

    model: SimilarityLearner
    scores: dict[str, np.ndarray]  # of held-out images: "base", "before" and "after"
    refused: str | None  # the reason


class UpdatedModel(TypedDict):
    """The version in force of a learner, and the marks that it learned."""

    version: int
    marks: int
    waiting: Annotated[int, Field(description="Marks that the next update learns")]
    set_aside: int
    void: Annotated[bool, Field(description="Its versions were of a learner that was retrained since")]
    map_base: Annotated[
        float | None, Field(description="Mean average precision on held-out images, of the trained learner")
    ]
    map_after: float | None
    undo: Annotated[list[int], Field(description="Versions to go back to")]


FeedbackStatus = TypedDict(
    "FeedbackStatus", {"file": str, "queries": int, "relevant": int, "not": int, "learners": dict[str, UpdatedModel]}
)


class FeedbackTrainer:
    """Update the online learners of a run from relevance marks, in versions that can be undone.

    Threads and processes may share a run: updates take a lock, and a search uses one version or the next.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    marks : RelevanceMarks

    Notes
    -----
    For `partial_fit`, the query and its relevant images share one label, and images marked as not relevant have none;
    images without marks never count as not relevant. A query needs one mark of each kind.

    Each version starts from the base, with `STEPS_PER_MARK` triplets per standing mark, so marks that were taken back
    and images that were forgotten leave no trace. It is refused if mean average precision falls by more than `MAX_FALL`
    below that of the base, among all held-out images or among those that no mark names. Its new marks are then set
    aside until `undo`. Where no images are labelled, nothing can be measured, and nothing is refused.

    In a run without labels the first update starts OASIS at the identity, which ranks as cosine does; it is the base.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.marks = RelevanceMarks(run.marks)
        self._versions = LearnerVersions(run)
        self._scores: dict[tuple[str, str, int, str], np.ndarray] = {}  # by the base and the version in force

    def version(self, learner: str) -> int:
        """Number of the version in force; 0 is the trained learner itself."""
        return self._versions.number(learner)

    def load(self, learner: str) -> SimilarityLearner:
        """Load the version of a learner that is in force."""
        return self._versions.load_in_force(learner)

    def update(self, learner: str = "oasis") -> FeedbackUpdate:
        """Learn the standing marks, and use the new version unless held-out precision falls by more than `MAX_FALL`.

        Parameters
        ----------
        learner : str
            "oasis" or "aroma".

        Raises
        ------
        UserError
            The learner is not trained, or cannot learn from marks.
        """
        started = time.perf_counter()
        with self._changing(learner, starts=True) as state:
            learned = self._versions.marks(learner, state.version)
            known = self._with_training(learner, learned)
            data = collect_batches(self.run, self.marks, learner, set(state.set_aside))
            numbers = sorted(number for batch in data.batches for number in batch.numbers)
            new = [number for number in numbers if number not in known]
            answer: FeedbackUpdate = {
                "learner": learner,
                "accepted": False,
                "reason": None,
                "from_version": state.version,
                "to_version": state.version,
                "n_relevant": sum(data.marks[number].mark > 0 for number in new),
                "n_not": sum(data.marks[number].mark < 0 for number in new),
                "n_marks": len(numbers),
                "n_left_out": data.n_left_out,
                **_UNMEASURED,
            }
            of_training = known.difference(learned)
            if known.symmetric_difference(numbers) <= of_training:  # training again takes these out, an update cannot
                answer["reason"] = _nothing_new(data, bool(known))
            else:
                if not state.base:
                    if not can_start(self.run, learner):
                        load_trained(self.run, learner, verify=False)  # it is damaged
                        raise UserError(f"{self.run.folder}: {learner} was trained meanwhile; update again")
                    start_learner(self.run)
                    state.base = self._versions.base_fingerprint(learner)
                self._train_version(learner, state, data, new, answer)
        return answer | {"milliseconds": _since(started)}

    def forget(self, given: Iterable[str], learner: str = "oasis") -> FeedbackUpdate:
        """Take out of a learner all that some images or marks taught it, without training it again.

        Of an image of the training, its steps leave W exactly (`visterm.learners.Teachers.without`), and the marks on
        it and of it as a query are set aside. A mark is taken back. The new version is used unless held-out precision
        falls by more than `MAX_FALL` below that of the base; `undo` goes back to the version before.

        Parameters
        ----------
        given : iterable of str
            Images as ``"id:12"`` or by path, removed ones included; folders; marks as ``"mark:7"``.
        learner : str
            "oasis" or "aroma", which forgets marks only.

        Raises
        ------
        UserError
            No such image or mark, the learner learned nothing from it or has no table of teachers: nothing changes.
        """
        started = time.perf_counter()
        with self._changing(learner) as state:
            standing = {mark.number: mark for marks in self.marks.standing().values() for mark in marks}
            before = set(self._versions.forgotten(learner, state.version))
            images: dict[int, str] = {}
            taken_back: set[int] = set()
            set_aside: set[int] = set()
            teaching: set[int] | None = None
            for name in given:
                if name.startswith("mark:"):
                    taken_back.add(self._mark_named(name, standing))
                    continue
                named = self._images_named(name)
                if not named:
                    raise UserError(f"run {self.run.name} has no image {name or '(empty name)'}; nothing was forgotten")
                if teaching is None:
                    teaching = teaching_ids(self.run, learner, self._versions.load(learner, 0))
                contents = {sha256 for _, sha256 in named.values()} - {None}
                of_marks = {n for n, one in standing.items() if contents.intersection((one.sha256, one.query))}
                ids = named.keys() & teaching - before
                if not ids and not of_marks - set(state.set_aside):
                    why = "has forgotten it already" if named.keys() & before else "never learned from it"
                    raise UserError(f"{name}: {learner} {why}; nothing was forgotten")
                images |= {id_: named[id_][0] for id_ in sorted(ids)}
                set_aside |= of_marks
            if not images and not taken_back and not set_aside:
                raise UserError("nothing given to forget; give images, id:N, or mark:N")
            known = set(self._versions.marks(learner, state.version))
            unlearned = standing.keys() - known
            data = collect_batches(
                self.run, self.marks, learner, {*state.set_aside, *unlearned, *taken_back, *set_aside}
            )
            answer: FeedbackUpdate = {
                "learner": learner,
                "accepted": True,
                "reason": None,
                "from_version": state.version,
                "to_version": state.version,
                "images": [{"id": id_, "path": path} for id_, path in images.items()],
                "marks": sorted(taken_back | set_aside),
                **_UNMEASURED,
            }
            forgotten = sorted(before | images.keys())
            made = None
            if images or known & (taken_back | set_aside):
                made = self._make_version(learner, state, data, forgotten, answer)
                if made.refused:
                    return answer | {"accepted": False, "reason": made.refused, "milliseconds": _since(started)}
                self._save_version(learner, state, data, forgotten, made, answer)
            for number in sorted(taken_back):  # first: after a kill, the next update does what is left to do
                self.marks.take_back(standing[number], version=state.version)
            if made is not None or set_aside - set(state.set_aside):
                state.before.append((state.version, state.set_aside))
                state.set_aside = sorted({*state.set_aside, *set_aside})
                if made is None:
                    self._versions.put_in_force(learner, state)
                else:
                    self._use_version(learner, state, data, made, answer)
        return answer | {"milliseconds": _since(started)}

    def undo(self, learner: str = "oasis") -> FeedbackReverted:
        """Go back to the version before the last update or reset, exactly as it was; marks stay.

        After a refused update, undo makes the next update learn the marks that were set aside.
        """
        with self._changing(learner) as state:
            self.marks.standing()  # raises if the file is missing; once no version uses it, that looks like no marks
            if not state.before:
                why = "the base is in force" if not state.version else "older versions are not kept"
                raise UserError(f"{learner}: nothing to undo, {why}; 'visterm feedback reset' goes back to the base")
            before = state.version
            state.version, set_aside = state.before.pop()
            if set_aside is not None:
                state.set_aside = set_aside
            self._versions.put_in_force(learner, state)
        return {"learner": learner, "from_version": before, "to_version": state.version}

    def reset(self, learner: str = "oasis") -> FeedbackReverted:
        """Go back to the base. Marks so far stay in the file but are set aside, until `undo`."""
        with self._changing(learner, damaged=True) as state:
            before = state.version
            state.before.append((before, state.set_aside))
            state.version = 0
            standing = {mark.number for marks in self.marks.standing().values() for mark in marks}
            state.set_aside = sorted(standing.union(state.set_aside))
            self._versions.put_in_force(learner, state)
        return {"learner": learner, "from_version": before, "to_version": 0}

    def status(self) -> FeedbackStatus:
        """Count the marks that stand; describe the versions of trained learners that can learn from marks."""
        standing = self.marks.standing()
        marks = {mark.number: mark for of_query in standing.values() for mark in of_query}
        learners: dict[str, UpdatedModel] = {}
        for name in UPDATABLE:
            if name not in self.run.learners():
                continue
            state, record = self._versions.read_in_force(name)
            learned = self._with_training(name, record.get("marks", ()))
            learners[name] = {
                "version": state.version,
                "marks": len(learned),
                "waiting": len(marks.keys() - learned - set(state.set_aside)),
                "set_aside": len(marks.keys() & set(state.set_aside)),
                "void": state.void,
                "map_base": record.get("result", {}).get("map_base"),
                "map_after": record.get("result", {}).get("map_after"),
                "undo": [version for version, _ in reversed(state.before)],
            }
        return {
            "file": str(self.marks.file),
            "queries": len(standing),
            "relevant": sum(mark.mark > 0 for mark in marks.values()),
            "not": sum(mark.mark < 0 for mark in marks.values()),
            "learners": learners,
        }

    def settled(self) -> dict[str, set[int]]:
        """Numbers of the marks that the version in force of each trained learner has learned, or that are set aside."""
        settled = {}
        for name in UPDATABLE:
            if name in self.run.learners():
                try:
                    state, record = self._versions.read_in_force(name)
                except UserError:  # damaged
                    state, record = self._versions.in_force(name), {}
                settled[name] = self._with_training(name, record.get("marks", ())).union(state.set_aside)
        return settled

    def _with_training(self, learner: str, marks: Iterable[int]) -> set[int]:
        """Numbers of marks that a version has learned, with those of the training it began with."""
        return {*marks, *trained_record(self.run, learner).get("marks", ())}

    def _train_version(
        self, learner: str, state: InForce, data: FeedbackData, new: list[int], answer: FeedbackUpdate
    ) -> None:
        """Train the next version, measure it, and use or refuse it; fill in the answer."""
        forgotten = self._versions.forgotten(learner, state.version)
        made = self._make_version(learner, state, data, forgotten, answer)
        if made.refused:
            answer["reason"] = f"{made.refused}, and the {len(new)} new marks are set aside"
            state.before.append((state.version, state.set_aside))
            state.set_aside = sorted({*state.set_aside, *new})
            self._versions.put_in_force(learner, state)
            return
        self._save_version(learner, state, data, forgotten, made, answer)
        state.before.append((state.version, None))
        self._use_version(learner, state, data, made, answer)

    def _make_version(
        self, learner: str, state: InForce, data: FeedbackData, forgotten: Sequence[int], answer: FeedbackUpdate
    ) -> _Made:
        """Train a version, without what some images taught, and measure it; fill in the figures of the answer."""
        model = self._versions.load(learner, 0)
        if forgotten:
            model = without_taught(self.run, learner, model, set(forgotten))
        prepare_learner(model, learner)
        if model.has_teachers:
            model.teachers_ = sparse.csr_array((0, 0), dtype=np.float32)  # of the marks alone
        for batch in data.batches:
            learn_batch(model, batch)
        scores: dict[str, np.ndarray] = {}
        if data.held_out is not None:
            scores["after"] = data.held_out.scores(model)
            for when, version in (("base", 0), ("before", state.version)):
                scores[when] = self._held_out_scores(learner, state, version, data.held_out)
        if self._versions.base_fingerprint(learner) != state.base:  # part of the scores may be of another base
            raise UserError(f"{learner} was retrained during the update; update again to learn the marks")
        if data.held_out is None:
            return _Made(model, scores, None)
        fall, figures = largest_fall(data.held_out, scores)
        answer |= figures
        refused = (
            f"held-out mAP would fall by {numbers_apart(fall.mean, MAX_FALL, 4)[0]} below the base (standard error "
            f"{fall.error:.4f}, "
            f"{fall.measured_on}; at most {MAX_FALL}): the model stays as it was"
        )
        return _Made(model, scores, refused if fall.mean > MAX_FALL else None)

    def _save_version(
        self,
        learner: str,
        state: InForce,
        data: FeedbackData,
        forgotten: Sequence[int],
        made: _Made,
        answer: FeedbackUpdate,
    ) -> None:
        """Save what was made as the version after the last one."""
        model: Any = made.model
        indices = [batch.X.indices for batch in data.batches]
        if forgotten:
            changed = np.asarray(model.W_) != self._versions.load(learner, 0).W_
            indices = [np.flatnonzero(changed.any(axis=0) | changed.any(axis=1))]
        elif indices and model.center() is not None:  # whitened vectors have no zeros: all of W changes
            indices = [np.arange(model.n_features_in_)]
        visterms = np.unique(np.concatenate(indices) if indices else np.zeros(0, int))
        unkept = ("accepted", "reason", "to_version", "images", "marks")
        result = {key: value for key, value in answer.items() if key not in unkept}
        record = make_record("feedback", {"steps_per_mark": STEPS_PER_MARK, **UPDATABLE[learner]}, {"base": state.base})
        record |= {"marks": sorted(n for batch in data.batches for n in batch.numbers), "result": result}
        with Collection(self.run.collection) as collection:
            record["calibration"] = measure_calibration(self.run, learner, model, collection, collection.images())
        if forgotten:
            record["forgotten"] = sorted(forgotten)
        taught = None
        if model.has_teachers:
            X = sparse.vstack([batch.X for batch in data.batches], format="csr") if data.batches else None
            X = sparse.csr_matrix((0, model.n_features_in_), dtype=np.float32) if X is None else X
            taught = TaughtImages(X, [row for batch in data.batches for row in _rows(batch, data)], model.teachers_)
        self._versions.save(learner, state.last + 1, model, visterms, record, taught)

    def _use_version(
        self, learner: str, state: InForce, data: FeedbackData, made: _Made, answer: FeedbackUpdate
    ) -> None:
        """Put the version in force that was saved last."""
        state.version = state.last = state.last + 1
        self._versions.put_in_force(learner, state)
        answer |= {"accepted": True, "to_version": state.version}
        if data.held_out is None:
            return
        # Keep the scores of the base and of this version for the next update.
        digest = data.held_out.digest()
        self._scores = {key: kept for key, kept in self._scores.items() if key[0] != learner}
        self._scores[learner, state.base, 0, digest] = made.scores["base"]
        self._scores[learner, state.base, state.version, digest] = made.scores["after"]

    def _images_named(self, given: str) -> dict[int, tuple[str, str | None]]:
        """Path and SHA-256 of the images that a name stands for, by id; removed ones, too."""
        with Collection(self.run.collection) as collection:
            rows = {id_: path for id_, path, _ in collection.find(given)}
            query = "SELECT sha256 FROM images WHERE id = ?"
            return {id_: (path, collection.execute(query, (id_,)).fetchone()[0]) for id_, path in rows.items()}

    def _mark_named(self, given: str, standing: dict[int, Mark]) -> int:
        """Number of the mark that a name such as "mark:7" stands for; UserError if it does not stand."""
        text = given.removeprefix("mark:")
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        if number not in standing:
            made = number and any(row["number"] == number for row in self.marks.export())
            problem = "was taken back, or another mark of the same image replaced it" if made else "does not exist"
            raise UserError(f"{given}: this mark {problem}; 'visterm feedback export' lists all marks")
        return number

    def _held_out_scores(self, learner: str, state: InForce, version: int, held_out: HeldOutSet) -> np.ndarray:
        key = (learner, state.base, version, held_out.digest())
        if key not in self._scores:
            self._scores[key] = held_out.scores(self._versions.load(learner, version))
        return self._scores[key]

    @contextlib.contextmanager
    def _changing(self, learner: str, *, damaged: bool = False, starts: bool = False) -> Iterator[InForce]:
        """Wait for other updates of the learner, in this process and in others, to end; yield the version in force.

        With `damaged` a damaged state yields the base. With `starts` the learner need not be trained where marks may
        start it; its `base` is then "".
        """
        if learner not in UPDATABLE:
            raise UserError(f"{learner} does not learn from marks; {' and '.join(UPDATABLE)} do")
        self.run.check_exists()
        folder = self.run.feedback(learner)
        explained = system_errors_explained(folder, "the version was not kept", "the model stays as it was")
        with locked(folder / ".lock", wait=None), explained:
            if not (starts and can_start(self.run, learner)):
                check_trained(self.run, learner)
            yield self._versions.in_force(learner, damaged=damaged)


def _since(started: float) -> float:
    """Milliseconds since then."""
    return round(1000 * (time.perf_counter() - started), 1)


def _rows(batch: FeedbackBatch, data: FeedbackData) -> list[dict[str, Any]]:
    """Describe the rows of a batch, as in `TaughtImages`."""
    marks = [data.marks[number] for number in batch.numbers]
    query = {"sha256": marks[0].query, "mark": None}
    return [query, *({"sha256": one.sha256, "mark": {"number": one.number, "time": one.time}} for one in marks)]


def _nothing_new(data: FeedbackData, has_learned: bool) -> str:
    """Why there is nothing to learn."""
    if not data.marks:
        return "there are no marks to learn from"
    if has_learned:
        return "nothing new to learn: the model has learned these marks already"
    kinds = {mark.mark for mark in data.marks.values()}
    if data.n_left_out and kinds == {1, -1}:
        return "nothing to learn: no query has a relevant and a not relevant mark on images that are still there"
    return (
        f"a query needs one relevant and one not relevant mark; none is marked {'not ' if 1 in kinds else ''}relevant"
    )
