"""First stage of the search of a dense gallery: a graph in which neighbours are near, walked towards the query.

Hierarchical navigable small world (Malkov and Yashunin, IEEE TPAMI 2020), as FAISS builds it for inner products
(ip-NSW, Morozov and Babenko, NeurIPS 2018), of the gallery sides in 8 bits per number. The query side is not in it:
whatever a learner does there (W'q of OASIS), the graph stays as it is.

A learned query side may lie far from all images, and its best images are then not neighbours of each other: the walk
must keep more images in view. With c the cosine of the query side and the best image of a first short walk, n
candidates are chosen from n (1 + 2 (1 / c - 1)^2) in view: n for the vector of a photo, twice as many for OASIS with
the weight that its training chooses, nine times as many for OASIS alone.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from visterm.extras import how_to_install

FORMAT = 2  # changes with the constants below: a graph on disk is then built again
LINKS = 32  # of each image; with 16 fewer of the best are found for OASIS, in the same time
BREADTH = 128  # images in view while one is added; with 80 too few links lead out of the clusters of a million
SAMPLE = 20_000  # images that set the range of each number, for its 8 bits
ROWS = 16_384  # added at once: float32 copies of no more
NEW_IMAGES = 2_000  # not yet in the graph: comparing all of them with a query takes a millisecond
GONE_SHARE = 0.2  # of the graph; with more, the walk visits too many removed images
COMPARED = 100  # images that give the mean length of the sides, and whether a graph belongs to this gallery
# Search:
FIRST_VIEW = 16  # images in view of the first walk, which gives the distance of a query side
WIDEST_VIEW = 32  # times as many images in view as candidates, at most
_FILE = "graph.faiss"
_END = f"visterm graph {FORMAT}\n".encode()  # after the bytes of FAISS, which misses some truncations


def faiss() -> ModuleType:
    """Import FAISS, or raise ImportError with the command that installs it."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError(f"a fast index of dense vectors needs FAISS ({error}); {how_to_install('ann')}") from None
    return faiss


