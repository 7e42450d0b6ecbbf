"""kill -9, Ctrl-C and SIGTERM in the middle: the next run ends with the same bytes as an uninterrupted one."""

from __future__ import annotations

import shutil
import signal

import numpy as np
import pytest
from running import end_by_signal, set_all, visterm

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
PASS = "visterm.pipeline.stages.train:_BetweenPasses __call__"
KILLS = {  # moments by stage
    "features": (
        "visterm.features:VistermExtractor save 1",  # visterms are learned
        "numpy save 2",  # half of them is written
        f"{SEGMENT} 1",  # a segment is written, and not in the catalogue
        f"{SEGMENT} 3",
    ),
    "train": (
        "visterm.learners:OASIS fit 1",  # nothing is there but an empty folder
        f"{PASS} 3",
        "numpy save 4",  # the second checkpoint is half-written
        "pathlib:Path rename 2",  # the old checkpoint has left its place, the next is not there yet
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


def test_kills_leave_no_trace(undisturbed, tmp_path):
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    for stage, given in (("features", ["fruit"]), ("train", ["--run", "fruit"])):
        for moment in KILLS[stage]:
            end_by_signal(signal.SIGKILL, moment, stage, *given, *SETTINGS, cwd=tmp_path)
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


def test_an_interrupted_command_says_so_and_its_workers_end_with_it(undisturbed, tmp_path):
    """Otherwise a reader of its standard error would wait for minutes."""
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    shutil.copytree(undisturbed / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs/fruit/collection/segments")
    given = ["features", "fruit", *set_all(compute={"n_jobs": 2, "segment_size": 2})]
    for number in (signal.SIGKILL, signal.SIGINT):
        lines = end_by_signal(number, f"{SEGMENT} 1", *given, cwd=tmp_path).splitlines()
    assert "visterm: interrupted; re-run the same command to resume" in lines, lines


def test_a_terminated_training_goes_on(undisturbed, tmp_path):
    """With a learner of labels."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    again = ["train", "--learner", "pamir", "--force"]
    lines = end_by_signal(signal.SIGTERM, f"{PASS} 4", *again, cwd=tmp_path)
    assert "visterm: interrupted; " in lines
    assert (tmp_path / "runs/fruit/learners/pamir.checkpoint/record.json").exists()
    assert "resuming from the checkpoint" in visterm("train", "--learner", "pamir", cwd=tmp_path).stderr
    assert arrays(tmp_path, "learners/pamir") == arrays(undisturbed, "learners/pamir")
