"""Additions to the main job: commands of other packages, and rooms that are not installed."""

import sys
from importlib import metadata

import pytest
import typer
from running import visterm

from visterm.pipeline import plugins
from visterm.pipeline.errors import UserError


def greet(name: str = "you"):
    """Greet somebody."""
    print(f"hello {name}")


group = typer.Typer(name="greetings", no_args_is_help=True)
group.command("one")(greet)
group.command("another")(greet)


@pytest.mark.parametrize(
    ("name", "addition", "arguments"), [("greet", greet, ["--name", "Ada"]), ("greetings", group, ["one"])]
)
def test_a_command_of_another_package_is_found_by_its_name(monkeypatch, tmp_path, name, addition, arguments):
    entry = metadata.EntryPoint(name, f"{__name__}:{name}", "visterm.commands")
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda _: addition)
    entries = {name: metadata.EntryPoints([entry])}
    monkeypatch.setattr(metadata, "entry_points", lambda *, group, name: entries.get(name, []))
    assert visterm(name, *arguments, cwd=tmp_path).stdout.startswith("hello ")
    assert "No such command" in visterm("greets", cwd=tmp_path, check=2).stderr


@pytest.fixture
def _main_job_alone(monkeypatch):
    """As if the rooms above the main job were not installed."""
    for place in [*plugins.ADDITIONS.values(), *(place for place, _ in plugins.STORES.values())]:
        monkeypatch.setitem(sys.modules, f"visterm.{place}".partition(":")[0], None)


@pytest.mark.usefixtures("_main_job_alone")
def test_what_is_not_installed_is_missing_or_said():
    assert all(plugins.find(place) is None for place, _ in plugins.STORES.values())
    with pytest.raises(UserError, match="this installation has no visterm.*, which Dask needs"):
        plugins.load("Dask")


def test_a_module_that_an_addition_lacks_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "visterm.plugins.milvus.milvus_index", raising=False)
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        plugins.load("Milvus")
