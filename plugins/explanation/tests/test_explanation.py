"""Why two images match: the numbers sum to the score that search shows, and the picture shows them."""

import json
import re
import shutil

import cv2
import numpy as np
import pytest
from running import refused, visterm

from visterm import features
from visterm.features import read_image
from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.stages.train import train as train_stage
from visterm.pipeline.store.run import Run
from visterm.plugins.explanation.explanation import explain_pair, explain_with_pixels
from visterm.plugins.explanation.explanation_picture import draw_explanation, heat_map
from visterm.plugins.explanation.explanation_regions import cells_of_map, describe_regions, say_where

LEARNERS = ("oasis", "lego", "wsabie", "musl", "knn")
SETTINGS = [
    "features.n_visterms=40",
    "features.stride=8",  # two levels of blocks in images as small as these
    "compute.n_jobs=1",
    *(f"{name}.{key}" for name in ("oasis", "lego", "wsabie") for key in ("n_steps=2000", "pass_steps=1000")),
    "wsabie.n_components=[4,6]",
    "musl.n_bits=8",
    "musl.n_metrics=2",
]


def make_run(folder, write_images, learners, *settings):
    photos = folder / "photos"
    write_images(photos, [f"{c}/{i}.jpg" for c in ("apple", "pear", "plum") for i in range(8)])
    run, config = Run(folder / "runs" / "fruit"), load_config(None, [*SETTINGS, *settings])
    console = Console(quiet=True, progress=False)
    features_stage(run, config, photos, console)
    for name in learners:
        train_stage(run, config, name, console)
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("explaining")


@pytest.fixture(scope="module")
def searcher(folder, write_images):
    return Searcher(make_run(folder, write_images, LEARNERS))


@pytest.fixture(scope="module")
def outside(folder, write_images):
    """An image that is not in the collection."""
    write_images(folder, ["pear99.jpg"])
    return folder / "pear99.jpg"


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("learner", [name for name in (*LEARNERS, "cosine") if name != "musl"])
def test_heat_of_both_images_sums_to_the_score_that_search_shows(searcher, outside, learner):
    for query in (outside, "pear/3.jpg"):
        for result in searcher.search(query, k=3, learner=learner)[0]["results"]:
            explained = explain_pair(searcher, query, result["path"], learner)
            assert explained["learner"] == learner
            assert explained["score"] == pytest.approx(result["score"], abs=2e-6)
            for side in ("query", "result"):
                assert sum(explained[side]["heat"]) == pytest.approx(result["score"], rel=1e-4, abs=1e-5)
                assert len(explained[side]["heat"]) == len(explained[side]["boxes"]) > 15
            assert explained["positive"] + explained["negative"] == pytest.approx(result["score"], rel=1e-4, abs=1e-5)
            assert "bits" not in explained
            assert explained == json.loads(json.dumps(explained))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("learner", [name for name in (*LEARNERS, "cosine") if name != "musl"])
def test_regions_carry_half_of_the_score_and_sum_to_it_with_the_rest(searcher, outside, learner):
    for query in (outside, "apple/2.jpg"):
        for result in searcher.search(query, k=24, learner=learner)[0]["results"][::6]:
            explained = explain_pair(searcher, query, result["id"], learner)
            score, regions = result["score"], explained["regions"]
            near = {"rel": 1e-4, "abs": 3e-5}
            if not explained["positive"] and not explained["negative"]:  # the two have nothing in common
                assert score == explained["rest"] == 0
                assert regions == explained["query"]["regions"] == explained["result"]["regions"] == []
                continue
            assert 1 <= len(regions) <= 3
            carried = sum(pair["contribution"] for pair in regions)
            assert carried + explained["rest"] == pytest.approx(score, **near)
            assert carried / explained["score"] >= 0.5 - 1e-3
            assert sum(pair["share"] for pair in regions) == pytest.approx(carried / score, rel=1e-2)
            for name in ("query", "result"):
                side = explained[name]
                assert len(side["cells"]) == len(side["cell_heat"])
                assert sum(side["cell_heat"]) == pytest.approx(score, **near)
                x, y, w, h = np.array(side["cells"]).T
                assert (w * h).sum() == pytest.approx(side["width"] * side["height"], rel=1e-3)
                assert {pair[f"{name}_region"] for pair in regions} == set(range(len(side["regions"])))
                listed = [cell for region in side["regions"] for cell in region["cells"]]
                assert len(set(listed)) == len(listed)


