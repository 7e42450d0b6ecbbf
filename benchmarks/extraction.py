"""Speed and memory of visterm extraction, side by side with its peers.

    python -m benchmarks extraction [--quick]

Peers: ``cv2.imread`` alone on the same files (what decoding costs whoever reads a JPEG), ourselves on one core, and the
obvious version of the same extraction in scikit-image and scikit-learn. Photos: benchmarks/photos.py.
Times are medians over rounds in which the two sides take turns, so that a busy machine slows both. On one core they are
processor time of the whole process, which does not count what other programs do meanwhile; on two, time of the clock.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import warnings

import cv2
import numpy as np
import skimage
import threadpoolctl
from sklearn.cluster import KMeans

from visterm.features import VistermExtractor, level_shapes

from .photos import some_photos
from .processes import in_own_process, peak_memory, temporary_folder
from .records import ELAPSED, PROCESS, compared, race, record

BLOCK, STRIDE, SCALE = 64, 32, 1.25

# -- the peer ----------------------------------------------------------------------------------------------------------


def scaled_levels(path):
    """Pixels of the photo at each scale, from 0 to 1."""
    image = skimage.io.imread(path)
    if image.ndim == 2:
        image = skimage.color.gray2rgb(image)
    for level, _ in enumerate(level_shapes(*image.shape[:2])):
        yield skimage.transform.rescale(image, SCALE**-level, channel_axis=2) if level else image / 255


def corners_of_blocks(shape):
    height, width = shape
    return itertools.product(range(0, height - BLOCK + 1, STRIDE), range(0, width - BLOCK + 1, STRIDE))


class PlainExtractor:
    """The same extraction in plain scikit-image, NumPy and scikit-learn, block by block."""

    def __init__(self, extractor):
        self.palette = self._kmeans(extractor.palette_.colors_)
        self.codebook = self._kmeans(extractor.codebook_.centers_)

    @staticmethod
    def _kmeans(centers):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one round on the centres themselves does not converge, nor need it
            return KMeans(len(centers), init=centers, n_init=1, max_iter=1).fit(centers)

    def count(self, paths):
        n_visterms = len(self.codebook.cluster_centers_)
        return np.array([np.bincount(self._visterms(path), minlength=n_visterms) for path in paths])

    def _visterms(self, path):
        descriptors = []
        for scaled in scaled_levels(path):
            pixels = (scaled * 255).reshape(-1, 3).astype(np.float32)
            colors = self.palette.predict(pixels).reshape(scaled.shape[:2])
            gray = (skimage.color.rgb2gray(scaled) * 255).astype(np.uint8)
            patterns = skimage.feature.local_binary_pattern(gray, 8, 2, "nri_uniform")
            for y, x in corners_of_blocks(gray.shape):
                block = np.s_[y : y + BLOCK, x : x + BLOCK]
                of_colors = np.histogram(colors[block], bins=20, range=(0, 20))[0]
                of_patterns = np.histogram(patterns[block], bins=59, range=(0, 59))[0]
                descriptors.append(np.sqrt(np.concatenate([of_colors, of_patterns]) / BLOCK**2))
        return self.codebook.predict(np.array(descriptors, dtype=np.float32))


# -- measuring ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def one_core():
    """Pin the process with all its threads to one core, if the system supports it."""
    threads = cv2.getNumThreads()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    cv2.setNumThreads(1)
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        with threadpoolctl.threadpool_limits(1):
            yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
        cv2.setNumThreads(threads)


def of_photos(ours, peer, n: int, rounds: int, clock=PROCESS) -> dict:
    """Figures of a race of two functions that read n photos."""
    of = {"unit": "ms an image", "things": n, "of": f"{n} photos", "n": n}
    return race(lambda _: ours(), lambda _: peer(), rounds, clock, paired=True, **of)


def against_imread(extractor, paths, rounds: int) -> dict:
    with one_core():
        times = of_photos(
            lambda: extractor.count(paths), lambda: [cv2.imread(str(path)) for path in paths], len(paths), rounds
        )
    return record(
        "extract-10000",
        "a photo, file to counts of 10000 visterms",
        "cv2.imread alone, one core",
        "the peer's time: who reads a photo has to decode it",
        times,
        times_imread=round(1 / times["ratio"], 2),
    )


def on_two_cores(extractor, paths, rounds: int) -> dict:
    twice = VistermExtractor.load(extractor.folder).set_params(n_jobs=2)
    with threadpoolctl.threadpool_limits(1):
        times = of_photos(lambda: twice.count(paths), lambda: extractor.count(paths), len(paths), rounds, ELAPSED)
    return record(
        "extract-10000-2cores",
        "the same on two cores",
        "ourselves on one core",
        "a ratio of 2",
        times,
        cores=os.cpu_count(),
    )


def against_plain_libraries(extractor, paths, rounds: int) -> dict:
    plain = PlainExtractor(extractor)
    with one_core():
        times = of_photos(lambda: extractor.count(paths), lambda: plain.count(paths), len(paths), rounds)
    return record(
        "extract-plain-libraries",
        "the same beside the obvious version of it",
        "scikit-image and scikit-learn, one core",
        "as above: both decode the same files",
        times,
    )


def counting_memory(folder: pathlib.Path, paths, n: int) -> tuple[float, float]:
    """MiB of this process at its peak, after it counted n images from a generator, and of the counts."""
    counts = VistermExtractor.load(folder).count(itertools.islice(itertools.cycle(paths), n))
    kept = sum(part.nbytes for part in (counts.data, counts.indices, counts.indptr))
    return peak_memory() / 2**20, kept / 2**20


def memory(extractor, paths, n: int) -> dict:
    """Peak memory of a process that counts n images, and of one that counts 4n."""
    (few, _), (many, kept) = (in_own_process(counting_memory, extractor.folder, paths, m) for m in (n, 4 * n))
    return record(
        "extract-memory",
        f"extraction of {4 * n} photos",
        f"ourselves with {n} images",
        f"the counts themselves, {kept:.2g} MiB, and what one batch of 32 images takes on the way",
        compared(many, few, "MiB at the peak", 4 * n),
        measured="peak of a process",
        counts_mib=round(kept, 2),
    )


def run(quick: bool = False) -> list[dict]:
    """Run all benchmarks of extraction; `quick` takes few images and rounds."""
    n_train, n_test, rounds = (200, 96, 3) if quick else (600, 640, 9)
    with temporary_folder() as folder:
        train, test = some_photos(n_train, n_test, folder)
        extractor = VistermExtractor(n_visterms=10_000, random_state=0, max_iter=3 if quick else 10, n_jobs=-1)
        extractor.fit(train).set_params(n_jobs=1)
        extractor.folder = folder / "extractor"
        extractor.save(extractor.folder)
        extractor.count(test[:2])  # compiles
        return [
            against_imread(extractor, test, rounds),
            on_two_cores(extractor, test, rounds),
            against_plain_libraries(extractor, test[: 4 if quick else 24], 1 if quick else 3),
            memory(extractor, test, 100 if quick else 500),
        ]
