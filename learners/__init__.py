"""Vectors and supervision in, a similarity out. Each learner is a scikit-learn estimator; see `SimilarityLearner`.

Names are loaded when they are first used (__init__.pyi lists them): a search loads the learner that it uses.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