def test_heat_of_cells_is_that_of_the_blocks_on_them(searcher):
    """A cell has as much as the heat map has on its pixels."""
    for name in ("query", "result"):
        side = explain_pair(searcher, "pear/0.jpg", "plum/1.jpg", "oasis")[name]
        pixels = heat_map(side)
        assert pixels.shape == (side["height"], side["width"])
        for (x, y, w, h), heat in zip(side["cells"], side["cell_heat"], strict=True):
            rows, columns = (slice(round(a), round(a + length)) for a, length in ((y, h), (x, w)))
            assert heat == pytest.approx(pixels[rows, columns].sum(), abs=2e-4)
    explained = explain_pair(searcher, "pear/0.jpg", "pear/1.jpg", "oasis")
    visterms = searcher.extractor.blocks(read_image(searcher.root / "pear/0.jpg"))[1]
    for pair in explained["pairs"]:
        assert pair["n_query_blocks"] == np.count_nonzero(visterms == visterms[pair["query_block"]])
    heat = np.array(explained["query"]["heat"])
    assert all(np.ptp(heat[visterms == one]) == 0 for one in np.unique(visterms))


def test_an_outline_goes_around_its_cells():
    """The area within, by the sum over its vertical lines, is that of the cells."""
    boxes = np.array([[x, y, 20, 30] for y in (0, 30, 60) for x in (10, 30, 50, 70)], dtype=float)
    cells = cells_of_map(boxes)
    assert cells.shape == (3, 4)
    ring = np.array([0, 0, 0, -1, 0, -1, 0, -1, 0, 0, 0, 1])
    regions = describe_regions(ring, cells, 100, 90)
    assert [region["cells"] for region in regions] == [[0, 1, 2, 4, 6, 8, 9, 10], [11]]
    assert [len(region["outline"]) for region in regions] == [12 + 4, 4]
    edges = {tuple(line) for line in regions[0]["outline"]}
    assert (30, 30, 30, 60) in edges  # of the hole
    assert (30, 0, 30, 30) not in edges  # between two of its cells
    assert regions[1]["outline"] == [[70, 60, 90, 60], [70, 90, 90, 90], [70, 60, 70, 90], [90, 60, 90, 90]]


@pytest.mark.parametrize(
    ("rows", "columns", "place"),
    [
        ([0, 1], [0, 1], "upper left"),
        ([5], [0, 1, 2, 3, 4, 5], "lower part"),
        ([2, 3], [4, 5], "right side"),
        ([2, 3], [2, 3], "middle"),
        ([1, 2, 3, 4], [1, 2, 3, 4], "large part"),
        (range(6), range(6), "whole"),
    ],
)
def test_places_in_words(rows, columns, place):
    cells = cells_of_map(np.array([[x, y, 1, 1] for y in range(6) for x in range(6)], dtype=float))
    labels = np.full((6, 6), -1)
    labels[np.ix_(rows, columns)] = 0
    (region,) = describe_regions(labels.ravel(), cells, 6, 6)
    assert region["place"] == place


