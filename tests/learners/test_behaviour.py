"""What every learner must do. A new learner is one more entry of LEARNERS, and of TRAINED or ONLINE if it is such."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from visterm.learners import (
    AROMA,
    HIER,
    LEGO,
    MCML,
    OASIS,
    PAMIR,
    RCA,
    WSABIE,
    Blend,
    Cosine,
    KNNAnnotator,
    LabelRidge,
    LinearWARP,
    MuSL,
    OneVsRestPA,
    Xing,
    aroma,
    load_learner,
    loop,
    musl,
)
from visterm.learners.blocks import _sparse_steps
from visterm.learners.oasis import oasis_pass
from visterm.learners.validation import CAUTIOUS_SPARSE, SHARES, mean_average_precision
from visterm.learners.wsabie import warp_pass

SMALL = {"n_steps": 3000, "pass_steps": 1000, "random_state": 3}
PAIRS = SMALL | {"pairs_per_query": 8}
EMBEDDED = SMALL | {"max_norm": 1.1, "learning_rate": 0.05}  # four visterms an image need longer vectors than twenty

FEW = {"n_bits": 6, "negatives_per_example": 20, "random_state": 3}

LEARNERS = {
    "cosine": Cosine(),
    "oasis": OASIS(**PAIRS),
    "oasis-zero": OASIS(init="zero", **PAIRS),
    "oasis-one-pair": OASIS(pairs_per_query=1, **SMALL),
    "oasis-symmetric": OASIS(variant="symmetric", **PAIRS),
    "oasis-online-symmetric": OASIS(variant="online-symmetric", **PAIRS),
    "oasis-dissim": OASIS(variant="dissim", **PAIRS),
    "oasis-psd": OASIS(variant="psd", **PAIRS),
    "oasis-psd-often": OASIS(variant="psd", psd_every=1000, **PAIRS),
    "oasis-rankers": OASIS(n_rankers=3, n_jobs=2, **PAIRS),
    "oasis-mixing": OASIS(n_rankers=2, mix_every=1000, **PAIRS),
    "oasis-lock-free": OASIS(lock_free=True, n_jobs=1, **PAIRS),
    "oasis-validation": OASIS(validation_fraction=0.2, refit=False, **PAIRS),
    "oasis-patience": OASIS(validation_fraction=0.2, refit=False, patience=1, **(PAIRS | {"pass_steps": 500})),
    "oasis-refit": OASIS(validation_fraction=0.2, refit=True, **PAIRS),
    "oasis-refit-rankers": OASIS(validation_fraction=0.2, refit=True, n_rankers=2, **PAIRS),
    "oasis-whitened": OASIS(whiten=True, **PAIRS),
    "oasis-whitened-refit": OASIS(whiten=True, validation_fraction=0.2, refit=True, **PAIRS),
    "aroma": AROMA(**SMALL),
    "aroma-identity": AROMA(init="identity", **SMALL),
    "aroma-pairs": AROMA(pairs_per_query=4, **SMALL),
    "aroma-validation": AROMA(validation_fraction=0.2, refit=False, **SMALL),
    "aroma-refit": AROMA(validation_fraction=0.2, refit=True, **SMALL),
    "aroma-factored": AROMA(covariance="factored", n_jobs=2, **SMALL),
    "aroma-factored-validation": AROMA(covariance="factored", r=0.1, validation_fraction=0.2, refit=False, **SMALL),
    "aroma-whitened": AROMA(whiten=True, init=None, **SMALL),
    "pamir": PAMIR(C=0.1, **SMALL),
    "pamir-validation": PAMIR(C=0.1, validation_fraction=0.2, refit=False, **SMALL),
    "ovr": OneVsRestPA(C=0.1, **SMALL),
    "ovr-refit": OneVsRestPA(C=0.1, validation_fraction=0.2, refit=True, **SMALL),
    "knn": KNNAnnotator(random_state=3),
    "knn-tree": KNNAnnotator(algorithm="tree", leaf_size=10, random_state=3),
    "lego": LEGO(**SMALL),
    "lego-validation": LEGO(validation_fraction=0.2, refit=False, **SMALL),
    "lego-pairs": LEGO(loss="pairs", eta=0.1, **SMALL),
    "hier": HIER(C=0.1, **SMALL),
    "hier-validation": HIER(C=0.1, validation_fraction=0.2, refit=False, **SMALL),
    "hier-refit": HIER(C=0.1, validation_fraction=0.2, refit=True, **SMALL),
    "warp": LinearWARP(learning_rate=0.005, **SMALL),
    "warp-validation": LinearWARP(learning_rate=0.01, validation_fraction=0.2, refit=False, max_norm=1.5, **SMALL),
    "rca": RCA(),
    "ridge": LabelRidge(),
    "ridge-whitened": LabelRidge(whiten=True),
    "xing": Xing(n_steps=12, pass_steps=4, random_state=3),
    "xing-refit": Xing(n_steps=12, pass_steps=4, random_state=3, validation_fraction=0.2, refit=True),
    "mcml": MCML(trace_penalty=0, n_steps=12, pass_steps=4, random_state=3),
    "mcml-refit": MCML(trace_penalty=0, n_steps=12, pass_steps=4, random_state=3, validation_fraction=0.2, refit=True),
    "wsabie": WSABIE(n_components=16, **EMBEDDED),
    "wsabie-auc": WSABIE(loss="auc", n_components=16, **EMBEDDED),
    "wsabie-owpc": WSABIE(loss="owpc", n_components=16, decay_steps=None, **EMBEDDED),
    "wsabie-ensemble": WSABIE(n_components=[8, 16], n_jobs=2, **EMBEDDED),
    "wsabie-validation": WSABIE(n_components=16, validation_fraction=0.2, refit=False, **EMBEDDED),
    "wsabie-refit": WSABIE(n_components=[8, 16], validation_fraction=0.2, refit=True, **EMBEDDED),
    "wsabie-whitened": WSABIE(
        n_components=16, whiten=True, max_norm=0.8, validation_fraction=0.2, refit=False, **SMALL
    ),
    "musl": MuSL(n_metrics=2, **FEW),
    "musl-starts": MuSL(n_metrics=2, n_starts=3, alpha=1.0, midpoint="running", **FEW),
    "musl-balanced": MuSL(n_metrics=2, midpoint="running", balanced=True, retrain=False, **FEW),
    "musl-monolithic": MuSL(n_metrics=1, alpha=0.1, midpoint="final", balanced=False, **FEW),
    "musl-per-category": MuSL(n_metrics=4, **FEW),
    "musl-kmeans": MuSL(n_metrics=2, grouping="kmeans", **FEW),
    "musl-random": MuSL(n_metrics=2, grouping="random", **FEW),
}
BASELINES = ("rca", "ridge", "ridge-whitened")  # have neither steps nor a seed
# Learns from labels.
TRAINED = [name for name in LEARNERS if name not in ("cosine", "knn", "knn-tree", *BASELINES)]
# Must beat the cosine on synonyms. No sum of |f(a) - f(b)| over single visterms, as MuSL's, can tell that two of them
# mean the same; it has a problem of its own in test_musl.py.
BETTER = [name for name in (*TRAINED, *BASELINES) if "musl" not in name]
DRAWN = [name for name in TRAINED if name not in ("mcml", "xing", "xing-refit")]  # learns from what the seed draws
ONLINE = [name for name in TRAINED if "musl" not in name]  # has partial_fit; the others learn in passes from all images
# What partial_fit's promise rests on: nothing happens after learning.
PLAIN = [
    *("oasis", "oasis-zero", "oasis-one-pair", "oasis-online-symmetric", "oasis-dissim"),
    *("aroma", "aroma-identity", "aroma-pairs", "aroma-factored", "pamir", "ovr", "lego", "lego-pairs"),
    *("warp", "wsabie", "wsabie-auc", "wsabie-owpc", "wsabie-ensemble", "oasis-whitened", "aroma-whitened"),
]
# One of each way to score, for tests that are not about variants.
KINDS = [
    *("cosine", "oasis", "oasis-dissim", "aroma", "aroma-factored", "pamir", "ovr"),
    *("knn", "knn-tree", "lego", "mcml", "wsabie", "wsabie-ensemble", "musl", "hier", "warp", "rca", "ridge", "xing"),
]
CHECKED = [*(name for name in KINDS if name not in ("aroma", "knn", "wsabie")), "oasis-whitened"]
# One of each class that learns online.
LOOPED = ["oasis", "aroma", "pamir", "ovr", "lego", "mcml", "wsabie", "hier", "warp", "xing"]


def mean_ap(learner, X, y):
    return mean_average_precision(learner.similarity(X, X), y[:, None] == y, np.arange(len(y)))


def arrays_of(learner):
    return {name: np.array(getattr(learner, name)) for name in learner._state if hasattr(learner, name)}


def assert_same(one, other, *, but=()):
    """Equal to the last bit in everything that is saved, but for the state named."""
    first, second = arrays_of(one), arrays_of(other)
    assert first.keys() == second.keys()
    for name in first.keys() - set(but):
        assert first[name].dtype == second[name].dtype, name
        assert first[name].tobytes() == second[name].tobytes() or first[name].tolist() == second[name].tolist(), name


def variants_slow(names):
    """Parameters of a test or a fixture: names of learners, the variants among them marked slow."""
    return [name if name in KINDS else pytest.param(name, marks=pytest.mark.slow) for name in names]


def one_of(names):
    """A fixture: one learner of these names."""
    return pytest.fixture(params=variants_slow(names))(lambda request: clone(LEARNERS[request.param]))


learner, trained, better, online = (one_of(names) for names in (LEARNERS, TRAINED, BETTER, ONLINE))
each = one_of(KINDS)  # one learner of each kind, for what does not depend on its variant
each_trained = one_of([name for name in KINDS if name in TRAINED])


def go_on(learner, X, y):
    """partial_fit, or what those have that learn from all images at once."""
    if isinstance(learner, LabelRidge):
        learner._check_images(X)
        return learner.fit(X, y)
    return learner.resume(X, y) if isinstance(learner, MuSL) else learner.partial_fit(X, y)


@pytest.mark.filterwarnings("ignore:[A-Z]+.transform gives the gallery side:UserWarning")  # see test_neighbors.py
@parametrize_with_checks(
    [
        clone(LEARNERS[name]).set_params(**({"n_steps": 20, "pass_steps": 10} if name in ONLINE else {}))
        for name in CHECKED
    ]
)
def test_estimator_checks(estimator, check):
    check(estimator)


class TestInput:
    def test_sparse_equals_dense(self, learner, X, y):
        sparse, dense = clone(learner).fit(X, y), clone(learner).fit(X.toarray(), y)
        assert_same(sparse, dense)
        np.testing.assert_allclose(
            sparse.similarity(X[:5], X), dense.similarity(X[:5].toarray(), X.toarray()), rtol=1e-4, atol=1e-5
        )

    def test_similarity_is_the_inner_product_of_the_sides(self, each, X, y):
        each.fit(X, y)
        scores = each.similarity(X[:7], X)
        assert scores.dtype == np.float32
        assert scores.shape == (7, len(y))
        query, gallery = (
            side.toarray() if sp.issparse(side) else side for side in (each.transform_query(X[:7]), each.transform(X))
        )
        np.testing.assert_allclose(scores, query @ gallery.T, rtol=1e-4, atol=1e-5)

    def test_read_only_int64_and_float64_input(self, each, X, y):
        expected = clone(each).fit(X, y)
        frozen = sp.csr_array(
            (X.data.astype(np.float64), X.indices.astype(np.int64), X.indptr.astype(np.int64)), X.shape
        )
        labels = y.copy()
        for array in (frozen.data, frozen.indices, frozen.indptr, labels):
            array.flags.writeable = False
        fitted = each.fit(frozen, labels)
        assert_same(fitted, expected)
        np.testing.assert_array_equal(fitted.similarity(frozen[:3], frozen), expected.similarity(X[:3], X))

    def test_unsorted_columns(self, each, X, y):
        shuffled = X.copy()
        for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            shuffled.indices[start:end] = X.indices[start:end][::-1]
            shuffled.data[start:end] = X.data[start:end][::-1]
        shuffled.has_sorted_indices = shuffled.has_canonical_format = False
        assert_same(clone(each).fit(shuffled, y), clone(each).fit(X, y))

    def test_a_fit_keeps_no_weight_or_scale_of_the_fit_before(self, each, X, y):
        each.fit(X, y, learned_weight=0.5)
        each.scale_ = 7.0  # as of a loaded learner
        each.fit(X, y)
        assert (each.learned_weight_, each.scale_) == (1.0, None)

    def test_columns_that_stand_twice_in_a_row_are_added_up(self, each, X, y):
        halves = np.repeat(X.data * np.float32(0.5), 2), np.repeat(X.indices, 2), 2 * X.indptr
        twice, few = sp.csr_array(halves, X.shape), sp.csr_array(halves, X.shape)[:5]
        expected = clone(each).fit(X, y)
        np.testing.assert_array_equal(expected.similarity(few, twice), expected.similarity(X[:5], X))
        assert_same(each.fit(twice, y), expected)
        assert twice.nnz == 2 * X.nnz  # they are not the learner's to change

    def test_labels_of_any_type(self, each_trained, X, y):
        words = np.array(["ant", "bee", "cow", "dog"])
        expected = clone(each_trained).fit(X, y)
        for labels in (words[y], words[y].astype(object), list(words[y]), y * 1.5):
            assert_same(clone(each_trained).fit(X, labels), expected, but=["classes_"])  # these are the labels given

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_refuses_nan_and_infinity(self, each, X, y, bad):
        broken = X.copy()
        broken.data[5] = bad
        with pytest.raises(ValueError, match="NaN|infinity"):
            clone(each).fit(broken, y)
        each.fit(X, y)
        for method in (each.transform, each.transform_query, lambda Q: each.similarity(X, Q)):
            with pytest.raises(ValueError, match="NaN|infinity"):
                method(broken)

    def test_refuses_another_dimension(self, each, X, y):
        each.fit(X, y)
        for method in (each.transform, each.transform_query, lambda Q: go_on(each, Q, y)):
            with pytest.raises(ValueError, match="features"):
                method(X[:, :-1])

    def test_names_of_columns_raise_no_warning_and_must_be_those_of_the_fit(self, each, X, y):
        frame = pd.DataFrame(X.toarray(), columns=[f"v{i}" for i in range(X.shape[1])])
        expected = clone(each).fit(X.toarray(), y)
        each.fit(frame, y)  # warnings are errors: "X does not have valid feature names"
        np.testing.assert_array_equal(
            each.similarity(frame[:3], frame), expected.similarity(X[:3].toarray(), X.toarray())
        )
        assert each.score(frame, y) == expected.score(X.toarray(), y)
        each.metric()(X.toarray()[0], X.toarray()[1])
        each.set_output(transform="pandas")
        if not sp.issparse(expected.transform(frame.to_numpy())):
            assert list(each.transform(frame).columns) == list(each.get_feature_names_out())
        with pytest.raises(ValueError, match="feature names should match"):
            each.similarity(frame[frame.columns[::-1]], frame)

    def test_rows_of_zeros_are_harmless(self, each, X, y):
        X = X.copy()
        X.data[X.indptr[3] : X.indptr[4]] = 0
        X.data[X.indptr[20] : X.indptr[22]] = 0
        scores = each.fit(X, y).similarity(X, X)
        assert np.isfinite(scores).all()
        # -x' W x of "dissim" is a property of the gallery image: nothing of the query is left in the row.
        np.testing.assert_array_equal(scores[20], scores[3])

    @pytest.mark.parametrize("click_cutoff", [None, 0.0])
    @pytest.mark.parametrize("name", ["oasis", "aroma", "lego"])
    def test_several_labels_and_clicks(self, name, click_cutoff, X, y):
        several = sp.csr_array((np.full(60, 2.0), (np.arange(60), y)), (60, 4))
        learner = clone(LEARNERS[name]).set_params(click_cutoff=click_cutoff)
        assert mean_ap(learner.fit(X, several), X, y) > 0.9
        with pytest.raises(ValueError, match="sparse array of counts"):
            learner.set_params(click_cutoff=0.1).fit(X, y)

    def test_labels_that_teach_nothing_are_refused(self, each_trained, X, y):
        with pytest.raises(ValueError, match="at least two classes, got 1 class"):
            each_trained.fit(X, np.zeros(60))
        with pytest.raises(ValueError, match="must be labels of shape|takes one label per image"):
            each_trained.fit(X, 0.5 * np.eye(4)[y])

    @pytest.mark.parametrize("name", LOOPED)
    def test_parameters_of_the_loop(self, name, synonyms):
        for params, message in (
            ({"n_steps": 0}, "n_steps must be an integer of at least 1, got 0"),
            ({"n_steps": 1e5}, "n_steps must be an integer of at least 1"),
            ({"pass_steps": 0}, "pass_steps must be an integer of at least 1"),
            ({"validation_fraction": 0}, "validation_fraction must lie between 0 and 1, or be None, got 0"),
            ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1"),
            ({"patience": 0}, "patience must be an integer of at least 1"),
            ({"random_state": -1}, "random_state must not be negative, got -1"),
        ):
            with pytest.raises(ValueError, match=message):
                clone(LEARNERS[name]).set_params(**params).fit(*synonyms)

    @pytest.mark.parametrize(
        ("name", "parameter"),
        [
            *(("oasis", "C"), ("aroma", "r"), ("pamir", "C"), ("ovr", "C"), ("lego", "eta"), ("lego", "margin")),
            *(("lego-pairs", "near"), ("hier", "C"), ("warp", "max_norm"), ("warp", "learning_rate")),
            *(("wsabie", "max_norm"), ("wsabie", "learning_rate"), ("musl", "alpha"), ("musl", "r")),
        ],
    )
    def test_parameters_that_must_be_positive(self, name, parameter, synonyms):
        for bad in (0, -1.0, np.nan, np.inf, "0.1"):
            with pytest.raises(ValueError, match=f"{parameter} must be a positive number,.* got {bad!r}"):
                clone(LEARNERS[name]).set_params(**{parameter: bad}).fit(*synonyms)

    @pytest.mark.parametrize(
        ("kind", "parameters", "message"),
        [
            (OASIS, {"init": "ones"}, "init must be 'identity' or 'zero'"),
            (OASIS, {"variant": "Symmetric"}, "variant must be"),
            (OASIS, {"pairs_per_query": 0}, "pairs_per_query must be"),
            (OASIS, {"n_rankers": 0}, "n_rankers must be"),
            (OASIS, {"mix_every": 5000}, "mix_every goes with n_rankers > 1"),
            (OASIS, {"mix_every": 7, "n_rankers": 2}, "multiple of pass_steps=250000"),
            (OASIS, {"lock_free": True, "n_rankers": 2}, "n_rankers must be 1"),
            (OASIS, {"psd_every": 5000}, "psd_every goes with variant='psd'"),
            (OASIS, {"psd_every": 7, "variant": "psd"}, "multiple of pass_steps=250000"),
            (AROMA, {"covariance": "full"}, "covariance must be 'diagonal' or 'factored', got 'full'"),
            (AROMA, {"r": 1e-31}, "r must be a positive number, from 1e-30 to 1e30"),
            (AROMA, {"init": "ones"}, "init must be"),
            (AROMA, {"pairs_per_query": 0}, "pairs_per_query must be"),
            (WSABIE, {"n_components": 0}, "n_components must be an integer of at least 1, got 0"),
            (WSABIE, {"n_components": 2.5}, "n_components must be an integer or a list of integers, got 2.5"),
            (WSABIE, {"n_components": []}, "n_components must be an integer or a list"),
            (WSABIE, {"n_components": "100"}, "n_components must be an integer or a list"),
            (WSABIE, {"n_components": [100, 0]}, "each of n_components must be an integer of at least 1, got 0"),
            (WSABIE, {"decay_steps": 0}, "decay_steps must be an integer of at least 1, got 0"),
            (WSABIE, {"n_components": [2] * 7}, "names 7 models; at most 6"),
            (WSABIE, {"loss": "WARP"}, "loss must be 'warp', 'auc' or 'owpc', got 'WARP'"),
            (MuSL, {"n_metrics": 7}, "n_metrics=7 is more than the 4 categories there are"),
            (MuSL, {"n_metrics": 0}, "n_metrics must be an integer of at least 1"),
            (MuSL, {"n_bits": 2.5}, "n_bits must be an integer of at least 1"),
            (MuSL, {"negatives_per_example": 0}, "negatives_per_example must be an integer of at least 1"),
            (MuSL, {"n_starts": 0}, "n_starts must be an integer of at least 1"),
            (MuSL, {"max_images": 1}, "max_images must be an integer of at least 2"),
            (MuSL, {"grouping": "soft"}, "grouping must be 'joint', 'kmeans' or 'random', got 'soft'"),
            (MuSL, {"midpoint": 0.5}, "midpoint must be 'final' or 'running', got 0.5"),
            (KNNAnnotator, {"n_neighbors": 0}, "n_neighbors must be an integer of at least 1, got 0"),
            (KNNAnnotator, {"n_neighbors": 2.0}, "n_neighbors must be an integer"),
            (KNNAnnotator, {"leaf_size": 0}, "leaf_size must be an integer of at least 1, got 0"),
            (KNNAnnotator, {"weights": "distance"}, "weights must be 'similarity' or 'uniform', got 'distance'"),
            (KNNAnnotator, {"algorithm": "brute"}, "algorithm must be 'exact' or 'tree', got 'brute'"),
            (KNNAnnotator, {"random_state": -1}, "random_state must not be negative"),
            (MCML, {"trace_penalty": -0.1}, "trace_penalty must be a number of at least 0, got -0.1"),
            (MCML, {"trace_penalty": np.nan}, "trace_penalty must be"),
            (MCML, {"trace_penalty": "0"}, "trace_penalty must be"),
            (MCML, {"tol": -1}, "tol must be"),
            (LinearWARP, {"decay_steps": 0}, "decay_steps must be an integer"),
            (LinearWARP, {"decay_steps": 1.5}, "decay_steps must be an integer"),
            (LinearWARP, {"decay_steps": "slow"}, "decay_steps must be an integer"),
            (LEGO, {"loss": "pairs", "near": 2, "far": 1}, "near must be smaller than far, got 2 and 1"),
            (LEGO, {"loss": "hinge"}, "loss must be 'triplet' or 'pairs', got 'hinge'"),
        ],
    )
    def test_parameters_that_are_refused(self, kind, parameters, message, synonyms):
        with pytest.raises(ValueError, match=message):
            kind(**parameters).fit(*synonyms)


class TestBatches:
    """What a method returns for an image does not depend, to the last bit, on the other images of its batch."""

    @pytest.mark.slow
    @pytest.mark.parametrize("form", ["sparse", "dense"])
    @pytest.mark.parametrize("name", KINDS)
    def test_batches_of_1_7_and_100_give_the_same_bytes(self, name, form, X, y):
        learner = clone(LEARNERS[name]).fit(X, y)
        rng = np.random.default_rng(5)
        images = sp.random_array((100, X.shape[1]), density=0.4, rng=rng, dtype=np.float32, format="csr")
        gallery = sp.vstack([X, images[:41]], format="csr")
        if form == "dense":  # with images that have no zeros
            images, gallery = images.toarray() + rng.random(images.shape, np.float32), gallery.toarray()
        methods = [learner.transform, learner.transform_query, lambda Q: learner.similarity(Q, gallery)]
        methods.append(lambda Q: learner.similarity(gallery, Q).T)
        if hasattr(learner, "label_scores"):
            methods += [learner.label_scores, lambda Q: learner.annotate(Q, 2)[1], lambda Q: learner.annotate(Q, 2)[0]]
        if isinstance(learner, KNNAnnotator):
            methods += [lambda Q: learner.kneighbors(Q)[1]]
        if isinstance(learner, MuSL):
            methods += [lambda Q: learner.distances(Q, X, y), lambda Q: learner.categorize(Q, X, y)]
        for method in methods:
            whole = in_batches(method, images, 100)
            for size, n_images in ((1, 15), (7, 100)):
                assert whole.startswith(in_batches(method, images[:n_images], size))
            order = rng.permutation(100)
            moved = method(images[order])
            moved = moved.toarray() if sp.issparse(moved) else moved
            assert moved.tobytes() == np.frombuffer(whole, moved.dtype).reshape(moved.shape)[order].tobytes()


def in_batches(method, images, size):
    """Bytes of what a method returns for images, given so many at a time."""
    parts = [method(images[start : start + size]) for start in range(0, images.shape[0], size)]
    return np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts]).tobytes()


class TestLearning:
    def test_beats_the_cosine(self, better, synonyms, unseen_synonyms):
        X, y = unseen_synonyms
        baseline = mean_ap(Cosine().fit(X), X, y)
        learned_map = mean_ap(better.fit(*synonyms), X, y)
        assert baseline < 0.55
        assert learned_map > baseline + 0.2

    def test_same_seed_same_model(self, trained, synonyms):
        assert_same(clone(trained).fit(*synonyms), clone(trained).fit(*synonyms))

    def test_fit_starts_again(self, each_trained, synonyms, unseen_synonyms):
        expected = clone(each_trained).fit(*synonyms)
        assert_same(clone(each_trained).fit(*unseen_synonyms).fit(*synonyms), expected)

    @pytest.mark.parametrize("name", variants_slow(DRAWN))
    def test_other_seed_other_model(self, name, synonyms):
        trained = LEARNERS[name]
        one, other = clone(trained).fit(*synonyms), clone(trained).set_params(random_state=4).fit(*synonyms)
        assert not np.array_equal(one.similarity(*2 * [synonyms[0]]), other.similarity(*2 * [synonyms[0]]))

    def test_no_seed_keeps_the_one_drawn(self, each_trained, synonyms):
        first = clone(each_trained).set_params(random_state=None).fit(*synonyms)
        again = clone(each_trained).set_params(random_state=first.seed_).fit(*synonyms)
        assert_same(first, again)

    @pytest.mark.parametrize(
        "name",
        ["oasis-rankers", "aroma-factored", "wsabie-ensemble", "musl", "oasis-whitened-refit", "wsabie-whitened"],
    )
    def test_the_number_of_threads_does_not_matter(self, name, synonyms, monkeypatch):
        monkeypatch.setattr(aroma, "_TILE", 8)
        one, three = (clone(LEARNERS[name]).set_params(n_jobs=n).fit(*synonyms) for n in (1, 3))
        assert_same(one, three)

    @pytest.mark.parametrize(
        ("name", "matrix"), [("oasis-dissim", "W_"), ("lego", "A_"), ("mcml", "A_"), ("xing", "A_")]
    )
    def test_similarity_is_minus_the_distance(self, name, matrix, X, y):
        """Up to a constant of the query."""
        fitted = clone(LEARNERS[name]).set_params(n_steps=500 if name in ("oasis-dissim", "lego") else 10).fit(X, y)
        dense = X.toarray()
        differences = dense[:4, None] - dense[None]
        expected = -np.einsum("qgi,ij,qgj->qg", differences, getattr(fitted, matrix), differences)
        scores = fitted.similarity(X[:4], X)
        np.testing.assert_allclose(scores - scores[:, :1], expected - expected[:, :1], rtol=1e-4, atol=1e-3)

    def test_compiled_kernels_name_no_class(self, synonyms):
        """Numba's files on disk would then only be readable under the module name that wrote them."""
        for name, kernel in (("oasis", _sparse_steps), ("oasis-online-symmetric", oasis_pass), ("wsabie", warp_pass)):
            clone(LEARNERS[name]).fit(*synonyms)
            assert not any("NamedTuple" in str(argument) for signature in kernel.signatures for argument in signature)


