"""A run that is opened once for a command; a run as arrays."""

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline import open_run
from visterm.pipeline.errors import UserError
from visterm.pipeline.store import run as run_module
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.opened import opened


def test_a_record_is_read_once_and_again_after_it_was_replaced(run, monkeypatch):
    reads = []
    read = run_module.read_record
    monkeypatch.setattr(run_module, "read_record", lambda folder: reads.append(folder) or read(folder))
    folder = run.learner("oasis")
    with opened(run, run.configure(None, [])) as it:
        before = it.record(folder)
        assert it.record(folder) is before
        with publish(folder, before | {"result": {"n_images": 7}}):
            pass
        assert it.record(folder)["result"] == {"n_images": 7}
        assert it.record(run.learner("none")) is None
        assert reads == [folder, folder, run.learner("none")]
        assert it.images() is it.images()
        assert {image.split for image in it.training.images} == {"train"}


def test_vectors_labels_paths_and_splits(finished, monkeypatch):
    monkeypatch.chdir(finished)
    monkeypatch.setenv("VISTERM_RUNS", "")  # as good as none
    X, y, paths, splits, labels = open_run("fruit")
    assert X.shape == (30, 40)
    assert np.asarray(X.multiply(X).sum(axis=1)).ravel() == pytest.approx(1, abs=1e-5)
    assert [path.split("/")[0] for path in paths] == y.tolist()
    assert labels == ["apple", "pear", "plum"]
    assert np.unique(splits, return_counts=True)[1].tolist() == [12, 18]
    assert (open_run(finished / "runs/fruit").X != X).nnz == 0


def test_no_such_run(tmp_path, monkeypatch):
    monkeypatch.setenv("VISTERM_RUNS", str(tmp_path))
    with pytest.raises(UserError, match="no run fruits in .*; run 'visterm features IMAGES --run fruits' first"):
        open_run("fruits")


def test_images_without_labels(finished, tmp_path, monkeypatch):
    from running import visterm

    folder = tmp_path / "some"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.jpg").write_bytes((finished / f"fruit/pear/{i}.jpg").read_bytes())
    (folder / "labels.csv").write_text("path,label\n0.jpg,round\n0.jpg,green\n1.jpg,round\n")
    settings = ("--set", "features.n_visterms=10", "--set", f"collection.labels={folder / 'labels.csv'}")
    result = visterm("features", "some", *settings, cwd=tmp_path)
    assert "skipped" not in result.stderr  # the table of labels is no image that could not be read
    arrays = open_run(tmp_path / "runs/some")
    assert sparse.issparse(arrays.y)
    assert arrays.y.toarray().tolist() == [[1, 1], [0, 1], [0, 0]]
    assert arrays.labels == ["green", "round"]
    assert arrays.splits[2] == ""
