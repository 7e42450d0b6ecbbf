"""Searching by label, and ranking labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import Calibration
from visterm.pipeline.store.models import check_learners, check_trained

from .answers import Answer, Answers, LabelAnswer, LabelResult, ResultRow
from .examples import combine
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
from .request import OPTIONS, RESULTS, InvalidQuery, LabelSearchOptions, SearchRequest
from .words import MAX_TEXT, TextLabels, labels_of_text

LABELS = 5  # per query, by default
_ROWS_PER_BLOCK = 1024  # images whose scores of all labels are held at a time


@dataclass(frozen=True)
class SearchOutcome:
    """Results of a search, as rows of the gallery."""

    request: SearchRequest  # with the learner that ranked the images
    queries: Queries  # as they were searched with
    ranked: dict[int, Ranked]  # best first, by the position of each query that could be read
    calibration: Calibration | str  # how likely results share a label with the query, or why it is not known
    probabilities: dict[int, list[float]] = field(default_factory=dict)  # of these results, where it is known


class LabelSearcher(RunLearners):
    """Searches by label, and labels of images; see `Searcher`."""

    def find_labels(self, labels: Sequence[str], request: SearchRequest, *, evenly: bool = False) -> SearchOutcome:
        """Rank the images for a label, or for several labels together; see `search_label`.

        With `evenly` the scores of each label are standardised over all images first: a label whose scores differ most
        would decide alone.
        """
        import numpy as np

        for name in ("example", "region"):
            if getattr(request, name):
                raise InvalidQuery(f"{name}: for queries that are images; give an image, or leave it out")
        check_learners([] if request.learner is None else [request.learner])
        chosen = request.learner or self.default_learner(of_labels=bool(self.annotators))
        if chosen not in ranking_labels():
            return self._find_as_labelled(labels, replace(request, learner=chosen))
        from visterm.retrieval.stored import part

        annotator, name, names = self._annotator(request.learner)
        calibration = self._calibration_for(request, name, is_plain=False)
        check_filter(request.filter, self.gallery)
        numbers = label_numbers(labels, names, name, self.gallery)
        rows = None if request.filter == NO_FILTER else self.gallery.rows_of(request.filter)
        X = self.X if rows is None or evenly else part(self.X, rows)
        blocks = [
            annotator.label_scores(X[i : i + _ROWS_PER_BLOCK])[:, numbers]
            for i in range(0, X.shape[0], _ROWS_PER_BLOCK)
        ]
        ranked: Ranked = []
        if blocks:  # otherwise no image passes the filter
            of_labels = np.concatenate(blocks)  # (n_images, n_labels)
            if evenly:
                of_labels = (of_labels - of_labels.mean(axis=0)) / np.maximum(of_labels.std(axis=0), 1e-12)
                of_labels = of_labels if rows is None else of_labels[rows]  # so that a filter changes no score
            scores = of_labels.mean(axis=1)
            order = np.argsort(-scores, kind="stable")
            best = order if rows is None else rows[order]
            there = self._first_there(best, request.offset + request.k)[request.offset :]
            ranked = list(zip(best[there].tolist(), scores[order[there]].tolist(), strict=True))
        query = Queries([" + ".join(labels)], self.X[:0], [], [], {}, [None])
        return SearchOutcome(replace(request, learner=name), query, {0: ranked}, calibration)

    def _find_as_labelled(self, labels: Sequence[str], request: SearchRequest) -> SearchOutcome:
        """Rank the images by their similarity to the mean of those with each label."""
        check_labels(labels, self.gallery)
        check_filter(request.filter, self.gallery)
        name = request.learner or ""
        self.learner(name)
        means = [self._mean_of(label) for label in labels]
        Q = combine(means, [1.0] * len(means))
        calibration = self._calibration_for(request, name, is_plain=False)
        which = f"images labelled {one_line(', '.join(labels))[:200]}"
        self._console.say(f"by {name}, similarity to the mean of the {which}: no learner that ranks labels is used")
        query = Queries([" + ".join(labels)], Q, [0], [-1], {}, [None])
        return SearchOutcome(request, query, {0: rank(self, Q, [-1], request)[0]}, calibration)

    def _mean_of(self, label: str) -> Any:
        """Mean vector of the images with a label, CSR or dense (1, n_features)."""
        import numpy as np
        from scipy import sparse

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
            ``offset``, ``label``, ``not_label``, ``folder``, ``after``, ``before`` and ``where``, as for `search`.

        Returns
        -------
        list of dict
            As `search`, with one answer, whose ``"query"`` are the labels.

        Raises
        ------
        UserError
            No such label, or the learner is not trained.
        """
        labels = [labels] if isinstance(labels, str) else list(labels)
        return self._answers(self.find_labels(labels, SearchRequest.of(k, learner, **options)))

    def labels_of_text(self, text: str) -> TextLabels:
        """Return the labels of the run that the words of a text name; UnknownLabel if none does.

        See `visterm.pipeline.search.words.labels_of_text`. UserError if the text is too long.
        """
        if len(text) > MAX_TEXT:
            raise UserError(f"a text of {len(text):,} characters; give at most {MAX_TEXT}")
        names = list(self.gallery.albums.labels)
        meant = labels_of_text(text, names)
        if not meant.labels:
            known = f"there are {', '.join(names[:5])}{', ...' * (len(names) > 5)}" if names else "it has no labels"
            asked = one_line(text)[:100]
            raise UnknownLabel(
                f"no word of {asked!r} is a label of run {self.run.name}; {known}; or search with an image"
            )
        return meant

    def search_text(
        self, text: str, k: int = RESULTS, learner: str | None = None, **options: Unpack[LabelSearchOptions]
    ) -> Answers:
        """Find the images that fit the labels best that a text names: ``"beach at sunset"``.

        Near spellings are included; other words count for nothing, and are named in a note. The score is the mean of
        the scores for each label, standardised over the images.

        Raises
        ------
        UserError
            No word names a label, the text is longer than 300 characters, or as `search_label`.
        """
        meant = self.labels_of_text(text)
        if meant.unknown:
            self._console.say(f"by {' + '.join(meant.labels)}; no labels: {', '.join(meant.unknown)}")
        return self._answers(self.find_labels(meant.labels, SearchRequest.of(k, learner, **options), evenly=True))

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
