"""Reading one image for extraction."""

import hashlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from visterm.features import images
from visterm.pipeline.cli.errors import Terminated, _Signals
from visterm.pipeline.stages.extraction import try_read


def test_the_hash_is_that_of_the_bytes_that_are_decoded(write_images, tmp_path, monkeypatch):
    write_images(tmp_path, ["a.jpg"])
    opened = []

    def noted(file, *arguments, **options):
        opened.append(file)
        return open(file, *arguments, **options)

    for name in ("images", "decoding"):
        monkeypatch.setattr(f"visterm.features.{name}.open", noted, raising=False)
    monkeypatch.setattr("visterm.pipeline.store.files.open", noted, raising=False)
    outcome, pixels = try_read(1, tmp_path / "a.jpg", 10**6)
    assert outcome.sha256 == hashlib.sha256((tmp_path / "a.jpg").read_bytes()).hexdigest()
    assert (outcome.height, outcome.width) == pixels.shape[:2]
    assert opened == [tmp_path / "a.jpg"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
@pytest.mark.timeout(60)
def test_a_pipe_that_took_the_place_of_an_image_is_skipped(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    outcome, pixels = try_read(1, tmp_path / "pipe.jpg", 10**6)
    assert (outcome.sha256, outcome.reason, pixels) == ("", "not a file (a named pipe)", None)


def test_a_signal_stops_the_reads_of_all_threads(monkeypatch):
    monkeypatch.setattr(images, "_stopped", threading.Event(), raising=False)
    monkeypatch.setattr("visterm.pipeline.cli.errors.end_within", lambda *_: None, raising=False)  # it ends the process
    signals = _Signals()
    with pytest.raises(Terminated), signals.taken_over(ends_process=False):
        signals._raise(signal.SIGTERM, None)
    assert not images._stopped.is_set()  # a program that calls a command reads on
    signals._ends_process = True
    with pytest.raises(Terminated):
        signals._raise(signal.SIGTERM, None)
    assert images._stopped.is_set()


def test_a_worker_whose_starter_was_killed_while_it_began_ends():
    command = "from visterm.pipeline.stages.extraction import _begin_worker; _begin_worker(0); print('works on')"
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
