"""Copies among photos that were taken on one ground: garments and things on a cloth, logos, one form, a slow pan.

Most of each picture is the same, and so is its shape, but none shows what another one does. Copies of every second one
are added as in `alike`: of half the sides, of JPEG quality 50, without a margin, and mirrored. Precision is that of all
pairs that are said to show one picture; of the frames of a pan, only those that are moved by less than a hundredth of
the width may be in a group.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from benchmarks.processes import temporary_folder
from benchmarks.records import compared, record
from benchmarks.vectors import DATA
from visterm.pipeline.store.images import Image
from visterm.teaching.duplicates import find_same_pictures
from visterm.teaching.groups import stars_of

from .alike import RECALL, WAYS, copied

PICTURES, FRAMES = 240, 240
PRECISION = 0.99  # asked
SIZE = WIDTH, HEIGHT = 600, 450
SHAPES = [  # of a shirt, a dress and trousers
    [(0.36, 0.14), (0.44, 0.17), (0.56, 0.17), (0.64, 0.14), (0.8, 0.27), (0.73, 0.4), (0.65, 0.34), (0.65, 0.88)]
    + [(0.35, 0.88), (0.35, 0.34), (0.27, 0.4), (0.2, 0.27)],
    [(0.42, 0.1), (0.46, 0.16), (0.54, 0.16), (0.58, 0.1), (0.6, 0.4), (0.72, 0.92), (0.28, 0.92), (0.4, 0.4)],
    [(0.38, 0.1), (0.62, 0.1), (0.66, 0.92), (0.54, 0.92), (0.5, 0.35), (0.46, 0.92), (0.34, 0.92)],
]
Draw = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]  # of a cloth and a photo


def fitted(path: Path, width: int, height: int) -> np.ndarray:
    """The middle of a photo, of a size."""
    pixels = cv2.imread(str(path))
    scale = max(width / pixels.shape[1], height / pixels.shape[0])
    size = [max(least, round(side * scale)) for least, side in ((width, pixels.shape[1]), (height, pixels.shape[0]))]
    pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC)
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def photographed(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A picture in another light, with noise."""
    seen = picture * (1 + rng.uniform(-0.04, 0.04)) + rng.normal(0, 2, picture.shape)
    return np.clip(seen, 0, 255).astype(np.uint8)


def laid(cloth: np.ndarray, thing: np.ndarray, mask: np.ndarray, rng: np.random.Generator, moved: float) -> np.ndarray:
    """A thing on a cloth, by a camera that is moved, turned and zoomed a little."""
    middle = (cloth.shape[1] / 2, cloth.shape[0] / 2)
    matrix = cv2.getRotationMatrix2D(middle, rng.uniform(-moved, moved), 1 + rng.uniform(-0.02, 0.02) * moved)
    matrix[:, 2] += (WIDTH / 2 - middle[0], HEIGHT / 2 - middle[1]) + rng.uniform(-0.02, 0.02, 2) * SIZE * moved
    ground = cv2.warpAffine(cloth, matrix, SIZE)
    share = cv2.GaussianBlur(mask, (0, 0), 1)[..., None] / 255
    return photographed(ground * (1 - share) + thing * share, rng)


def garment(rng: np.random.Generator, cloth: np.ndarray, photo: np.ndarray, moved: float = 1.0) -> np.ndarray:
    """A garment of one colour, of a pattern, or with a print."""
    shape = np.array(SHAPES[rng.integers(len(SHAPES))])
    corners = 0.5 + (shape - 0.5) * (1 + rng.uniform(-0.06, 0.06, 2)) + rng.normal(0, 0.006, shape.shape)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    cv2.fillPoly(mask, [np.int32(corners * SIZE)], 255)
    thing = np.ones((HEIGHT, WIDTH, 3)) * rng.uniform(30, 230, 3)
    kind = rng.integers(3)
    if kind == 1:
        thing = (thing + photo) / 2
    elif kind == 2:
        thing[190:300, 245:355] = cv2.resize(photo, (110, 110), interpolation=cv2.INTER_AREA)
    folds = cv2.GaussianBlur(rng.normal(0, 1, (HEIGHT, WIDTH)), (0, 0), 12)
    return laid(cloth, thing * (1 + 0.1 * folds / np.abs(folds).max())[..., None], mask, rng, moved)


def fixed(rng: np.random.Generator, cloth: np.ndarray, photo: np.ndarray) -> np.ndarray:
    """The same, by a camera on a tripod."""
    return garment(rng, cloth, photo, 0.0)


def small(rng: np.random.Generator, cloth: np.ndarray, photo: np.ndarray) -> np.ndarray:
    """A thing of a thirtieth of the picture."""
    mask, thing = np.zeros((HEIGHT, WIDTH), np.uint8), np.zeros((HEIGHT, WIDTH, 3))
    mask[180:270, 255:345] = 255
    thing[180:270, 255:345] = cv2.resize(photo, (90, 90), interpolation=cv2.INTER_AREA)
    return laid(cloth, thing, mask, rng, 0.0)


def logo(rng: np.random.Generator, cloth: np.ndarray, photo: np.ndarray) -> np.ndarray:
    """Some shapes of one colour on white."""
    picture, color = np.full((HEIGHT, WIDTH, 3), 255, np.uint8), tuple(rng.uniform(0, 200, 3).tolist())
    for _ in range(rng.integers(2, 5)):
        x, y = (rng.uniform(0.4, 0.6, 2) * SIZE).astype(int).tolist()
        radius, kind = int(rng.uniform(15, 60)), rng.integers(3)
        if kind == 0:
            cv2.circle(picture, (x, y), radius, color, int(rng.choice([-1, 4, 8])), cv2.LINE_AA)
        elif kind == 1:
            corners = (x - radius, y - radius), (x + radius, y + radius)
            cv2.rectangle(picture, *corners, color, int(rng.choice([-1, 4, 8])), cv2.LINE_AA)
        else:
            word = "".join(rng.choice(list("ABCDEFGHKLMNOPRSTUVXYZ"), 3))
            cv2.putText(picture, word, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 2, color, 5, cv2.LINE_AA)
    return picture


