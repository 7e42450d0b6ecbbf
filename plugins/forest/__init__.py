"""A codebook of random trees, which learn from labels: `visterm.features.ForestCodebook`."""
