"""Ranked lists, which searches return and measures read."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ranking:
    """The best gallery images of each query, best first.

    Parameters
    ----------
    indices : ndarray of int32, shape (n_queries, k)
        Gallery rows: score descending, then index ascending. -1 where no image was left to rank.
    scores : ndarray of float32, shape (n_queries, k)
        Their similarities, larger is closer; -inf where the index is -1. Scores are comparable only within
        one query and learner.

    Raises
    ------
    ValueError
        If the two arrays do not have the same two-dimensional shape.
    """

    indices: np.ndarray
    scores: np.ndarray

    def __post_init__(self) -> None:
        if self.indices.ndim != 2 or self.indices.shape != self.scores.shape:
            raise ValueError(
                "a ranking needs indices and scores of one shape (n_queries, k), "
                f"got {self.indices.shape} and {self.scores.shape}"
            )

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def k(self) -> int:
        """Number of ranked images per query."""
        return self.indices.shape[1]


def best_first(scores: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort each row (n_queries, m): score descending, then index ascending, filling (-inf, -1) last.

    Score and index become one 64-bit integer, so that one fast sort without stability settles both: the bits of
    a float32 order like integers once negative numbers are inverted, and here all is turned round, as large
    scores come first. -0.0 is 0.0.
    """
    bits = (scores + np.float32(0)).view(np.uint32)
    descending = np.where(bits >> 31, bits, ~bits & 0x7FFFFFFF)
    keys = descending.astype(np.uint64) << 32 | indices.view(np.uint32)
    keys.sort(axis=1)
    descending = (keys >> 32).astype(np.uint32)
    bits = np.where(descending >> 31, descending, ~descending & 0x7FFFFFFF)
    return bits.view(np.float32), keys.astype(np.uint32).view(np.int32)
