"""Pixels to vectors: from image files to sparse visterm vectors."""

from .blocks import block_grid, level_shapes, pyramid
from .codebook import Codebook
from .color import Palette
from .descriptors import describe
from .extractor import VistermExtractor
from .images import ImageError, find_images, read_image
from .texture import lbp_codes
from .visterms import VistermWeighting, count_visterms

__all__ = [
    "Codebook",
    "ImageError",
    "Palette",
    "VistermExtractor",
    "VistermWeighting",
    "block_grid",
    "count_visterms",
    "describe",
    "find_images",
    "lbp_codes",
    "level_shapes",
    "pyramid",
    "read_image",
]
