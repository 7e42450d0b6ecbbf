"""What the tests of all rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# The same examples in every run: what passes on one machine passes on the next. Examples are searched for at random
# with pytest --hypothesis-profile=search.
settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout; tests of files that the wheel does not carry skip without it."""
    if not (REPOSITORY / "Makefile").exists():
        pytest.skip("not in a checkout of the repository")
    return REPOSITORY


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real images (environment variable VISTERM_DATA)."""
    folder = Path(os.environ.get("VISTERM_DATA", REPOSITORY / ".." / "shared" / "data"))
    if not (folder / "caltech101").is_dir():
        pytest.skip(f"no real images at {folder}; VISTERM_DATA names their folder")
    return folder.resolve()


@pytest.fixture(scope="session")
def write_images():
    """Function (root, names) that writes small JPEGs: the class in a name (pear/1, pear1) decides their look."""
    return _write_images


def _write_images(root: Path, names: list[str], seed: int = 0) -> None:
    import cv2

    for name in names:
        label = Path(name).parent.name or name.rstrip("0123456789.jpg")
        own = np.random.default_rng([seed, *name.encode("utf-8", "surrogateescape")])
        style = np.random.default_rng([*label.encode()])
        size = int(style.integers(1, 6))
        noise = own.integers(0, 256, (96 // size + 1, 128 // size + 1, 3)).astype(np.float32)
        pixels = cv2.resize(noise, (128, 96), interpolation=cv2.INTER_CUBIC) * 0.5 + style.integers(0, 128, 3)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cv2.imencode(".jpg", np.clip(pixels, 0, 255).astype(np.uint8))[1].tobytes())
