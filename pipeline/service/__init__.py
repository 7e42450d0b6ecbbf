"""The HTTP service and its page over one run.

Imports every room but cli.
"""
