"""The HTML page of search results."""

import html
import json
import os
import re
import shutil
from urllib.parse import unquote, unquote_to_bytes

from running import refused, visterm

from visterm.features import read_image
from visterm.pipeline.report import page as report_page
from visterm.plugins.page import results_page


def page_of(folder, *arguments, cwd=None, check=0):
    """Search, with a page in a folder; what the command said, and the page."""
    result = visterm("search", *arguments, "--html", folder / "found.html", cwd=cwd or folder, check=check)
    return result, (folder / "found.html").read_text()


def test_a_page_of_answers(mine, outside):
    result, page = page_of(mine, outside, "-k", "4")
    assert result.stdout == f"{mine / 'found.html'}\n"
    assert "Nearest to 3 queries" in page
    assert "Run fruit: 30 images, ranked by oasis" in page
    assert page.count('<article class="row"') == 3
    assert page.count('<span class="rank"') == 12
    assert "http" not in page.replace("http-equiv", "")  # nothing is loaded from anywhere
    assert "<script" not in page
    assert "@media (prefers-color-scheme: dark)" in page
    links = re.findall(r'<a class="tile" href="([^"]*)"', page)
    assert len(links) == 3 + 12
    for link in links:
        assert read_image(mine / unquote(html.unescape(link))).size
    pictures = re.findall(r'<image id="(t\d+)"', page)
    assert len(pictures) == len(set(pictures)) == len(set(links))  # each is stored once
    assert set(re.findall(r'href="#(t\d+)"', page)) == set(pictures)


def test_a_page_beside_other_formats_and_for_labels(finished, tmp_path):
    result, page = page_of(tmp_path, "id:1", "--json", cwd=finished)
    assert json.loads(result.stdout)[0]["query"] == "id:1"
    assert "pictures in " in result.stderr
    assert "Nearest to id:1" in page
    _, page = page_of(tmp_path, "--label", "pear", "--label", "plum", "-k", "3", cwd=finished)
    assert "ranked by wsabie" in page
    assert page.count('<span class="label">') == 1
    assert "pear + plum" in page


def test_names_with_markup_stay_text(mine):
    name = "<img src=x onerror=alert(1)>\"' & #?%.jpg"
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "fruit/pear" / name)
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "javascript:alert(1).jpg")
    with open(os.path.join(os.fsencode(mine / "fruit/pear"), b"\xff\n.jpg"), "wb") as stream:
        stream.write((mine / "fruit/pear/0.jpg").read_bytes())
    visterm("features", "fruit", cwd=mine)
    (mine / "<b>.jpg").write_text("not an image")
    _, page = page_of(mine, "javascript:alert(1).jpg", "<b>.jpg", "-k", "4", "--learner", "cosine", check=1)
    assert "<img" not in page
    assert "<b>" not in page
    assert 'href="javascript' not in page.replace("javascript%3A", "")
    assert "&lt;b&gt;.jpg: not an image" in page
    assert r"\xff\n.jpg" in page
    for link in re.findall(r'<a class="tile" href="([^"]*)"', page):
        assert (mine / os.fsdecode(unquote_to_bytes(html.unescape(link)))).exists()


def test_the_page_stays_small(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(results_page, "PICTURES", 12)
    _, page = page_of(tmp_path, *(f"id:{i}" for i in range(1, 31)), "-k", "5", cwd=finished)
    assert 6 <= page.count("<image id=") <= 12
    assert re.search(r"\d+ (query|queries) not shown", page)
    monkeypatch.setattr(results_page, "PICTURES", 900)
    monkeypatch.setattr(results_page, "RESULTS_SHOWN", 7)
    _, page = page_of(tmp_path, "id:1", "-k", "20", cwd=finished)
    assert page.count('<span class="rank"') == 7
    assert "The first 7 of 20 results" in page

    monkeypatch.setattr(report_page, "SIZE_WANTED", 40_000)
    _, page = page_of(tmp_path, *(f"id:{i}" for i in range(1, 31)), "-k", "5", cwd=finished)
    assert 1 <= page.count('<article class="row"') < 30


def test_a_page_takes_no_place_of_something_else_and_shows_placeholders(mine):
    (mine / "folder.html").mkdir()
    before = (mine / "fruit/pear/0.jpg").read_bytes()
    for name, message in (
        ("fruit/pear/0.jpg", "a page needs a name that ends in .html"),
        ("none/found.html", "no such folder: none"),
        ("folder.html", "this is a folder"),
    ):
        assert message in refused("search", "id:1", "--html", name, cwd=mine)
    assert (mine / "fruit/pear/0.jpg").read_bytes() == before
    (mine / "fruit/pear/5.jpg").write_bytes(b"no picture")
    _, page = page_of(mine, "pear/0.jpg", "-k", "29")
    assert page.count("cannot be read</span>") == 1
