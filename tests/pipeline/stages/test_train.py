"""Every learner on the command line: trained, evaluated in one report with the others, and searched with."""

import csv
import json
import os
import re
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
from running import copy_run, json_of, note, refused, set_all, visterm

from visterm.learners import LEARNERS, LEGO, MCML, load_learner
from visterm.learners.validation import CAUTIOUS_SPARSE
from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages import checkpoints, fitting, training_report
from visterm.pipeline.store import vectors
from visterm.pipeline.store.models import TRAINED
from visterm.plugins.figures.is_a import siblings_of

CLASSES = ("apple", "pear", "plum", "quince")
ANNOTATORS = [name for name in TRAINED if LEARNERS[TRAINED[name]].ranks_labels]
EVERY_ONE = "+".join(TRAINED)


def small():
    """Settings that train every learner in a moment."""
    wanted = {
        "n_steps": 3000,
        "pass_steps": 1000,
        "n_components": 8,
        "n_neighbors": 5,
        "n_bits": 8,
        "n_metrics": 2,
        "negatives_per_example": 20,
    }
    sections = {}
    for name in TRAINED:
        section = type(getattr(Config(), name)).model_fields
        sections[name] = {key: value for key, value in wanted.items() if key in section}
    if "n_steps" in sections["mcml"]:
        sections["mcml"] |= {"n_steps": 20, "pass_steps": 10}
    return set_all(features={"n_visterms": 40}, compute={"n_jobs": 1}, **sections)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, write_images):
    """A folder with four classes of ten images, and a run with every learner, trained and evaluated."""
    folder = tmp_path_factory.mktemp("learners")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(10)])
    visterm("features", "fruit", *small(), cwd=folder)
    trained = json_of("train", "--learner", ",".join(TRAINED), cwd=folder)
    assert [summary["learner"] for summary in trained] == list(TRAINED)
    visterm("evaluate", "--learner", "all", cwd=folder)
    return folder


def test_every_learner_has_a_section_and_a_class_and_estimates_what_it_takes():
    assert set(TRAINED) <= set(Config.model_fields)
    assert set(TRAINED.values()) == set(LEARNERS) - {"Cosine", "RCA", "LabelRidge", "Xing"}
    for kind in (LEGO, MCML):
        small, large = (kind().estimate(1000, d, 30_000) for d in (1000, 10_000))
        assert large[0] > 30 * small[0]
        assert large[1] > 10 * small[1]
    assert MCML().estimate(1000, 10_000, 30_000)[0] > 32e9
    config = Config()
    for n_images, expected in ((100, 4_000_000), (20_000, 20_000_000)):
        parameters = fitting.constructor_parameters(LEARNERS["OASIS"], config, "oasis", n_images, np.empty(0), [])
        assert parameters["n_steps"] == expected


@pytest.mark.slow
def test_one_report_holds_them_all(finished):
    folder = finished / "runs/fruit/evaluations" / EVERY_ONE
    metrics = json.loads((folder / "metrics.json").read_text())
    assert list(metrics["systems"]) == [*TRAINED, "cosine", "chance"]
    numbers = {"neighbours": 5, "n_queries": 16, "n_train": 24, "n_classes": 4, "n_unknown_labels": 0}
    assert metrics["accuracy"] == numbers
    for name, figures in metrics["systems"].items():
        assert 0 < figures["map"] <= 1, name
        assert 0 < figures["knn_accuracy"] <= 1, name
        assert ("annotation" in figures) == (name in ANNOTATORS), name
        if name in TRAINED:
            assert figures["train_seconds"] > 0
            assert isinstance(figures["steps"], int)
    for name in ANNOTATORS:
        annotation = metrics["systems"][name]["annotation"]
        assert set(annotation) == {"precision_at", "per_label", "n_unknown_labels"}
        assert set(annotation["precision_at"]) == {"1"}  # five labels are more than there are
        assert annotation["precision_at"]["1"] > 0.5, name  # of four classes that a look tells apart
        assert annotation["n_unknown_labels"] == 0
    assert metrics["systems"]["chance"]["knn_accuracy"] == 1 / 4

    with open(folder / "curves.csv", newline="") as stream:
        assert next(csv.reader(stream)) == ["k", *TRAINED, "cosine", "chance"]
    with open(folder / "neighbours.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 16 * 10 * len(TRAINED)
    assert {row["system"] for row in rows} == set(TRAINED)
    page = (folder / "report.html").read_text()
    words = (f"Of {len(TRAINED)} learners", "k-NN accuracy", "labels P@1", "Side by side", "Groups of categories: musl")
    assert [text for text in (*words, *TRAINED) if text not in page] == []
    assert "sibling P@" not in page


@pytest.mark.slow
def test_the_first_learner_is_the_one_whose_pictures_are_shown(mine):
    options = ("--learner", "knn", "--learner", "oasis", "--learner", "cosine", "--set", "evaluate.max_k=7")
    out = visterm("evaluate", *options, cwd=mine).stdout
    assert out == "runs/fruit/evaluations/knn+oasis/report.html\n"
    metrics = json.loads((mine / out.strip()).with_name("metrics.json").read_text())
    assert list(metrics["systems"]) == ["knn", "oasis", "cosine", "chance"]
    page = (mine / out.strip()).read_text()
    assert "first results under knn" in page
    assert f"visterm evaluate --run fruit {' '.join(options)}" in page


@pytest.mark.slow
def test_all_skips_learners_that_are_out_of_date(mine):
    assert "out of date" not in visterm("info", cwd=mine).stdout
    visterm("train", "--learner", "oasis", cwd=mine)
    result = visterm("evaluate", "--learner", "all", "--set", "knn.n_neighbors=3", "--json", cwd=mine)
    assert "skipped, as they must be trained again: knn" in result.stderr
    assert "knn" not in json.loads(result.stdout)["systems"]
    info = json_of("info", cwd=mine)
    assert info["learners"]["knn"].endswith("(out of date: train again)")
    visterm("label", "add", "red", "apple", cwd=mine)
    assert "run 'visterm train --learner oasis," in refused("evaluate", "--learner", "all", cwd=mine)
    visterm("label", "undo", cwd=mine)
    visterm("train", "--learner", "all", cwd=mine)
    visterm("evaluate", "--learner", "cosine", cwd=mine)
    lines = [line for line in visterm("info", cwd=mine).stdout.splitlines() if line.startswith("evaluated:")]
    told = {line.count(",") > 8: "(out of date: evaluate again)" in line for line in lines}
    assert told == {False: False, True: True}
    assert all("test-test, 16 queries" in line for line in lines)
    assert "knn" in json_of("evaluate", "--learner", "all", cwd=mine)["systems"]


def test_all_of_nothing(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(4)])
    visterm("features", "fruit", *small(), cwd=tmp_path)
    assert "nothing is trained" in refused("evaluate", "--learner", "all", cwd=tmp_path)
    assert "no trained learner" in refused("train", "--learner", "all", cwd=tmp_path)


