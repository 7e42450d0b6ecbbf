"""Say that duplicates are different pictures, and take it back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from typing_extensions import TypedDict

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.paths import decoded
from visterm.pipeline.store.run import Run

from .different import DifferentPictures
from .label_counts import opened
from .labels import image_ids

_NOTHING = "nothing was kept"


class DifferenceStep(TypedDict):
    """A step in which images were said to show different pictures, and their number."""

    step: int | None
    images: int


def say_different(run: Run, parts: Sequence[Iterable[int | str | Path]]) -> DifferenceStep:
    """Say that images of different parts show different pictures: no group of duplicates has them together again.

    Images are ids, ``id:12``, files, or folders; nothing is said of images of one part. UserError for fewer than two
    parts, an image in two of them, no such image, or one that was removed: nothing is kept.
    """
    run.check_exists()
    with opened(run, Collection) as collection:
        ids = [image_ids(run, collection, part, _NOTHING) for part in parts]
        own = [number for part in ids for number in part]
        if len(ids) < 2:
            raise UserError(f"give two or more images that show different pictures; {_NOTHING}")
        if len(set(own)) < len(own):
            twice = next(number for place, number in enumerate(own) if number in own[:place])
            raise UserError(f"image id:{twice} is given twice; {_NOTHING}")
        query = "SELECT id, path, sha256 FROM images WHERE status = 'ok' AND id IN (SELECT value FROM json_each(?))"
        of_id = {
            id_: (id_, decoded(path), sha256) for id_, path, sha256 in collection.execute(query, [json.dumps(own)])
        }
        for number in own:
            if number not in of_id:
                raise UserError(f"image id:{number} is not extracted yet; run 'visterm features' first; {_NOTHING}")
        store = DifferentPictures(run.different)
        store.append([[of_id[number] for number in part] for part in ids])
    return {"step": store.last_step()[0].step, "images": len(own)}


def undo_different(run: Run) -> DifferenceStep:
    """Undo the last `say_different` that is not undone, and return it; without one, the step is None."""
    run.check_exists()
    rows = DifferentPictures(run.different).undo()
    return {"step": rows[0].step if rows else None, "images": len(rows)}
