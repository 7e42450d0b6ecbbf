"""A run opened for searching: gallery, queries, filters, rankings, indexes, and the page of results.

Imports all rooms up to evaluation, never stages.
"""
