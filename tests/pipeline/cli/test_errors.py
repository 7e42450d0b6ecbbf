"""Errors that nobody foresaw."""

import errno
import fcntl
import io
import sys
from unittest.mock import Mock

import pytest
from running import refused, visterm

from visterm.pipeline.cli.app import main
from visterm.pipeline.cli.errors import command
from visterm.pipeline.store import files


@command
def work(run: str | None = None) -> None:
    raise RuntimeError("cannot cache function")


@pytest.mark.parametrize("runs", [(), ("fruit",), ("fruit", "other")])
@pytest.mark.parametrize("run", [None, "fruit"])
def test_the_cause_is_said_whether_or_not_there_is_a_run(tmp_path, monkeypatch, capsys, runs, run):
    for name in runs:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VISTERM_RUNS", raising=False)
    with pytest.raises(SystemExit) as ended:
        work(run=run)
    line = "visterm: internal error: RuntimeError: cannot cache function; 'visterm --debug ...' shows where\n"
    assert (ended.value.code, capsys.readouterr().err) == (70, line)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_a_name_that_standard_output_cannot_encode_is_escaped(mine, monkeypatch, encoding):
    visterm("label", "add", "caf\u00e9 \u65e5\u672c", "id:1", cwd=mine)
    written = io.BytesIO()
    monkeypatch.chdir(mine)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, errors="strict"))
    monkeypatch.setattr(sys, "argv", ["visterm", "search", "id:2", "--run", "fruit", "-k", "29"])
    with pytest.raises(SystemExit) as ended:
        main()
    sys.stdout.flush()
    assert ended.value.code in (0, None)
    text = written.getvalue().decode(encoding)
    assert "caf\u00e9 \u65e5\u672c".encode(encoding, "backslashreplace").decode(encoding) in text
    assert len(text.splitlines()) == 31


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize("function", ["flock", "lockf"])
def test_a_file_system_without_locks_is_named(mine, monkeypatch, function, code):
    monkeypatch.setattr(files, "_known_devices", {})
    monkeypatch.setattr(fcntl, function, Mock(side_effect=OSError(code, "No locks available")))
    for call in (["features"], ["search", "id:1"], ["label", "add", "red", "id:1"]):
        line = refused(*call, "--run", "fruit", cwd=mine)
        assert "this file system has no locks (No locks available)" in line
        assert "VISTERM_RUNS" in line
