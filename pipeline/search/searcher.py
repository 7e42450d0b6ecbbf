"""A run opened for searching: images and labels to ranked images and labels.

Heavy libraries are imported inside the functions that need them: refusing a wrong call must not cost seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Unpack

from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import BEST, Calibration
from visterm.pipeline.plugins import load
from visterm.pipeline.store.files import image_sha256

from .answers import Answers, ImageRow, Pictures
from .filters import Filter
from .label_search import LabelSearcher, SearchOutcome
from .labels import check_filter
from .queries import KnownImage, Queries
from .rank import Ranked, rank
from .request import RESULTS, FilterOptions, InvalidQuery, SearchOptions, SearchRequest


class Searcher(LabelSearcher):
    """A run opened for searching.

    It holds the run as it was when it was opened, whatever happens on disk later: open another one when `is_current`
    is false. Any number of threads may share it; a process that it is sent to (joblib) opens the run again.

    Parameters
    ----------
    run : Run, str or Path
        The run, its name in the folder of runs (``runs/``, or the environment variable VISTERM_RUNS), or its path.
    console : Console, optional
        Prints warnings, such as that a learner is older than its images. By default they go to the logger
        ``visterm.pipeline.search.searcher``.
    like : Searcher, optional
        An older searcher of the same run: unchanged parts are shared with it, not read again.

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
    place : RowOfId
        Row of each image by its id.
    learners : list of str
        Names of the learners that can be used, "cosine" last.
    annotators : list of str
        Learners that rank labels.
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
    >>> from visterm import Searcher
    >>> searcher = Searcher("photos")                                    # doctest: +SKIP
    >>> for answer in searcher.search(["a.jpg", "holiday/"], k=3):       # doctest: +SKIP
    ...     print(answer["query"], [result["path"] for result in answer["results"]])
    a.jpg ['sea/17.jpg', 'sea/4.jpg', 'lake/9.jpg']
    holiday/1.jpg ['sea/4.jpg', 'boat/3.jpg', 'sea/8.jpg']
    """

    def filter(self, **conditions: Unpack[FilterOptions]) -> Filter:
        """Make a filter of images, as `search` takes its conditions.

        Raises
        ------
        UnknownLabel
            No image has one of the labels.
        InvalidFilter
            A condition or a date cannot be read, or names a field or a value that no image has.
        """
        condition = SearchRequest.of(**conditions).filter
        check_filter(condition, self.gallery)
        return condition

    def search(
        self, queries: Any, k: int = RESULTS, learner: str | None = None, **options: Unpack[SearchOptions]
    ) -> Answers:
        """Find the images of the collection that are most similar to each query image.

        Parameters
        ----------
        queries : Queries, or what `queries` takes
            A query that is itself an image of the collection (the same file) is excluded from its own results.
        k : int
            Results for each query, fewer if the collection is smaller.
        learner : str, optional
            One of `learners`; by default `default_learner`.
        **options
            ``label``, ``not_label``, ``folder``, ``after``, ``before``, ``where``, ``offset``, ``example``,
            ``weight``, ``learned_weight``, ``region``, ``exclude_duplicates`` and ``min_probability``, as
            `SearchRequest` describes them.

        Returns
        -------
        list of dict
            Per query ``"query"``, its name, and ``"results"``, best first, or the ``"error"`` of one that cannot be
            read; of each result ``"rank"``, ``"id"``, ``"path"`` relative to the root, ``"score"``, comparable only
            within the results of one query and one learner, ``"labels"``, ``"probability"`` where `calibration` knows
            one, and ``"fields"``, a dict, with a condition on fields or dates.

        Raises
        ------
        UserError
            The learner is unknown or not trained; a number or the region is out of bounds; no image has a label, a
            field or a value of the filter, or a date cannot be read; an example cannot be read; `min_probability`, and
            no probability is known.
        """
        return self._answers(self.find(queries, SearchRequest.of(k, learner, **options)))

    def find(self, queries: Any, request: SearchRequest, *, strict: bool = False) -> SearchOutcome:
        """Rank the images of the collection for each query; see `search`.

        If `strict`, the error of a query whose region shows nothing, or whose sum of examples cancels out, is raised,
        not listed.
        """
        if request.text_by is not None:
            raise InvalidQuery("text_by: for a text as the query; leave it out")
        name = request.learner or self.default_learner()
        request = request if request.learner == name else replace(request, learner=name)
        self.learner(name)  # a learner that is not trained is refused before any query is read
        calibration = self._calibration_for(request, name, is_plain=request.of_whole_images)
        check_filter(request.filter, self.gallery)
        read, skipped = self.queries(queries), frozenset[int]()
        contents = None
        if not request.of_whole_images:
            read, skipped = load("examples").refined(self, read, request, strict=strict)
            contents = [""] * len(read.place) if request.exclude_duplicates else None
        elif request.exclude_duplicates:
            contents = [self._content(read.images[i], row) for i, row in zip(read.place, read.rows, strict=True)]
        ranked = rank(self, read.Q, read.rows, request, skipped=skipped, contents=contents) if read.place else []
        results = dict(zip(read.place, ranked, strict=True))
        if isinstance(calibration, str):
            return SearchOutcome(request, read, results, calibration)
        likely = self._probabilities(calibration, read, request, ranked)
        for place, of_query in likely.items():
            n_likely = sum(one >= (request.min_probability or 0) for one in of_query)  # they never rise along a ranking
            results[place], likely[place] = results[place][:n_likely], of_query[:n_likely]
        return SearchOutcome(request, read, results, calibration, likely)

    def _probabilities(
        self, calibration: Calibration, read: Queries, request: SearchRequest, ranked: list[Ranked]
    ) -> dict[int, list[float]]:
        """Probabilities of the results of each query, by its place, from its best scores among all images."""
        whole, best = SearchRequest(BEST, request.learner), ranked
        if read.place and (request.k < BEST or replace(request, k=BEST, min_probability=None) != whole):
            best = rank(self, read.Q, read.rows, whole)
        scores = ([score for _, score in results] for results in ranked)
        of_query = ([score for _, score in results[:BEST]] for results in best)
        likely = [calibration.of(*pair).tolist() for pair in zip(scores, of_query, strict=True)]
        return dict(zip(read.place, likely, strict=True))

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
        shown: list[ImageRow] = []
        for number in [images] if isinstance(images, int | str) else images:
            name = number if isinstance(number, str) else f"id:{number}"
            row = self.row_named(name)
            row = self.gallery.row_of_file(name) if row is None else row
            if row < 0:
                raise UserError(f"run {self.run.name} has no image {name}")
            image = self.images[row]
            shown.append({"id": image.id, "path": image.path, "labels": sorted(image.labels)})
        return Pictures(shown, self.root, self.config.collection.max_pixels)

    def _content(self, image: Any, row: int) -> str:
        """SHA-256 that the file of a query is known by; "" of pixels and vectors."""
        if row >= 0:
            return self.images[row].sha256
        if isinstance(image, KnownImage):
            return self.gallery.known_by(image.sha256)
        return self.gallery.known_by(image_sha256(image) or "") if isinstance(image, str) else ""