@pytest.mark.slow
def test_siblings_by_an_is_a_table(mine):
    table = mine / "is_a.csv"
    options = ["--learner", ",".join(ANNOTATORS), "--set", "evaluate.is_a=is_a.csv"]
    assert "is_a.csv: cannot be read" in refused("evaluate", *options, cwd=mine)
    folder = mine / "runs/fruit/evaluations" / "+".join(ANNOTATORS)
    table.write_text("label,parent\napple,round\nplum,round\npear,long\nround,fruit\nlong,fruit\nshoe,thing\n")
    metrics = json_of("evaluate", *options, cwd=mine)
    for name in ANNOTATORS:
        annotation = metrics["systems"][name]["annotation"]
        assert annotation["sibling_precision_at"]["1"] >= annotation["precision_at"]["1"]
    page = (folder / "report.html").read_text()
    assert "gives no parent for 1 of 4 labels, such as quince" in page
    assert "sibling P@1" in page

    before = (folder / "metrics.json").stat().st_mtime_ns
    table.write_text("label,parent\napple,fruit\nplum,fruit\npear,fruit\nquince,fruit\n")
    metrics = json_of("evaluate", *options, cwd=mine)
    assert (folder / "metrics.json").stat().st_mtime_ns > before
    assert metrics["systems"][ANNOTATORS[0]]["annotation"]["sibling_precision_at"]["1"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label:parent\n", "no column label; the first line must be label,parent"),
        ("label\napple\n", "no column parent"),
        ("label,parent\napple,\n", "line 2: an empty parent"),
        ("label,parent\n,fruit\n", "line 2: an empty label"),
        ("label,parent\napple\n", "line 2: an empty parent"),
        ("label,parent\npear,fruit\napple,apple\n", "line 3: apple cannot be its own parent"),
        ("label,parent\napple,fruit\nfruit,food\nfood,apple\n", "(apple is a fruit|fruit is a food|food is a apple)"),
        ("label,parent\napple,fruit\nfruit,food\nfood,apple\n", "runs in a circle: "),
        ("label,parent\n", "holds no row"),
        ("label,parent\nshoe,thing\n", "names none of the 2 labels of this run, such as apple"),
    ],
)
def test_a_wrong_is_a_table_is_one_clear_line(tmp_path, text, message):
    file = tmp_path / "is_a.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        siblings_of(["pear", "apple"], file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_labels_that_no_training_image_has_are_counted(tmp_path, write_images):
    names = [f"{s}/{c}/{i}.jpg" for s in ("train", "test") for c in CLASSES for i in range(5)]
    write_images(tmp_path / "fruit", [name for name in names if not name.startswith("train/quince")])
    visterm("features", "fruit", *small(), cwd=tmp_path)
    names = [*ANNOTATORS, "musl"]
    options = ["--learner", ",".join(names)]
    visterm("train", *options, cwd=tmp_path)
    for protocol in ("test-test", "query-gallery"):
        metrics = json_of("evaluate", *options, "--set", f"evaluate.protocol={protocol}", cwd=tmp_path)
        assert metrics["accuracy"]["n_unknown_labels"] == 1
        for name in ANNOTATORS:
            assert metrics["systems"][name]["annotation"]["n_unknown_labels"] == 1
            assert metrics["systems"][name]["annotation"]["precision_at"]["1"] <= 3 / 4
        page = (tmp_path / "runs/fruit/evaluations" / "+".join(names) / "report.html").read_text()
        assert "no training image has 1 label of the test images, such as quince: 5 test images" in page
    # Searched among all images, of which those of the unknown label are some.
    result = visterm("search", "fruit/test/quince/0.jpg", "--learner", "musl", cwd=tmp_path)
    assert "musl did not learn 1 label of 5 images, such as quince" in result.stderr


