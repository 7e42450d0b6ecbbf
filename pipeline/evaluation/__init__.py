"""Measures trained learners; writes metrics.json, CSV tables and the report.

Imports errors, console, report, config and store.
"""
