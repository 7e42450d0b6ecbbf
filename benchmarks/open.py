"""The open world: classes that a learner was trained on, and others: ``python -m benchmarks open [--quick]``.

Half of the classes are trained on ("seen"), the other half are not ("unseen"). Test images query test images: of seen
classes among these, of unseen ones among those, and all of them in one gallery ("both"), by shares of what was learned
(`visterm.learners.Blend`). Learners have the defaults of the commands, with the steps and the early stopping of
``visterm train``. Means of class splits; vectors as ``visterm features`` makes them. Writes the tables of
docs/open-world.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from visterm.learners import LEARNERS, Blend, SimilarityLearner
from visterm.learners.blend import scale_of
from visterm.learners.validation import mean_average_precision
from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.train import constructor_parameters
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.vectors import vectors
from visterm.retrieval import ExactIndex

from .choosing import open_set
from .growth import median_in_turns
from .page import DOCS
from .vectors import DATA

COMMAND = "python -m benchmarks open"
SETS = {"caltech101": "Caltech-101, 38 classes", "flowers": "flowers, 9 classes", "textures": "textures, 9 classes"}
KINDS = ("visterms", "deep")
NAMES = ("oasis", "aroma", "wsabie", "ovr", "hier")
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
SPLITS = 3
TEST_SHARE = 0.4
WORLDS = ("seen", "unseen", "both")
PAGE = DOCS / "open-world.md"


def images_of(name: str, kind: str) -> tuple[Config, Any, np.ndarray]:
    """Configuration, vectors and classes of all images of a set."""
    run, config = open_set(name, kind, Console(quiet=True))
    with Collection(run.collection) as collection:
        images = collection.images("train", "validation", "test", labelled=True)
        return config, vectors(run, collection, images), np.array([next(iter(image.labels)) for image in images])


def class_splits(y: np.ndarray, n_splits: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows to train on, rows of test images, and which of these are of seen classes.

    Test images come in a random order: nine in ten pairs of visterm vectors have nothing in common, and equal scores
    rank by place, which in the order of the files is that of the classes.
    """
    classes = np.unique(y)
    for seed in range(n_splits):
        rng = np.random.default_rng(seed)
        seen = rng.permutation(classes)[: (len(classes) + 1) // 2]
        test = np.zeros(len(y), bool)
        for one in classes:
            rows = rng.permutation(np.flatnonzero(y == one))
            test[rows[: round(TEST_SHARE * len(rows))]] = True
        known = np.isin(y, seen)
        rows = rng.permutation(np.flatnonzero(test))
        yield np.flatnonzero(known & ~test), rows, known[rows]


def worlds(scores: np.ndarray, y: np.ndarray, seen: np.ndarray) -> dict[str, tuple[float, float]]:
    """MAP and precision at 1 of the three worlds; scores of all test images as queries of all."""
    found = {}
    for name, rows in (("seen", seen), ("unseen", ~seen), ("both", np.ones(len(y), bool))):
        part = np.ascontiguousarray(scores[np.ix_(rows, rows)])
        relevant, own = y[rows][:, None] == y[rows], np.arange(rows.sum())
        best = np.where(np.eye(len(own), dtype=bool), -np.inf, part).argmax(axis=1)
        found[name] = mean_average_precision(part, relevant, own), float(relevant[own, best].mean())
    return found


def fitted(name: str, config: Config, X: Any, y: np.ndarray) -> SimilarityLearner:
    """A learner, trained as the command does."""
    kind: Any = LEARNERS[TRAINED[name]]
    return kind(**constructor_parameters(kind, config, name, len(y), y, np.unique(y).tolist())).fit(X, y)


def of_set(name: str, kind: str, n_splits: int) -> dict[str, np.ndarray]:
    """Means over class splits: learner to array (shares, worlds, measures)."""
    config, X, y = images_of(name, kind)
    found: dict[str, list] = {learner: [] for learner in NAMES}
    for training, test, seen in class_splits(y, n_splits):
        for learner in NAMES:
            model = fitted(learner, config, X[training], y[training])
            scale = scale_of(model, X[training])
            curve = []
            for share in SHARES:
                scores = Blend(model, share, scale=scale).similarity(X[test], X[test])
                measured = worlds(scores, y[test], seen)
                curve.append([measured[world] for world in WORLDS])
            found[learner].append(curve)
            print(f"    {name} {kind} {learner}: {np.round(np.array(curve)[[0, 2, 6], :, 0], 3).tolist()}", flush=True)
    return {learner: np.mean(curves, axis=0) for learner, curves in found.items()}


def records_of(name: str, kind: str, curves: dict[str, np.ndarray], n_splits: int) -> list[dict]:
    """A record for each learner: the mixture of both worlds, with the share that is best there."""
    records = []
    for learner, curve in curves.items():
        best = int(curve[:, 2, 0].argmax())
        records.append(
            {
                "name": f"open-{name}-{kind}-{learner}",
                "what": f"{learner}, {SETS[name]}, {kind}: both, the best share on these images, {SHARES[best]:g}",
                "ours": curve[best, 2, 0],
                "peer": curve[0, 2, 0],
                "peer_name": f"cosine on the same vectors; the whole learner: {curve[-1, 2, 0]:.3f}",
                "ratio": curve[best, 2, 0] / curve[0, 2, 0],
                "limit": "1.0: every image of the query's class first",
                "unit": "mAP",
                "n": n_splits,
                "measured": f"means of {n_splits} class splits, half of the classes trained on",
                "command": COMMAND,
                "curve": {
                    f"{share:g}": dict(zip(WORLDS, row, strict=True))
                    for share, row in zip(SHARES, curve[:, :, 0].tolist(), strict=True)
                },
            }
        )
    return records


def search_times(learner: str, n_queries: int = 64, repeats: int = 31) -> dict:
    """Exact search by a share of a learner, beside search by all of it: milliseconds of a query in a batch."""
    config, X, y = images_of("caltech101", "deep")
    model = fitted(learner, config, X, y)
    scale = scale_of(model, X)
    whole, shared = ExactIndex(model, X), ExactIndex(Blend(model, 0.5, scale=scale), X)
    shared.learner = Blend(model, 0.2, scale=scale)  # another share than the index was made with
    ours, peer = (
        1000 * seconds / n_queries
        for seconds in median_in_turns(
            lambda _: shared.search(X[:n_queries], 100), lambda _: whole.search(X[:n_queries], 100), repeats
        )
    )
    return {
        "name": f"open-search-{learner}",
        "what": f"exact search by a share of {learner}: {shared.gallery_.shape[1]} numbers an image, for all of it "
        f"{whole.gallery_.shape[1]}",
        "ours": ours,
        "peer": peer,
        "peer_name": "search by all of what was learned",
        "ratio": peer / ours,
        "limit": "a share of a learner whose gallery side is not the vectors reads these, too",
        "unit": "ms",
        "n": n_queries,
        "measured": f"processor time, median of {repeats} in turns, {X.shape[0]} images, k = 100, one thread",
        "command": COMMAND,
    }


def table(records: list[dict], name: str, kind: str) -> str:
    """Seen, unseen and both by share: a row for each learner; bold: neither seen nor unseen is below cosine."""
    rows = "| seen / unseen / both | " + " | ".join(f"{share:g}" for share in SHARES) + " |\n" + "|---" * 8 + "|\n"
    for record in records:
        if not record["name"].startswith(f"open-{name}-{kind}-"):
            continue
        cells = []
        cosine = record["curve"]["0"]
        for found in record["curve"].values():
            words = " / ".join(f"{found[world]:.3f}" for world in WORLDS)
            whole = all(found[world] >= cosine[world] - 0.005 for world in ("seen", "unseen"))
            cells.append(f"**{words}**" if whole and found["both"] > cosine["both"] else words)
        rows += f"| {record['name'].rpartition('-')[2]} | {' | '.join(cells)} |\n"
    return rows


def write(records: list[dict]) -> None:
    """Replace the tables of the page."""
    text = "\n".join(
        f"**{title}, {kind}**\n\n{table(records, name, kind)}" for name, title in SETS.items() for kind in KINDS
    )
    page = PAGE.read_text()
    marks = r"(?<=<!-- open: begin -->\n).*(?=<!-- open: end -->)"
    PAGE.write_text(re.sub(marks, lambda _: f"\n{text}\n", page, count=1, flags=re.DOTALL))


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    sets, n_splits = (["flowers"], 1) if quick else (list(SETS), SPLITS)
    records = [
        record
        for name in sets
        for kind in KINDS
        for record in records_of(name, kind, of_set(name, kind, n_splits), n_splits)
    ]
    if not quick:
        write(records)
        records += [search_times(learner) for learner in ("oasis", "wsabie")]
    return records
