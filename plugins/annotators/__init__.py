"""Learners that rank labels, beside WSABIE: PAMIR, one against the rest, LinearWARP and k-NN.

HIER compares images by what one against the rest says of them. All are public names of `visterm.learners`.
"""
