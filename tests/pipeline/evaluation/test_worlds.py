"""Figures of classes that were trained on and of others, and learners that are compared by them."""

from visterm.pipeline.evaluation.worlds import below_cosine, held_out_of


def result_of(learner, cosine, world="open"):
    """A record's result with the worlds of these figures."""
    n = len(learner)
    worlds = {"for": world, "shares": [1.0], "curve": [learner], "learner": learner, "cosine": cosine}
    return {"worlds": worlds | {"chance": [0.1, 0.2, 0.05][:n], "n_images": [30, 20, 50][:n]}}


def test_figures_come_from_the_record():
    held_out = held_out_of(result_of([0.9, 0.8, 0.7], [0.6, 0.85, 0.5]))
    assert list(held_out) == ["seen", "unseen", "both"]
    unseen = {"map": 0.8, "cosine": 0.85, "chance": 0.2, "n_images": 20}
    assert held_out["unseen"] == unseen | {"below_cosine": True}  # as the figures read: an older training
    assert list(held_out_of(result_of([0.9], [0.6]))) == ["seen"]  # no class was held out
    assert held_out_of({"steps": 3}) == {}
    # A share that passed the test is not warned of, however the figures read.
    result = result_of([0.9, 0.8, 0.7], [0.6, 0.85, 0.75])
    result["worlds"]["clearly_below"] = [False, False, True]
    held_out = held_out_of(result)
    assert [row["below_cosine"] for row in held_out.values()] == [False, False, True]
    (line,) = below_cosine({"oasis": {"held_out": held_out}})
    assert "other classes" not in line
    # Nor is one whose figures read as those of cosine: "mAP 0.914, cosine 0.914".
    result["worlds"]["learner"][2], result["worlds"]["cosine"][2] = 0.9141, 0.9144
    assert not held_out_of(result)["both"]["below_cosine"]
    result = result_of([0.0, 0.8, 0.8], [0.0, 0.7, 0.7])
    result["worlds"]["n_images"] = [0, 20, 20]
    assert list(held_out_of(result)) == ["unseen"]


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
    # By mAP and by precision at 1, each with its figures.
    systems = {
        "oasis": {"map": 0.199, "precision_at": {"1": 0.28}},
        "aroma": {"map": 0.19, "precision_at": {"1": 0.4}},
        "knn": {"map": 0.197, "precision_at": {"1": 0.352}},
        "cosine": {"map": 0.197, "precision_at": {"1": 0.3524}},
        "chance": {"map": 0.02, "precision_at": {"1": 0.02}},
    }
    oasis, aroma = below_cosine(systems)
    assert oasis.startswith("oasis is below cosine on test images (P@1 0.280, cosine 0.352): ")
    assert aroma.startswith("aroma is below cosine on test images (mAP 0.190, cosine 0.197): ")
