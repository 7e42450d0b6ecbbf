"""Dense vectors that stay on disk: training, evaluation and export give what the same vectors in memory give."""

import json

import numpy as np
import pytest
from running import copy_run, visterm

from visterm.pipeline.store import vectors
from visterm.retrieval import StoredVectors

STEPS = [
    part
    for name in ("oasis", "aroma", "ovr")
    for key in ("n_steps=3000", "pass_steps=1000")
    for part in ("--set", f"{name}.{key}")
]
LEARNERS = "oasis,aroma,ovr"  # ovr does not read by rows


@pytest.fixture(scope="module", params=["float16", "float32"])
def folder(request, tmp_path_factory):
    """A run of imported vectors in several segments."""
    folder = tmp_path_factory.mktemp("by-rows")
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cow", "dog", "elk", "fox"], 20)
    X = (np.repeat(rng.normal(size=(6, 12)), 20, axis=0) + rng.normal(size=(120, 12))).astype(np.float32)
    np.savez(folder / "made.npz", vector=X, id=np.array([f"{label}/{i}" for i, label in enumerate(y)]), label=y)
    stored = ("--set", f"features.precision={request.param}", "--set", "compute.segment_size=50")
    visterm("features", "--vectors", "made.npz", "--run", "made", *stored, cwd=folder)
    return folder


def everything(folder):
    """What training, both evaluations and the export of a run write, without times."""
    visterm("train", "--learner", LEARNERS, *STEPS, "--run", "made", cwd=folder)
    open_world = ["--set", "evaluate.protocol=open", "--set", "evaluate.class_splits=1"]
    for protocol, options in {"test images": [], "open world": open_world}.items():
        visterm("evaluate", "--learner", LEARNERS, "--run", "made", *STEPS, *options, cwd=folder)
        figures = json.loads(next((folder / "runs/made/evaluations").glob("*/metrics.json")).read_text())
        yield protocol, without_times(figures)
    for learner in LEARNERS.split(","):
        files = folder / "runs/made/learners" / learner / "files"
        yield learner, {file.name: file.read_bytes() for file in files.glob("*.npy")}
        visterm("export", "--to", "npz", "--learner", learner, "--learned-weight", 1, "--run", "made", cwd=folder)
        with np.load(folder / f"made-{learner}/similarity.npz") as arrays:
            yield f"export of {learner}", {name: arrays[name].tobytes() for name in arrays if name != "provenance"}
            origin = json.loads(str(arrays["provenance"]))
            yield f"origin of {learner}", {key: origin[key] for key in origin if key not in ("trained", "exported")}
    yield "files", sorted(path.name for path in (folder / "runs/made/collection").iterdir())


def without_times(figures):
    if not isinstance(figures, dict):
        return figures
    return {key: without_times(value) for key, value in figures.items() if "seconds" not in key and key != "created"}


@pytest.mark.slow
def test_everything(folder, tmp_path, monkeypatch):
    in_memory, on_disk = copy_run(folder, tmp_path / "a"), copy_run(folder, tmp_path / "b")
    wanted = dict(everything(in_memory))
    made = []
    init = StoredVectors.__init__
    monkeypatch.setattr(StoredVectors, "__init__", lambda self, *given: made.append(self) or init(self, *given))
    monkeypatch.setattr(vectors, "BY_ROWS", 0)
    given = dict(everything(on_disk))
    assert len(made) >= 9  # oasis and aroma train; three evaluate, twice; three are exported
    assert given.keys() == wanted.keys()
    for what, figures in wanted.items():
        assert given[what] == figures, what
