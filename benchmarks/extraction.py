"""Speed and memory of visterm extraction, side by side with its peers.

    python -m benchmarks extraction [--quick]

Peers: ``cv2.imread`` alone on the same files (what decoding costs whoever reads a JPEG), ourselves on one core, and the
obvious version of the same extraction in scikit-image and scikit-learn. Photos are those of Caltech-101 below
``$VISTERM_DATA`` (default ``../shared/data``), or else crops of the photos that scikit-image ships.
Times are medians over rounds in which the two sides take turns, so that a busy machine slows both. On one core they are
processor time of the whole process, which does not count what other programs do meanwhile; on two, time of the clock.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import cv2
import numpy as np
import skimage
import threadpoolctl
from sklearn.cluster import KMeans

from visterm.features import VistermExtractor, level_shapes

DATA = pathlib.Path(os.environ.get("VISTERM_DATA", pathlib.Path(__file__).parents[1] / "../shared/data"))
COMMAND = "python -m benchmarks extraction"
SHIPPED = ("astronaut", "chelsea", "coffee", "rocket", "camera", "brick", "grass", "gravel")
BLOCK, STRIDE, SCALE = 64, 32, 1.25

# ---------------------------------------------------------------------------------------------------------------
# Photos


def photos(n_train, n_test, folder):
    """Return paths of training and of test photos; without Caltech-101, crops written into `folder`."""
    paths = sorted((DATA / "caltech101").glob("*/*.jpg"))
    if paths:
        chosen = np.random.default_rng(0).permutation(len(paths))
        return [paths[i] for i in chosen[:n_train]], [paths[i] for i in chosen[n_train : n_train + n_test]]
    rng = np.random.default_rng(0)
    sources = [getattr(skimage.data, name)() for name in SHIPPED]
    paths = []
    for i in range(n_train + n_test):
        photo = sources[i % len(sources)]
        y, x = rng.integers(0, photo.shape[0] - 240), rng.integers(0, photo.shape[1] - 300)
        crop = photo[y : y + 240, x : x + 300]
        paths.append(folder / f"{i:05}.jpg")
        cv2.imwrite(str(paths[-1]), crop if crop.ndim == 2 else crop[..., ::-1])
    return paths[:n_train], paths[n_train:]


# ---------------------------------------------------------------------------------------------------------------
# The peer


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
        image = skimage.io.imread(path)
        if image.ndim == 2:
            image = skimage.color.gray2rgb(image)
        height, width = image.shape[:2]
        descriptors = []
        for level, _ in enumerate(level_shapes(height, width)):
            scaled = skimage.transform.rescale(image, SCALE**-level, channel_axis=2) if level else image / 255
            pixels = (scaled * 255).reshape(-1, 3).astype(np.float32)
            colors = self.palette.predict(pixels).reshape(scaled.shape[:2])
            gray = (skimage.color.rgb2gray(scaled) * 255).astype(np.uint8)
            patterns = skimage.feature.local_binary_pattern(gray, 8, 2, "nri_uniform")
            for y in range(0, gray.shape[0] - BLOCK + 1, STRIDE):
                for x in range(0, gray.shape[1] - BLOCK + 1, STRIDE):
                    block = np.s_[y : y + BLOCK, x : x + BLOCK]
                    histogram = np.concatenate(
                        [
                            np.histogram(colors[block], bins=20, range=(0, 20))[0],
                            np.histogram(patterns[block], bins=59, range=(0, 59))[0],
                        ]
                    )
                    descriptors.append(np.sqrt(histogram / BLOCK**2))
        return self.codebook.predict(np.array(descriptors, dtype=np.float32))


# ---------------------------------------------------------------------------------------------------------------
# Measuring


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


def milliseconds(function, n, clock):
    start = clock()
    function()
    return (clock() - start) * 1000 / n


def in_turns(ours, peer, n, rounds, clock=time.process_time):
    """Median milliseconds per image of both, and the median of their ratios, peer / ours."""
    pairs = [(milliseconds(ours, n, clock), milliseconds(peer, n, clock)) for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return mine, theirs, statistics.median(b / a for a, b in pairs)


def record(name, what, ours, peer, peer_name, ratio, limit, unit, n, measured, **more):
    return {
        "name": name,
        "what": what,
        "ours": round(ours, 4),
        "peer": round(peer, 4),
        "peer_name": peer_name,
        "ratio": round(ratio, 3),
        "limit": limit,
        "unit": unit,
        "n": n,
        "measured": measured,
        "command": COMMAND,
        **more,
    }


def against_imread(extractor, paths, rounds):
    with one_core():
        ours, peer, ratio = in_turns(
            lambda: extractor.count(paths), lambda: [cv2.imread(str(path)) for path in paths], len(paths), rounds
        )
    return record(
        "extract-10000", "a photo, file to counts of 10000 visterms", ours, peer, "cv2.imread alone, one core", ratio,
        "the peer's time: who reads a photo has to decode it",
        "ms an image", len(paths), f"{len(paths)} photos, median of {rounds} in turns, 1 core each, processor time",
        times_imread=round(1 / ratio, 2),
    )  # fmt: skip


def on_two_cores(extractor, paths, rounds):
    twice = VistermExtractor.load(extractor.folder).set_params(n_jobs=2)
    with threadpoolctl.threadpool_limits(1):
        ours, peer, ratio = in_turns(
            lambda: twice.count(paths), lambda: extractor.count(paths), len(paths), rounds, time.perf_counter
        )
    return record(
        "extract-10000-2cores", "the same on two cores", ours, peer, "ourselves on one core", ratio,
        "a ratio of 2",
        "ms an image", len(paths), f"{len(paths)} photos, median of {rounds} in turns, elapsed time",
        cores=os.cpu_count(),
    )  # fmt: skip


def against_plain_libraries(extractor, paths, rounds):
    plain = PlainExtractor(extractor)
    with one_core():
        ours, peer, ratio = in_turns(lambda: extractor.count(paths), lambda: plain.count(paths), len(paths), rounds)
    return record(
        "extract-plain-libraries", "the same beside the obvious version of it",
        ours, peer, "scikit-image and scikit-learn, one core", ratio,
        "as above: both decode the same files", "ms an image", len(paths),
        f"{len(paths)} photos, median of {rounds} in turns, 1 core each, processor time",
    )  # fmt: skip


MEMORY = """
import itertools, pathlib, resource, sys
from visterm.features import VistermExtractor
folder, n, *paths = sys.argv[1:]
extractor = VistermExtractor.load(folder)
counts = extractor.count(pathlib.Path(path) for path in itertools.islice(itertools.cycle(paths), int(n)))
kept = sum(part.nbytes for part in (counts.data, counts.indices, counts.indptr))
try:  # the peak of this program alone; getrusage counts what the parent held when it forked
    status = pathlib.Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
