"""Figures of classes that were trained on and of others, and learners that are compared by them."""

from __future__ import annotations

import pytest

from visterm.pipeline.evaluation.results import recommend
from visterm.pipeline.evaluation.worlds import below_cosine, held_out_of


def result_of(learner, cosine, world="open"):
    """A record's result with the worlds of these figures."""
    n = len(learner)
    worlds = {"for": world, "shares": [1.0], "curve": [learner], "learner": learner, "cosine": cosine}
    return {"worlds": worlds | {"chance": [0.1, 0.2, 0.05][:n], "n_images": [30, 20, 50][:n]}}


def test_figures_come_from_the_record():
    found = held_out_of(result_of([0.9, 0.8, 0.7], [0.6, 0.85, 0.5]))
    assert list(found) == ["seen", "unseen", "both"]
    assert found["unseen"] == {"map": 0.8, "cosine": 0.85, "chance": 0.2, "n_images": 20}
    assert list(held_out_of(result_of([0.9], [0.6]))) == ["seen"]  # no class was held out
    assert held_out_of({"steps": 3}) == {}


def test_a_learner_below_cosine_is_named_once():
    systems = {
        "oasis": {"held_out": held_out_of(result_of([0.9, 0.9144, 0.7], [0.6, 0.9138, 0.5]))},
        "aroma": {"held_out": held_out_of(result_of([0.9, 0.9141, 0.7], [0.6, 0.9144, 0.5]))},  # both read 0.914
        "wsabie": {"held_out": held_out_of(result_of([0.9, 0.75, 0.45], [0.6, 0.85, 0.5]))},
        "knn": {},
    }
    (line,) = below_cosine(systems)
    assert line.startswith(
        "wsabie is below cosine on held-out images for other classes (mAP 0.750, cosine 0.850) and for both in one "
        "gallery (mAP 0.450, cosine 0.500): "
    )


def validated(figure, world=None):
    """A record's result; None: of a closed world, which notes none."""
    worlds = {} if world is None else {"worlds": {"for": world}}
    return {"validation_map": figure, "cosine_map": 0.5 if world is None else 0.4, "n_validation": 400} | worlds


@pytest.mark.parametrize(
    ("results", "chosen", "world", "others"),
    [
        ({"oasis": validated(0.6, "open"), "ovr": validated(0.7, "open")}, "ovr", "open", []),
        ({"oasis": validated(0.6, "open"), "ovr": validated(0.9)}, "oasis", "open", ["ovr"]),
        ({"ovr": validated(0.9), "oasis": validated(0.6, "open")}, "ovr", "seen", ["oasis"]),
        ({"ovr": validated(0.7), "oasis": validated(0.6, "seen")}, "ovr", "seen", []),
        ({"knn": {"steps": 0}, "oasis": validated(0.6, "unseen")}, "oasis", "unseen", ["knn"]),
        ({"oasis": validated(0.3, "open"), "ovr": validated(0.9)}, "cosine", "open", ["ovr"]),
    ],
)
def test_only_learners_validated_for_the_same_images_are_compared(results, chosen, world, others):
    found = recommend(results | {"cosine": {}})
    assert (found["learner"], found["for"], found["not_validated"]) == (chosen, world, others)
    assert found["validation_map"]["cosine"] == (0.5 if world == "seen" and chosen == "ovr" else 0.4)
    assert set(found["validation_map"]) == {*results, "cosine"} - set(others)
