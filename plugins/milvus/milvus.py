"""Search with Milvus as the first stage: it chooses candidates, and their exact scores are computed here.

A score is h(q)' t(x), of the query side h and the gallery side t. Milvus holds t(x) of dense vectors, in an index of
its own for inner products, and is asked with h(q): a learner which moves the query side alone (OASIS, AROMA, LEGO) may
learn on without a change in Milvus.

Sparse vectors have too many dimensions for that. Of these Milvus holds an embedding of t(x) and is asked with one of
h(q), both of `DIRECTIONS` numbers, by one matrix R (d, `DIRECTIONS`) of random signs over sqrt(`DIRECTIONS`):

    g(x) = R' t(x),    a(q) = R' h(q),    a' g = h' R R' t ~ h' t,    with a deviation of |h| |t| / sqrt(DIRECTIONS)

(Johnson and Lindenstrauss). The best directions for the scores of a gallery, by a singular value decomposition, err
less on average, but lose what makes near copies near: the identity in W has no rank to speak of, and a random
projection keeps a little of every direction (``python -m benchmarks milvus`` has both).

A row in Milvus is (id, fingerprint, folder, labels, embedding); the fingerprint is of the others but the id. The row of
id -1 holds a fingerprint of all rows, written last: by it an index knows, without reading them, whether Milvus holds
this gallery under this learner. Folder and labels are what searches are filtered by, in Milvus.
"""

import copy
import functools
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numba import njit

from visterm.pipeline.console import without_password
from visterm.retrieval.graph import BREADTH, LINKS
from visterm.retrieval.index import ExactIndex, SupportsSimilarity
from visterm.retrieval.two_stage import CANDIDATES_PER_RESULT

from .milvus_connection import CONNECT_SECONDS, MilvusError, connect, said

DIRECTIONS = 512
CANDIDATES, DENSE_CANDIDATES = 1_000, 128  # by default: of embeddings, and of vectors as they are
KINDS = ("autoindex", "hnsw", "ivf", "flat")
LONGEST = 16_384  # results that Milvus gives for a query
ROWS_AT_ONCE = 2_000  # sent to Milvus: 4 MB
ROWS_HASHED = 16_384  # at once, and rows that are scored at once
HITS_AT_ONCE = 8_000  # asked for by one request: a second or two of milvus-lite
ANSWER_SECONDS = 30.0
WORK_SECONDS = 300.0  # for what may wait for a collection to be loaded or tidied up
_FIELDS = ("id", "fingerprint", "folder", "labels", "embedding")
_LONGEST_TEXT, _MOST_LABELS = 65_535, 4_096  # bytes of a folder or a label, and labels of an image: Milvus's limits
_STAMP = -1  # the id of the row that tells what the others are
_NAMES = dict(zip(KINDS, ("AUTOINDEX", "HNSW", "IVF_FLAT", "FLAT"), strict=True))


class StaleIndexError(MilvusError):
    """Milvus mostly holds another gallery, or embeddings of another learner."""


class Scalars(NamedTuple):
    """Fields of each image that filters use."""

    folders: Sequence[str]
    labels: Sequence[Sequence[str]]


class Entries(NamedTuple):
    """Ids and fingerprints of the images in Milvus: int64 (n,) each, by ascending id."""

    ids: np.ndarray
    fingerprints: np.ndarray

    @property
    def stamp(self) -> int:
        """A number for all of them, from 1 on."""
        digest = hashlib.sha256(self.ids.tobytes() + self.fingerprints.tobytes()).digest()
        return int.from_bytes(digest[:7], "big") + 1


def signs(d: int, n: int) -> np.ndarray:
    """R: random signs over the root of n, float32 (d, n), always the same."""
    bits = np.random.default_rng(0).integers(0, 2, (d, n), np.int8)
    return (2 * bits - 1) / np.float32(n**0.5)


