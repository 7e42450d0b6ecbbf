"""Reading what the images look like in the background."""

import sqlite3
import threading
from contextlib import closing

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
