"""The command line: one module per group of commands.

Imports every other room, inside the commands, so that ``visterm --help`` starts fast.
"""
