"""Probabilities of scores: right on average, never falling, and absent with the reason."""

import numpy as np
import pytest
from running import json_of, refused, visterm
from scipy import sparse

from visterm.pipeline import Searcher
from visterm.pipeline.evaluation.calibration import Calibration, calibrate, read_calibration
from visterm.pipeline.evaluation.held_out import TEST_IMAGES, HeldOutSet


def images(rng, n=150, what=TEST_IMAGES):
    """Held-out images of five classes, and scores of which the probability of a common label is known."""
    y = rng.integers(0, 5, n)
    relevant = y[:, None] == y
    scores = rng.normal(relevant * 2.0, 1.0).astype(np.float32)
    everyone = np.ones(n, bool)
    return HeldOutSet(sparse.csr_matrix((n, 3)), np.arange(n), relevant, everyone, what), scores


def test_a_probability_is_the_share_of_pairs_with_a_common_label():
    rng = np.random.default_rng(0)
    found = read_calibration({"calibration": calibrate(*images(rng))})
    assert isinstance(found, Calibration)
    held_out, scores = images(rng)  # others, of the same kind
    others = ~np.eye(len(scores), dtype=bool)
    known, relevant = found.of(scores[others]), held_out.relevant[others]
    assert (np.diff(found.of(np.linspace(-9, 9, 500))) >= 0).all()
    assert 0 < found.of(-1e9) < 0.01 < 0.5 < found.of(1e9) < 1
    assert found.base_rate == pytest.approx(relevant.mean(), abs=0.02)
    for low in np.arange(0, 1, 0.1):
        here = (known >= low) & (known < low + 0.1)
        if here.sum() > 500:
            assert relevant[here].mean() == pytest.approx(known[here].mean(), abs=0.05)


def test_there_is_none_where_nothing_or_too_little_was_held_out():
    rng = np.random.default_rng(0)
    assert "no labelled images were held out" in calibrate(*images(rng, what="labelled images"))["reason"]
    held_out, scores = images(rng, n=9)
    assert "10 are needed" in calibrate(held_out, scores)["reason"]


def test_search_shows_probabilities_and_leaves_out_what_is_less_likely(finished):
    searcher = Searcher(finished / "runs/fruit")
    every = searcher.search("pear/3.jpg", k=29, learner="oasis")[0]["results"]
    known = [result["probability"] for result in every]
    assert known == sorted(known, reverse=True)
    assert 0 < known[-1] < known[0] < 1
    likely = searcher.search("pear/3.jpg", k=29, learner="oasis", min_probability=known[4])[0]["results"]
    assert likely == [result for result in every if result["probability"] >= known[4]]
    call = ["search", "pear/3.jpg", "-k", "29", "--learner", "oasis", "--min-probability", known[4]]
    assert json_of(*call, cwd=finished)[0]["results"] == likely
    assert f"  {known[0]:.0%} likely" in visterm(*call, cwd=finished).stdout
    assert "probability" not in searcher.search("pear/3.jpg", learner="oasis", weight=2)[0]["results"][0]
    for learner, reason in (("cosine", "cosine is not trained"), ("musl", "compares images by their labels")):
        assert reason in refused(*call[:-3], learner, *call[-2:], cwd=finished)
    assert "the weight of the learned similarity" in refused(*call, "--learned-weight", "0.123", cwd=finished)
