"""When, with what and where pictures were taken: read from the files of images that are new in a collection."""

from __future__ import annotations

import warnings
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from visterm.pipeline.console import Console
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.fields import enter_exif, without_exif

_THREADS = 8  # which wait for files, and hardly compute
_AT_ONCE = 5_000  # images per transaction


def read_dates(collection: Collection, root: Path, console: Console, among: Container[str] | None = None) -> None:
    """Read and enter what EXIF says of the images, or of some paths, where that is not known yet."""
    from visterm.features import ImageError

    from .exif import exif_fields

    def fields_of(path: str) -> dict[str, str]:
        try:
            return exif_fields(root / path)
        except ImageError:  # the file is gone, say
            return {}

    images = [image for image in without_exif(collection) if among is None or image[1] in among]
    if not images:
        return
    with (
        warnings.catch_warnings(),
        console.phase("reading dates", len(images), "images") as phase,
        ThreadPoolExecutor(min(_THREADS, len(images))) as pool,
    ):
        warnings.filterwarnings("ignore", module="PIL")  # of broken EXIF; set here, before there are threads
        for start in range(0, len(images), _AT_ONCE):
            block = images[start : start + _AT_ONCE]
            fields = pool.map(fields_of, [path for _, path in block])
            enter_exif(collection, [(id_, one) for (id_, _), one in zip(block, fields, strict=True)])
            phase.advance_to(start + len(block))
