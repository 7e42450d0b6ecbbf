"""Pixels to vectors: from image files to sparse visterm vectors.

Names are loaded when they are first used (__init__.pyi lists them): finding out that no image has changed must not
import Numba and scikit-learn, which takes more than a second.
"""

from visterm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