class TestEarlyStopping:
    # Steps as long as that make the last state none of the best.
    LONG = {
        "oasis": {"C": 1.0, "pairs_per_query": 1},
        "aroma": {"r": 0.01},
        "aroma-factored": {"r": 0.01},
        "lego": {"eta": 0.5},
    }

    @pytest.fixture(params=[*LOOPED, "aroma-factored", "wsabie-ensemble"])
    def watched(self, request):
        few = request.param in ("mcml", "xing")
        steps = {"n_steps": 30, "pass_steps": 1} if few else {"n_steps": 2000, "pass_steps": 100}
        settings = steps | {"patience": None, "refit": False} | self.LONG.get(request.param, {})
        return clone(LEARNERS[request.param]).set_params(validation_fraction=0.3, random_state=2, **settings)

    def test_keeps_the_best(self, watched, synonyms):
        """All that was learned at the best step comes back, and nothing else of it stays."""
        states = {}
        watched.fit(*synonyms, callback=lambda fitted: states.setdefault(fitted.n_steps_, arrays_of(fitted)))
        looks = [entry for entry in watched.history_ if entry["validation"] is not None]
        figures = {look["step"]: look["validation"] for look in looks[watched.begins_at == "nothing" :]}
        best = watched.best_step_
        assert figures[best] == max(figures.values()) == watched.best_validation_
        assert 0 < best == watched.n_steps_ < watched.n_steps
        learned = {name: array for name, array in arrays_of(watched).items() if array.ndim >= 2}
        assert learned
        for name, array in learned.items():
            assert array.tobytes() == states[best][name].tobytes(), name
            assert not hasattr(watched, f"best_{name}")

    @pytest.mark.slow
    def test_refit_is_fit_for_the_best_number_of_steps(self, watched, synonyms):
        refitted = clone(watched).set_params(refit=True).fit(*synonyms)
        best = watched.fit(*synonyms).best_step_
        assert refitted.best_step_ == refitted.n_steps_ == best
        assert not {f"best_{name}" for name in refitted._learned} & set(vars(refitted))  # what a search kept
        plain = clone(watched).set_params(n_steps=best, validation_fraction=None).fit(*synonyms)
        assert_same_models(refitted, plain)