def test_queries_without_a_relevant_image_are_refused(tmp_path, write_images):
    names = ["test/apple/0.jpg", "test/pear/0.jpg", *(f"train/plum/{i}.jpg" for i in range(3))]
    write_images(tmp_path / "fruit", names)
    visterm("features", "fruit", *small(), "--set", "features.n_visterms=10", cwd=tmp_path)
    for protocol, why in (
        ("test-test", "no class has two test images"),
        ("query-gallery", "no test image has a label of the training images"),
    ):
        line = refused("evaluate", "--learner", "cosine", "--set", f"evaluate.protocol={protocol}", cwd=tmp_path)
        assert f"{why}, so no query has a relevant image" in line


@pytest.mark.slow
def test_several_labels_an_image(tmp_path, write_images):
    names = [f"{c}{i}.jpg" for c in CLASSES for i in range(8)]
    write_images(tmp_path / "flat", names)
    rows = [f"{name},{label}\n" for name in names for label in (name[:-5], "round" if "p" in name[:2] else "other")]
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(rows))
    visterm("features", "flat", *small(), "--set", "collection.labels=labels.csv", cwd=tmp_path)
    for name in ("wsabie", "knn"):  # with and without label vectors
        visterm("train", "--learner", name, cwd=tmp_path)
        metrics = json_of("evaluate", "--learner", name, cwd=tmp_path)
        assert "accuracy" not in metrics
        assert "knn_accuracy" not in metrics["systems"][name]
        precision = metrics["systems"][name]["annotation"]["precision_at"]
        assert precision["1"] > 0.5
        assert precision["5"] <= 2 / 5 + 1e-9
        (answer,) = json_of("annotate", "flat/pear0.jpg", "--learner", name, cwd=tmp_path)
        assert {entry["label"] for entry in answer["labels"][:2]} <= {*CLASSES, "round", "other"}
        (answer,) = json_of("search", "--label", "round", "--learner", name, cwd=tmp_path)
        assert "round" in answer["results"][0]["labels"]
    for name in ("musl", "mcml"):  # they learn categories: an image is of one
        line = refused("train", "--learner", name, cwd=tmp_path)
        assert f"{name} learns from one label per image, and " in line
        assert "have several (first: flat/" not in line  # a path below the root
        assert line.endswith("; use oasis, aroma, wsabie, lego, pamir, warp, ovr, hier or knn")
        assert "training" not in visterm("train", "--learner", name, cwd=tmp_path, check=2).stderr
    result = visterm("train", "--learner", "musl knn", cwd=tmp_path, check=2)  # the others go on
    assert "visterm: musl learns from one label" in result.stderr
    assert "knn is up to date" in result.stderr


@pytest.mark.slow
def test_validation_folders(tmp_path, write_images):
    names = [
        f"{s}/{c}/{i}.jpg" for s, n in (("train", 8), ("validation", 4), ("test", 4)) for c in CLASSES for i in range(n)
    ]
    write_images(tmp_path / "fruit", names)
    visterm("features", "fruit", *small(), cwd=tmp_path)
    train = ("train", "--learner", ",".join(TRAINED))
    for name, summary in zip(TRAINED, json_of(*train, cwd=tmp_path), strict=True):
        # A learner that does not validate on these images must not learn from them either.
        assert (summary["n_images"], summary["n_validation"]) in ((48, 16), (32, 0)), name
        assert (summary["n_validation"] == 0) == (name in ("knn", "musl")), name
    assert all(summary["up_to_date"] for summary in json_of(*train, cwd=tmp_path))


def labels_of(answer):
    return [entry["label"] for entry in answer["labels"]]


@pytest.mark.parametrize("learner", ANNOTATORS)
def test_annotate_an_image_from_outside(finished, tmp_path, write_images, learner):
    write_images(tmp_path, ["pear/outside.jpg"])
    query = str(tmp_path / "pear/outside.jpg")
    (answer,) = json.loads(
        visterm("annotate", query, "--learner", learner, "-k", "4", "--format", "json", cwd=finished).stdout
    )
    assert set(answer) == {"query", "labels"}
    assert answer["query"] == query
    assert labels_of(answer)[0] == "pear"
    assert sorted(labels_of(answer)) == sorted(CLASSES)
    assert [entry["rank"] for entry in answer["labels"]] == [1, 2, 3, 4]
    assert all(set(entry) == {"rank", "label", "score"} for entry in answer["labels"])
    table = visterm("annotate", query, "--learner", learner, "-k", "2", cwd=finished).stdout.splitlines()
    assert table[0] == query
    assert len(table) == 4
    text = visterm("annotate", query, "--learner", learner, "-k", "4", "--format", "csv", cwd=finished).stdout
    assert "\r" not in text
    assert [row["label"] for row in csv.DictReader(text.splitlines())] == labels_of(answer)


@pytest.mark.parametrize("learner", ANNOTATORS)
def test_images_for_a_label(finished, learner):
    answers = [
        json_of("search", "--label", label, "--learner", learner, "-k", "5", cwd=finished)[0]
        for label in ("plum", "pear")
    ]
    assert [answer["query"] for answer in answers] == ["plum", "pear"]
    for answer in answers:
        assert [result["rank"] for result in answer["results"]] == [1, 2, 3, 4, 5]
        assert set(answer["results"][0]) == {"rank", "id", "path", "score", "labels"}
        assert answer["results"][0]["labels"] == [answer["query"]]
        scores = [result["score"] for result in answer["results"]]
        assert scores == sorted(scores, reverse=True)