def test_one_sentence_says_where():
    def explanation(places, cells, score=1.0, share=0.6, negative=0.0):
        sides = {}
        for side, names, own in zip(("query", "result"), places, cells, strict=True):
            regions = [{"place": name, "cells": range(own // len(names))} for name in names]
            sides[side] = {"cells": range(20), "regions": regions}
        pair = {"share": share}
        return {"score": score, "positive": 1.0, "negative": negative, "regions": [pair], **sides}

    few = (4, 6)
    assert say_where(explanation((["upper left"], ["middle"]), few)) == (
        "The score comes mostly from the upper left of the query (4 of 20 cells) and the middle of the result "
        "(6 of 20): 60 % of it."
    )
    several = say_where(explanation((["upper left", "middle"], ["left side", "left side"]), few))
    assert "from the upper left and the middle of the query (4 of 20 cells) and the left side of the result" in several
    assert say_where(explanation((["whole"], ["large part"]), (20, 12))) == (
        "The score is spread over both photos: 60 % of it comes from the whole query (20 of 20 cells) and a large part "
        "of the result (12 of 20)."
    )
    above = say_where(explanation((["middle"], ["middle"]), few, share=1.3, negative=-0.4))
    assert above.endswith("130 % of it; the rest lowers it.")
    below = say_where(explanation((["middle"], ["middle"]), few, score=-1.0, negative=-2.0))
    assert below.startswith("That the score is below 0 comes mostly from the middle of the query")
    little = say_where(explanation((["middle"], ["middle"]), few, score=0.05, negative=-0.95))
    assert little == "The score is the little that is left of 1 that raises it and 0.95 that lowers it."
    nothing = {"score": 0.0, "positive": 0.0, "negative": 0.0, "regions": []}
    assert say_where(nothing) == "The score is 0: the two have nothing in common."


def test_bits_sum_to_the_score_that_search_shows(searcher, outside):
    for result in searcher.search(outside, k=20, learner="musl")[0]["results"]:
        explained = explain_pair(searcher, outside, result["id"], "musl")
        assert explained["score"] == pytest.approx(result["score"], abs=1e-6)
        assert sum(bit["contribution"] for bit in explained["bits"]) == pytest.approx(result["score"], abs=1e-5)
        assert explained["positive"] - explained["negative"] == pytest.approx(8)  # all bits of its category's metric
        for side in ("query", "result"):
            shown = sum(bit["contribution"] for bit in explained["bits"] if bit[f"n_{side}_blocks"])
            assert sum(explained[side]["heat"]) == pytest.approx(shown, abs=1e-4)
        assert explained["regions"] == explained["query"]["regions"] == []
        agree = sum(bit["contribution"] > 0 for bit in explained["bits"])
        assert re.match(
            rf"The metric of this result compares {len(explained['bits'])} visterms?: {agree} agree \(",
            explained["sentence"],
        )
        for pair in explained["pairs"]:
            assert pair["n_query_blocks"]
            assert pair["n_result_blocks"]


def test_an_image_can_be_named_in_every_way_that_search_takes(searcher, outside):
    image = next(image for image in searcher.images if image.path == "pear/3.jpg")
    file = searcher.root / "pear/3.jpg"
    expected = explain_pair(searcher, image.id, "plum/0.jpg")
    assert expected["query"]["name"] == expected["query"]["path"] == "pear/3.jpg"
    for name in (f"id:{image.id}", "pear/3.jpg", file, str(file), np.int64(image.id)):
        assert explain_pair(searcher, name, "plum/0.jpg") == expected
    by_pixels = explain_pair(searcher, read_image(file), "plum/0.jpg")
    assert by_pixels["query"].pop("id") is None
    assert by_pixels["query"]["heat"] == expected["query"]["heat"]
    np.testing.assert_array_equal(explain_with_pixels(searcher, image.id, "plum/0.jpg").query_pixels, read_image(file))
    there, back = (explain_pair(searcher, *pair, "cosine") for pair in ((outside, 5), (5, outside)))
    assert there["score"] == pytest.approx(back["score"], abs=1e-6)
    assert (back["result"]["id"], back["result"]["path"], back["result"]["name"]) == (None, None, str(outside))
    assert there["result"]["id"] == 5
    assert there["result"]["path"] == searcher.images[searcher.place[5]].path
    assert explain_pair(searcher, 5, outside, "musl")["score"] == pytest.approx(
        searcher.learner("musl").similarity(searcher.queries("id:5").Q, searcher.queries(outside).Q)[0, 0]
    )


def test_pairs_are_the_strongest_and_show_different_things(searcher, outside):
    explained = explain_pair(searcher, outside, "pear/1.jpg", "oasis", n_pairs=12)
    pairs = explained["pairs"]
    assert 3 < len(pairs) <= 12
    sizes = [abs(pair["contribution"]) for pair in pairs]
    assert sizes == sorted(sizes, reverse=True)
    for pair in pairs:
        whole = explained["positive"] - explained["negative"]  # of which a small score may be what is left
        assert pair["share"] == pytest.approx(pair["contribution"] / whole, rel=1e-4)
        assert abs(pair["share"]) <= 1

    def overlap(a, b):
        (ax, ay, aw, ah), (bx, by, bw, bh) = a, b
        shared = max(0, min(ax + aw, bx + bw) - max(ax, bx)) * max(0, min(ay + ah, by + bh) - max(ay, by))
        return shared / (aw * ah + bw * bh - shared)

    for i, one in enumerate(pairs):
        for other in pairs[:i]:
            overlaps = [
                overlap(*(explained[side]["boxes"][pair[f"{side}_block"]] for pair in (one, other)))
                for side in ("query", "result")
            ]
            assert min(overlaps) < 0.5
    assert len(explain_pair(searcher, outside, "pear/1.jpg", "oasis", n_pairs=2)["pairs"]) == 2


@pytest.mark.usefixtures("alone")
def test_a_forest_is_explained_by_all_nodes_of_its_blocks(tmp_path, write_images):
    forest = ["features.codebook.kind=forest", "features.codebook.n_trees=4"]
    searcher = Searcher(make_run(tmp_path, write_images, ["oasis", "musl"], *forest))
    for learner in ("cosine", "oasis"):
        for result in searcher.search("pear/3.jpg", k=3, learner=learner)[0]["results"]:
            explained = explain_pair(searcher, "pear/3.jpg", result["id"], learner)
            assert explained["score"] == pytest.approx(result["score"], abs=2e-6)
            for side in ("query", "result"):
                assert sum(explained[side]["heat"]) == pytest.approx(result["score"], rel=1e-4, abs=1e-5)
            assert explained["pairs"]
    assert explain_pair(searcher, "pear/3.jpg", "pear/1.jpg", "musl")["bits"]


def test_a_heat_map_sums_to_the_heat_whatever_its_size(searcher):
    side = explain_pair(searcher, "pear/0.jpg", "pear/1.jpg", "oasis")["query"]
    for longest in (720, 128, 50, 7, 1):
        pixels = heat_map(side, longest)
        assert max(pixels.shape) == min(longest, 128)
        assert pixels.sum() == pytest.approx(sum(side["heat"]), rel=1e-6)
    side = {"width": 4, "height": 2, "boxes": [[0, 0, 4, 2], [2, 0, 2, 2], [2, 1, 1, 1]], "heat": [0.8, 0.4, -0.3]}
    np.testing.assert_allclose(heat_map(side), [[0.1, 0.1, 0.2, 0.2], [0.1, 0.1, -0.1, 0.2]], atol=1e-12)


def test_the_picture_shows_both_images_their_heat_and_any_names(searcher, outside, tmp_path):
    explained, *pixels = explain_with_pixels(searcher, outside, "pear/1.jpg", "oasis")
    draw_explanation(explained, *pixels, tmp_path / "why.png")
    drawn = cv2.imread(str(tmp_path / "why.png"))
    assert drawn.shape[1] == 1320
    assert [path.name for path in tmp_path.iterdir()] == ["why.png"]
    none = {**explained, "regions": []}
    for side in ("query", "result"):
        none[side] = {**explained[side], "regions": []}
    draw_explanation(none, *pixels, tmp_path / "none.png")
    without = cv2.imread(str(tmp_path / "none.png"))
    assert without.shape == drawn.shape
    half = drawn.shape[0] // 2
    assert (without[80:half] != drawn[80:half]).any()  # outlines, shares and lines
    np.testing.assert_array_equal(without[half:], drawn[half:])  # the same heat
    # Neither formulas nor line breaks nor letters that the font lacks do harm.
    explained, *pixels = explain_with_pixels(searcher, "pear/0.jpg", "pear/1.jpg", "cosine")
    explained["query"]["name"] = "$\\frac{$ \n <b>\u732b\udcff.jpg"
    explained["result"]["name"] = "x" * 500
    draw_explanation(explained, *pixels, tmp_path / "why.png")
    assert (tmp_path / "why.png").stat().st_size > 10_000


def test_one_scale_of_colours_for_both_images(searcher, tmp_path):
    """An image that takes part in the score by half as much heat has paler colours, not the same ones."""
    pixels = np.full((100, 100, 3), 255, np.uint8)
    side = {"name": "a", "width": 100, "height": 100, "boxes": [[0, 0, 100, 100]], "heat": [1.0], "regions": []}
    weaker = dict(side, heat=[0.4])
    explained = {"learner": "x", "score": 1.0, "parts": "block", "positive": 1.0, "negative": 0.0, "pairs": []}
    explained |= {"sentence": "", "regions": []}
    draw_explanation(explained | {"query": side, "result": weaker}, pixels, pixels, tmp_path / "both.png")
    drawn = cv2.imread(str(tmp_path / "both.png")).astype(int)
    row = drawn[int(drawn.shape[0] * 0.75)]
    strong, weak = row[350], row[1000]  # blue, green, red
    assert strong.sum() < weak.sum() - 100
    assert strong[2] > strong[0]
    assert weak[2] > weak[0] + 30
    against = explained | {"query": side, "result": dict(side, heat=[-1.0]), "negative": -1.0}
    draw_explanation(against, pixels, pixels, tmp_path / "against.png")
    left, right = (
        cv2.imread(str(tmp_path / "against.png"))[int(drawn.shape[0] * 0.75), x].astype(int) for x in (350, 1000)
    )
    assert left[2] > left[0] + 50  # orange
    assert right[0] > right[2] + 50  # blue


@pytest.mark.parametrize("shape", [(1, 1), (40, 3000), (900, 30), (70, 64)])
def test_images_of_every_shape_can_be_drawn(searcher, tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    explained, _, result = explain_with_pixels(searcher, pixels, "pear/1.jpg", "oasis")
    assert (explained["query"]["width"], explained["query"]["height"]) == shape[::-1]
    draw_explanation(explained, pixels, result, tmp_path / "why.png")
    height, width = cv2.imread(str(tmp_path / "why.png")).shape[:2]
    assert width == 1320
    assert height < 2500


def test_what_cannot_be_found_or_read_is_said(searcher, tmp_path, outside):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    for given, message in (
        ("id:999999", "run fruit has no image of this id"),
        (tmp_path / "nowhere.jpg", "nowhere.jpg: .*no such file"),
        (tmp_path / "broken.jpg", "broken.jpg: "),
        (tmp_path, "is a folder; give one image"),
        (np.zeros((4, 4)), "uint8"),
        (np.zeros((4, 0, 3), np.uint8), "nothing to describe"),
    ):
        with pytest.raises(UserError, match=message):
            explain_pair(searcher, given, "pear/1.jpg", "oasis")
        with pytest.raises(UserError, match=message):
            explain_pair(searcher, outside, given, "oasis")
    with pytest.raises(UserError, match="unknown learner oasi"):
        explain_pair(searcher, outside, "pear/1.jpg", "oasi")
    with pytest.raises(UserError, match="no trained pamir"):
        explain_pair(searcher, outside, "pear/1.jpg", "pamir")


def test_an_image_without_weights_or_blocks_is_refused(searcher, monkeypatch):
    """Nothing but visterms that every training image has."""
    monkeypatch.setattr(searcher.extractor.weighting_, "idf_", np.zeros(40))
    white = np.full((80, 80, 3), 255, np.uint8)
    with pytest.raises(UserError, match="the vector of the query is zero: there is nothing to explain"):
        explain_pair(searcher, white, white, "cosine")
    monkeypatch.setattr(searcher.gallery, "extractor", object())
    with pytest.raises(UserError, match="run fruit: its vectors are not made of blocks"):
        explain_pair(searcher, "pear/0.jpg", "pear/1.jpg", "cosine")


def test_an_image_that_has_changed_since_is_refused(tmp_path, write_images):
    run = make_run(tmp_path, write_images, [])
    searcher = Searcher(run)
    shutil.copyfile(tmp_path / "photos/plum/1.jpg", tmp_path / "photos/pear/1.jpg")
    with pytest.raises(UserError, match="pear/1.jpg has changed .* 'visterm features --run fruit' first"):
        explain_pair(searcher, "apple/0.jpg", "pear/1.jpg", "cosine")
    (tmp_path / "photos/pear/2.jpg").unlink()
    with pytest.raises(UserError, match="pear/2.jpg: .*no such file"):
        explain_pair(searcher, "apple/0.jpg", "pear/2.jpg", "cosine")


def test_the_command_prints_a_table_or_json_and_draws(folder, outside, searcher, tmp_path, few_suffice):
    lines = visterm("explain", outside, "pear/1.jpg", "--pairs", 3, cwd=folder).stdout.splitlines()
    explanation = explain_pair(searcher, outside, "pear/1.jpg", "oasis")
    assert lines[:2] == [explanation["neighbours"]["sentence"], explanation["sentence"]]
    assert lines[2].startswith(f"{outside} and pear/1.jpg: ")
    assert lines[2].endswith(" by oasis")
    assert [line.split()[0] for line in lines[-4:]] == ["pair", "1", "2", "3"]
    plain = visterm("explain", outside, "pear/1.jpg", cwd=folder).stdout.splitlines()
    assert plain == lines[:-4]
    rest = plain.index(next(line for line in plain if line.endswith("all other pairs of cells")))
    table = [
        line.split() for line in plain[plain.index(next(x for x in plain if x.startswith("share"))) + 1 : rest + 1]
    ]
    assert len(table) == len(explanation["regions"]) + 1
    assert sum(float(row[1]) for row in table) == pytest.approx(explanation["score"], abs=2e-4)
    assert sum(int(row[0].rstrip("%")) for row in table) == pytest.approx(100, abs=2)
    file = tmp_path / "why.png"
    result = visterm("explain", outside, "id:5", "--learner", "cosine", "--json", "--output", file, cwd=folder)
    assert json.loads(result.stdout) == explain_pair(searcher, outside, 5, "cosine", n_pairs=8)
    assert cv2.imread(str(file)) is not None
    assert visterm("explain", outside, "id:5", "-o", file, cwd=folder).stdout == f"{file}\n"


def test_images_of_the_run_are_read_once(folder, searcher, tmp_path, monkeypatch):
    """The picture is of the very pixels that the numbers are of."""
    read = []
    read_it = features.VistermExtractor.read

    def reading(extractor, file, **options):
        read.append(file)
        return read_it(extractor, file, **options)

    monkeypatch.setattr(features.VistermExtractor, "read", reading)
    monkeypatch.delattr(features, "read_image")
    visterm("explain", "id:1", "id:5", "--output", tmp_path / "why.png", cwd=folder)
    assert len(read) == 2


def test_large_photos_are_explained_in_their_own_coordinates(tmp_path, write_images):
    """JPEGs are scaled down while they are decoded, in `features` as in explanations."""
    write_images(tmp_path / "photos", [f"{label}/{i}.jpg" for label in ("pear", "plum") for i in range(6)])
    for i, side in enumerate((600, 1100, 2100)):  # divided by 1, 2 and 4
        small = cv2.imread(str(tmp_path / f"photos/pear/{i}.jpg"))
        cv2.imwrite(str(tmp_path / f"photos/pear/{i}.jpg"), cv2.resize(small, (side, side * 3 // 4)))
    run = Run(tmp_path / "runs" / "photos")
    config = load_config(None, ["features.n_visterms=20", "compute.n_jobs=1"])
    features_stage(run, config, tmp_path / "photos", Console(quiet=True, progress=False))
    searcher = Searcher(run)
    for i, size in enumerate(((600, 450), (1100, 825), (2100, 1575))):
        explanation, pixels, _ = explain_with_pixels(searcher, f"pear/{i}.jpg", "pear/5.jpg", "cosine")
        query = explanation["query"]
        assert (query["width"], query["height"]) == pixels.shape[1::-1] == size
        boxes = np.array(query["boxes"])
        right, bottom = (boxes[:, :2] + boxes[:, 2:]).max(axis=0)
        assert 0.85 * query["width"] < right <= query["width"]
        assert 0.85 * query["height"] < bottom <= query["height"]
        copy = tmp_path / "copy.jpg"  # of another name: read again
        shutil.copy(tmp_path / f"photos/pear/{i}.jpg", copy)
        assert searcher.search(copy, k=1, learner="cosine")[0]["results"][0]["score"] == pytest.approx(1, abs=1e-5)


def test_mistakes_are_one_line(finished):
    assert "Missing argument" in visterm("explain", "id:1", cwd=finished, check=2).stderr
    for mistake, message in (
        ("id:2 --output why.jpg", "a picture needs a name that ends in .png"),
        ("id:2 --output nowhere/why.png", "no such folder: nowhere"),
        ("id:2 --learner oasis,wsabie", "only one learner"),
        ("id:2 --neighbours --teachers", "--neighbours lists photos; leave out --teachers"),
        ("id:2 --neighbours --pairs 3", "--neighbours lists photos; leave out --pairs"),
    ):
        assert message in refused("explain", "id:1", *mistake.split(), cwd=finished)
    assert "pairs" in visterm("explain", "id:1", "id:2", "--pairs", "0", cwd=finished, check=2).stderr
