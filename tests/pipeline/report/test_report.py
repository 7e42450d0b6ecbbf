import dataclasses
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from running import CHROMIUM

from visterm.pipeline.report import charts
from visterm.pipeline.report import data as report_data
from visterm.pipeline.report import page as report_page
from visterm.pipeline.report import text as report_text
from visterm.pipeline.report.charts import write_precision_curve
from visterm.pipeline.report.data import HeldOut, History, Hits, OpenFigures, Query, ReportData, Result, System
from visterm.pipeline.report.page import render_report, verdict
from visterm.retrieval import Comparison

VOID = {"meta", "link", "br", "input", "wbr", "img"}


class Page(HTMLParser):
    """Every element, and the text outside style and script. Refuses tags that do not nest."""

    def __init__(self, html):
        super().__init__()
        self.elements = []
        self.words = []
        self.open = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if not {"style", "script"} & set(self.open):
            self.words.append(text)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))

    def all(self, tag, **wanted):
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def read_image(path):
    if "broken" in path:
        raise OSError("truncated")
    rng = np.random.default_rng(len(path))
    return np.kron(rng.integers(0, 255, (6, 8, 3)), np.ones((40, 40, 1))).astype(np.uint8)


def some_data(n_queries=12, path="{label}/img_{i}.jpg", **changes):
    labels = ["beach", "watch", "tree"]
    queries = []
    for i in range(n_queries):
        label = labels[i % 3]
        results = tuple(
            Result(path.format(label=labels[(i + r) % 3], i=r), (labels[(i + r) % 3],), r % 3 == 0, 1 / (r + 1))
            for r in range(10)
        )
        queries.append(
            Query(
                path.format(label=label, i=i), (label,), Hits((i + 1) / 20, 1 + i % 4, 0.4), Hits(0.3, 2, 0.3), results
            )
        )
    better = Comparison(0.084, 0.0001, 8, 1, 3)
    data = ReportData(
        title="Evaluation of oasis",
        systems=(
            System("oasis", 0.230, (0.215, 0.246), {1: 0.4, 10: 0.3}, np.linspace(0.4, 0.2, 20), 100_000, 93.4, better),
            System("cosine", 0.146, (0.13, 0.16), {1: 0.3, 10: 0.2}, tuple(np.linspace(0.3, 0.1, 20))),
            System("chance", 0.05, None, {1: 0.05, 10: 0.05}, (0.05,) * 20),
        ),
        queries=tuple(queries),
        n_queries=n_queries,
        n_gallery=500,
        histories=(History((0, 1000, 2000), (0.14, 0.25, 0.24), 1000, 0.15),),
        warnings=("3 duplicates across the split",),
        facts={"command": "visterm evaluate --run demo", "seed": "0"},
        durations={"train": 93.4},
        environment={"python": "3.11"},
        config="learner:\n  name: oasis\n",
    )
    return dataclasses.replace(data, **changes)


def page_of(tmp_path, data, **options):
    (tmp_path / "report.html").write_bytes(render_report(data, read_image, **options))
    return Page((tmp_path / "report.html").read_text("utf-8"))


def test_an_interval_says_what_it_speaks_of(tmp_path):
    """Over classes, where there are several; a few of them make no paired test clear, and the report says so."""
    page_of(tmp_path, some_data(n_classes=4))
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "(95 % interval for other classes 0.215 to 0.246)" in text
    assert "only 4 classes: others may rank quite differently" in text
    assert "Where the mAP of as many other classes like these (4 here) would mostly lie" in text
    page_of(tmp_path, some_data(n_classes=6))
    assert "only 6 classes" not in (tmp_path / "report.html").read_text("utf-8")


