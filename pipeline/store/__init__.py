"""Everything inside ``runs/<name>``: run, records, catalogue, segments, trained models, and the append-only store.

Imports errors, console and config.
"""
