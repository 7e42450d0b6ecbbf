"""kill -9, Ctrl-C and SIGTERM in the middle: the next run ends with the same bytes as an uninterrupted one."""

import json
import shutil
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from running import NOT_EXCHANGED, end_by_signal, ended_by_signals, set_all, visterm

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.stages.checkpoints import CheckpointCallback
from visterm.pipeline.store.catalogue import Collection

CLASSES = ("apple", "pear", "plum", "quince")
SETTINGS = set_all(
    features={"n_visterms": 100},
    oasis={"n_steps": 20_000, "pass_steps": 2000, "patience": "null"},
    pamir={"n_steps": 20_000, "pass_steps": 2000, "patience": "null"},
    compute={"segment_size": 12, "checkpoint_seconds": 0},
    split={"train": 8, "test": 4},
)
SEGMENT = "visterm.pipeline.store.catalogue:Collection enter_segment"
CHUNK = "visterm.pipeline.stages.checkpoints:CheckpointCallback __call__"
KILLS = {  # moments by stage
    "features": (
        "visterm.features:VistermExtractor save 1",  # visterms are learned
        "numpy save 2",  # half of them is written
        f"{SEGMENT} 1",  # a segment is written, and not in the catalogue
        f"{SEGMENT} 3",
    ),
    "train": (
        "visterm.learners:OASIS fit 1",  # nothing is there but an empty folder
        f"{CHUNK} 3",
        "numpy save 4",  # the second checkpoint is half-written
        "visterm.pipeline.store.files exchanged 1",  # the next checkpoint is written, the old one in its place
        # Where two folders are not exchanged: the old checkpoint has left its place, the next is not there yet.
        f"pathlib:Path rename 2 {NOT_EXCHANGED}",
    ),
}


def arrays(folder, *parts):
    place = folder / "runs/fruit"
    files = sorted(path for part in parts for path in (place / part / "files").glob("*.npy"))
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def result(folder):
    """Return everything that must be the same: paths, counts, the extractor's and the model's bytes."""
    collection = Collection(folder / "runs/fruit/collection")
    images = collection.images()
    counts = collection.counts(images)
    collection.close()
    files = arrays(folder, "extractor", "learners/oasis")
    assert len(files) >= 4
    return [image.path for image in images], counts, files


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, write_images):
    folder = tmp_path_factory.mktemp("undisturbed")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(14)])
    for c in CLASSES:  # unreadable images must not change the split of others
        (folder / f"fruit/{c}/broken.jpg").write_bytes((folder / f"fruit/{c}/1.jpg").read_bytes()[:500])
    visterm("features", "fruit", *SETTINGS, cwd=folder)
    visterm("train", "--learner", "oasis,pamir", cwd=folder)
    return folder


@pytest.mark.slow
def test_kills_leave_no_trace(undisturbed, tmp_path):
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    for stage, given in (("features", ["fruit"]), ("train", ["--run", "fruit"])):
        with ended_by_signals() as end:
            for moment in KILLS[stage]:
                end(signal.SIGKILL, moment, stage, *given, *SETTINGS, cwd=tmp_path)
        last = visterm(stage, *given, *SETTINGS, cwd=tmp_path)
    assert "resuming from the checkpoint" in last.stderr

    paths, counts, files = result(tmp_path)
    expected_paths, expected_counts, expected_files = result(undisturbed)
    assert paths == expected_paths
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(expected_counts, name))
    assert files == expected_files
    left = [str(path) for path in tmp_path.rglob("*") if path.name.endswith((".tmp", ".old", ".checkpoint"))]
    assert left == []


