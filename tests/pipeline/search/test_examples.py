"""Queries of several images, and of a part of one."""

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.examples import Region, combine, region_vector


@pytest.fixture(scope="module")
def searcher(finished):
    return Searcher(finished / "runs" / "fruit")


@pytest.mark.parametrize("make", [sparse.csr_matrix, np.asarray])
def test_vectors_add_up_to_one_of_length_1(make):
    vectors = [make(np.eye(3, dtype=np.float32)[i : i + 1]) for i in range(3)]
    total = combine(vectors, [1, 1, -0.5])
    total = total.toarray() if sparse.issparse(total) else total
    np.testing.assert_allclose(total, np.array([[1, 1, -0.5]]) / 1.5, rtol=1e-6)
    assert total.dtype == np.float32
    with pytest.raises(UserError, match="cancel each other out"):
        combine([vectors[0], vectors[0]], [1, -1])


def test_a_search_with_a_sum_of_images_is_that_of_the_sum_and_leaves_them_out(searcher):
    names = ["apple/1.jpg", "pear/2.jpg", "plum/3.jpg"]
    weights = [1.0, 0.5, -0.7]
    rows = [searcher.row_named(name) for name in names]
    answer = searcher.search_examples(list(zip(names, weights, strict=True)), k=5, learner="cosine")
    total = sum(weight * searcher.X[row].toarray() for row, weight in zip(rows, weights, strict=True))
    scores = (searcher.X @ (total / np.linalg.norm(total)).T).ravel()
    best = [row for row in np.argsort(-scores, kind="stable") if row not in rows][:5]
    assert [result["id"] for result in answer["results"]] == [searcher.images[row].id for row in best]
    np.testing.assert_allclose([result["score"] for result in answer["results"]], scores[best], atol=1e-5)
    assert answer["query"] == "apple/1.jpg + pear/2.jpg - plum/3.jpg"


def test_the_region_of_the_whole_image_is_the_image(searcher):
    row = searcher.row_named("apple/1.jpg")
    whole = region_vector(searcher, searcher.root / "apple/1.jpg", Region(0, 0, 1, 1))
    np.testing.assert_allclose(whole.toarray(), searcher.X[row].toarray(), atol=1e-5)


def test_only_the_blocks_of_a_region_count(searcher, tmp_path):
    import cv2

    halves = [cv2.imread(str(searcher.root / name)) for name in ("apple/1.jpg", "plum/1.jpg")]
    both = tmp_path / "both.png"
    cv2.imwrite(str(both), np.hstack(halves))
    of_left, of_right = (
        searcher.search_examples([(str(both), 1.0)], k=10, learner="cosine", region=region)["results"]
        for region in ((0, 0, 0.45, 1), (0.55, 0, 0.45, 1))
    )
    assert sum("apple" in result["labels"] for result in of_left) > sum(
        "apple" in result["labels"] for result in of_right
    )
    assert of_left[0]["labels"] == ["apple"]
    assert of_right[0]["labels"] == ["plum"]
    tiny = region_vector(searcher, both, Region(0.1, 0.1, 0.001, 0.001))  # the nearest blocks
    assert tiny.nnz > 0


@pytest.mark.parametrize("region", [(0, 0, 0, 1), (0.5, 0, 0.6, 1), (-0.1, 0, 1, 1), (0, 0, 1)])
def test_a_region_lies_within_the_image(region):
    with pytest.raises(UserError, match="region"):
        Region.of(region)


def test_examples_that_cannot_be_read_are_refused(searcher):
    for examples in ([("none.jpg", 1)], [("id:999999", 1)], []):
        with pytest.raises(UserError):
            searcher.search_examples(examples, learner="cosine")
