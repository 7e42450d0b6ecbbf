"""Time and quality of k-means for a codebook, beside scikit-learn's: ``python -m benchmarks codebook [--quick]``.

Points: distinct block descriptors of photos (see benchmarks/photos.py). KMeans begins, as ours, with points drawn
at random, and makes as many rounds; ``Codebook`` stops when a round gains little, which is switched off here.
MiniBatchKMeans looks at as many batches as are those rounds, or stops by its own rule. Inertia: mean squared distance
of a point to its centre, in the end. Elapsed time, two threads each.
"""

import warnings

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin_min
from threadpoolctl import threadpool_limits

from visterm.features import Codebook, Palette, describe, read_image

from . import machine
from .photos import some_photos
from .processes import temporary_folder
from .records import ELAPSED, compared, record, seconds

N_THREADS = 2
ROUNDS = 10
MIN_BATCH = 2048  # of MiniBatchKMeans; smaller ones leave a thread without work, and one smaller than k some centres


def descriptors(n_photos: int) -> np.ndarray:
    """Distinct descriptors of blocks, float32 (n, 79)."""
    with temporary_folder() as folder:
        images = [read_image(path) for path in some_photos(n_photos, 1, folder)[0]]
    pixels = np.concatenate([image.reshape(-1, 3)[::50] for image in images])
    palette = Palette(random_state=0).fit(pixels)
    return np.unique(np.concatenate([describe(image, palette) for image in images]), axis=0)


def inertia(points: np.ndarray, centers: np.ndarray) -> float:
    distances = pairwise_distances_argmin_min(points, np.asarray(centers, np.float32), metric="sqeuclidean")[1]
    return float(distances.mean())


def fit(learner, points: np.ndarray) -> tuple[float, float]:
    """Seconds and inertia."""
    with threadpool_limits(N_THREADS), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the rounds are bounded on purpose
        spent = seconds(learner.fit, points, clock=ELAPSED)
    centers = learner.centers_ if isinstance(learner, Codebook) else learner.cluster_centers_
    return spent, inertia(points, centers)


def compare(points: np.ndarray, k: int, repeats: int) -> list[dict]:
    common = {"max_iter": ROUNDS, "init": "random", "n_init": 1}
    batch, rounds = max(MIN_BATCH, k), []
    Codebook(n_visterms=10, max_iter=1, n_jobs=N_THREADS).fit(points[:100])  # compiles
    for seed in range(repeats):
        learners = (
            Codebook(n_visterms=k, max_iter=ROUNDS, tol=0, random_state=seed, n_jobs=N_THREADS),
            KMeans(k, tol=0, random_state=seed, **common),
            MiniBatchKMeans(k, batch_size=batch, random_state=seed, **common),
        )
        rounds.append([fit(learner, points) for learner in learners])
    # Seconds and inertia of each.
    ours, lloyd, batches = np.median(rounds, axis=0)
    bound = ROUNDS * 2 * len(points) * k * points.shape[1] / machine.flops(N_THREADS)
    times = f"median of {repeats} in turns, {N_THREADS} threads each, elapsed time"
    seeds = f"median of {repeats} seeds"
    what = f"k-means of {len(points)} descriptors, {k} centres, {ROUNDS} rounds"
    limit = f"{bound:.2g} s for whoever computes all distances as matrix products; ours rules most centres out"
    lloyds, minibatch = "KMeans of scikit-learn", f"MiniBatchKMeans of scikit-learn, batches of {batch}"
    rows = (
        ("", "s", 0, lloyds, lloyd, limit, times),
        ("-inertia", "mean squared distance", 1, lloyds, lloyd, "0", seeds),
        ("-minibatch", "s", 0, minibatch, batches, "as above", times),
        ("-minibatch-inertia", "mean squared distance", 1, minibatch, batches, "0", seeds),
    )
    return [
        record(
            f"codebook-{k}{end}",
            what,
            peer_name,
            limit,
            compared(ours[place], peer[place], unit, len(points)),
            measured=measured,
        )
        for end, unit, place, peer_name, peer, limit, measured in rows
    ]


def run(quick: bool = False) -> list[dict]:
    points = descriptors(100 if quick else 600)
    return [one for k in (1000, 10_000)[: 1 if quick else 2] for one in compare(points, k, 1 if quick else 3)]
