"""A run opened for searching: images and labels to ranked images and labels.

The command line, the service and Python programs all ask a `Searcher`. Heavy libraries are imported where they are
used: refusing a wrong call must not cost seconds.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import logging
import os
import re
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError
from visterm.pipeline.feedback.update import FeedbackTrainer
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.models import (
    TRAINED,
    check_learners,
    check_trained,
    default_learner,
    how_to_train,
    trained_record,
    warn_if_stale,
)
from visterm.pipeline.store.records import fingerprint, is_fresh, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import stacked
from visterm.pipeline.store.vectors import embed, extractor_content, extractor_of, vectors

from .queries import Queries

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.learners import SimilarityLearner
    from visterm.retrieval import ExactIndex


RESULTS, LABELS = 10, 5  # answers to a query, unless asked for more or fewer
WITH_LABEL_VECTORS = ("wsabie", "pamir", "ovr")
_ROWS_AT_ONCE = 1024  # images whose scores of all labels are held at a time
_ASKED = 100  # images whose results by an index are compared with exact ones
_RETRY_SECONDS = 10.0  # an exact index stands in for one in Milvus that may not be changed, before that is tried again
_FILES_AT_ONCE = 32  # query files that one thread turns into vectors before it takes others
_ID = re.compile("id:([0-9]{1,18})")  # no longer than SQLite's numbers
_NO_MODEL = (
    "the vectors of this run were made elsewhere: ask with one of its images (path or id:12), or with vectors (.npy, "
    ".npz, .parquet)"
)
_log = logging.getLogger(__name__)


class UnknownLabel(UserError):
    """A label that no image of the run has."""


class Searcher:
    """A run opened for searching.

    It holds what it found when it was made, whatever happens to the run on disk: make another one when `is_current`
    says no. Any number of threads may share it.

    Parameters
    ----------
    run : Run or path
        The run, or its folder: ``runs/<name>``.
    console : Console, optional
        Where warnings go, such as that a learner is older than its images; without one, to the logger
        ``visterm.pipeline.search.searcher``.
    like : Searcher, optional
        An older one of the same run: what has not changed since is taken from it, and not read again.

    Attributes
    ----------
    run : Run
    config : Config
        The run's own.
    root : Path
        Directory of the images.
    extractor : VistermExtractor, OnnxEmbedder or None
        What made their vectors; None where these were made elsewhere.
    images : list of Image
        Those that can be found, by path.
    X : CSR or ndarray of float32, (n_images, V)
        Their vectors, unit rows, in the same order; those of a model or from elsewhere may be dense.
    place : dict of int to int
        Row of each image by its id.
    learners : list of str
        Names of those that can answer, "cosine" last.
    annotators : list of str
        Those of `learners` that rank labels.
    version : str
        Fingerprint of all that answers depend on: images, vectors, labels and learners.
    pending : set of int
        Ids of images that are known but not extracted yet, and so cannot be found.

    Raises
    ------
    UserError
        No such run, or nothing in it can be searched yet.

    Examples
    --------
    >>> from visterm.pipeline import Searcher
    >>> searcher = Searcher("runs/photos")                               # doctest: +SKIP
    >>> for answer in searcher.search(["a.jpg", "holiday/"], k=3):       # doctest: +SKIP
    ...     print(answer["query"], [result["path"] for result in answer["results"]])
    a.jpg ['sea/17.jpg', 'sea/4.jpg', 'lake/9.jpg']
    holiday/1.jpg ['sea/4.jpg', 'boat/3.jpg', 'sea/8.jpg']
    """

    def __init__(
        self, run: Run | str | os.PathLike[str], *, console: Console | None = None, like: Searcher | None = None
    ) -> None:
        self.run = run if isinstance(run, Run) else Run(Path(run))
        self._console: Any = console or _Log
        while True:
            self._seen = _last_changes(self.run)
            self._once = _Once()
            self._retry: dict[str, float] = {}  # learners with a stand-in for an index in Milvus, and until when
            try:
                if like is None or like._seen[0] != self._seen[0]:
                    self._open_collection(again=like is not None)
                else:
                    for name in self._OF_COLLECTION:
                        setattr(self, name, getattr(like, name))
                self._open_learners(like)
                break
            except UserError:
                if self.is_as_on_disk():
                    raise  # else it changed while it was read: once more

    # What does not change while the collection does not.
    _OF_COLLECTION = ("root", "images", "X", "place", "extractor", "pending", "_content", "_rows_by_path", "_known")

    def _open_collection(self, *, again: bool) -> None:
        run = self.run
        with contextlib.closing(Collection(run.collection)) as collection:
            found = collection.counts_by("status")
            root = collection.root
            if root is None or not found["ok"]:
                raise UserError(
                    f"run {run.name}: nothing to search yet; run 'visterm features IMAGES --run {run.name}' first"
                )
            content = self._content = extractor_content(run)
            self.root: Path = root
            self.images: list[Image] = collection.images()
            if collection["extractor"] != content:  # looked at after the images: they are of no other one either
                raise UserError(
                    f"run {run.name}: the features are not finished; run 'visterm features --run {run.name}' first"
                )
            self.pending: set[int] = {number for number, _ in collection.pending()}
            if self.pending:
                tell = self._console.say if again else self._console.warn  # a service follows a run that grows
                tell(f"{count(len(self.pending), 'image')} not extracted yet, and not to be found before")
            self.extractor: Any = extractor_of(run)
            self.X: Any = vectors(run, collection, self.images)
        self.place: dict[int, int] = {image.id: row for row, image in enumerate(self.images)}
        self._rows_by_path = {image.path: row for row, image in enumerate(self.images)}
        known = hashlib.sha256()
        for image in self.images:
            known.update(f"{image.id}{image.sha256}{image.labels}{image.split}".encode("utf-8", "surrogateescape"))
        self._known = known.hexdigest()

    def _open_learners(self, like: Searcher | None) -> None:
        run, content = self.run, self._content
        self.config = run.configure(None, [])
        self._trained = {name: made_from for name in TRAINED if (made_from := _made_from(run, name, content))}
        self.learners: list[str] = [*self._trained, "cosine"]
        able = _annotators()
        self.annotators: list[str] = [name for name in self._trained if name in able]
        self.version: str = fingerprint(content, self._known, self._trained)
        if like is not None and like.images is self.images:
            same = {name for name in self.learners if self._trained.get(name) == like._trained.get(name)}
            self._once.take(like._once, same)
            for name in list(like._retry):
                self._once.drop(("index", name))

    def is_current(self) -> bool:
        """Whether another searcher would be no better: as `is_as_on_disk`, and no index in Milvus is to be tried again.

        An exact index stands in for one that had to change while others wrote to the run; after 10 s, another searcher
        is to try that again.
        """
        return self.is_as_on_disk() and not any(time.monotonic() >= at for at in list(self._retry.values()))

    def is_as_on_disk(self) -> bool:
        """Whether collection, extractor and learners are on disk what they were; takes some 0.1 ms."""
        return _last_changes(self.run) == self._seen

    def shares_images(self, other: Searcher) -> bool:
        """Whether both hold the very same images and vectors, and not only equal ones."""
        return self.images is other.images

    # --- learners and indexes -------------------------------------------------------------------------------------

    def default_learner(self, *, of_labels: bool = False) -> str:
        """The learner that answers where none is named: oasis, of labels wsabie, or else the first that is trained.

        Where none is trained, the usual one all the same: who asks it is told what to do.
        """
        usual, able = ("wsabie", self.annotators) if of_labels else ("oasis", self.learners[:-1])
        return default_learner(self.run, usual, self._console, able)

    def learner(self, name: str) -> SimilarityLearner:
        """Load a learner of the run, with what people's marks have taught it, once.

        Parameters
        ----------
        name : str
            One of `learners`.

        Returns
        -------
        SimilarityLearner
            Its arrays are memory-mapped.

        Raises
        ------
        UserError
            It is unknown, not trained, trained on other features, or trained or taught anew since the run was opened;
            the message says what to do.
        """
        return self._loaded(name)[0]

    def _loaded(self, name: str) -> tuple[SimilarityLearner, list[str]]:
        """A learner, and the names of its labels by number."""

        def load() -> tuple[SimilarityLearner, list[str]]:
            check_learners([name])
            found = FeedbackTrainer(self.run).load(name), trained_record(self.run, name).get("labels", [])
            # Looked at after all was read: another model, of other visterms perhaps, must not pass for this one.
            if name in TRAINED and _made_from(self.run, name, self._content) != self._trained.get(name):
                raise UserError(
                    f"{name} was trained or taught anew since run {self.run.name} was opened; open the run again"
                )
            warn_if_stale(self.run, name, self._learnt_from, self._console)
            return found

        return self._once(("learner", name), load)

    def index(self, name: str) -> ExactIndex:
        """Make the index of a learner, once.

        Parameters
        ----------
        name : str
            As of `learner`.

        Returns
        -------
        ExactIndex
            ``search(Q, k, exclude=)`` gives rows of `images`; see `results`.

        Raises
        ------
        UserError
            As `learner`.
        """

        def make() -> ExactIndex:
            from visterm.retrieval import ExactIndex

            learner = self.learner(name)
            index = ExactIndex(learner, self.X, self.labels_for(name), n_jobs=self.config.compute.n_jobs)
            settings = self.config.index
            if settings.kind == "milvus":
                from .milvus_index import index_in_milvus

                made = index_in_milvus(self, name, index)
                if made is index:
                    self._retry[name] = time.monotonic() + _RETRY_SECONDS
                return made
            exactly = settings.kind == "auto" and _milliseconds(index.gallery_) <= settings.exact_milliseconds
            return index if exactly or settings.kind == "exact" else self._two_stages(name, index)

        return self._once(("index", name), make)

    def _two_stages(self, name: str, exact: ExactIndex) -> ExactIndex:
        """The two-stage index of a learner, and what it finds of what an exact one would, measured once.

        That is kept in the run for the next time, and so are lists, which take long to make.
        """
        from scipy import sparse

        from visterm.retrieval import TwoStageIndex

        given: Any = (exact.learner, self.X, self.labels_for(name))
        options: dict[str, Any] = {"n_jobs": self.config.compute.n_jobs}
        n_candidates, n_images = self.config.index.n_candidates, len(self.images)
        folder = self.run.folder / "index" / name
        made_from = (self._trained.get(name) or [])[:2]  # not how often it was taught: lists know changed vectors
        record = make_record(
            "index",
            {"n_candidates": n_candidates},
            {"extractor": self._content, "learner": fingerprint(made_from)},
        )
        quick = sparse.issparse(exact.gallery_)  # a transposed copy is all that it takes
        with contextlib.suppress(ValueError, UserError):  # damaged, or of other images mostly: a new one
            if is_fresh(folder, record):
                if quick:
                    return TwoStageIndex(*given, n_candidates=n_candidates, **options)
                return TwoStageIndex.load(folder, *given, **options)
        with self._console.phase(f"making the index of {count(n_images, 'image')} for {name}"):
            index = TwoStageIndex(*given, n_candidates=n_candidates, **options)
            record["recall"] = found = self.recall_of(index, exact)
            try:
                with self.run.locked(), publish(folder, record) as target:
                    if not quick:
                        index.save(target)
            except (UserError, OSError) as error:
                self._console.warn(f"the index for {name} cannot be kept: {error}")
        self._console.say(
            f"two stages find {found['recall']:.1%} of the {found['k']} nearest images for {name} (measured with "
            f"{count(found['queries'], 'query')}; --set index.kind=exact finds all)"
        )
        return index

    def recall_of(self, index: ExactIndex, exact: ExactIndex) -> dict[str, Any]:
        """What an index finds of the nearest images of some of the run's own, beside the exact one."""
        import numpy as np

        n_images = len(self.images)
        asked = np.random.default_rng(0).choice(n_images, min(_ASKED, n_images), replace=False)
        k = max(1, min(RESULTS, n_images - 1))
        found, wanted = (some.search(self.X[asked], k, exclude=asked).indices for some in (index, exact))
        recall = sum(len(np.intersect1d(*both)) for both in zip(found, wanted, strict=True)) / wanted.size
        return {"recall": round(recall, 4), "k": k, "queries": len(asked), "images": n_images}

    def forget_index(self, name: str) -> None:
        """Remove what is kept of the index of a learner, in the run and in Milvus; a new searcher makes it anew.

        Raises
        ------
        UserError
            No such learner, another process is at work in the run, or Milvus cannot be used.
        """
        self.learner(name)
        if self.config.index.kind == "milvus":
            from .milvus_index import forget_in_milvus

            forget_in_milvus(self.run, self.config, name)
            return
        with self.run.locked():
            shutil.rmtree(self.run.folder / "index" / name, ignore_errors=True)

    def labels_for(self, name: str) -> np.ndarray | None:
        """Labels of the gallery for a learner whose metrics they choose (MuSL), if each image has just one."""
        return self._once(("labels", name), lambda: self._labels_for(self.learner(name), name))

    def _labels_for(self, learner: Any, name: str) -> np.ndarray | None:
        import numpy as np

        if not hasattr(learner, "metric_of_category_"):
            return None
        if any(len(image.labels) != 1 for image in self.images):
            self._console.warn(f"{name} searches without the labels of the images, since not every image has just one")
            return None
        labels = np.array([next(iter(image.labels)) for image in self.images])
        unknown = ~np.isin(labels, learner.classes_)
        if unknown.any():
            n_labels = count(len(set(labels[unknown])), "label")
            self._console.warn(
                f"{name} did not learn {n_labels} of {count(int(unknown.sum()), 'image')}, such as {labels[unknown][0]}"
            )
        return labels

    @cached_property
    def _learnt_from(self) -> list[Image]:
        """The images that a learner would be trained on."""
        return [image for image in self.images if image.split in ("train", "validation") and image.labels]

    # --- queries --------------------------------------------------------------------------------------------------

    def queries(self, given: Any) -> Queries:
        """Turn what people search with into vectors.

        Parameters
        ----------
        given : one or several of str, path and ndarray
            Image files, from anywhere; folders: all images below them; ``"id:12"``: an image of the collection by its
            id, or by its path as search prints it, where there is no such file; RGB uint8 arrays (H, W, 3). Where the
            vectors of the run were made elsewhere: its images, and files of vectors (.npy, .npz, .parquet).

        Returns
        -------
        Queries
            One that cannot be read is no error here: it is listed with the reason.
        """
        import numpy as np

        from visterm.features import read_query_vectors

        if isinstance(given, Queries):
            return given
        names: list[str] = []
        files: list[tuple[int, Any]] = []  # to be read: position, path or pixels
        rows: dict[int, int] = {}  # of the collection
        errors: dict[int, str] = {}
        given_vectors: dict[int, Any] = {}  # of files that hold vectors, from this position on
        read_as = self.config.collection.vectors.model_dump(include={"unit", "vector_column"})
        for query in [given] if isinstance(given, str | os.PathLike | np.ndarray) else given:
            position = len(names)
            if isinstance(query, np.ndarray):
                names.append(f"image {position + 1}")
                files.append((position, query))
                continue
            name = os.fsdecode(query)
            if os.path.isdir(name):
                found = _images_below(name)
                files += [(position + i, file) for i, file in enumerate(found)]
                names += found or [name]
                if not found:
                    errors[position] = "no images in this folder"
                continue
            names.append(name)
            row = self.row_named(name)
            if row is not None:
                rows[position] = row
            elif _ID.fullmatch(name):
                errors[position] = f"run {self.run.name} has no image of this id"
            elif self.extractor is not None:
                files.append((position, name))
            elif (row := self._own_row(name)) >= 0:
                rows[position] = row
            elif name.lower().endswith((".npy", ".npz", ".parquet")):
                try:
                    names[position:], given_vectors[position] = read_query_vectors(name, self.X.shape[1], **read_as)
                except ValueError as error:
                    errors[position] = str(error)
            else:
                files.append((position, name))
        own = {position: self._own_row(file) for position, file in files if isinstance(file, str)}
        Q, read, unreadable = self._vectors(files)
        Q = stacked([Q, self.X[np.fromiter(rows.values(), np.intp)], *given_vectors.values()])
        place = [*read, *rows, *(i + n for i, made in given_vectors.items() for n in range(made.shape[0]))]
        order = np.argsort(place)
        return Queries(
            names,
            Q[order],
            [place[i] for i in order],
            [(own | rows).get(place[i], -1) for i in order],
            errors | unreadable,
        )

    def row_named(self, name: str) -> int | None:
        """Row of the image that a query names by its id (``"id:12"``) or path; None where it names another file."""
        if number := _ID.fullmatch(name):
            return self.place.get(int(number[1]))
        return None if os.path.lexists(name) else self._rows_by_path.get(os.path.normpath(name))

    def _own_row(self, file: str) -> int:
        """Which image of the collection a file is itself, -1 for none."""
        real = os.path.realpath(file)
        below = os.path.relpath(real, os.path.realpath(self.root))
        for path in (below, real):  # an image from outside the root is entered by its absolute path
            if (row := self._rows_by_path.get(path)) is not None:
                return row
        if not os.path.isfile(real):  # a pipe can be read only once
            return -1
        for row in self._rows_by_sha256.get(file_sha256(real) or "", ()):  # or it is reached by a link
            if os.path.realpath(self.root / self.images[row].path) == real:
                return row
        return -1

    @cached_property
    def _rows_by_sha256(self) -> dict[str, list[int]]:
        found = defaultdict(list)
        for row, image in enumerate(self.images):
            found[image.sha256].append(row)
        return found

    def _vectors(self, files: Sequence[tuple[int, Any]]) -> tuple[sparse.csr_matrix, list[int], dict[int, str]]:
        """Vectors of the files that can be read, their positions, and why the others cannot."""
        from concurrent.futures import ThreadPoolExecutor

        from joblib import effective_n_jobs

        from visterm.features import ImageError, read_image

        read: list[int] = []
        errors: dict[int, str] = {}
        if self.extractor is None:
            return self.X[:0], read, dict.fromkeys((position for position, _ in files), _NO_MODEL)

        def vectors_of(some: Sequence[tuple[int, Any]]) -> tuple[Any, list[int]]:
            done: list[int] = []

            def readable() -> Iterable[np.ndarray]:
                for position, file in some:
                    try:
                        if isinstance(file, str):
                            file = read_image(file, max_pixels=self.config.collection.max_pixels)
                        else:
                            _check_pixels(file, self.config.collection.max_pixels)
                    except ImageError as error:
                        errors[position] = error.reason
                    else:
                        done.append(position)
                        yield file

            if hasattr(self.extractor, "count"):
                return self.extractor.transform(readable()), done
            return embed(self.extractor, readable()), done

        parts = [files[i : i + _FILES_AT_ONCE] for i in range(0, len(files), _FILES_AT_ONCE)] or [[]]
        n_threads = min(effective_n_jobs(self.config.compute.n_jobs), len(parts))
        if n_threads == 1:
            made = [vectors_of(part) for part in parts]
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                made = list(pool.map(vectors_of, parts))
        for _, done in made:
            read += done
        return stacked([rows for rows, _ in made]), read, errors

    # --- answers --------------------------------------------------------------------------------------------------

    def search(self, queries: Any, k: int = RESULTS, learner: str | None = None) -> list[dict[str, Any]]:
        """Find the images of the collection that are most similar to each query image.

        Parameters
        ----------
        queries : Queries, or what `queries` takes
            A query that is itself an image of the collection (the same file) is left out of its own results.
        k : int
            Results for each query, fewer if the collection is smaller.
        learner : str, optional
            One of `learners`; `default_learner`, unless named.

        Returns
        -------
        list of dict
            ``{"query": name, "results": [{"rank", "id", "path", "score", "labels"}, ...]}``, one a query, best first.
            A query that cannot be read has no results, and says why under ``"error"``. Paths are relative to the root;
            scores compare the results of one query under one learner, and nothing else.

        Raises
        ------
        UserError
            The learner is unknown or not trained, or k is less than 1.
        """
        _check_k(k)
        name = learner or self.default_learner()
        self.learner(name)  # one that is not trained is refused before any query is read
        asked = self.queries(queries)
        answers = asked.answers("results")
        if asked.place:
            ranking = self.index(name).search(asked.Q, k=min(k, len(self.images)), exclude=asked.own)
            for i, indices, scores in zip(asked.place, ranking.indices, ranking.scores, strict=True):
                answers[i]["results"] = self.results(indices, scores)
        return answers

    def results(self, rows: Iterable[int], scores: Iterable[float]) -> list[dict[str, Any]]:
        """Result rows of some rows of `images`, as `search` gives them; -1 stands for none."""
        ranked = [(self.images[row], score) for row, score in zip(rows, scores, strict=True) if row >= 0]
        return [
            {
                "rank": rank,
                "id": image.id,
                "path": image.path,
                "score": round(float(score), 6),
                "labels": sorted(image.labels),
            }
            for rank, (image, score) in enumerate(ranked, start=1)
        ]

    def search_label(
        self,
        labels: str | Sequence[str],
        k: int = RESULTS,
        learner: str | None = None,
        *,
        rows: np.ndarray | None = None,
    ) -> list[dict[str, Any]]:
        """Find the images of the collection that an annotator would soonest give each label.

        Parameters
        ----------
        labels : str or sequence of str
        k : int
            Results for each label, fewer if the collection is smaller.
        learner : str, optional
            One of `annotators`; ``default_learner(of_labels=True)``, unless named.
        rows : int array, optional
            Rows of `images` to search among, in order; all of them unless given.

        Returns
        -------
        list of dict
            As `search`, with the label as ``"query"``.

        Raises
        ------
        UserError
            No such label, or the learner is not trained or does not rank labels.
        """
        import numpy as np

        _check_k(k)
        annotator, name, names = self._annotator(learner)
        asked = _several(labels)
        numbers = [self._label_number(label, names, name) for label in asked]
        X = self.X if rows is None else self.X[rows]
        blocks = [
            annotator.label_scores(X[i : i + _ROWS_AT_ONCE])[:, numbers] for i in range(0, X.shape[0], _ROWS_AT_ONCE)
        ]
        scores = np.concatenate(blocks)  # (n_images, n_labels asked for)
        order = np.argsort(-scores, axis=0, kind="stable")[:k]
        found = order if rows is None else rows[order]
        return [
            {"query": label, "results": self.results(found[:, i], scores[order[:, i], i])}
            for i, label in enumerate(asked)
        ]

    def annotate(self, queries: Any, k: int = LABELS, learner: str | None = None) -> list[dict[str, Any]]:
        """Rank labels for images.

        Parameters
        ----------
        queries : Queries, or what `queries` takes
        k : int
            Labels for each image, fewer if the learner knows fewer.
        learner : str, optional
            One of `annotators`; ``default_learner(of_labels=True)``, unless named.

        Returns
        -------
        list of dict
            ``{"query": name, "labels": [{"rank", "label", "score"}, ...]}``, one a query, best first. A query that
            cannot be read has no labels, and says why under ``"error"``.

        Raises
        ------
        UserError
            The learner is not trained, or does not rank labels.
        """
        _check_k(k)
        annotator, _, names = self._annotator(learner)
        asked = self.queries(queries)
        answers = asked.answers("labels")
        if asked.place:
            for i, numbers, scores in zip(asked.place, *annotator.annotate(asked.Q, min(k, len(names))), strict=True):
                answers[i]["labels"] = _named(names, numbers, scores)
        return answers

    def similar_labels(
        self, labels: str | Sequence[str], k: int = LABELS, learner: str | None = None
    ) -> list[dict[str, Any]]:
        """Find the labels that are nearest to each label.

        Parameters
        ----------
        labels : str or sequence of str
        k : int
            Labels for each label, fewer if the learner knows fewer.
        learner : str, optional
            One of WITH_LABEL_VECTORS; ``default_learner(of_labels=True)``, unless named.

        Returns
        -------
        list of dict
            As `annotate`, with the label as ``"query"``.

        Raises
        ------
        UserError
            No such label, or the learner is not trained or has no vectors of labels.
        """
        _check_k(k)
        annotator, name, names = self._annotator(learner)
        asked = _several(labels)
        numbers = [self._label_number(label, names, name) for label in asked]
        try:
            indices, scores = annotator.similar_labels(numbers, min(k, len(names) - 1))
        except NotImplementedError:  # how annotators without vectors of labels refuse
            raise UserError(
                f"{name} has no vectors of labels, which would tell what is near; "
                f"{', '.join(WITH_LABEL_VECTORS)} have them"
            ) from None
        return [
            {"query": label, "labels": _named(names, row, values)}
            for label, row, values in zip(asked, indices, scores, strict=True)
        ]

    def explain(self, query: Any, result: Any, learner: str | None = None) -> dict[str, Any]:
        """Tell what each block of a query and of a result adds to their score; see `explain_pair`."""
        from .explanation import explain_pair

        return explain_pair(self, query, result, learner)

    def _annotator(self, name: str | None) -> tuple[Any, str, list[str]]:
        """A trained learner that ranks labels, its name, and those of its labels by number."""
        check_learners([name] if name is not None else [])
        able = _annotators()
        chosen = name or self.default_learner(of_labels=True)
        if chosen not in able:
            raise UserError(f"{chosen} ranks images, not labels; {', '.join(able)} rank labels")
        if chosen not in self._trained:
            check_trained(self.run, chosen, able)
        learner, names = self._loaded(chosen)
        return learner, chosen, names

    def _label_number(self, label: str, names: Sequence[str], learner: str) -> int:
        if label in names:
            return names.index(label)
        if any(label in image.labels for image in self._learnt_from):
            renew = how_to_train(self.run, learner)
            raise UserError(f"{learner} was trained before the label {label!r} came; run '{renew}' first")
        near = difflib.get_close_matches(label, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names[:5])}{', ...' * (len(names) > 5)}"
        raise UnknownLabel(f"run {self.run.name} has no label {label!r}; {hint}")