class TestSaving:
    def test_round_trip(self, learner, X, y, tmp_path):
        learner.fit(X, y).save(tmp_path / "a")
        loaded = load_learner(tmp_path / "a")
        assert type(loaded) is type(learner)
        assert loaded.get_params() == learner.get_params()
        assert_same(loaded, learner)
        np.testing.assert_array_equal(loaded.similarity(X, X), learner.similarity(X, X))
        loaded.save(tmp_path / "b")
        files = sorted(path.name for path in (tmp_path / "a").iterdir())
        assert files == sorted(path.name for path in (tmp_path / "b").iterdir())
        for name in files:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_a_piece_is_missing(self, each, X, y, tmp_path):
        each.fit(X, y).save(tmp_path / "a")
        file = tmp_path / "a" / "learner.json"
        record = json.loads(file.read_text())
        if not record["arrays"]:
            pytest.skip("nothing is learned")
        record["arrays"] = {}
        file.write_text(json.dumps(record))
        with pytest.raises(ValueError, match="do not fit together.*train again"):
            load_learner(tmp_path / "a")

    def test_mapped(self, learner, X, y, tmp_path):
        learner.fit(X, y).save(tmp_path / "a")
        mapped = load_learner(tmp_path / "a", mmap_mode="r", verify=False)
        np.testing.assert_array_equal(mapped.similarity(X, X), learner.similarity(X, X))
        # Learning on does not need a writable folder, and leaves it alone.
        before = {path: path.read_bytes() for path in (tmp_path / "a").iterdir()}
        assert_same(go_on(mapped, X, y), go_on(learner, X, y))
        assert before == {path: path.read_bytes() for path in (tmp_path / "a").iterdir()}


