"""Origin of an export: which run, learner and images its files come from, also to export what changed since."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import trained_record
from visterm.pipeline.store.records import version
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content, identity

FILE = "export.json"


class Provenance(TypedDict):
    """Content of export.json, and of the metadata of the other files without ``ids``."""

    run: str
    learner: str
    learned_weight: float
    similarity: str  # checksum of extractor and both maps: a map and a gallery with the same one belong together
    gallery: str  # checksum of extractor and the gallery's map: galleries with the same one can be mixed
    extractor: str  # checksum
    images: str  # checksum of the paths, SHA-256, labels and splits
    precision: str
    trained: str | None  # ISO 8601; None for cosine
    exported: str
    visterm: str
    ids: list[tuple[int, int]]  # first and last of each range of ids


def provenance(run: Run, name: str, similarity: Any, images: Sequence[Image], precision: str) -> Provenance:
    """Describe an export of a similarity and these images of a run."""
    extractor = extractor_content(run)
    gallery = _checksum(extractor, similarity.gallery_map())
    return {
        "run": run.name,
        "learner": name,
        "learned_weight": getattr(similarity, "learned_weight", 1.0),
        "similarity": _checksum(gallery, similarity.query_map()),
        "gallery": gallery,
        "extractor": extractor,
        "images": identity(images),
        "precision": precision,
        "trained": trained_record(run, name).get("created"),
        "exported": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "visterm": version("visterm"),
        "ids": _ranges(sorted(image.id for image in images)),
    }


def in_files(origin: Provenance) -> str:
    """Return what the metadata of a file say."""
    return json.dumps({key: value for key, value in origin.items() if key != "ids"})


def ids_since(folder: Path, origin: Provenance) -> set[int]:
    """Return the ids of an earlier export; UserError if its gallery cannot be mixed with this one."""
    try:
        earlier: Provenance = json.loads((folder / FILE).read_text())
        ids = {id_ for first, last in earlier["ids"] for id_ in range(first, last + 1)}
        mixed = [key for key in ("run", "gallery", "precision") if earlier[key] != origin[key]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise UserError(f"--since {folder}: no earlier export; give the folder of one ({FILE}: {reason})") from None
    if mixed:
        raise UserError(f"--since {folder}: made with another {mixed[0]}, so that every vector changed: export all")
    return ids


def _ranges(ids: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for id_ in ids:
        ranges[-1:] = [(ranges[-1][0], id_)] if ranges and ranges[-1][1] == id_ - 1 else [*ranges[-1:], (id_, id_)]
    return ranges


def _checksum(*parts: Any) -> str:
    """Hash texts, numbers, arrays and the steps of maps to sixteen hexadecimal digits."""
    import numpy as np

    digest = hashlib.sha256()

    def add(part: Any) -> None:
        digest.update(f"{type(part).__name__} {getattr(part, 'shape', '')}".encode())
        if isinstance(part, tuple):
            for one in part:
                add(one)
        else:
            digest.update(np.ascontiguousarray(part).data if hasattr(part, "shape") else repr(part).encode())

    add(parts)
    return digest.hexdigest()[:16]
