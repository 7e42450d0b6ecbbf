"""Versions of a learner that feedback updated, on disk.

A step of OASIS or of diagonal AROMA changes W only between visterms of the images at hand, so a version is kept as that
block of W: exact, and small beside a full W. The trained learner, the base, is never written to.

    runs/<run>/feedback/<learner>/in_force.json     which version is used; replaced in one step
    runs/<run>/feedback/<learner>/<n>/              visterms.npy, block.npy, record.json, teachers/
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.checksums import OWN, check_seal
from visterm.pipeline.store.files import discard, publish, write_record
from visterm.pipeline.store.models import check_trained, load_files, load_similarity, load_trained, trained_record
from visterm.pipeline.store.records import damage, fingerprint, read_record, repair_hint
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import TaughtImages, load_teachers, no_table, save_teachers, taught_images

from .checksums import Record

if TYPE_CHECKING:
    import numpy as np
else:
    from visterm import numpy as np

KEPT = 5  # versions that undo can go back to
_ARRAY = {"oasis": "W_", "aroma": "distribution_"}  # what a learner learns: (d, d), or (d, d, 2)


@dataclass
class InForce:
    """Content of `in_force.json`, for one learner."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # of its check

    base: str  # fingerprint of the trained learner that the versions start from
    version: int = 0  # the one that is used; 0 is the base
    last: int = 0  # highest number that a version has had; numbers are not used twice
    set_aside: list[int] = field(default_factory=list)  # marks not to learn from: refused, or before a reset
    # What undo goes back to, the latest last: a version, and after a refusal or reset what was set aside before it.
    before: list[tuple[int, list[int] | None]] = field(default_factory=list)
    void: bool = False  # there were versions, of a base that was retrained since


def _checked(content: str) -> InForce:
    from pydantic import TypeAdapter

    state = TypeAdapter(InForce).validate_json(content)
    if min(state.version, state.last) < 0:
        raise ValueError("numbers of versions begin at 0")
    return state


