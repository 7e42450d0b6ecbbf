"""The command: what it writes, and how it ends."""

import sys
import types

import jinja2
import pytest

from experiments import __main__ as command
from experiments import jobs, pages

TEMPLATE = """
{% extends "page.md.jinja" %}
{% block title %}Doubled: {{ double }}{% endblock %}
{% block source %}A paper.{% endblock %}
{% block protocol %}None.{% endblock %}
{% block claims %}
{% call claim("oasis-over-mcml", holds, must=true) %}
Twice is more.
== yes
{% endcall %}
{% endblock %}
{% block figures %}None.{% endblock %}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Function (arguments, holds) that runs the command on one small experiment and returns its exit status."""

    def run(*arguments, holds=True, quick_jobs=({"number": 1},)):
        module = types.ModuleType("experiments.small")
        module.runs_alone = lambda job: True
        module.jobs = lambda quick: [*quick_jobs] if quick else [{"number": 2}]
        module.measure = lambda number: {"double": 2 * number}
        module.facts = lambda results: {"double": results[0]["double"], "holds": holds}
        loader = jinja2.ChoiceLoader([jinja2.DictLoader({"small.md.jinja": TEMPLATE}), pages._TEMPLATES.loader])
        monkeypatch.setattr(pages._TEMPLATES, "loader", loader)
        monkeypatch.setitem(sys.modules, "experiments.small", module)
        for place in (jobs, command):
            monkeypatch.setattr(place, "ROOT", tmp_path)
            monkeypatch.setattr(place, "code_of", lambda measure: "code")
        monkeypatch.setattr(jobs, "KEPT", tmp_path / "kept")
        monkeypatch.setattr(command, "NAMES", ("small",))
        monkeypatch.setattr(command, "write_coverage", lambda folder, names: None)
        monkeypatch.setattr(command, "DATA", tmp_path / "data")
        monkeypatch.setattr(sys, "argv", ["experiments", *arguments])
        return command.main()

    (tmp_path / "data" / "caltech101").mkdir(parents=True)
    return run


def test_writes_a_page_and_a_summary_and_when_quick_elsewhere(run, tmp_path):
    assert run("--quick") == 0
    assert "Doubled: 2" in (tmp_path / "build" / "results-quick" / "small.md").read_text()
    assert not (tmp_path / "docs").exists()
    assert run("small") == 0
    assert "Doubled: 4" in (tmp_path / "docs" / "results" / "small.md").read_text()
    assert "Of 1 claims of the papers, 1 hold" in (tmp_path / "docs" / "results" / "README.md").read_text()


def test_a_quick_run_leaves_out_what_has_no_quick_jobs(run, tmp_path, monkeypatch):
    def run_jobs(*given, **options):
        raise AssertionError("nothing is to be run")

    monkeypatch.setattr(command, "run_jobs", run_jobs)
    assert run("--quick", quick_jobs=()) == 0
    assert not (tmp_path / "build" / "results-quick" / "small.md").exists()


def test_fails_where_an_ordering_that_must_hold_does_not(run, capsys):
    assert run(holds=False) == 1
    assert "must hold, and does not: small: Twice is more." in capsys.readouterr().err


def test_verdicts_are_written_again_without_images_and_without_jobs(run, tmp_path, monkeypatch):
    run()
    written = (tmp_path / "docs" / "results" / "small.md").read_text()
    (tmp_path / "data" / "caltech101").rmdir()
    monkeypatch.setattr(command, "run_jobs", None)
    assert run("--render") == 0
    assert (tmp_path / "docs" / "results" / "small.md").read_text() == written


def test_without_images_or_with_an_unknown_name_one_line_says_so(run, tmp_path, capsys):
    (tmp_path / "data" / "caltech101").rmdir()
    assert run() == 2
    assert "VISTERM_DATA" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        run("nosuch")
    assert stopped.value.code == 2
    assert "there are small" in capsys.readouterr().err