class _Log:
    """Takes the place of a Console where nobody sits at one."""

    say = staticmethod(_log.info)
    warn = staticmethod(_log.warning)

    @staticmethod
    @contextlib.contextmanager
    def phase(title: str) -> Iterator[None]:
        _log.info(title)
        yield


class _Once:
    """Things that are made once, by the first thread that asks; the others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = defaultdict(threading.Lock)
        self._made: dict[Any, Any] = {}

    def take(self, other: _Once, names: set[str]) -> None:
        """Take what was made elsewhere for some learners; keys are (what, learner)."""
        self._made = {key: made for key, made in list(other._made.items()) if key[1] in names}

    def drop(self, key: Any) -> None:
        """Have it made again."""
        self._made.pop(key, None)

    def __call__(self, key: Any, make: Callable[[], Any]) -> Any:
        if key in self._made:
            return self._made[key]
        with self._lock:
            lock = self._locks[key]
        with lock:
            if key not in self._made:  # what fails is tried again by the next one
                self._made[key] = make()
        return self._made[key]


def _last_changes(run: Run) -> tuple[list[Any], list[Any]]:
    """What no longer is the same once the collection with its extractor, or the learners, have changed."""
    catalogue = run.collection / "catalogue.sqlite"
    collection = [catalogue, catalogue.with_name("catalogue.sqlite-wal"), run.extractor / "record.json"]
    learners: list[Path] = []
    with contextlib.suppress(OSError):
        for name in sorted(name for name in os.listdir(run.folder / "learners") if "." not in name):  # no checkpoints
            learners += [run.learner(name) / "record.json", run.taught(name) / "in_force.json"]
    found: tuple[list[Any], list[Any]] = [], []
    for files, changes in zip((collection, learners), found, strict=True):
        for file in files:
            with contextlib.suppress(OSError):
                status = os.stat(file)
                changes.append((os.fspath(file), status.st_ino, status.st_mtime_ns, status.st_size))
    with contextlib.suppress(OSError), open(catalogue, "rb") as stream:
        found[0].append(stream.read(28)[24:])  # SQLite's count of changes: two may fall within one tick of the clock
    return found


def _made_from(run: Run, name: str, content: str) -> list[Any] | None:
    """What a learner was made from, and how often it was taught since; None of one of other features, or of none.

    Of one that is damaged it is what is wrong: it stays listed, so that no other answers in its place, and who asks for
    it is told.
    """
    try:
        record = read_record(run.learner(name))
        if record is None or record["inputs"]["extractor"] != content:
            return None
        return [record["inputs"], record["created"], FeedbackTrainer(run).version(name)]
    except UserError as error:
        return [str(error)]


def _annotators() -> list[str]:
    """Learners that rank labels."""
    from visterm.learners import LEARNERS

    return [name for name, kind in TRAINED.items() if hasattr(LEARNERS[kind], "annotate")]


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


def _milliseconds(gallery: Any) -> float:
    """What an exact query takes on one core, about: so much an entry and an image, measured with a million images."""
    return 1e-6 * (0.6 * gallery.size + 7 * gallery.shape[0])


def _check_k(k: int) -> None:
    if k < 1:
        raise UserError(f"k={k}: at least one result must be asked for")


def _several(labels: str | Sequence[str]) -> list[str]:
    return [labels] if isinstance(labels, str) else list(labels)


def _named(names: Sequence[str], numbers: Iterable[int], scores: Iterable[float]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "label": names[number], "score": round(float(score), 6)}
        for rank, (number, score) in enumerate(zip(numbers, scores, strict=True), start=1)
    ]
