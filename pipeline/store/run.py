"""A run folder: where its artifacts lie, what they were made from, and whether they still are fresh."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError

from .files import recover, write_text

_log = logging.getLogger(__name__)


class Run:
    """The folder ``runs/<name>``.

    Parameters
    ----------
    folder : Path
        It need not exist yet.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def collection(self) -> Path:
        """The catalogue and the counts."""
        return self.folder / "collection"

    @property
    def extractor(self) -> Path:
        """Palette, codebook and idf."""
        return self.folder / "extractor"

    def learner(self, name: str) -> Path:
        """The folder of a trained learner."""
        return self.folder / "learners" / name

    def evaluation(self, name: str) -> Path:
        """The folder of a learner's figures and report."""
        return self.folder / "evaluations" / name

    @property
    def marks(self) -> Path:
        """The marks that people gave to results."""
        return self.folder / "feedback.sqlite"

    def taught(self, name: str) -> Path:
        """The folder of what a learner became by marks, a version each."""
        return self.folder / "feedback" / name

    @property
    def judgements(self) -> Path:
        """The tasks and decisions of the human evaluation."""
        return self.folder / "judgements.sqlite"

    def learners(self) -> list[str]:
        """Names of the learners that were trained in this run."""
        found = (path.parent.name for path in self.folder.glob("learners/*/record.json"))
        return sorted(name for name in found if "." not in name)  # not checkpoints

    def configure(self, file: Path | None, settings: list[str]) -> Config:
        """Read the configuration: the given file, else the run's own, else the defaults; settings on top."""
        own = self.folder / "config.yaml"
        return load_config(file if file is not None or not own.exists() else own, settings)

    def save_config(self, config: Config) -> None:
        """Keep the configuration that features or train last used, for later commands."""
        write_text(self.folder / "config.yaml", config.to_yaml())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run at the same time.

        Raises
        ------
        UserError
            Another process is at work in this run.
        """
        new = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "w")  # noqa: SIM115  # opened apart, so that errors of the work inside are not taken for its own; closed below
        except OSError as error:
            raise UserError(
                f"{self.folder}: cannot be written ({error.strerror}); search and info still work"
            ) from None
        with lock, self._removed_if_nothing_came_of_it(new):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{self.folder}: another visterm is at work in this run; wait for it to end") from None
            for place in (self.folder, self.folder / "learners", self.folder / "evaluations"):
                recover(place)
            yield

    @contextlib.contextmanager
    def _removed_if_nothing_came_of_it(self, new: bool) -> Iterator[None]:
        """Remove a new folder when the work in it was refused before it began."""
        try:
            yield
        except UserError:
            if new and not any((self.folder / name).exists() for name in ("config.yaml", "skipped.txt")):
                shutil.rmtree(self.folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    self.folder.parent.rmdir()  # if this was the first run
            raise
