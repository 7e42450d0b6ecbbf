"""Work on a Dask cluster, with a real scheduler and real workers: the same bytes as on this machine alone."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from machines import machines
from running import visterm
from scipy import sparse

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages import edit as edit_stage
from visterm.pipeline.stages.evaluate import evaluate as evaluate_stage
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.stages.train import train as train_stage
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import write_segment
from visterm.plugins.dask import dask_cluster as dask_cluster_stage
from visterm.plugins.dask.dask_cluster import connected

pytest.importorskip("distributed", reason="needs the extra dask")

SETTINGS = (
    *("features.n_visterms=40", "compute.segment_size=4", "compute.n_jobs=1"),
    *("oasis.n_steps=2000", "oasis.pass_steps=1000", "oasis.n_rankers=3"),
)
LIMIT = 200  # seconds to wait for a process


class Dask:
    """A scheduler and workers, each a process of its own, as ``dask scheduler`` and ``dask worker`` start them."""

    def __init__(self, folder: Path, **environment):
        self.folder = folder
        self.processes: list[subprocess.Popen] = []
        self.names: list[str] = []  # of the workers that are waited for
        file = folder / f"{uuid.uuid4().hex}.json"
        options = ["--port=0", "--no-dashboard", "--no-show", f"--scheduler-file={file}"]
        self.scheduler = self.start("scheduler", *options, **environment)
        wait_for(lambda: file.exists() and file.read_text().endswith("}"))
        address = json.loads(file.read_text())["address"]
        self.port = int(address.rpartition(":")[2])
        self.address = f"tcp://127.0.0.1:{self.port}"

    def start(self, kind: str, *arguments: str, before: tuple[str, ...] = (), **more) -> subprocess.Popen:
        environment = os.environ | {"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "0"} | more
        command = [*before, sys.executable, "-m", "dask", kind, *arguments]
        with (self.folder / f"{kind}{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)
        self.processes.append(process)
        return process

    def worker(self, **options) -> subprocess.Popen:
        """Start a worker and wait for it."""
        process = self.begin_worker(**options)
        self.wait_for_workers()
        return process

    def begin_worker(self, *, address: str = "", before: tuple[str, ...] = (), **environment) -> subprocess.Popen:
        """Start a worker with one thread, that dies when it is killed, without waiting for it."""
        self.names.append(uuid.uuid4().hex)
        options = ["--nthreads=1", "--no-nanny", "--no-dashboard", "--memory-limit=0", f"--name={self.names[-1]}"]
        return self.start("worker", address or self.address, *options, before=before, **environment)

    def wait_for_workers(self) -> None:
        """Wait for the workers that were started."""
        self.wait(lambda names: set(self.names) <= set(names))
        self.names.clear()

    def wait(self, condition) -> None:
        import distributed

        with distributed.Client(self.address, set_as_default=False) as client:
            wait_for(lambda: condition([w["name"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]))

    def end(self, *processes: subprocess.Popen) -> None:
        for process in processes or self.processes[::-1]:
            process.kill()
            process.wait()


def wait_for(condition) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    """A scheduler with two workers, on machines of their own where that can be had."""
    processes = Dask(tmp_path_factory.mktemp("dask"))
    try:
        made, _ = machines()
        for name, here, _ in made:
            processes.begin_worker(address=f"tcp://{here}:{processes.port}", before=("ip", "netns", "exec", name))
        for _ in range(2 - len(made)):
            processes.begin_worker()
        processes.wait_for_workers()
        yield processes
    finally:
        processes.end()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """A scheduler that gives a task up when it has ended two workers: four by default, and each takes its time."""
    processes = Dask(tmp_path_factory.mktemp("scheduler"), DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1")
    yield processes
    processes.end()


@pytest.fixture
def lonely(scheduler):
    """A scheduler without workers; those that a test starts end with it."""
    yield scheduler
    while len(scheduler.processes) > 1:
        scheduler.end(scheduler.processes.pop())
    scheduler.wait(lambda names: not names)


@pytest.fixture
def mortal(tmp_path):
    """A scheduler for one test, which may end it."""
    (tmp_path / "dask").mkdir()
    processes = Dask(tmp_path / "dask")
    yield processes
    processes.end()


@pytest.fixture(scope="module")
def fruit(tmp_path_factory, write_images) -> Path:
    """Images, and a run of them that was made on this machine alone."""
    folder = tmp_path_factory.mktemp("fruit")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in ("apple", "pear", "plum", "fig") for i in range(6)])
    (folder / "fruit/plum/3.jpg").write_bytes(b"no image")
    everything(Run(folder / "runs/alone"), configured(), folder / "fruit")
    return folder


def configured(scheduler: str | None = None, *settings: str):
    return load_config(None, [*SETTINGS, *settings, f"cluster.scheduler={scheduler or 'null'}"])


def everything(run, config, images) -> None:
    console = Console(quiet=True)
    features_stage(run, config, images, console)
    train_stage(run, config, "oasis", console)
    evaluate_stage(run, config, "oasis", console)


@contextmanager
def at_work(dask: Dask, tmp_path: Path, *arguments):
    """Lock a run and connect with a cluster."""
    run = Run(tmp_path / "runs/fruit")
    with run.locked(create=True), connected(configured(dask.address), run, *arguments) as cluster:
        yield cluster


def files_of(run: Run) -> dict[str, bytes]:
    """What must come out the same."""
    parts = (
        "collection/segments/*/*",
        "extractor/files/*.npy",
        "learners/oasis/files/*.npy",
        "evaluations/oasis/*.csv",
    )
    files = {str(p.relative_to(run.folder)): p.read_bytes() for part in parts for p in run.folder.glob(part)}
    assert len(files) > 10
    return files


def rows_of(run: Run) -> list:
    collection = Collection(run.collection)
    rows = collection.images(), collection.skipped()
    collection.close()
    return rows


def check_same(run: Run, folder: Path, *parts: str) -> None:
    """Compare with the run of this machine alone; parts are those that were made, if not all."""
    alone = Run(folder / "runs/alone")
    expected = files_of(alone)
    if parts:
        expected = {name: content for name, content in expected.items() if name.startswith(parts)}
    assert files_of(run) == expected
    assert rows_of(run) == rows_of(alone)
    assert not list(run.folder.glob(".worker-*"))
    assert not list(run.collection.glob("segments/*.tmp"))


@pytest.mark.slow
def test_all_stages_end_with_the_bytes_of_this_machine_alone(dask, fruit, tmp_path, monkeypatch):
    there = []  # what was asked of workers
    work = dask_cluster_stage.Cluster.map

    def noted(self, function, tasks):
        there.append(function)
        return work(self, function, tasks)

    monkeypatch.setattr(dask_cluster_stage.Cluster, "map", noted)
    run = Run(tmp_path / "runs/fruit")
    everything(run, configured(dask.address), fruit / "fruit")
    check_same(run, fruit)
    names = [function.__name__ for function in there]
    assert names[:3] == ["<lambda>", "<lambda>", "count_batch"]  # palette, descriptors, counts
    assert names[3:5] == ["count_batch", "extract_segment"]  # of held-out images as new ones; vectors
    assert names[-1] == "_measure_on_worker"
    assert names.count("_learn_there") == len(names) - 6 > 0


@pytest.mark.slow
def test_the_workers_are_on_machines_of_their_own(dask):
    """So that what the other tests find is not by grace of one machine's network."""
    made, reason = machines()
    if not made:
        pytest.skip(reason)
    import distributed

    with distributed.Client(dask.address, set_as_default=False) as client:
        hosts = {host.split(":")[1] for host in client.nthreads()}
    assert hosts >= {f"//{there}" for _, _, there in made}


