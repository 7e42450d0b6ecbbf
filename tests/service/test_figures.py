"""Figures of an evaluation for people."""

import csv
import shutil

import pytest

from visterm.pipeline.errors import UserError
from visterm.service.figures import different, read_figures


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished / "runs/fruit/evaluations/oasis", tmp_path / "oasis")


def test_figures_agree_with_the_files(folder):
    figures = read_figures(folder, n_queries=3)
    with open(folder / "queries.csv", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["system"] == "oasis"]
    assert figures["measure"] == "mAP"
    assert (figures["learner"], figures["baseline"], figures["n_queries"]) == ("oasis", "cosine", len(rows))
    for row in figures["labels"]:
        values = [float(query["average_precision"]) for query in rows if query["labels"] == row["label"]]
        assert row["queries"] == len(values)
        assert row["learner"] == pytest.approx(sum(values) / len(values), abs=1e-5)
        assert row["baseline"] is not None
    assert figures["worst"][0]["value"] == min(float(query["average_precision"]) for query in rows)
    assert len({query["labels"][0] for query in figures["best"]}) == 3  # of different labels
    assert all(query["results"] for query in figures["best"])
    lines = ["query,rank,path,score,labels,relevant,system"]
    lines += [f"apple/1.jpg,{i},x/{i}.jpg,1,{'apple' if i < 8 else 'pear'},{int(i < 8)},oasis" for i in range(1, 11)]
    (folder / "neighbours.csv").write_text("\n".join(lines) + "\n")
    lines = [
        "query,labels,system,average_precision,first_relevant,precision_at_10",
        "apple/1.jpg,apple,oasis,0.5,1,0.7",
    ]
    (folder / "queries.csv").write_text("\n".join(lines) + "\n")
    assert read_figures(folder)["confusions"] == [{"label": "apple", "taken_for": "pear", "share": 0.3, "queries": 1}]


def test_damaged_figures_are_a_user_error(folder):
    (folder / "queries.csv").write_text("query,system\na,oasis\n")
    with pytest.raises(UserError, match="evaluate --force"):
        read_figures(folder)


def test_each_label_has_its_turn():
    ranked = [{"labels": [label], "n": i} for i, label in enumerate("aaabac")]
    assert [query["n"] for query in different(ranked, 4)] == [0, 3, 5, 1]
