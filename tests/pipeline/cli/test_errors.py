"""Errors that nobody foresaw."""

import pytest
import typer

from visterm.pipeline.cli.errors import command


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
    with pytest.raises(typer.Exit) as ended:
        work(run=run)
    line = "visterm: internal error: RuntimeError: cannot cache function; 'visterm --debug ...' shows where\n"
    assert (ended.value.exit_code, capsys.readouterr().err) == (1, line)
