"""The guard rails of the layout: rooms at the root, installed as visterm.<room>, every sub-package named."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile

import pytest

ROOMS = ("features", "learners", "retrieval", "pipeline")


def imported_rooms(room):
    """Pairs (file, room imported) of all imports of a room's files."""
    for file in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.ImportFrom):
                depth = len(file.relative_to(room).parts)
                assert node.level <= depth, f"{file} reaches out of its room"
            for name in names:
                if name.startswith("visterm."):
                    yield file, name.split(".")[1]


@pytest.mark.parametrize("room", ROOMS)
def test_only_the_pipeline_imports_other_rooms(repository, room):
    foreign = {(str(file), other) for file, other in imported_rooms(repository / room) if other != room}
    assert room == "pipeline" or not foreign


def test_the_walk_sees_imports(repository):
    """The pipeline uses all rooms; a walk that found nothing would prove nothing."""
    assert {other for _, other in imported_rooms(repository / "pipeline")} >= set(ROOMS) - {"pipeline"}


def packages_with_python(repository):
    """Every folder of the rooms that holds Python, as it is imported."""
    files = [file for room in ROOMS for file in (repository / room).rglob("*.py")]
    return {".".join(("visterm", *file.relative_to(repository).parent.parts)) for file in files}


def test_every_folder_of_python_is_packaged(repository):
    settings = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["setuptools"]
    present = packages_with_python(repository)
    assert "visterm.pipeline.cli" in present
    assert set(settings["packages"]) == present, "setuptools leaves an unnamed folder out of the wheel silently"


@pytest.mark.parametrize("room", ["features", "learners", "retrieval"])
def test_the_libraries_are_flat(repository, room):
    assert f"visterm.{room}" in packages_with_python(repository)
    assert not [name for name in packages_with_python(repository) if name.startswith(f"visterm.{room}.")]


def test_the_wheel_holds_every_file(repository, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in (*ROOMS, "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", str(repository / name), str(source)], check=True)
    result = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(source)],
        capture_output=True,
        text=True,
    )
    if result.returncode and "Could not find a version" in result.stdout + result.stderr:
        pytest.skip("no package index to fetch the build backend from")
    assert result.returncode == 0, result.stdout + result.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {name.removeprefix("visterm/") for name in wheel.namelist() if name.startswith("visterm/")}
    present = {
        file.relative_to(repository).as_posix()
        for room in ROOMS
        for file in (repository / room).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert present >= {"pipeline/report/templates/report.html.jinja", "pipeline/service/web/index.html"}
    assert packed == present
