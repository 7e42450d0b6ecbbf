"""Well-known ways to turn an image into the numbers that an image model expects.

No imports here: every command reads the configuration, which names these.
"""

from __future__ import annotations

_IMAGENET = [123.675, 116.28, 103.53], [1 / 58.395, 1 / 57.12, 1 / 57.375]

RESIZES = "crop", "trim", "stretch", "pad"  # how an image is fitted to the input; see OnnxEmbedder
POOLS = "cls", "mean", "mean-patches"  # how tokens become one vector; see OnnxEmbedder

# Name -> mean and scale: the model gets (pixel - mean) * scale.
PRESETS: dict[str, tuple[float | list[float], float | list[float]]] = {
    "0..1": (0.0, 1 / 255),
    "imagenet": _IMAGENET,  # torchvision, timm
    "tf": (127.5, 1 / 127.5),  # -1 to 1: Keras' MobileNet, Inception
    "clip": ([122.7709383, 116.7460125, 104.09373615], [1 / 68.5005327, 1 / 66.6321579, 1 / 70.32316305]),
    "dinov2": _IMAGENET,
}


def mean_and_scale(
    preprocess: str, mean: float | list[float] | None, scale: float | list[float] | None
) -> tuple[float | list[float], float | list[float]]:
    """Return mean and scale: those of the preset unless set."""
    defaults = PRESETS[preprocess]
    return defaults[0] if mean is None else mean, defaults[1] if scale is None else scale
