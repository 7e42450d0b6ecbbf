"""Queries, read and turned into vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse


@dataclass(frozen=True)
class Queries:
    """Images to search with. Those that could be read have a row in ``Q``.

    Parameters
    ----------
    names : list of str, (n_queries,)
        As given; the files of a folder one by one.
    Q : CSR or ndarray of float32, (n_read, V)
        Unit rows, as those of the collection.
    place : list of int, (n_read,)
        Which query each row of Q is.
    own : list of int, (n_read,)
        The row of the collection that the query is itself, to be left out of its results; -1 for none.
    errors : dict of int to str
        Why the other queries could not be read.
    """

    names: list[str]
    Q: sparse.csr_matrix | np.ndarray
    place: list[int]
    own: list[int]
    errors: dict[int, str]

    def answers(self, key: str) -> list[dict[str, Any]]:
        """``{"query": name, key: []}`` of every query, with ``"error"`` where it could not be read."""
        return [
            {"query": name, key: []} | ({"error": self.errors[i]} if i in self.errors else {})
            for i, name in enumerate(self.names)
        ]