def test_images_for_several_labels_together(finished):
    """One answer, by the mean of the scores for each label."""
    given = ("--learner", "pamir", "-k", "40")
    (both,) = json_of("search", "--label", "plum", "--label", "pear", *given, cwd=finished)
    assert both["query"] == "plum + pear"
    singles = [json_of("search", "--label", label, *given, cwd=finished)[0]["results"] for label in ("plum", "pear")]
    scores = [{result["id"]: result["score"] for result in results} for results in singles]
    for result in both["results"]:
        assert result["score"] == pytest.approx(np.mean([own[result["id"]] for own in scores]), abs=2e-6)
    assert [r["score"] for r in both["results"]] == sorted((r["score"] for r in both["results"]), reverse=True)


def test_the_best_annotator_answers_unless_another_is_named(finished):
    for arguments in (["annotate", "fruit/pear/0.jpg"], ["search", "--label", "pear"], ["annotate", "--label", "pear"]):
        result = visterm(*arguments, "--json", cwd=finished)
        (best,) = re.findall("by (.*), the best on held-out images", result.stderr)
        assert result.stdout == visterm(*arguments, "--learner", best, "--json", cwd=finished).stdout


def test_labels_near_a_label(finished):
    result = visterm("annotate", "--label", "pear", "-k", "9", "--json", cwd=finished)
    (answer,) = json.loads(result.stdout)
    assert answer["query"] == "pear"
    assert sorted(labels_of(answer)) == ["apple", "plum", "quince"]
    assert "-k 9: the learner ranks 3 other labels, no more" in result.stderr
    line = refused("annotate", "--label", "pear", "--learner", "knn", cwd=finished)
    assert "knn has no label vectors to compare; wsabie, pamir, warp, ovr, hier have them" in line
    with_vectors = [name for name in ANNOTATORS if LEARNERS[TRAINED[name]].labels_have_vectors]
    assert with_vectors == ["wsabie", "pamir", "warp", "ovr", "hier"]
    line = refused("annotate", "--label", "pear", "--learner", "oasis", cwd=finished)
    assert "oasis ranks images, not labels; wsabie, pamir, warp" in line


@pytest.mark.slow
def test_several_learners_by_one_option(mine):
    shutil.rmtree(mine / "runs/fruit/learners")
    for names in ("knn,pamir", "knn pamir", "knn, pamir"):
        result = visterm("train", "--learner", names, cwd=mine)
        assert [line.split()[0] for line in result.stderr.splitlines() if ": " in line and "in runs" in line] == [
            "knn",
            "pamir",
        ]
        assert result.stderr.count("Next: ") == 1
        assert result.stderr.endswith("Next: visterm evaluate --run fruit --learner all\n")
    metrics = json_of("evaluate", "--learner", "knn,pamir", cwd=mine)
    assert list(metrics["systems"])[:2] == ["knn", "pamir"]
    result = visterm("train", "--learner", "all", "--json", cwd=mine)
    assert [summary["learner"] for summary in json.loads(result.stdout)] == ["pamir", "knn"]  # as in TRAINED


def test_names_are_checked_and_a_refused_learner_does_not_stop_the_others(mine):
    options = ["--learner", "musl,knn", "--set", "musl.n_metrics=9"]
    result = visterm("train", *options, "--json", cwd=mine, check=2)
    assert "visterm: musl: n_metrics=9 is more than the 4 categories" in result.stderr
    assert "; use --set musl.n_metrics=4\n" in result.stderr
    refusal, summary = json.loads(result.stdout)
    assert "n_metrics=9" in refusal["error"]
    assert summary["learner"] == "knn"
    shutil.rmtree(mine / "runs/fruit/learners")
    line = refused("train", "--learner", "knn", "--learner", "wsabi", cwd=mine)
    assert "did you mean wsabie?" in line
    assert not (mine / "runs/fruit/learners").exists()


def test_a_label_of_every_image(mine):
    rows = [f"{c}/{i}.jpg,{label}\n" for c in CLASSES for i in range(10) for label in (c, "fruit")]
    (mine / "labels.csv").write_text("path,label\n" + "".join(rows))
    visterm("features", "fruit", *small(), "--set", "collection.labels=labels.csv", cwd=mine)
    warning = "warning: every training image has the label fruit, by which all are similar: leave this label out"
    result = visterm("train", "--learner", "oasis", cwd=mine, check=2)
    assert warning in result.stderr
    assert "oasis: no triplet can be drawn: no image has both a related and an unrelated image" in result.stderr
    result = visterm("train", "--learner", "pamir", cwd=mine)
    assert result.stderr.count("every training image has the label") == 1
    assert "better than cosine" not in result.stderr  # cosine's mAP is 1: nothing can be better


def test_a_label_that_came_after_training(mine):
    rows = [f"{c}/{i}.jpg,{c}\n" for c in CLASSES for i in range(10)]
    (mine / "labels.csv").write_text(
        "path,label\n" + "".join(rows) + "".join(f"pear/{i}.jpg,gold\n" for i in range(10))
    )
    visterm("features", "fruit", *small(), "--set", "collection.labels=labels.csv", cwd=mine)
    renew = "'visterm train --learner pamir --run fruit'"
    warning = f"pamir was trained before the training images or their labels changed; {renew} retrains it"
    for arguments in (["annotate", "fruit/pear/0.jpg"], ["annotate", "--label", "pear"], ["search", "--label", "pear"]):
        assert warning in visterm(*arguments, "--learner", "pamir", cwd=mine).stderr
    for command in ("annotate", "search"):
        line = refused(command, "--label", "gold", "--learner", "pamir", cwd=mine)
        assert line == f"visterm: pamir was trained before label 'gold' was added; run {renew} first"