@pytest.mark.slow
def test_an_interrupted_command_says_so_and_its_workers_end_with_it(undisturbed, tmp_path):
    """Otherwise a reader of its standard error would wait for minutes."""
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    shutil.copytree(undisturbed / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs/fruit/collection/segments")
    given = ["features", "fruit", *set_all(compute={"n_jobs": 2, "segment_size": 2})]
    for number in (signal.SIGKILL, signal.SIGINT):
        lines = end_by_signal(number, f"{SEGMENT} 1", *given, cwd=tmp_path).splitlines()
    assert "visterm: interrupted; re-run the same command to resume" in lines, lines


# The worker of a later segment waits until the first is in the catalogue, and is then killed: no clock has a say.
KILL_A_WORKER = """
import os, pathlib, signal, time
from visterm.pipeline.cli.app import main
from visterm.pipeline.stages import extraction
from visterm.pipeline.store.catalogue import Collection

enter, extract_segment = Collection.enter_segment, extraction.extract_segment
entered = pathlib.Path("entered").absolute()

def enter_and_say(*arguments):
    enter(*arguments)
    entered.touch()

def extract_or_die(source, images, target, *rest):
    if target.name == "10":
        while not entered.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return extract_segment(source, images, target, *rest)

Collection.enter_segment = enter_and_say
extraction.extract_segment = extract_or_die
main()
"""


@pytest.mark.slow
def test_a_killed_worker_is_one_line_and_the_same_command_resumes(tmp_path, write_images):
    write_images(tmp_path / "large", [f"{label}/{i}.jpg" for label in ("apple", "pear") for i in range(20)])
    given = ["features", "large", *set_all(compute={"n_jobs": 2, "segment_size": 2}, features={"n_visterms": 10})]
    done = subprocess.run(
        [sys.executable, "-c", KILL_A_WORKER, *given], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "visterm: a worker process was killed, probably by the system for want of memory; "
        "set compute.n_jobs to 1 (--set or config.yaml), or free some memory; re-run the same command to resume"
    )
    with Collection(tmp_path / "runs/large/collection") as collection:
        assert 0 < collection.counts_by("status")["ok"] < 40  # what was extracted before is kept
    visterm(*given, cwd=tmp_path)
    with Collection(tmp_path / "runs/large/collection") as collection:
        assert collection.counts_by("status")["ok"] == 40


@pytest.mark.slow
def test_a_terminated_training_goes_on(undisturbed, tmp_path):
    """With a learner of labels."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    again = ["train", "--learner", "pamir", "--force"]
    lines = end_by_signal(signal.SIGTERM, f"{CHUNK} 4", *again, cwd=tmp_path)
    assert "visterm: interrupted; " in lines
    assert (tmp_path / "runs/fruit/learners/pamir.checkpoint/record.json").exists()
    assert "resuming from the checkpoint" in visterm("train", "--learner", "pamir", cwd=tmp_path).stderr
    assert arrays(tmp_path, "learners/pamir") == arrays(undisturbed, "learners/pamir")


ONE_PASS = {"n_steps": 800_000, "pass_steps": 800_000, "validation_fraction": "null", "refit": False}


@pytest.mark.slow
def test_a_signal_within_a_pass_leaves_a_checkpoint(undisturbed, tmp_path):
    """However long a pass is: the signal comes in its second chunk, which is the last that is learned."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    command = ["train", "--learner", "lego", *set_all(lego=ONE_PASS)]
    visterm(*command, cwd=tmp_path)
    expected = arrays(tmp_path, "learners/lego")

    command_again = [*command, "--force"]
    lines = end_by_signal(signal.SIGINT, "visterm.learners:LEGO _pass 2", *command_again, cwd=tmp_path).splitlines()
    checkpoint = tmp_path / "runs/fruit/learners/lego.checkpoint"
    state = json.loads((checkpoint / "files/learner.json").read_text())["state"]
    assert state["n_steps_"] % 2 == 0
    assert state["n_steps_"] < 600_000
    assert lines[-2:] == [
        "saving the checkpoint ...",
        f"visterm: interrupted; checkpoint saved at {state['n_steps_']:,} of 800,000 steps; re-run the same command "
        "without --force to resume",
    ]

    shutil.rmtree(tmp_path / "runs/fruit/learners/lego")  # what is there later is new
    assert "resuming from the checkpoint" in visterm(*command, cwd=tmp_path).stderr
    assert arrays(tmp_path, "learners/lego") == expected
    assert not checkpoint.exists()


@pytest.mark.slow
def test_a_signal_before_the_first_chunk_saves_nothing(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    command = ["train", "--learner", "lego", *set_all(lego=ONE_PASS), "--force"]
    lines = end_by_signal(signal.SIGINT, "visterm.learners:LEGO _pass 1", *command, cwd=tmp_path).splitlines()
    assert lines[-1] == "visterm: interrupted; re-run the same command without --force to resume"
    assert not (tmp_path / "runs/fruit/learners/lego.checkpoint/files").exists()  # only that it was begun is noted


def train_under(watch, learner, *numbers, last=CheckpointCallback.__call__):
    """Two chunks with signals between them."""
    with watch:
        watch(learner)
        for number in numbers:
            signal.raise_signal(number)
        assert not learner.save.called
        last(watch, learner)


class TestSignals:
    """What the callback does with signals, in this process."""

    @pytest.fixture(autouse=True)
    def handlers(self):
        """The test's own handlers come back, whatever happens."""
        before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        for number, handler in before:
            signal.signal(number, handler)

    @pytest.fixture
    def learner(self):
        save = Mock(side_effect=lambda folder: folder.mkdir())
        return SimpleNamespace(steps_done_=1000, steps_total_=4000, history_=[], phase_="train", save=save)

    @pytest.fixture
    def watch(self, tmp_path):
        return CheckpointCallback(Mock(), Mock(), tmp_path / "checkpoint", {}, 0.0, 1e9)

    def test_the_first_waits_for_the_end_of_a_chunk(self, watch, learner, tmp_path):
        with pytest.raises(KeyboardInterrupt, match="checkpoint saved at 1,000 of 4,000 steps"):
            train_under(watch, learner, signal.SIGINT)
        assert learner.save.call_count == 1
        assert (tmp_path / "checkpoint/record.json").exists()

    @pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
    def test_the_second_does_not_wait(self, watch, learner, first):
        with pytest.raises(KeyboardInterrupt):
            train_under(watch, learner, first, signal.SIGINT)
        assert not learner.save.called

    def test_one_in_the_last_chunk_is_not_lost(self, watch, learner):
        with pytest.raises(KeyboardInterrupt):
            train_under(watch, learner, signal.SIGINT, last=CheckpointCallback.end_if_told)
        assert learner.save.called

    def test_a_full_disk_does_not_hold_it_up(self, watch, learner):
        learner.save.side_effect = OSError(28, "No space left on device")
        with pytest.raises(KeyboardInterrupt) as raised:
            train_under(watch, learner, signal.SIGINT)
        assert not raised.value.args
        assert "No space left on device); the one before is kept" in watch._console.warn.call_args.args[0]

    def test_handlers_come_back(self, watch, learner):
        with watch:
            watch(learner)
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_an_ignored_signal_stays_ignored(self, watch, learner):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        train_under(watch, learner, signal.SIGINT)
        assert not learner.save.called

    def test_another_thread_trains_without_handlers(self, watch, learner):
        thread = threading.Thread(target=train_under, args=(watch, learner))
        thread.start()
        thread.join()
        assert watch._called
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_an_interrupted_training_resumes_with_other_steps(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    end_by_signal(signal.SIGTERM, f"{CHUNK} 2", "train", "--learner", "pamir", "--force", cwd=tmp_path)
    steps = 2 * load_config(tmp_path / "runs/fruit/config.yaml", []).pamir.n_steps
    result = visterm("train", "--learner", "pamir", "--set", f"pamir.n_steps={steps}", cwd=tmp_path)
    assert "resuming from the checkpoint" in result.stderr
    whole = arrays(tmp_path, "learners/pamir")
    visterm("train", "--learner", "pamir", "--force", cwd=tmp_path)
    assert arrays(tmp_path, "learners/pamir") == whole
