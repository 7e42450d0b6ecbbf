"""Test images with copies among the training ones are found, counted and left out of a second mAP."""

import json

import cv2
import numpy as np
import pytest
from running import CLASSES, visterm

from visterm.pipeline.store.images import Image
from visterm.retrieval import Evaluation
from visterm.teaching import copies
from visterm.teaching.copies import Copies, find_copies


def pictures(n, seed=0):
    rng = np.random.default_rng(seed)
    return [cv2.resize(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8), (160, 120)) for _ in range(n)]


@pytest.fixture
def photos(tmp_path):
    """Training images t0 to t5, and test images: four copies, another picture, a flat one, and a file that is gone."""
    train = pictures(6)
    train[5][:] = 200
    tests = {
        "smaller.jpg": cv2.resize(train[0], (80, 60), interpolation=cv2.INTER_AREA),
        "mirrored.jpg": train[1][:, ::-1],
        "equal.png": train[2],
        "encoded.jpg": train[3],
        "other.jpg": pictures(1, seed=1)[0],
        "flat.jpg": np.full((120, 160, 3), 200, np.uint8),
        "gone.jpg": None,
    }
    for name, pixels in {**{f"t{i}.png": of for i, of in enumerate(train)}, **tests}.items():
        if pixels is not None:
            cv2.imwrite(str(tmp_path / name), pixels)
    content = {"equal.png": "2"}
    queries = [Image(i, name, content.get(name, name), {"a": 1.0}, "test", 1, i) for i, name in enumerate(tests)]
    return tmp_path, queries, [Image(i, f"t{i}.png", f"{i}", {"a": 1.0}, "train", 1, i) for i in range(6)]


def test_copies_of_any_size_are_found(photos, monkeypatch):
    root, queries, train = photos
    X = np.eye(6, dtype=np.float32) + 1  # all are candidates
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    of_all = find_copies(root, queries, train, X[[0, 1, 2, 3, 4, 5, 0]], X, 10**6)
    assert of_all.pairs == {0: 0, 1: 1, 2: 2, 3: 3}
    assert (of_all.n_compared, of_all.n_queries) == (7, 7)
    assert find_copies(root, queries, [], X[:0], X[:0], 10**6).pairs == {}

    monkeypatch.setattr(copies, "MOST_QUERIES", 3)
    sampled = find_copies(root, queries, train, X[[0, 1, 2, 3, 4, 5, 0]], X, 10**6)
    assert (sampled.pairs, sampled.n_compared) == ({0: 0, 3: 3}, 3)


def test_different_things_on_one_cloth_are_no_copies(tmp_path):
    """Their small versions agree."""
    cloth, rng = pictures(1)[0], np.random.default_rng(0)
    for name in ("train", "test"):
        photo = cloth.copy()
        photo[50:70, 70:90] = cv2.resize(rng.integers(80, 176, (5, 5, 3)).astype(np.uint8), (20, 20))
        cv2.imwrite(str(tmp_path / f"{name}.png"), photo)
    of = [Image(0, f"{name}.png", name, {"a": 1.0}, name, 1, 0) for name in ("test", "train")]
    X = np.ones((1, 2), np.float32) / np.sqrt(2)
    assert find_copies(tmp_path, of[:1], of[1:], X, X, 10**6).pairs == {}


def test_evaluate_counts_them_and_says_what_map_is_without_them(tmp_path, write_images):
    for split in ("train", "test"):
        write_images(tmp_path / "photos" / split, [f"{c}/{i}.jpg" for c in CLASSES for i in range(4)], seed=len(split))
    for label in CLASSES[:2]:
        pixels = cv2.imread(str(tmp_path / f"photos/train/{label}/0.jpg"))
        small = cv2.resize(pixels, None, fx=0.7, fy=0.7, interpolation=cv2.INTER_AREA)
        cv2.imwrite(str(tmp_path / f"photos/test/{label}/copy.jpg"), small)
    visterm("features", "photos", "--set", "features.n_visterms=20", cwd=tmp_path)
    said = visterm("evaluate", "--learner", "cosine", cwd=tmp_path).stderr
    assert "2 test images of 14 have a copy among the training images" in said
    (folder,) = (tmp_path / "runs/photos/evaluations").iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["copies"]["n"], metrics["copies"]["n_compared"]) == (2, 14)
    rows = [line.split(",") for line in (folder / "queries.csv").read_text().splitlines()[1:]]
    others = [float(row[3]) for row in rows if "copy" not in row[0] and row[2] == "cosine"]
    assert metrics["copies"]["map_without"]["cosine"] == pytest.approx(np.mean(others), abs=1e-5)
    report = (folder / "report.html").read_text()
    assert "2 test images of 14 have a copy among the training images, such as test/" in report
    assert "without them mAP is" in report


def test_a_change_of_map_is_told_where_its_figures_differ():
    def system(*precisions):
        values, ones = np.array(precisions), np.ones(len(precisions), int)
        return Evaluation(values, values[:, None], ones, ones, 9 * ones, values[:, None], values, values)

    of = [Image(0, f"{i}.jpg", "", {"a": 1.0}, "test", 1, 0) for i in range(3)]
    one_of = Copies({0: 1}, 3, 3)
    moved, same = system(0.9, 0.5, 0.5), system(0.5001, 0.5, 0.5)
    assert one_of.in_words({"oasis": moved, "cosine": same}, of, of).endswith("mAP is 0.500, not 0.633 (oasis)")
    assert one_of.in_words({"cosine": same}, of, of).endswith("without them mAP is the same")
    alone = Copies({0: 1}, 1, 1).in_words({"cosine": system(0.9)}, of, of)
    assert alone.endswith("without them no query is left")