def test_a_whole_report(tmp_path):
    page = page_of(tmp_path, some_data())
    assert page.all("html", lang="en")
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {"summary", "charts", "galleries", "queries", "run", "glossary"} <= ids
    for words in [
        "oasis ranks better than cosine: mAP 0.230 (95 % interval 0.215 to 0.246) against 0.146, 1.58 times as much",
        "better on 8 of 12 queries, worse on 3, equal on 1. A random order would reach 0.050.",
        "3 duplicates across the split",
        "only 12 queries",
        "0.215 to 0.246",
        "100,000",
        "1 min 33 s",
        "sign-flip permutation test",
        "mAP of each label",
        "marks step 1,000, the best",
        "Best: the highest average precision",
        "Most harmed: the largest losses",
        "first relevant at rank 3",
        "visterm evaluate --run demo",
        "name: oasis",
        "neighbours.csv",
    ]:
        assert words in page.text, words
    for words in (
        "Classes that were trained on",
        "below cosine",
        "k-NN",
        "labels P@",
        "sibling P@",
        "Groups of categories",
        "Side by side",
    ):
        assert words not in page.text, words  # what does not apply
    alternatives = [attributes["aria-label"] for attributes in page.all("svg", role="img")]
    assert "Result 4, beach/img_3.jpg, label beach, relevant" in alternatives
    assert "Result 2, watch/img_1.jpg, label watch, not relevant" in alternatives
    assert "Query, tree/img_11.jpg, label tree" in alternatives
    assert page.text.count("✓") > 10
    assert page.text.count("✗") > 10
    stored = [attributes["id"] for attributes in page.all("image")]
    used = [attributes["href"][1:] for attributes in page.all("use") if "href" in attributes]  # not those of charts
    assert len(stored) == len(set(stored))
    assert set(used) == set(stored)
    assert len(used) > 3 * len(stored)
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html
    assert "@import" not in html
    for tag, attributes in page.elements:
        for name in ("src", "href"):
            place = attributes.get(name, "#")
            beside = tag == "a" and place in report_data.FILES_BESIDE
            assert place.startswith(("#", "data:")) or beside, (tag, place)
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    assert policy.startswith("default-src 'none'")


@pytest.mark.slow
def test_the_closing_line_is_last(tmp_path):
    page = page_of(tmp_path, some_data(closing="Take cells <next>."))
    assert page.text.rstrip().endswith("Take cells <next>.")
    assert not page_of(tmp_path, some_data()).all("p", id="closing")


def test_worst_queries_come_first_and_the_table_is_capped(tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "ROWS_SHOWN", 5)
    page = page_of(tmp_path, some_data())
    assert "The 5 worst of 12 queries; all are in neighbours.csv." in page.text
    table = page.text[page.text.index("Queries, worst first") :]
    assert table.index("beach/img_0.jpg") < table.index("watch/img_1.jpg") < table.index("watch/img_4.jpg")
    assert "tree/img_5.jpg" not in table


def test_galleries_choose_the_right_queries():
    galleries = {g["id"]: [q.path for q in g["queries"]] for g in report_page._galleries(some_data().queries, 2)}
    assert galleries == {
        "best": ["tree/img_11.jpg", "watch/img_10.jpg"],
        "median": ["tree/img_5.jpg", "beach/img_6.jpg"][::-1],
        "worst": ["beach/img_0.jpg", "watch/img_1.jpg"],
        "improved": ["tree/img_11.jpg", "watch/img_10.jpg"],
        "harmed": ["beach/img_0.jpg", "watch/img_1.jpg"],
    }


