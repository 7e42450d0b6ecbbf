"""Measurements of quality that chose a default, or that show what it is worth."""