def test_what_is_fresh_asks_no_cluster(fruit, tmp_path):
    shutil.copytree(fruit / "runs", tmp_path / "runs")
    run = Run(tmp_path / "runs/alone")
    everything(run, configured("tcp://127.0.0.1:1"), fruit / "fruit")
    check_same(run, fruit)


@pytest.mark.slow
def test_a_forest_is_grown_from_what_workers_sample(dask, fruit, tmp_path):
    settings = ("features.codebook.kind=forest", "features.codebook.n_trees=2")
    for name, config in (("a", configured(None, *settings)), ("b", configured(dask.address, *settings))):
        features_stage(Run(tmp_path / name), config, fruit / "fruit", Console(quiet=True))
    files = [{f.name: f.read_bytes() for f in (tmp_path / name / "extractor/files").glob("*.npy")} for name in "ab"]
    assert files[0] == files[1]
    assert len(files[0]) > 3


@pytest.mark.slow
def test_a_killed_worker_costs_its_task(dask, fruit, tmp_path):
    victim = dask.worker()
    place = tmp_path / "at-work"

    def slow(number):
        (place / f"{number}.{os.getpid()}").touch()
        time.sleep(0.3)
        return number, os.getpid()

    def kill():
        wait_for(lambda: any(place.glob(f"*.{victim.pid}")))
        victim.kill()
        victim.wait()

    place.mkdir()
    with at_work(dask, tmp_path) as cluster:
        killer = threading.Thread(target=kill)
        killer.start()
        results = list(cluster.map(slow, ((i,) for i in range(12))))
        killer.join()
    assert [number for number, _ in results] == list(range(12))
    started = sorted(int(file.name.partition(".")[0]) for file in place.iterdir())
    assert set(started) == set(range(12))
    assert len(started) > 12  # what it was at began again, elsewhere


