"""Vectors and supervision in, a similarity out. Each learner is a scikit-learn estimator; see `SimilarityLearner`.

Names are loaded when they are first used (__init__.pyi lists them): a search loads the learner that it uses.
"""

from visterm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
