"""What filters, examples and duplicates do to a search."""

import shutil

import pytest
from running import json_of, paths_of, refused, visterm

from visterm.pipeline.search.labels import UnknownLabel


def test_filters_leave_the_order_and_the_scores_as_they_are(searcher):
    (whole,) = searcher.search("id:2", 30)
    (few,) = searcher.search("id:2", 30, label="plum")  # an index of its own
    (most,) = searcher.search("id:2", 30, not_label="plum")  # the index of all
    for answer, kept in ((few, "plum/"), (most, ("apple/", "pear/"))):
        wanted = [(row["path"], row["score"]) for row in whole["results"] if row["path"].startswith(kept)]
        assert [(row["path"], row["score"]) for row in answer["results"]] == wanted
        assert [row["rank"] for row in answer["results"]] == list(range(1, len(wanted) + 1))
    (rest,) = searcher.search("id:2", 5, not_label="plum", offset=4)
    assert rest["results"] == most["results"][4:9]
    assert searcher.search("id:2", offset=100)[0]["results"] == []
    assert searcher.search("id:2", label="plum", folder="pear")[0]["results"] == []


def test_labels_are_ranked_among_the_images_that_pass(searcher, finished):
    (whole,) = searcher.search_label("pear", 30)
    (some,) = json_of("search", "--query-label", "pear", "--label", "plum", "-k", "30", cwd=finished)
    assert paths_of(some) == [path for path in paths_of(whole) if path.startswith("plum/")]
    (rest,) = json_of("search", "--label", "pear", "--not-label", "pear", "--offset", "2", "-k", "3", cwd=finished)
    assert paths_of(rest) == [path for path in paths_of(whole) if not path.startswith("pear/")][2:5]
    assert [row["rank"] for row in rest["results"]] == [3, 4, 5]
    asked = ("search", "--label", "pear", "--label", "plum")
    together = visterm("search", "--query-label", "pear", "--query-label", "plum", cwd=finished).stdout
    assert visterm(*asked, cwd=finished).stdout == together
    assert searcher.search_label("pear", folder="nowhere") == [{"query": "pear", "results": []}]


def test_duplicates_of_a_query_and_of_results_are_skipped(mine):
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "fruit/pear/again.jpg")
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "from outside.jpg")
    visterm("features", "fruit", cwd=mine)
    for query in ("pear/0.jpg", "from outside.jpg"):
        (answer,) = json_of("search", query, "-k", "50", cwd=mine)
        (without,) = json_of("search", query, "-k", "50", "--exclude-duplicates", cwd=mine)
        copies = {"pear/0.jpg", "pear/again.jpg"} & set(paths_of(answer))
        assert copies
        assert paths_of(without) == [path for path in paths_of(answer) if path not in copies]
    (other,) = json_of("search", "pear/1.jpg", "-k", "50", "--exclude-duplicates", cwd=mine)
    assert len(other["results"]) == 29
    assert sum(path in ("pear/0.jpg", "pear/again.jpg") for path in paths_of(other)) == 1


def test_a_page_of_examples_folders_explained_and_labels_unknown(finished, tmp_path, searcher):
    page = tmp_path / "found.html"
    visterm("search", "id:2", "--example", "id:9", "--label", "pear", "--html", page, cwd=finished)
    assert page.read_text().count('<span class="rank"') == 10
    assert refused("search", "id:1", "--before", "1990", cwd=finished).endswith("no image passes --before 1990")
    for options in ({"label": "paer"}, {"not_label": ["pear", "paer"]}):
        with pytest.raises(UnknownLabel, match="did you mean pear"):
            searcher.search("id:1", **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["id:1", "--query-label", "pear"], "give images or --query-label, not both: id:1, --query-label pear"),
        (["id:1", "--label", "pear", "--folder", "plum"], "no image passes --label pear --folder plum"),
        (["id:1", "--example", "none.jpg"], "example none.jpg: cannot be read"),
        (["--not-label", "pear"], "no query; give an image file"),
    ],
)
def test_mistakes_are_one_line(finished, arguments, message):
    assert message in refused("search", *arguments, cwd=finished)
