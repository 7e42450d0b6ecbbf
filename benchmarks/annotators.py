"""The comparison systems of WSABIE that rank labels for an image: ``python -m benchmarks annotators [--quick]``.

k-NN (exact, and in the leaf of a random-projection tree), one-vs-rest passive-aggressive and PAMIR-IA, on 38 classes of
Caltech-101 (see benchmarks/vectors.py): speed beside scikit-learn or the paper's loop, also on synthetic embeddings,
precision on the test images, and memory. The settings below were chosen by cross-validation on the training images:
``python -m experiments.studies annotators``.

Times are processor time of the one thread that works, medians of repetitions taken in turns with the peer's.
"""

import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from visterm.learners import PAMIR, KNNAnnotator, OneVsRestPA
from visterm.learners.draws import stream
from visterm.learners.loop import Training
from visterm.learners.rows import as_rows
from visterm.plugins.annotators.one_vs_rest import draw_images, one_vs_rest_pass
from visterm.plugins.annotators.pamir import draw_comparisons, pamir_pass

from . import machine
from .oasis import PLAIN
from .processes import in_own_process, peak_memory
from .records import compared, in_turns, race, record, seconds
from .search import gallery
from .vectors import load_vectors

SET = "caltech101-38"
# For both d: of settings that differ by less than the noise of the cross-validation (0.01), one in the middle. Larger
# leaves are always better and slower.
KNN = {"n_neighbors": 30}
TREE = KNN | {"algorithm": "tree", "leaf_size": 400}
OVR = {"C": 0.03, "n_steps": 30_000, "pass_steps": 1000}
PAMIR_IA = {"C": 0.01, "n_steps": 300_000, "pass_steps": 10_000}


# -- speed -------------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def plain_pamir(indptr, indices, data, comparisons, C, W):
    """A plain loop over the comparisons: W (n_labels, d), double precision."""
    for image, own, other in comparisons:
        loss, norm = 1.0, 0.0
        for i in range(indptr[image], indptr[image + 1]):
            loss -= (W[own, indices[i]] - W[other, indices[i]]) * data[i]
            norm += data[i] ** 2
        if loss > 0 and norm > 0:
            tau = min(C, loss / (2 * norm))
            for i in range(indptr[image], indptr[image + 1]):
                W[own, indices[i]] += tau * data[i]
                W[other, indices[i]] -= tau * data[i]


def passes(thing: str, ours, peer, things: int, quick: bool) -> dict:
    """Figures of passes over so many things."""
    words = "queries" if thing == "query" else f"{thing}s"
    return race(ours, peer, 3 if quick else 9, unit=f"us per {thing}", things=things, of=f"{things} {words}")


def time_pamir(d: int, quick: bool) -> dict:
    X, y, train = load_vectors(d, SET)
    X, y = X[train], y[train]
    learner = PAMIR(**(PAMIR_IA | {"n_steps": 1})).fit(X, y)
    sampler, rows, C = learner._sampler(y, None), as_rows(X), PAMIR_IA["C"]
    n_labels, n_steps = len(learner.classes_), 50_000
    W, entries = np.zeros((d, n_labels), np.float32), X.nnz / X.shape[0]

    def ours(k):
        pamir_pass(rows, draw_comparisons(*sampler, n_labels, n_steps, stream(k)), C, W)

    return record(
        f"pamir-{d}",
        f"a comparison of PAMIR-IA, {d} visterms",
        PLAIN,
        f": {2 * entries:.0f} numbers of W, a line of the cache each, read and written",
        passes("comparison", ours, plain_passes(X, n_labels, sampler, n_steps), n_steps, quick),
        bound=2 * entries * machine.line_seconds(W.nbytes),
    )


def plain_passes(X, n_labels: int, sampler, n_steps: int):
    arrays, W = (X.indptr, X.indices, X.data.astype(float)), np.zeros((n_labels, X.shape[1]))
    return lambda k: plain_pamir(*arrays, draw_comparisons(*sampler, n_labels, n_steps, stream(k)), PAMIR_IA["C"], W)


