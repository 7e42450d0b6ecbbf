"""Visterms of photos of 12 megapixels, and of the same photos smaller: ``python -m benchmarks photo_sizes [--quick]``.

Photos of flowers and textures are enlarged to 12 megapixels, given a camera's noise, and saved as JPEGs. They lie in a
gallery with the 2,470 photos of Caltech-101, from which visterms are learned. The queries are the same photos at 1/1,
1/2, 1/4 and 1/8 of their sides, encoded once more. Also measured with other settings of `max_side`.
"""

from __future__ import annotations

import cv2
import numpy as np
import scipy.sparse as sp

from visterm.features import VistermExtractor

from .photos import encode, enlarged, files_of
from .processes import temporary_folder
from .records import PROCESS, compared, record, seconds, timed
from .vectors import choose_images

QUALITY = 90, 85  # of the JPEGs, and of those encoded once more
DIVISORS = 1, 2, 4, 8


def smaller(photo: np.ndarray, divisor: float) -> np.ndarray:
    return cv2.resize(photo, None, fx=1 / divisor, fy=1 / divisor, interpolation=cv2.INTER_AREA)


class Photos:
    """Vectors of the photos at every size, and what it took to get them, by one extractor."""

    def __init__(self, extractor, paths, folder, *, divisors=DIVISORS, at_500=True):
        vectors = {name: [] for name in ("gallery", 500, *divisors)}
        self.milliseconds, self.decoding = [], []
        for path in paths:
            photo = enlarged(path)
            data = np.frombuffer(encode(photo, QUALITY[0]), np.uint8)
            (master := folder / "master.jpg").write_bytes(data)
            self.decoding.append(1000 * seconds(cv2.imdecode, data, cv2.IMREAD_COLOR, clock=PROCESS))
            row, spent = timed(extractor.transform, [master], clock=PROCESS)
            vectors["gallery"].append(row)
            self.milliseconds.append(1000 * spent)
            if at_500:
                small = smaller(photo, max(photo.shape) / 500)
                vectors[500].append(extractor.transform([cv2.cvtColor(small, cv2.COLOR_BGR2RGB)]))
            for divisor in divisors:
                (query := folder / "query.jpg").write_bytes(encode(smaller(photo, divisor), QUALITY[1]))
                vectors[divisor].append(extractor.transform([query]))
        self.vectors = {name: sp.vstack(rows, format="csr") for name, rows in vectors.items() if rows}

    def found_first(self, divisor, others) -> float:
        """Share of the queries whose own photo is most similar."""
        gallery = sp.vstack([self.vectors["gallery"], others])
        best = (self.vectors[divisor] @ gallery.T).toarray().argmax(axis=1)
        return float(np.mean(best == np.arange(len(best))))

    def nonzeros(self, name) -> np.ndarray:
        return np.diff(self.vectors[name].indptr)


def run(quick: bool = False) -> list[dict]:
    n_photos, n_as_they_come = (12, 4) if quick else (200, 20)
    paths, _, train = choose_images("caltech101-38")
    sources = files_of("flowers", "textures")
    sources = sources[:: len(sources) // n_photos][:n_photos]
    learned = [path for path, used in zip(paths, train, strict=True) if used][:: 10 if quick else 1]
    settings = {"n_visterms": 1000 if quick else 10_000, "random_state": 0}
    threads = cv2.getNumThreads()
    with temporary_folder() as folder:
        extractor = VistermExtractor(**settings, n_jobs=-1).fit(learned)
        others = extractor.transform(paths)
        extractor.set_params(n_jobs=1)
        cv2.setNumThreads(1)
        try:
            photos = Photos(extractor, sources, folder)
            extractor.set_params(max_side=None)
            few = sources[:: len(sources) // n_as_they_come][:n_as_they_come]
            plain = Photos(extractor, few, folder, divisors=(8,), at_500=False)
        finally:
            cv2.setNumThreads(threads)
    shares = {divisor: photos.found_first(divisor, others) for divisor in DIVISORS}
    lowest, peer_found = min(shares.values()), plain.found_first(8, others)
    decoding, gallery = np.median(photos.decoding), photos.nonzeros("gallery")
    at_500, as_they_come = photos.nonzeros(500), np.median(plain.nonzeros("gallery"))
    times, ratio = gallery / at_500, as_they_come / np.median(gallery)
    measured = f"{len(sources)} photos of flowers and textures, enlarged, one core"
    return [
        record(
            "extract-12mp",
            "a JPEG of 12 megapixels to weighted visterms, max_side 500",
            "max_side null",
            f"decoding at full size alone takes {decoding:.0f} ms",
            compared(np.median(photos.milliseconds), np.median(plain.milliseconds), "ms an image", len(sources)),
            measured=f"{measured}, processor time, medians; peer: {len(few)} photos",
            decoding=decoding,
        ),
        record(
            "extract-12mp-nonzeros",
            "non-zeros of 12 megapixels against those of the same photo at 500 pixels",
            "max_side null",
            "1: the same vector",
            compared(np.median(times), as_they_come / np.median(at_500), "times", len(sources), ratio=ratio),
            measured=f"{measured}, median; largest {times.max():.2f}",
            largest=float(times.max()),
        ),
        record(
            "extract-12mp-found",
            f"the same photo found first among {others.shape[0] + len(sources) - 1:,} others",
            "max_side null, 1/8",
            "1",
            compared(lowest, peer_found, "of the queries", len(sources), ratio=lowest / max(peer_found, 1e-2)),
            measured=f"{measured}, encoded again at 1/1, 1/2, 1/4, 1/8: "
            + ", ".join(f"{share:.3f}" for share in shares.values())
            + "; the lowest",
            shares=list(shares.values()),
        ),
    ]
