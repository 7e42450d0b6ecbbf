"""Relevance feedback: marks, versions of learners, and the update guarded by held-out images.

Imports errors, console, config and store.
"""