LINEAR = "pamir, warp, ovr, hier, knn"
IMAGE, EVALUATE, ANNOTATE = ["search", "fruit/pear/0.jpg"], ["evaluate"], ["annotate", "fruit/pear/0.jpg"]
IMAGES_OF_LABEL, LABELS_OF_LABEL = ["search", "--label", "pear"], ["annotate", "--label", "pear"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("untrained", "told", "commands", "others"),
    [
        (
            "oasis",
            ", which held-out images recommend: ",
            [IMAGE, EVALUATE],
            f"aroma, wsabie, musl, lego, mcml, {LINEAR}",
        ),
        ("wsabie", "by pamir, the best on held-out images", [ANNOTATE, IMAGES_OF_LABEL], LINEAR),
        ("all but pamir", "by pamir, the only learner", [LABELS_OF_LABEL, IMAGE, EVALUATE], ""),
    ],
)
def test_who_answers_where_the_usual_learner_is_not_trained(mine, untrained, told, commands, others):
    for name in TRAINED if untrained.startswith("all") else [untrained]:
        if name != "pamir":
            shutil.rmtree(mine / "runs/fruit/learners" / name)
    first = others.split(",")[0] or "pamir"
    for arguments in commands:
        result = visterm(*arguments, "--json", cwd=mine)
        assert told in result.stderr
        taken = re.search(r"by (\w+),", result.stderr)[1]
        assert taken != untrained
        assert json.loads(result.stdout) == json_of(*arguments, "--learner", taken, cwd=mine)
        if others:
            line = refused(*arguments, "--learner", untrained, cwd=mine)
            assert f"no trained {untrained}; trained: {others}; use --learner {first}" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "paer"], "no label 'paer'; did you mean pear?"),
        (["--label", "zzz"], "there are apple, pear, plum, quince"),
        (["--label", ""], "--label: the label is empty"),
        (["--label", "pear", "--learner", "wsabi"], "did you mean wsabie?"),
        ([], "no query; give an image file, or --label NAME"),
        ([""], "a query is an empty name; give an image file"),
        (["fruit/pear/0.jpg", "--json", "--format", "csv"], "give only one of them"),
    ],
)
def test_mistakes_are_one_line(finished, arguments, message):
    for command in ("search", "annotate"):
        assert message in refused(command, *arguments, cwd=finished)


@pytest.mark.parametrize(("command", "key"), [("search", "results"), ("annotate", "labels")])
def test_one_bad_query_does_not_stop_the_others(finished, tmp_path, command, key):
    bad = tmp_path / "bad\n.jpg"
    bad.write_text("no image")
    arguments = [command, "fruit/pear/0.jpg", str(bad), "fruit/plum/1.jpg"]
    result = visterm(*arguments, "--json", cwd=finished, check=1)
    first, second, third = json.loads(result.stdout)
    assert first[key]
    assert third[key]
    assert second == {"query": str(bad), key: [], "error": "not an image"}
    assert r"bad\n.jpg: not an image" in result.stderr
    alone = json_of(command, "fruit/plum/1.jpg", cwd=finished)
    assert third == alone[0]
    table = visterm(*arguments, cwd=finished, check=1).stdout
    assert table.count("rank     score") == 2


@pytest.mark.slow
def test_mapped_vectors_teach_and_measure_the_same(mine, monkeypatch):
    names = ["oasis", "wsabie", "knn"]
    learnt, precisions = "runs/fruit/learners/*/files/*.npy", f"runs/fruit/evaluations/{'+'.join(names)}/*.csv"
    visterm("evaluate", "--learner", ",".join(names), cwd=mine)
    made, measured = ({f: f.read_bytes() for f in mine.glob(files)} for files in (learnt, precisions))
    there = set(os.listdir(mine / "runs/fruit"))
    monkeypatch.setattr(vectors, "_AT_ONCE", 3)
    mapped = []

    class Noted(np.memmap):
        def __new__(cls, *args, **kwargs):
            mapped.append(args)
            return super().__new__(cls, *args, **kwargs)

    monkeypatch.setattr(np, "memmap", Noted)
    visterm("train", "--learner", ",".join(names), "--force", cwd=mine)
    visterm("evaluate", "--learner", ",".join(names), "--force", cwd=mine)
    assert mapped
    assert measured
    assert {f: f.read_bytes() for f in mine.glob(learnt)} == made
    assert {f: f.read_bytes() for f in mine.glob(precisions)} == measured
    assert set(os.listdir(mine / "runs/fruit")) == there


def test_a_cut_file_is_made_again_and_force_ignores_a_damaged_checkpoint(mine):
    file = max((mine / "runs/fruit/learners/oasis/files").glob("*.npy"), key=lambda path: path.stat().st_size)
    os.truncate(file, file.stat().st_size - 8)
    result = visterm("train", "--json", cwd=mine)
    assert not json.loads(result.stdout)["up_to_date"]
    assert "missing or damaged" in result.stderr
    assert json_of("train", cwd=mine)["up_to_date"]
    checkpoint = mine / "runs/fruit/learners/oasis.checkpoint"
    checkpoint.mkdir()
    (checkpoint / "record.json").write_text("{")
    line = refused("train", "--set", "oasis.C=0.05", cwd=mine)
    assert "damaged record; run 'visterm train --learner oasis --force --run fruit' to start again" in line
    assert not json_of("train", "--force", cwd=mine)["up_to_date"]
    assert not checkpoint.exists()