def dense_vectors(n_labels: int, n_images: int = 3400, d: int = 1280):
    """Synthetic embeddings without a zero, as those of a network: unit rows around a centre per label, and y."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_labels, n_images)
    centres = rng.standard_normal((n_labels, d), dtype=np.float32)
    X = normalize(0.3 * centres[y] + rng.standard_normal((n_images, d), dtype=np.float32))
    return sp.csr_array(X), y


def time_dense_pamir(n_labels: int, quick: bool) -> dict:
    """Passes as the learner runs them, with its copies of W."""
    X, y = dense_vectors(n_labels)
    d, n_steps = X.shape[1], 10_000
    learner = PAMIR(**(PAMIR_IA | {"n_steps": 1, "random_state": 0})).fit(X, y)
    sampler, rows = learner._sampler(y, None), as_rows(X)
    return record(
        f"pamir-dense-{n_labels}",
        f"a comparison of PAMIR-IA, dense vectors of {d} numbers, {n_labels} labels",
        PLAIN,
        f": 3 x {d} numbers of the image and of W, at the bandwidth of the cache",
        passes(
            "comparison",
            lambda _: learner._pass(Training(rows, sampler), n_steps),
            plain_passes(X, n_labels, sampler, n_steps),
            n_steps,
            quick,
        ),
        bound=12 * d / machine.cache_bandwidth(learner.W_.nbytes),
    )


def peer_classifier(n_epochs: int = 1):
    """PA-I of scikit-learn, one classifier per class: the same model as OneVsRestPA."""
    return SGDClassifier(
        loss="hinge",
        penalty=None,
        learning_rate="pa1",
        eta0=OVR["C"],
        fit_intercept=False,
        max_iter=n_epochs,
        tol=None,
        random_state=0,
    )


SGD = "SGDClassifier(learning_rate='pa1'), scikit-learn"


def time_one_vs_rest(d: int, quick: bool) -> dict:
    X, y, train = load_vectors(d, SET)
    X, y = X[train], y[train]
    label_start, labels, usable = (learner := OneVsRestPA(n_steps=1).fit(X, y))._sampler(y, None)
    n_labels, n_steps = len(learner.classes_), X.shape[0]
    rows, W, peer, classes = as_rows(X), np.zeros((d, n_labels), np.float32), peer_classifier(), np.unique(y)

    def ours(k):
        one_vs_rest_pass(rows, label_start, labels, draw_images(usable, n_steps, stream(k)), OVR["C"], W)

    return record(
        f"ovr-pa-{d}",
        f"an image of one-vs-rest passive-aggressive, {n_labels} labels, {d} visterms",
        SGD,
        f": {n_labels} numbers a visterm of W, read twice, at the bandwidth of the cache",
        passes("image", ours, lambda _: peer.partial_fit(X, y, classes), n_steps, quick),
        bound=8 * n_labels * X.nnz / X.shape[0] / machine.cache_bandwidth(W.nbytes),
    )


def time_dense_one_vs_rest(n_labels: int, quick: bool) -> dict:
    X, y = dense_vectors(n_labels)
    d, n_steps = X.shape[1], X.shape[0]
    learner = OneVsRestPA(**(OVR | {"n_steps": 1, "random_state": 0})).fit(X, y)
    sampler, rows, peer = learner._sampler(y, None), as_rows(X), peer_classifier()
    images, classes = X.toarray(), np.unique(y)
    with threadpool_limits(1, user_api="blas"):
        return record(
            f"ovr-pa-dense-{n_labels}",
            f"an image of one-vs-rest passive-aggressive, dense vectors of {d} numbers, {n_labels} labels",
            SGD,
            f": {d} x {n_labels} numbers of W, two products, at the speed of matrix products",
            passes(
                "image",
                lambda _: learner._pass(Training(rows, sampler), n_steps),
                lambda _: peer.partial_fit(images, y, classes),
                n_steps,
                quick,
            ),
            bound=4 * d * n_labels / machine.flops(1),
        )


def peer_neighbours():
    """k-NN of scikit-learn whose neighbours vote with their similarities."""
    return KNeighborsClassifier(
        n_neighbors=KNN["n_neighbors"], metric="cosine", algorithm="brute", weights=lambda distances: 1 - distances
    )


def time_exact(d: int, quick: bool) -> dict:
    X, y, train = load_vectors(d, SET)
    Q = X[~train]
    ours, peer = KNNAnnotator(**KNN).fit(X[train], y[train]), peer_neighbours().fit(X[train], y[train])
    products = common_entries(X[train], Q)
    return record(
        f"knn-{d}",
        f"a query of exact k-NN, {train.sum()} images, {d} visterms",
        "KNeighborsClassifier(algorithm='brute', metric='cosine'), scikit-learn",
        f": {products:.0f} entries that the images share with a query, 8 bytes each, at the bandwidth of the cache",
        passes("query", lambda _: ours.annotate(Q, 1), lambda _: peer.predict(Q), Q.shape[0], quick),
        bound=8 * products / machine.cache_bandwidth(8 * X[train].nnz),
    )


def common_entries(X, Q) -> float:
    """Mean number of products that all inner products of a query with all images take."""
    return float(np.diff(X.tocsc().indptr) @ np.diff(Q.tocsc().indptr)) / Q.shape[0]


def many_images(X, y, n: int):
    """Synthetic images: each combines random halves of the entries of two images of a class."""
    rng = np.random.default_rng(0)
    X, y = X[order := np.argsort(y, kind="stable")], y[order]
    first = np.searchsorted(y, y)
    size = np.searchsorted(y, y, side="right") - first
    one = rng.integers(0, len(y), n)
    other = first[one] + (rng.random(n) * size[one]).astype(int)
    halves = [X[one], X[other]]
    for half in halves:
        half.data *= rng.random(half.nnz) < 0.5
    mixed = sp.csr_array(normalize(halves[0] + halves[1]))
    mixed.eliminate_zeros()
    return mixed, y[one]


def time_tree(n: int | None, quick: bool) -> dict:
    """Tree against exact search at d = 10,000: of the training images, or of n images made from them."""
    X, y, train = load_vectors(10_000, SET)
    Q, X, y = X[~train], X[train], y[train]
    leaf_size = TREE["leaf_size"]
    if n is not None:
        (X, y), leaf_size = many_images(X, y, n), 2_000
    exact = KNNAnnotator(**KNN).fit(X, y)
    trees = [KNNAnnotator(**(TREE | {"leaf_size": leaf_size, "random_state": seed})).fit(X, y) for seed in range(5)]
    nearest = exact.kneighbors(Q)[0][:, 0]
    n_leaves = 2 ** int(np.log2(len(trees[0].leaf_start_)))
    return record(
        "knn-tree-10000" if n is None else f"knn-tree-10000-{n // 1000}k",
        f"a query of the random-projection tree, {X.shape[0]} images",
        "exact k-NN",
        f"a ratio of {n_leaves}, the number of leaves",
        passes("query", lambda k: trees[k % 5].annotate(Q, 1), lambda _: exact.annotate(Q, 1), Q.shape[0], quick),
        n_leaves=n_leaves,
        recall_of_nearest=float(np.mean([tree.kneighbors(Q)[0][:, 0] == nearest for tree in trees])),
    )


# -- quality -----------------------------------------------------------------------------------------------------------


def measure(kind, settings, d: int, seeds) -> dict:
    """Means over the seeds of precision at 1, share with a right label among five, and times."""
    X, y, train = load_vectors(d, SET)
    figures = []
    for seed in seeds:
        learner = kind(**settings, random_state=seed)
        spent = seconds(learner.fit, X[train], y[train])
        times = in_turns(lambda _, learner=learner: learner.annotate(X[~train], 5), rounds=5)
        right = learner.classes_[learner.annotate(X[~train], 5)[0]] == y[~train][:, None]
        figures.append((right[:, 0].mean(), right.any(axis=1).mean(), spent, 1e6 * np.median(times) / (~train).sum()))
    names = "p_at_1", "found_in_5", "train_seconds", "us_per_query"
    return dict(zip(names, np.mean(figures, axis=0).tolist(), strict=True))


def compare_quality(d: int, quick: bool) -> list[dict]:
    X, y, train = load_vectors(d, SET)
    seeds = range(1 if quick else 5)
    knn = measure(KNNAnnotator, KNN, d, [0])
    tree = measure(KNNAnnotator, TREE, d, seeds)
    ovr = measure(OneVsRestPA, OVR, d, seeds)
    pamir = measure(PAMIR, PAMIR_IA, d, seeds)
    n_epochs = round(OVR["n_steps"] / train.sum())
    peers = [peer_neighbours(), peer_classifier(n_epochs)]
    knn_peer, ovr_peer = (peer.fit(X[train], y[train]).score(X[~train], y[~train]) for peer in peers)
    return [
        record(
            f"{name}-p1-{d}",
            f"{what}, {d} visterms",
            peer_name,
            "1.0: a right label first for every image",
            compared(figures.pop("p_at_1"), peer, "p@1", int((~train).sum()), higher=True),
            measured=f"38 classes, {train.sum()} images learned from, {(~train).sum()} annotated, "
            + ("one model" if name == "knn" else f"mean of {len(seeds)} seeds"),
            **figures,
        )
        for name, what, figures, peer, peer_name in (
            ("knn", "exact k-NN", knn, knn_peer, "KNeighborsClassifier, scikit-learn"),
            ("knn-tree", "k-NN in a random-projection tree", tree, knn["p_at_1"], "exact k-NN"),
            ("ovr-pa", "one-vs-rest", ovr, ovr_peer, f"SGDClassifier(learning_rate='pa1'), {n_epochs} epochs"),
            ("pamir", "PAMIR-IA", pamir, ovr["p_at_1"], "one-vs-rest passive-aggressive"),
        )
    ]


# -- memory ------------------------------------------------------------------------------------------------------------


def learning_memory(kind: type, n: int, n_labels: int) -> float:
    """What learning (with early stopping) adds to the peak of this process, in units of the model."""
    options = {"random_state": 0}
    if kind is not KNNAnnotator:
        options |= {"n_steps": 5_000, "pass_steps": 2_500, "validation_fraction": 0.2, "refit": False}
    small, X = (gallery(size, d, np.random.default_rng(0), entries=40) for size, d in ((1000, 100), (n, 10_000)))
    X.sum_duplicates()
    kind(**options).fit(small, np.arange(1000) % 7).annotate(small[:10], 1)
    y = np.arange(n) % n_labels
    before = peak_memory()
    learner = kind(**options).fit(X, y)
    states = [getattr(learner, key) for key in learner._state if hasattr(learner, key)]
    return (peak_memory() - before) / sum(state.nbytes for state in states if isinstance(state, np.ndarray))


def measure_memory(name: str, kind, quick: bool) -> dict:
    neighbours = kind is KNNAnnotator
    n, n_labels = (100_000 if quick else 300_000, 50) if neighbours else (20_000, 4_000)
    return record(
        f"{name}-memory",
        f"{kind.__name__}, 10000 visterms",
        "what its docstring states",
        "3: unit rows, the same leaf by leaf, the lists" if neighbours else "2: W and the best W, float32",
        compared(in_own_process(learning_memory, kind, n, n_labels), 3.0 if neighbours else 2.0, "models", n),
        measured=f"peak of a process, {n} images",
    )


def run(quick: bool = False) -> list[dict]:
    records = [time_case(d, quick) for time_case in (time_exact, time_one_vs_rest, time_pamir) for d in (1000, 10_000)]
    records += [time_case(n, quick) for time_case in (time_dense_one_vs_rest, time_dense_pamir) for n in (38, 260)]
    records += [time_tree(None, quick), time_tree(20_000 if quick else 100_000, quick)]
    records += [*compare_quality(1000, quick), *compare_quality(10_000, quick)]
    memory = (("knn", KNNAnnotator), ("ovr-pa", OneVsRestPA), ("pamir", PAMIR))
    return records + [measure_memory(name, kind, quick) for name, kind in memory]
