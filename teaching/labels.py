"""Editing the labels of a run's images, over what folders and tables say."""

from __future__ import annotations

import csv
import functools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from typing_extensions import TypedDict

from visterm.pipeline.config.plain import tags_of
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.fields import read_fields
from visterm.pipeline.store.label_edits import LabelEdit, LabelEdits, check_label, plain_label, quoted
from visterm.pipeline.store.run import Run, run_at

from .label_counts import label_counts, opened

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

Given = int | str | Path | Iterable[int | str | Path]  # an image, or several


class LabelEditCounts(TypedDict):
    """Numbers of images that an edit changed and left; the step is None if it changed none."""

    step: int | None
    changed: int
    unchanged: int


class LabelEditor:
    """Add labels to a run's images and remove them; files of yours are never written.

    Searches, training and evaluation use the labels in effect at once. Threads and processes may share a run.

    Parameters
    ----------
    run : Run, str or Path
        A run in the folder of runs (``runs/``, or the environment variable VISTERM_RUNS), or the path of one.

    Raises
    ------
    UserError
        No such run.

    Examples
    --------
    >>> from visterm.pipeline import LabelEditor
    >>> labels = LabelEditor("photos")  # doctest: +SKIP
    >>> labels.add("sunset", ["sea/17.jpg", "id:12"])  # doctest: +SKIP
    >>> labels.undo()  # doctest: +SKIP
    """

    def __init__(self, run: Run | str | Path) -> None:
        self.run = run if isinstance(run, Run) else run_at(run)
        self.run.check_exists()
        self._config: Config = self.run.configure(None, [])

    def add(self, label: str, images: Given, *, source: str = "python") -> LabelEditCounts:
        """Add a label to images, one or several: ids, ``id:12``, files, or folders, whose images all get it.

        Raises
        ------
        UserError
            No such image, an image that was removed, or a label that cannot be one: nothing is changed.
        """
        return self._edit_all(label, images, 1, source)

    def remove(self, label: str, images: Given, *, source: str = "python") -> LabelEditCounts:
        """Remove a label from images, as `add` adds one."""
        return self._edit_all(label, images, -1, source)

    def edit(
        self, edits: Iterable[tuple[int, str, int]], *, source: str = "python", confirm: bool = False
    ) -> list[LabelEdit]:
        """Add (1) and remove (-1) labels by (id, label, change) as one step; return its rows.

        With ``confirm``, edits that change nothing are kept, too: whoever looked at the image said so.
        """
        with opened(self.run, Collection) as collection:
            return collection.edit_labels(edits, self._config, source, confirm=confirm)

    def rename(self, labels: Iterable[str], into: str, *, source: str = "python") -> list[LabelEdit]:
        """Give the images of labels another label instead, as one step; return its rows of images in the run.

        A label that exists takes theirs in. Of a new one, answers of no are kept, and added images are offered for it
        if they were for one of the others. Removed images have the other label, too, when they are added again, and so
        have images whose files cannot be read for now.

        Raises
        ------
        UserError
            No image has one of the labels, or `into` cannot be one: nothing is changed.
        """
        from .concepts import follow_renamed

        labels = [labels] if isinstance(labels, str) else labels
        names = {plain_label(label) for label in labels}  # a folder may have any name
        with opened(self.run, Collection) as collection:
            into = check_label(into, collection.labelled)
            names.discard(into)
            rows = collection.execute("SELECT id, labels, status FROM images WHERE status != 'removed'").fetchall()
            parsed = functools.cache(json.loads)
            ids: dict[int, dict[str, float]] = {id_: parsed(text) if text else {} for id_, text, _ in rows}
            counts = collection.label_sizes()
            if missing := sorted(names - counts.keys()):
                hint = "no label was changed; 'visterm label list' lists them"
                raise UserError(f"run {self.run.name} has no label {missing[0]!r}; {hint}")
            edits = []
            for id_, own in ids.items():
                if gone := names & own.keys():
                    edits += [(id_, label, -1) for label in gone] + ([] if into in own else [(id_, into, 1)])
            if into not in counts:
                refused = LabelEdits(self.run.label_edits).decided().refused
                no = {id_ for id_, label in refused if label in names and id_ in ids and not names & ids[id_].keys()}
                edits += [(id_, into, -1) for id_ in sorted(no)]
                follow_renamed(self.run, names, into)
            made = collection.edit_labels(edits, self._config, source, confirm=True, excluded=True)
        searchable = {id_ for id_, _, status in rows if status in ("ok", "pending")}
        return [row for row in made if row.image in searchable]

    def undo(self, *, source: str = "python", step: int | None = None) -> list[LabelEdit]:
        """Undo the last step that is not undone; return the rows made, none if there is no such step.

        UserError if it is not `step`, where one is given: somebody else has changed labels since.
        """
        with opened(self.run, Collection) as collection:
            last = LabelEdits(self.run.label_edits).last_step() if step is not None else []
            if last and last[0].step != step:
                names = ", ".join(sorted({one_line(edit.label) for edit in last}))
                raise UserError(f"label {names[:200]} was changed since; undo that first")
            rows = collection.undo_labels(self._config, source)
            if rows and self.run.concepts.exists():
                from .concepts import unfollow

                unfollow(self.run, {row.label for row in rows}.difference(collection.label_sizes()))
            return rows

    def of(self, images: Given) -> dict[str, dict[str, float]]:
        """Labels in effect and their weights, by path of these images."""
        with opened(self.run, Collection) as collection:
            ids = set(image_ids(self.run, collection, images, "give id:N or a path of the run"))
            return {image.path: image.labels for image in collection.images() if image.id in ids}

    def counts(self) -> dict[str, int]:
        """Number of images of each label, the most frequent first."""
        return label_counts(self.run)

    def history(self) -> list[dict[str, Any]]:
        """Every edit and every undo, in order."""
        return LabelEdits(self.run.label_edits).export()

    def export(self, stream: TextIO) -> int:
        """Write a table of all labels in effect, which ``collection.labels`` reads; return its number of rows.

        Of a run of clicks a table that ``collection.clicks`` reads. A label that a spreadsheet would take for a formula
        has an apostrophe before it, which reading removes. Columns of the run's own table of images are kept.
        """
        with opened(self.run, Collection) as collection:
            labels = collection.labels()
            kept = {id_: row.given for id_, row in read_fields(collection).items() if row.given}
            fields = {image.path: kept[image.id] for image in collection.images() if image.id in kept} if kept else {}
        if self._config.collection.clicks is not None:
            rows = [["query", "path", "count"]]
            for path in sorted(labels):
                rows += ([quoted(label), _plain(path), repr(weight)] for label, weight in sorted(labels[path].items()))
        else:
            columns = sorted({name for given in fields.values() for name in given})
            rows = [["path", "label", *columns]]
            for path in sorted(labels.keys() | fields.keys()):
                values = [quoted(fields.get(path, {}).get(name, "")) for name in columns]
                names = sorted(labels.get(path, ())) or ([""] if any(values) else [])
                rows += ([_plain(path), quoted(label), *values] for label in names)
        csv.writer(stream, lineterminator="\n").writerows(rows)
        return len(rows) - 1

    def export_sidecars(self) -> Any:
        """Write all labels in effect into sidecars of XMP beside the images, which stay as they are.

        Keywords and all else that other programs wrote into a sidecar stay, unless somebody removed the label here.
        Returns the numbers of sidecars ``written`` and of images ``unchanged``, and ``warnings``.

        Raises
        ------
        UserError
            Exiv2 is not installed, a folder cannot be written, or the run is one of clicks.
        """
        if self._config.collection.clicks is not None:
            raise UserError(f"run {self.run.name} has queries that were clicked for, not labels; no sidecar is written")
        with opened(self.run, Collection) as collection:
            labels, paths, root = collection.labels(), [image.path for image in collection.images()], collection.root
        standing = LabelEdits(self.run.label_edits).standing()
        refused = {path: {edit.label for edit in own.values() if edit.change < 0} for path, own in standing.items()}
        write_sidecars, tags = load("sidecars"), tags_of(self._config.collection.labels)
        return write_sidecars(root or Path(), paths, labels, refused, self.run.collection, tags)

    def _edit_all(self, label: str, images: Given, change: int, source: str) -> LabelEditCounts:
        with opened(self.run, Collection) as collection:
            ids = image_ids(self.run, collection, images, "no label was changed")
            edits = [(id_, label, change) for id_ in ids]
            made = collection.edit_labels(edits, self._config, source)
        step = made[0].step if made else None
        return {"step": step, "changed": len(made), "unchanged": len(ids) - len(made)}


def image_ids(run: Run, collection: Collection, images: Given, nothing: str) -> list[int]:
    """Ids of images given as ids, ``id:12``, files or folders; UserError for one that is not there.

    `nothing` says in the error that nothing was done.
    """
    ids: dict[int, None] = {}
    for image in [images] if isinstance(images, str | int | os.PathLike) else images:
        given = os.fspath(image) if isinstance(image, str | os.PathLike) else f"id:{image}"  # also a number of NumPy
        matches = collection.find(given)
        name = one_line(given) or "(empty name)"
        if not matches:
            raise UserError(f"run {run.name} has no image {name}; {nothing}")
        living = [id_ for id_, _, status in matches if status in ("ok", "pending")]
        if not living:
            removed = matches[0][2] == "excluded"
            why = "was removed; 'visterm add' brings it back" if removed else "cannot be read"
            raise UserError(f"run {run.name}: {name} {why}; {nothing}")
        ids |= dict.fromkeys(living)
    if not ids:
        raise UserError("no images given; give files, folders, id:N, or the results of a search on standard input")
    return list(ids)


def _plain(path: str) -> str:
    """A path that no spreadsheet takes for a formula."""
    return path if quoted(path) == path else os.path.join(os.curdir, path)