@pytest.mark.slow
def test_a_worker_killed_while_it_extracts_costs_no_image(dask, fruit, tmp_path):
    run, victim = Run(tmp_path / "runs/fruit"), dask.worker()

    def kill():
        wait_for(lambda: any(run.collection.glob("segments/*/record.json")))
        victim.kill()
        victim.wait()

    killer = threading.Thread(target=kill)
    killer.start()
    features_stage(run, configured(dask.address), fruit / "fruit", Console(quiet=True))
    killer.join()
    check_same(run, fruit, "collection", "extractor")


def identities(folder):
    """Which files they are, and when each was written; reading a file changes other times."""
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in folder.iterdir()}


def test_a_segment_is_written_once(tmp_path):
    """A worker that was taken for dead must not touch what the one in its place wrote."""
    counts = sparse.csr_matrix(np.eye(3, dtype=np.int32))
    write_segment(tmp_path / "7", counts)
    before = identities(tmp_path / "7")
    write_segment(tmp_path / "7", counts)
    assert identities(tmp_path / "7") == before
    assert [path.name for path in tmp_path.iterdir()] == ["7"]


def test_tasks_are_drawn_as_the_work_goes_on(dask, tmp_path):
    drawn = 0

    def tasks():
        nonlocal drawn
        for i in range(10_000):
            drawn += 1
            yield (i,)

    with at_work(dask, tmp_path) as cluster:
        results = cluster.map(abs, tasks())
        assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert drawn < 30
        results.close()


def test_errors_of_a_function_come_back(dask, tmp_path):
    def refuse(number):
        raise ValueError(f"not {number}")

    def full(number):
        raise OSError(28, "No space left on device", "/shared/1.tmp")

    with at_work(dask, tmp_path) as cluster:
        with pytest.raises(ValueError, match="^not 1$"):
            list(cluster.map(refuse, [(1,), (2,)]))
        with pytest.raises(UserError, match=r"^worker tcp://.*: /shared/1.tmp: No space left on device; fix"):
            list(cluster.map(full, [(1,)]))


def refused(scheduler: str, fruit: Path, tmp_path: Path) -> str:
    """What a command says that must be refused; nothing may be lost."""
    run = Run(tmp_path / "runs/fruit")
    new = not run.folder.exists()
    with pytest.raises(UserError) as error:
        features_stage(run, configured(scheduler), fruit / "fruit", Console(quiet=True))
    assert "\n" not in str(error.value)
    assert not new or not run.folder.exists()
    return str(error.value)


