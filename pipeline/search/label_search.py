"""Searching by label, and ranking labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack

from visterm import sparse
from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import Calibration
from visterm.pipeline.plugins import load
from visterm.pipeline.store.models import check_learners, check_trained
from visterm.pipeline.store.vectors import text_embedder_of

from .answers import Answer, Answers, LabelAnswer, LabelResult, ResultRow
from .filters import NO_FILTER, Filter
from .labels import (
    UnknownLabel,
    check_filter,
    check_labels,
    label_numbers,
    label_results,
    ranking_labels,
    with_label_vectors,
)
from .learners import RunLearners
from .queries import Queries
from .rank import Ranked, rank
from .request import OF_IMAGES, OPTIONS, RESULTS, InvalidQuery, LabelSearchOptions, SearchRequest, in_nfc
from .words import MAX_MODEL_TEXT, MAX_TEXT, TextLabels, labels_of_text, logistic

if TYPE_CHECKING:
    import numpy as np
else:
    from visterm import numpy as np

LABELS = 5  # per query, by default
_FOR_MEAN = 10_000  # images whose mean stands for that of all
_ROWS_PER_BLOCK = 1024  # images whose scores of all labels are held at a time


@dataclass(frozen=True)
class SearchOutcome:
    """Results of a search, as rows of the gallery."""

    request: SearchRequest  # with the learner that ranked the images
    queries: Queries  # as they were searched with
    ranked: dict[int, Ranked]  # best first, by the position of each query that could be read
    calibration: Calibration | str  # how likely results share a label with the query, or why it is not known
    probabilities: dict[int, list[float]] = field(default_factory=dict)  # of these results, where it is known
    answered_by: str | None = None  # of a text as the query: what answered it, and what counted for nothing


class LabelSearcher(RunLearners):
    """Searches by label, and labels of images; see `Searcher`."""

    def find_labels(self, labels: Sequence[str], request: SearchRequest, *, evenly: bool = False) -> SearchOutcome:
        """Rank the images for a label, or for several labels together; see `search_label`.

        With `evenly` the scores of several labels become probabilities first, which are multiplied: of the scores
        themselves, those of the label that differ most would decide alone.
        """
        _check_no_image(request)
        labels = in_nfc(labels)
        if not labels:
            raise InvalidQuery("no label to search by; give one or more")
        if request.text_by is not None:
            raise InvalidQuery("text_by: for a text as the query; give a text, or leave it out")
        check_learners([] if request.learner is None else [request.learner])
        chosen = request.learner or self.default_learner(of_labels=bool(self.annotators))
        if chosen not in ranking_labels():
            return self._find_as_labelled(labels, replace(request, learner=chosen))
        from visterm.retrieval.stored import part

        if request.learned_weight is not None:
            raise InvalidQuery(f"learned_weight: {chosen} ranks images for a label by itself; leave it out")
        annotator, name, names = self._annotator(request.learner)
        calibration = self._calibration_for(request, name, is_plain=False)
        check_filter(request.filter, self.gallery)
        numbers = label_numbers(labels, names, name, self.gallery)
        rows = None if request.filter == NO_FILTER else self.gallery.rows_of(request.filter)
        X = self.X if rows is None else part(self.X, rows)
        ranked: Ranked = []
        if X.shape[0]:  # otherwise no image passes the filter
            of_labels = _label_scores(annotator, X, numbers)
            if evenly and len(labels) > 1:
                chances = zip(labels, numbers, of_labels.T, strict=True)
                of_labels = np.column_stack([self._chances(name, *one) for one in chances])
            scores = of_labels.mean(axis=1)
            order = np.argsort(-scores, kind="stable")
            best = order if rows is None else rows[order]
            if request.exclude_duplicates:
                contents = self.images.contents()
                first = np.sort(np.unique([contents[row] for row in best], return_index=True)[1])
                order, best = order[first], best[first]
            there = self._first_there(best, request.offset + request.k)[request.offset :]
            ranked = list(zip(best[there].tolist(), scores[order[there]].tolist(), strict=True))
        query = Queries([" + ".join(labels)], self.X[:0], [], [], {}, [None])
        return SearchOutcome(replace(request, learner=name), query, {0: ranked}, calibration)

    def _chances(self, learner: str, label: str, number: int, scores: np.ndarray) -> np.ndarray:
        """Return the logarithm of the probability that images with these scores have a label, (n_images,)."""
        from visterm.retrieval.stored import part

        def fit() -> tuple[float, float]:
            images = self.gallery.training_images
            if not images:  # all were removed since it was trained
                return 1.0, 0.0
            rows = np.array([self.place[image.id] for image in images])
            known = _label_scores(self._loaded(learner).learner, part(self.X, rows), [number])
            return logistic(known[:, 0], np.array([label in image.labels for image in images]))

        slope, intercept = self._once((f"label {label}", learner), fit)
        return -np.logaddexp(0, -(slope * scores.astype(np.float64) + intercept))

    def _find_as_labelled(self, labels: Sequence[str], request: SearchRequest) -> SearchOutcome:
        """Rank the images by their similarity to the mean of those with each label."""
        check_labels(labels, self.gallery)
        means = [self._mean_of(label) for label in labels]
        Q = load("examples").combine(means, [1.0] * len(means))
        name = request.learner
        which = f"images labelled {one_line(', '.join(labels))[:200]}"
        self._console.say(f"by {name}, similarity to the mean of the {which}: no learner that ranks labels is used")
        return self._find_by_vector(" + ".join(labels), Q, request)

    def _find_by_vector(self, name: str, Q: Any, request: SearchRequest) -> SearchOutcome:
        """Rank the images for a vector (1, n_features) that is no image's; the request names a learner."""
        check_filter(request.filter, self.gallery)
        learner = request.learner or ""
        self.learner(learner)
        calibration = self._calibration_for(request, learner, is_plain=False)
        query = Queries([name], Q, [0], [-1], {}, [None])
        contents = [""] if request.exclude_duplicates else None
        (ranked,) = rank(self, Q, [-1], request, contents=contents)
        return SearchOutcome(request, query, {0: ranked}, calibration)

    def _mean_of(self, label: str) -> Any:
        """Mean vector of the images with a label, CSR or dense (1, n_features)."""
        from visterm.retrieval.stored import part

        X = part(self.X, self.gallery.rows_of(Filter(label=(label,))))
        n = X.shape[0]
        sums = [X[i : i + _ROWS_PER_BLOCK].sum(axis=0) for i in range(0, n, _ROWS_PER_BLOCK)]
        mean = np.asarray(sum(sums) / n, np.float32).reshape(1, -1)
        return sparse.csr_matrix(mean) if sparse.issparse(self.X) else mean

    def results(self, rows: Iterable[int], scores: Iterable[float], *, offset: int = 0) -> list[ResultRow]:
        """Describe rows of `images` as `search` does; a row of -1 is skipped, ranks begin after `offset`."""
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

    def _answers(self, outcome: SearchOutcome) -> Answers:
        """Describe an outcome for people."""
        request, queries = outcome.request, outcome.queries
        answers: list[Answer] = [{"query": name, "results": []} for name in queries.names]
        for i, error in queries.errors.items():
            answers[i]["error"] = error
        for i, ranked in outcome.ranked.items():
            results = self.results(*zip(*ranked, strict=True), offset=request.offset) if ranked else []
            answers[i]["results"] = results
            for result, probability in zip(results, outcome.probabilities.get(i, ()), strict=False):
                result["probability"] = probability
            for result in results if request.filter.where else ():
                result["fields"] = self.gallery.fields.of(self.place[result["id"]])
        return Answers(answers, self.root, self.config.collection.max_pixels)

    def search_label(
        self,
        labels: str | Sequence[str],
        k: int = RESULTS,
        learner: str | None = None,
        **options: Unpack[LabelSearchOptions],
    ) -> Answers:
        """Find the images of the collection that fit a label best, or several labels together.

        The score for several labels is the mean of the scores for each, as PAMIR scores a query of several words.

        Parameters
        ----------
        labels : str or sequence of str
        k : int
            Results, fewer if the collection is smaller.
        learner : str, optional
            One of `annotators`; by default ``default_learner(of_labels=True)``. Where none is trained, or with another
            one of `learners`, images are ranked by their similarity to the mean of those with the label.
        **options
            ``offset``, ``exclude_duplicates``, ``label``, ``not_label``, ``folder``, ``after``, ``before`` and
            ``where``, as for `search`.

        Returns
        -------
        list of dict
            As `search`, with one answer, whose ``"query"`` are the labels.

        Raises
        ------
        UserError
            No such label, or the learner is not trained.
        """
        return self._answers(self.find_labels(in_nfc(labels), SearchRequest.of(k, learner, **options)))

    def labels_of_text(self, text: str) -> TextLabels:
        """Return the labels of the run that the words of a text name; UnknownLabel if none does.

        See `visterm.pipeline.search.words.labels_of_text`. UserError if the text is too long.
        """
        if len(text) > MAX_TEXT:
            raise InvalidQuery(f"a text of {len(text):,} characters; give at most {MAX_TEXT}")
        names = list(self.gallery.albums.labels)
        meant = labels_of_text(text, names)
        if not meant.labels:
            known = f"there are {', '.join(names[:5])}{', ...' * (len(names) > 5)}" if names else "it has no labels"
            asked = one_line(text)[:100]
            raise UnknownLabel(
                f"no word of {asked!r} is a label of run {self.run.name}; {known}; or search with an image"
            )
        return meant

    def find_text(self, text: str, request: SearchRequest) -> SearchOutcome:
        """Rank the images for a text; see `search_text`."""
        if not text.strip():
            raise InvalidQuery("an empty text; give words")
        by, request = request.text_by, replace(request, text_by=None)
        if by is None and self.has_text_model:
            named = len(text) <= MAX_TEXT and labels_of_text(text, self.gallery.albums.labels).labels
            by = "labels" if named else "model"
        if by == "model":
            return self._find_by_text_model(text, request)
        meant = self.labels_of_text(text)
        ignored = f"; no labels: {', '.join(meant.unknown)}" if meant.unknown else ""
        outcome = self.find_labels(meant.labels, request, evenly=True)
        return replace(outcome, answered_by=f"by the labels {' + '.join(meant.labels)}{ignored}")

    def _find_by_text_model(self, text: str, request: SearchRequest) -> SearchOutcome:
        """Rank the images by their similarity to the vector that the text model makes of a text.

        By default by cosine: similarities that photos taught know how photos differ, not how words do. They take the
        mean of the photos, moved by the text.
        """
        _check_no_image(request)
        run = self.run
        if not self.has_text_model:
            command = f"visterm features {run.option} --set features.text_model=text.onnx"
            raise UserError(f"run {run.name} has no text model; add one: {command}")
        if len(text) > MAX_MODEL_TEXT:
            raise InvalidQuery(f"a text of {len(text):,} characters; give at most {MAX_MODEL_TEXT:,}")
        embedder = text_embedder_of(run, self._text_version)
        if embedder.n_features_out_ != self.X.shape[1]:
            raise UserError(
                f"the text model of run {run.name} gives {embedder.n_features_out_:,} numbers, and its images have "
                f"{self.X.shape[1]:,}; give the text model of these images: --set features.text_model=text.onnx"
            )
        try:
            Q = self.recent(("text", self._text_version, text), lambda: embedder.transform([text]))
            cut = f", of its first {embedder.length_} tokens" if embedder.is_cut(text) else ""
        except (ValueError, ImportError) as error:
            raise UserError(str(error)) from None
        request = replace(request, learner=request.learner or "cosine")
        if request.learner != "cosine":
            Q = Q + self._once(("mean", "cosine"), self._mean_vector)
        name = one_line(text)
        outcome = self._find_by_vector(name if len(name) <= 100 else f"{name[:99]}…", Q, request)
        return replace(outcome, answered_by=f"by the text model{cut}")

    def _mean_vector(self) -> np.ndarray:
        """Mean of the images' vectors, (1, n_features); of many some in even steps."""
        from visterm.retrieval.stored import part

        rows = np.unique(np.linspace(0, len(self.images) - 1, min(len(self.images), _FOR_MEAN)).astype(int))
        return np.asarray(part(self.X, rows).mean(axis=0), np.float32).reshape(1, -1)

    def search_text(
        self, text: str, k: int = RESULTS, learner: str | None = None, **options: Unpack[LabelSearchOptions]
    ) -> Answers:
        """Find the images that fit a text best: ``"beach at sunset"``.

        Labels of the run that its words name come first, with near spellings; other words then count for nothing, and
        are named in a note. The score for several labels is the mean logarithm of their probabilities. Where no
        word names a label, the run's text model makes a vector of the text, which is searched with as that of an
        image; ``text_by`` chooses one of the two.

        Raises
        ------
        UserError
            No word names a label, and there is no text model; the text is empty or too long; or as `search_label`.
        """
        outcome = self.find_text(text, SearchRequest.of(k, learner, **options))
        self._console.say(outcome.answered_by)
        return self._answers(outcome)

    def annotate(self, queries: Any, k: int = LABELS, learner: str | None = None) -> list[LabelAnswer]:
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
        OPTIONS["k"].check("k", k)
        trained = None if self._asks_nearest(learner) else self._annotator(learner)
        read = self.queries(queries)
        answers: list[LabelAnswer] = [{"query": name, "labels": []} for name in read.names]
        for i, error in read.errors.items():
            answers[i]["error"] = error
        labels: Iterable[list[LabelResult]] = ()
        if read.place and trained is None:
            labels = self._labels_of_nearest(read, k)
        elif read.place and trained is not None:
            annotator, _, names = trained
            ranked = annotator.annotate(read.Q, min(k, len(names)))
            labels = [label_results(names, *numbers_and_scores) for numbers_and_scores in zip(*ranked, strict=True)]
        for i, of_query in zip(read.place, labels, strict=True):
            answers[i]["labels"] = of_query
        return answers

    def similar_labels(
        self, labels: str | Sequence[str], k: int = LABELS, learner: str | None = None
    ) -> list[LabelAnswer]:
        """Find the labels nearest to each label.

        Parameters
        ----------
        labels : str or sequence of str
        k : int
            Labels for each label, fewer if the learner knows fewer.
        learner : str, optional
            A learner whose labels have vectors; by default ``default_learner(of_labels=True)``.

        Returns
        -------
        list of dict
            As `annotate`, with the label as ``"query"``.

        Raises
        ------
        UserError
            No such label, or the learner is not trained or has no label vectors.
        """
        OPTIONS["k"].check("k", k)
        annotator, name, names = self._annotator(learner)
        labels = in_nfc(labels)
        numbers = label_numbers(labels, names, name, self.gallery)
        if not annotator.labels_have_vectors:
            raise UserError(f"{name} has no label vectors to compare; {', '.join(with_label_vectors())} have them")
        indices, scores = annotator.similar_labels(numbers, min(k, len(names) - 1))
        return [
            {"query": label, "labels": label_results(names, row, values)}
            for label, row, values in zip(labels, indices, scores, strict=True)
        ]

    def _asks_nearest(self, learner: str | None) -> bool:
        """Whether the nearest labelled images rank labels, in place of a trained learner: see `_labels_of_nearest`."""
        if "knn" in self._trained or not self.gallery.albums.labels or learner not in (None, "knn"):
            return False
        if learner is None and not self.annotators:
            why = f"no learner of run {self.run.name} that ranks labels is trained"
            self._once(("said", "knn"), lambda: self._console.say(f"by knn, which needs no training; {why}"))
        return learner == "knn" or not self.annotators

    def _labels_of_nearest(self, read: Queries, k: int) -> list[list[LabelResult]]:
        """Rank the labels of the nearest labelled images for each query, as `KNNAnnotator` does.

        Nothing is trained: cosine searches, with the labels of the moment. Labels that no neighbour has are left out.
        """
        config: Any = self.config
        settings = config.knn
        nearest_ones = SearchRequest(settings.n_neighbors, "cosine", label=tuple(self.gallery.albums.labels))
        if len(self.gallery.rows_of(nearest_ones.filter)) == len(self.images):
            nearest_ones = replace(nearest_ones, label=())
        answers = []
        for nearest in rank(self, read.Q, read.rows, nearest_ones, alone=True):
            votes: dict[str, float] = defaultdict(float)
            for row, similarity in nearest:
                for label in self.images[row].labels if similarity > 0 else ():
                    votes[label] += similarity if settings.weights == "similarity" else 1
            names = sorted(votes, key=lambda label: (-votes[label], label))[:k]
            answers.append(label_results(names, range(len(names)), [votes[label] for label in names]))
        return answers

    def _annotator(self, name: str | None) -> tuple[Any, str, list[str]]:
        """A trained learner that ranks labels, its name, and those of its labels by number."""
        check_learners([name] if name is not None else [])
        known = ranking_labels()
        chosen = name or self.default_learner(of_labels=True)
        if chosen not in known:
            raise UserError(f"{chosen} ranks images, not labels; {', '.join(known)} rank labels")
        if chosen not in self._trained:
            check_trained(self.run, chosen, known)
        loaded = self._loaded(chosen)
        return loaded.learner, chosen, loaded.labels


def _label_scores(annotator: Any, X: Any, numbers: Sequence[int]) -> np.ndarray:
    """Return the scores of images for some labels, (n_images, n_labels)."""
    starts = range(0, X.shape[0], _ROWS_PER_BLOCK)
    return np.concatenate([annotator.label_scores(X[i : i + _ROWS_PER_BLOCK])[:, numbers] for i in starts])


def _check_no_image(request: SearchRequest) -> None:
    """Refuse options of queries that are images; the weight of the learner is for any, and so is a probability."""
    for name in OF_IMAGES:
        if name not in ("learned_weight", "min_probability") and getattr(request, name) != getattr(SearchRequest, name):
            raise InvalidQuery(f"{name}: for queries that are images; give an image, or leave it out")