@pytest.mark.slow
def test_lost_figures_are_measured_again(mine):
    folder = mine / "runs/fruit/evaluations" / EVERY_ONE
    (folder / "metrics.json").unlink()
    assert "no such file" in json_of("info", cwd=mine)["evaluations"][EVERY_ONE]["error"]
    visterm("evaluate", "--learner", "all", cwd=mine)
    text = (folder / "metrics.json").read_text()
    (folder / "metrics.json").write_text("{" + text[1:].replace('"map"', '"mip"'))  # as many bytes as before
    said = visterm("evaluate", "--learner", "all", cwd=mine).stderr
    assert "metrics.json does not have the checksum it was written with" in said
    assert '"mip"' not in (folder / "metrics.json").read_text()


def test_what_cannot_end_is_refused(mine, monkeypatch):
    monkeypatch.setattr(fitting, "available_memory", lambda: 1e5)
    line = refused("train", "--learner", "mcml", "--force", cwd=mine)
    assert "mcml: vectors of 40 numbers take 0 GB of memory, and 0 GB are free; extract fewer visterms" in line
    assert "--set features.n_visterms=" in line
    monkeypatch.setattr(fitting, "available_memory", lambda: 1e12)
    monkeypatch.setattr(fitting, "_MOST_SECONDS", 1e-9)
    line = refused("train", "--learner", "lego", "--force", cwd=mine)
    assert "lego: vectors of 40 numbers take about 0.0 s on one core; " in line
    assert line.endswith("or train with --time-limit")
    assert "trained in" in visterm("train", "--learner", "lego", "--force", "--time-limit", "1m", cwd=mine).stderr
    monkeypatch.setattr("visterm.learners.musl._FEWEST_ENTRIES", 1.1)
    line = refused("train", "--learner", "musl", "--force", cwd=mine)
    assert "of the 40 k-means visterms, too few" in line
    assert line.endswith("--set features.codebook.kind=forest")


@pytest.mark.slow
def test_the_learner_that_validated_best_is_recommended(finished):
    metrics = json_of("evaluate", "--learner", "all", cwd=finished)
    recommended = metrics["recommended"]
    maps = recommended["validation_map"]
    assert maps[recommended["learner"]] >= 0.8 * max(maps.values())

    assert set(maps) == set(TRAINED) - {"musl", "mcml", "knn"} | {"cosine"}
    assert recommended["not_validated"] == ["musl", "mcml", "knn"]
    last = visterm("evaluate", "--learner", "all", cwd=finished).stderr.splitlines()[-1]
    start = f"Recommended: {recommended['learner']}, for images of any class, by held-out images: mAP "
    assert last.startswith(start)
    assert last.endswith("; not validated: musl, mcml, knn")
    (one,) = set(json_of("evaluate", "--learner", "oasis", cwd=finished)["recommended"]["validation_map"]) - {"cosine"}
    assert one == "oasis"


def test_labels_come_from_the_annotator_that_validated_best(mine):
    for name in set(ANNOTATORS) - {"knn"}:
        note(mine, name, validation=0.9 if name == "pamir" else 0.5)
    from_pamir, default = (
        json_of("annotate", "fruit/pear/0.jpg", *options, cwd=mine) for options in (("--learner", "pamir"), ())
    )
    assert default == from_pamir


