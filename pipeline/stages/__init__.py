"""One module per stage: features, train, evaluate, edit and info; `run_pipeline` chains them.

Imports all rooms up to evaluation, never search.
"""