class TestPasses:
    def test_checkpoints_go_on_to_the_same_model(self, trained, X, y, checkpoint):
        """Killed after each pass in turn: the model is that of a run without interruption, bit for bit."""
        passes = []
        expected = clone(trained).fit(X, y, callback=lambda learner: passes.append(learner.phase_))
        assert passes[-1] == "done"
        for stop in range(len(passes)):
            resumed = checkpoint(trained, X, y, stop)
            if passes[stop] != "done" and hasattr(trained, "partial_fit"):
                with pytest.raises(ValueError, match="call resume first"):
                    resumed.partial_fit(X, y)
            later = []
            resumed.resume(X, y, callback=lambda learner, later=later: later.append(learner.phase_))
            assert later == passes[stop + 1 :]
            assert_same(resumed, expected)

    def test_callback_does_not_change_the_model(self, each_trained, X, y):
        seen = []

        def look(learner):
            seen.append((learner.steps_done_, learner.steps_total_))
            learner.similarity(X[:2], X[:2])

        assert_same(clone(each_trained).fit(X, y, callback=look), clone(each_trained).fit(X, y))
        done = [step for step, _ in seen]
        assert done == sorted(done)
        assert seen[-1][0] == seen[-1][1]

    def test_history_is_plain(self, each_trained, synonyms):
        each_trained.fit(*synonyms)
        assert json.loads(json.dumps(each_trained.history_)) == each_trained.history_
        assert all(
            set(entry) == {"phase", "step", "validation", "loss", "violating"} for entry in each_trained.history_
        )

    def test_partial_fit_goes_on(self, online, synonyms):
        """A second call starts at the first one's model: it differs from one call, and has seen more triplets."""
        once = clone(online).partial_fit(*synonyms)
        n_steps = once.n_steps_
        first = arrays_of(once)
        once.partial_fit(*synonyms)
        assert once.n_steps_ == n_steps + online.n_steps
        assert any(
            first[name].tobytes() != array.tobytes() for name, array in arrays_of(once).items() if array.ndim >= 2
        )

    @pytest.mark.parametrize("name", variants_slow(PLAIN))
    def test_partial_fit_twice_is_fit_of_twice_as_many(self, name, synonyms):
        halves = clone(LEARNERS[name]).fit(*synonyms).partial_fit(*synonyms)
        whole = clone(LEARNERS[name]).set_params(n_steps=6000).fit(*synonyms)
        assert_same_models(halves, whole)

    def test_partial_fit_of_fresh_images_keeps_what_was_learned(self, online, X, y):
        """One pass over images of two classes does not forget the other two."""
        if isinstance(online, Xing):
            pytest.skip("its problem has one maximum: that of the images given last")
        online.fit(X, y)
        before = mean_ap(online, X[y > 1], y[y > 1])
        online.set_params(n_steps=100).partial_fit(X[y < 2], y[y < 2])
        assert mean_ap(online, X[y > 1], y[y > 1]) > before - 0.05

    def test_resume_of_a_finished_learner_changes_nothing(self, each_trained, synonyms):
        before = clone(each_trained).fit(*synonyms)
        assert_same(clone(each_trained).fit(*synonyms).resume(*synonyms), before)

    def test_resume_with_other_images(self, each_trained, X, y):
        with pytest.raises(ValueError, match="made with 60 images, got 59"):
            each_trained.fit(X, y).resume(X[:-1], y[:-1])


