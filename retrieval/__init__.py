"""Similarity + gallery -> ranked lists -> figures. Knows nothing of features, learners or files.

Names are loaded when they are first used (__init__.pyi lists them): a search imports nothing that measures.
"""

from visterm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