class MilvusIndex(ExactIndex):
    """Nearest neighbours of a gallery whose embeddings lie in Milvus, nearly always those of `ExactIndex`.

    Scores are exact, and ties go to the smaller index, as in `ExactIndex`. What can be missed are images that Milvus
    did not choose, and those that have come to Milvus or changed there since: a search skips these, and raises
    `StaleIndexError` where too few are left. `synchronize` writes to Milvus; a search only reads. Any number of threads
    may search.

    The gallery stays here, as the exact scores need it. `ids` are what images are called in Milvus, whatever their
    rows: different numbers from 0 on; `scalars` the folder and labels of each, for `where`. `uri` is
    ``http://host:19530`` of a server, or a path that ends in .db, which milvus-lite serves from this process alone;
    `collection` is a name of letters, digits and underscores. The `kind` of index is "autoindex", which Milvus chooses,
    "hnsw", a graph, "ivf", lists, or "flat", so that it looks at all images. `n_candidates` images are scored exactly
    for a query, or ten times k where that is more; None is 128 for dense vectors, and 1,000 for sparse ones. `n_jobs`
    threads work where a search is exact throughout: of galleries no larger than the candidates, and for more candidates
    than Milvus gives (16,384).

    ValueError as `ExactIndex`; where n_candidates is not positive; where ids are not one an image, or not different.
    MilvusError where Milvus cannot be reached, or the file is not one of Milvus.
    """

    scores_all = False

    def __init__(
        self,
        learner: SupportsSimilarity,
        X: Any,
        y: Any = None,
        *,
        ids: Any,
        scalars: Scalars | None = None,
        uri: str,
        collection: str,
        kind: str = "autoindex",
        n_candidates: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(learner, X, y, n_jobs=n_jobs)
        is_projected = sp.issparse(self.gallery_) and self.gallery_.shape[1] > DIRECTIONS
        default = CANDIDATES if is_projected else DENSE_CANDIDATES
        self.n_candidates = default if n_candidates is None else n_candidates
        if self.n_candidates < 1:
            raise ValueError(f"n_candidates must be at least 1, got {n_candidates}")
        if kind not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
        ids = np.asarray(ids, np.int64)
        if ids.shape != (self.n_gallery,) or len(np.unique(ids)) < len(ids) or ids.min() < 0:
            raise ValueError("ids needs another number, from 0 on, for each image of the gallery")
        self._rows = np.argsort(ids)  # by ascending id
        fingerprints = _fingerprints(self.gallery_)
        self._projection: np.ndarray | None = None
        if is_projected:
            self._projection = signs(self.gallery_.shape[1], DIRECTIONS)
            # Another R, of another NumPy perhaps, makes other embeddings of the same images.
            made_by = hashlib.sha256(self._projection.tobytes()).digest()
            fingerprints ^= np.uint64(int.from_bytes(made_by[:8], "little"))
        self._scalars = Scalars([""] * self.n_gallery, [()] * self.n_gallery) if scalars is None else scalars
        fingerprints ^= _scalar_fingerprints(self._scalars)
        self._kind = kind
        self._filter = ""
        self._passing: Callable[[], np.ndarray] = lambda: np.arange(self.n_gallery)
        self.entries = Entries(ids[self._rows], fingerprints.view(np.int64)[self._rows])
        self.uri, self.collection = uri, collection
        self._stamp = self.entries.stamp
        self._client = connect(uri)

    # --- what Milvus holds ----------------------------------------------------------------------------------------

    def is_synchronized(self) -> bool:
        """Whether Milvus holds exactly this gallery, under this learner."""
        with said(self.uri):
            held = self._found_stamp() == self._stamp and self._count() == self.n_gallery + 1
            return held and self._held_kind() == _NAMES[self._kind]

    def synchronize(self, remembered: Entries | None = None) -> tuple[int, int]:
        """Write new and changed images to Milvus, and remove those that are gone; return the numbers of both.

        `remembered` are `entries` as they were when Milvus was last brought in step: if that is what it still holds,
        its rows need not be read. StaleIndexError if not even half of the images are there as they are here, and nobody
        remembers why; nothing was written. MilvusError if Milvus cannot be reached; what was written counts once it is
        brought in step again.
        """
        with said(self.uri):
            stamp = self._found_stamp()
            if stamp is None:
                return self._fill(), 0
            if stamp == self._stamp and self._held_kind() != _NAMES[self._kind]:
                self._client.release_collection(self.collection, timeout=WORK_SECONDS)
                self._client.drop_index(self.collection, "embedding", timeout=WORK_SECONDS)
                self._client.create_index(self.collection, self._index_parameters(), timeout=WORK_SECONDS)
                self._client.load_collection(self.collection, timeout=WORK_SECONDS)
            if self.is_synchronized():
                return 0, 0
            as_left = remembered and stamp == remembered.stamp and self._count() == len(remembered.ids) + 1
            held = remembered if remembered and as_left else self.held()
            missing = ~_among(self.entries, held)
            if 2 * missing.sum() > len(missing):
                if stamp and not as_left:  # 0: we began, and were interrupted
                    raise StaleIndexError(
                        f"{self.collection} in Milvus at {without_password(self.uri)} holds "
                        f"{len(missing) - missing.sum():,} of the {len(missing):,} images as they are now"
                    )
                return self._fill(), 0  # sooner than to exchange them
            gone = np.setdiff1d(held.ids, self.entries.ids)
            self._write_stamp(0)
            self._write(np.flatnonzero(missing))
            for start in range(0, len(gone), ROWS_AT_ONCE):
                part = gone[start : start + ROWS_AT_ONCE].tolist()
                self._client.delete(self.collection, ids=part, timeout=WORK_SECONDS)
            self._write_stamp(self._stamp)
            return int(missing.sum()), len(gone)

    def _fill(self) -> int:
        """Write all images into a new collection."""
        from pymilvus import DataType

        client = self._client
        client.drop_collection(self.collection, timeout=WORK_SECONDS)
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("fingerprint", DataType.INT64)
        schema.add_field("folder", DataType.VARCHAR, max_length=_LONGEST_TEXT)
        text: dict[str, Any] = {"element_type": DataType.VARCHAR, "max_length": _LONGEST_TEXT}
        schema.add_field("labels", DataType.ARRAY, max_capacity=_MOST_LABELS, **text)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=self._embed(self.gallery_[:1]).shape[1])
        client.create_collection(
            self.collection,
            schema=schema,
            index_params=self._index_parameters(),
            consistency_level="Strong",
            timeout=WORK_SECONDS,
        )
        self._write_stamp(0)
        self._write(np.arange(self.n_gallery))
        self._write_stamp(self._stamp)
        return self.n_gallery

    def _index_parameters(self) -> Any:
        """Parameters of the index in Milvus."""
        own: dict[str, Any] = {
            "hnsw": {"M": LINKS, "efConstruction": 2 * BREADTH},
            "ivf": {"nlist": self._n_lists()},
        }.get(self._kind, {})
        parameters = self._client.prepare_index_params()
        parameters.add_index("embedding", index_type=_NAMES[self._kind], metric_type="IP", params=own)
        return parameters

    def _n_lists(self) -> int:
        return max(1, min(65_536, round(4 * self.n_gallery**0.5), self.n_gallery // 39))  # of 39 images at least

    def _held_kind(self) -> str:
        """Name of the index that Milvus has of the collection."""
        description = self._client.describe_index(self.collection, "embedding", timeout=WORK_SECONDS) or {}
        return description.get("index_type", "")

    def _write(self, places: np.ndarray) -> None:
        """Write the images at some places of `entries`."""
        for start in range(0, len(places), ROWS_AT_ONCE):
            some = places[start : start + ROWS_AT_ONCE]
            columns = zip(
                self.entries.ids[some].tolist(),
                self.entries.fingerprints[some].tolist(),
                self._rows[some].tolist(),
                self._embed(self.gallery_[self._rows[some]]),
                strict=True,
            )
            folders, labels = self._scalars
            rows = [
                {
                    "id": i,
                    "fingerprint": fingerprint,
                    "folder": _sendable(folders[row]),
                    "labels": [_sendable(label) for label in labels[row][:_MOST_LABELS]],
                    "embedding": g,
                }
                for i, fingerprint, row, g in columns
            ]
            self._client.upsert(self.collection, rows, timeout=WORK_SECONDS)

    def _write_stamp(self, stamp: int) -> None:
        """Write the fingerprint of all rows, 0 while they are being written; a search never finds this row."""
        embedding = np.zeros(self._embed(self.gallery_[:1]).shape[1], np.float32)
        row = {"id": _STAMP, "fingerprint": stamp, "folder": "", "labels": [], "embedding": embedding}
        self._client.upsert(self.collection, [row], timeout=WORK_SECONDS)
        if stamp:
            self._client.flush(self.collection, timeout=WORK_SECONDS)

    def _found_stamp(self) -> int | None:
        """Read the fingerprint of all rows: 0 while they are being written, None without a collection."""
        if not _is_there(self._client, self.uri, self.collection):
            return None
        self._client.load_collection(self.collection, timeout=WORK_SECONDS)
        rows = self._client.get(self.collection, ids=[_STAMP], output_fields=["fingerprint"], timeout=WORK_SECONDS)
        return rows[0]["fingerprint"] if rows else 0

    def _count(self) -> int:
        """Count the rows of the collection."""
        rows = self._client.query(self.collection, output_fields=["count(*)"], timeout=WORK_SECONDS)
        return rows[0]["count(*)"]

    def held(self) -> Entries:
        """Read the rows of the collection, without the embeddings: some seconds for 100,000 images."""
        entries = []
        with said(self.uri):
            batches = self._client.query_iterator(
                self.collection,
                batch_size=ROWS_AT_ONCE,
                filter="id >= 0",
                output_fields=["id", "fingerprint"],
                timeout=WORK_SECONDS,
            )
            while batch := batches.next():
                entries += [(row["id"], row["fingerprint"]) for row in batch]
            batches.close()
        ids, fingerprints = np.array(sorted(entries), np.int64).reshape(-1, 2).T
        return Entries(ids, fingerprints)

    def where(self, *, label: Sequence[str] = (), not_label: Sequence[str] = (), folder: str | None = None) -> Self:
        """Return the same index, which Milvus searches for images that pass a filter alone.

        These have one of the labels of `label`, none of `not_label`, and lie in the folder or below it; "": in no
        folder. Milvus holds texts of at most 65,535 bytes and 4,096 labels of an image: of longer ones it may return
        images that do not pass, or miss some. A query for which Milvus finds fewer images than it was asked for, though
        more pass, is searched exactly.
        """
        conditions = [
            f"{negated}array_contains_any(labels, {_quoted([_sendable(name) for name in names])})"
            for negated, names in (("", label), ("not ", not_label))
            if names
        ]
        if folder is not None:
            text = _sendable(folder)
            below = re.sub(r"([%_\\])", r"\\\1", text) + "/%"
            conditions.append(f"(folder == {_quoted(text)}{f' or folder like {_quoted(below)}' if text else ''})")
        index = copy.copy(self)
        index._filter = " and ".join(conditions)
        index._passing = functools.cache(lambda: _rows_of(self._scalars, set(label), set(not_label), folder))
        return index

    # --- search ---------------------------------------------------------------------------------------------------

    def _embed(self, sides: Any) -> np.ndarray:
        """Embeddings, float32 (n, at most DIRECTIONS), of gallery sides or query sides (n, d)."""
        if self._projection is not None:
            sides = sides @ self._projection
        return sides.toarray() if sp.issparse(sides) else np.asarray(sides)

    def _choose(self, queries: np.ndarray, n: int) -> list[np.ndarray]:
        """Rows of the n images that may score best for each of some queries (n_queries, d), ascending."""
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found in the exact scores
            embeddings = np.nan_to_num(self._embed(queries))
        with said(self.uri):
            results = self._client.search(
                self.collection,
                list(embeddings),
                anns_field="embedding",
                limit=n,
                output_fields=["fingerprint"],
                filter=self._filter,
                search_params={"metric_type": "IP", "params": self._search_parameters(n)},
                timeout=ANSWER_SECONDS,
            )
        chosen = []
        for hits in results:
            # An index of Milvus may end its search before it meets images that pass: all of these are scored then.
            if self._filter and len(hits) < min(n, len(self._passing())):
                chosen.append(self._passing())
                continue
            ids = np.array([hit["id"] for hit in hits], np.int64)
            places = np.minimum(np.searchsorted(self.entries.ids, ids), self.n_gallery - 1)
            fingerprints = np.array([hit["entity"]["fingerprint"] for hit in hits], np.int64)
            # Others came later, or have changed since, and so has what they were chosen by.
            known = (self.entries.ids[places] == ids) & (self.entries.fingerprints[places] == fingerprints)
            chosen.append(np.sort(self._rows[places[known]]))
        return chosen

    def _search_parameters(self, n: int) -> dict[str, Any]:
        """How far Milvus looks for n images."""
        return {"hnsw": {"ef": 2 * n}, "ivf": {"nprobe": max(1, self._n_lists() // 8)}}.get(self._kind, {})

    def _search_block(
        self, queries: np.ndarray, exclude: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray
    ) -> None:
        """Search dense queries (n_queries, d); fills top_*, (n_queries, k)."""
        k = top_scores.shape[1]
        n = max(self.n_candidates, CANDIDATES_PER_RESULT * k) + 2  # one may be excluded, one may be the stamp
        if n > min(self.n_gallery, LONGEST):
            super()._search_block(queries, exclude, top_scores, top_indices)
            return
        candidates = copy.copy(self)  # of a query, as a gallery
        candidates.n_jobs = None
        step = max(1, HITS_AT_ONCE // n)
        for start in range(0, len(queries), step):
            chosen = self._choose(queries[start : start + step], n)
            for q, rows in enumerate(chosen, start):
                if len(rows) <= k:
                    where = f"{self.collection} in Milvus at {without_password(self.uri)}"
                    raise StaleIndexError(f"{where} has lost images since it was opened; search again")
                best = []
                for part in np.split(rows, range(ROWS_HASHED, len(rows), ROWS_HASHED)):
                    candidates.gallery_ = self.gallery_[part]
                    own = np.flatnonzero(part == exclude[q])
                    size = min(k, len(part))
                    scores, places = np.full((1, size), -np.inf, np.float32), np.full((1, size), -1, np.int32)
                    ExactIndex._search_block(candidates, queries[q : q + 1], own if len(own) else _NONE, scores, places)
                    best.append((scores[0], np.where(places[0] >= 0, part[places[0]], -1)))
                scores, places = (np.concatenate(both) for both in zip(*best, strict=True))
                order = np.lexsort((places, -scores))[:k]
                top_scores[q, : len(order)], top_indices[q, : len(order)] = scores[order], places[order]


_NONE = np.array([-1])


def drop_collection(uri: str, collection: str) -> None:
    """Remove the collection of a `MilvusIndex`, if there; MilvusError as of `connect`, and where it is none of ours."""
    client = connect(uri)
    with said(uri):
        if _is_there(client, uri, collection):
            client.drop_collection(collection, timeout=WORK_SECONDS)


def _is_there(client: Any, uri: str, collection: str) -> bool:
    """Whether there is a collection of this name; MilvusError where it was not made here."""
    if not client.has_collection(collection, timeout=CONNECT_SECONDS):
        return False
    description = client.describe_collection(collection, timeout=WORK_SECONDS)
    names = tuple(field["name"] for field in description["fields"])
    if names != _FIELDS:
        raise MilvusError(
            f"{collection} in Milvus at {without_password(uri)} is no index of visterm; remove or rename it"
        )
    return True


def _rows_of(scalars: Scalars, label: set[str], not_label: set[str], folder: str | None) -> np.ndarray:
    """Rows, ascending, of the images that pass a filter of `MilvusIndex.where`."""
    below = f"{folder}/" if folder else None
    return np.array(
        [
            row
            for row, (place, names) in enumerate(zip(*scalars, strict=True))
            if (not label or not label.isdisjoint(names))
            and not_label.isdisjoint(names)
            and (folder is None or place == folder or (below is not None and place.startswith(below)))
        ],
        np.int64,
    )


def _among(some: Entries, others: Entries) -> np.ndarray:
    """Which of some entries are among others, of the same fingerprint: bool (n,)."""
    if not len(others.ids):
        return np.zeros(len(some.ids), bool)
    places = np.minimum(np.searchsorted(others.ids, some.ids), len(others.ids) - 1)
    return (others.ids[places] == some.ids) & (others.fingerprints[places] == some.fingerprints)


def _quoted(value: Any) -> str:
    """Text, or list of texts, in an expression of Milvus."""
    return json.dumps(value, ensure_ascii=False)


def _sendable(text: str) -> str:
    """A text as Milvus holds it: UTF-8, and not too long."""
    return text.encode("utf-8", "replace")[:_LONGEST_TEXT].decode("utf-8", "ignore")


@njit(cache=True, nogil=True)
def _hash_rows(indptr: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """A 64-bit number for the entries (uint64) of each row: FNV-1a over whole entries, mixed after each."""
    hashes = np.empty(len(indptr) - 1, np.uint64)
    for r in range(len(hashes)):
        value = np.uint64(0xCBF29CE484222325)
        for p in range(indptr[r], indptr[r + 1]):
            value = (value ^ entries[p]) * np.uint64(0x100000001B3)
            value ^= value >> np.uint64(29)
            value *= np.uint64(0xBF58476D1CE4E5B9)
            value ^= value >> np.uint64(32)
        hashes[r] = value
    return hashes


def _fingerprints(sides: Any) -> np.ndarray:
    """A 64-bit number for the content of each gallery side: uint64 (n,)."""
    hashes = []
    for start in range(0, sides.shape[0], ROWS_HASHED):
        part = sides[start : start + ROWS_HASHED]
        if sp.issparse(part):
            entries = part.indices.astype(np.uint64) << np.uint64(32) | part.data.view(np.uint32)
            indptr = part.indptr
        else:
            entries = part.view(np.uint32).ravel().astype(np.uint64)
            indptr = np.arange(len(part) + 1) * part.shape[1]
        hashes.append(_hash_rows(indptr, entries))
    return np.concatenate(hashes)


def _scalar_fingerprints(scalars: Scalars) -> np.ndarray:
    """A 64-bit number for folder and labels of each image: uint64 (n,)."""

    @functools.cache
    def number(*texts: str) -> int:
        content = json.dumps(texts).encode()
        return int.from_bytes(hashlib.sha256(content).digest()[:8], "little")

    pairs = zip(scalars.folders, scalars.labels, strict=True)
    return np.fromiter((number(folder, *labels) for folder, labels in pairs), np.uint64, len(scalars.folders))
