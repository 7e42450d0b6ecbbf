"""What `visterm forget` leaves: the learner without an image's steps, beside one that never saw the image.

And what a repair would bring: so many more steps with all other images, after the steps of the image were taken out.
"""

from __future__ import annotations

import copy

import numpy as np

from benchmarks.photos import images_of, of_each_class
from benchmarks.records import compared, record
from visterm.learners import OASIS, Teachers

SETS = ("flowers", "textures")
N_IMAGES, STEPS = 12, 300_000
REPAIRS = (3_000, 30_000)


def run(quick: bool = False) -> list[dict]:
    return [forgotten(name, 2 if quick else N_IMAGES) for name in SETS[: 1 if quick else None]]


def forgotten(name: str, n_images: int) -> dict:
    """Mean over some images: how far W is from that of a training without the image, and what the image scores."""
    _, X, y, _ = images_of(name, "deep")
    rng = np.random.default_rng(0)
    rows, _ = of_each_class(y, rng, 36, None)
    X, y = X[rows], y[rows]
    whole = fit(X, y)
    distances, scores = [], []
    for image in rng.permutation(len(y))[:n_images]:
        others = np.arange(len(y)) != image
        never = fit(X[others], y[others])
        learners = whole, Teachers(whole, X).without(np.array([image])), never
        again = fit(X[others], y[others], seed=1)
        repaired = [repair(learners[1], X[others], y[others], steps) for steps in REPAIRS]
        distances.append([np.linalg.norm(one.W_ - never.W_) for one in (*learners[:2], again, *repaired)])
        similarities = [one.similarity(X[[image]], X)[0] for one in (*learners, *repaired)]
        alike = (y == y[image]) & others
        scores.append([score[alike].mean() - score[y != y[image]].mean() for score in similarities])
    with_image, without, by_chance, *after = np.mean(distances, axis=0)
    texts = [f"{score:.2f}" for score in np.mean(scores, axis=0)]
    return record(
        f"teachers-forgotten-{name}",
        f"distance of W, of which an image was forgotten, from that of a training without it, {name}, deep",
        "W before forgetting",
        "0: the same learner",
        compared(float(without), float(with_image), "Frobenius norm", n_images),
        measured=f"means of {n_images} images, {STEPS:,} triplets; two trainings without the image that draw other "
        f"triplets are {by_chance:.1f} apart; the image scores its class above others by {texts[0]}, forgotten "
        f"{texts[1]}, never learned {texts[2]}, after "
        + ", ".join(f"{n:,} more steps {t} and {far:.1f}" for n, t, far in zip(REPAIRS, texts[3:], after, strict=True)),
    )


def repair(learner: OASIS, X: np.ndarray, y: np.ndarray, n_steps: int) -> OASIS:
    """Learn more from some images."""
    return copy.deepcopy(learner).set_params(n_steps=n_steps, record_teachers=False).partial_fit(X, y)


def fit(X: np.ndarray, y: np.ndarray, seed: int = 0) -> OASIS:
    return OASIS(n_steps=STEPS, record_teachers=True, random_state=seed).fit(X, y)
