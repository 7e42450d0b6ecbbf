"""Figures to HTML: the report of an evaluation, its charts, and the templates that other pages share.

Knows nothing of runs; imports errors and console only.
"""