except (OSError, IndexError):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak / 1024, kept / 2**20)
"""


def memory(extractor, paths, n):
    """Peak memory of a process that counts n images from a generator, and of one that counts 4n."""

    def peak(n):
        arguments = [sys.executable, "-c", MEMORY, str(extractor.folder), str(n), *map(str, paths)]
        output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
        return map(float, output.split())

    (few, _), (many, kept) = peak(n), peak(4 * n)
    return record(
        "extract-memory", f"extraction of {4 * n} photos", many, few, f"ourselves with {n} images", few / many,
        f"the counts themselves, {kept:.2g} MiB, and what one batch of 32 images takes on the way",
        "MiB at the peak", 4 * n, "peak of a process", counts_mib=round(kept, 2),
    )  # fmt: skip


def run(quick: bool = False) -> list[dict]:
    """Run all benchmarks of extraction; `quick` takes few images and rounds."""
    n_train, n_test, rounds = (200, 96, 3) if quick else (600, 640, 9)
    with tempfile.TemporaryDirectory() as folder:
        train, test = photos(n_train, n_test, pathlib.Path(folder))
        extractor = VistermExtractor(n_visterms=10_000, random_state=0, max_iter=3 if quick else 10, n_jobs=-1)
        extractor.fit(train).set_params(n_jobs=1)
        extractor.folder = pathlib.Path(folder) / "extractor"
        extractor.save(extractor.folder)
        extractor.count(test[:2])  # compiles
        return [
            against_imread(extractor, test, rounds),
            on_two_cores(extractor, test, rounds),
            against_plain_libraries(extractor, test[: 4 if quick else 24], 1 if quick else 3),
            memory(extractor, test, 100 if quick else 500),
        ]
