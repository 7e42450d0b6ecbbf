"""Dense vectors in Milvus's own indexes, beside its scan of all: ``python -m benchmarks milvus_dense [--quick]``.

20,000 vectors as of the benchmark dense, 1,280 numbers each, in milvus-lite, which this process runs. Queries are those
of cosine, and of OASIS trained on the labels of the photos, with all of what it learned. Recall is the share of the
exact 10 best that are found; every candidate's score is computed exactly here, in both.
"""

import tempfile
from pathlib import Path

import numpy as np

from visterm.learners import OASIS, Cosine
from visterm.plugins.milvus.milvus import DENSE_CANDIDATES, MilvusIndex
from visterm.retrieval import ExactIndex

from .dense import gallery
from .photos import images_of
from .records import PROCESS, compared, race, record, seconds
from .search import recall

N_IMAGES, N_QUERIES, K = 20_000, 50, 10
TITLES = {"autoindex": "AUTOINDEX", "hnsw": "HNSW", "ivf": "IVF_FLAT"}


def run(quick: bool = False) -> list[dict]:
    _, photos, y, _ = images_of("corel5k", "deep")
    X = gallery(photos, 2_000 if quick else N_IMAGES)
    Q = X[np.random.default_rng(1).permutation(len(X))[:N_QUERIES]]
    oasis = OASIS(n_steps=20_000 if quick else 200_000, validation_fraction=0.2, random_state=0).fit(photos, y)
    learners = {"cosine": Cosine().fit(X), "oasis": oasis}
    wanted = {name: ExactIndex(learner, X, n_jobs=2).search(Q, K).indices for name, learner in learners.items()}
    records = []
    with tempfile.TemporaryDirectory() as folder:

        def filled(kind: str) -> tuple[MilvusIndex, float]:
            options = {"uri": str(Path(folder) / "milvus.db"), "collection": f"visterm_{kind}", "kind": kind}
            index = MilvusIndex(learners["cosine"], X, ids=np.arange(len(X)), **options)

            def fill() -> None:
                index.synchronize()
                index.search(Q[:1], K)  # milvus-lite makes its index when the first one asks

            return index, seconds(fill, clock=PROCESS)

        flat, writing = filled("flat")
        for kind, title in TITLES.items():
            index, making = filled(kind)
            recalls = {}
            for name, learner in learners.items():
                index.learner = learner
                recalls[name] = recall(wanted[name], index.search(Q, K).indices)
            index.learner = learners["cosine"]
            made = f"{title} of milvus-lite, {len(X):,} deep vectors of {X.shape[1]:,} numbers"
            scan = f"FLAT, {DENSE_CANDIDATES} candidates both"
            times = race(
                lambda k, index=index: index.search(Q[k % len(Q)][None], K),
                lambda k: flat.search(Q[k % len(Q)][None], K),
                len(Q) - 1,
                PROCESS,
                unit="ms per query",
                paired=True,
            )
            records += [
                record(f"milvus-dense-{kind}", f"a query alone, {made}", scan, "the images in view", times),
                *(
                    record(
                        f"milvus-dense-{kind}-recall-{name}",
                        f"recall at {K} for {name}, {made}",
                        "exact search",
                        "1",
                        compared(recall, 1.0, "recall", len(Q), higher=True),
                        measured=f"{len(Q)} queries",
                    )
                    for name, recall in recalls.items()
                ),
                record(
                    f"milvus-dense-{kind}-making",
                    f"writing, until a first search has an answer, {made}",
                    "FLAT",
                    "each vector is sent and stored",
                    compared(making, writing, "s", len(X)),
                    measured=f"once, {PROCESS.title}",
                ),
            ]
    return records