def test_verdict():
    for a, b, p_value, expected in (
        (0.2, 0.1, 0.01, "oasis ranks better than cosine: mAP 0.200 against 0.100, 2.00 times as much"),
        (0.1, 0.2, 0.01, "oasis ranks worse than cosine"),
        (0.2, 0.1, 0.30, "oasis is not clearly different from cosine"),
        (0.9212, 0.9214, 0.01, "oasis ranks worse than cosine: mAP 0.9212 against 0.9214; better on"),
        (0.9212, 0.9214, 0.30, "oasis is not clearly different from cosine: mAP 0.921 against 0.921; better on"),
        (0.5, 0.5, 0.01, "oasis ranks as well as cosine: mAP 0.500 against 0.500; better on"),
    ):
        systems = System("oasis", a, comparison=Comparison(a - b, p_value, 1, 2, 3)), System("cosine", b)
        assert verdict(some_data(systems=systems)).startswith(expected)
    for p_values, expected in (
        ((0.3, 0.05), "(0.300); knn, ovr are not distinguishable from it (paired test, p >= 0.05). oasis ranks better"),
        ((0.049, 0.3), "(0.300); knn is not distinguishable from it (paired test, p >= 0.05). oasis ranks better"),
        ((0.001, 0.001), "(0.300). oasis ranks better"),
    ):
        ovr, knn = System("ovr", 0.27, p_of_best=p_values[0]), System("knn", 0.28, p_of_best=p_values[1])
        oasis = System("oasis", 0.30, comparison=Comparison(0.1, 0.01, 1, 2, 3))
        told = verdict(some_data(systems=(ovr, oasis, knn, System("cosine", 0.2))))
        assert told.startswith(f"Of 3 learners oasis has the highest mAP {expected}")
    assert [report_text.p_value_text(p) for p in (0.5, 0.0123, 0.001, 0.0001)] == ["0.5", "0.012", "0.001", "< 0.001"]


def several_learners(n=9):
    """All looks are used, and one of them twice."""
    data = some_data()
    oasis, cosine, chance = data.systems
    curves = [np.linspace(0.3 + i / 90, 0.2, 20) for i in range(n)]
    others = tuple(
        dataclasses.replace(oasis, name=f"learner{i}", map=0.2 + i / 100, precision_curve=curve)
        for i, curve in enumerate(curves)
    )
    figures = {"knn_accuracy": 0.61, "label_precision_at": {1: 0.33, 5: 0.12}, "sibling_precision_at": {1: 0.44}}
    annotator = dataclasses.replace(others[0], name="wsabie", **figures)
    systems = (dataclasses.replace(oasis, knn_accuracy=0.62), annotator, *others, cosine, chance)
    sides = {system.name: data.queries[0].results for system in systems[:-1]}
    return dataclasses.replace(
        data,
        systems=systems,
        accuracy_neighbours=5,
        histories=(*data.histories, History((0, 10), (0.1, 0.3), 10, None, "wsabie", "p@1")),
        side_by_side=((data.queries[0], sides), (data.queries[1], sides)),
        groups={"wsabie": (("beach", "tree"), ("watch",), ())},
    )


@pytest.mark.slow
def test_several_learners_come_in_one_table_one_plot_and_side_by_side(tmp_path):
    data = several_learners()
    page = page_of(tmp_path, data)
    assert verdict(data).startswith(
        "Of 11 learners learner8 has the highest mAP (0.280). learner8 ranks better than cosine: mAP 0.280"
    )
    summary = page.text[page.text.index("Summary") : page.text.index("Charts")]
    for words in ("k-NN accuracy", "0.620", "labels P@1", "0.330", "sibling P@1", "0.440", "learner8"):
        assert words in summary, words
    drawing = charts.precision_svg(data)
    assert {color for color, *_ in charts.LOOKS.values()} <= set(re.findall(r"#[0-9a-f]{6}", drawing))
    for words in ("Along training: oasis", "Along training: wsabie", "p@1 on validation images", "training image"):
        assert words in page.text, words
    groups = page.text[page.text.index("Groups of categories: wsabie") : page.text.index("Charts")]
    assert "1beach, tree (2)" in groups
    assert "2watch" in groups
    assert "3none" in groups
    write_precision_curve(tmp_path, data)
    assert page.all("label", **{"for": "tab-sides"})
    assert len(page.all("h5")) == 2 * (len(data.systems) - 1)
    assert not page_of(tmp_path, some_data()).all("label", **{"for": "tab-sides"})


def test_the_drawing_needs_no_style_and_nothing_from_elsewhere(tmp_path):
    """A strict content policy allows it, and several on one page do not share names."""
    write_precision_curve(tmp_path, several_learners())
    assert (tmp_path / "precision_curve.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "precision_curve.svg").read_text("utf-8")
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(drawing).iter()}
    assert {"svg", "path", "text"} <= names
    assert not names & {"style", "script", "image", "metadata"}
    assert "style=" not in drawing
    assert "url(" not in drawing
    other = charts.history_chart_of(several_learners().histories[0], several_learners())["svg"]
    assert not set(re.findall(r' id="(.*?)"', drawing)) & set(re.findall(r' id="(.*?)"', other))


