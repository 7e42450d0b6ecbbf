"""Reading what the images look like in the background."""

import sqlite3
import threading
from contextlib import closing

import cv2
import numpy as np

from visterm.pipeline import Searcher
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features as features_stage
from visterm.service import looks
from visterm.service.looks import Looks
from visterm.service.snapshot import Snapshot
from visterm.service.thumbnails import ImageFileGone


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


def test_a_file_that_was_locked_once_is_written_later(searcher, tmp_path):
    file, images = tmp_path / "looks.sqlite", list(searcher.images)
    with closing(Looks(file)) as reading, closing(sqlite3.connect(file, isolation_level=None)) as other:
        reading._db.execute("PRAGMA busy_timeout = 0")
        other.execute("BEGIN IMMEDIATE")
        reading._read_batch(searcher.root, images[:2])
        other.execute("COMMIT")
        reading._read_batch(searcher.root, images[2:4])
        assert other.execute("SELECT count(*) FROM looks").fetchone() == (2,)


def test_drawings_that_differ_in_a_line_or_are_mirrored_are_not_shown_as_one(own, own_photos, tmp_path, monkeypatch):
    """Small versions decided: of two pages of a form, one was hidden."""
    pages = [np.full((600, 800, 3), 255, np.uint8) for _ in range(2)]
    for number, page in zip(("4711", "4717"), pages, strict=True):
        for i in range(12):
            words = f"{number if i == 6 else 1000 + i} paid to the bearer of this bill"
            cv2.putText(page, words, (40, 60 + 44 * i), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (0, 0, 0), 2)
    arrow = np.full((300, 400, 3), 255, np.uint8)
    cv2.arrowedLine(arrow, (60, 150), (340, 150), (0, 0, 0), 12, tipLength=0.3)
    drawn = {"page.png": pages[0], "other.png": pages[1], "copy.jpg": pages[0], "arrow.png": arrow}
    for name, pixels in (drawn | {"back.png": arrow[:, ::-1]}).items():
        cv2.imwrite(str(own_photos / name), pixels)
    features_stage(own, own.configure(None, []), own_photos, Console(quiet=True))
    snapshot, file = Snapshot(Searcher(own)), tmp_path / "looks.sqlite"
    by_sha256 = {image.sha256: image.path for image in snapshot.searcher.images}
    of_path = {image.path: image.id for image in snapshot.searcher.images}

    def groups():
        with closing(Looks(file)) as reading:
            reading.follow(snapshot)
            reading._thread.join()
            pairs = [{by_sha256[sha256] for sha256 in pair} for pair in reading._candidates(snapshot)]
            assert {"page.png", "other.png"} in pairs
            assert {"arrow.png", "back.png"} in pairs
            return {name: reading.groups.get(of_path[name]) for name in (*drawn, "back.png")}

    first = of_path["copy.jpg"]  # of two of one size
    expected = {"page.png": first, "other.png": None, "copy.jpg": first, "arrow.png": None, "back.png": None}
    assert groups() == expected
    monkeypatch.setattr(looks, "read_original", None)  # it is known
    assert groups() == expected
