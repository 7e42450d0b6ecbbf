"""Copies of one image among others."""

import threading

import cv2
import numpy as np
import pytest

from visterm.pipeline.service import looks
from visterm.pipeline.service.looks import GRID, Looks, find_pairs
from visterm.pipeline.service.snapshot import Snapshot
from visterm.pipeline.service.thumbnails import ImageFileGone


def cells(pixels):
    return cv2.resize(pixels, (GRID, GRID), interpolation=cv2.INTER_AREA).ravel()


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 9, 12, 3)).astype(np.uint8)
    return [cv2.resize(one, (240, 180), interpolation=cv2.INTER_CUBIC) for one in coarse]


def test_copies_are_found_in_spite_of_size_code_and_mirror(images):
    encoded = cv2.imdecode(cv2.imencode(".jpg", images[1], [cv2.IMWRITE_JPEG_QUALITY, 40])[1], cv2.IMREAD_COLOR)
    copies = [cv2.resize(images[0], (480, 360)), encoded, images[2][:, ::-1]]
    all_cells = np.array([cells(one) for one in [*images, *copies]])
    pairs = find_pairs(all_cells, np.full(9, 4 / 3))
    assert sorted(pairs) == [(0, 6, False), (1, 7, False), (2, 8, True)]


def test_images_of_another_shape_are_no_copies(images):
    all_cells = np.array([cells(images[0]), cells(images[0])])
    assert find_pairs(all_cells, np.array([1.33, 1.5])) == []
    assert find_pairs(all_cells[:1], np.ones(1)) == []


def test_the_end_waits_for_one_file_at_most(searcher, tmp_path, monkeypatch):
    """Of a batch on a disk that does not answer."""
    asked, started, ended = [], threading.Event(), threading.Event()

    def blocked(root, image):
        asked.append(image)
        started.set()
        assert ended.wait(60)
        raise ImageFileGone

    monkeypatch.setattr(looks, "read_original", blocked)
    reading = Looks(tmp_path / "looks.sqlite")
    reading.follow(Snapshot(searcher))
    assert started.wait(60)
    stop = reading._stop.set
    monkeypatch.setattr(reading._stop, "set", lambda: (stop(), ended.set()))
    reading.close()
    assert len(asked) == 1
