"""The guard rails of the layout: rooms at the root, installed as visterm.<room>."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile

import pytest

ROOMS = ("features", "learners", "retrieval", "pipeline")


def imported_rooms(room):
    """Pairs (file, room imported) of all imports of a room's files."""
    for file in sorted(room.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1, f"{file} reaches out of its room"
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


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_flat(repository, room):
    """A folder of data is none: the pages of the service are one."""
    folders = [p for p in (repository / room).iterdir() if p.is_dir() and p.name != "__pycache__"]
    inner = [p.name for p in folders if any(p.rglob("*.py"))]
    assert not inner, "setuptools would leave a sub-package out of the wheel silently"


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
    assert present >= {"pipeline/report.html.jinja", "pipeline/web/index.html"}
    assert packed == present
