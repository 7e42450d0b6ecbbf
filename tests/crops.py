"""Photos that scikit-image ships, in small."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def crops():
    """Function (name, n, seed, low, high) that gives random crops of a photo, their sides from low to high."""
    import skimage.data

    def crops(name, n, seed, low=80, high=150):
        photo = getattr(skimage.data, name)()
        rng = np.random.default_rng(seed)
        result = []
        for _ in range(n):
            height, width = rng.integers(low, high, 2)
            y, x = rng.integers(0, photo.shape[0] - height), rng.integers(0, photo.shape[1] - width)
            result.append(photo[y : y + height, x : x + width])
        return result

    return crops


@pytest.fixture(scope="session")
def train(crops):
    """Crops of two colour photos and of a grey one."""
    return crops("coffee", 12, 0) + crops("chelsea", 12, 1) + crops("camera", 4, 2)


@pytest.fixture(scope="session")
def labels():
    return np.repeat(["coffee", "cat", "camera"], [12, 12, 4])
