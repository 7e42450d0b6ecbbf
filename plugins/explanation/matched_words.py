"""Words for what two blocks of images have in common: their colours and their texture.

Colours are counted under the nearest of a few named ones, textures by their local binary patterns (`lbp_codes`), as
the vectors of visterms count them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_NAMED = {
    "black": [(15, 15, 15)],
    "dark grey": [(70, 70, 70)],
    "grey": [(130, 130, 130)],
    "light grey": [(190, 190, 190)],
    "white": [(245, 245, 245)],
    "red": [(190, 40, 40), (130, 20, 20)],
    "orange": [(225, 130, 40)],
    "brown": [(110, 70, 40), (150, 105, 70)],
    "beige": [(215, 195, 160)],
    "yellow": [(230, 210, 60)],
    "green": [(60, 140, 60), (35, 75, 35), (130, 150, 70)],
    "turquoise": [(60, 170, 160)],
    "blue": [(50, 90, 180), (25, 40, 100), (130, 170, 220)],
    "purple": [(120, 60, 150)],
    "pink": [(225, 140, 170)],
}
_SHARED = (0.1, 0.2)  # of both blocks: from this share on, the first and the second colour are named
_SIDE = 48  # pixels that a block is scaled down to


def words_in_common(first: np.ndarray, second: np.ndarray) -> str:
    """Describe what two blocks share, RGB uint8 (height, width, 3): "blue, smooth"; "" if it has no name."""
    import numpy as np

    looks = [look for look in map(_described, (first, second)) if look is not None]
    if len(looks) < 2:
        return ""
    (colors, texture), (other_colors, other_texture) = looks
    shared = np.minimum(colors, other_colors)
    best = [int(i) for i, share in zip(np.argsort(-shared)[:2], _SHARED, strict=True) if shared[i] >= share]
    words = [" and ".join(list(_NAMED)[i] for i in best)] if best else []
    if texture == other_texture:
        words.append(texture)
    return ", ".join(words)


def _described(block: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Shares of the named colours, and the texture in a word."""
    import cv2
    import numpy as np

    from visterm.features import lbp_codes

    if min(block.shape[:2]) < 3:
        return None
    factor = min(1.0, _SIDE / max(block.shape[:2]))
    if factor < 1:
        size = [max(3, round(length * factor)) for length in block.shape[1::-1]]
        block = cv2.resize(block, size, interpolation=cv2.INTER_AREA)
    centres, names = _centres()
    lab = _lab(block.reshape(-1, 3))
    nearest = names[((lab[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)]
    colors = np.bincount(nearest, minlength=len(_NAMED)) / len(nearest)
    gray = cv2.cvtColor(np.ascontiguousarray(block), cv2.COLOR_RGB2GRAY)
    if gray.std() < 9:
        return colors, "smooth"
    irregular = float((lbp_codes(gray) == 58).mean())  # the code of all patterns that are not uniform
    down, across = np.gradient(gray.astype(np.float64))
    a, b, c = (across**2).mean(), (down**2).mean(), (across * down).mean()
    if np.hypot(a - b, 2 * c) > 0.5 * (a + b):
        angle = np.degrees(np.arctan2(2 * c, a - b)) / 2 % 180  # of the strongest change
        direction = ("upright", "slanting", "level", "slanting")[int((angle + 22.5) // 45) % 4]
        return colors, f"{direction} edges"
    return colors, "rough" if irregular > 0.2 else "patterned"


@functools.cache
def _centres() -> tuple[np.ndarray, np.ndarray]:
    """Return the named colours in Lab, and the number of each one's name."""
    import numpy as np

    names = [(number, color) for number, colors in enumerate(_NAMED.values()) for color in colors]
    return _lab(np.array([color for _, color in names], np.uint8)), np.array([number for number, _ in names])


def _lab(pixels: np.ndarray) -> np.ndarray:
    import cv2
    import numpy as np

    return cv2.cvtColor(pixels[None].astype(np.float32) / 255, cv2.COLOR_RGB2LAB)[0]
