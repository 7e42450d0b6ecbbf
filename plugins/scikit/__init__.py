"""Learners in pipelines of scikit-learn: `Embedding` and `SimilarityNeighbors` of `visterm.learners`."""
