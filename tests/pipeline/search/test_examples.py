"""Queries of several images, and of a part of one."""

import io
import re

import cv2
import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.request import Rectangle, parse_example
from visterm.plugins.examples.examples import combine, region_vector


@pytest.mark.parametrize("make", [sparse.csr_matrix, np.asarray])
def test_vectors_add_up_to_one_of_length_1(make):
    vectors = [make(np.eye(3, dtype=np.float32)[i : i + 1]) for i in range(3)]
    total = combine(vectors, [1, 1, -0.5])
    total = total.toarray() if sparse.issparse(total) else total
    np.testing.assert_allclose(total, np.array([[1, 1, -0.5]]) / 1.5, rtol=1e-6)
    assert total.dtype == np.float32
    with pytest.raises(UserError, match="cancel each other out"):
        combine([vectors[0], vectors[0]], [1, -1])


@pytest.mark.usefixtures("alone")
def test_a_search_with_a_sum_of_images_is_that_of_the_sum_and_leaves_them_out(searcher):
    names = ["apple/1.jpg", "pear/2.jpg", "plum/3.jpg"]
    weights = [1.0, 0.5, -0.7]
    rows = [searcher.row_named(name) for name in names]
    examples = list(zip(names, weights, strict=True))[1:]
    (answer,) = searcher.search(names[0], 5, "cosine", example=examples)
    total = sum(weight * searcher.X[row].toarray() for row, weight in zip(rows, weights, strict=True))
    scores = (searcher.X @ (total / np.linalg.norm(total)).T).ravel()
    best = [row for row in np.argsort(-scores, kind="stable") if row not in rows][:5]
    assert [result["id"] for result in answer["results"]] == [searcher.images[row].id for row in best]
    np.testing.assert_allclose([result["score"] for result in answer["results"]], scores[best], atol=1e-5)
    assert answer["query"] == "apple/1.jpg"
    texts = ["pear/2.jpg@0.5", f"id:{searcher.images[rows[2]].id}@-0.7"]
    assert searcher.search(names[0], 5, "cosine", example=texts) == [answer]
    doubled = searcher.search(names[0], 5, "cosine", weight=2, example=["pear/2.jpg@1", "plum/3.jpg@-1.4"])
    assert [row["id"] for row in doubled[0]["results"]] == [row["id"] for row in answer["results"]]
    pixels = cv2.cvtColor(cv2.imread(str(searcher.root / names[1])), cv2.COLOR_BGR2RGB)
    (with_pixels,) = searcher.search(names[0], 5, "cosine", example=[(pixels, 0.5), (searcher.root / names[2], -0.7)])
    paths = [row["path"] for row in with_pixels["results"]]
    assert names[1] in paths  # pixels are no image of the collection
    assert names[2] not in paths
    alone = [searcher.search("id:1", 5, "cosine", example=one) for one in (pixels, [pixels])]
    assert alone[0] == alone[1]
    data = (searcher.root / names[2]).read_bytes()
    for one in (bytearray(data), io.BytesIO(data)):
        assert searcher.search("id:1", 5, "cosine", example=one) == searcher.search("id:1", 5, "cosine", example=data)


def test_the_region_of_the_whole_image_is_the_image_and_other_examples_are_refused(searcher):
    row = searcher.row_named("apple/1.jpg")
    whole = region_vector(searcher, searcher.root / "apple/1.jpg", Rectangle(0, 0, 1, 1))
    np.testing.assert_allclose(whole.toarray(), searcher.X[row].toarray(), atol=1e-5)
    for example in ("none.jpg", "id:999999", str(searcher.root)):
        with pytest.raises(UserError, match=f"example {re.escape(example)}: "):
            searcher.search("id:1", learner="cosine", example=["id:2", example])


def test_only_the_blocks_of_a_region_count(searcher, tmp_path):
    halves = [cv2.imread(str(searcher.root / name)) for name in ("apple/1.jpg", "plum/1.jpg")]
    both = tmp_path / "both.png"
    cv2.imwrite(str(both), np.hstack(halves))
    of_left, of_right = (
        searcher.search(both, 10, "cosine", region=region)[0]["results"]
        for region in ((0, 0, 0.45, 1), "0.55,0,0.45,1")
    )
    assert sum("apple" in result["labels"] for result in of_left) > sum(
        "apple" in result["labels"] for result in of_right
    )
    assert of_left[0]["labels"] == ["apple"]
    assert of_right[0]["labels"] == ["plum"]
    tiny = region_vector(searcher, both, Rectangle(0.1, 0.1, 0.001, 0.001))  # the nearest blocks
    assert tiny.nnz > 0


@pytest.mark.parametrize(
    "region",
    [(0, 0, 0, 1), (0.5, 0, 0.6, 1), (-0.1, 0, 1, 1), (0, 0, 1), "0,0,x,1", "0,nan,1,1", "0,0,1,nan", "0,0,inf,1", ""],
)
def test_a_region_lies_within_the_image(region):
    with pytest.raises(UserError, match="region"):
        Rectangle.of(region)


def test_a_query_without_a_sum_or_a_region_is_reported_and_the_others_are_answered(searcher, tmp_path):
    cancelled, other = searcher.search(["id:1", "id:2"], 3, "cosine", example=["id:1@-1"])
    assert cancelled == {
        "query": "id:1",
        "results": [],
        "error": "the examples cancel each other out; change a weight or remove one",
    }
    assert len(other["results"]) == 3
    missing = tmp_path / "none.jpg"
    (unread, whole) = searcher.search([str(missing), "id:2"], 3, "cosine", region=(0, 0, 1, 1))
    assert "cannot be read" in unread["error"]
    assert [row["id"] for row in whole["results"]] == [
        row["id"] for row in searcher.search("id:2", 3, "cosine")[0]["results"]
    ]


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("id:12", ("id:12", 1)),
        ("id:12@-0.5", ("id:12", -0.5)),
        ("id:12@0.3333333333333333", ("id:12", 1 / 3)),  # as programs write it
        ("a@b.jpg", ("a@b.jpg", 1)),
        ("a@2x.jpg@2", ("a@2x.jpg", 2)),
        ("a.jpg@1e9", ("a.jpg@1e9", 1)),
        ("@2", ("@2", 1)),
    ],
)
def test_an_example_is_an_image_and_its_weight(text, example):
    assert parse_example(text) == example
