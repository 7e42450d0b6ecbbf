"""The page of the speed experiment, its synthetic images, and one small job."""

import numpy as np
import pytest

pytest.importorskip("experiments.jobs", reason="experiments are not in the wheel")
from experiments import speed

SECONDS = {"OASIS": 0.1, "MCML": 10.0, "LEGO": 1.0, "LMNN": 1.2}


def made_up(seconds=None, power=1.0):
    settings = {"n_steps": 1000}
    results = [
        {"system": system, "classes": c, "fold": fold, "settings": settings, "train": found, "violating": 0.1}
        for system, found in (seconds or SECONDS).items()
        for c in (10, 20)
        for fold in range(2)
    ]
    for n in (1000, 3000, 10_000):
        result = {"system": "OASIS", "images": n, "d": 1000, "settings": {"n_steps": 100 * n}, "violating": 0.1}
        results.append(result | {"train": 1e-4 * n**power})
    return results


def verdicts(results):
    return [finding.agrees for finding in speed.page(results).findings]


def test_times_as_in_the_paper_agree_with_it():
    assert verdicts(made_up()) == [True] * 4


@pytest.mark.parametrize(
    ("results", "broken"),
    [
        (made_up(SECONDS | {"LEGO": 0.05}), 0),
        (made_up(SECONDS | {"MCML": 1.0}), 1),
        (made_up(SECONDS | {"LMNN": 0.2}), 2),
        (made_up(power=1.5), 3),
    ],
)
def test_other_times_do_not(results, broken):
    assert verdicts(results) == [i != broken for i in range(4)]


def test_the_page_of_a_quick_run():
    page = speed.page(made_up({"OASIS": 0.1, "WSABIE": 0.1}))
    assert [finding.agrees for finding in page.findings] == [True]


def test_synthetic_images_are_sparse_unit_rows_of_classes():
    X, y = speed.synthetic_images(400, 1000)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert 20 < X.nnz / 400 < 29
    assert (np.bincount(y) == 40).all()
    near = (X @ X.T).toarray()
    same = y[:, None] == y
    assert near[same].mean() > 2 * near[~same].mean()


def test_a_job_on_synthetic_images():
    found = speed.measure(system="OASIS", settings={"n_steps": 2000, "pass_steps": 1000}, images=400, d=200)
    assert 0 < found["train"] < 5
    assert 0 < found["violating"] <= 1
