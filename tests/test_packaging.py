"""The guard rails of the layout: rooms at the root, installed as visterm.<room>, every sub-package named."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

ROOMS = ("features", "learners", "retrieval", "pipeline")


def packages_with_python(repository):
    """Every folder of the rooms that holds Python, as it is imported."""
    files = [file for room in ROOMS for file in (repository / room).rglob("*.py")]
    return {".".join(("visterm", *file.relative_to(repository).parent.parts)) for file in files}


def test_every_folder_of_python_is_packaged(repository):
    settings = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["setuptools"]
    present = packages_with_python(repository)
    assert "visterm.pipeline.cli" in present
    with_folders = ("visterm.pipeline.", "visterm.learners.baselines")  # other rooms are flat
    assert not [name for name in present if name.count(".") > 1 and not name.startswith(with_folders)]
    assert set(settings["packages"]) == present, "setuptools leaves an unnamed folder out of the wheel silently"


@pytest.mark.slow
def test_the_wheel_holds_every_file(repository, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in (*ROOMS, "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", str(repository / name), str(source)], check=True)
    tools = source / "node_modules/tool"  # of those that check the page's code
    tools.mkdir(parents=True)
    for name in ("index.js", "tool.py"):
        (tools / name).touch()
    result = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(source)],
        capture_output=True,
        text=True,
    )
    if result.returncode and "Could not find a version" in result.stdout + result.stderr:
        pytest.skip("no package index to fetch the build backend from")
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sdist:
        assert not [name for name in sdist.getnames() if "node_modules" in name]
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        assert not [name for name in wheel.namelist() if "node_modules" in name]
        packed = {name.removeprefix("visterm/") for name in wheel.namelist() if name.startswith("visterm/")}
    present = {
        file.relative_to(repository).as_posix()
        for room in ROOMS
        for file in (repository / room).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert present >= {"pipeline/report/templates/report.html.jinja", "pipeline/service/web/index.html"}
    assert packed == present
