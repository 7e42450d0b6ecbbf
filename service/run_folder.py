"""The folder of the run that is served."""

from __future__ import annotations

import os

from starlette.exceptions import HTTPException

from visterm.pipeline.store.run import Run


class RunFolder:
    """The folder of a served run, which may be renamed, deleted or replaced meanwhile.

    It is held open, so that no other folder gets its inode number.
    """

    def __init__(self, run: Run):
        self._run = run
        self._descriptor = os.open(run.folder, os.O_RDONLY)

    def is_in_place(self) -> bool:
        """Return whether the path of the run still leads to this folder."""
        try:
            return os.path.samestat(os.stat(self._run.folder), os.fstat(self._descriptor))
        except OSError:
            return False

    def check(self) -> None:
        """Refuse a request that writes if the path of the run does not lead to this folder."""
        if not self.is_in_place():
            raise HTTPException(
                503,
                f"run {self._run.name}: its folder was renamed, deleted or replaced while it is served, and nothing "
                "was written; move the folder back, or restart the service",
            )

    def close(self) -> None:
        """Close the folder."""
        os.close(self._descriptor)
