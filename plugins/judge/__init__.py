"""The human evaluation of the OASIS paper: tasks, judgements and their measures.

Imports store and search and what these import.
"""
