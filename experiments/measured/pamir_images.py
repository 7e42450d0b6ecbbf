"""PAMIR as it was published: photos ranked for a word, where `visterm.learners.PAMIR` ranks words for a photo.

Grangier, Bengio, IEEE PAMI 30(8), 2008: for a query q, a photo x+ that is relevant and one x- that is not,

    loss = max(0, 1 - w_q' (x+ - x-)),    tau = min(C, loss / |x+ - x-|^2),    w_q <- w_q + tau (x+ - x-)

The word is uniform over those that a photo has and another lacks, then each photo over those of its kind.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.learners import PAMIR
from visterm.learners.draws import draw_below, stream
from visterm.learners.loop import Training
from visterm.learners.rows import Float, Int, Rows


@njit(cache=True, nogil=True, error_model="numpy")
def image_pass(
    rows: Rows,
    starts: np.ndarray,
    images: np.ndarray,
    usable: np.ndarray,
    has: np.ndarray,
    C: Float,
    n_steps: Int,
    state: np.ndarray,
    W: np.ndarray,
) -> tuple[float, int]:
    """Learn from `n_steps` draws; sum of the losses and number of violating ones.

    Of word q, images[starts[q]:starts[q + 1]] have it; `has` (n, n_labels) says the same; W is (n_labels, d).
    """
    indptr, indices, data, norms = rows
    relevant = np.zeros(W.shape[1], np.float32)  # x+
    losses, violating = 0.0, 0
    for _ in range(n_steps):
        q = draw_below(len(starts) - 1, state)
        while not 0 < starts[q + 1] - starts[q] < len(usable):
            q = draw_below(len(starts) - 1, state)
        good = images[starts[q] + draw_below(starts[q + 1] - starts[q], state)]
        bad = usable[draw_below(len(usable), state)]
        while has[bad, q]:
            bad = usable[draw_below(len(usable), state)]
        w, margin, shared = W[q], np.float32(0.0), np.float32(0.0)
        for k in range(indptr[good], indptr[good + 1]):
            relevant[indices[k]] = data[k]
            margin += data[k] * w[indices[k]]
        for k in range(indptr[bad], indptr[bad + 1]):
            shared += data[k] * relevant[indices[k]]
            margin -= data[k] * w[indices[k]]
        for k in range(indptr[good], indptr[good + 1]):
            relevant[indices[k]] = 0.0
        loss, square = np.float32(1.0) - margin, norms[good] + norms[bad] - 2 * shared
        if loss <= 0.0 or square <= 0.0:
            continue
        losses += float(loss)
        violating += 1
        tau = np.float32(min(C, loss / square))
        for k in range(indptr[good], indptr[good + 1]):
            w[indices[k]] += tau * data[k]
        for k in range(indptr[bad], indptr[bad + 1]):
            w[indices[k]] -= tau * data[k]
    return losses, violating


class ImagePAMIR(PAMIR):
    """PAMIR that ranks photos for a word; C is to be given."""

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        rows, (label_start, labels, usable) = training.rows, training.sampler
        has = np.zeros((len(label_start) - 1, len(self.classes_)), bool)
        for image in usable:
            has[image, labels[label_start[image] : label_start[image + 1]]] = True
        of_word, images = np.nonzero(has.T)
        starts = np.searchsorted(of_word, np.arange(len(self.classes_) + 1))
        W = np.ascontiguousarray(self.W_.T)
        state = stream(self.seed_, 0, self.n_steps_)
        figures = image_pass(rows, starts, images, np.asarray(usable), has, float(self.C), n_steps, state, W)
        self.W_[:] = W.T
        return figures
