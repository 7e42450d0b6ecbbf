"""Relevance feedback: marks, versions of learners, and the update with its held-out check.

Imports errors, console, config and store.
"""
