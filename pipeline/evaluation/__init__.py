"""Measures a trained learner and writes metrics.json, CSV tables and the data of the report.

Imports errors, console, report, config and store.
"""
