"""Codebook and vectors are the same to the bit whatever the processor can do, and however many threads work."""

import hashlib
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from visterm.features import OnnxEmbedder, VistermExtractor
from visterm.features.codebook import kmeans
from visterm.features.resizing import VERSION

# Change them with the format of extractors alone: they stand for what runs on other machines hold.
EXPECTED = {"kmeans": "b8e2fb70bf38acbb", "forest": "3f58662c23fcbab6", "deep": "682778507f4f7ccb"}
OPENCV = "SSE4.2,AVX,FP16,AVX2,FMA3,AVX512F,AVX512-SKX"
NUMPY = "AVX2 FMA3 AVX512F AVX512_SKX AVX512_ICL"
MACHINES = {
    "as it is": {},
    "without IPP": {"OPENCV_IPP": "disabled"},
    "an old processor": {
        "OPENCV_CPU_DISABLE": OPENCV,
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": NUMPY,
    },
    "kernels for any processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "four threads": {"VISTERM_TEST_THREADS": "4", "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"},
}


def photos():
    """Some of 60 to 150 pixels, which are enlarged, and some of 260, which are scaled down."""
    import skimage.data

    rng = np.random.default_rng(0)
    crops = []
    for name in ("coffee", "chelsea"):
        photo = getattr(skimage.data, name)()
        for low, high in [(60, 150)] * 8 + [(220, 260)] * 2:
            height, width = rng.integers(low, high, 2)
            y, x = rng.integers(0, photo.shape[0] - height), rng.integers(0, photo.shape[1] - width)
            crops.append(photo[y : y + height, x : x + width])
    return crops


def checksums():
    """Of codebook, idf and vectors of either kind, and of what a network would be given."""
    images = photos()
    threads = int(os.environ.get("VISTERM_TEST_THREADS", "1"))
    settings = {"n_visterms": 300, "max_side": 200, "enlarge_to": 192, "random_state": 0, "n_jobs": threads}
    digests = {}
    for kind in ("kmeans", "forest"):
        extractor = VistermExtractor(codebook=kind, n_trees=3, **settings)
        with warnings.catch_warnings(action="ignore"):  # of fewer visterms than asked for
            extractor.fit(images, np.repeat([0, 1], 10))
        vectors = extractor.transform(images)
        codebook = extractor.codebook_
        own = [codebook.centers_, extractor.palette_.colors_] if kind == "kmeans" else [codebook.nodes_]
        digests[kind] = digest(*own, extractor.weighting_.idf_, vectors.indices, vectors.data)
    embedder = OnnxEmbedder("none", resize="trim", keep=0.9)
    embedder.size_, embedder.resizing_ = (160, 160), VERSION
    image = SimpleNamespace(name="image", type="tensor(float)", shape=[1, 3, 160, 160])
    embedder._network = SimpleNamespace(get_inputs=lambda: [image]), "vectors"  # which only says what it takes
    digests["deep"] = digest(*map(embedder._prepare, images))
    return digests


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_checksums_are_the_same_on_every_processor(machine, tmp_path):
    kernels = {"NUMBA_CACHE_DIR": str(tmp_path)} if machine == "kernels for any processor" else {}
    own = os.environ | MACHINES[machine] | kernels
    made = subprocess.run([sys.executable, __file__], env=own, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert dict(line.split() for line in made.stdout.splitlines()) == EXPECTED


def test_a_point_more_replaces_one_first_centre_at_most():
    points = np.random.default_rng(0).random((2000, 5)).astype(np.float32)

    def first_centers(rows):
        return {row.tobytes() for row in kmeans(points[rows], 300, max_iter=0, random_state=0)}

    every = np.arange(len(points))
    first = first_centers(every)
    for left_out in (*range(5), int(np.flatnonzero([row.tobytes() in first for row in points])[0])):
        fewer = first_centers(every[every != left_out])
        assert len(first - fewer) == (points[left_out].tobytes() in first)


if __name__ == "__main__":
    for kind, checksum in checksums().items():
        print(kind, checksum)
