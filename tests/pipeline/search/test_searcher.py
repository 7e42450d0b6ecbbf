"""A searcher, from Python and from the command line: images, labels, warnings."""

import contextlib
import json
import sqlite3
import subprocess
import sys

import pytest
from running import refused, visterm

from visterm.learners.validation import CAUTIOUS
from visterm.pipeline import Searcher
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError


def test_as_many_results_as_there_are(searcher):
    (answer,) = searcher.search("id:1", k=1_000_000)
    assert len(answer["results"]) == 29
    (answer,) = searcher.search_label("pear", k=1_000_000)
    assert len(answer["results"]) == 30
    for ask in (searcher.search, searcher.annotate):
        with pytest.raises(UserError, match="k=0: k must be at least 1"):
            ask("id:1", k=0)


def test_every_learner_answers_as_the_command_does(searcher, finished):
    for name in searcher.learners:
        (answer,) = searcher.search("id:7", k=5, learner=name)
        told = visterm("search", "id:7", "-k", 5, "--learner", name, "--json", cwd=finished).stdout
        assert json.loads(told) == [answer]
        assert all(searcher.images[searcher.place[r["id"]]].path == r["path"] for r in answer["results"])
    with pytest.raises(UserError, match="did you mean oasis"):
        searcher.search("id:1", learner="oassis")
    with pytest.raises(UserError, match="no trained aroma"):
        searcher.search("id:1", learner="aroma")


@pytest.mark.parametrize("name", ["oasis", "wsabie", "cosine"])
def test_a_share_of_what_was_learned(searcher, finished, name):
    """Nothing of it is the plain look, all of it the learner; between them one index serves every share."""
    (look,) = searcher.search("id:7", k=29, learner="cosine")
    (learned,) = searcher.search("id:7", k=29, learner=name, learned=1)
    chosen = searcher.share(name)
    assert chosen == (1 if name == "cosine" else CAUTIOUS)  # three classes are too few to hold some out
    assert searcher.search("id:7", k=29, learner=name) == searcher.search("id:7", k=29, learner=name, learned=chosen)
    none = searcher.search("id:7", k=29, learner=name, learned=0.0)[0]
    assert [row["id"] for row in none["results"]] == [row["id"] for row in look["results"]]
    scale = searcher.blend(name, 0.3).scale
    (mixed,) = searcher.search("id:7", k=29, learner=name, learned=0.3)
    of_look, of_learned = ({row["id"]: row["score"] for row in found["results"]} for found in (look, learned))
    for row in mixed["results"]:
        expected = 0.7 * of_look[row["id"]] + 0.3 * scale * of_learned[row["id"]]
        assert row["score"] == pytest.approx(expected, abs=1e-4)
    galleries = [searcher.index(name, share).gallery_ for share in (0.1, 0.6)]
    assert galleries[0] is galleries[1]
    told = visterm("search", "id:7", "-k", 29, "--learner", name, "--learned", 0.3, "--json", cwd=finished).stdout
    assert json.loads(told) == [mixed]
    (several,) = [searcher.search_examples([("id:7", 1), ("id:9", 0.5)], 5, name, learned=share) for share in (0.3,)]
    assert len(several["results"]) == 5


def test_what_is_no_share_is_refused(searcher, finished):
    with pytest.raises(UserError, match="learned must be a number from 0 to 1, got -0.5"):
        searcher.search("id:7", learned=-0.5)
    for share in ("1.5", "-0.1", "nan", "lots"):
        assert "--learned" in visterm("search", "id:7", f"--learned={share}", cwd=finished, check=2).stderr
    assert "images for a label by itself" in refused("search", "--label", "pear", "--learned", "0.5", cwd=finished)


def test_labels(searcher):
    (plum,) = searcher.search_label("plum", k=3)
    assert plum["query"] == "plum"
    assert plum["results"][0]["labels"] == ["plum"]
    (both,) = searcher.search_label(["plum", "pear"], k=3)
    assert both["query"] == "plum + pear"
    assert searcher.annotate("pear/0.jpg", k=1)[0]["labels"][0]["label"] == "pear"
    assert {entry["label"] for entry in searcher.similar_labels("pear", k=9)[0]["labels"]} == {"apple", "plum"}
    with pytest.raises(UserError, match="did you mean pear"):
        searcher.search_label("peer")
    with pytest.raises(UserError, match="oasis ranks images, not labels"):
        searcher.annotate("id:1", learner="oasis")


def test_warnings_go_to_the_console_or_to_the_log(mine, capsys, caplog):
    with contextlib.closing(sqlite3.connect(mine / "runs/fruit/collection/catalogue.sqlite")) as db, db:
        db.execute("UPDATE images SET labels = '{\"quince\": 1.0}' WHERE path = ?", (b"pear/0.jpg",))
        db.execute("UPDATE images SET split = 'train' WHERE path = ?", (b"pear/0.jpg",))
    with caplog.at_level("WARNING"):
        searcher = Searcher(mine / "runs/fruit")
        searcher.search("id:1")
        searcher.search("id:2")
    (record,) = [r for r in caplog.records if r.name == "visterm.pipeline.search.searcher"]
    assert "oasis was trained before the training images or their labels changed" in record.getMessage()
    Searcher(mine / "runs/fruit", console=Console()).search("id:1")
    assert "warning: oasis was trained before" in capsys.readouterr().err


def test_importing_the_room_is_quick():
    """The class is loaded when it is asked for: ``visterm --help`` must not wait for it."""
    code = "import sys, visterm.pipeline; assert 'numpy' not in sys.modules; visterm.pipeline.Searcher"
    subprocess.run([sys.executable, "-c", code], check=True)
