"""Networks that PyTorch exported: inspected, embedded and searched, with PyTorch's own vectors."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
from exports.make import pixels
from running import json_of, set_all, visterm

from visterm.pipeline import Searcher

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

ARCHIVE = Path(__file__).parents[2] / "exports/exports.zip"
NAMES = [
    "resnet",
    "mobilenet",
    "efficientnet",
    "densenet",
    "convnext",
    "swin",
    "mixer",
    "vit",
    "dinov2",
    "siglip",
    "clip",
]
SETTINGS = set_all(features={"kind": "onnx", "onnx.unit": False, "precision": "float32"}, compute={"n_jobs": 1})


@pytest.fixture
def photos(tmp_path):
    """A folder with photos of the size of the networks, so that nothing is resized."""
    (tmp_path / "photos/all").mkdir(parents=True)
    for i, image in enumerate(pixels()):
        cv2.imwrite(str(tmp_path / f"photos/all/{i}.png"), image[:, :, ::-1])
    return tmp_path


def as_pytorch(folder, name):
    """Inspect the model, embed the photos with the settings that this proposes, search, and compare the vectors."""
    model = f"models/{name}/model.onnx"
    assert os.path.getsize(folder / f"{model}.data") > 10_000  # the weights, in a second file
    info = json_of("model", "inspect", model, cwd=folder)
    with np.load(folder / "models" / name / "expected.npz") as file:
        expected = [np.asarray(file[key]) for key in file.files]
    maps = [array.mean(axis=(1, 2)) for array in expected if array.ndim == 4]  # of Swin, channels last
    (vectors,) = maps or expected[-1:]
    assert info["n_features"] == vectors.shape[1]
    proposed = [f"--set=features.onnx.{key}={value}" for key, value in info["settings"].items()]
    visterm("features", "photos", "--run", name, f"--set=features.onnx.model={model}", *SETTINGS, *proposed, cwd=folder)
    searcher = Searcher(folder / "runs" / name)
    assert [image.path for image in searcher.images] == [f"all/{i}.png" for i in range(len(vectors))]
    X = np.asarray(searcher.X)
    scale = np.abs(vectors).max()
    np.testing.assert_allclose(X / scale, vectors / scale, atol=1e-4)
    assert np.ptp(vectors, axis=0).max() > 1e-2 * scale  # else any vectors would do
    shutil.rmtree(folder / "models" / name)
    shutil.copy(folder / "photos/all/2.png", folder / "query.png")
    (answer,) = json_of("search", "query.png", "--run", name, cwd=folder)
    assert answer["results"][0]["path"] == "all/2.png"
    visterm("export", "--to", "pixels", "--learner", "cosine", "--run", name, "--output", "out", cwd=folder)
    session = onnxruntime.InferenceSession(folder / "out/pixels.onnx", providers=["CPUExecutionProvider"])
    (q,) = session.run(["query"], {"image": pixels()[2:3]})
    np.testing.assert_allclose(q[0], X[2] / np.linalg.norm(X[2]), atol=1e-5)
    return info


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_those_of_pytorch(photos, name):
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(photos / "models", [entry for entry in archive.namelist() if entry.startswith(f"{name}/")])
    info = as_pytorch(photos, name)
    classified = {"resnet": "the last pooled tensor", "densenet": "the last pooled tensor"}
    if name in classified:
        assert info["suggested_layer"] is not None
        assert info["suggested_as"] == classified[name]
    if name == "clip":
        assert {one["name"]: one["needs"] for one in info["outputs"]}["text_embeds"] == ["attention_mask", "input_ids"]
        assert info["layer"] == "image_embeds"


def test_tokens_of_dinov2(photos):
    """Its own pooling is the class token, so that `pool` has a reference."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(photos / "models", [entry for entry in archive.namelist() if entry.startswith("dinov2/")])
    model = "models/dinov2/model.onnx"
    tokens = next(one for one in json_of("model", "inspect", model, cwd=photos)["outputs"] if len(one["shape"]) == 3)
    assert tokens["shape"] == [1, 1 + 4 + 8 * 8, 32]
    info = json_of("model", "inspect", model, "--layer", tokens["name"], cwd=photos)
    assert info["pool"] == "cls"
    info = json_of("model", "inspect", model, "--layer", tokens["name"], "--pool", "mean-patches", cwd=photos)
    assert info["cells"] == [8, 8]
    chosen = set_all(features={"onnx.model": model, "onnx.layer": tokens["name"], "onnx.pool": "cls"})
    visterm("features", "photos", *SETTINGS, *chosen, cwd=photos)
    with np.load(photos / "models/dinov2/expected.npz") as file:
        np.testing.assert_allclose(Searcher(photos / "runs/photos").X, file[file.files[-1]], atol=1e-4)


@pytest.mark.timeout(600)
def test_vectors_are_those_of_the_pytorch_that_is_installed(photos):
    for package in ("torch", "onnxscript", "timm", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    made = photos / "exports.zip"
    subprocess.run([sys.executable, ARCHIVE.with_name("make.py"), made], check=True, stdout=subprocess.DEVNULL)
    with zipfile.ZipFile(made) as archive:
        archive.extractall(photos / "models")
    for name in NAMES:
        as_pytorch(photos, name)