def test_colours_are_those_of_the_picture_and_have_contrast():
    css = (report_page.files("visterm.pipeline.report") / "templates/shared.html.jinja").read_text("utf-8")
    assert re.findall(r"--other\d: (#\w+);", css)[: len(charts.OTHERS)] == [color for color, *_ in charts.OTHERS]
    assert len({color for color, *_ in charts.OTHERS}) == len(charts.OTHERS)
    # Text 4.5:1 on its ground, in both colour schemes (WCAG 2.1, relative luminance).
    schemes = re.findall(r":root \{(.*?--warn-rule: #\w+;)", css, re.DOTALL)
    assert len(schemes) == 2

    def luminance(color):
        color = color if len(color) == 6 else "".join(2 * c for c in color)
        parts = [int(color[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for scheme in schemes:
        colors = dict(re.findall(r"--([\w-]+): #(\w+)", scheme))
        others = [f"other{i}" for i in range(len(charts.OTHERS))]
        for text in ("text", "quiet", "learner", "baseline", "chance", "right", "wrong", *others):
            low, high = sorted((luminance(colors[text]), luminance(colors["ground"])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, text


def worlds_of(*figures):
    return {
        world: HeldOut(own, cosine, 0.125, 40, below_cosine=cosine - own > 0.1)
        for world, (own, cosine) in zip(("seen", "unseen", "both"), figures, strict=False)
    }


def cells_of(page, name):
    """Texts of the cells of a table, by row."""
    html = page[page.index(f'aria-label="{name}">') :]
    rows = re.findall(r"<tr>(.*?)</tr>", html[: html.index("</table>")], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in cells]


def test_the_worlds_of_held_out_images(tmp_path):
    oasis, cosine, chance = some_data().systems
    systems = (
        dataclasses.replace(
            oasis, learned_weight=0.2, held_out=worlds_of((0.958, 0.89), (0.9141, 0.9144), (0.888, 0.854))
        ),
        dataclasses.replace(oasis, name="wsabie", held_out=worlds_of((0.96, 0.89), (0.751, 0.914), (0.708, 0.854))),
        dataclasses.replace(oasis, name="aroma", held_out=worlds_of((0.9, 0.8))),
        dataclasses.replace(oasis, name="knn"),
        cosine,
        chance,
    )
    page = page_of(tmp_path, some_data(systems=systems))
    html = (tmp_path / "report.html").read_text("utf-8")
    head, names, *rows = cells_of(html, "mAP on held-out images")
    assert head == ["Learner", "Share", "Seen (40 images)", "Unseen (40 images)", "Both (40 images)"]
    assert names == ["learner", "cosine", "chance"] * 3
    below = "▼ below cosine:"
    assert rows == [
        ["oasis", "20 %", "0.958", "0.890", "0.125", "0.914", "0.914", "0.125", "0.888", "0.854", "0.125"],
        ["wsabie", "100 %", "0.960", "0.890", "0.125", f"{below} 0.751", "0.914", "0.125"]
        + [f"{below} 0.708", "0.854", "0.125"],
        ["aroma", "100 %", "0.900", "0.800", "0.125", *"––––––"],
    ]
    for words in (
        "Classes that were trained on, and others",
        "Seen: images of classes that were trained on query each other.",
        "Unseen: images of classes that were not trained on query each other.",
        "Both: all of these images are in one gallery",
        "▼: below cosine.",
        "A dash: no class was held out.",
    ):
        assert words in page.text, words
    assert "class split" not in page.text


def test_the_worlds_of_class_splits(tmp_path):
    def figures(*maps, sd=0.01):
        return {world: OpenFigures(own, 0.9, sd) for world, own in zip(("seen", "unseen", "both"), maps, strict=True)}

    systems = {"oasis": figures(0.9, 0.7, 0.8), "cosine": figures(0.8, 0.75, 0.7), "chance": figures(0.1, 0.1, 0.05)}
    page = page_of(tmp_path, some_data(class_splits=5, open_systems=systems))
    rows = cells_of((tmp_path / "report.html").read_text("utf-8"), "Means of class splits")
    assert rows[0] == ["System", "Seen", "Unseen", "Both"]
    assert rows[2] == ["oasis", "0.900 ± 0.010", "0.900", "▼ below cosine: 0.700 ± 0.010", "0.900"] + [
        "0.800 ± 0.010",
        "0.900",
    ]
    assert rows[4] == ["chance", "0.100 ± 0.010", "0.900", "0.100 ± 0.010", "0.900", "0.050 ± 0.010", "0.900"]
    assert "Means of 5 class splits ± the standard deviation." in page.text
    assert page.text.count("▼: below cosine.") == 1
    oasis, *others = some_data().systems
    oasis = dataclasses.replace(oasis, held_out=worlds_of((0.9, 0.8), (0.9, 0.8), (0.9, 0.8)))
    one = {name: dict.fromkeys(("seen", "unseen", "both"), OpenFigures(0.8, 0.9)) for name in ("oasis", "cosine")}
    page = page_of(tmp_path, some_data(systems=(oasis, *others), class_splits=1, open_systems=one))
    assert "Means of 1 class split." in page.text
    assert page.text.count("▼: below cosine.") == 1
    assert page.text.count("▼") == 1  # nothing is below
    assert "±" not in page.text
    assert "A dash" not in page.text


def test_one_system_no_history_few_queries_or_nothing_to_measure(tmp_path):
    queries = tuple(dataclasses.replace(query, baseline=None) for query in some_data(3).queries)
    data = some_data(systems=(System("cosine", 0.146),), queries=queries, n_queries=3, histories=())
    page = page_of(tmp_path, data)
    assert "cosine reaches mAP 0.146 on 3 queries." in page.text
    assert "trained without validation images" in page.text
    assert "Most improved" not in page.text
    assert len(page.all("input", name="gallery")) == 3
    nan = float("nan")
    none = {"learner": Hits(nan, 0), "baseline": Hits(nan, 0)}
    queries = tuple(dataclasses.replace(query, **none) for query in some_data(2).queries)
    systems = (System("oasis", nan, (nan, nan), {1: nan}, (nan, nan)), System("cosine", nan))
    nothing = {"n_queries": 0, "n_without_relevant": 2, "histories": ()}
    page = page_of(tmp_path, some_data(systems=systems, queries=queries, **nothing))
    assert "No query has a relevant image in the gallery: there is nothing to measure." in page.text
    assert "2 queries without any relevant image" in page.text
    assert "nan" not in page.text.lower()
    assert page_of(tmp_path, some_data(queries=(), n_queries=0)).all("script") == []
    systems = (System("oasis", 0.0, None, {1: 0.0}, (0.0,)), System("cosine", 0.0, None, {}, (0.0,)))
    history = History((0,), (0.0,), 0, 0.0)
    page_of(tmp_path, some_data(systems=systems, histories=(history,)))
    write_precision_curve(tmp_path, some_data(systems=systems))
    with pytest.raises(ValueError, match="at least one system"):
        render_report(some_data(systems=()), read_image)


def test_unreadable_image_becomes_a_labelled_placeholder(tmp_path):
    page = page_of(tmp_path, some_data(path="{label}/broken_{i}.jpg"))
    assert page.all("image") == []
    spans = page.all("span", role="img")
    assert "Result 1, beach/broken_0.jpg, label beach, relevant, cannot be read" in {
        span["aria-label"] for span in spans
    }


def test_hostile_names_are_text(tmp_path):
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    data = some_data(path=evil.replace("/", "\\") + "\n\x1b[31m\u202e\udcff\ud800 {label} {i}.jpg")
    hostile = dataclasses.replace(
        data,
        title=evil,
        warnings=(evil,),
        config=evil + "\udcff",
        facts={evil: evil},
        environment={evil: evil},
        durations={evil: 1.0},
        links={evil: evil},
        queries=tuple(dataclasses.replace(query, labels=(evil,)) for query in data.queries),
        systems=(dataclasses.replace(data.systems[0], name=evil), *data.systems[1:]),
    )
    page = page_of(tmp_path, hostile)
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert evil in page.text
    assert r"\n\x1b[31m\u202e\xff\ud800 tree 11.jpg" in page.text
    write_precision_curve(tmp_path, hostile)


def test_size_of_a_full_report(tmp_path):
    def noise(path):  # larger than any photograph as WebP
        rng = np.random.default_rng(abs(hash(path)) % 2**32)
        return np.kron(rng.integers(0, 255, (80, 60, 3)), np.ones((5, 5, 1))).astype(np.uint8)

    (tmp_path / "report.html").write_bytes(render_report(some_data(600), noise))
    assert (tmp_path / "report.html").stat().st_size < report_page.SIZE_WANTED


@pytest.mark.slow
def test_galleries_are_shortened_to_keep_the_size(tmp_path, monkeypatch):
    page = page_of(tmp_path, some_data(40, path="{label}/{label}_{i}.jpg"))
    size = (tmp_path / "report.html").stat().st_size
    rows = len(page.all("article"))
    monkeypatch.setattr(report_page, "SIZE_WANTED", size - 1)
    page = page_of(tmp_path, some_data(40, path="{label}/{label}_{i}.jpg"))
    assert len(page.all("article")) < rows
    assert "Only 5 queries each, to keep this page small." in page.text


@pytest.mark.slow
def test_a_page_that_browsers_cannot_open_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "SIZE_WANTED", 1000)
    monkeypatch.setattr(report_page, "SIZE_REFUSED", 2000)
    with pytest.raises(ValueError, match="even with one query in each gallery"):
        page_of(tmp_path, some_data())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_importing_the_report_does_not_import_matplotlib():
    code = "import sys, visterm.pipeline.report.page; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PROBE = """
<script>
const out = [];
const panel = (id) => getComputedStyle(document.getElementById("panel-" + id)).display;
const first = () => document.querySelector("#query-table tbody tr:not([hidden])").cells[0].textContent;
const visible = () => document.querySelectorAll("#query-table tbody tr:not([hidden])").length;
const head = (i) => document.querySelectorAll("#query-table th button")[i];
out.push("tabs " + panel("best") + " " + panel("worst"));
document.querySelector("label[for=tab-worst]").click();
out.push("tabs " + panel("best") + " " + panel("worst"));
out.push("worst " + first());
head(2).click();
out.push("best " + first() + " " + head(2).parentNode.getAttribute("aria-sort"));
head(0).click();
out.push("name " + first());
document.getElementById("only-worse").click();
out.push("harmed " + visible());
document.getElementById("filter").value = "TREE";
document.getElementById("filter").dispatchEvent(new Event("input"));
out.push("tree " + visible() + " " + document.getElementById("matches").textContent);
out.push("wide " + (document.documentElement.scrollWidth <= innerWidth));
document.body.dataset.probe = out.join("|");
</script>
"""


def test_in_a_browser(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")
    if CHROMIUM is None:
        pytest.skip("the browser tests need chromium")
    html = render_report(some_data(), read_image).decode()
    (tmp_path / "probed.html").write_text(html.replace("</body>", PROBE + "</body>"), "utf-8")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page, told = browser.new_page(viewport={"width": 500, "height": 900}), []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto((tmp_path / "probed.html").as_uri(), timeout=120_000)
        probe = page.locator("body").get_attribute("data-probe")
        browser.close()
    assert told == []  # no script error, nothing that the content policy refused
    assert probe.split("|") == [
        "tabs block none",
        "tabs none block",
        "worst beach/img_0.jpg",
        "best tree/img_11.jpg descending",
        "name beach/img_0.jpg",
        "harmed 5",
        "tree 1 1 of 12 shown",
        "wide true",
    ]
