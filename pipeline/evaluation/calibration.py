"""How sure a result is: the probability that it shares a label with the query, on the query's own scale.

A score has no scale of its own, and no scale that is the same for all queries: where a query's neighbours agree, all of
its first results score high. So a logistic function takes three numbers: the mean of the query's `BEST` best scores,
and the score of a result, up to the last of these and beyond it, as scores fall faster among the first results. Above
the query's third best, scores count as that one.

One function for all ranks is too bold of first results: the mean of a query tells less of the first one than of the
others. So a second function, for first results, takes three numbers more: log10 r of the rank r, the mean times
1 - log10 r, and how far the best score is above the third, at most as far as of nearly all queries: one near copy tells
little of the others. At rank r the log odds are 1 - log10 r parts of the second function and log10 r of the first one.

They are fitted to the rankings of test images, which nothing was trained on, among the images of the run. A result at
rank r weighs r^-`FALL`, or of first results r^-`FALL_FIRST`: people look at the first ones, and nearly all pairs are
far down and share nothing. Results of one query are no independent evidence, and the second function is the more
regularized. Both hold for a single query image, and for the weight of the learned similarity that training chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import supervision, vectors
from visterm.pipeline.store.versions import LearnerVersions

from .held_out import MAX_QUERIES, cutoff_of, ranking_index

if TYPE_CHECKING:
    import numpy as np

    from visterm.retrieval import Ranking
else:
    from visterm import numpy as np

BEST = 10  # scores of a query that give its scale
FALL, FALL_FIRST = 1.25, 2.0
_LEADS = 0.95  # of the queries have a best score that is less far above the third
_PENALTY = 10.0  # of squared weights, of the function for first results; of the other 1
MAX_GALLERY = 5000  # images that are ranked
NO_CALIBRATION = {"reason": "no labelled images were held out"}
FEWEST_QUERIES = 10  # held-out images that have another one of their label
_THIRD = 2  # place of the score at which those above it count
_NEWTON_STEPS, _NEWTON_END = 50, 1e-9
_RANKS = 200  # of each query, close together at the top: enough to fit four numbers


class Calibration(NamedTuple):
    """Logistic functions of the score of a result, in two parts, and the scale of its query's best scores."""

    weights: list[float]
    intercept: float
    base_rate: float  # share of all pairs of a query and another image that have a common label
    n_queries: int  # that it was fitted to: nothing is surer than these allow
    neighbours: int = 0  # the format of the neighbours that the scores are ranked by; 0: of a ranking without them
    first: Sequence[float] = ()  # weights of the function for first results, then its intercept; () in older records
    lead: float = 0.0  # most that the best score counts above the third

    def of(self, scores: Any, best: Any) -> np.ndarray:
        """Probabilities of some results of a query by their scores, float64, to four places.

        `best` are the query's best scores among all images, best first: up to `BEST` count.
        """
        scores, best = np.asarray(scores, np.float64), np.asarray(best, np.float64)[:BEST]
        if not scores.size:
            return scores
        odds = self._odds(scores, best)
        if self.first:  # no surer of a result than of those above it
            of_best = odds if np.array_equal(scores, best) else self._odds(best, best)
            least = np.minimum.accumulate(np.append(np.inf, of_best))
            odds = np.minimum(odds, least[(best > scores[:, None]).sum(axis=1)])
        likely = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        return np.minimum(likely, 1 - 1 / (self.n_queries + 2)).round(4)

    def _odds(self, scores: np.ndarray, best: np.ndarray) -> np.ndarray:
        """Log odds of some results of a query."""
        odds = _features(scores[None], best[None])[0] @ np.array(self.weights) + self.intercept
        if not self.first:
            return odds
        place = (best > scores[:, None]).sum(axis=1)
        of_first = _features_of_first(scores[None], best[None], place, self.lead)[0] @ np.array(self.first[:-1])
        return odds + (1 - _depth(place)) * (of_first + self.first[-1] - odds)


