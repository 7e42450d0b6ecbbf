"""Atomic writes and locks."""

import os
import pathlib
import subprocess
import sys

import pytest

from visterm import files
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.files import locked, publish, recover, write_bytes, write_text
from visterm.pipeline.store.run import Run

HOLD = """
import sys; from pathlib import Path; from visterm.pipeline.store.files import locked
with locked(Path(sys.argv[1]), wait=None):
    print("held", flush=True); sys.stdin.read()
"""


def test_an_error_leaves_the_old_file(tmp_path, monkeypatch):
    write_text(tmp_path / "new/a.txt", "old")

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "new/a.txt", b"new")
    assert [(path.name, path.read_text()) for path in (tmp_path / "new").iterdir()] == [("a.txt", "old")]


def test_an_error_names_the_file(tmp_path, monkeypatch):
    """Of `search --html` on a full disk, it was "No space left on device" alone."""

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(tmp_path / "a.html", b"")
    assert caught.value.filename == str(tmp_path / "a.html")


def test_an_error_does_not_name_the_file_beside_it(tmp_path, monkeypatch):
    """A folder that cannot be written was said of `a.html.123-456.tmp`."""

    def denied(path, *_):
        raise PermissionError(13, os.strerror(13), os.fspath(path))

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(PermissionError) as caught:
        write_bytes(tmp_path / "a.html", b"")
    assert caught.value.filename == str(tmp_path / "a.html")


def test_links_and_devices_stay_what_they_are(tmp_path):
    """A device or a link that a command was given as its file was replaced by a file."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/a.txt")
    for text in ("new", "newer"):  # the link leads nowhere at first
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there/a.txt").read_text() == text
    (tmp_path / "loop").symlink_to("loop")
    write_text(tmp_path / "loop", "a file")
    assert (tmp_path / "loop").read_text() == "a file"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    code = "from pathlib import Path; from visterm.pipeline.store.files import write_text\n"
    code += "write_text(Path('/dev/stdout'), 'text')"
    with open(tmp_path / "out", "a") as stream:
        stream.write("before, ")
        stream.flush()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=stream)
    assert (tmp_path / "out").read_text() == "before, text"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "loop", "out", "pipe", "there"]


def test_only_the_folder_above_is_made(tmp_path):
    """The one above that may be a run, which was renamed meanwhile."""
    for folder in ("learners/oasis", "learners/aroma", "overview"):
        with publish(tmp_path / folder, {}) as target:
            (target / "a.txt").touch()
    for write in (lambda: write_text(tmp_path / "run/learners/a.txt", ""), publish(tmp_path / "run/b/c", {}).__enter__):
        with pytest.raises(FileNotFoundError):
            write()
    assert not (tmp_path / "run").exists()


def test_a_kill_between_two_renames_is_undone(tmp_path):
    with publish(tmp_path / "model", {"n": 1}) as folder:
        (folder / "W.npy").write_bytes(b"W")
    (tmp_path / "model").rename(tmp_path / "model.old")
    (tmp_path / "model.tmp").mkdir()
    (tmp_path / "a.json.1-2.tmp").touch()
    recover(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["W.npy", "model", "record.json"]


def test_there_is_no_moment_without_an_artifact(tmp_path, monkeypatch):
    """Between two renames a reader saw neither the old one nor the new one."""
    for name in "ab":
        (tmp_path / name).mkdir()
    if not files.exchanged(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this system, or its file system, exchanges no folders")
    with publish(tmp_path / "model", {"n": 0}):
        pass
    rename = pathlib.Path.rename

    def checked(path, target):
        assert (tmp_path / "model/record.json").exists()
        return rename(path, target)

    monkeypatch.setattr(pathlib.Path, "rename", checked)
    with publish(tmp_path / "model", {"n": 1}) as folder:
        (folder / "W.npy").write_bytes(b"W")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["W.npy", "a", "b", "model", "record.json"]
    (tmp_path / "model.tmp").mkdir()  # the old one, of a process that was killed then
    recover(tmp_path)
    assert not (tmp_path / "model.tmp").exists()


def test_an_artifact_is_replaced_where_none_can_be_exchanged(tmp_path, monkeypatch):
    monkeypatch.setattr("visterm.pipeline.store.files.exchanged", lambda one, other: False)
    for n in (0, 1):
        with publish(tmp_path / "model", {"n": n}) as folder:
            (folder / f"{n}.npy").touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["1.npy", "model", "record.json"]


def test_who_takes_the_lock_leaves_what_is_written_without_it(tmp_path):
    """The map, and the file of the first mark."""
    run = Run(tmp_path / "runs/fruit")
    run.folder.mkdir(parents=True)
    (run.folder / "feedback.sqlite.1-2.tmp").touch()
    with publish(run.folder / "overview", {}) as folder:
        (folder / "points.npy").touch()
        with run.locked():
            pass
        (folder / "ids.npy").touch()
    left = sorted(path.name for path in run.folder.rglob("*") if path.name != ".lock")
    assert left == ["feedback.sqlite.1-2.tmp", "ids.npy", "overview", "points.npy", "record.json"]

    (run.folder / "overview").rename(run.folder / "overview.old")  # killed between two renames, an hour ago
    for path in run.folder.iterdir():
        os.utime(path, (0, 0))
    with run.locked():
        pass
    assert sorted(path.name for path in run.folder.iterdir() if path.name != ".lock") == ["overview"]


def test_a_lock_excludes_others_until_its_process_is_killed_and_else_is_one_line(tmp_path):
    file = tmp_path / "new/.lock"
    command = [sys.executable, "-c", HOLD, file]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with locked(file, wait=0) as free:
            assert not free
        holder.kill()
        with locked(file, wait=None) as free, locked(file, wait=0) as again:
            assert (free, again) == (True, False)
    (tmp_path / "file").touch()
    refused = pytest.raises(UserError, match=r"file: cannot be written \(.*\); search still works$")
    with refused, locked(tmp_path / "file/.lock", wait=None, advice="search still works"):
        pass
