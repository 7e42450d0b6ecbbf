"""Feedback that teaches: marks that people give to results, and an online learner that they move.

A mark says of one image that it is relevant to one query, or that it is not. Marks are only ever added, to one SQLite
file of the run. The marks of a query make triplets (query, relevant, not relevant), and `partial_fit` moves the trained
learner by them, the base: a version is the base and the standing marks, nothing else, so that marks that were taken
back leave no trace in the next one.

A step of OASIS or of diagonal AROMA changes W only between visterms of the images at hand. So a version is kept as that
block of W: plain, exact, and small beside the 400 MB of a W of 10,000 visterms. The base is never written to.

    runs/<run>/feedback.sqlite                marks, and the vectors of queries
    runs/<run>/feedback/<learner>/in_force.json     which version answers; replaced in one step
    runs/<run>/feedback/<learner>/<n>/        visterms.npy, block.npy, record.json
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.files import locked, publish, write_text
from visterm.pipeline.store.models import check_trained, load_trained
from visterm.pipeline.store.records import make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content

from .held_out import MIN_QUERIES, HeldOut, digest_of, draw_held_out, sparse_vectors
from .marks import Mark, RelevanceMarks
from .versions import KEPT, InForce, fingerprint_of

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.learners import SimilarityLearner


# How far a mark moves a learner: far enough to be seen, not so far that others pay. `benchmarks.feedback` has both.
STEPS_PER_MARK = 10
TEACHABLE: dict[str, dict[str, Any]] = {"oasis": {"C": 0.03}, "aroma": {"r": 10.0}}
_ARRAY = {"oasis": "W_", "aroma": "distribution_"}  # what a learner learns: (d, d), or (d, d, 2)
MAX_FALL = 0.005  # of held-out mAP, below the base: a version that would cost more is not put in force


class FeedbackBatch(NamedTuple):
    """The marks of one query, as rows of a matrix: the query first, then relevant images, then the others."""

    X: sparse.csr_matrix
    n_relevant: int
    numbers: list[int]  # of the marks


class FeedbackTrainer:
    """Moves the online learners of a run by the marks of its users, in versions that can be undone.

    Threads and processes may share a run: an update has a lock of its own, and a search sees one version or the next.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    marks : RelevanceMarks
        Of the run.

    Notes
    -----
    Each query's marks are learned by `partial_fit` on the query and its marked images, with one label that query and
    relevant images share. So every triplet has the query or an image relevant to it first, another of them second, and
    an image marked as not relevant third: nothing is taken for not relevant because nobody looked at it. A query needs
    one mark of each kind.

    Every version starts from the base, with `STEPS_PER_MARK` triplets for each standing mark. It is measured on
    held-out images, and refused if mean average precision falls by more than `MAX_FALL` below the base's, among all of
    them or among those that no mark names; the marks that came with it are set aside, until `undo`.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.marks = RelevanceMarks(run.marks)
        self._measured: dict[tuple[str, str, int, str], np.ndarray] = {}  # scores of the base and the version in force

    def version(self, learner: str) -> int:
        """Number of the version in force; 0 is the trained learner itself."""
        return self._in_force(learner).version if learner in TEACHABLE else 0

    def update(self, learner: str = "oasis") -> dict[str, Any]:
        """Learn the marks that stand, and put the version in force if it costs no more than `MAX_FALL`.

        Parameters
        ----------
        learner : str
            "oasis" or "aroma".

        Returns
        -------
        dict
            ``learner``, ``accepted``, ``reason`` (None where accepted), ``from_version``, ``to_version``; of the marks
            that the version before did not know ``n_relevant`` and ``n_not``; ``n_marks`` it rests on, ``n_left_out``
            (their image or query is gone, or the query has marks of one kind only); ``map_base``, ``map_before``,
            ``map_after`` of held-out images that no mark names (of all, where these are few; None where nothing was
            measured), ``map_error`` (standard error of the difference of base and after), ``measured_on`` (what these
            images are, in words); ``milliseconds``.

        Raises
        ------
        UserError
            The learner is not trained, or cannot be moved by marks.
        """
        started = time.perf_counter()
        _check_teachable(learner)
        with self._locked(learner):
            check_trained(self.run, learner)
            state = self._in_force(learner)
            known = set(self._learned(learner, state.version))
            lessons, marks, n_left_out, held_out = self._lessons(learner, state)
            numbers = sorted(number for lesson in lessons for number in lesson.numbers)
            new = [number for number in numbers if number not in known]
            answer: dict[str, Any] = {
                "learner": learner,
                "accepted": False,
                "reason": None,
                "from_version": state.version,
                "to_version": state.version,
                "n_relevant": sum(marks[number].mark > 0 for number in new),
                "n_not": sum(marks[number].mark < 0 for number in new),
                "n_marks": len(numbers),
                "n_left_out": n_left_out,
                "map_base": None,
                "map_before": None,
                "map_after": None,
                "map_error": None,
                "measured_on": None,
            }
            if set(numbers) == known:
                answer["reason"] = _nothing_new(marks, bool(known), n_left_out)
            else:
                self._teach(learner, state, lessons, held_out, new, answer)
        return answer | {"milliseconds": round(1000 * (time.perf_counter() - started), 1)}

    def undo(self, learner: str = "oasis") -> dict[str, Any]:
        """Put back what was in force before the last update or reset, exactly as it was; its marks stand.

        After an update that was refused this is which marks are learned from: the next one learns those again.

        Returns
        -------
        dict
            ``learner``, ``from_version``, ``to_version``.

        Raises
        ------
        UserError
            There is nothing to undo.
        """
        _check_teachable(learner)
        with self._locked(learner):
            check_trained(self.run, learner)
            state = self._in_force(learner)
            if not state.before:
                why = "the base is in force" if not state.version else "older versions are not kept"
                raise UserError(f"{learner}: nothing to undo, {why}; 'visterm feedback reset' goes back to the base")
            before = state.version
            state.version, set_aside = state.before.pop()
            if set_aside is not None:
                state.set_aside = set_aside
            self._put_in_force(learner, state)
        return {"learner": learner, "from_version": before, "to_version": state.version}

    def reset(self, learner: str = "oasis") -> dict[str, Any]:
        """Put the base in force. Marks so far stay in the file, but are not learned from again; `undo` undoes this.

        Returns
        -------
        dict
            ``learner``, ``from_version``, ``to_version``.
        """
        _check_teachable(learner)
        with self._locked(learner):
            check_trained(self.run, learner)
            state = self._in_force(learner)
            before = state.version
            state.before.append((before, state.set_aside))
            state.version = 0
            standing = {mark.number for marks in self.marks.standing().values() for mark in marks}
            state.set_aside = sorted(standing.union(state.set_aside))
            self._put_in_force(learner, state)
        return {"learner": learner, "from_version": before, "to_version": 0}

    def load(self, learner: str) -> SimilarityLearner:
        """Load the learner that is in force: the trained one, with what the version changed laid over it.

        Raises
        ------
        UserError
            It is not trained, or the version is damaged.
        """
        if learner not in TEACHABLE:
            return load_trained(self.run, learner, verify=False)
        for _ in range(5):  # base and version are other files: both must be of one state
            state = self._in_force(learner)
            try:
                if state.version:
                    model = self._base_copy(learner)
                    self._lay_over(model, learner, state.version)
                else:
                    model = load_trained(self.run, learner, verify=False)
            except FileNotFoundError:
                continue
            except UserError:
                if self._in_force(learner) == state:
                    raise
            else:
                if self._in_force(learner) == state:
                    return model
        raise UserError(
            f"{self._folder(learner) / str(state.version)}: damaged version of {learner}; "
            f"'visterm feedback reset --learner {learner}' goes back to the base"
        )

    def status(self) -> dict[str, Any]:
        """What was marked, and what the learners made of it.

        Returns
        -------
        dict
            ``file``, ``queries``, ``relevant`` and ``not`` (marks that stand), and under ``learners`` for each that is
            trained and can learn from marks: ``version``, ``marks`` it rests on, ``waiting`` to be learned,
            ``set_aside``, ``void`` (versions stood on a base that was trained again since), ``map_base`` and
            ``map_after`` of the version in force, ``undo`` (versions it can go back to).
        """
        standing = self.marks.standing()
        marks = {mark.number: mark for found in standing.values() for mark in found}
        learners = {}
        for name in TEACHABLE:
            if name not in self.run.learners():
                continue
            state = self._in_force(name)
            learned = set(self._learned(name, state.version))
            record = self._record(name, state.version) if state.version else {}
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

    # --- lessons --------------------------------------------------------------------------------------------------

    def _lessons(self, learner: str, state: InForce) -> tuple[list[FeedbackBatch], dict[int, Mark], int, HeldOut]:
        """What can be learned, the standing marks by number, how many are left out, and what to measure on."""
        from scipy import sparse

        set_aside = set(state.set_aside)
        standing = {
            key: [mark for mark in marks if mark.number not in set_aside and mark.sha256 != key]
            for key, marks in self.marks.standing().items()
        }
        content = extractor_content(self.run)
        with contextlib.closing(Collection(self.run.collection)) as collection:
            images = collection.images()
            by_content: dict[str, Image] = {}
            for image in images:
                by_content.setdefault(image.sha256, image)
            wanted = {key for key in standing if key in by_content}
            wanted.update(mark.sha256 for marks in standing.values() for mark in marks if mark.sha256 in by_content)
            held_out = draw_held_out(self.run, learner, collection, images, wanted)
            place = {sha256: row for row, sha256 in enumerate(sorted(wanted))}
            X = sparse_vectors(self.run, collection, [by_content[sha256] for sha256 in place]) if place else None
        lessons: list[FeedbackBatch] = []
        n_left_out = 0
        for key, marks in standing.items():
            query = X[[place[key]]] if key in place and X is not None else self.marks.vector(key, content)
            here = [mark for mark in marks if mark.sha256 in place]
            relevant = [mark for mark in here if mark.mark > 0]
            others = [mark for mark in here if mark.mark < 0]
            if query is None or not relevant or not others or X is None:
                n_left_out += len(marks)
                continue
            n_left_out += len(marks) - len(here)
            chosen = [*relevant, *others]
            rows = X[[place[mark.sha256] for mark in chosen]]
            stacked = sparse.vstack([query, rows], format="csr")
            lessons.append(FeedbackBatch(stacked, len(relevant), [mark.number for mark in chosen]))
        return lessons, {mark.number: mark for marks in standing.values() for mark in marks}, n_left_out, held_out

    def _teach(
        self,
        learner: str,
        state: InForce,
        lessons: Sequence[FeedbackBatch],
        held_out: HeldOut,
        new: list[int],
        answer: dict[str, Any],
    ) -> None:
        """Make the next version, measure it, and put it in force or refuse it; the answer is filled in."""
        import numpy as np

        model = self._base_copy(learner)
        _prepare(model, learner)
        for lesson in lessons:
            _learn(model, lesson)
        scores = {"after": model.similarity(held_out.X[held_out.own], held_out.X)}
        for when, version in (("base", 0), ("before", state.version)):
            scores[when] = self._scores(learner, state, version, held_out)
        if fingerprint_of(self.run, learner) != state.base:  # part of what was measured is of another one
            raise UserError(f"{learner} was trained again meanwhile; update again, and the new one learns the marks")
        falls = []
        for among, which in ((np.ones_like(held_out.unmarked), ""), (held_out.unmarked, " that no mark names")):
            if which and len(held_out.queries(among)) < MIN_QUERIES:
                continue  # marks have used up nearly all: what is left says nothing
            # The last is what is shown: marks do not flatter it.
            found = {when: held_out.precisions(made, among) for when, made in scores.items()}
            answer |= {f"map_{when}": round(float(values.mean()), 4) for when, values in found.items()}
            fall = found["base"] - found["after"]
            error = float(fall.std() / np.sqrt(len(fall)))
            answer |= {"map_error": round(error, 4), "measured_on": f"{len(fall)} {held_out.what}{which}"}
            falls.append((float(fall.mean()), error, answer["measured_on"]))
        fall, error, measured_on = max(falls)
        if fall > MAX_FALL:
            answer["reason"] = (
                f"held-out mAP would fall by {fall:.4f} below the base (standard error {error:.4f}, {measured_on}; at "
                f"most {MAX_FALL}): the model stays as it was, and the {len(new)} new marks are set aside"
            )
            state.before.append((state.version, state.set_aside))
            state.set_aside = sorted({*state.set_aside, *new})
            self._put_in_force(learner, state)
            return
        visterms = np.unique(np.concatenate([lesson.X.indices for lesson in lessons]) if lessons else np.zeros(0, int))
        version = state.last + 1
        result = {key: value for key, value in answer.items() if key not in ("accepted", "reason", "to_version")}
        record = make_record("feedback", {"steps_per_mark": STEPS_PER_MARK, **TEACHABLE[learner]}, {"base": state.base})
        record |= {"marks": sorted(n for lesson in lessons for n in lesson.numbers), "result": result}
        with publish(self._folder(learner) / str(version), record) as folder:
            np.save(folder / "visterms.npy", visterms.astype(np.int32), allow_pickle=False)
            block = np.asarray(getattr(model, _ARRAY[learner]))[np.ix_(visterms, visterms)]
            np.save(folder / "block.npy", block, allow_pickle=False)
        state.before.append((state.version, None))
        state.version = state.last = version
        self._put_in_force(learner, state)
        self._remember(learner, state, scores, held_out)
        answer |= {"accepted": True, "to_version": version}

    def _scores(self, learner: str, state: InForce, version: int, held_out: HeldOut) -> np.ndarray:
        """Scores of the held-out images by a version, float32 (n_queries, n); of the last two they are remembered."""
        key = (learner, state.base, version, digest_of(held_out))
        if key not in self._measured:
            model = self._base_copy(learner)
            if version:
                self._lay_over(model, learner, version)
            self._measured[key] = model.similarity(held_out.X[held_out.own], held_out.X)
        return self._measured[key]

    def _remember(self, learner: str, state: InForce, scores: dict[str, np.ndarray], held_out: HeldOut) -> None:
        digest = digest_of(held_out)
        others = {key: found for key, found in self._measured.items() if key[0] != learner}
        own = {
            (learner, state.base, 0, digest): scores["base"],
            (learner, state.base, state.version, digest): scores["after"],
        }
        self._measured = others | own

    # --- on disk --------------------------------------------------------------------------------------------------

    def _folder(self, learner: str) -> Path:
        return self.run.taught(learner)

    def _in_force(self, learner: str) -> InForce:
        """What the small file says; the base, if it speaks of a base that is no longer there."""
        base = fingerprint_of(self.run, learner)
        file = self._folder(learner) / "in_force.json"
        try:
            found = InForce.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return InForce(base=base)
        except (OSError, ValueError):
            raise UserError(f"{file}: damaged; remove it to go back to the base") from None
        if found.base == base:
            return found
        # Numbers go on, so that no two models of a learner have the same one. The marks are learned anew.
        return InForce(base=base, last=found.last, set_aside=found.set_aside, void=bool(found.last))

    def _put_in_force(self, learner: str, state: InForce) -> None:
        """Write the small file, in one step; then remove what can no longer be gone back to."""
        folder = self._folder(learner)
        state.before = state.before[-KEPT:]
        state.void = False
        write_text(folder / "in_force.json", state.model_dump_json())
        kept = {str(version) for version in (state.version, *(version for version, _ in state.before))}
        for path in folder.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def _record(self, learner: str, version: int) -> dict[str, Any]:
        record = read_record(self._folder(learner) / str(version))
        if record is None or not isinstance(record.get("marks"), list):
            raise UserError(
                f"{self._folder(learner) / str(version)}: this version of {learner} is gone or damaged; "
                f"'visterm feedback reset --learner {learner}' goes back to the base"
            )
        return record

    def _learned(self, learner: str, version: int) -> list[int]:
        """Numbers of the marks that a version rests on."""
        if not version:
            return []
        try:
            return self._record(learner, version)["marks"]
        except UserError:
            return []  # damaged: reset and update must still work

    def _base_copy(self, learner: str) -> Any:
        """Load the base, mapped so that what is written to it stays in this process: no copy of W is made."""
        import numpy as np

        from visterm.learners import load_learner

        check_trained(self.run, learner)
        try:
            model = load_learner(self.run.learner(learner) / "files", mmap_mode="c", verify=False)
        except ValueError as error:
            raise UserError(f"{error}; run 'visterm train --learner {learner} --force'") from None
        setattr(model, _ARRAY[learner], np.asarray(getattr(model, _ARRAY[learner])))
        return model

    def _lay_over(self, model: Any, learner: str, version: int) -> None:
        import numpy as np

        folder = self._folder(learner) / str(version)
        try:
            visterms, block = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("visterms", "block"))
            getattr(model, _ARRAY[learner])[np.ix_(visterms, visterms)] = block
        except FileNotFoundError:
            raise
        except (OSError, ValueError, EOFError, IndexError):
            raise UserError(
                f"{folder}: damaged version of {learner}; 'visterm feedback undo' or 'visterm feedback reset' with "
                f"--learner {learner} takes an older one"
            ) from None

    @contextlib.contextmanager
    def _locked(self, learner: str) -> Iterator[None]:
        """Wait for other updates of the learner, in this process and in others, to end."""
        folder = self._folder(learner)
        kept = system_errors_explained(folder, "the version was not kept", "the model stays as it was")
        with locked(folder / ".lock", wait=True), kept:
            yield


