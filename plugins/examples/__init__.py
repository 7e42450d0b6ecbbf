"""Searches by several photos with weights, and by a region of a photo."""
