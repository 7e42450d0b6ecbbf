"""The configuration: strict pydantic models and their loading from YAML and settings.

Imports errors only.
"""