def test_precision_and_recall_of_each_label_in_a_table_of_the_report(finished):
    folder = finished / "runs/fruit/evaluations" / EVERY_ONE
    with open(folder / "labels.csv", newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [row["label"] for row in table] == [*CLASSES] * len(ANNOTATORS)
    assert {row["images"] for row in table} == {"4"}
    figures = json.loads((folder / "metrics.json").read_text())["systems"]["ovr"]["annotation"]["per_label"]
    own = [row for row in table if row["system"] == "ovr"]
    precision, recall = (np.mean([float(row[key]) for row in own]) for key in ("precision", "recall"))
    expected = {"labels_per_image": 1, "precision": precision, "recall": recall, "n_labels": 4}
    assert {key: figures[key] for key in expected} == pytest.approx(expected, abs=1e-5)
    assert figures["f1"] == pytest.approx(2 * precision * recall / (precision + recall), abs=1e-5)
    page = (finished / "runs/fruit/evaluations" / EVERY_ONE / "report.html").read_text()
    assert "Each test image is annotated with 1 label." in page
    metrics = json.loads((finished / "runs/fruit/evaluations" / EVERY_ONE / "metrics.json").read_text())
    for name in ANNOTATORS:
        figures = metrics["systems"][name]["annotation"]["per_label"]
        row = f'<th scope="row">{name}</th><td>{figures["precision"]:.3f}</td><td>{figures["recall"]:.3f}</td>'
        assert f"{row}<td>{figures['n_recalled']} of 4</td>" in page
    assert "Each label: wsabie" in page


def test_training_says_what_held_out_images_advise():
    learner = Mock(validation_measure="mAP", n_steps=30, history_=[{"step": 30}], validation_map_=0.9, cosine_map_=0.5)
    learner.worlds_ = None
    console = Mock()
    training_report.report_training("oasis", learner, None, False, Config(), console)
    training_report.report_training("oasis", learner, None, True, Config(), console)
    said = [call.args[0] for call in console.say.call_args_list]
    start = "oasis: validation mAP was still improving when the steps ended, after 30: "
    assert said == [start + "--set oasis.n_steps=60", start + "a longer --time-limit"]
    learner.validation_map_, learner.is_improving = 0.5004, lambda: False  # reads as that of cosine
    console.reset_mock()
    for kind in ("visterms", "deep"):
        training_report.report_training(
            "oasis", learner, None, False, load_config(None, [f"features.kind={kind}"]), console
        )
    start = "oasis is no better than cosine on held-out images (mAP 0.500, cosine 0.500): try "
    assert [call.args[0] for call in console.say.call_args_list] == [
        start + "vectors of a network (visterm features IMAGES --deep), or other settings (visterm tune)",
        start + "other settings (visterm tune)",  # its vectors are those of a network
    ]
    assert (
        training_report._why_no_class(np.array([*"aabbccddefg"]))
        == "4 classes with two training images or more, and 5 are needed"
    )
    assert training_report._why_no_class(np.array([*"aabbccddee"])) == "too few images would be left"
    assert training_report._why_no_class(sp.csr_array(np.eye(3))).startswith("too few labels")
    worlds = {"shares": [1.0], "learner": [0.9, 0.3, 0.5996], "cosine": [0.5, 0.6, 0.6], "n_images": [9, 9, 18]}
    worlds |= {"chance": [0.1, 0.1, 0.1], "clearly_below": [False, True, False]}
    learner = Mock(learned_weight_=1.0, world_="open", worlds_=worlds)
    training_report._say_worlds("oasis", learner, None, console)
    (warning,) = [call.args[0] for call in console.warn.call_args_list]
    assert warning == (
        "oasis is below cosine on held-out images for other classes: mAP 0.300, cosine 0.600; a smaller --set "
        "train.learned_weight, or --learner cosine, is better for these"
    )


def test_time_limit(mine):
    settings = set_all(oasis={"n_steps": 100_000_000, "patience": "null"})
    summary = json_of("train", "--learner", "oasis", "--time-limit", "0.5s", *settings, cwd=mine)
    assert summary["seconds"] > 0.3
    assert summary["steps"] < 100_000_000
    for text in ("0", "2 weeks", "-1s", "m"):
        line = refused("train", f"--time-limit={text}", cwd=mine)
        assert line == f"visterm: --time-limit {text}: expected a time such as 90s, 5m or 1h"


@pytest.mark.slow
def test_hier_learns_with_a_table_of_the_classes(mine):
    """Its siblings are more alike; another table trains it again, the same one elsewhere does not."""
    (mine / "is-a.csv").write_text("label,parent\npear,fruit\nplum,fruit\nfruit,thing\nquince,thing\n")
    given = ("--learner", "hier", *small(), "--set", "hier.is_a=is-a.csv")
    assert not json_of("train", *given, cwd=mine)["up_to_date"]
    learner = load_learner(mine / "runs/fruit/learners/hier/files")
    names, S = learner.classes_.tolist(), learner.class_similarity_
    assert S[names.index("pear"), names.index("plum")] == pytest.approx(2 / 3)  # 1 / 3 below the root of all
    assert S[names.index("pear"), names.index("quince")] == pytest.approx(1 / 3)
    assert S[names.index("pear"), names.index("apple")] == 0  # which the table does not name
    (mine / "copy.csv").write_bytes((mine / "is-a.csv").read_bytes())
    assert json_of("train", *given[:-1], "hier.is_a=copy.csv", cwd=mine)["up_to_date"]
    assert "other settings" not in visterm("evaluate", *given, cwd=mine).stderr
    (mine / "is-a.csv").write_text("label,parent\npear,plum\nplum,pear\n")
    assert "is-a.csv: runs in a circle" in refused("train", *given, cwd=mine)
    (mine / "is-a.csv").write_text("label,parent\ndog,animal\n")
    assert "is-a.csv: names none of the 4 labels of this run" in refused("train", *given, cwd=mine)
    assert "missing.csv" in refused("train", *given[:-1], "hier.is_a=missing.csv", cwd=mine)


def test_clicks_on_training_images_only(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{s}/{c}/{i}.jpg" for s in ("train", "test") for c in CLASSES for i in range(4)])
    rows = "".join(f"{c},train/{c}/{i}.jpg,1\n" for c in CLASSES for i in range(4))
    (tmp_path / "clicks.csv").write_text("query,path,count\n" + rows)
    visterm("features", "fruit", *small(), "--set", "collection.clicks=clicks.csv", cwd=tmp_path)
    visterm("train", cwd=tmp_path)
    line = refused("evaluate", cwd=tmp_path)
    assert "no test image was clicked, so none is a query: " in line
    assert "clicks.csv names training images only; add clicks on test images, or let visterm draw the split" in line


# -- the weight of the learner ----------------------------------------------------------------------------------------


def trained(folder, name):
    """The learner of the run, and the record of its training."""
    learner = folder / "runs/fruit/learners" / name
    return load_learner(learner / "files"), json.loads((learner / "record.json").read_text())


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """A folder with a run of sparse vectors, of six classes of eight images; only `work` trains."""
    folder = tmp_path_factory.mktemp("six")
    rng = np.random.default_rng(0)
    X = rng.random((48, 30)) * (rng.random((48, 30)) < 0.15)
    X[np.arange(48), 4 * np.repeat(np.arange(6), 8) + rng.integers(0, 4, 48)] += 1
    sp.save_npz(folder / "fruit.npz", sp.csr_matrix(X))
    (folder / "ids.txt").write_text("\n".join(f"{label}/{i}.jpg" for label in "abcdef" for i in range(8)))
    given = ("--vectors", "fruit.npz", "--ids", "ids.txt", *small(), "--set", "split.train=6", "--set", "split.test=2")
    visterm("features", *given, cwd=folder)
    return folder


@pytest.fixture
def work(six, tmp_path):
    return copy_run(six, tmp_path)


@pytest.mark.parametrize("name", ["oasis", "wsabie"])
def test_training_says_how_much_counts_and_what_it_does(work, name):
    told = visterm("train", "--learner", name, cwd=work).stderr
    learner, record = trained(work, name)
    worlds = record["result"]["worlds"]
    assert worlds == {"for": "open"} | learner.worlds_
    assert record["result"].get("learned_weight", 1) == learner.learned_weight_
    assert record["config"]["train"] == {"world": "open", "learned_weight": None}
    figures = [f"{a:.3f} ({b:.3f})" for a, b in zip(worlds["learner"], worlds["cosine"], strict=True)]
    kinds = ("classes that it was trained on", "other classes", "both in one gallery")
    words = ", ".join(f"{figure} for {kind}" for figure, kind in zip(figures, kinds, strict=True))
    share = f"{learner.learned_weight_:.0%}"
    assert (
        f"{name}: {share} of the learned similarity counts, beside cosine; mAP on held-out images (cosine): {words}\n"
    ) in told
    for below, kind in zip(worlds["clearly_below"], kinds, strict=True):
        assert (f"below cosine on held-out images for {kind}" in told) == below
    assert json_of("train", "--learner", name, cwd=work)["up_to_date"]
    assert json_of("train", "--learner", name, "--for", "open", cwd=work)["up_to_date"]
    assert not json_of("train", "--learner", name, "--for", "unseen", cwd=work)["up_to_date"]


def test_the_papers_protocol_leaves_the_record_as_it_was(work):
    """Nothing is held out but images, nothing is chosen, and all that is learned counts."""
    papers = ("--for", "seen", "--set", "train.learned_weight=1")
    told = visterm("train", *papers, cwd=work).stderr
    learner, record = trained(work, "oasis")
    assert set(record["config"]) == {"oasis", "seed"}
    assert not {"learned_weight", "worlds"} & set(record["result"])
    assert (learner.learned_weight_, learner.unseen_, learner.worlds_) == (1, None, None)
    assert "of the learned similarity counts" not in told
    assert not json_of("train", "--for", "open", "--set", "train.learned_weight=null", cwd=work)["up_to_date"]


def test_a_share_that_is_given_counts(work):
    told = visterm("train", "--set", "train.learned_weight=0.3", cwd=work).stderr
    assert "oasis: 30% of the learned similarity counts, beside cosine; mAP on held-out images (cosine): " in told
    learner, record = trained(work, "oasis")
    assert (learner.learned_weight_, record["result"]["learned_weight"], record["result"]["worlds"]["shares"]) == (
        0.3,
        0.3,
        [0.3],
    )
    # Of learners that do not validate, too, at the scale with which all that they say varies as the look does.
    for options in (("--learner", "musl,knn"), ("--learner", "wsabie", "--set", "wsabie.validation_fraction=null")):
        visterm("train", "--set", "train.learned_weight=0.3", *options, cwd=work)
    searcher = Searcher(work / "runs/fruit")
    for name in ("musl", "knn", "wsabie"):
        learner, record = trained(work, name)
        assert (learner.learned_weight_, record["result"]["learned_weight"]) == (0.3, 0.3), name
        assert (learner.scale_ == 1) == (name == "knn"), name  # which compares by the look
        assert "worlds" not in record["result"], name
        blend = searcher.blend(name)
        assert (blend.learned_weight, blend.scale) == (0.3, learner.scale_), name


def test_too_few_classes_leave_the_cautious_share_and_one_line_says_so(finished, mine):
    told = visterm("train", "--force", cwd=mine).stderr
    (line,) = [line for line in told.splitlines() if "of the learned similarity counts" in line]
    assert line.startswith(
        "oasis: 40% of the learned similarity counts, beside cosine, the cautious share, as no class could be held "
        "out (4 classes with two training images or more, and 5 are needed); mAP on held-out images (cosine): "
    )
    assert "warning: no class" not in told
    assert trained(mine, "oasis")[0].learned_weight_ == CAUTIOUS_SPARSE


def test_an_interrupted_training_for_another_world_is_named(work, monkeypatch):
    """Its checkpoint is resumed for the same world alone."""

    def killed(self, learner):
        self._save(learner, "")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.CheckpointCallback, "__call__", killed)
        visterm("train", "--for", "unseen", cwd=work, check=130)
    line = refused("train", "--set", "train.learned_weight=0.5", cwd=work)
    assert "is of an interrupted training with world=unseen, now open; learned_weight=None, now 0.5: train with" in line
    told = visterm("train", "--for", "unseen", cwd=work).stderr
    assert "resuming from the checkpoint" in told
    resumed = trained(work, "oasis")[0]
    visterm("train", "--for", "unseen", "--force", cwd=work)
    whole = trained(work, "oasis")[0]
    np.testing.assert_array_equal(resumed.W_, whole.W_)
    assert (resumed.learned_weight_, resumed.worlds_) == (whole.learned_weight_, whole.worlds_)


def test_what_is_measured_is_the_share_that_counts(work):
    """Precision by the evaluation is that of the blend, as is that of a search."""
    visterm("train", "--learner", "wsabie", "--set", "train.learned_weight=0.3", cwd=work)
    at = {0.3: json_of("evaluate", "--learner", "wsabie", cwd=work)["systems"]}
    visterm("train", "--learner", "wsabie", "--set", "train.learned_weight=0", cwd=work)
    at[0.0] = json_of("evaluate", "--learner", "wsabie", cwd=work)["systems"]
    assert at[0.0]["wsabie"]["map"] == pytest.approx(at[0.0]["cosine"]["map"], abs=1e-6)
    assert at[0.3]["wsabie"]["map"] != at[0.3]["cosine"]["map"]
