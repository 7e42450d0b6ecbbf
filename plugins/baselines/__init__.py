"""Learners to compare with: LEGO, MCML, RCA and the method of Xing, beside which the OASIS paper measures.

Each learns a positive semi-definite d x d matrix in d^2 operations a step or more, and is for some thousand visterms at
most; they rank no better than OASIS. `LabelRidge` is solved at once, and stands beside OASIS in the open world. They
are exported with the others: `from visterm.learners import LEGO`.

HIER stands in a paper as a comparison, too, and is not here: on deep vectors, and where only classes are searched that
were trained on, it ranks best of all (docs/comparison.md), as does the one-vs-rest classifier that it is made of. PAMIR
and k-NN annotate, for which docs/choosing.md recommends them.
"""
