"""A run opened for searching: images and labels to ranked images and labels.

Heavy libraries are imported inside the functions that need them: refusing a wrong call must not cost seconds.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import Calibration, calibration_in_force
from visterm.pipeline.store.files import image_sha256
from visterm.pipeline.store.images import Images, Places
from visterm.pipeline.store.models import (
    TRAINED,
    check_learners,
    check_trained,
    trained_record,
    warn_if_stale,
)
from visterm.pipeline.store.recommendation import best_annotator, default_learner
from visterm.pipeline.store.records import fingerprint
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.versions import LearnerVersions

from .answers import Answers, Pictures
from .examples import Region, refined
from .filters import NO_FILTER, Filter
from .gallery import Gallery
from .indexes import forget_index, make_index
from .labels import (
    annotators,
    check_labels,
    label_numbers,
    label_results,
    labels_of_nearest,
    with_label_vectors,
)
from .queries import Queries, read_queries
from .rank import FilteredIndexes, rank
from .state import OnceCache, disk_state, learner_inputs

if TYPE_CHECKING:
    import numpy as np

    from visterm.learners import Blend, SimilarityLearner
    from visterm.retrieval import ExactIndex


RESULTS, LABELS = 10, 5  # answers per query, by default
RETRY_SECONDS = 10.0  # exact search replaces an index in Milvus that cannot be updated, before the next try
_ROWS_PER_BLOCK = 1024  # images whose scores of all labels are held at a time
_log = logging.getLogger(__name__)


class Searcher:
    """A run opened for searching.

    It holds the run as it was when it was opened, whatever happens on disk later: open another one when `is_current`
    is false. Any number of threads may share it.

    Parameters
    ----------
    run : Run or path
        The run, or its folder: ``runs/<name>``.
    console : Console, optional
        Prints warnings, such as that a learner is older than its images. By default they go to the logger
        ``visterm.pipeline.search.searcher``.
    like : Searcher, optional
        An older one of the same run: whatever has not changed since is shared with it, not read again.

    Attributes
    ----------
    run : Run
    config : Config
        Configuration of the run.
    root : Path
        Directory of the images.
    extractor : VistermExtractor, OnnxEmbedder or None
        Makes vectors of images; None if the vectors were imported.
    images : Images
        The images that can be searched, sorted by path: a sequence of `Image`.
    X : CSR, ndarray or StoredVectors of float32, (n_images, V)
        Their vectors, unit rows, in the same order; imported vectors and those of a model may be dense, and stay on
        disk where they are many.
    place : Places
        Row of each image by its id.
    learners : list of str
        Names of those that can be used, "cosine" last.
    annotators : list of str
        Those of `learners` that rank labels.
    version : str
        Fingerprint of everything that results depend on: images, vectors, labels and learners.
    gallery : Gallery
        These images and vectors, with their rows by path, label and folder.
    pending : set of int
        Ids of images that are not extracted yet, and so cannot be searched.

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
            self._state = disk_state(self.run)
            self._once = OnceCache()
            self.filtered = FilteredIndexes()
            self._exact_since: dict[str, float] = {}  # learners whose index in Milvus could not be updated, and when
            try:
                if like is None:
                    self.gallery = Gallery(self.run, self._console.warn)
                elif like._state.collection != self._state.collection:
                    self.gallery = Gallery(
                        self.run, self._console.say, like.gallery
                    )  # who follows a growing run was warned before
                else:
                    self.gallery = like.gallery
                self._open_learners(like)
                break
            except UserError:
                if self.is_as_on_disk():
                    raise  # otherwise the run changed while it was read: read it again
        gallery = self.gallery
        self.root: Path = gallery.root
        self.extractor: Any = gallery.extractor
        self.images: Images = gallery.images
        self.X: Any = gallery.X
        self.place: Places = gallery.place
        self.pending: set[int] = gallery.pending

    def _open_learners(self, like: Searcher | None) -> None:
        able = annotators()  # first, as it imports the learners: what follows is read at one moment
        run, content = self.run, self.gallery.content
        self.config = run.configure(None, [])
        self._trained = {name: inputs for name in TRAINED if (inputs := learner_inputs(run, name, content))}
        self.learners: list[str] = [*self._trained, "cosine"]
        self.annotators: list[str] = [name for name in self._trained if name in able]
        self.version: str = fingerprint(content, self.gallery.fingerprint, self._trained)
        if like is not None and like.gallery is self.gallery:
            same = {name for name in self.learners if self._trained.get(name) == like._trained.get(name)}
            self._once.copy_from(like._once, same)
            for name in list(like._exact_since):
                for kind in ("index", "sides", "sides with look"):
                    self._once.drop((kind, name))

    def is_current(self) -> bool:
        """Whether this searcher is up to date: `is_as_on_disk`, and no index in Milvus waits for another try.

        Exact search replaces an index in Milvus that cannot be updated while another process writes to the run; a
        searcher that is opened `RETRY_SECONDS` later tries the update again.
        """
        now = time.monotonic()
        return self.is_as_on_disk() and all(now < since + RETRY_SECONDS for since in list(self._exact_since.values()))

    def is_as_on_disk(self) -> bool:
        """Whether collection, extractor and learners on disk are unchanged; takes some 0.1 ms."""
        return disk_state(self.run) == self._state

    def has_index(self, name: str) -> bool:
        """Whether the index of a learner is made, so that a search need not wait for it."""
        return ("index", name) in self._once

    def deleted(self, rows: Iterable[int]) -> set[int]:
        """Return those of some rows whose file is gone since it was extracted; say once how to remove them.

        Nothing where the run has no image files, or their whole directory is away.
        """
        if self.config.collection.vectors.file is not None:
            return set()
        root = str(self.root)
        gone = {row for row in rows if not os.path.lexists(os.path.join(root, self.images[row].path))}
        if not gone or not self.root.is_dir():
            return set()
        update = f"visterm features --run {shlex.quote(self.run.name)}"
        self._once(
            ("deleted", ""), lambda: self._console.say(f"deleted photos are no results; '{update}' removes them")
        )
        return gone

    def _first_there(self, rows: np.ndarray, n: int) -> list[int]:
        """Places of the first n of some rows whose files are not deleted."""
        there: list[int] = []
        for start in range(0, len(rows), n):
            part = rows[start : start + n].tolist()
            gone = self.deleted(part)
            there += [start + i for i, row in enumerate(part) if row not in gone]
            if len(there) >= n:
                break
        return there[:n]

    def shares_images(self, other: Searcher) -> bool:
        """Whether both hold the same images and vectors in memory, not just equal ones."""
        return self.gallery is other.gallery

    def same_learner(self, other: Searcher, name: str) -> bool:
        """Whether a learner is the same in both, over vectors that were made alike."""
        same_vectors = self.gallery.content == other.gallery.content
        return same_vectors and self._trained.get(name) == other._trained.get(name)

    def default_learner(self, *, of_labels: bool = False) -> str:
        """The learner that is used where none is named: the one that held-out images recommend.

        Cosine where none is trained. Of labels wsabie all the same: using it raises an error that says how to train it.
        """

        def choose() -> str:
            if of_labels:
                return best_annotator(self.run, self.annotators, self._console.say)
            # If none can be used, take one of other features: using it raises the error that says what to do.
            able, world = self.learners[:-1], self.config.train.world
            known = able or [name for name in TRAINED if name in self.run.learners()]
            return default_learner(self.run, known, self._console.say, world, cosine=bool(able))

        return self._once(("default", "of labels" if of_labels else "of images"), choose)

    def learner(self, name: str) -> SimilarityLearner:
        """Load a learner of the run, with its relevance feedback, once; its arrays are memory-mapped.

        Raises
        ------
        UserError
            It is unknown, not trained, trained on other features, or retrained or updated after the run was opened.
        """
        return self._loaded(name).learner

    def _loaded(self, name: str) -> _Loaded:
        def load() -> _Loaded:
            check_learners([name])
            with self.unchanged(name):
                learner = LearnerVersions(self.run).load_in_force(name)
                labels = trained_record(self.run, name).get("labels", [])
                loaded = _Loaded(learner, labels, calibration_in_force(self.run, name))
            if name in TRAINED:
                warn_if_stale(self.run, name, self.gallery.training_images, self._console)
            return loaded

        return self._once(("learner", name), load)

    @contextlib.contextmanager
    def unchanged(self, name: str) -> Iterator[None]:
        """Read files of a learner; UserError if they are not those it had when the run was opened.

        It is checked after everything is read: another model, perhaps of other visterms, must not pass for this one.
        """
        yield
        if name in TRAINED and learner_inputs(self.run, name, self.gallery.content) != self._trained.get(name):
            raise UserError(f"{name} was retrained or updated after run {self.run.name} was opened; reopen the run")

    def share(self, name: str, learned: float | None = None) -> float:
        """How much of what a learner has learned counts: `learned`, or by default what its training chose."""
        return self.learner(name).learned_ if learned is None else learned

    def blend(self, name: str, learned: float | None = None) -> SimilarityLearner | Blend:
        """Give a share of a learner, beside how images look; see `visterm.learners.Blend`. A share of 1 is the learner.

        `learned` is as for `share`.

        Raises
        ------
        UserError
            As `learner`; also for a share that does not lie between 0 and 1.
        """
        from visterm.learners.blend import effective, scale_of

        learner, share = self.learner(name), self.share(name, learned)
        scale = learner.scale_
        if scale is None and share != 1:  # of a learner that did not choose its share
            scale = self._once(("scale", name), lambda: scale_of(learner, self.X, self.labels_for(name)))
        try:
            return effective(learner, share, scale)
        except ValueError as error:
            raise UserError(str(error)) from None

    def index(self, name: str, learned: float | None = None) -> ExactIndex:
        """Make the index of a learner, once; its ``search(Q, k, exclude=)`` gives rows of `images`, see `results`.

        `learned` is as for `share`: one index serves every share of a learner. For a learner whose gallery side is not
        the vectors themselves, and of which all counts by default, there is one more for all shares but 1.

        Raises
        ------
        UserError
            As `blend`.
        """
        if learned is None:
            return self._once(("index", name), lambda: self._index(name, None))
        return self._index(name, learned)

    def _index(self, name: str, learned: float | None) -> ExactIndex:
        from visterm.learners import Blend

        learner, similarity = self.learner(name), self.blend(name, learned)
        sides: Any = learner  # what the gallery side is of
        key, kind = name, "sides"  # of the index
        if not learner.gallery_is_vectors and (learner.learned_ != 1 or similarity is not learner):
            if similarity is learner:
                similarity = Blend(learner, 1, scale=1.0)  # the scores of the learner
            sides = similarity
            if learner.learned_ == 1:
                key, kind = f"{name}_look", "sides with look"

        def make() -> ExactIndex:
            from visterm.retrieval import ExactIndex

            inputs = self._trained.get(name) or []
            index = make_index(
                key,
                sides,
                self.labels_for(name),
                gallery=self.gallery,
                config=self.config,
                trained_from=inputs[:2],  # without the feedback version: the index notices changed vectors
                console=self._console,
                is_current=self.is_as_on_disk,
            )
            if self.config.index.kind == "milvus" and type(index) is ExactIndex:
                self._exact_since[name] = time.monotonic()
            return index

        index = copy.copy(self._once((kind, name), make))
        index.learner = similarity
        return index

    def forget_index(self, name: str) -> None:
        """Remove what is kept of the index of a learner, in the run and in Milvus; a new searcher rebuilds it."""
        self.learner(name)
        for index in (name, f"{name}_look"):
            forget_index(self.run, self.config, index)

    def labels_for(self, name: str) -> np.ndarray | None:
        """Labels of the gallery for a learner whose metrics depend on them (MuSL), if each image has just one."""

        def make() -> np.ndarray | None:
            return self.gallery.labels_for(self.learner(name), name, self._console.warn)

        return self._once(("labels", name), make)

    def queries(self, given: Any) -> Queries:
        """Turn images, folders, ids and files of vectors into query vectors.

        Parameters
        ----------
        given : one or several of str, path and ndarray
            Image files, from anywhere; folders: all images below them; ``"id:12"``: an image of the collection by its
            id, or by its path as search prints it, if there is no such file; RGB uint8 arrays (H, W, 3). For a run with
            imported vectors: its images, and files of vectors (.npy, .npz, .parquet).

        Returns
        -------
        Queries
            A query that cannot be read raises no error here: it is listed with the reason.
        """
        return given if isinstance(given, Queries) else read_queries(given, self.gallery, self.config)

    def row_named(self, name: str) -> int | None:
        """Row of the image that a query names by id (``"id:12"``) or path; None if it names another file."""
        return self.gallery.row_named(name)

    def filter(
        self,
        label: str | Sequence[str] | None = None,
        not_label: str | Sequence[str] | None = None,
        folder: str | None = None,
        after: str | None = None,
        before: str | None = None,
        where: str | Sequence[str] | None = None,
    ) -> Filter:
        """Make a filter of images, as `search` takes its conditions.

        Raises
        ------
        UnknownLabel
            No image has one of the labels.
        InvalidFilter
            A condition or a date cannot be read, or names a field or a value that no image has.
        """
        wanted = Filter.of(label, not_label, folder, after, before, where)
        check_labels((*wanted.label, *wanted.not_label), self.gallery)
        for condition in wanted.where:
            self.gallery.fields.passes(condition)
        return wanted

    def search(
        self,
        queries: Any,
        k: int = RESULTS,
        learner: str | None = None,
        *,
        learned: float | None = None,
        offset: int = 0,
        label: str | Sequence[str] | None = None,
        not_label: str | Sequence[str] | None = None,
        folder: str | None = None,
        after: str | None = None,
        before: str | None = None,
        where: str | Sequence[str] | None = None,
        exclude_duplicates: bool = False,
        example: str | Sequence[Any] = (),
        weight: float = 1,
        region: str | Sequence[float] | None = None,
        min_probability: float | None = None,
    ) -> list[dict[str, Any]]:
        """Find the images of the collection that are most similar to each query image.

        Parameters
        ----------
        queries : Queries, or what `queries` takes
            A query that is itself an image of the collection (the same file) is excluded from its own results.
        k : int
            Results for each query, fewer if the collection is smaller.
        learner : str, optional
            One of `learners`; by default `default_learner`.
        learned : float, optional
            The share of what the learner has learned, beside how images look, which is 0; by default what its training
            chose. See `blend`.
        offset : int
            Better results to skip.
        label, not_label : str or sequence of str, optional
            Only images with one of these labels; no images with one of these.
        folder : str, optional
            Only images in this folder or below it, relative to `root`; ".": directly in `root`.
        after, before : str, optional
            Only images from this date on; only images before this date: ``"2024"``, ``"2024-05"``, ``"2024-05-31"`` or
            ``"2024-05-31T18:30"``. The date of an image is that of its manifest, else EXIF's, else that of its file.
        where : str or sequence of str, optional
            Only images of which these conditions on fields hold: ``"camera=X100"``, with = != < <= > or >=.
        exclude_duplicates : bool
            Skip images whose bytes equal those of the query or of an earlier result.
        example : str, or sequence of str, image and (image, weight)
            Images to add to each query, as `queries` takes them, one each: ``"b.jpg"``, ``"id:12@-0.5"``. A negative
            weight subtracts one. They are no results themselves.
        weight : float
            Weight of the query image among the examples.
        region : str or sequence of float, optional
            Search with a part of each query image: x, y, width and height in shares of its size; only its blocks there
            count. With a region, examples or a weight, duplicates of the query are no longer excluded.
        min_probability : float, optional
            Only images that share a label with the query with at least this probability, from 0 to 1.

        Returns
        -------
        list of dict
            ``{"query": name, "results": [{"rank", "id", "path", "score", "labels"}, ...]}`` per query, best first, and
            each result's ``"probability"`` where `calibration` knows one.
            A query that cannot be read has no results, and the reason under ``"error"``. Paths are relative to the
            root. Scores are comparable only within the results of one query and one learner. With a condition on fields
            or dates each result has its ``"fields"``, a dict.

        Raises
        ------
        UserError
            The learner is unknown or not trained, k is less than 1, or `learned` does not lie between 0 and 1; no image
            has a label, a field or a value of the filter, or it has a date that is none; an example cannot be read, or
            weights or the region are out of range; `min_probability`, and no probability is known.
        """
        _check_k(k, offset)
        name = learner or self.default_learner()
        self.blend(name, learned)  # a learner that is not trained is refused before any query is read
        is_plain = region is None and not example and weight == 1
        calibration = self.calibration(name, learned, is_plain=is_plain)
        if min_probability is not None:
            calibration = check_probability(min_probability, name, calibration)
        wanted = self.filter(label, not_label, folder, after, before, where)
        part = None if region is None else Region.of(region)
        read, skipped = self.queries(queries), frozenset[int]()
        contents = None
        if part is not None or example or weight != 1:
            read, skipped = refined(self, read, example=example, weight=weight, region=part)
            contents = [""] * len(read.place) if exclude_duplicates else None
        elif exclude_duplicates:
            contents = [self._content(read.images[i], row) for i, row in zip(read.place, read.own, strict=True)]
        answers = read.answers("results")
        if read.place:
            ranked = rank(
                self,
                read.Q,
                read.own,
                k,
                name,
                learned=learned,
                offset=offset,
                wanted=wanted,
                skipped=skipped,
                contents=contents,
            )
            for i, pairs in zip(read.place, ranked, strict=True):
                answers[i]["results"] = self.results(*zip(*pairs, strict=True), offset=offset) if pairs else []
                if not isinstance(calibration, str):
                    answers[i]["results"] = with_probabilities(answers[i]["results"], calibration, min_probability)
        return self._shown(answers, wanted)

    def show(self, images: int | str | Iterable[int | str]) -> Pictures:
        """Show images of the run: in a notebook as pictures, with their ids and labels.

        Parameters
        ----------
        images : one or several of int and str
            Ids (``12`` or ``"id:12"``), and paths: as `search` gives them, or of files.

        Returns
        -------
        list of dict
            ``{"id", "path", "labels"}`` of each.

        Raises
        ------
        UserError
            The run has no such image.
        """
        shown = []
        for given in [images] if isinstance(images, int | str) else images:
            name = given if isinstance(given, str) else f"id:{given}"
            row = self.row_named(name)
            row = self.gallery.row_of_file(name) if row is None else row
            if row < 0:
                raise UserError(f"run {self.run.name} has no image {name}")
            image = self.images[row]
            shown.append({"id": image.id, "path": image.path, "labels": sorted(image.labels)})
        return Pictures(shown, self.root, self.config.collection.max_pixels)

    def calibration(self, name: str, learned: float | None = None, *, is_plain: bool = True) -> Calibration | str:
        """How scores of a learner become probabilities that two images share a label, or why they do not.

        Parameters
        ----------
        name : str
        learned : float, optional
            As of `search`.
        is_plain : bool
            Whether the query is one whole image.
        """
        if not is_plain:
            return "it is known for one whole image as a query"
        if learned is not None and learned != self.share(name):
            return "it is known for the share of what was learned that training chose"
        return self._loaded(name).calibration

    def _shown(self, answers: list[dict[str, Any]], wanted: Filter) -> Answers:
        """Add the fields of each result, if the filter is about fields; let notebooks show pictures."""
        for result in (result for answer in answers for result in answer["results"] if wanted.where):
            result["fields"] = self.gallery.fields.of(self.place[result["id"]])
        return Answers(answers, self.root, self.config.collection.max_pixels)

    def _content(self, image: Any, row: int) -> str:
        """SHA-256 of the file of a query; "" of pixels and vectors."""
        if row >= 0:
            return self.images[row].sha256
        return (image_sha256(image) or "") if isinstance(image, str) else ""

    def results(self, rows: Iterable[int], scores: Iterable[float], *, offset: int = 0) -> list[dict[str, Any]]:
        """Result rows of some rows of `images`, as `search` returns them; a row of -1 is skipped.

        Ranks begin after `offset`.
        """
        ranked = [(self.images[row], score) for row, score in zip(rows, scores, strict=True) if row >= 0]
        return [
            {
                "rank": rank,
                "id": image.id,
                "path": image.path,
                "score": round(float(score), 6),
                "labels": sorted(image.labels),
            }
            for rank, (image, score) in enumerate(ranked, start=offset + 1)
        ]

    def search_label(
        self,
        labels: str | Sequence[str],
        k: int = RESULTS,
        learner: str | None = None,
        *,
        offset: int = 0,
        label: str | Sequence[str] | None = None,
        not_label: str | Sequence[str] | None = None,
        folder: str | None = None,
        after: str | None = None,
        before: str | None = None,
        where: str | Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Find the images of the collection that fit a label best, or several labels together.

        The score for several labels is the mean of the scores for each, as PAMIR scores a query of several words.

        Parameters
        ----------
        labels : str or sequence of str
        k : int
            Results, fewer if the collection is smaller.
        learner : str, optional
            One of `annotators`; by default ``default_learner(of_labels=True)``.
        offset, label, not_label, folder, after, before, where
            As in `search`.

        Returns
        -------
        list of dict
            As `search`, of one answer, with the labels as ``"query"``.

        Raises
        ------
        UserError
            No such label, or the learner is not trained or does not rank labels.
        """
        import numpy as np

        from visterm.retrieval.stored import part

        _check_k(k, offset)
        annotator, name, names = self._annotator(learner)
        wanted = self.filter(label, not_label, folder, after, before, where)
        labels = [labels] if isinstance(labels, str) else list(labels)
        numbers = label_numbers(labels, names, name, self.gallery)
        rows = None if wanted == NO_FILTER else self.gallery.rows_of(wanted)
        X = self.X if rows is None else part(self.X, rows)
        blocks = [
            annotator.label_scores(X[i : i + _ROWS_PER_BLOCK])[:, numbers].mean(axis=1)
            for i in range(0, X.shape[0], _ROWS_PER_BLOCK)
        ]
        if not blocks:  # no image passes the filter
            return self._shown([{"query": " + ".join(labels), "results": []}], wanted)
        scores = np.concatenate(blocks)  # (n_images,)
        order = np.argsort(-scores, kind="stable")
        best = order if rows is None else rows[order]
        there = self._first_there(best, offset + k)[offset:]
        answer = {
            "query": " + ".join(labels),
            "results": self.results(best[there], scores[order[there]], offset=offset),
        }
        return self._shown([answer], wanted)

    def annotate(self, queries: Any, k: int = LABELS, learner: str | None = None) -> list[dict[str, Any]]:
        """Rank labels for images.

        Parameters
        ----------
        queries : Queries, or what `queries` takes
        k : int
            Labels for each image, fewer if the learner knows fewer.
        learner : str, optional
            One of `annotators`, by default ``default_learner(of_labels=True)``; or "knn", which needs no training, and
            is the default where `annotators` is empty.

        Returns
        -------
        list of dict
            ``{"query": name, "labels": [{"rank", "label", "score"}, ...]}`` per query, best first. A query that cannot
            be read has no labels, and the reason under ``"error"``.

        Raises
        ------
        UserError
            The learner is not trained, or does not rank labels; no image has a label.
        """
        _check_k(k)
        if self._asks_nearest(learner):
            read = self.queries(queries)
            answers = read.answers("labels")
            if read.place:
                for i, labels in zip(read.place, labels_of_nearest(self, read, k), strict=True):
                    answers[i]["labels"] = labels
            return answers
        annotator, _, names = self._annotator(learner)
        read = self.queries(queries)
        answers = read.answers("labels")
        if read.place:
            for i, numbers, scores in zip(read.place, *annotator.annotate(read.Q, min(k, len(names))), strict=True):
                answers[i]["labels"] = label_results(names, numbers, scores)
        return answers

    def similar_labels(
        self, labels: str | Sequence[str], k: int = LABELS, learner: str | None = None
    ) -> list[dict[str, Any]]:
        """Find the labels nearest to each label.

        Parameters
        ----------
        labels : str or sequence of str
        k : int
            Labels for each label, fewer if the learner knows fewer.
        learner : str, optional
            One whose labels have vectors; by default ``default_learner(of_labels=True)``.

        Returns
        -------
        list of dict
            As `annotate`, with the label as ``"query"``.

        Raises
        ------
        UserError
            No such label, or the learner is not trained or has no label vectors.
        """
        _check_k(k)
        annotator, name, names = self._annotator(learner)
        labels = [labels] if isinstance(labels, str) else list(labels)
        numbers = label_numbers(labels, names, name, self.gallery)
        if not annotator.labels_have_vectors:
            raise UserError(f"{name} has no label vectors to compare; {', '.join(with_label_vectors())} have them")
        indices, scores = annotator.similar_labels(numbers, min(k, len(names) - 1))
        return [
            {"query": label, "labels": label_results(names, row, values)}
            for label, row, values in zip(labels, indices, scores, strict=True)
        ]

    def _asks_nearest(self, learner: str | None) -> bool:
        """Whether the nearest labelled images rank labels, and no trained learner: see `labels_of_nearest`."""
        if "knn" in self._trained or not self.gallery.albums.labels or learner not in (None, "knn"):
            return False
        if learner is None and not self.annotators:
            why = f"no learner of run {self.run.name} that ranks labels is trained"
            self._once(("said", "knn"), lambda: self._console.say(f"by knn, which needs no training; {why}"))
        return learner == "knn" or not self.annotators

    def _annotator(self, name: str | None) -> tuple[Any, str, list[str]]:
        """A trained learner that ranks labels, its name, and those of its labels by number."""
        check_learners([name] if name is not None else [])
        able = annotators()
        chosen = name or self.default_learner(of_labels=True)
        if chosen not in able:
            raise UserError(f"{chosen} ranks images, not labels; {', '.join(able)} rank labels")
        if chosen not in self._trained:
            check_trained(self.run, chosen, able)
        loaded = self._loaded(chosen)
        return loaded.learner, chosen, loaded.labels


class _Loaded(NamedTuple):
    """A learner, the names of its labels by number, and its calibration or why there is none."""

    learner: SimilarityLearner
    labels: list[str]
    calibration: Calibration | str


class _Log:
    """A Console that writes to the log."""

    say = staticmethod(_log.info)
    warn = staticmethod(_log.warning)

    @staticmethod
    @contextlib.contextmanager
    def phase(title: str) -> Iterator[None]:
        _log.info(title)
        yield


def check_probability(least: float, learner: str, calibration: Calibration | str) -> Calibration:
    """Return the calibration by which results are filtered; UserError where it is none, or `least` is none.

    Parameters
    ----------
    least : float
    learner : str
    calibration : Calibration or str
        As of `Searcher.calibration`.
    """
    if not 0 <= least <= 1:
        raise UserError(f"min_probability={least}: a probability lies between 0 and 1")
    if isinstance(calibration, str):
        raise UserError(f"min_probability: {learner} has no probabilities: {calibration}")
    return calibration


def with_probabilities(
    results: list[dict[str, Any]], calibration: Calibration, least: float | None = None
) -> list[dict[str, Any]]:
    """Add the probability of each result that has at least so much; the others are dropped."""
    known = calibration.of([result["score"] for result in results]).tolist()
    return [
        result | {"probability": probability}
        for result, probability in zip(results, known, strict=True)
        if least is None or probability >= least
    ]


def _check_k(k: int, offset: int = 0) -> None:
    if k < 1:
        raise UserError(f"k={k}: k must be at least 1")
    if offset < 0:
        raise UserError(f"offset={offset}: offset must be at least 0")
