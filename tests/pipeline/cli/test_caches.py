"""Where neither the package nor the home can be written."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import visterm.retrieval
from visterm.pipeline.cli import caches

VISTERM = os.path.join(os.path.dirname(sys.executable), "visterm")
# Package and home read-only, and a numeric user without a name: as in many containers.
CONTAINER = """
for folder in "$PACKAGE" "$HOME"; do mount --bind -o ro "$folder" "$folder" || exit; done
exec unshare --user --map-user=12345 "$@"
"""


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Nothing can be written but TMPDIR; return the folder there."""
    from numba.core.dispatcher import Dispatcher

    monkeypatch.setattr(Dispatcher, "enable_caching", Dispatcher.enable_caching)
    for name in ("NUMBA_CACHE_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, "")  # so that it is given back
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(caches.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path / f"visterm-{os.getuid()}"


def test_kernels_and_fonts_get_a_folder_below_tmpdir(nowhere):
    assert caches.prepare_caches().startswith(f"{nowhere}: kernels are compiled into this folder")
    places = os.environ["NUMBA_CACHE_DIR"], os.environ["MPLCONFIGDIR"]
    assert places == (f"{nowhere}/numba", f"{nowhere}/matplotlib")
    assert nowhere.stat().st_mode & 0o777 == 0o700
    assert caches.prepare_caches() is None  # said once
    del os.environ["NUMBA_CACHE_DIR"]
    assert caches.prepare_caches() is None
    assert os.environ["NUMBA_CACHE_DIR"] == places[0]


def _writable_by_others(folder):
    folder.mkdir()
    folder.chmod(0o777)


def _link(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("make", [_writable_by_others, _link, Path.touch])
def test_code_is_not_read_from_a_folder_that_others_can_write(nowhere, make):
    from numba import njit

    make(nowhere)
    assert caches.prepare_caches().startswith("kernels are compiled anew by each command, as no folder")
    assert "NUMBA_CACHE_DIR" not in os.environ
    assert njit(cache=True)(abs_of)(-2) == 2


def abs_of(x):
    return abs(x)


@pytest.mark.parametrize(("writable", "own"), [("home", ()), ("package", ("MPLCONFIGDIR",))])
def test_a_home_or_a_package_that_can_be_written_is_used(nowhere, monkeypatch, tmp_path, writable, own):
    for name in ("home", "package"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(caches, "_ROOMS", tmp_path / "package")
    monkeypatch.setattr(os, "access", lambda place, _: place == tmp_path / writable)
    caches.prepare_caches()
    assert [name for name in ("NUMBA_CACHE_DIR", "MPLCONFIGDIR") if name in os.environ] == list(own)


@pytest.mark.slow
def test_everything_runs_in_a_container_with_a_numeric_user(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{label}/{i}.jpg" for label in ("apple", "pear", "plum") for i in range(10)])
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    package = Path(visterm.retrieval.__file__).parents[1]
    variables = {"PACKAGE": str(package), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "NUMBA_", "MPL", "VIS"))}
    shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", CONTAINER, "sh"]

    def start(*arguments):
        command = [*shell, VISTERM, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=kept | variables, cwd=tmp_path, **pipes)

    def run(*arguments):
        process = start(*arguments)
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        return out, error.splitlines()

    try:
        subprocess.run([*shell, "true"], env=kept | variables, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no namespaces of users here ({error})")
    out, said = run("--no-progress", "demo", "--json")
    assert sum("kernels are compiled into" in line for line in said) == 1
    assert not any("matplotlib" in line.lower() or "font" in line for line in said)
    assert json.loads(out)
    _, said = run("--no-progress", "features", "fruit", "--set", "features.n_visterms=40")
    assert not any("kernels are compiled into" in line for line in said)
    run("train", "--run", "fruit")
    run("evaluate", "--run", "fruit")
    assert run("search", "fruit/apple/1.jpg", "--run", "fruit", "-k", "1")[0].count("apple") == 3
    service = start("serve", "--run", "fruit", "--port", "0")
    address = service.stdout.readline().strip()
    (answer,) = httpx.get(f"{address}search", params={"id": 1, "k": 2}, timeout=120).json()
    service.send_signal(signal.SIGINT)
    assert service.communicate(timeout=100)[1] == "press Ctrl-C to stop\n"
    assert len(answer["results"]) == 2
    assert list((tmp_path / "home").iterdir()) == []