class Graph:
    """A graph of a dense gallery, by ids of its images: some may be new to it or gone since it was built.

    `index` is a faiss.IndexIDMap, `sides` the gallery, (n_gallery, d), with a different id, int64, for each image.
    """

    n_candidates = 128  # by default

    def __init__(self, index: Any, sides: np.ndarray, ids: np.ndarray) -> None:
        self.index, self.sides, self.ids = index, sides, ids
        self._walk = faiss().downcast_index(index.index)  # by place in the graph
        order = np.argsort(ids, kind="stable")
        held = faiss().vector_to_array(index.id_map)
        places = np.minimum(np.searchsorted(ids, held, sorter=order), len(ids) - 1)
        self.rows = np.where(ids[order[places]] == held, order[places], -1)  # of the gallery, by place; -1: gone
        is_new = np.ones(len(ids), bool)
        is_new[self.rows[self.rows >= 0]] = False
        self.new = np.flatnonzero(is_new)
        self._new_sides: np.ndarray | None = None
        sample = np.linspace(0, len(sides) - 1, min(COMPARED, len(sides))).astype(int)
        self._length = float(np.linalg.norm(np.asarray(sides[sample], np.float32), axis=1).mean())

    @classmethod
    def build(cls, sides: np.ndarray, ids: np.ndarray, n_threads: int) -> Graph:
        """Build the graph of a gallery."""
        n, d = sides.shape
        library = faiss()
        index = library.IndexHNSWSQ(d, library.ScalarQuantizer.QT_8bit, LINKS, library.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = BREADTH
        sample = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
        index.train(np.ascontiguousarray(sides[sample], np.float32))
        graph = cls(library.IndexIDMap(index), sides, ids)
        graph.add_new(n_threads)
        return graph

    def add_new(self, n_threads: int) -> None:
        """Add the new images."""
        library = faiss()
        before = library.omp_get_max_threads()
        library.omp_set_num_threads(n_threads)
        try:
            for start in range(0, len(self.new), ROWS):
                rows = self.new[start : start + ROWS]
                self.index.add_with_ids(np.ascontiguousarray(self.sides[rows], np.float32), self.ids[rows])
        finally:
            library.omp_set_num_threads(before)
        self.rows = np.concatenate([self.rows, self.new])
        self.new, self._new_sides = self.new[:0], None

    def choose(self, query: np.ndarray, n: int) -> np.ndarray:
        """Rows of about n images that may score best for a query (d,), each once; more if images are new."""
        length = np.linalg.norm(query)
        if not 0 < length < np.inf:  # every image scores 0, or no score is defined
            return self.new[:0]
        direction = (query / length)[None]
        first = faiss().SearchParametersHNSW(efSearch=FIRST_VIEW)
        cosine = float(self._walk.search(direction, 1, params=first)[0][0, 0]) / (self._length or 1.0)
        wider = min(1 + 2 * (1 / min(max(cosine, 1e-3), 1) - 1) ** 2, WIDEST_VIEW)
        parameters = faiss().SearchParametersHNSW(efSearch=round(n * wider))
        (places,) = self._walk.search(direction, n, params=parameters)[1]
        rows = self.rows[places[places >= 0]]
        rows = rows[rows >= 0]
        if not len(self.new):
            return rows
        if self._new_sides is None:
            self._new_sides = np.ascontiguousarray(self.sides[self.new], np.float32)
        new = self.new
        if len(new) > n:
            new = new[np.argpartition(-(self._new_sides @ query), n)[:n]]
        return np.concatenate([rows, new])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph to a folder, in one step."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{_FILE}.{uuid.uuid4().hex}.tmp"
        try:
            faiss().write_index(self.index, os.fspath(temporary))
            with temporary.open("ab") as file:
                file.write(_END)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, folder / _FILE)
        except (RuntimeError, TypeError, UnicodeError) as error:  # from FAISS, and for a path that is not UTF-8
            raise OSError(f"{folder / _FILE} cannot be written: {_first_line(error)}") from None
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], sides: np.ndarray, ids: np.ndarray) -> Graph:
        """Read the graph that `save` wrote, for the gallery as it is now.

        It is not memory-mapped: a file that is cut short while it is mapped ends the process. ValueError if it is
        missing, damaged, of another version or gallery, or has too many removed images.
        """
        graph = cls(_read(Path(folder) / _FILE), sides, ids)
        gone = 1 - np.count_nonzero(graph.rows >= 0) / len(graph.rows)
        if gone > GONE_SHARE:
            raise ValueError(f"{Path(folder) / _FILE}: {gone:.0%} of its images are gone; build the index again")
        if not graph._is_of_gallery():
            raise ValueError(f"{Path(folder) / _FILE}: made for another gallery; build the index again")
        return graph

    def _is_of_gallery(self) -> bool:
        """Whether a sample of images has the sides of the graph, up to its rounding to 8 bits."""
        if self._walk.d != self.sides.shape[1]:
            return False
        held = np.flatnonzero(self.rows >= 0)
        sample = held[np.linspace(0, len(held) - 1, min(COMPARED, len(held))).astype(int)]
        sides = np.asarray(self.sides[self.rows[sample]], np.float32)
        stored = np.array([self._walk.reconstruct(int(place)) for place in sample])
        near = np.linalg.norm(sides - stored, axis=1) <= 0.1 * np.linalg.norm(sides, axis=1).mean()
        return bool(near.mean() > 0.9)  # a few images may lie beyond the trained range


def _read(path: Path) -> Any:
    library = faiss()
    try:
        with path.open("rb") as file:
            file.seek(-len(_END), os.SEEK_END)
            whole = file.read() == _END
    except FileNotFoundError:
        raise ValueError(f"{path}: no index is saved here; build the index") from None
    except OSError:  # shorter than the end mark
        whole = False
    if not whole:
        raise ValueError(f"{path}: damaged, or of another version of visterm; build the index again")
    try:
        index = library.read_index(os.fspath(path))
        walk = library.downcast_index(index.index)
        is_graph = isinstance(walk, library.IndexHNSWSQ) and index.ntotal == walk.ntotal > 0
    except (RuntimeError, AttributeError) as error:  # AttributeError: an index of another kind
        reason = _first_line(error)
        raise ValueError(f"{path}: damaged, or of another version of FAISS ({reason}); build the index again") from None
    if not is_graph:
        raise ValueError(f"{path}: not a graph of visterm; build the index again")
    return index


def _first_line(error: BaseException) -> str:
    """The reason in an error of FAISS, without the C++ function that raised it."""
    return str(error).strip().splitlines()[0].rpartition(": ")[2][:120]
