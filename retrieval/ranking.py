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
