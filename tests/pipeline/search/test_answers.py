"""The answers of a search in a notebook."""

import base64
import html
import json
import re

import pytest

from visterm.features import decode_image
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.answers import QUERIES_SHOWN, Answers


def test_images_and_labels_are_shown_and_missing_files_said(searcher, outside, finished, tmp_path):
    (outside / "bad.jpg").write_text("no image")
    answers = searcher.search([finished / "fruit/pear/1.jpg", outside / "bad.jpg"], k=3, learner="cosine")
    assert json.loads(json.dumps(answers)) == answers  # a list as any other
    page = answers._repr_html_()
    results = answers[0]["results"]
    assert re.findall(r'title="(.*?)"', page) == [result["path"] for result in results]
    for result in results:
        assert f"<figcaption>{result['score']:.3f} · {result['labels'][0]}</figcaption>" in page
    for uri in re.findall(r"data:image/webp;base64,([^\"]*)", page):
        assert decode_image(base64.b64decode(uri), "x").shape == (96, 128, 3)
    assert page.count("<img") == 3
    assert html.escape(answers[1]["error"]) in page
    answers = searcher.search_label("pear", k=2, learner="wsabie")
    assert answers._repr_html_().count("<img") == 2
    elsewhere = Answers([{"query": '<a href="">', "results": answers[0]["results"]}], tmp_path, 10_000)
    page = elsewhere._repr_html_()
    assert page.count("file gone") == 2
    assert "<a href" not in page
    [first, *_] = searcher.images
    shown = searcher.show([first.id, f"id:{first.id}", "pear/1.jpg"])
    assert shown[0] == shown[1] == {"id": first.id, "path": first.path, "labels": list(first.labels)}
    assert shown._repr_html_().count("<img") == 3
    assert f"<figcaption>id:{shown[2]['id']} · pear</figcaption>" in shown._repr_html_()
    assert searcher.show("pear/1.jpg") == shown[2:]
    with pytest.raises(UserError, match="has no image id:999"):
        searcher.show(999)
    answers = Answers([{"query": str(i), "results": []} for i in range(QUERIES_SHOWN + 5)], tmp_path, 10_000)
    assert answers._repr_html_().endswith("<p>and 5 more queries</p>")
