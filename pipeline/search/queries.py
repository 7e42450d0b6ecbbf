"""Queries, read and turned into vectors."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.store.segments import as_stored, stacked
from visterm.pipeline.store.vectors import embed

from .gallery import Gallery
from .request import IMAGE_ID

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.pipeline.config.models import Config

_FILES_PER_TASK = 32  # query files that a thread turns into vectors at a time
_NO_EXTRACTOR = (
    "this run has imported vectors and nothing to make vectors with: search with one of its images (path or id:12), or "
    "with vectors (.npy, .npz, .safetensors, .parquet, .arrow)"
)


@dataclass(frozen=True)
class Queries:
    """Images to search with. Those that could be read have a row in `Q`, with unit rows as those of the collection."""

    names: list[str]  # as given; the files of a folder one by one
    Q: sparse.csr_matrix | np.ndarray  # float32 (n_read, V)
    place: list[int]  # which query each row of Q is
    rows: list[int]  # per row of Q, the row of the collection that the query is, excluded from its results; or -1
    errors: dict[int, str]  # why the other queries could not be read
    images: list[Any]  # per query its image: a file, pixels, or a `KnownImage`; None for a vector


class KnownImage(NamedTuple):
    """An image whose SHA-256 is known; its file or pixels are fetched only when they are needed."""

    sha256: str
    fetch: Callable[[], Any]


def read_queries(queries: Any, gallery: Gallery, config: Config) -> Queries:
    """Turn images, folders, ids and files of vectors into query vectors; see `Searcher.queries`."""
    import numpy as np

    names: list[str] = []
    images: list[Any] = []
    files: list[tuple[int, Any]] = []  # to read: position, path or pixels
    rows: dict[int, int] = {}  # position to row of the collection
    errors: dict[int, str] = {}
    imported: dict[int, Any] = {}  # vectors of a file, by the position of its first
    options = config.collection.vectors.model_dump(include={"unit", "vector_column"})
    if config.collection.vectors.file is None and config.features.kind == "onnx":
        options["unit"] = config.features.onnx.unit
    one = isinstance(queries, str | os.PathLike | np.ndarray | bytes | bytearray | int | np.integer)
    for query in [queries] if one or _is_pillow(queries) or hasattr(queries, "read") else queries:
        position = len(names)
        query = contents_of(query)
        if isinstance(query, np.ndarray | bytes) or _is_pillow(query):
            from visterm.features import ImageError, decode_image
            from visterm.features.decoding import pillow_pixels

            names.append(f"image {position + 1}")
            if _is_pillow(query):
                try:
                    query = pillow_pixels(query)
                except ImageError as error:
                    images.append(None)
                    errors[position] = error.reason
                    continue
            content = functools.partial(decode_image, query, names[-1]) if isinstance(query, bytes) else None
            images.append(KnownImage(hashlib.sha256(query).hexdigest(), content) if content else query)
            files.append((position, query))
            continue
        name = f"id:{query}" if isinstance(query, int | np.integer) else os.fsdecode(query)
        if os.path.isdir(name):
            below = _images_below(name)
            files += [(position + i, file) for i, file in enumerate(below)]
            names += below or [name]
            images += below or [name]
            if not below:
                errors[position] = "no images in this folder"
            continue
        names.append(name)
        images.append(name)
        row = gallery.row_named(name)
        if row is not None:
            rows[position] = row
            images[position] = os.path.join(gallery.root, gallery.images[row].path)
        elif IMAGE_ID.fullmatch(name):
            errors[position] = f"run {gallery.run.name} has no image of this id"
        elif "://" in name and not os.path.exists(name):
            errors[position] = f"an address on the web; download the image first: curl -O {shlex.quote(name)}"
        elif config.collection.vectors.file is not None and (copy := gallery.row_of_file(name)) >= 0:
            rows[position] = copy
        elif _holds_vectors(name):
            from visterm.features import printable, read_query_vectors

            try:
                names[position:], imported[position] = read_query_vectors(name, gallery.X.shape[1], **options)
            except ValueError as error:
                errors[position] = str(error).removeprefix(f"{printable(name)}: ")
            else:
                images[position:] = [None] * (len(names) - position)
        else:
            files.append((position, name))
    all_rows = rows | {position: gallery.row_of_file(file) for position, file in files if isinstance(file, str)}
    Q, read, unreadable = _vectors(files, gallery, config)
    known = [gallery.X[np.fromiter(rows.values(), np.intp)]] if rows else []
    Q = stacked([*([Q] if read else []), *known, *imported.values()] or [Q])
    place = [*read, *rows, *(i + n for i, made in imported.items() for n in range(made.shape[0]))]
    if (order := sorted(range(len(place)), key=place.__getitem__)) != [*range(len(place))]:
        Q, place = Q[np.array(order)], [place[i] for i in order]
    Q = as_stored(Q, config.features.precision)
    return Queries(names, Q, place, [all_rows.get(position, -1) for position in place], errors | unreadable, images)


def contents_of(query: Any) -> Any:
    """The bytes of an open file or a bytearray; any other query as it is."""
    return bytes(query) if isinstance(query, bytearray) else query.read() if hasattr(query, "read") else query


def _vectors(files: Sequence[tuple[int, Any]], gallery: Gallery, config: Config) -> tuple[Any, list[int], dict]:
    """Vectors of the files that can be read, their positions, and why the others cannot."""
    if not files:
        return gallery.X[:0], [], {}
    from concurrent.futures import ThreadPoolExecutor

    from visterm.features import ImageError

    extractor, max_pixels = gallery.extractor, config.collection.max_pixels
    errors: dict[int, str] = {}
    if extractor is None:
        return gallery.X[:0], [], dict.fromkeys((position for position, _ in files), _NO_EXTRACTOR)

    def vectors_of(part: Sequence[tuple[int, Any]]) -> tuple[Any, list[int]]:
        done: list[int] = []

        def readable() -> Iterable[np.ndarray]:
            for position, file in part:
                try:
                    if isinstance(file, str | bytes):
                        content = {"data": file} if isinstance(file, bytes) else {}
                        file = extractor.read("" if content else file, max_pixels=max_pixels, **content).pixels
                    else:
                        _check_pixels(file, max_pixels)
                except ImageError as error:
                    errors[position] = error.reason
                else:
                    done.append(position)
                    yield file

        if hasattr(extractor, "count"):
            return extractor.transform(readable()), done
        return embed(extractor, readable(), few=len(files) < _FILES_PER_TASK), done

    parts = [files[i : i + _FILES_PER_TASK] for i in range(0, len(files), _FILES_PER_TASK)] or [[]]
    n_threads = 1
    if len(parts) > 1:
        from joblib import effective_n_jobs

        n_threads = min(effective_n_jobs(config.compute.n_jobs), len(parts))
    if n_threads == 1:
        made = [vectors_of(part) for part in parts]
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            made = list(pool.map(vectors_of, parts))
    return stacked([rows for rows, _ in made]), [position for _, done in made for position in done], errors


def _holds_vectors(name: str) -> bool:
    from visterm.features.images import VECTOR_SUFFIXES

    return name.lower().endswith(VECTOR_SUFFIXES)


def _is_pillow(query: Any) -> bool:
    """Whether a query is an image of Pillow, which need not be imported to see that."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(query, pillow.Image)


def _images_below(folder: str) -> list[str]:
    from visterm.features import find_images

    try:
        return [os.fspath(file) for file in find_images(folder)]
    except OSError:
        return []


def _check_pixels(pixels: np.ndarray, max_pixels: int) -> None:
    from visterm.features import ImageError

    if pixels.dtype != "uint8" or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise ImageError("", f"not RGB uint8 (H, W, 3), but {pixels.dtype} {pixels.shape}")
    if pixels.shape[0] * pixels.shape[1] > max_pixels:
        raise ImageError("", f"more than {max_pixels:,} pixels")