def _depth(place: np.ndarray) -> np.ndarray:
    """Log10 of the rank of results, at most 1, from places that begin at 0."""
    return np.log10(np.minimum(place + 1, BEST))


def _features_of_first(scores: np.ndarray, best: np.ndarray, place: np.ndarray, lead: float) -> np.ndarray:
    """What the weights of `Calibration.first` are of, (n_queries, n_results, 6)."""
    features, depth = _features(scores, best), np.broadcast_to(_depth(place), scores.shape)
    leads = np.minimum(best[:, :1] - best[:, min(_THIRD, best.shape[1] - 1), None], lead)
    return np.dstack([features, depth, features[..., 2] * (1 - depth), np.broadcast_to(leads, scores.shape)])


def _features(scores: np.ndarray, best: np.ndarray) -> np.ndarray:
    """What the weights are of, (n_queries, n_results, 3), from the scores of results and the best scores."""
    third = best[:, min(_THIRD, best.shape[1] - 1), None]
    last = np.minimum(scores, best[:, -1:])
    beyond = np.minimum(scores, third) - last
    of_query = np.minimum(best, third).mean(axis=1, keepdims=True)
    return np.dstack([beyond, last, np.broadcast_to(of_query, scores.shape)])


def calibrate(
    ranking: Ranking, relevant: np.ndarray, labelled: np.ndarray, *, neighbours: int = 0
) -> Calibration | str:
    """Fit a calibration to the rankings of all images for held-out ones; or the reason why there is none.

    The ranking is without the queries themselves; `relevant`, (n_queries, n_images), are images that have a label in
    common with a query. Images that are not `labelled` are ranked, and not counted. `neighbours` is the format of the
    neighbours that count in the ranking; 0 if none do.
    """
    from visterm.learners.sums import one_thread

    known = (ranking.indices >= 0) & labelled[ranking.indices]
    related = np.take_along_axis(relevant, ranking.indices, axis=1) & known
    n_queries = int(related.any(axis=1).sum())
    if n_queries < FEWEST_QUERIES:
        return f"held-out images with another one of their label: {n_queries}; {FEWEST_QUERIES} are needed"
    base_rate = related.sum() / known.sum()
    if base_rate == 1:
        return "all held-out images have a label in common"
    best, lead = ranking.scores[:, :BEST], 0.0
    if best.shape[1] > _THIRD:
        lead = float(f"{np.quantile(best[:, 0] - best[:, _THIRD], _LEADS):.6g}")

    def fitted(fall: float, penalty: float, *, first: bool) -> list[float]:
        weights, places = _weights_of_ranks(ranking.k, fall)
        counted, scores = known[:, places], ranking.scores[:, places]
        features = _features_of_first(scores, best, places, lead) if first else _features(scores, best)
        weights = np.broadcast_to(weights, counted.shape)[counted]
        return _fit(features[counted].astype(np.float64), related[:, places][counted], weights, penalty)

    with one_thread():  # more wait for each other
        *slopes, intercept = fitted(FALL, 1.0, first=False)
        first = fitted(FALL_FIRST, _PENALTY, first=True)
    return Calibration(slopes, intercept, float(f"{base_rate:.4g}"), n_queries, neighbours, first, lead)


def _fit(features: np.ndarray, answers: np.ndarray, weights: np.ndarray, penalty: float) -> list[float]:
    """Weights of a logistic function, then its intercept; those of the first two features are not negative."""
    mean = np.average(features, axis=0, weights=weights)
    spread = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=weights)) + 1e-9
    fitted = _fit_logistic((features - mean) / spread, answers, weights, penalty)
    for part in (0, 1):  # never surer of a lower score
        if fitted[part] < 0:
            features[:, part] = mean[part]
            fitted = _fit_logistic((features - mean) / spread, answers, weights, penalty)
    slopes = fitted[:-1] / spread
    return [float(f"{value:.6g}") for value in (*slopes, fitted[-1] - slopes @ mean)]


