"""Records of artifacts."""

from visterm.pipeline.store.records import make_record


def test_trainings_within_a_second_are_told_apart():
    """Evaluations, versions and a service's models are of one training: the same settings trained again are another."""
    first, second = (make_record("learner", {}, {})["created"] for _ in range(2))
    assert first < second
