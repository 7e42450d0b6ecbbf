"""The labels that a text names."""

import numpy as np
import pytest
from running import json_of, refused, visterm

from visterm.pipeline.search.words import labels_of_text, logistic

NAMES = ["beach", "sunset", "palm tree", "tree", "lily_valley", "Café", "sea", "car"]


@pytest.mark.parametrize(
    ("text", "labels", "unknown"),
    [
        ("sunset at the beach", ["sunset", "beach"], ["at", "the"]),
        ("Sunsets, BEECH!", ["sunset", "beach"], []),
        ("palm trees", ["palm tree"], []),
        ("tree palm", ["tree"], ["palm"]),
        ("lilly valley cafe", ["lily_valley", "Café"], []),
        ("scar see", [], ["scar", "see"]),  # short words are not misspelt
        ("sea sea car", ["sea", "car"], []),
        ("", [], []),
        ("\x00 \n !", [], []),
    ],
)
def test_labels_of_a_text(text, labels, unknown):
    assert labels_of_text(text, NAMES) == (labels, unknown)


def test_a_search_by_words_counts_each_label_as_much_as_the_others(finished, searcher):
    ask = ["search", "-k", "5", "--learner", "wsabie"]
    (by_words,) = json_of(*ask, "--text", "plumms or an apple", cwd=finished)
    assert by_words["query"] == "plum + apple"
    annotator, _, names = searcher._annotator("wsabie")
    trained = [image.split == "train" for image in searcher.images]
    scores = []
    for label in ("plum", "apple"):
        of_label = annotator.label_scores(searcher.X)[:, names.index(label)]
        slope, intercept = logistic(
            of_label[trained], np.array([label in i.labels for i in searcher.images if i.split == "train"])
        )
        scores.append(np.log(1 / (1 + np.exp(-(slope * of_label.astype(float) + intercept)))))
    scores = np.mean(scores, axis=0)
    best = np.argsort(-scores, kind="stable")[:5]
    assert [result["id"] for result in by_words["results"]] == [searcher.images[row].id for row in best]
    assert [result["score"] for result in by_words["results"]] == pytest.approx(scores[best], abs=1e-5)
    whole = searcher.search_text("plum apple", k=30, learner="wsabie")[0]["results"]
    (some,) = searcher.search_text("plum apple", k=30, learner="wsabie", not_label="plum")
    assert [(r["id"], r["score"]) for r in some["results"]] == [
        (r["id"], r["score"]) for r in whole if r["labels"] != ["plum"]
    ]
    (one,) = json_of(*ask, "--text", "plums", cwd=finished)
    (same,) = json_of(*ask, "--label", "plum", cwd=finished)
    assert [result["id"] for result in one["results"]] == [result["id"] for result in same["results"]]
    said = visterm(*ask, "--text", "plums or an apple", cwd=finished).stderr
    assert "by the labels plum + apple; no labels: or, an" in said
    assert "no word of 'the sea' is a label of run fruit; there are" in refused(*ask, "--text", "the sea", cwd=finished)
    assert "10,000 characters; give at most 300" in refused(*ask, "--text", "x" * 10_000, cwd=finished)
    assert "only one of them" in refused(*ask, "--text", "plum", "--query-label", "apple", cwd=finished)
    (pears,) = json_of(*ask, "--text", "plum", "--label", "pear", cwd=finished)
    (same,) = json_of(*ask, "--query-label", "plum", "--label", "pear", cwd=finished)
    assert [result["id"] for result in pears["results"]] == [result["id"] for result in same["results"]]


def test_the_probability_of_a_label_is_that_of_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    scores = rng.normal(5, 3, 4000).astype(np.float32)
    labelled = rng.random(4000) < 1 / (1 + np.exp(-(0.8 * scores - 7)))
    by_peer = LogisticRegression(C=1e6).fit(scores[:, None], labelled)
    assert logistic(scores, labelled) == pytest.approx((by_peer.coef_[0, 0], by_peer.intercept_[0]), rel=0.02)
    # A label apart from all others is not certain; one that scores say the reverse of counts for nothing.
    slope, intercept = logistic(np.array([0.0, 0.1, 0.9, 1.0]), np.array([False, False, True, True]))
    assert 1 < slope < 50
    assert logistic(-scores, labelled)[0] == 0
    for labels in (np.zeros(5, bool), np.ones(5, bool)):
        assert np.isfinite(logistic(np.ones(5, np.float32), labels)).all()
