"""Reading what the images look like in the background."""

import threading

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