def _fit_logistic(features: np.ndarray, answers: np.ndarray, weights: np.ndarray, penalty: float = 1.0) -> np.ndarray:
    """Slopes and, last, the intercept that `LogisticRegression` of scikit-learn approaches, by Newton's method.

    Importing that takes longer than all the rest of a calibration.
    """
    X = np.column_stack([features, np.ones(len(features))])
    ridge, signs = np.append(np.full(features.shape[1], penalty), 0.0), np.where(answers, 1.0, -1.0)

    def loss(b: np.ndarray) -> float:
        return float(weights @ np.logaddexp(0, -signs * (X @ b)) + ridge @ b**2 / 2)

    b = np.zeros(len(ridge))
    loss_now = loss(b)
    for _ in range(_NEWTON_STEPS):
        likely = 1 / (1 + np.exp(-np.clip(X @ b, -500, 500)))
        slope = X.T @ (weights * (likely - answers)) + ridge * b
        step = np.linalg.solve((X.T * (weights * likely * (1 - likely))) @ X + np.diag(ridge), slope)
        while (loss_then := loss(b - step)) > loss_now and np.abs(step).max() > _NEWTON_END:
            step /= 2
        b, loss_now = b - step, loss_then
        if np.abs(step).max() <= _NEWTON_END:
            break
    return b


def _weights_of_ranks(n: int, fall: float) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of a list of `n` that stand for all, from 0, with the weights of those up to the next one."""
    places = np.unique(np.geomspace(1, n, _RANKS).round().astype(int)) - 1
    return np.add.reduceat(np.arange(1.0, n + 1) ** -fall, places), places


def measure_calibration(
    run: Run, learner: str, model: Any, collection: Collection, images: Sequence[Image]
) -> dict[str, Any]:
    """Return the calibration of a trained learner for its record: what `Calibration` lists, or the ``reason``."""
    from visterm.learners.blend import effective
    from visterm.learners.triplets import related_images
    from visterm.retrieval import ExactIndex
    from visterm.retrieval.neighbours import FORMAT

    if model.by_category:
        return {"reason": f"{learner} compares images by their labels"}
    rng = np.random.default_rng(0)
    test = [image for image in images if image.labels and image.split == "test"]
    queries = [test[i] for i in np.sort(rng.permutation(len(test))[:MAX_QUERIES])]
    if not queries:
        return dict(NO_CALIBRATION)
    ids = {image.id for image in queries}
    others = [image for image in images if image.id not in ids]
    ranked = [*queries, *(others[i] for i in np.sort(rng.permutation(len(others))[: MAX_GALLERY - len(queries)]))]
    if len(ranked) < 2:
        return dict(NO_CALIBRATION)
    config, own = run.configure(None, []), np.arange(len(queries))
    X = vectors(run, collection, ranked)
    exact = ExactIndex(effective(model), X, n_jobs=config.compute.n_jobs)
    index = ranking_index(exact, X, config)
    y, _ = supervision(ranked, clicks=config.collection.clicks is not None)
    relevant = related_images(y, own, np.arange(len(ranked)), cutoff=cutoff_of(config, learner))
    labelled = np.array([bool(image.labels) for image in ranked])
    by = 0 if index is exact else FORMAT
    known = calibrate(index.search(X[own], exclude=own), relevant, labelled, neighbours=by)
    return {"reason": known} if isinstance(known, str) else known._asdict()


def calibration_in_force(run: Run, learner: str) -> Calibration | str:
    """Return the calibration of the version of a learner that is in force, or why there is none."""
    if learner == "cosine":
        return "cosine is not trained; use a trained learner"
    return read_calibration(LearnerVersions(run).record_in_force(learner))


def read_calibration(record: Mapping[str, Any]) -> Calibration | str:
    """Return the calibration in the record of a learner or a version, or why there is none."""
    kept = record.get("calibration", NO_CALIBRATION)
    if "reason" in kept:
        return kept["reason"]
    if "weights" not in kept:
        return "it was measured by the scores alone, by an older version; train again"
    return Calibration(**kept)
