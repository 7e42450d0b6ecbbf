# The public names of the room; __init__.py loads each from its file when it is first used.
from visterm.plugins.forest.forest import ForestCodebook
from visterm.plugins.vectors.efficientnet import deep_embedder
from visterm.plugins.vectors.onnx_embedder import OnnxEmbedder
from visterm.plugins.vectors.text_embedder import TextEmbedder
from visterm.plugins.vectors.vector_tables import VectorTable, read_query_vectors, read_vectors

from .blocks import block_grid, level_shapes, pyramid
from .codebook import Codebook
from .color import Palette
from .descriptors import describe
from .extractor import VistermExtractor
from .images import ImageError, decode_image, find_images, printable, read_image, read_picture, silence_decoders
from .texture import lbp_codes
from .visterms import VistermWeighting, count_visterms

__all__ = [
    "Codebook",
    "ForestCodebook",
    "ImageError",
    "OnnxEmbedder",
    "Palette",
    "TextEmbedder",
    "VectorTable",
    "VistermExtractor",
    "VistermWeighting",
    "block_grid",
    "count_visterms",
    "decode_image",
    "deep_embedder",
    "describe",
    "find_images",
    "lbp_codes",
    "level_shapes",
    "printable",
    "pyramid",
    "read_image",
    "read_picture",
    "read_query_vectors",
    "read_vectors",
    "silence_decoders",
]