def test_a_scheduler_that_is_not_there(fruit, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster_stage, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the call, and says nothing
        for port in (1, silent.getsockname()[1]):
            told = refused(f"tcp://127.0.0.1:{port}", fruit, tmp_path)
            assert told.startswith(f"tcp://127.0.0.1:{port}: no Dask scheduler answers (")
            assert "--scheduler none" in told


def test_dask_is_not_installed(fruit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "-m pip install 'distributed>=2025.1'" in refused("tcp://127.0.0.1:1", fruit, tmp_path)


def test_the_command_line_says_it_in_one_line(fruit, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster_stage, "CONNECT_SECONDS", 0.5)
    for given, reason in (("tcp://127.0.0.1:1", "no Dask scheduler answers"), ("host", "such as tcp://host:8786")):
        told = visterm("features", fruit / "fruit", "--scheduler", given, cwd=tmp_path, check=2).stderr
        assert told.splitlines()[-1].startswith("visterm: ")
        assert reason in told.splitlines()[-1]
        assert "Traceback" not in told
    assert not (tmp_path / "runs").exists()


def test_nothing_is_added_without_the_scheduler(fruit, tmp_path, write_images, monkeypatch):
    """Images that wait for it would keep training and evaluation from working."""
    monkeypatch.setattr(dask_cluster_stage, "CONNECT_SECONDS", 0.5)
    shutil.copytree(fruit / "runs", tmp_path / "runs")
    write_images(tmp_path / "more", [f"{i}.jpg" for i in range(5)])  # a segment has four
    run, gone = Run(tmp_path / "runs/alone"), configured("tcp://127.0.0.1:1")
    run.save_config(gone)
    before, segments = rows_of(run), sorted(run.collection.glob("segments/*"))
    with pytest.raises(UserError, match="no Dask scheduler answers .*--scheduler none"):
        edit_stage.add(run, gone, [tmp_path / "more"], Console(quiet=True))
    assert rows_of(run) == before
    assert sorted(run.collection.glob("segments/*")) == segments
    assert train_stage(run, gone, "oasis", Console(quiet=True))["up_to_date"]
    visterm("add", tmp_path / "more", "--run", "alone", "--scheduler", "none", cwd=tmp_path)
    assert len(rows_of(run)[0]) == len(before[0]) + 5
    assert run.configure(None, []) == gone  # the option is for this time
    done = edit_stage.add(run, gone, [tmp_path / "more"], Console(quiet=True))  # no work, no cluster
    assert (done["added"], done["present"]) == (0, 5)


@pytest.mark.slow
def test_a_scheduler_without_workers(lonely, fruit, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster_stage, "CONNECT_SECONDS", 5)
    told = refused(lonely.address, fruit, tmp_path)
    assert told == f"{lonely.address}: this scheduler has no workers; start some with 'dask worker {lonely.address}'"


def test_a_worker_of_another_version(lonely, fruit, tmp_path):
    other = tmp_path / "other/numpy-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    lonely.worker(PYTHONPATH=str(other.parent))
    told = refused(lonely.address, fruit, tmp_path)
    assert told.startswith("worker tcp://")
    assert "has numpy 1.0, this machine " in told


@pytest.mark.parametrize("package", ["python", "visterm", "distributed", "cloudpickle", "numpy", "pillow"])
def test_a_package_of_another_version(dask, fruit, tmp_path, monkeypatch, package):
    versions = dask_cluster_stage._versions()
    monkeypatch.setattr(dask_cluster_stage, "_versions", lambda: versions | {package: "1.0"})
    told = refused(dask.address, fruit, tmp_path)
    assert told.startswith("worker tcp://")
    assert f"has {package} {versions[package]}, this machine 1.0; install the same packages everywhere" in told


@pytest.mark.parametrize("package", ["python", "visterm", "distributed"])
def test_a_scheduler_of_another_version(dask, fruit, tmp_path, monkeypatch, package):
    import distributed

    ask = distributed.Client.get_versions

    def other(self, packages):
        versions = ask(self, packages=packages)
        versions["scheduler"]["packages"][package] = "1.0"
        return versions

    monkeypatch.setattr(distributed.Client, "get_versions", other)
    told = refused(dask.address, fruit, tmp_path)
    assert told.startswith(f"scheduler {dask.address} has {package} 1.0, this machine ")


def in_its_own_mounts(script: str) -> tuple[str, ...]:
    """The beginning of a command that sees other storage than this process."""
    before = ("unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh")
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("namespaces for mounts cannot be made here")
    return before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("mount -t tmpfs none {images}", "does not see the image {images}/apple/"),
        ("mount -t tmpfs none {runs}", "does not see the run's folder {runs}/fruit"),
        (
            "mount --bind {runs} {runs} && mount -o remount,ro,bind {runs}",
            "cannot write to {runs}/fruit (Read-only file system)",
        ),
    ],
)
def test_a_worker_with_other_storage(lonely, fruit, tmp_path, script, told):
    (tmp_path / "runs").mkdir()
    script, told = (text.format(images=fruit / "fruit", runs=tmp_path / "runs") for text in (script, told))
    lonely.worker(before=in_its_own_mounts(script))
    line = refused(lonely.address, fruit, tmp_path)
    assert line.startswith("worker tcp://")
    assert told in line