class LearnerVersions:
    """The versions of a run's learners."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def base_fingerprint(self, learner: str) -> str:
        """Fingerprint of one training of a learner, unique even for equal settings; "" if it is not trained."""
        record = read_record(self.run.learner(learner))
        try:
            files = (self.run.learner(learner) / "files" / "learner.json").read_bytes()
        except OSError:
            return ""
        return fingerprint(record and record.get("created"), hashlib.sha256(files).hexdigest())

    def in_force(self, learner: str, *, damaged: bool = False) -> InForce:
        """Read which version is used: the base, if the versions are of a base that was retrained since.

        With `damaged`, which needs the lock, a file that cannot be read is removed, and the base is in force.
        """
        base = self.base_fingerprint(learner)
        file = self.run.feedback(learner) / "in_force.json"
        try:
            content = json.loads(file.read_text())
            check_seal(content)
            content.pop(OWN, None)
            state = _checked(json.dumps(content))
        except (OSError, ValueError, AttributeError, TypeError) as error:
            numbers = [int(path.name) for path in self.run.feedback(learner).glob("*/") if path.name.isdecimal()]
            gone = isinstance(error, FileNotFoundError)
            if gone and file.exists():  # the first update has just written it
                return self.in_force(learner, damaged=damaged)
            if damaged:  # never by a reader: an update may have written the file since
                discard(file)
            elif numbers or not gone:
                problem = f"gone, beside versions of {learner}" if gone else "damaged"
                raise UserError(f"{file}: {problem}; {repair_hint(file)}") from None
            return InForce(base=base, last=max(numbers, default=0))
        if state.base == base:
            return state
        # Numbers continue, so that no two models of a learner share one. The new base learns the marks from scratch.
        return InForce(base=base, last=state.last, set_aside=state.set_aside, void=bool(state.last))

    def put_in_force(self, learner: str, state: InForce) -> None:
        """Write which version is used, in one step; then remove versions that undo cannot reach any more."""
        folder = self.run.feedback(learner)
        state.before = state.before[-KEPT:]
        state.void = False
        write_record(folder / "in_force.json", asdict(state))
        kept = {str(version) for version in (state.version, *(version for version, _ in state.before))}
        for path in folder.iterdir():
            if path.is_dir() and path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def read_in_force(self, learner: str) -> tuple[InForce, Record]:
        """Read which version is used, and its record; that of the base is empty."""
        while True:
            state = self.in_force(learner)
            try:
                return state, self.record(learner, state.version) if state.version else {}
            except UserError:
                if self.in_force(learner) == state:  # otherwise an undo has just removed the version
                    raise

    def number(self, learner: str) -> int:
        """Number of the version in force; 0 is the trained learner itself."""
        return self.in_force(learner).version if learner in _ARRAY else 0

    def record_in_force(self, learner: str) -> Record:
        """Read the record of the version that is used, or of the trained learner."""
        record = self.read_in_force(learner)[1] if learner in _ARRAY else {}
        return record or trained_record(self.run, learner)

    def check(self) -> None:
        """Read all that says which versions are used; UserError if a file is damaged."""
        for learner in _ARRAY:
            if learner in self.run.learners():
                self.read_in_force(learner)

    def record(self, learner: str, version: int) -> Record:
        """Read the record of a version."""
        folder = self.run.feedback(learner) / str(version)
        record = read_record(folder)
        if record is None or not isinstance(record.get("marks"), list):
            raise UserError(f"{folder}: this version of {learner} is gone or damaged; {repair_hint(folder)}")
        return record

    def marks(self, learner: str, version: int) -> list[int]:
        """Numbers of the marks that a version has learned."""
        if not version:
            return []
        try:
            return self.record(learner, version)["marks"]
        except UserError:
            return []  # damaged: reset and update must still work

    def forgotten(self, learner: str, version: int) -> list[int]:
        """Ids of the images that a version has forgotten."""
        return self.record(learner, version).get("forgotten", []) if version else []

    def save(
        self,
        learner: str,
        version: int,
        model: Any,
        visterms: np.ndarray,
        record: Record,
        taught: TaughtImages | None = None,
    ) -> None:
        """Save a new version: the submatrix of W for some visterms, int (n,), and what taught it, with a table."""
        if not (self.run.feedback(learner) / "in_force.json").exists():  # versions without it are damage
            self.put_in_force(learner, InForce(base=self.base_fingerprint(learner)))
        with publish(self.run.feedback(learner) / str(version), record) as folder:
            np.save(folder / "visterms.npy", visterms.astype(np.int32), allow_pickle=False)
            block = np.asarray(getattr(model, _ARRAY[learner]))[np.ix_(visterms, visterms)]
            np.save(folder / "block.npy", block, allow_pickle=False)
            if taught is not None:
                save_teachers(folder, taught)

    def load(self, learner: str, version: int, load: Callable[..., Any] | None = None) -> Any:
        """Load the base with the block of a version, mapped copy-on-write: writing to its arrays changes no file.

        `load` is as of `load_files`.
        """
        from visterm.learners.storage import load_array

        check_trained(self.run, learner)
        model = load_files(self.run, learner, mmap_mode="c", load=load)
        array = np.asarray(getattr(model, _ARRAY[learner]))
        setattr(model, _ARRAY[learner], array)
        if not version:
            return model
        folder = self.run.feedback(learner) / str(version)
        try:
            if (problem := damage(folder, self.record(learner, version))) is not None:
                raise ValueError(problem)
            visterms, block = (load_array(folder / f"{name}.npy") for name in ("visterms", "block"))
            array[np.ix_(visterms, visterms)] = block
        except FileNotFoundError:
            raise
        except (OSError, ValueError, EOFError, IndexError, TokenError) as error:
            undo = f"visterm feedback undo --learner {learner} {self.run.option}"
            raise UserError(
                f"{folder}: damaged version of {learner} ({error}); run '{undo}' to go back to the version before, or "
                f"{repair_hint(folder)}"
            ) from None
        return model

    def load_teachers(self, learner: str, table: Any) -> TaughtImages:
        """Load the images of the base and of the version in force, with the table of both; UserError if there are none.

        `table` is that of the base.
        """
        from scipy import sparse

        from visterm.learners.teachers import without_images

        base = taught_images(self.run, learner)
        version = self.in_force(learner).version
        if not version:
            return base._replace(table=table)
        of_marks = load_teachers(self.run.feedback(learner) / str(version))
        if of_marks is None:
            raise no_table(self.run, learner)
        gone = set(self.forgotten(learner, version))
        if gone and table.shape[0] == len(base.rows):
            table = without_images(table, np.array([row["id"] in gone for row in base.rows]))
        stack: Any = sparse.vstack
        if not sparse.issparse(base.X):
            of_marks = of_marks._replace(X=of_marks.X.toarray())
            stack = np.vstack
        X = stack([base.X, of_marks.X])
        whole = sparse.csr_array(sparse.block_diag([table, of_marks.table], format="csr"))
        return TaughtImages(sparse.csr_array(X) if sparse.issparse(X) else X, base.rows + of_marks.rows, whole)

    def load_in_force(self, learner: str, *, learns: bool = True) -> Any:
        """Load the version that is used; of a learner that has no versions, the trained one.

        Unless it `learns`, its `Similarity` alone.
        """

        def base() -> Any:
            return load_trained(self.run, learner, verify=False) if learns else load_similarity(self.run, learner)

        if learner not in _ARRAY:
            return base()
        from visterm.learners.saved import load_similarity as read

        for _ in range(5):  # base and version are separate files: both must be of one state
            state = self.in_force(learner)
            try:
                if state.version:
                    load = None if learns else read
                    model = self.load(learner, state.version, load)
                else:
                    model = base()
            except FileNotFoundError:
                continue
            except UserError:
                if self.in_force(learner) == state:
                    raise
            else:
                if self.in_force(learner) == state:
                    return model
        folder = self.run.feedback(learner) / str(state.version)
        raise UserError(f"{folder}: damaged version of {learner}; {repair_hint(folder)}")
