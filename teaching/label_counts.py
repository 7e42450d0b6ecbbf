"""Numbers of images of labels, apart from editing, as ``visterm label list`` needs no more and is called quickly."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from visterm.pipeline.cli.runs import open_run
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.store.database import Database
from visterm.pipeline.store.run import Run

_Kind = TypeVar("_Kind", bound=Database)


def list_counts(run: str | None, as_json: bool) -> None:
    """Print all labels with their numbers of images."""
    place, _ = open_run(run, None, None)
    place.check_exists()
    counts = label_counts(place)
    if as_json:
        print(json.dumps([{"label": label, "images": n} for label, n in counts.items()]))
        return
    for label, n in counts.items():
        print(f"{n:>9,}  {one_line(label)}")


def label_counts(run: Run) -> dict[str, int]:
    """Number of images of each label, the most frequent first; removed and unreadable ones are not counted."""
    where = "status IN ('ok', 'pending') AND labels IS NOT NULL"
    query = f"SELECT labels, count(*) FROM images WHERE {where} GROUP BY labels"
    n_images: Counter[str] = Counter()
    with opened(run, Database) as database:
        for labels, n in database.execute(query):
            n_images.update(dict.fromkeys(json.loads(labels), n))
    return dict(sorted(n_images.items(), key=lambda entry: (-entry[1], entry[0])))


@contextlib.contextmanager
def opened(run: Run, kind: type[_Kind]) -> Iterator[_Kind]:
    """Open the catalogue of a run; UserError if it has no images."""
    with system_errors_explained(run.folder), kind(run.collection) as collection:
        if collection.root is None:
            raise UserError(f"run {run.name} has no images yet; run 'visterm features IMAGES {run.option}' first")
        yield collection
