"""Which images of a collection a search or an album is about: by label and by folder."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from visterm.pipeline.store.catalogue import Image

if TYPE_CHECKING:
    import numpy as np


class Filter(NamedTuple):
    """Conditions on images; an empty filter keeps all.

    Attributes
    ----------
    label : tuple of str
        Keep images with at least one of these labels.
    not_label : tuple of str
        Skip images with one of these labels.
    folder : str or None
        Keep images in this folder or below it; the path is relative to the image directory. "." keeps the images that
        lie in that directory itself.
    """

    label: tuple[str, ...] = ()
    not_label: tuple[str, ...] = ()
    folder: str | None = None

    @classmethod
    def of(
        cls,
        label: str | Sequence[str] | None = None,
        not_label: str | Sequence[str] | None = None,
        folder: str | None = None,
    ) -> Filter:
        """Make a filter of one label or several, or of none."""
        return cls(_names(label), _names(not_label), folder or None)

    def rows(self, images: Sequence[Image]) -> np.ndarray:
        """Rows of the images that pass, in order."""
        import numpy as np

        wanted, unwanted = set(self.label), set(self.not_label)
        start = None if self.folder in (None, "", ".") else str(self.folder).rstrip("/") + "/"
        at_top = self.folder == "."
        rows = [
            row
            for row, image in enumerate(images)
            if (not wanted or not wanted.isdisjoint(image.labels))
            and unwanted.isdisjoint(image.labels)
            and (start is None or image.path.startswith(start))
            and not (at_top and "/" in image.path)
        ]
        return np.array(rows, np.intp)


NO_FILTER = Filter()


class Albums:
    """The images of a collection by label and by the folder that they lie in.

    Attributes
    ----------
    labels, folders : dict of str to list of int
        Rows by name, the largest album first. Images directly in the image directory are in folder "".
    """

    def __init__(self, images: Sequence[Image]) -> None:
        labels, folders = defaultdict(list), defaultdict(list)
        for row, image in enumerate(images):
            folders[os.path.dirname(image.path)].append(row)
            for label in image.labels:
                labels[label].append(row)
        self.labels = _largest_first(labels)
        self.folders = _largest_first(folders)

    @cached_property
    def are_alike(self) -> bool:
        """Whether each folder holds exactly the images of one label, so that one of the two lists is enough."""
        return sorted(self.labels.values()) == sorted(self.folders.values())


def covers(rows: Sequence[int], n: int = 4) -> list[int]:
    """Choose some rows of an album, spread over it: the same ones every time."""
    return [rows[i * len(rows) // n] for i in range(n)] if len(rows) > n else list(rows)


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _largest_first(albums: dict[str, list[int]]) -> dict[str, list[int]]:
    return dict(sorted(albums.items(), key=lambda album: (-len(album[1]), album[0])))