@pytest.mark.slow
def test_a_worker_that_joins_later_is_asked_too(lonely, fruit, tmp_path):
    """And what the others have finished by then is kept."""
    first = lonely.worker()
    before = in_its_own_mounts(f"mount -t tmpfs none {fruit}/fruit")
    with at_work(lonely, tmp_path, fruit / "fruit/apple/1.jpg") as cluster:
        results = cluster.map(abs, ((i,) for i in range(1000)))
        assert next(results) == 0
        lonely.worker(before=before)
        lonely.end(first)
        with pytest.raises(UserError, match="does not see the image"):
            list(results)


@pytest.mark.slow
def test_an_image_that_only_a_worker_cannot_open(lonely, fruit, tmp_path, monkeypatch):
    """It must not be taken for one that nobody can read."""
    lonely.worker(before=in_its_own_mounts(f"mount -t tmpfs none {fruit}/fruit/plum"))
    run = Run(tmp_path / "runs/fruit")
    shutil.copytree(fruit / "runs/alone", run.folder)
    shutil.rmtree(run.collection / "segments")
    with monkeypatch.context() as patch:
        patch.setattr(dask_cluster_stage, "CONNECT_SECONDS", 0.5)
        assert "no Dask scheduler answers" in refused("tcp://127.0.0.1:1", fruit, tmp_path)
    assert run.configure(None, []).cluster.scheduler is None  # what cannot be used is not kept
    told = refused(lonely.address, fruit, tmp_path)
    assert f"{fruit}/fruit/plum/0.jpg: a worker cannot open it" in told
    features_stage(run, configured(), fruit / "fruit", Console(quiet=True))
    assert rows_of(run)[1] == rows_of(Run(fruit / "runs/alone"))[1]


@pytest.mark.slow
def test_the_scheduler_goes_in_the_middle(mortal, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster_stage, "CONNECT_SECONDS", 5)  # as long waits a client for it to come back
    mortal.worker()
    with at_work(mortal, tmp_path) as cluster:
        results = cluster.map(time.sleep, ((0.05,) for _ in range(1000)))
        next(results)
        mortal.end(mortal.scheduler)
        with pytest.raises(UserError, match="the scheduler is lost; finished work is kept"):
            list(results)
        # It may go while none of its workers is asked for anything, as between two passes of rankers.
        wait_for(lambda: cluster._client.status == "closed")
        with pytest.raises(UserError, match="the scheduler is lost; finished work is kept"):
            list(cluster.map(abs, [(1,)]))
        monkeypatch.setattr(cluster, "_n_threads", lambda: 1)  # as if it went right after it was asked for them
        with pytest.raises(UserError, match="the scheduler is lost; finished work is kept"):
            list(cluster.map(abs, [(1,)]))


@pytest.mark.slow
def test_all_workers_go_in_the_middle(lonely, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster_stage, "NO_WORKER_SECONDS", 0.5)
    worker = lonely.worker()
    with at_work(lonely, tmp_path) as cluster:
        results = cluster.map(time.sleep, ((0.05,) for _ in range(1000)))
        next(results)
        lonely.end(worker)
        with pytest.raises(UserError, match="no worker is left; start some"):
            list(results)


@pytest.mark.slow
def test_a_task_that_ends_its_workers(lonely, tmp_path):
    for _ in range(2):
        lonely.begin_worker()
    lonely.wait_for_workers()
    with at_work(lonely, tmp_path) as cluster:
        results = cluster.map(lambda: os.kill(os.getpid(), signal.SIGKILL), [()])
        with pytest.raises(UserError, match="a task killed 2 workers, the last one tcp://"):
            list(results)
