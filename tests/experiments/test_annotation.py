import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")

from experiments import annotation
from visterm.learners import WSABIE, KNNAnnotator
from visterm.pipeline.measure import siblings_of


@pytest.fixture
def split(monkeypatch, tmp_path):
    """Images of four labels, each with visterms of its own: X, y, test X, test y. Labels 0, 1 and 2, 3 are siblings."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = rng.random((120, 40)) * (rng.random((120, 40)) < np.where(np.arange(40) % 4 == y[:, None], 0.6, 0.1))
    X = sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))
    labels = np.array(["ant", "bee", "car", "van"])[y]
    table = tmp_path / "is-a.csv"
    table.write_text("label,parent\nant,insect\nbee,insect\ncar,vehicle\nvan,vehicle\n")
    monkeypatch.setattr(annotation, "IS_A", table)
    monkeypatch.setattr(annotation, "MOST_LABELS", 3)
    return X[:80], labels[:80], X[80:], labels[80:]


def test_the_is_a_table_names_every_label(data):
    labels = [folder.name for folder in (data / "caltech101").iterdir()]
    (names, siblings), warning = siblings_of(labels, annotation.IS_A)
    assert warning is None
    assert len(names) == annotation.CLASSES
    place = {name: i for i, name in enumerate(names)}
    assert siblings[place["crab"], place["scorpion"]]
    assert not siblings[place["crab"], place["laptop"]]
    assert 2 <= np.median(siblings.sum(axis=1)) <= 6


def test_figures_of_a_learner_that_is_always_right_and_of_one_that_takes_the_sibling(split):
    X, y, Q, y_query = split
    learner = KNNAnnotator().fit(X, y)
    truth = np.searchsorted(learner.classes_, y_query)

    def found(first):
        order = np.array([[label, label ^ 1, label ^ 2, label ^ 3] for label in first])
        learner.annotate = lambda X, k: (order[: X.shape[0], :k], None)
        return annotation.figures(learner, Q, y_query, 0.0)

    right, sibling = found(truth), found(truth ^ 1)
    assert right["precision"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert right["siblings"] == pytest.approx([1, 1, 2 / 3])
    assert right["map"] == 1
    assert sibling["precision"] == pytest.approx([0, 1 / 2, 1 / 3])
    assert sibling["siblings"] == right["siblings"]
    assert sibling["map"] == pytest.approx(1 / 2)


def test_systems_learn_and_tell_what_they_cost(split, monkeypatch):
    monkeypatch.setattr(annotation, "MOST_STEPS", 4000)
    monkeypatch.setattr(annotation, "PASS_STEPS", 2000)
    monkeypatch.setattr(annotation, "NEIGHBORS", (1, 3))
    monkeypatch.setattr(annotation, "N_INNER_FOLDS", 2)
    monkeypatch.setattr(annotation, "SIZES", (10,))
    monkeypatch.setattr(annotation, "ENSEMBLES", ((5, 10),))
    systems = annotation.measure_neighbors(split, True) | annotation.measure_linear(split, True)
    systems |= annotation.measure_wsabie(split, "warp", True, True)
    assert set(systems) > {"k-NN, exact", "one-vs-rest", "PAMIR-IA", "WSABIE, WARP", "WSABIE, D = 10", "WSABIE, 5 + 10"}
    for name, found in systems.items():
        assert found["precision"][0] > 0.5, name
        assert found["query_us"] > 0
        assert found["bytes"] > 4 * 40
    assert systems["WSABIE, WARP"]["bytes"] > 4 * annotation.SIZE * (40 + 4)
    assert len(systems["WSABIE, 5 + 10"]["weights"]) == 2


def test_a_trace_is_looked_at_after_the_steps_named(split):
    found = annotation.trace(WSABIE(n_components=10, random_state=0), split, (20, 1000))
    assert len(found) == 2
    assert found[1] > found[0]


def results(quick, *, warp=0.30, auc=0.24, words=0.35, knn=0.22):
    """As the jobs would have them."""

    def system(p1, settings=None):
        curve = [p1 / k for k in range(1, annotation.MOST_LABELS + 1)]
        costs = {"train_seconds": 0.1, "query_us": 1.0, "bytes": 1000, "settings": settings or {}}
        return {"precision": curve, "siblings": curve, "map": p1} | costs

    found = []
    for job in annotation.jobs(quick):
        shift = 0.001 * job["fold"]
        if job["part"] == "words":
            last = words if job["loss"] == "warp" else 0.05
            n = 2 if quick else len(annotation.WORDS_TRACED)
            more = {} if quick else {"chosen": [last] * (n + 2), "p1": last, "trace_seconds": 1.0}
            found.append(job | {"same": [last] * n, "n_labels": 1400} | more)
        elif job["part"] == "same":
            levels = {"warp": warp, "auc": auc, "owpc": warp}
            found.append(job | {"trace": {loss: [p + shift] * len(annotation.TRACED) for loss, p in levels.items()}})
        else:
            names = {
                "neighbors": ["k-NN, exact", *(f"k-NN, leaf of {size}" for size in annotation.LEAVES)],
                "linear": ["one-vs-rest", "PAMIR-IA"],
                "wsabie": [f"WSABIE, {job['loss'].upper()}"],
            }[job["part"]]
            if job["loss"] == "warp" and not quick:
                names += [annotation.page_size(size) for size in annotation.SIZES]
                names += [annotation.page_ensemble(members) for members in annotation.ENSEMBLES]
            levels = {name: system((knn if "leaf" in name else 0.31) + shift) for name in names}
            found.append(job | {"systems": levels})
    return found


@pytest.mark.parametrize("quick", [True, False])
def test_findings_that_must_hold_do_and_fail_with_what_they_are_about(quick):
    def broken(**levels):
        findings = annotation.page(results(quick, **levels)).findings
        return [finding.paper[:20] for finding in findings if finding.must and not finding.agrees]

    assert broken() == []
    assert broken(warp=0.25) == ["WARP learns faster t"]
    assert broken(words=0.15) == ["The more labels, the"]
    assert broken(knn=0.32) == ["WSABIE is above appr"]
