"""Vectors that are no visterms: of networks, as ONNX models, and imported ones. See docs/vectors.md.

`OnnxEmbedder`, `TextEmbedder`, `deep_embedder` and `read_vectors` are public names of `visterm.features`.
"""
