"""Read images in batches: one after the other, on threads, or on other machines."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from .decoding import as_rgb, enlarge_to_side, shrink_to_side, side_of
from .depth import RULES, Rules
from .images import ImageError, read_picture
from .parameters import effective_n_jobs

BATCH = 32  # images whose blocks are assigned to visterms together
DISTRIBUTED_BATCH = 128  # images per task of `distribute`, which carries the codebook of some MB

Failure = tuple[int, str, Exception]  # index of an image that could not be read, its path, the error
Limits = tuple[int, int | None, int | None, Rules]  # most pixels, longest side, and that of small images
Distribute = Callable[[Callable[..., Any], Iterable[tuple]], Iterable[Any]]  # function and tasks to results, in order


def check_images(images: Any) -> Any:
    """Return the images, unless they are one path or one image's array, which could be iterated over too."""
    if isinstance(images, (str, bytes, os.PathLike)):
        raise ValueError(f"images must be a sequence of images, not one path: use [{os.fspath(images)!r}]")
    if isinstance(images, np.ndarray) and images.ndim == 1 and images.dtype.kind in "OU":  # of paths
        return list(images)
    if isinstance(images, np.ndarray) and (images.ndim < 3 or (images.ndim == 3 and images.shape[2] == 3)):
        raise ValueError(f"images must be a sequence of images, not one array of shape {images.shape}")
    return images


def read_pixels(
    image: Any, max_pixels: int, max_side: int | None = None, enlarge_to: int | None = None, rules: Rules = RULES
) -> np.ndarray:
    """Return RGB pixels of a path or an array, scaled down to a longest side, or a small image enlarged to one."""
    if isinstance(image, (str, os.PathLike)):
        pixels = read_picture(image, max_side=max_side, max_pixels=max_pixels, rules=rules).pixels
    else:
        pixels = as_rgb(image)
        pixels = shrink_to_side(pixels, side_of(pixels.shape[:2], max_side, rules))
    return enlarge_to_side(pixels, side_of(pixels.shape[:2], enlarge_to, rules))


def run_batch(
    function: Callable[[np.ndarray, int], Any], start: int, images: Iterable[Any], *limits: Any
) -> tuple[list[Any], list[Failure]]:
    """Call function(pixels, index) for every image; return the results and the failures.

    `limits` are those of `read_pixels`. An unreadable path gives the result None and a failure (index, path, error).
    Images may be an iterator; only one is held at a time.
    """
    results: list = []
    failures: list = []
    for index, image in enumerate(images, start):
        try:
            pixels = read_pixels(image, *limits)
        except (ImageError, OSError) as error:
            results.append(None)
            failures.append((index, os.fspath(image), error))
        else:
            results.append(function(pixels, index))
    return results, failures


def _batches(images: Iterable[Any], size: int = BATCH) -> Iterator[tuple[int, Iterator[Any]]]:
    """Split any iterable into (start, iterator of images); use up each before the next."""
    images = iter(images)
    for start in itertools.count(0, size):
        first = list(itertools.islice(images, 1))
        if not first:
            return
        yield start, itertools.chain(iter(first), itertools.islice(images, size - 1))


def run_batches(
    function: Callable[[int, Iterable[Any]], Any],
    images: Iterable[Any],
    n_jobs: int | None,
    distribute: Distribute | None = None,
) -> Iterator[Any]:
    """Yield function(start, batch) of every batch of images, in order, at most a few batches ahead.

    Threads suffice: kernels and decoders release the GIL, and the codebook is shared. With `distribute` the function
    and its variables must be picklable.
    """
    if distribute is not None:
        yield from distribute(function, ((start, list(batch)) for start, batch in _batches(images, DISTRIBUTED_BATCH)))
        return
    n_jobs = 1 if n_jobs is None else effective_n_jobs(n_jobs)
    if n_jobs == 1:
        yield from (function(*batch) for batch in _batches(images))
        return
    with concurrent.futures.ThreadPoolExecutor(n_jobs) as pool:
        pending: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            for start, batch in _batches(images):
                pending.append(pool.submit(function, start, list(batch)))
                if len(pending) > 2 * n_jobs:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
