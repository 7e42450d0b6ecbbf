"""The configuration of a run as it was kept: the same values, until its file or its models change."""

import copy
import json

import pytest

from visterm.pipeline.config.idle import set_settings
from visterm.pipeline.config.kept import Kept, file_of
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.config.models import Config
from visterm.pipeline.store.run import Run


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path / "runs/fruit")
    run.folder.parent.mkdir()
    run.save_config(load_config(None, ["collection.exclude=[a_*, '*.gif']", "split.train=0.5", "evaluate.max_k=7"]))
    return run


def test_kept_values_are_those_of_the_file(run):
    kept, read = run.configure(None, []), load_config(run.folder / "config.yaml")
    assert isinstance(kept, Kept)
    assert isinstance(read, Config)
    for section in Config.model_fields:
        assert getattr(kept, section) == getattr(read, section)
    assert kept.evaluate.max_k == 7
    assert kept.model_dump() == read.model_dump()
    assert kept.collection.model_dump(include={"exclude"}) == {"exclude": ["a_*", "*.gif"]}
    assert kept.split.model_dump(exclude={"by"}) == read.split.model_dump(exclude={"by"})
    assert kept.counts_visterms
    assert kept == read == kept
    assert copy.copy(kept).evaluate.max_k == 7
    kept.collection.model_dump()["exclude"].clear()
    assert kept.collection.exclude


def test_names_of_what_is_not_the_default_are_kept(run, monkeypatch):
    kept, read = run.configure(None, []), load_config(run.folder / "config.yaml")
    for sections in (("split",), ("evaluate", "collection"), ("oasis",), tuple(Config.model_fields)):
        assert set_settings(kept, *sections) == set_settings(read, *sections)
    assert set_settings(kept, "split", "evaluate") == ["split.train", "evaluate.max_k"]
    file = run.folder / "config.yaml"
    before = file.stat().st_mtime_ns, file_of(file).stat().st_mtime_ns
    monkeypatch.setattr(Config, "__init__", None)  # is not made
    run.save_config(kept)
    assert (file.stat().st_mtime_ns, file_of(file).stat().st_mtime_ns) == before


def test_values_of_another_run_are_saved(run, tmp_path):
    other = Run(tmp_path / "runs/other")
    other.save_config(run.configure(None, []))
    assert other.configure(None, []).evaluate.max_k == 7


@pytest.mark.parametrize("change", ["config", "values", "no JSON", "gone"])
def test_what_changed_is_read_and_checked_again(run, change):
    file = run.folder / "config.yaml"
    beside = file_of(file)
    if change == "config":
        file.write_text(file.read_text().replace("max_k: 7", "max_k: 8"))
    elif change == "values":
        content = json.loads(beside.read_text())
        content["values"]["evaluate"]["max_k"] = 9
        beside.write_text(json.dumps(content))
    else:
        beside.write_text("{") if change == "no JSON" else beside.unlink()
    config = run.configure(None, [])
    assert isinstance(config, Config)
    assert config.evaluate.max_k == (8 if change == "config" else 7)
    run.save_config(config)
    assert isinstance(run.configure(None, []), Kept)


def test_models_of_another_version_read_the_file_again(run, monkeypatch):
    monkeypatch.setattr("visterm.pipeline.config.kept._fingerprint", lambda *content: "of other models")
    assert isinstance(run.configure(None, []), Config)


def test_settings_on_top_are_checked(run):
    config = run.configure(None, ["evaluate.max_k=3"])
    assert isinstance(config, Config)
    assert config.evaluate.max_k == 3
