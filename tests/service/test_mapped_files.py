"""A real service whose mapped files are cut short, one after the other: reading beyond an end would end it."""

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from running import visterm

# As of large runs: files of vectors and learners are mapped, whatever their size.
PROGRAM = """
import sys
import tempfile
import visterm.pipeline.store.models as models
import visterm.pipeline.store.vectors as vectors
import visterm.learners.storage as storage
models._WHOLE_BYTES = vectors.IN_MEMORY = 0
storage._SMALL = 1000
if sys.argv.pop() == "full":
    def no_room_in_runs(*args, make=tempfile.TemporaryFile, **options):
        if "/runs/" in str(options.get("dir")):
            raise OSError(28, "No space left on device")
        return make(*args, **options)
    tempfile.TemporaryFile = no_room_in_runs
from visterm.pipeline.cli.app import app
sys.argv = ["visterm", "serve", "--run", "x", "--port", "0"]
app()
"""
ASKED = (
    *(f"search?id=3&k={k}&learner={learner}" for k in (5, 120) for learner in ("oasis", "wsabie", "cosine")),
    *("api/map", "api/images", "health"),
)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists mapped files")
@pytest.mark.parametrize("disk", ["roomy", "full"])
def test_a_service_outlives_each_of_its_files(tmp_path, disk):
    rng, y = np.random.default_rng(0), np.repeat(range(3), 40)
    np.save(tmp_path / "x.npy", rng.normal(size=(120, 32)) + 2 * np.eye(3, 32)[y])
    (tmp_path / "x.txt").write_text("".join(f"c{label}/{i}.jpg\n" for i, label in enumerate(y)))
    visterm("features", "--vectors", "x.npy", "--ids", "x.txt", cwd=tmp_path)
    visterm("train", "--learner", "oasis,wsabie", "--set", "oasis.n_steps=2000", cwd=tmp_path)
    run = tmp_path / "runs/x"
    environment = os.environ | {"VISTERM_RUNS": str(tmp_path / "runs")}
    service = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, disk], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        address = service.stdout.readline().strip()

        def answers():
            return {asked: httpx.get(address + asked, timeout=100) for asked in ASKED}

        def results(answer):
            return answer.json()[0]["results"]

        whole = answers()
        assert [asked for asked, answer in whole.items() if answer.status_code != 200] == []
        maps = Path(f"/proc/{service.pid}/maps")

        def mapped():
            return {Path(name) for name in maps.read_text().split() if name.endswith(".npy")}

        learned = {file for name in ("oasis", "wsabie") for file in run.glob(f"learners/{name}/files/*.npy")}
        assert learned
        assert not mapped()  # but copies of their own, which have no name
        assert (re.search(r"/files/#\d+ \(deleted\)", maps.read_text()) is not None) == (disk == "roomy")
        (vectors,) = run.glob("collection/segments/*/vectors.npy")
        with concurrent.futures.ThreadPoolExecutor(2) as people:
            for file in (*sorted(learned), vectors):
                data, asking = file.read_bytes(), [people.submit(answers) for _ in range(2)]
                os.truncate(file, len(data) // 2)
                for asked, answer in [*answers().items(), *(pair for one in asking for pair in one.result().items())]:
                    if answer.status_code == 200:
                        assert not asked.startswith("search") or results(answer) == results(whole[asked]), (file, asked)
                    else:
                        assert file == vectors
                        named = "vectors.npy: cut short while it was in use; run 'visterm features --run x' to"
                        assert named in answer.json()["error"], asked
                assert service.poll() is None, file
                with open(file, "r+b") as stream:  # the same file, as it is mapped
                    stream.write(data)
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate(timeout=100)
    assert service.returncode == 0
