"""One module per stage: features, train, evaluate, changes by hand, drift, info, and the cluster they can run on.

Imports all rooms up to evaluation and feedback, never search.
"""
