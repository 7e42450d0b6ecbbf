"""Which of several learners held-out images recommend."""

import json

import pytest
from running import json_of, note, visterm

from visterm.pipeline.store.recommendation import figures_of, recommend


def validated(figure, world=None, *, p1=0.9, n=400):
    """A record's result; None: of a closed world, which notes none."""
    worlds = {} if world is None else {"worlds": {"for": world}}
    cosine = {"cosine_map": 0.5 if world in (None, "seen") else 0.4, "cosine_p1": 0.5}
    return {"validation_map": figure, "validation_p1": p1, "n_validation": n} | cosine | worlds


def test_map_decides_unless_first_results_are_worse_or_other_classes_lead():
    """A learner that ranks all but the first place better than cosine is no gain to people who look at the first."""
    results = {"oasis": validated(0.6, p1=0.4), "aroma": validated(0.45, p1=0.54)}
    advice = recommend(results)
    assert advice["learner"] == "cosine"
    assert list(advice["validation_p1"].items()) == [("oasis", 0.4), ("aroma", 0.54), ("cosine", 0.5)]
    results["ovr"] = validated(0.51, p1=0.48)  # a standard error of 400 queries is 0.025
    assert recommend(results)["learner"] == "ovr"
    assert recommend({"ovr": validated(0.51, p1=0.47)})["learner"] == "cosine"
    assert recommend({"ovr": validated(0.51, p1=0.47, n=100)})["learner"] == "ovr"  # 0.05
    # Within a standard error of at most sqrt(0.8 * 0.2 / n) of the best the first one is taken.

    def chosen(n, oasis, ovr, world="open"):
        return recommend({"ovr": validated(ovr, world, n=n), "oasis": validated(oasis, world, n=n)})["learner"]

    assert chosen(100, 0.7, 0.8) == "ovr"  # 0.04
    assert chosen(100, 0.77, 0.8) == "oasis"
    assert chosen(400, 0.77, 0.8) == "ovr"
    assert chosen(4_000, 0.79, 0.8) == "oasis"  # 500 of them are queries
    assert chosen(4_000, 0.79, 0.8, "seen") == "ovr"
    assert recommend({"knn": {"steps": 0}, "cosine": {}}) is None
    assert recommend({}) is None


@pytest.mark.parametrize(
    ("p1", "gain", "chosen"), [(0.44, [0.3, 0.1], "oasis"), (0.44, [0.19, 0.1], "cosine"), (0.38, [0.3, 0.1], "cosine")]
)
def test_the_first_results_of_a_few_queries_do_not_outweigh_a_clear_gain(p1, gain, chosen):
    """Which is at least twice its own standard error; that of the first results of 100 queries is 0.05."""
    result = validated(0.7, "open", p1=p1, n=100)
    result["worlds"]["gain"] = gain
    assert recommend({"oasis": result})["learner"] == chosen


@pytest.mark.parametrize(
    ("p1_gain", "chosen"),
    [([0.02, 0.01], "oasis"), ([-0.09, 0.01], "oasis"), ([-0.11, 0.01], "cosine"), ([-0.11, 0.06], "oasis")],
)
def test_first_results_count_by_class(p1_gain, chosen):
    """Held-out classes are most of the queries, and a few of the classes."""
    result = validated(0.7, "open", p1=0.3, n=100)
    result["worlds"] |= {"gain": [0.3, 0.1], "p1_gain": p1_gain}
    assert recommend({"oasis": result})["learner"] == chosen


@pytest.mark.parametrize(
    ("p1", "p1_gain", "said"),
    [(0.6, -0.2, ", by class +0.300 and -0.200, not clearly better than cosine"), (0.4, -0.2, ""), (0.6, 0.1, None)],
)
def test_a_learner_that_is_better_by_query_and_not_taken_has_the_figures_that_decided(p1, p1_gain, said):
    """Its line read as if the better one were not recommended."""
    result = validated(0.7, "open", p1=p1, n=100)
    result["worlds"] |= {"gain": [0.3, 0.1], "p1_gain": [p1_gain, 0.01]}
    advice = recommend({"oasis": result})
    oasis, cosine = f"mAP 0.700, P@1 {p1:.3f}", "mAP 0.400, P@1 0.500"
    assert figures_of(advice) == (f"{oasis} (cosine {cosine})" if said is None else f"{cosine} (oasis {oasis}{said})")


@pytest.mark.parametrize(
    ("results", "asked", "chosen", "world", "others"),
    [
        ({"oasis": validated(0.6, "open"), "ovr": validated(0.7, "open")}, None, "ovr", "open", []),
        ({"oasis": validated(0.6, "open"), "ovr": validated(0.9)}, None, "oasis", "open", ["ovr"]),
        ({"oasis": validated(0.6, "open"), "ovr": validated(0.9)}, "seen", "ovr", "seen", ["oasis"]),
        ({"oasis": validated(0.6, "open"), "ovr": validated(0.9)}, "unseen", "oasis", "open", ["ovr"]),
        ({"ovr": validated(0.9), "oasis": validated(0.6, "open")}, None, "ovr", "seen", ["oasis"]),
        ({"ovr": validated(0.7), "oasis": validated(0.6, "seen")}, None, "ovr", "seen", []),
        ({"knn": {"steps": 0}, "oasis": validated(0.6, "unseen")}, None, "oasis", "unseen", ["knn"]),
        ({"oasis": validated(0.3, "open"), "ovr": validated(0.9)}, None, "cosine", "open", ["ovr"]),
    ],
)
def test_only_learners_validated_for_the_same_images_are_compared(results, asked, chosen, world, others):
    advice = recommend(results | {"cosine": {}}, asked)
    assert (advice["learner"], advice["for"], advice["not_validated"]) == (chosen, world, others)
    assert advice["validation_map"]["cosine"] == (0.5 if world == "seen" else 0.4)
    assert set(advice["validation_map"]) == {*results, "cosine"} - set(others)


# ------------------------------------------------------------------------------------------- where no learner is named


@pytest.mark.parametrize("name", ["wsabie", "cosine"])
def test_every_command_takes_the_learner_that_held_out_images_recommend(mine, name):
    best, other = {"wsabie": ("wsabie", "oasis"), "cosine": ("cosine", "wsabie")}[name]
    for learner, figure in (("oasis", 0.3), ("wsabie", 0.9 if name == "wsabie" else 0.2)):
        note(mine, learner, validation_map=figure, validation_p1=figure, cosine_map=0.6, cosine_p1=0.6)
    image = "fruit/pear/0.jpg"
    result = visterm("search", image, "--json", cwd=mine)
    assert json.loads(result.stdout) == json_of("search", image, "--learner", best, cwd=mine)
    assert json.loads(result.stdout) != json_of("search", image, "--learner", other, cwd=mine)
    assert result.stderr.count(f"by {best}, which held-out images recommend: mAP ") == 1
    assert f"by {best}" in visterm("explain", image, "fruit/pear/1.jpg", cwd=mine).stderr
    evaluated = visterm("evaluate", cwd=mine).stdout.strip().splitlines()[-1]
    assert evaluated.endswith("evaluations/wsabie/report.html" if name == "wsabie" else "evaluations/oasis/report.html")