def _check_teachable(learner: str) -> None:
    if learner not in TEACHABLE:
        raise UserError(f"{learner} does not learn from marks; {' and '.join(TEACHABLE)} do")


def _nothing_new(marks: dict[int, Mark], taught: bool, n_left_out: int) -> str:
    """Why there is nothing to learn."""
    if not marks:
        return "there are no marks to learn from"
    if taught:
        return "nothing new to learn: the model knows these marks"
    if n_left_out and {mark.mark for mark in marks.values()} == {1, -1}:
        return "nothing to learn: no query has a relevant and a not relevant mark on images that are still there"
    kind = "relevant" if marks and all(mark.mark < 0 for mark in marks.values()) else "not relevant"
    return f"a query needs one relevant and one not relevant mark; there is none that says {kind}"


def _prepare(model: Any, learner: str) -> None:
    """Set what `partial_fit` reads: how far a mark moves the model, and nothing of how the base was trained."""
    settings = {"click_cutoff": None, "check_negatives": True, "pairs_per_query": 1, **TEACHABLE[learner]}
    if learner == "oasis":
        # Projecting all of W after every update would cost minutes; a symmetric one stays so at every step.
        variant = {"symmetric": "online-symmetric", "psd": "online-symmetric"}.get(model.variant, model.variant)
        settings |= {"n_rankers": 1, "psd_every": None, "variant": variant}
    elif model.covariance == "factored":
        raise UserError(
            "aroma with the factored covariance does not learn from marks: one of them changes all of W; "
            "the diagonal covariance does, or oasis"
        )
    model.set_params(**settings)


def _learn(model: Any, lesson: FeedbackBatch) -> None:
    """Move the model by the marks of one query."""
    import numpy as np
    from scipy import sparse

    n_steps = STEPS_PER_MARK * len(lesson.numbers)
    y = sparse.csr_array((np.arange(lesson.X.shape[0]) <= lesson.n_relevant).astype(np.float32)[:, None])
    with _not_said("never a query"):  # images marked as not relevant are none on purpose
        model.set_params(n_steps=n_steps, pass_steps=n_steps).partial_fit(lesson.X, y)


@contextlib.contextmanager
def _not_said(text: str) -> Iterator[None]:
    """Keep one message of the learners' loop from the log."""
    log = logging.getLogger("visterm.learners.online")

    def keep(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)
