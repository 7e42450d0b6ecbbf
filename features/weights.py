"""Weights of visterms as they were fitted: what a gallery needs of an extractor, without what learns.

`VistermWeighting` has the formula, and learns them.
"""

from __future__ import annotations

import json
import os
import pathlib
import zlib
from collections.abc import Callable
from tokenize import TokenError
from typing import Any

import numpy as np

from visterm import sparse as sp

from .parameters import Transformer, check_fitted

ROWS_AT_ONCE = 10_000
TERM_FREQUENCIES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"count": lambda counts: counts, "sqrt": np.sqrt}
FORMAT = 6  # of a saved extractor; raised whenever an older version could not read it, or would give other vectors
FORMATS = {5: {"reading": 1}, FORMAT: {}}  # that can be read, with settings that they lack
ARRAYS = {
    "palette": np.float32, "codebook": np.float32, "idf": np.float64,
    "filters": np.uint8, "nodes": np.int32, "roots": np.int32,
}  # fmt: skip


class VistermWeights(Transformer):
    """tf-idf weights with rows of unit length; `tf` is "count" or "sqrt", `n_images_` the number of training images."""

    idf_: np.ndarray
    n_images_: int

    def __init__(self, *, tf: str = "count") -> None:
        self.tf = tf

    def transform(self, counts: Any) -> sp.csr_matrix:
        """Weight counts and scale each row to unit length.

        Parameters
        ----------
        counts : sparse matrix of int, (n, n_visterms)

        Returns
        -------
        csr_matrix of float32, (n, n_visterms)
            Without stored zeros.

        Raises
        ------
        ValueError
            Another number of visterms than at `fit`.
        """
        counts = self._check_counts(counts)
        data = np.empty(counts.nnz, np.float32)
        # By blocks: double precision for all images at once would take four times the memory of the vectors.
        for first in range(0, counts.shape[0], ROWS_AT_ONCE):
            indptr = counts.indptr[first : first + ROWS_AT_ONCE + 1]
            part, n = slice(indptr[0], indptr[-1]), len(indptr) - 1
            weights = TERM_FREQUENCIES[self.tf](counts.data[part]) * self.idf_[counts.indices[part]]
            rows = np.repeat(np.arange(n), np.diff(indptr))
            lengths = np.sqrt(np.bincount(rows, weights=weights * weights, minlength=n))
            lengths[lengths == 0] = 1
            data[part] = weights / lengths[rows]
        weighted = sp.csr_matrix((data, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape)
        weighted.eliminate_zeros()
        return weighted

    def transform_parts(self, counts: Any) -> sp.csr_matrix:
        """Weight the parts of one image, such as its blocks: rows that sum to the image's row of `transform`.

        Parameters
        ----------
        counts : sparse matrix of int, (n_parts, n_visterms)

        Returns
        -------
        csr_matrix of float32, (n_parts, n_visterms)
            Without stored zeros. The sum has unit length, the rows have not.

        Raises
        ------
        ValueError
            Another number of visterms than at `fit`.
        """
        counts = self._check_counts(counts)
        whole = np.bincount(counts.indices, weights=counts.data, minlength=counts.shape[1])
        weights = TERM_FREQUENCIES[self.tf](whole) * self.idf_
        length = np.linalg.norm(weights) or 1
        each = weights / (np.maximum(whole, 1) * length)  # of one occurrence: all those of a visterm weigh the same
        parts = sp.csr_matrix(
            ((counts.data * each[counts.indices]).astype(np.float32), counts.indices.copy(), counts.indptr.copy()),
            shape=counts.shape,
        )
        parts.eliminate_zeros()
        return parts

    def _check_counts(self, counts: Any) -> sp.csr_matrix:
        check_fitted(self, "idf_")
        counts = as_counts(counts)
        if counts.shape[1] != len(self.idf_):
            raise ValueError(f"counts have {counts.shape[1]} visterms, the weights {len(self.idf_)}")
        return counts


def as_counts(counts: Any) -> sp.csr_matrix:
    """Counts as a CSR matrix without duplicates."""
    counts = sp.csr_matrix(counts)  # no copy if it is one
    if not counts.has_canonical_format:
        counts = counts.copy()
        counts.sum_duplicates()
    return counts


def load_weights(folder: str | os.PathLike[str]) -> VistermWeights:
    """Read the weights of an extractor that `VistermExtractor.save` wrote; ValueError as of `VistermExtractor.load`."""
    folder, record = read_saved(folder)
    try:
        settings = record["settings"]
        weights = VistermWeights(tf=settings["tf"])
        weights.idf_ = read_array(folder, "idf", record["crc32"]["idf"], (settings["n_visterms"],))
        weights.n_images_ = int(record["n_images"])
    except (OSError, ValueError, TypeError, KeyError, EOFError, TokenError) as error:
        raise ValueError(f"the extractor in {folder} is damaged: {error}") from error
    return weights


def read_saved(folder: str | os.PathLike[str]) -> tuple[pathlib.Path, dict[str, Any]]:
    """Return the folder of a saved extractor and its record; ValueError if there is none, or of another version."""
    folder = pathlib.Path(folder)
    try:
        record = json.loads((folder / "extractor.json").read_text(encoding="utf-8"))
        version = record["format"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{folder} holds no readable extractor: {error!r}") from error
    if version not in FORMATS:
        raise ValueError(f"the extractor in {folder} has format {version!r}, this version reads {FORMAT}: rebuild it")
    return folder, record


def new_array(folder: pathlib.Path, name: str, crc32: int) -> pathlib.Path:
    """The file of an array while `VistermExtractor.save` replaces the one before, which has its plain name."""
    return folder / f"{name}-{crc32:08x}.npy"


def read_array(folder: pathlib.Path, name: str, crc32: int, shape: tuple[int | None, ...]) -> np.ndarray:
    """Read one array; None in the shape stands for any length."""
    path = new_array(folder, name, crc32)
    path = path if path.exists() else folder / f"{name}.npy"
    if zlib.crc32(path.read_bytes()) != crc32:
        raise ValueError(f"{path.name} does not have the checksum it was saved with")
    array = np.load(path, allow_pickle=False)
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{path.name} has shape {array.shape}, not {shape}")
    if array.dtype != ARRAYS[name]:
        raise ValueError(f"{path.name} holds {array.dtype}, not {np.dtype(ARRAYS[name])}")
    return array
