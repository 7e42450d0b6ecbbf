"""Visterms in NumPy, without Numba: the same bytes as those of the kernels, for all settings and sizes."""

import numpy as np
import pytest

from visterm import compiled
from visterm.features import Codebook, Palette
from visterm.features.descriptors import describe

GRIDS = [
    {},
    {"block_size": 40, "stride": 24},
    {"block_size": 24, "stride": 24, "scale": 1.5},
    {"block_size": 32, "stride": 48},
]
SHAPES = [(240, 300), (64, 64), (63, 201), (30, 20), (1, 1), (333, 97)]


@pytest.fixture
def both(monkeypatch):
    """A function that calls another one twice: by plain forms alone, and by kernels alone."""

    def call(function):
        answers = []
        for worth in (np.inf, 0):
            monkeypatch.setattr(compiled, "WORTH_COMPILING", worth)
            monkeypatch.setattr(compiled.Kernel, "spent", 0)
            answers.append(function())
            assert (compiled.Kernel.spent > 0) == (worth > 0)
        return answers

    return call


def pictures(shape, rng):
    yield rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    yield np.full((*shape, 3), 200, np.uint8)
    yield np.repeat(
        np.repeat(rng.integers(0, 256, (-(-shape[0] // 9), -(-shape[1] // 9), 3), dtype=np.uint8), 9, 0), 9, 1
    )[: shape[0], : shape[1]]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("n_colors", [1, 20])
def test_descriptors_are_those_of_the_kernels(shape, grid, n_colors, both):
    rng = np.random.default_rng(0)
    palette = Palette().set_colors(rng.random((n_colors, 3)) * 255)
    for picture in pictures(shape, rng):
        plain, compiled = both(lambda picture=picture: describe(picture, palette, **grid))
        assert plain.tobytes() == compiled.tobytes()


@pytest.mark.parametrize("d", [3, 16, 79])
def test_nearest_centres_are_those_of_the_kernels(d, both):
    rng = np.random.default_rng(0)
    centers = np.sqrt(rng.integers(0, 9, (700, d)) / np.float32(64)).astype(np.float32)
    centers[300:400] = centers[:100]  # equally near: the lowest number
    points = np.concatenate([centers[250:350], (centers[:100] + centers[100:200]) / 2, rng.random((50, d), np.float32)])
    codebook = Codebook().set_centers(centers)
    plain, compiled = both(lambda: codebook.predict(points))
    assert plain.tobytes() == compiled.tobytes()
    assert plain[50:100].max() < 100


def test_large_work_is_left_to_kernels(both, monkeypatch):
    from visterm.features import plain

    rng = np.random.default_rng(0)
    centers, picture = rng.random((10, 4), np.float32), np.zeros((64, 64, 3), np.uint8)
    monkeypatch.setattr(plain, "_MOST_PRODUCTS", 39)
    monkeypatch.setattr(plain, "_MOST_PIXELS", 64 * 64 - 1)
    monkeypatch.setattr(compiled, "WORTH_COMPILING", np.inf)
    monkeypatch.setattr(compiled.Kernel, "spent", 0)
    Codebook().set_centers(centers).predict(centers[:1])
    describe(picture, Palette().set_colors([[0, 0, 0]]))
    assert compiled.Kernel.spent == 0
