"""Words of subject lines of 20 Newsgroups as labels of posts: the annotators where labels are many.

The most frequent words are the labels, of some sizes: the first 100 are among the first 300, and these among all.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from visterm.learners import PAMIR, WSABIE, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.retrieval import average_precision, label_precision_at

from .grids import Curve, Grid, Point, saturation, search
from .posts import TERM, read_posts
from .protocol import chosen_settings

MOST_LABELS = 10  # of an image or a post that are ranked for the curves
SIZE = 100  # of WSABIE's space
COMMON = {"random_state": 0}

MIN_POSTS, BODY_TERMS = 10, 5000
N_WORDS = (100, 300, None)  # None: all
N_WORD_REPEATS = 5
N_TIMED = 500  # posts whose words are ranked again and again
EIGHTH, PAPER_LEAF, WIDE = "k-NN, leaf of an eighth", "k-NN, leaf of 1/125", "WSABIE, D = 300"
LEAVES = {EIGHTH: 8, PAPER_LEAF: 125}  # 20,000 of 2.5 million, in the paper

# The losses step by step: looked at after 12,500 steps, and then each time after twice as many.
WORD_NORM = 2.0
WORD_RATES = {"warp": (0.003, 0.01, 0.03, 0.1), "auc": (0.03, 0.1, 0.3, 1.0), "owpc": (0.01, 0.03, 0.1)}
WORD_LOOKS = {loss: [12_500 * 2**i for i in range(n)] for loss, n in (("warp", 6), ("auc", 9), ("owpc", 5))}
EARLY_LOOKS = WORD_LOOKS["warp"][:4]

# Settings tried first: one value after the other with the middle ones of the rest; validation chooses, and grids grow,
# but for the number of steps: all, a half, a quarter and so on are looked at.
N_LOOKS, WORD_ROUNDS = 5, 2
# Times the steps, where all are best: what the verdicts are about, and what it is to be above, are to have their best.
LONGER = {"WSABIE, WARP": 4, "PAMIR-IA": 4, "WSABIE, AUC": 4}
WORD_GRIDS = {
    "k-NN, exact": Grid(KNNAnnotator(), {"n_neighbors": (3, 10, 30)}, {"n_neighbors": (1, 5000)}),
    "one-vs-rest": Grid(OneVsRestPA(n_steps=160_000, **COMMON), {"C": (0.3, 1.0, 3.0)}),
    "PAMIR-IA": Grid(PAMIR(n_steps=6_400_000, **COMMON), {"C": (0.1, 0.3, 1.0)}),
    # Weights of 30 or longer are hardly ever learned.
    "linear WARP": Grid(LinearWARP(max_norm=30.0, n_steps=200_000, **COMMON), {"learning_rate": (0.03, 0.1, 0.3)}),
    "WSABIE, AUC": Grid(
        WSABIE(loss="auc", max_norm=WORD_NORM, decay_steps=None, n_steps=6_400_000, n_components=SIZE, **COMMON),
        {"learning_rate": (0.03, 0.1, 0.3)},
    ),
    "WSABIE, WARP": Grid(
        WSABIE(n_steps=1_200_000, n_components=SIZE, **COMMON),
        {"max_norm": (1.4, 2.0, 2.8), "learning_rate": (0.01, 0.02, 0.04)},
    ),
}

Posts = tuple[sp.csr_array, sp.csr_array]  # vectors, and which words the subject line has


@cache
def count_words() -> Posts:
    """How often each post has each term in its body, and which words stand in its subject line.

    Words that stand in at least `MIN_POSTS` subject lines; posts whose subject line has one.
    """
    subject = re.compile(r"^subject\s*:(.*)", re.IGNORECASE | re.MULTILINE)
    posts = [(found[1], body) for headers, body, _ in read_posts() if (found := subject.search(headers))]
    words = CountVectorizer(stop_words="english", binary=True, min_df=MIN_POSTS, token_pattern=TERM)
    y = sp.csr_array(words.fit_transform([title for title, _ in posts]))
    y = y[:, np.flatnonzero(words.get_feature_names_out() != "re")]  # the mark of an answer
    labelled = np.flatnonzero(np.diff(y.indptr))
    terms = CountVectorizer(stop_words="english", token_pattern=TERM, dtype=np.int32)
    return sp.csr_array(terms.fit_transform([posts[row][1] for row in labelled])), y[labelled]


def load_words(repeat: int, n_words: int | None = None) -> list[Posts]:
    """Posts to learn from, those that validate, and those that test: 60, 20 and 20 %, by repeat.

    Vectors are tf-idf of the `BODY_TERMS` most frequent terms; these and their idf come from the posts to learn from.
    Labels are the most frequent words; posts without one of them are left out, and the others are as with all words.
    """
    counts, y = count_words()
    most = np.sort(np.argsort(-y.sum(axis=0), kind="stable")[:n_words])
    order = np.random.default_rng(repeat).permutation(y.shape[0])
    rows = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    terms = np.sort(np.argsort(-counts[rows[0]].sum(axis=0), kind="stable")[:BODY_TERMS])
    weigh = TfidfTransformer().fit(counts[rows[0]][:, terms])
    parts = []
    for part in rows:
        labels = y[part][:, most]
        labelled = np.diff(labels.indptr) > 0
        vectors = sp.csr_array(weigh.transform(counts[part[labelled]][:, terms])).astype(np.float32)
        parts.append((vectors, labels[labelled]))
    return parts


# -- step by step ------------------------------------------------------------------------------------------------------


def trace(learner: Any, X: Any, y: Any, asked: dict[str, tuple[Any, Any]], steps: Sequence[int]) -> dict[str, Any]:
    """Precision at 1 on each of `asked` after so many steps, and the `seconds` of one core spent on learning."""
    found: dict[str, list[float]] = {name: [] for name in ("seconds", *asked)}
    every = int(np.gcd.reduce(steps))
    clone(learner).set_params(n_steps=1).fit(X, y)  # compiles
    spent, since = 0.0, time.thread_time()

    def look(learner: Any) -> None:
        nonlocal spent, since
        spent += time.thread_time() - since
        if learner.n_steps_ in steps:
            found["seconds"].append(spent)
            for name, (Q, y_query) in asked.items():
                found[name].append(learner.score(Q, y_query))
        since = time.thread_time()

    clone(learner).set_params(n_steps=steps[-1], pass_steps=every).fit(X, y, callback=look)
    return found


def measure_losses(repeat: int, losses: Sequence[str], small: bool) -> dict[str, Any]:
    """Step by step, precision at 1 on validation and test posts with each learning rate; loss by loss."""
    learned, validating, test = load_words(repeat)
    curves = {}
    for loss in losses:
        common = {"n_components": SIZE, "loss": loss, "max_norm": WORD_NORM, "decay_steps": None, "random_state": 0}
        rates, steps = (WORD_RATES[loss][1:3], EARLY_LOOKS) if small else (WORD_RATES[loss], WORD_LOOKS[loss])
        found = curves[loss] = []

        def measure(
            points: list[Point], steps: list[int] = steps, common: dict = common, found: list = found
        ) -> list[Curve]:
            asked = {"validation": validating, "test": test}
            for point in points:
                traced = trace(WSABIE(**point, **common), *learned, asked, steps)
                found.append({"rate": point["learning_rate"], "steps": steps} | traced)
            return [[*zip(steps, one["validation"], strict=True)] for one in found[-len(points) :]]

        search([{"learning_rate": rate} for rate in rates], measure, rounds=0 if small else 1)
        found.sort(key=lambda one: one["rate"])
    return {"curves": curves, "n_labels": learned[1].shape[1]}


# -- with settings chosen ----------------------------------------------------------------------------------------------


def choose_on_posts(
    grid: Grid, learned: Posts, validating: Posts, small: bool, longer: int = 1
) -> tuple[Any, list[str]]:
    """The learner of a grid with the best precision at 1 on the posts that validate, and the settings at the edge.

    Where all steps are best, so many times `longer` are looked at, with the settings chosen.
    """

    def measure(learner: Any) -> Curve:
        if not hasattr(learner, "n_steps"):  # it learns at once
            return [(None, clone(learner).fit(*learned).score(*validating))]
        steps = [learner.n_steps >> i for i in reversed(range(N_LOOKS))]
        traced = trace(learner, *learned, {"validation": validating}, steps)
        return [*zip(steps, traced["validation"], strict=True)]

    middle = {name: values[len(values) // 2] for name, values in grid.axes.items()}
    cross = [middle | {name: value} for name, values in grid.axes.items() for value in values if value != middle[name]]
    choice = search(
        [middle] if small else [middle, *cross],
        lambda points: [measure(grid.at(point)) for point in points],
        limits=grid.limits,
        rounds=0 if small else WORD_ROUNDS,
    )
    chosen, most = grid.at(choice.point), getattr(grid.learner, "n_steps", None)
    if most and chosen.n_steps == most and longer > 1:
        most *= longer
        chosen.set_params(n_steps=most)
        chosen.set_params(n_steps=saturation(measure(chosen))[0])
    return chosen, choice.edges + ["n_steps"] * bool(most and chosen.n_steps == most)


def measure_on_words(system: str, n_words: int | None, small: bool) -> dict[str, Any]:
    """A system's figures, one a repeat, with settings chosen on the first, and those of its kin with the same settings.

    Its kin: of k-NN the leaves of a tree, of WSABIE on all words a wider space.
    """
    grid = WORD_GRIDS[system]
    learned, validating, _ = load_words(0, n_words)
    chosen, edges = choose_on_posts(grid, learned, validating, small, 1 if small else LONGER.get(system, 1))
    systems: dict[str, list[dict[str, Any]]] = {}
    for repeat in range(1 if small else N_WORD_REPEATS):
        *to_learn, test = load_words(repeat, n_words)
        X, y = (sp.csr_array(sp.vstack(parts)) for parts in zip(*to_learn, strict=True))
        learners = {system: chosen}
        if system == "k-NN, exact":
            for name, parts in LEAVES.items():
                leaf_size = -(-X.shape[0] // parts)
                learners[name] = clone(chosen).set_params(algorithm="tree", leaf_size=leaf_size, **COMMON)
        elif system == "WSABIE, WARP" and n_words is None:
            learners[WIDE] = clone(chosen).set_params(n_components=300)
        for name, learner in learners.items():
            own = figures_on_words(clone(learner), X, y, *test) | chosen_settings(chosen, grid, edges)
            systems.setdefault(name, []).append(own)
    return {"systems": systems, "n_labels": learned[1].shape[1], "n_posts": [X.shape[0], test[0].shape[0]]}


def figures_on_words(learner: Any, X: sp.csr_array, y: sp.csr_array, Q: sp.csr_array, own: sp.csr_array) -> dict:
    """Measures of the words ranked for the posts Q, which have some of their `own`, and what the learner costs."""
    start = time.thread_time()
    learner.fit(X, y)
    seconds = time.thread_time() - start
    ranked = learner.annotate(Q, own.shape[1])[0]
    relevant = np.take_along_axis(own.toarray() > 0, ranked.astype(np.int64), axis=1)
    return {
        "precision": [float(label_precision_at(ranked, own, k).mean()) for k in range(1, MOST_LABELS + 1)],
        "map": float(average_precision(relevant, relevant.sum(axis=1)).mean()),
    } | costs(learner, Q[:N_TIMED], seconds)


def costs(learner: Any, X: sp.csr_array, seconds: float) -> dict[str, Any]:
    """What a learner costs that was fitted in so many seconds: time of annotating the rows of X, and its size."""
    arrays = [getattr(learner, name) for name in learner._state if hasattr(learner, name)]
    return {
        "train_seconds": seconds,
        "query_us": 1e6 * query_seconds(learner, X) / X.shape[0],
        "bytes": int(sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))),
    }


def query_seconds(learner: Any, X: sp.csr_array) -> float:
    """Processor time of finding the ten best labels of each row: the shortest of several runs."""
    learner.annotate(X[:2], MOST_LABELS)  # compiles
    seconds = []
    for _ in range(7):
        start = time.thread_time()
        learner.annotate(X, MOST_LABELS)
        seconds.append(time.thread_time() - start)
    return min(seconds)