class TestChunks:
    """Passes that take long are learned in chunks: a training can end after each, and go on to the same model."""

    NAMES = (
        *("oasis", "oasis-one-pair", "oasis-psd-often", "oasis-mixing", "oasis-patience", "oasis-refit-rankers"),
        *("aroma-refit", "aroma-factored-validation", "pamir-validation", "ovr-refit", "lego-validation", "mcml-refit"),
        *("lego-pairs", "hier-refit", "hier-validation", "warp-validation", "xing-refit"),
        *(
            "wsabie-auc",
            "wsabie-owpc",
            "wsabie-refit",
            "musl",
            "musl-starts",
            "oasis-whitened-refit",
            "wsabie-whitened",
        ),
    )

    @pytest.fixture(params=variants_slow(NAMES))
    def chunked(self, request, monkeypatch):
        """A learner, three chunks of whose passes are equal and the last is smaller."""
        learner = clone(LEARNERS[request.param])
        pass_steps = getattr(learner, "pass_steps", 0)
        monkeypatch.setattr(loop, "chunk_steps", lambda *_: 3 * pass_steps // 10)
        monkeypatch.setattr(musl, "_MUCH_WORK", 3000)
        if isinstance(learner, MCML | Xing):  # no chunks: each pass starts from its metric
            monkeypatch.undo()
        if isinstance(learner, MuSL):
            learner.set_params(n_jobs=1)  # sharing out so little work takes longer than the work
        return learner

    def test_ended_anywhere_they_go_on_to_the_same_model(self, chunked, X, y, checkpoint):
        calls = []
        expected = clone(chunked).fit(X, y, progress=lambda learner: calls.append(learner.steps_done_))
        assert calls == sorted(calls)
        assert len(calls) > 2 * len(expected.history_)
        for stop in range(1, len(calls), 1 + len(calls) // 12):
            resumed, later = checkpoint(chunked, X, y, stop, calls="progress"), []
            assert resumed.steps_done_ == calls[stop]
            resumed.resume(X, y, progress=lambda learner, later=later: later.append(learner.steps_done_))
            assert min(later, default=calls[-1]) >= calls[stop]
            assert_same(resumed, expected)

    def test_callback_and_history_stay_at_the_ends_of_passes(self, chunked, synonyms):
        if isinstance(chunked, MuSL):
            pytest.skip("its passes are rounds")
        steps = []
        chunked.fit(*synonyms, callback=lambda learner: steps.append(learner.n_steps_ % learner.pass_steps))
        assert not any(steps)
        assert all(entry["step"] % chunked.pass_steps == 0 for entry in chunked.history_)
        assert all(0 <= entry["violating"] <= 1 for entry in chunked.history_ if entry["step"])

    def test_partial_fit_reports_progress_too(self, chunked, synonyms):
        if isinstance(chunked, MuSL):
            pytest.skip("it has no partial_fit")
        chunked.set_params(n_steps=chunked.pass_steps).fit(*synonyms)
        calls = []
        chunked.partial_fit(*synonyms, progress=lambda learner: calls.append(learner.steps_done_))
        assert len(calls) >= 4
        assert calls[-1] in (0, chunked.pass_steps)  # MCML's calls come before its steps


def assert_same_models(one, other):
    for name, array in arrays_of(one).items():
        if array.ndim >= 2:
            assert array.tobytes() == arrays_of(other)[name].tobytes(), name


class TestOpenWorld:
    """Classes are held out beside images, and the weight of the learner is chosen by both."""

    NAMES = (*LOOPED, "oasis-dissim", "aroma-factored", "wsabie-ensemble", "oasis-whitened")

    @pytest.fixture(params=variants_slow(NAMES))
    def opened(self, request):
        few = request.param in ("mcml", "xing")
        steps = {"n_steps": 6, "pass_steps": 2} if few else {"n_steps": 600, "pass_steps": 200}
        return clone(LEARNERS[request.param]).set_params(validation_fraction=0.3, **steps)

    def test_chooses_a_share_and_says_what_it_does(self, opened, several):
        X, y = several
        opened.set_params(refit=False).fit(X, y, world="open", learned_weight=None)
        worlds = opened.worlds_
        assert opened.learned_weight_ in worlds["shares"] == [share for share in SHARES if share <= opened.most_open]
        assert len(worlds["curve"]) == len(worlds["shares"])
        assert worlds["learner"] == worlds["curve"][SHARES.index(opened.learned_weight_)]
        assert opened.validation_map_ == worlds["learner"][2]
        assert opened.cosine_map_ == worlds["cosine"][2]
        assert json.loads(json.dumps(worlds)) == worlds
        assert len(np.unique(y[opened.unseen_])) == 2
        assert opened.unseen_.tolist() == np.flatnonzero(np.isin(y, y[opened.unseen_])).tolist()
        seen = np.setdiff1d(opened.held_out_, opened.unseen_)
        assert worlds["n_images"] == [len(seen), 20, len(seen) + 20]
        # The figures are those of the model that is kept, as `Blend` searches with it.
        blend = Blend(opened)
        assert (blend.learned_weight, blend.scale) == (opened.learned_weight_, opened.scale_)
        for rows, expected in zip((seen, opened.unseen_, opened.held_out_), worlds["learner"], strict=True):
            assert mean_ap(blend, X[rows], y[rows]) == pytest.approx(expected, abs=1e-3)
        for rows, expected in zip((seen, opened.unseen_, opened.held_out_), worlds["cosine"], strict=True):
            assert mean_ap(Cosine().fit(X), X[rows], y[rows]) == pytest.approx(expected, abs=1e-6)

    def test_nothing_is_learned_from_images_that_are_held_out(self, opened, several, monkeypatch):
        """Other vectors of them make the same model, until the refit learns from all."""
        X, y = several
        opened.set_params(refit=False)
        # By validation another state would be the best one.
        monkeypatch.setattr(loop, "validates_now", lambda n_steps, target, _: n_steps >= target)
        one = clone(opened).fit(X, y, world="open", learned_weight=0.5)
        hidden = np.union1d(one.held_out_, one.unseen_)
        assert len(np.setdiff1d(one.unseen_, one.held_out_)) == 0
        changed = X.toarray()
        changed[hidden] = np.random.default_rng(0).permutation(changed[hidden].T).T
        changed[hidden] *= changed[hidden] > 0.3  # as sparse as before
        other = clone(opened).fit(changed, y, world="open", learned_weight=0.5)
        assert_same_models(one, other)
        assert one.worlds_ != other.worlds_

    @pytest.mark.slow
    def test_a_checkpoint_goes_on_to_the_same_model(self, opened, several, checkpoint):
        """Killed after each pass in turn: the model, the share and the figures are those without interruption."""
        X, y = several
        opened.set_params(refit=True)
        passes = []
        expected = clone(opened).fit(
            X, y, world="open", learned_weight=None, callback=lambda one: passes.append(one.phase_)
        )
        for stop in range(len(passes)):
            assert_same(checkpoint(opened, X, y, stop, world="open", learned_weight=None).resume(X, y), expected)

    def test_the_papers_protocol_is_the_default_and_saves_nothing_new(self, opened, several):
        X, y = several
        one, other = clone(opened).fit(X, y), clone(opened).fit(X, y, world="seen", learned_weight=1)
        assert_same(one, other)
        new = {"learned_weight_", "scale_", "world_", "shares_", "unseen_", "worlds_"}
        assert not new & set(vars(one))
        assert (one.learned_weight_, one.scale_, one.unseen_, one.worlds_) == (1.0, None, None, None)
        # Nor is anything left of an open world after it.
        assert_same(clone(opened).fit(X, y, world="open", learned_weight=None).fit(X, y), one)

    def test_a_share_that_is_given_counts(self, opened, several):
        X, y = several
        opened.fit(X, y, world="open", learned_weight=0.3)
        assert (opened.learned_weight_, opened.worlds_["shares"], len(opened.worlds_["learner"])) == (0.3, [0.3], 3)
        opened.fit(X, y, learned_weight=0.3)
        assert (opened.learned_weight_, len(opened.worlds_["learner"]), opened.unseen_) == (0.3, 1, None)

    def test_without_validation_nothing_chooses(self, opened, several):
        X, y = several
        opened.set_params(validation_fraction=None)
        plain = clone(opened).fit(X, y)
        for learned, expected in ((None, 1.0), (0.3, 0.3)):
            fitted = clone(opened).fit(X, y, world="open", learned_weight=learned)
            assert (fitted.learned_weight_, fitted.unseen_, fitted.worlds_, fitted.held_out_) == (
                expected,
                None,
                None,
                None,
            )
            assert_same_models(fitted, plain)

    def test_what_is_no_world_or_share_is_refused_before_anything_is_learned(self, opened, several, monkeypatch):
        monkeypatch.setattr(type(opened), "_learn", lambda *arguments: pytest.fail("it learned"))
        for world in ("x", None, "Open", 1):
            message = f"^world must be 'seen', 'open' or 'unseen', got {world!r}$"
            with pytest.raises(ValueError, match=message):
                opened.fit(*several, world=world)
        for learned in (-0.1, 1.1, np.nan, np.inf, True, "a"):
            with pytest.raises(ValueError, match=f"^learned_weight must be a number from 0 to 1, got {learned!r}$"):
                opened.fit(*several, learned_weight=learned)


def test_few_classes_leave_the_cautious_share(X, y, tmp_path):
    """Four classes: none is held out, and a learner is saved and loaded all the same."""
    learner = clone(LEARNERS["oasis-refit"]).fit(X, y, world="open", learned_weight=None)
    assert learner.learned_weight_ == CAUTIOUS_SPARSE
    assert len(learner.unseen_) == 0
    assert len(learner.worlds_["learner"]) == 1
    learner.save(tmp_path / "saved")
    for options in ({}, {"mmap_mode": "r"}):
        assert_same(load_learner(tmp_path / "saved", **options), learner)


def test_the_share_for_classes_that_are_trained_on_is_the_best_for_these(several):
    """Synonyms are learned well: all that was learned counts, for seen classes alone."""
    X, y = several
    settings = SMALL | {"validation_fraction": 0.3, "pairs_per_query": 8}
    seen, unseen = (OASIS(**settings).fit(X, y, world=world, learned_weight=None) for world in ("seen", "unseen"))
    assert (seen.learned_weight_, len(seen.worlds_["learner"])) == (1.0, 1)
    assert (unseen.learned_weight_ < 1, len(unseen.worlds_["learner"])) == (True, 3)
    assert unseen.validation_map_ == unseen.worlds_["learner"][1]
    assert unseen.cosine_map_ == unseen.worlds_["cosine"][1]


def test_several_labels_in_the_open_world(several):
    """Images that have one of some labels are held out, and an annotator is still stopped by labels it can rank."""
    rng = np.random.default_rng(0)
    X, y = several
    labels = np.hstack([np.eye(6)[y], rng.random((60, 1)) < 0.5, np.eye(6)[rng.permutation(y)]])
    for name in ("oasis", "wsabie", "hier"):
        learner = clone(LEARNERS[name]).set_params(validation_fraction=0.3)
        learner.fit(X, sp.csr_array(labels), world="open", learned_weight=None)
        assert 12 <= len(learner.unseen_) < 30, name
        assert learner.learned_weight_ in SHARES
        gone = labels.any(axis=0) & ~labels[np.setdiff1d(np.arange(60), learner.unseen_)].any(axis=0)
        assert gone.sum() >= 2


def test_images_that_validate_may_be_given_in_the_open_world(several):
    X, y = several
    rows = np.arange(0, 60, 3)
    learner = clone(LEARNERS["oasis"]).fit(X, y, validation_rows=rows, world="open", learned_weight=None)
    assert len(learner.unseen_) == 20
    assert learner.held_out_.tolist() == np.union1d(rows, learner.unseen_).tolist()
    # Where they are all of classes that would be held out, no class is.
    for name in ("oasis", "wsabie"):
        refitted = clone(LEARNERS[name]).fit(X, y, validation_rows=learner.unseen_, world="open", learned_weight=None)
        assert len(refitted.unseen_) == 0
        assert refitted.held_out_.tolist() == learner.unseen_.tolist()


def test_classes_are_held_out_only_where_images_are_left_to_validate():
    """One class of six has four images or more: held out as a whole, it would leave none to stop early by."""
    y = np.array([*"aaaaaaaa", *"bbb", *"ccc", *"ddd", *"eee", *"fff"])
    X = sp.csr_array(np.random.default_rng(0).random((len(y), 30), np.float32))
    seed_by_count = {}
    for seed in range(12):
        learner = clone(LEARNERS["oasis-one-pair"]).set_params(validation_fraction=0.3, n_steps=10, random_state=seed)
        learner.fit(X, y, world="open", learned_weight=None)
        assert set(y[np.setdiff1d(learner.held_out_, learner.unseen_)]) == {"a"}
        seed_by_count[len(learner.unseen_)] = seed
    assert set(seed_by_count) == {0, 6}