def form(rng: np.random.Generator, cloth: np.ndarray, photo: np.ndarray) -> np.ndarray:
    """A printed form, with other words in its fields."""
    printed, picture = np.random.default_rng(7), np.full((WIDTH, HEIGHT, 3), 250, np.uint8)
    letters = list("abcdefghijklmnop")

    def write(words: np.random.Generator, n: int, place: tuple[int, int], size: float, color: tuple[int, ...]) -> None:
        text = "".join(words.choice(letters, n))
        cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, size, color, 1, cv2.LINE_AA)

    for y in range(40, 580, 22):
        for x in range(30, 400, 60):
            write(printed, int(printed.integers(2, 8)), (x, y), 0.35, (40, 40, 40))
    for y in (150, 300, 420):
        picture[y - 14 : y + 8, 60:300] = 250
        write(rng, int(rng.integers(6, 14)), (64, y), 0.6, (120, 40, 20))
    return picture


KINDS: dict[str, Draw] = {"garments": garment, "fixed": fixed, "small": small, "logos": logo, "forms": form}


def pairs_of(folder: Path) -> dict[tuple[str, str], float]:
    """The pairs of names that are said to show one picture."""
    paths = sorted(path.name for path in folder.iterdir())
    images = [Image(i, path, path, {}, None, 0, i) for i, path in enumerate(paths)]
    same = find_same_pictures(folder, images, 100_000_000)
    return {(paths[i], paths[j]): value for (i, j), value in same.pairs.items()}


def measure(kind: str, n: int) -> list[dict]:
    """Two records: precision and recall among pictures of a kind."""
    rng = np.random.default_rng(0)
    cloth = fitted(sorted((DATA / "textures" / "blotchy").iterdir())[3], round(1.3 * WIDTH), round(1.3 * HEIGHT))
    photos = [path for name in ("caltech101", "textures") for path in sorted((DATA / name).rglob("*.jpg"))]
    ways = {}
    with temporary_folder() as folder:
        for number, i in enumerate(rng.permutation(len(photos))[:n].tolist()):
            picture = KINDS[kind](rng, cloth, fitted(photos[i], *SIZE))
            own = folder / f"{number:03}.jpg"
            cv2.imwrite(str(own), picture, [cv2.IMWRITE_JPEG_QUALITY, 92])
            if number % 2:
                way, copy = WAYS[number // 2 % len(WAYS)], folder / f"{number:03} copy.jpg"
                quality = 50 if way == "JPEG 50" else 90
                cv2.imwrite(str(copy), copied(cv2.imread(str(own)), way), [cv2.IMWRITE_JPEG_QUALITY, quality])
                ways[copy.name, own.name] = way
        pairs = pairs_of(folder)
    right = sum(one[:3] == other[:3] for one, other in pairs)
    hits = {way: np.mean([pair in pairs for pair, own in ways.items() if own == way]).item() for way in WAYS}
    recall = np.mean([pair in pairs for pair in ways]).item()
    said = f"once, {n} pictures and {len(ways)} copies; "
    return [
        record(
            f"one-ground-{kind}",
            f"{kind} on one ground: pairs said to show one picture that do",
            f"{PRECISION} asked",
            "1.0: all of them",
            compared(right / max(len(pairs), 1), PRECISION, "of the pairs", len(pairs), higher=True),
            measured=said + f"{len(pairs) - right} wrong",
        ),
        record(
            f"one-ground-copies-{kind}",
            f"{kind} on one ground: planted copies that are found",
            f"{RECALL} asked",
            "1.0: all of them",
            compared(recall, RECALL, "recall", len(ways), higher=True),
            measured=said + ", ".join(f"{way} {share:.3f}" for way, share in hits.items()),
        ),
    ]


def pan(n: int) -> dict:
    """One record: the frames of a slow pan in the largest group of one picture."""
    wide = fitted(sorted((DATA / "flowers").rglob("*.jpg"))[0], 1600, 500)
    step = 2
    with temporary_folder() as folder:
        for i in range(n):
            cv2.imwrite(str(folder / f"{i:03}.jpg"), wide[40:440, step * i : step * i + 450])
        pairs = pairs_of(folder)
    stars = stars_of([(int(a[:3]), int(b[:3]), value) for (a, b), value in pairs.items()], {}, {})
    apart = max((abs(kept - other) for kept, others in stars.items() for other in others), default=0) * step / 450
    return record(
        "one-ground-pan",
        f"a slow pan of {n} frames: share of the width by which frames of one picture are moved, at most",
        "0.01 asked",
        "0: none are in one group",
        compared(max(apart, 1e-3), 0.01, "of the width", len(stars), higher=False),
        measured=f"once; {len(stars)} groups, the largest of "
        f"{max((1 + len(others) for others in stars.values()), default=1)} frames; each frame is moved by "
        f"{step / 450:.4f}",
    )


def run(quick: bool = False) -> list[dict]:
    """Two records per kind of pictures, and one of a pan."""
    kinds = list(KINDS)[: 2 if quick else None]
    return [*(one for kind in kinds for one in measure(kind, 40 if quick else PICTURES)), pan(40 if quick else FRAMES)]
