"""Demo images without a download: crops of photos that scikit-image and scikit-learn ship."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import skimage.data
import sklearn.datasets

# class -> loader of its photo
_PHOTOS = {
    "astronaut": skimage.data.astronaut,
    "brick": skimage.data.brick,
    "camera": skimage.data.camera,
    "cat": skimage.data.chelsea,
    "cell": skimage.data.cell,
    "coffee": skimage.data.coffee,
    "coins": skimage.data.coins,
    "flower": lambda: sklearn.datasets.load_sample_image("flower.jpg"),
    "galaxies": skimage.data.hubble_deep_field,
    "grass": skimage.data.grass,
    "gravel": skimage.data.gravel,
    "moon": skimage.data.moon,
    "page": skimage.data.page,
    "retina": skimage.data.retina,
    "rocket": skimage.data.rocket,
    "temple": lambda: sklearn.datasets.load_sample_image("china.jpg"),
    "tissue": skimage.data.immunohistochemistry,
}
CROPS = {"train": 30, "test": 20}  # per photo
# A small codebook for few, small images.
DEMO_SETTINGS = ["features.n_visterms=1000", "oasis.n_steps=100000", "oasis.pass_steps=5000"]
_TILES = (4, 3)  # columns, rows: a crop lies within one tile
_SIZE = (160, 256)  # longest side of a crop in pixels


def write_demo_images(folder: Path, seed: int = 0) -> int:
    """Write ``folder/{train,test}/<class>/<number>.jpg``, replacing the folder; return the number of images.

    Each photo is cut into tiles like a chessboard: crops of black tiles are for training, crops of white ones for
    testing, so no training image overlaps a test image. Crops vary in position, size, mirroring and brightness.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    for number, (label, load) in enumerate(_PHOTOS.items()):
        photo = load()
        for split, n in CROPS.items():
            rng = np.random.default_rng([seed, number, split == "test"])
            (temporary / split / label).mkdir(parents=True)
            for i in range(n):
                crop = _crop(photo, tile_of_split(split, i), rng)
                bgr = crop if crop.ndim == 2 else cv2.cvtColor(crop, cv2.COLOR_RGB2BGR)
                cv2.imwrite(str(temporary / split / label / f"{i:02}.jpg"), bgr, [cv2.IMWRITE_JPEG_QUALITY, 92])
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    return len(_PHOTOS) * sum(CROPS.values())


def tile_of_split(split: str, i: int) -> tuple[int, int]:
    """Return column and row of the tile that crop i of a split is cut from."""
    columns, rows = _TILES
    parity = int(split == "test")
    tiles = [(x, y) for y in range(rows) for x in range(columns) if (x + y) % 2 == parity]
    return tiles[i % len(tiles)]


def tile_box(shape: tuple[int, ...], tile: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom (exclusive) in pixels of a tile of a photo of this shape."""
    (columns, rows), (x, y) = _TILES, tile
    height, width = shape[:2]
    return x * width // columns, y * height // rows, (x + 1) * width // columns, (y + 1) * height // rows


def _crop(photo: np.ndarray, tile: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    left, top, right, bottom = tile_box(photo.shape, tile)
    width, height = (int(side * rng.uniform(0.75, 1)) for side in (right - left, bottom - top))
    x, y = left + rng.integers(right - left - width + 1), top + rng.integers(bottom - top - height + 1)
    crop = photo[y : y + height, x : x + width]
    if rng.random() < 0.5:
        crop = crop[:, ::-1]
    lit = rng.uniform(0.7, 1.3) * crop.astype(np.float32) + rng.uniform(-20, 20)
    scale = rng.integers(*_SIZE) / max(width, height)
    return cv2.resize(np.clip(lit, 0, 255).astype(np.uint8), None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
